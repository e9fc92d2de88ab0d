#pragma once
// The replicas of a service, and how their batches go through pipeline stages.
//
// Claims: a replica plans a batch whenever its first stage is free and fewer batches than stages are under way; a sequence
// is in at most one of them. Each stage runs one batch at a time, in the order in which they come, and sends the hidden
// states of the batch's tokens to the next stage over the fabric. Bubbles follow: stages wait for batches of unequal cost,
// and a batch that takes every running sequence leaves nothing for the next one. An engine that plans ahead puts a batch
// together when the one before it starts: a request that comes while a batch runs misses the next one too, unless there is
// none without it. Blocks that are swapped pass the link to the host before the batch computes, but for those that come back
// beside it (transfer/swap_ins.hpp).
// Limits: hidden states are sent whole by slices of the tensor-parallel ranks; joining the slices takes no time. A batch that
// is planned ahead has the places and blocks of sequences that end with the one before it, where engines learn that later.
// Sources: the batch queue of vLLM 1 (as many batches as stages, no sequence in two; one more with asynchronous scheduling:
// core.py, step_with_batch_queue); TensorRT-LLM, py_executor.py (_executor_loop_overlap) and SGLang, scheduler.py
// (event_loop_overlap): both look into their queue and launch a batch before they wait for the one that runs; Agrawal et al.,
// "Sarathi-Serve", OSDI 2024 (bubbles of uneven batches).
// Validated by tests/workloads/serving_test.cpp.

#include "sim/device/device.hpp"
#include "sim/engine/task_source.hpp"
#include "workloads/serving/cluster/service.hpp"
#include "workloads/serving/transfer/expert_loads.hpp"
#include "workloads/serving/transfer/swap_ins.hpp"

#include <deque>
#include <map>
#include <memory>

namespace orrery::serving {

/// What a task of the service is, packed into the token that the dispatcher gives back.
enum class ServiceTask : std::uint8_t {
    arrival,
    stage,
    activation,
    swap,
    kv_transfer,
    fetch,
    adapter,
    expert,
    follow_up,
    background,
    timeout,
    fault,
    start,
    restore,
    scale,
    plan,
    front_end,
    delivery,
    swap_in
};

struct Token {
    ServiceTask task = ServiceTask::arrival;
    std::uint32_t index = 0;  ///< a replica, a KV transfer or a fetch
    std::uint32_t entry = 0;

    [[nodiscard]] std::uint64_t pack() const {
        return (std::uint64_t{static_cast<std::uint8_t>(task)} << 56U) | (std::uint64_t{entry} << 32U) | index;
    }
    [[nodiscard]] static Token unpack(std::uint64_t token) {
        return {static_cast<ServiceTask>(token >> 56U), static_cast<std::uint32_t>(token),
                static_cast<std::uint32_t>((token >> 32U) & 0xFFFFFFU)};
    }
};

/// draining: takes no new requests; off: has no GPUs.
enum class Power : std::uint8_t { off, starting, on, draining };

/// A batch on its way through the stages.
struct InFlightBatch {
    Batch batch;
    std::uint32_t stage = 0;
    SimTime planned;          ///< when it was put together
    SimTime started;          ///< on its stage
    std::uint32_t loads = 0;  ///< transfers that it waits for
    bool lost = false;        ///< its replica failed while it was under way
    ClassId activity;         ///< on devices that it shares
};

struct PipelineStage {
    bool busy = false;
    std::deque<std::uint32_t> queue;  ///< in-flight batches that wait for it
};

struct Replica {
    Replica(const PoolSpec& its_pool, std::size_t number, std::uint32_t gpu);
    const PoolSpec& pool;
    std::size_t pool_number;
    EngineState state;
    std::unique_ptr<Scheduler> scheduler;
    std::uint32_t first_gpu;
    std::vector<InFlightBatch> in_flight;
    std::vector<std::uint32_t> free_in_flight;
    std::vector<PipelineStage> stages;
    std::vector<const Device*> devices;      ///< of each stage, where another replica uses them too
    ClassId from_host, to_host;              ///< links to host memory
    ClassId from_nvme, to_nvme;              ///< of the node
    std::uint64_t spilled = 0;               ///< blocks of the prefix cache that went to host memory,
    std::uint64_t sunk = 0;                  ///< and on to NVMe
    SimTime busy_since;                      ///< since when some batch is under way
    std::deque<std::uint32_t> without_room;  ///< KV transfers that wait for blocks here

    [[nodiscard]] bool idle() const {
        return under_way == 0 && without_room.empty() && state.outstanding() == 0 && state.used_blocks() == 0 &&
               state.aside() == 0;
    }
    /// Tokens that a sequence must have room for before its cache comes from elsewhere, so that it can go on afterwards.
    [[nodiscard]] std::uint64_t room_of(const Sequence& sequence) const;
    /// What a fault has left of a stage.
    struct Impairment {
        double speed = 1;  ///< of kernels,
        double clock = 1;  ///< of compute units
        double nic = 1;    ///< and of the links between the stage's nodes
        friend bool operator==(const Impairment&, const Impairment&) = default;
    };
    std::vector<Impairment> impaired;  ///< by stage; empty: none is
    SimTime stalled_until;             ///< by a link that is silent
    SimTime idle_since;                ///< when its last batch ended
    bool up = true;
    bool listed = true;  ///< the router knows it as one that takes requests
    bool plans = false;  ///< at the end of this instant
    Power power = Power::on;
    std::uint32_t under_way = 0;  ///< batches
};

/// Told of the batches of every replica.
class FleetListener {
  public:
    virtual ~FleetListener() = default;
    /// A batch is about to run.
    virtual void batch_starts(std::uint32_t replica, const Batch& batch) = 0;
    /// It has left the last stage; its sequences are among the running ones again. The replica is woken afterwards.
    virtual void batch_ends(std::uint32_t replica, const Batch& batch) = 0;
};

class Fleet {
  public:
    /// All arguments outlive the fleet; `result` takes what its timeline and counts are.
    Fleet(const ServiceSpec& spec, const ServiceHooks& hooks, FleetListener& listener, ServiceResult& result);

    /// Adds the resources that replicas have beside the fabric.
    void begin(Dispatcher& dispatcher);
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(replicas_.size()); }
    [[nodiscard]] Replica& operator[](std::uint32_t index) { return *replicas_[index]; }
    [[nodiscard]] const Replica& operator[](std::uint32_t index) const { return *replicas_[index]; }

    /// Something may have changed for a replica: once all of this instant has happened, it plans as many batches as it can
    /// take.
    void wake(std::uint32_t index);
    void on_task(const Token& token);
    /// Counts of experts that are elsewhere.
    void finish();
    /// A replica computes no more; what was under way is lost.
    void stop(std::uint32_t index);
    /// All that a stopped one had is gone; its sequences are taken first by whoever wants them.
    void clear(std::uint32_t index);

    /// On the same devices: the replica of the other role beside this one.
    [[nodiscard]] std::uint32_t partner(std::uint32_t index) const { return (index + size() / 2) % size(); }

    /// Transfers between two ranges of GPUs: as many equal flows as the wider range has GPUs, each between GPUs at
    /// proportional places, as one activity. Precondition: a fabric.
    struct Path {
        ClassId resources;
        double latency = 0;
    };
    struct GpuRange {
        std::uint32_t first = 0;
        std::uint32_t count = 1;
        friend auto operator<=>(const GpuRange&, const GpuRange&) = default;
    };
    [[nodiscard]] const Path& path(GpuRange from, GpuRange to);

  private:
    [[nodiscard]] static bool can_plan(const Replica& replica) {
        const bool runs = replica.up && replica.power != Power::off && replica.power != Power::starting;
        return runs && !replica.stages.front().busy && replica.under_way < replica.stages.size() &&
               replica.state.outstanding() > 0;
    }
    [[nodiscard]] GpuId gpu(std::uint32_t rank) const {
        return spec_.placement ? spec_.placement->gpu(rank) : GpuId(rank);
    }
    static void plan(Replica& replica, Batch& batch);
    [[nodiscard]] bool launch(std::uint32_t index);
    void swap(std::uint32_t index, std::uint32_t entry);
    void enter(std::uint32_t index, std::uint32_t entry);
    [[nodiscard]] StepWork impaired_work(const Replica& replica, const InFlightBatch& entry) const;
    void spill(std::uint32_t index);
    [[nodiscard]] bool measured() const;
    void leave(std::uint32_t index, std::uint32_t entry);
    void end(std::uint32_t index, std::uint32_t entry);

    const ServiceSpec& spec_;
    const ServiceHooks& hooks_;
    FleetListener& listener_;
    ServiceResult& result_;
    Dispatcher* dispatcher_ = nullptr;
    std::vector<std::unique_ptr<Replica>> replicas_;
    std::vector<std::unique_ptr<Device>> shared_;  ///< devices under two replicas
    std::unique_ptr<ExpertLoads> experts_;         ///< null: all are on the devices
    SwapIns swap_ins_{*this, result_};
    std::map<std::pair<GpuRange, GpuRange>, Path> paths_;
};

}  // namespace orrery::serving
