#pragma once
// What a serving scenario says: the engine, its replicas and plan, the requests, and what counts as in time.

#include "sim/device/device_spec.hpp"
#include "workloads/model/model_spec.hpp"
#include "workloads/serving/cost/given_step.hpp"
#include "workloads/serving/cost/kv_compression.hpp"
#include "workloads/serving/requests/arrivals.hpp"
#include "workloads/serving/service_spec.hpp"

namespace orrery::serving {

/// Replicas of one role.
struct PhaseSpec {
    std::int64_t replicas = 1;
    std::int64_t tensor = 1;             ///< ranks of a pipeline stage
    std::int64_t pipeline = 1;           ///< stages of a replica
    std::int64_t groups = 1;             ///< of a stage: groups of `tensor` ranks that attend to sequences of their own
    std::int64_t expert = 1;             ///< expert-parallel degree over all ranks of a stage
    std::int64_t redundant_experts = 0;  ///< copies of routed experts that the expert groups hold beside them
    SchedulerSpec scheduler;
    bool other_device = false;  ///< its replicas have `device` instead of the node's
    DeviceSpec device;
    double units = 1;   ///< share of the compute units, on devices that both phases use
    double clock = 1;   ///< of the compute units over what the device's prices were measured at: a cap on power
    std::string group;  ///< of the cluster, on whose nodes its replicas are; empty: on those that follow
    bool scales = false;
    ScalingSpec scaling;
    StartSpec start;

    /// Ranks of a stage, and of a replica.
    [[nodiscard]] std::int64_t stage_ranks() const { return tensor * groups; }
    [[nodiscard]] std::int64_t ranks() const { return stage_ranks() * pipeline; }
};

struct EngineSpec {
    PhaseSpec mixed;       ///< replicas that do everything
    bool split = false;    ///< prompts and decoding have replicas of their own instead: `prefill` was given,
    bool decodes = false;  ///< and `decode` was
    PhaseSpec prefill, decode;
    Transfer transfer = Transfer::whole;
    FirstToken first_token = FirstToken::prefill;
    double handover = 0;        ///< s of each hand-over beside its bytes
    bool same_devices = false;  ///< prompts and decoding are on the same GPUs
    bool mixes = false;
    MixingSpec mixing;
    RouterChoice router{router_table(), "round-robin"};
    Precision weights = Precision::bf16;
    std::optional<Precision> experts;  ///< of routed experts; none: as the weights
    Scaling scaling = Scaling::tensor;
    Precision cache = Precision::bf16;
    Dispatch dispatch = Dispatch::gather;
    double affinity = 0;     ///< share of the tokens whose next expert is on their rank; 0: by chance
    double expert_load = 1;  ///< tokens of the busiest expert group over their mean
    HostSpec software;
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
    bool has_swap = false;      ///< `kv.swap` was given
    double swap_call = 0;       ///< s of the host to start a copy of swapped blocks
    std::int64_t swap_run = 1;  ///< blocks beside each other, which one copy takes
    bool swap_behind = false;   ///< what comes back does not hold up the others
    bool swap_copies = false;   ///< host memory keeps copies of what is back
    bool speculates = false;
    SpeculationSpec speculation;
    ServiceFaults faults;       ///< the scenario's section `faults`
    bool prefix_cache = false;  ///< blocks are found again by their content
    Eviction prefix_eviction = Eviction::lru;
    double prefix_host = 0;     ///< B per replica: blocks that leave the devices stay in host memory
    double prefix_nvme = 0;     ///< B per replica: and from there on NVMe
    double nvme_bandwidth = 0;  ///< B/s each way of a node's NVMe
    FrontEndSpec front_end;
    std::int64_t stream_interval = 1;  ///< tokens that reach the client together
    std::int64_t max_context = 0;      ///< tokens; 0: whatever fits
    bool lora = false;
    AdapterSpec adapters;         ///< rank 0: none, or whole models
    bool caches_experts = false;  ///< `expert_cache` was given
    ExpertCacheSpec expert_cache;
    double step_overhead = 0;                           ///< s of the host an iteration
    double sequence_overhead = 0;                       ///< s of the host a sequence and iteration
    double reserved_memory = 2.0 * 1024 * 1024 * 1024;  ///< B per device: context, library buffers, activations

    [[nodiscard]] Quantisation quantisation(const DeviceSpec& device) const;
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
