#pragma once
// A serving system: requests routed over engine replicas that run iteration after iteration, as one reactive task source.
//
// Claims: TTFT, time per output token and latency of every request follow from the order in which the scheduler lets
// sequences compute and from what each iteration costs; every request is accounted for as finished or refused.
// Scope: pools of equal replicas with an own cache each. Mixed replicas do everything; prefill replicas give the first token and
// hand the sequence over to a decode replica, whose cache makes room first and then gets the keys and values over the fabric,
// where transfers contend (whole after the prompt, or layer by layer while it computes). Routing at arrival and at handover: by
// turns, least outstanding requests, least cache in use or by session.
// Limits: apart from handovers a request stays on its replica; the router itself takes no time; sent layer by layer, all but
// the last layer count as one transfer from the start of the iteration that ends the prompt.
// Sources: Zhong et al., "DistServe", OSDI 2024 (pull when there is room); Patel et al., "Splitwise", ISCA 2024 (by layer).
// Validated by tests/workloads/serving_test.cpp (tables of iterations by hand, closed forms).

#include "sim/engine/task_source.hpp"
#include "sim/record/summary.hpp"
#include "workloads/serving/scheduler.hpp"
#include "workloads/serving/step_cost.hpp"

#include <functional>

namespace orrery {

enum class Router { round_robin, least_requests, least_cache, session };
enum class Role { mixed, prefill, decode };
enum class Transfer { whole, layers };

/// Equal replicas.
struct PoolSpec {
    Role role = Role::mixed;
    std::uint32_t replicas = 1;
    SchedulerSpec scheduler;
    EngineLimits limits;
    StepCost* cost = nullptr;     ///< of an iteration; outlives the run
    std::uint32_t first_gpu = 0;  ///< replica i has GPUs first_gpu + i x gpus, ...
    std::uint32_t gpus = 1;       ///< of a replica
};

struct ServiceSpec {
    std::vector<PoolSpec> pools;
    Router router = Router::round_robin;
    Transfer transfer = Transfer::whole;
    std::uint32_t layers = 1;        ///< of the model, for transfers by layer
    double cache_token_bytes = 0;    ///< keys and values of a token, over all ranks
    const Fabric* fabric = nullptr;  ///< needed where there are handovers
    PathChoice paths = PathChoice::spray;
    double ttft_limit = 0;  ///< s; 0: none
    double tbt_limit = 0;   ///< s between tokens; 0: none
    double tpot_limit = 0;  ///< s; 0: none
    bool timeline = false;
};

/// Counts of values in bins of 1 % from 1 us to 10^6 s: quantiles of long runs in constant memory, within 1 %.
class LogHistogram {
  public:
    void add(double seconds, std::uint64_t count = 1);
    [[nodiscard]] double quantile(double q) const;
    [[nodiscard]] double mean() const { return total_ > 0 ? sum_ / static_cast<double>(total_) : 0; }
    [[nodiscard]] double max() const { return max_; }
    [[nodiscard]] std::uint64_t count() const { return total_; }

  private:
    std::vector<std::uint64_t> bins_;
    std::uint64_t total_ = 0;
    double sum_ = 0;
    double max_ = 0;
};

/// What became of one request.
struct RequestOutcome {
    SimTime arrival;
    float ttft = 0;  ///< s
    float tpot = 0;  ///< s a token after the first; 0 for outputs of one token
    float e2e = 0;   ///< s
    bool in_time = true;
};

struct IterationRecord {
    std::uint32_t replica;
    SimTime start, end;
    std::uint32_t sequences, tokens;
    std::uint64_t blocks;
};

struct ServiceResult {
    std::vector<RequestOutcome> requests;  ///< finished ones, in order of arrival
    std::uint64_t refused = 0;             ///< could never have run: longer than the context or the cache
    std::uint64_t output_tokens = 0;
    std::uint64_t preemptions = 0;
    std::uint64_t handovers = 0;
    double handover_s = 0;  ///< summed: from the end of a prompt to its sequence being ready to decode
    std::uint64_t iterations = 0;
    std::uint64_t events = 0;
    double end_s = 0;
    double busy_s = 0;  ///< summed over replicas
    std::uint64_t most_blocks = 0;
    LogHistogram tbt;
    std::vector<IterationRecord> timeline;
};

struct ServiceHooks {
    std::function<void(double)> progress;
    /// For checks: sees every iteration before it runs.
    std::function<void(std::uint32_t replica, const Batch&, const EngineState&)> iteration;
};

/// Serves all requests. Precondition: prefill pools and decode pools come together, with a fabric.
[[nodiscard]] ServiceResult serve(const ServiceSpec& spec, RequestSource& requests, const ServiceHooks& hooks = {});

}  // namespace orrery
