#pragma once
// What a serving system is: pools of replicas, how requests reach them, and what is measured. Without the service itself.

#include "sim/network/placement.hpp"
#include "workloads/serving/spec.hpp"

#include <functional>
#include <optional>
#include <vector>

namespace orrery::serving {

class StepCost;

/// How blocks go to host memory and back.
struct SwapSpec {
    double call_s = 0;  ///< of the host to start a copy, one after another
    double calls = 0;   ///< copies of a run of blocks: those of each layer of a stage, keys and values apart
};

/// Equal replicas.
struct PoolSpec : ReplicaPlan {
    Role role = Role::mixed;
    EngineLimits limits;
    std::vector<StepCost*> cost;         ///< of an iteration on each pipeline stage; they outlive the run
    std::uint32_t first_gpu = 0;         ///< replica i has GPUs first_gpu + i x gpus, ..., stage after stage
    std::uint32_t gpus = 1;              ///< of a replica, over all its stages
    bool starts = false;                 ///< some of its replicas may start while the service runs
    const DeviceSpec* device = nullptr;  ///< of its GPUs; needed on devices shared by two pools
    std::optional<ExpertPool> experts;   ///< nothing: all experts are on the devices
    SwapSpec swap;
    bool plans_ahead = false;   ///< a batch is put together when the one before it starts, see cluster/pipelines.hpp
    double host_bandwidth = 0;  ///< B/s each way between a replica's devices and host memory; 0: takes no time
};

/// When a run whose requests would come for ever has said enough. Widths are of 90 % intervals, half of them over the value.
struct SteadySpec {
    bool wanted = false;
    double tokens = 0.025;         ///< of the output tokens per second,
    double e2e = 0.05;             ///< of the mean time of a request,
    double ttft = 0.1;             ///< and of the mean time to its first token
    double attainment = 0;         ///< share of requests in time to tell from, instead of these widths; 0: none
    std::uint64_t batch = 50;      ///< requests in each of the first batches: the run has 64 of them at least,
    std::uint64_t most = 200'000;  ///< and about so many requests at most
};

struct ServiceSpec : ServicePlan {
    SloSpec slo;
    MeasureSpec measure;  ///< latencies are those of requests that come in it, rates count what happens in it
    std::vector<PoolSpec> pools;
    std::uint32_t prefill_first = 0;     ///< places of GPUs that compute prompts at first, with a planner
    std::uint32_t layers = 1;            ///< of the model, for transfers by layer
    double cache_token_bytes = 0;        ///< keys and values of a token, over all ranks
    double hidden_bytes = 0;             ///< that a token takes from one pipeline stage to the next
    const Fabric* fabric = nullptr;      ///< needed where there are KV transfers, pipelines or experts elsewhere
    const NodeHost* host = nullptr;      ///< of every node; needed where experts are elsewhere
    double device_link = 0;              ///< B/s of a device's link to its host, where there is one
    std::optional<Placement> placement;  ///< of the GPUs that pools number; nothing: as they are numbered
    PathChoice paths = PathChoice::spray;
    std::uint32_t gpus_per_node = 1;  ///< that share it, and fail with their node
    double timeout = 0;               ///< s after which a client gives up; 0: never
    double pause = 0;                 ///< s between stages of the load
    std::int64_t concurrency = 0;     ///< requests that the client has under way at most; 0: any number
    /// The price of an iteration on a stage of a pool whose compute units run at a share of their clock and whose NICs at a share of
    /// their rate. Needed where faults do that.
    std::function<StepCost&(std::size_t pool, std::size_t stage, double clock, double nic)> impaired;
    double load_to = 0;  ///< s: no request comes from then on; 0: until the source ends
    SteadySpec steady;   ///< wanted: the source does not end, the run is measured from its warm-up to what is enough
    std::uint64_t seed = 1;
    bool timeline = false;
    outside::Policies* policies = nullptr;  ///< needed where a scheduler or router is from outside
};

}  // namespace orrery::serving
