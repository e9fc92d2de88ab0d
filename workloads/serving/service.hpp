#pragma once
// A serving system: requests routed over engine replicas that run iteration after iteration, as one reactive task source.
//
// Claims: TTFT, time per output token and latency of every request follow from the order in which the scheduler lets
// sequences compute and from what each iteration costs; every request is accounted for as finished or refused.
// Scope: pools of equal replicas with an own cache each. Mixed replicas do everything; prefill replicas give the first token and
// hand the sequence over to a decode replica, whose cache makes room first and then gets the keys and values over the fabric,
// where transfers contend (whole after the prompt, or layer by layer while it computes). Routing at arrival and at handover: by
// turns, least outstanding requests, least cache in use or by session. Mixing: with long queues decode replicas compute prompts
// too, or prefill replicas keep what they began; each is back in its role when it has finished what is not of it.
// On the same devices: prefill replica i and decode replica i share compute units, memory rate and cache; an iteration is an
// activity of its time on its part of the units, which takes its mean share of the memory's rate; the cache stays where it is.
// Limits: apart from handovers a request stays on its replica; the router itself takes no time; sent layer by layer, all but
// the last layer count as one transfer from the start of the iteration that ends the prompt.
// Sources: Zhong et al., "DistServe", OSDI 2024 (pull when there is room); Patel et al., "Splitwise", ISCA 2024 (by layer; the
// mixed pool); Hong et al., "semi-PD", arXiv:2504.19867 (phases on one device).
// Validated by tests/workloads/serving_test.cpp (tables of iterations by hand, closed forms).

#include "sim/network/placement.hpp"
#include "sim/run/simulation.hpp"
#include "workloads/serving/outcome.hpp"
#include "workloads/serving/scheduler.hpp"
#include "workloads/serving/step_cost.hpp"

#include <functional>

namespace orrery {

enum class Router { round_robin, least_requests, least_cache, session, prefix };
enum class Role { mixed, prefill, decode };
enum class Transfer { whole, layers };

/// A draft of several tokens for each decoding sequence, verified by the model in one iteration.
struct SpeculationSpec {
    std::uint32_t tokens = 0;  ///< of a draft; 0: no speculation
    double acceptance = 0.8;   ///< probability that a draft token is accepted when those before it are
    bool sampled = true;       ///< accepted tokens are drawn; otherwise each sequence gets the mean, in whole tokens
    double step_s = 0;         ///< time that the draft takes for one token of every sequence
};

/// A replica loses all that it has cached, and takes requests again later.
struct ReplicaFailure {
    std::uint32_t replica = 0;
    double at_s = 0;
    double down_s = 0;
};

/// Failures of every replica at exponential times, repaired after exponential times.
struct FailureProcess {
    double mean_between_s = 0;  ///< 0: none
    double mean_repair_s = 0;
};

/// How the replicas of a pool follow the load; `replicas` is the most.
struct ScalingSpec {
    double target = 0;        ///< outstanding requests of a replica; 0: all replicas always run
    std::uint32_t least = 1;  ///< replicas
    double interval_s = 15;   ///< between two looks at the load
    double provision_s = 0;   ///< until a replica's machine is there
    double weight_bytes = 0;  ///< of a replica
    double storage = 0;       ///< B/s of the link over which weights come; 0: they take no time
    double warm_up_s = 0;     ///< from there to the first request
    double cooldown_s = 60;   ///< after a start nothing is stopped
};

/// Equal replicas.
struct PoolSpec {
    Role role = Role::mixed;
    std::uint32_t replicas = 1;
    SchedulerSpec scheduler;
    SpeculationSpec speculation;  ///< `limits.draft_tokens` says the same
    EngineLimits limits;
    std::vector<StepCost*> cost;  ///< of an iteration on each pipeline stage; they outlive the run
    std::uint32_t first_gpu = 0;  ///< replica i has GPUs first_gpu + i x gpus, ..., stage after stage
    std::uint32_t gpus = 1;       ///< of a replica, over all its stages
    ScalingSpec scaling;
    const DeviceSpec* device = nullptr;  ///< of its GPUs; needed on devices shared by two pools
    double units = 1;                    ///< share of the compute units there, which `cost` knows
    double host_bandwidth = 0;           ///< B/s each way between a replica's devices and host memory; 0: takes no time
};

/// When replicas of one role do the work of the other.
struct MixingSpec {
    std::uint64_t prompt_tokens = 0;  ///< waiting on the prefill replica that a request would go to; 0: never
    double cache = 0;  ///< in use on the decode replica that a sequence would go to, of all blocks; 0: never
};

struct ServiceSpec {
    std::vector<PoolSpec> pools;
    Router router = Router::round_robin;
    Transfer transfer = Transfer::whole;
    std::uint32_t layers = 1;        ///< of the model, for transfers by layer
    double cache_token_bytes = 0;    ///< keys and values of a token, over all ranks
    double request_overhead = 0;     ///< s from a client to an engine's queue
    double frontend = 0;             ///< s of work on each request before that, one after another
    double hidden_bytes = 0;         ///< that a token takes from one pipeline stage to the next
    const Fabric* fabric = nullptr;  ///< needed where there are handovers or pipelines
    std::optional<Placement> placement;  ///< of the GPUs that pools number; nothing: as they are numbered
    PathChoice paths = PathChoice::spray;
    double nvme_bandwidth = 0;          ///< B/s each way of a node's NVMe; 0: takes no time
    std::uint32_t gpus_per_node = 1;    ///< that share it
    double ttft_limit = 0;              ///< s; 0: none
    double tbt_limit = 0;               ///< s between tokens; 0: none
    double tpot_limit = 0;              ///< s; 0: none
    std::uint32_t stream_interval = 1;  ///< tokens that the server gathers before it sends the first of them
    double timeout = 0;                 ///< s after which a client gives up; 0: never
    MixingSpec mixing;
    bool same_devices = false;  ///< prefill replica i and decode replica i are on the same GPUs
    std::vector<ReplicaFailure> failures;
    FailureProcess failure_process;
    std::uint32_t retries = 3;  ///< times that a request starts anew when its replica fails
    double measure_from = 0;    ///< s: latencies are those of requests that come from then on,
    double measure_to = 0;      ///< and before then; rates count what happens in between; 0: to the end
    std::uint64_t seed = 1;
    bool timeline = false;
};

struct ServiceHooks {
    std::function<void(double)> progress;
    /// For checks: sees every iteration before it runs.
    std::function<void(std::uint32_t replica, const Batch&, const EngineState&)> iteration;
    /// For explanations: sees every batch when it leaves the last stage, before its tokens are given; `planned`: when it was
    /// put together.
    std::function<void(std::uint32_t replica, const Batch&, const EngineState&, SimTime planned, SimTime now)> ran;
    /// For explanations: sees every request that was answered; null: it is not among the measured ones.
    std::function<void(const Sequence&, const RequestOutcome*)> served;
    /// For tables: sees every request when it is accounted for, once.
    std::function<void(const Sequence&, Ending, SimTime now)> ended;
};

/// Serves all requests. Precondition: every pool has a price for each stage; prefill pools and decode pools come together;
/// these and pipelines have a fabric. Pools on the same devices: one of each role with equal replicas and caches, their devices
/// given, without failures, autoscaling and prefix caches.
[[nodiscard]] ServiceResult serve(const ServiceSpec& spec, RequestSource& requests, const ServiceHooks& hooks = {});

/// The same as a job of a simulation, whose fabric is that of the specification. All references outlive this.
class ServiceRun {
  public:
    ServiceRun(const ServiceSpec& spec, RequestSource& requests, const ServiceHooks& hooks, Simulation& simulation,
               SimTime start = SimTime());
    ~ServiceRun();
    /// After the run, once.
    [[nodiscard]] ServiceResult result();

  private:
    class Service;
    std::unique_ptr<Service> service_;
};

}  // namespace orrery
