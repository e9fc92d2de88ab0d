#include "workloads/training/features/dispatcher.hpp"

#include "sim/base/error.hpp"
#include "workloads/training/plan/spec.hpp"

#include <algorithm>

namespace orrery::training {

namespace {

struct Library {
    const char* name;
    double wait;     ///< s; negative: the host asks for counts, which the software's expert_wait is of
    double start;    ///< s
    double message;  ///< s for each token and node that it goes to; 0: bytes alone decide
    double rate;     ///< of the network's, that bytes reach
    bool blocks;     ///< the host waits inside each dispatch of a forward pass until the counts have come
};

// HybridEP: fitted on the declared half of its eager runs in validation/training/recent but gpt-oss's, five of eleven, of Megatron-Bridge and
// Megatron-LM (0.25 ms steps: 2.5 and 3.25 ms err by 5.6 and 5.2 %, 3 ms by 5.0 %; held back 5.5 %).
// Proxy: mean of what UCCL-EP takes for 128 tokens over EFA among 16 and 32 ranks, dispatch 301 and 358 us, combine 835 and 689 us
// (awslabs/awsome-distributed-ai, micro-benchmarks/expert-parallelism, pplx-garden's README).
// UCCL, NVSHMEM and GIN: kernels of training (normal mode) of 4,096 tokens over EFA among 16 and 32 ranks on B200, in 8 and 16 bits
// (awslabs/awsome-distributed-ai@bbc61e7, ep-backend-comparison/results/b200-us-east-1-2026-09-01-ep16-ep32-n4.json, four rows each), less
// what their bytes take at 50 GB/s per GPU:
//   uccl     1.75, 1.58, 1.63 and 1.76 ms for each of both ways: a start
//   nvshmem  DeepEP of version 1 over libfabric, 0.36, 0.43, 0.57 and 0.59 us for each token and other node, bytes hidden: messages
//   gin      DeepEP of version 2, both ways 2.65, 3.37, 6.62 and 8.71 ms for 1.77, 2.34, 4.83 and 6.37 ms of bytes: 0.73 of the rate and a
//            start of 0.1 ms each
// DeepEP's interface: "dispatch" lets the host wait for the counts of what arrives, but not where a backward pass repeats it (README, example
// of training; UCCL-EP and DeepEP over libfabric keep it).
constexpr Library kLibraries[] = {
    {"nccl", -1, 0, 0, 1, false},       {"deepep", -1, 0, 0, 1, true},      {"hybridep", 3e-3, 0, 0, 1, false},
    {"proxy", -1, 546e-6, 0, 1, true},  {"uccl", -1, 1.682e-3, 0, 1, true}, {"nvshmem", -1, 0, 0.488e-6, 1, true},
    {"gin", -1, 0.1e-3, 0, 0.73, true},
};

// Graphs of layers leave exchanges and products of experts to the host, which needs the counts as well. Fitted on the declared half of all runs
// with such graphs, 17 of 35, of Megatron-Bridge 25.11 to 26.06 and Megatron-LM, on H100, B200, B300, GB200 and GB300 (0.25 ms steps: 1.25 and
// 1.75 ms err by 5.9 and 5.8 %, 1.5 ms by 5.7 %, none by 11.8 %; held back 8.1 % against 16.4 %).
constexpr double kWaitBesideGraphs = 1.5e-3;

const Library& of(DispatchLibrary library) {
    ORRERY_ASSERT(static_cast<std::size_t>(library) < std::size(kLibraries));
    return kLibraries[static_cast<std::size_t>(library)];
}

}  // namespace

void DispatcherPlan::describe(Fields& fields) {
    std::vector<std::string> names;
    for (const Library& one : kLibraries) {
        names.emplace_back(one.name);
    }
    fields.enumeration({"library",
                        "token exchange library: nccl and deepep wait for host counts, hybridep less; proxy and uccl "
                        "start later; nvshmem sends per token; gin reaches less bandwidth"},
                       names, library);
    fields.quantity({"wait", "host's wait in each layer of a forward pass; 0: the library's", false, 0, 10},
                    Dimension::time, own_wait);
    fields.quantity({"start", "delay before the first byte of each exchange; 0: the library's", false, 0, 10},
                    Dimension::time, own_start);
}

void DispatcherPlan::check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const {
    out.refuse(model.experts.count == 0, "dispatcher needs a model with experts");
    out.refuse(of(library).message > 0 && plan.experts.dispatch != TokenDispatch::hierarchical,
               "dispatcher.library: nvshmem sends a token once to each node: set dispatch: hierarchical");
}

double DispatcherPlan::wait(double asked, bool beside_graphs) const {
    if (beside_graphs && own_wait <= 0) {
        return std::min(asked, kWaitBesideGraphs);  // of software whose experts wait at all
    }
    if (own_wait > 0 || !given) {
        return given ? own_wait : asked;
    }
    return of(library).wait < 0 ? asked : of(library).wait;
}

double DispatcherPlan::start() const {
    return !given ? 0 : own_start > 0 ? own_start : of(library).start;
}

bool DispatcherPlan::blocks() const {
    return given && of(library).blocks;
}

double DispatcherPlan::seconds(double bytes, double messages) const {
    return given ? std::max(bytes / of(library).rate, messages * of(library).message) : bytes;
}

extern const FeatureRow kDispatcher;
const FeatureRow kDispatcher = {"dispatcher", "library that exchanges tokens with experts",
                                &make_feature<DispatcherPlan>};

}  // namespace orrery::training
