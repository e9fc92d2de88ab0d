#pragma once
// What a serving scenario says: the engine, its replicas and plan, the requests, and what counts as in time.

#include "sim/device/device_spec.hpp"
#include "workloads/model/model_spec.hpp"
#include "workloads/serving/cost/given_step.hpp"
#include "workloads/serving/cost/kv_compression.hpp"
#include "workloads/serving/engine/expert_cache.hpp"
#include "workloads/serving/planner_spec.hpp"
#include "workloads/serving/requests/arrivals.hpp"
#include "workloads/serving/requests/front_end_spec.hpp"
#include "workloads/serving/routers/router.hpp"
#include "workloads/serving/schedulers/scheduler.hpp"
#include "workloads/serving/service_faults.hpp"
#include "workloads/serving/shared_cache_spec.hpp"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::device {
struct NodeHost;
}  // namespace orrery::device

namespace orrery::serving {

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
    std::int64_t layers =
        0;  ///< of the model's own, that make a draft, each token in a pass of its own; 0: step_s alone
    std::vector<double> positions;  ///< share of drafts whose i-th token is accepted; empty: by `acceptance`

    /// That the i-th token of a draft, from 0 on, is accepted when those before it are.
    [[nodiscard]] double chance(std::size_t i) const {
        if (positions.empty()) {
            return acceptance;
        }
        const double before = i == 0 ? 1 : positions[i - 1];
        return before > 0 ? positions[i] / before : 0;
    }
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
    double scrape_s = 0;      ///< between two measurements of the load; 0: one at each look
    double delay_s = 0;       ///< from a measurement until a look can see it
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

/// When replicas of one role do the work of the other.
struct MixingSpec {
    std::uint64_t prompt_tokens = 0;  ///< waiting on the prefill replica that a request would go to; 0: never
    double cache = 0;  ///< in use on the decode replica that a sequence would go to, of all blocks; 0: never
};

/// What a scenario says of equal replicas, and a run takes as it is.
struct ReplicaPlan {
    std::int64_t replicas = 1;
    SchedulerSpec scheduler;
    double units = 1;  ///< share of the compute units, on devices that both phases use
    ScalingSpec scaling;
    StartSpec start;
};

/// Replicas of one role.
struct PhaseSpec : ReplicaPlan {
    std::int64_t tensor = 1;             ///< ranks of a pipeline stage
    std::int64_t pipeline = 1;           ///< stages of a replica
    std::int64_t groups = 1;             ///< of a stage: groups of `tensor` ranks that attend to sequences of their own
    std::int64_t expert = 1;             ///< expert-parallel degree over all ranks of a stage
    std::int64_t redundant_experts = 0;  ///< copies of routed experts that the expert groups hold beside them
    bool other_device = false;           ///< its replicas have `device` instead of the node's
    DeviceSpec device;
    double clock = 1;   ///< of the compute units over what the device's prices were measured at: a cap on power
    std::string group;  ///< of the cluster, on whose nodes its replicas are; empty: on those that follow
    bool scales = false;

    /// Ranks of a stage, and of a replica.
    [[nodiscard]] std::int64_t stage_ranks() const { return tensor * groups; }
    [[nodiscard]] std::int64_t ranks() const { return stage_ranks() * pipeline; }
};

/// What stands between clients and the engines' front ends: a gateway and a router, which reads and tokenises prompts.
struct GatewaySpec {
    double latency = 0;         ///< s of each request
    double prompt_token_s = 0;  ///< of each token of its prompt
};

/// What a scenario says of a service, and a run takes as it is.
struct ServicePlan {
    Transfer transfer = Transfer::whole;
    FirstToken first_token = FirstToken::prefill;
    double handover = 0;        ///< s that routers and transports take of each hand-over beside its bytes
    bool same_devices = false;  ///< prefill replica i and decode replica i are on the same GPUs
    MixingSpec mixing;
    PlannerSpec planner;
    RouterChoice router{router_table(), "round-robin"};
    GatewaySpec gateway;
    SpeculationSpec speculation;
    HostSpec software;
    FrontEndSpec front_end;            ///< not given: the serial one of `software`
    std::int64_t stream_interval = 1;  ///< tokens that the server gathers before it sends the first of them
    SharedCacheSpec shared;            ///< prefixes that replicas share
    double nvme_bandwidth = 0;         ///< B/s each way of a node's NVMe; 0: takes no time
    ServiceFaults faults;              ///< the scenario's section `faults`
};

struct EngineSpec : ServicePlan, CacheRules {
    PhaseSpec mixed;       ///< replicas that do everything
    bool split = false;    ///< prompts and decoding have replicas of their own instead: `prefill` was given,
    bool decodes = false;  ///< and `decode` was
    PhaseSpec prefill, decode;
    bool mixes = false;  ///< `mixing` was given
    Precision weights = Precision::bf16;
    std::optional<Precision> experts;  ///< of routed experts; none: as the weights
    Scaling scaling = Scaling::tensor;
    Precision cache = Precision::bf16;
    Dispatch dispatch = Dispatch::gather;
    double affinity = 0;     ///< share of the tokens whose next expert is on their rank; 0: by chance
    double expert_load = 1;  ///< tokens of the busiest expert group over their mean
    bool has_software = false;
    bool has_step_cost = false;
    GivenStepSpec step_cost;
    std::int64_t block = 16;       ///< tokens of a cache block
    double memory_fraction = 0.9;  ///< of a device's memory that the engine may use
    bool of_free = false;          ///< the fraction is of what weights and buffers leave, for the cache alone
    std::int64_t blocks = 0;       ///< of a replica's cache; 0: what its memory has room for
    double host_memory = 0;        ///< B a replica for swapped blocks
    KvCompressionSpec compression;
    std::int64_t nano_batches = 1;
    StreamedSpec streamed;
    SumRoute sums = SumRoute::library;
    bool has_swap = false;      ///< `kv.swap` was given
    double swap_call = 0;       ///< s of the host to start a copy of swapped blocks
    std::int64_t swap_run = 1;  ///< blocks beside each other, which one copy takes
    bool speculates = false;
    double prefix_host = 0;        ///< B per replica: blocks that leave the devices stay in host memory
    double prefix_nvme = 0;        ///< B per replica: and from there on NVMe
    std::int64_t max_context = 0;  ///< tokens; 0: whatever fits
    bool lora = false;
    AdapterSpec adapters;         ///< rank 0: none, or whole models
    bool caches_experts = false;  ///< `expert_cache` was given
    ExpertCacheSpec expert_cache;
    double step_overhead = 0;               ///< s of the host an iteration
    double sequence_overhead = 0;           ///< s of the host a sequence and iteration
    std::optional<double> reserved_memory;  ///< B per device: context, library buffers, activations
    double other_weights = 0;               ///< B per replica beside the model's: an encoder, a draft

    /// The replicas that there are: mixed ones, or those of each phase.
    [[nodiscard]] std::vector<std::pair<Role, const PhaseSpec*>> phases() const;
    /// Of a phase's pool: with a planner each place of GPUs has one of either role.
    [[nodiscard]] std::int64_t pool_replicas(const PhaseSpec& phase) const {
        return planner.given ? prefill.replicas + decode.replicas : phase.replicas;
    }
    [[nodiscard]] bool any_phase(const std::function<bool(const PhaseSpec&)>& is) const;
    [[nodiscard]] Quantisation quantisation(const DeviceSpec& device) const;
    [[nodiscard]] double reserved() const { return reserved_memory.value_or(2.0 * 1024 * 1024 * 1024); }
    /// The version of `software` says how it sizes its cache, and the scenario leaves it to that.
    [[nodiscard]] bool sized_by_engine() const {
        return has_software && software.memory.rule != MemoryRule::none && !reserved_memory;
    }
    /// Requests may name adapters, or models.
    [[nodiscard]] bool names() const { return lora || adapters.whole; }
};

/// The part of a run that is measured, past its start and before its end.
struct MeasureSpec {
    double from = 0;  ///< s
    double to = 0;    ///< s; 0: to the end
};

struct SloSpec {
    double ttft = 0;  ///< s; 0: no limit
    double tpot = 0;
    double tbt = 0;
    double session = 0;  ///< from the first request of a conversation to its last answer
};

/// What ends the load: a number of requests (a trace has one), a time, or that enough is known of the steady state.
enum class LoadEnd { count, time, steady };
/// Without a count, requests come until the steady state is known, unless the part that is measured has an end, or the rate swings (one
/// period of it). What happens at one time has no steady state: requests that come at once, faults that are given.
[[nodiscard]] LoadEnd load_end(const EngineSpec& engine, const RequestsSpec& requests, const MeasureSpec& measure);

void describe(Fields& fields, EngineSpec& engine);
void describe(Fields& fields, SloSpec& slo);
void describe(Fields& fields, MeasureSpec& measure);

/// What of an engine, and of the requests it is to serve, does not go together; empty: fine.
[[nodiscard]] std::vector<std::string> problems_of(const EngineSpec& engine, const RequestsSpec& requests,
                                                   const ModelSpec& model);

/// Throws InfeasibleError for a phase whose degrees do not divide the model.
void check_spec(const PhaseSpec& phase, const ModelSpec& model);

/// Experts of a replica of this phase that the host keeps; nothing where all are on the devices. Throws InfeasibleError with the
/// Bytes of weights on one rank of a stage of a phase's replica, copies of experts too.
[[nodiscard]] double weight_bytes(const ModelSpec& model, const Quantisation& quantisation, const PhaseSpec& phase,
                                  std::int64_t stage);
/// numbers when the host lacks memories or room for them, ConfigError at `mark` for a tier that it does not have. `replicas`: of a node.
[[nodiscard]] std::optional<ExpertPool> experts_of(const EngineSpec& engine, const PhaseSpec& phase,
                                                   const ModelSpec& model, const DeviceSpec& device,
                                                   const NodeHost* host, double replicas, const Mark& mark);

/// Cache blocks and limits of one replica of a phase. Throws InfeasibleError when the weights leave no room, with the numbers.
[[nodiscard]] EngineLimits limits_of(const EngineSpec& engine, const PhaseSpec& phase, const ModelSpec& model,
                                     const DeviceSpec& device);

}  // namespace orrery::serving
