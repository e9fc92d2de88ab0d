#pragma once
// What a serving system is: pools of replicas, how requests reach them, and what is measured. Without the service itself.

#include "sim/network/placement.hpp"
#include "workloads/serving/engine/expert_cache.hpp"
#include "workloads/serving/requests/front_end_spec.hpp"
#include "workloads/serving/routers/router.hpp"
#include "workloads/serving/schedulers/scheduler.hpp"
#include "workloads/serving/service_faults.hpp"

#include <functional>
#include <optional>
#include <vector>

namespace orrery::device {
struct DeviceSpec;
struct NodeHost;
}  // namespace orrery::device

namespace orrery::serving {

class StepCost;

enum class Role { mixed, prefill, decode };
enum class Transfer { whole, layers };
/// Which replica sends the client the first token of a prompt whose cache is handed over: the one that computed it, at once, or the
/// one that decodes, with the next.
enum class FirstToken { prefill, decode };

/// A draft of several tokens for each decoding sequence, verified by the model in one iteration.
struct SpeculationSpec {
    std::uint32_t tokens = 0;  ///< of a draft; 0: no speculation
    double acceptance = 0.8;   ///< probability that a draft token is accepted when those before it are
    bool sampled = true;       ///< accepted tokens are drawn; otherwise each sequence gets the mean, in whole tokens
    double step_s = 0;         ///< time that the draft takes for one token of every sequence
};

/// What the number of replicas follows: requests outstanding, or requests that come.
enum class ScalingRule { queue, rate };

/// How the replicas of a pool follow the load; `replicas` is the most.
struct ScalingSpec {
    double target = 0;  ///< of a replica: outstanding requests, or requests per second; 0: all replicas always run
    std::uint32_t least = 1;  ///< replicas
    double interval_s = 15;   ///< between two looks at the load
    double cooldown_s = 60;   ///< after a start nothing is stopped
    ScalingRule rule = ScalingRule::queue;
    double keep_alive_s = 0;  ///< a replica without requests stays so long
};

/// The parts of a cold start, one after another.
enum class StartPart : std::uint8_t { provision, image, initialise, weights, warm_up };
inline constexpr std::size_t kStartParts = 5;
[[nodiscard]] const std::vector<std::string>& start_part_names();
enum class WeightsFrom { storage, host, peer };

/// What a replica does before its first request.
struct StartSpec {
    double provision_s = 0;   ///< until a machine is there
    double image = 0;         ///< B of the container on each machine
    double registry = 0;      ///< B/s of the link over which images come; 0: they take no time
    double initialise_s = 0;  ///< processes, contexts, communicators
    WeightsFrom weights = WeightsFrom::storage;
    double weight_bytes = 0;  ///< of a replica
    double storage = 0;       ///< B/s of the link over which weights come; 0: they take no time
    double warm_up_s = 0;     ///< from there to the first request
};

/// Experts that a host's memories have and a replica's devices keep some of.
struct ExpertPool {
    ExpertCacheSpec spec;
    ExpertCache::Shape shape;
    double rank_bytes = 0;  ///< of an expert, on each rank
};

/// How blocks go to host memory and back.
struct SwapSpec {
    double call_s = 0;  ///< of the host to start a copy, one after another
    double calls = 0;   ///< copies of a run of blocks: those of each layer of a stage, keys and values apart
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
    bool starts = false;  ///< some of its replicas may start while the service runs
    StartSpec start;
    const DeviceSpec* device = nullptr;  ///< of its GPUs; needed on devices shared by two pools
    double units = 1;                    ///< share of the compute units there, which `cost` knows
    std::optional<ExpertPool> experts;   ///< nothing: all experts are on the devices
    SwapSpec swap;
    bool plans_ahead = false;   ///< a batch is put together when the one before it starts, see cluster/pipelines.hpp
    double host_bandwidth = 0;  ///< B/s each way between a replica's devices and host memory; 0: takes no time
};

/// When replicas of one role do the work of the other.
struct MixingSpec {
    std::uint64_t prompt_tokens = 0;  ///< waiting on the prefill replica that a request would go to; 0: never
    double cache = 0;  ///< in use on the decode replica that a sequence would go to, of all blocks; 0: never
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

struct ServiceSpec {
    std::vector<PoolSpec> pools;
    RouterChoice router{router_table(), "round-robin"};
    Transfer transfer = Transfer::whole;
    FirstToken first_token = FirstToken::prefill;
    double handover = 0;                 ///< s that routers and transports take of each hand-over, beside its bytes
    std::uint32_t layers = 1;            ///< of the model, for transfers by layer
    double cache_token_bytes = 0;        ///< keys and values of a token, over all ranks
    double request_overhead = 0;         ///< s from a client to an engine's queue
    FrontEndSpec front_end;              ///< not given: `frontend`
    double frontend = 0;                 ///< s of a front end's work on each request before that, one after another,
    double prompt_token = 0;             ///< and on each token of its prompt
    bool shared_front_end = false;       ///< one before all replicas; else each that takes prompts has one
    double hidden_bytes = 0;             ///< that a token takes from one pipeline stage to the next
    const Fabric* fabric = nullptr;      ///< needed where there are KV transfers, pipelines or experts elsewhere
    const NodeHost* host = nullptr;      ///< of every node; needed where experts are elsewhere
    double device_link = 0;              ///< B/s of a device's link to its host, where there is one
    std::optional<Placement> placement;  ///< of the GPUs that pools number; nothing: as they are numbered
    PathChoice paths = PathChoice::spray;
    double nvme_bandwidth = 0;          ///< B/s each way of a node's NVMe; 0: takes no time
    std::uint32_t gpus_per_node = 1;    ///< that share it, and fail with their node
    double ttft_limit = 0;              ///< s; 0: none
    double tbt_limit = 0;               ///< s between tokens; 0: none
    double tpot_limit = 0;              ///< s; 0: none
    std::uint32_t stream_interval = 1;  ///< tokens that the server gathers before it sends the first of them
    double timeout = 0;                 ///< s after which a client gives up; 0: never
    MixingSpec mixing;
    bool same_devices = false;  ///< prefill replica i and decode replica i are on the same GPUs
    ServiceFaults faults;
    /// The price of an iteration on a stage of a pool whose compute units run at a share of their clock and whose NICs at a share of
    /// their rate. Needed where faults do that.
    std::function<StepCost&(std::size_t pool, std::size_t stage, double clock, double nic)> impaired;
    double measure_from = 0;  ///< s: latencies are those of requests that come from then on,
    double measure_to = 0;    ///< and before then; rates count what happens in between; 0: to the end
    double load_to = 0;       ///< s: no request comes from then on; 0: until the source ends
    SteadySpec steady;  ///< wanted: the source does not end, the run is measured from its warm-up to what is enough
    std::uint64_t seed = 1;
    bool timeline = false;
};

}  // namespace orrery::serving
