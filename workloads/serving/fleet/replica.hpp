#pragma once
// A replica of a service: the state of its engine and of what it runs on.

#include "sim/device/device.hpp"
#include "workloads/serving/engine/engine_state.hpp"
#include "workloads/serving/service_spec.hpp"

#include <deque>
#include <memory>
#include <vector>

namespace orrery::serving {

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
    std::vector<const Device*> devices;  ///< of each stage, where another replica uses them too
    ClassId from_host, to_host;          ///< links to host memory
    ClassId from_nvme, to_nvme;          ///< of the node
    std::uint64_t spilled = 0;           ///< blocks of the prefix cache that went to host memory,
    std::uint64_t sunk = 0;              ///< and on to NVMe
    SimTime busy_since;                  ///< since when some batch is under way

    [[nodiscard]] bool idle() const {
        return under_way == 0 && state.all_outstanding() == 0 && state.used_blocks() == 0;
    }
    /// Whether it would put a batch together.
    [[nodiscard]] bool can_plan() const {
        const bool runs = up && power != Power::off && power != Power::starting;
        return runs && !stages.front().busy && under_way < stages.size() && state.outstanding() > 0;
    }
    /// How long the calls of the host for so many copies take, and their last copy after them.
    [[nodiscard]] SimTime calls_time(std::uint64_t copies, double bytes) const;
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
    bool listed = true;    ///< the router knows it as one that takes requests
    bool corrupt = false;  ///< its results are wrong without anybody knowing
    bool plans = false;    ///< at the end of this instant
    Power power = Power::on;
    std::uint32_t under_way = 0;  ///< batches
    std::uint64_t arrived = 0;    ///< requests that came since the autoscaler last looked
};

}  // namespace orrery::serving
