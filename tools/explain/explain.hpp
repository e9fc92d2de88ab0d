#pragma once
// Why a run takes as long as it does: the critical path, what is hidden, and what would help.
//
// The critical path goes back from the last task to finish through the task whose completion released it; its pieces add
// up to the whole time. Requests have no single path: their time is divided by what they waited for or were computed with.
// What would help is found by simulating again with one rate 10 % higher (or one latency 10 % lower).

#include "tools/driver/kind.hpp"
#include "tools/driver/run.hpp"
#include "tools/driver/scenario.hpp"

#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::explain {

/// Time on the critical path by operation and resource.
struct BlameRow {
    std::string operation;  ///< a kind of computation, or the name of a transfer
    std::string resource;   ///< what it is bound by: "GPU", a kind of link, "latency"
    double seconds = 0;
};

/// Communication of one kind, mean over ranks.
struct HiddenRow {
    std::string kind;
    double busy_s = 0;     ///< transfers under way
    double exposed_s = 0;  ///< of it, seen by the compute stream
};

/// Kernels or collectives of one name in the passes of a rank, or other work on its compute stream.
struct KernelRow {
    std::string name;
    std::string pass;    ///< the pass that runs it; empty: none
    std::string stream;  ///< kernels, or a communicator's
    double count = 0;    ///< in an iteration, mean over ranks
    double seconds = 0;  ///< of them together; streams run beside each other
};

/// One what-if: what 10 % more of it gives.
struct Elasticity {
    std::string what_if;
    double gain_s = 0;  ///< of the headline time
    double share = 0;   ///< gain over the most it could be (1 - 1/1.1): 1 bounds everything
    /// Half the 95 % interval of the gain over runs with other random choices, s; 0 where a run makes none that timing can
    /// upset. A gain within its noise is none.
    double noise_s = 0;
    std::vector<std::pair<std::string, double>> by_phase;  ///< gain of each part of the breakdown, s

    [[nodiscard]] bool certain() const { return gain_s > noise_s || gain_s < -noise_s; }
};

/// What bounds a part of the breakdown.
struct PhaseBound {
    std::string phase;
    double seconds = 0;
    std::string bound;  ///< the what-if with the largest gain, or "the schedule"
    double share = 0;   ///< of the phase that this what-if scales
};

/// A link on the path of a message, while that was under way.
struct LinkShare {
    std::string link;
    double capacity = 0;      ///< B/s
    double use = 0;           ///< of the capacity, by all messages at their mean rates
    double own = 0;           ///< of the capacity, by this message
    std::uint32_t flows = 0;  ///< messages that used it meanwhile, this one included
};

/// The last message of a collective to arrive, or the slowest of traffic.
struct LastMessage {
    bool slowest = false;            ///< of traffic; else the last of a collective
    std::uint32_t from = 0, to = 0;  ///< GPUs or hosts
    double bytes = 0;
    double start_s = 0;
    double seconds = 0;  ///< from there to its arrival
    // They add up to `seconds`:
    double propagation_s = 0;    ///< latency of the links, switches and NICs
    double serialisation_s = 0;  ///< what the same message takes longer than that on the empty network
    double contention_s = 0;     ///< the rest: shares of links (fluid), queues and congestion control (packets)
    std::vector<LinkShare> links;
    std::size_t bottleneck = 0;  ///< among `links`
};

/// Mean time of a part of requests: over all, and over those whose value is at least the 99th percentile.
struct RequestPart {
    std::string part;
    struct Split {
        double mean = 0, tail = 0;
    };
    Split ttft, tpot, e2e;  ///< s; of `tpot` a token after the first
};

/// Distribution of a latency over requests.
struct LatencyCurve {
    std::string name;
    double limit = 0;                                  ///< s; 0: none
    double within = 1;                                 ///< share of the requests that keep it
    std::vector<std::pair<double, double>> points;     ///< seconds, share of requests that take at most so long; rising
    std::vector<std::pair<double, double>> quantiles;  ///< share, seconds; as in summaries
};

/// Iterations of one kind in a serving run.
struct IterationMix {
    std::string kind;
    std::uint64_t iterations = 0;
    double seconds = 0;                                      ///< summed over replicas
    double sequences = 0;                                    ///< mean of an iteration
    double tokens = 0;                                       ///< new ones, mean of an iteration
    std::vector<std::pair<std::string, double>> shares;      ///< of the seconds, by class; they add up to 1
    std::vector<std::pair<std::string, double>> operations;  ///< of the seconds, by operation; the longest first
};

/// What a change of faults, recovery or checkpoints gives.
struct CampaignLever {
    std::string what_if;
    double change = 0;  ///< of the goodput fraction, mean over pairs of runs with equal seeds
    double noise = 0;   ///< half its 95 % interval
};
struct CampaignLevers {
    double own = 0;      ///< fraction, as the run itself reports it
    double goodput = 0;  ///< the same, mean over `runs`, which the levers are compared with
    std::size_t runs = 0;
    std::vector<CampaignLever> levers;  ///< best first
};

struct Explanation {
    double seconds = 0;  ///< headline time
    std::vector<BlameRow> critical_path;
    std::string path_meaning;       ///< what the critical path is; empty: one message, which `last` divides
    std::vector<BlameRow> longest;  ///< single operations with most time on the critical path (replays)
    std::vector<HiddenRow> hidden;
    std::vector<KernelRow> kernels;                     ///< training: longest first
    std::map<std::string, double> link_use;             ///< utilisation of the busiest link of each kind, by activities
    std::vector<double> link_loads;                     ///< by resource, share of the time in use; empty: not known
    std::string link_users = "where it was simulated";  ///< which activities those are, for a caption
    std::optional<LastMessage> last;                    ///< collective and network
    std::vector<RequestPart> requests;                  ///< serving
    std::vector<IterationMix> iterations;               ///< serving
    std::vector<LatencyCurve> latencies;                ///< serving
    std::vector<Elasticity> what_ifs;                   ///< best first
    std::optional<CampaignLevers> campaign;             ///< training under faults
    int replicas = 1;                                   ///< runs that a what-if's gain is the mean of
    std::vector<PhaseBound> phases;
    std::string verdict;  ///< one sentence: what limits this run
};

/// Explains a run; a training run of fidelity packet by the same run of fidelity fluid, and its verdict says so. Throws
/// as run() does.
[[nodiscard]] Explanation explain_scenario(const Scenario& scenario, ModelCache& models);
/// The messages of a collective or network run as CSV, in the order of its schedule: ends, bytes, s of start, end and completion
/// time, what it would have taken alone, and how many times as long it took.
[[nodiscard]] Table flow_table(const Scenario& scenario, const RunOutput& run);

/// Name of the metric that is the headline of a kind: such as iteration_time_s.
[[nodiscard]] std::string headline_metric(const KindRow& kind);

}  // namespace orrery::explain
