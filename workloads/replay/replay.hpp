#pragma once
// Runs a recorded program, as it was or changed: other networks for its collectives, other clocks, more ranks.
//
// Claims: an unchanged replay takes the recorded time (within 1 %, checked by the run); every operation waits for what it
// waited for in the record, then its lag, then its duration.
// Scope: kernels and copies divide by `kernel_speed`, host calls and lags by `host_speed`; kernels of a record from another device
// (`recorded_on`) take as many times as long as the cost models of the two devices say for what they compute, or, where the record
// does not say it, for a large matrix product or a large stream, whichever their name is of; collectives and messages either take
// their recorded time once all ranks have come to them, or are activities of the fabric and contend there. Operations that move bytes
// of a node's memories (work.hpp) are activities of these and of PCIe.
// On a cluster of groups each rank has the device of its node, and a collective takes what the library of the slowest of its
// members' nodes says. Ranks of one program on unlike nodes are simulated each, and wait for each other in recorded collectives, too.
// Limits: a recorded collective of one rank includes its waiting for the others; with `same` programs all ranks do the same
// at the same time, so that their simulation shows what the network makes of it and no imbalance.
// Validated by tests/workloads/replay_test.cpp.

#include "sim/device/cost_model.hpp"
#include "sim/device/device_spec.hpp"
#include "sim/device/dpu.hpp"
#include "sim/network/node_memory.hpp"
#include "sim/network/placement.hpp"
#include "sim/record/summary.hpp"
#include "sim/run/simulation.hpp"
#include "workloads/replay/replay_trace.hpp"

#include <functional>

namespace orrery::replay {

enum class ReplayCommunication { recorded, simulated };

/// What a scenario says about a replay.
struct ReplaySpec {
    std::string trace;       ///< file, as written in the scenario
    std::int64_t ranks = 0;  ///< 0: as recorded; otherwise programs of one kind run on so many ranks
    ReplayCommunication communication = ReplayCommunication::recorded;
    double kernel_speed = 1;
    double host_speed = 1;
    std::string recorded_on;  ///< device preset of the record; "": that of the cluster
};
void describe(Fields& fields, ReplaySpec& spec);

/// Time on the critical path of one kind of operation on one lane.
struct ReplayBlame {
    std::string kind;  ///< of replay_kind_names(), "lag" before an operation, or "grouped completions"
    std::string lane;  ///< stream or thread
    std::string name;  ///< of the operation
    double seconds = 0;
};

struct ReplayResult {
    double seconds = 0;
    double recorded_s = ReplayOp::kUnknown;
    /// Of one rank, mean over the ranks: time in which kernels or copies run, communication that none of them hides, host calls
    /// beside neither, and the rest. They add up to `seconds`.
    double device_s = 0, exposed_communication_s = 0, host_s = 0, idle_s = 0;
    std::uint32_t ranks = 0;
    std::uint64_t tasks = 0;
    double repriced = 0;     ///< share of the kernels' time whose work the record says; of records from another device
    bool unchanged = false;  ///< nothing was scaled: `seconds` should be `recorded_s`
    /// Back from the last operation to end, by what released each; the longest first. Adds up to `seconds`.
    std::vector<ReplayBlame> critical_path;
    Timeline timeline;
};

/// What ranks on nodes of one kind are priced by. All outlive the replay.
struct ReplayNode {
    const DeviceSpec* device;
    const CollectiveModel* collectives;
    const CostModel* now = nullptr;  ///< of the device, where the record is from another one
};

/// Of the record, and what its operations ask for beside devices.
struct ReplayDevices {
    const CostModel* recorded = nullptr;  ///< of the device of the record, where that is another one
    const NodeHost* host = nullptr;       ///< memories of every node; none: there are none beside the devices'
    std::function<DpuSpec(const std::string&)> dpu = {};  ///< small cores of a preset; throws ConfigError
};

/// A replay as a job of a simulation.
class ReplayRun {
  public:
    /// Lowers the trace and adds it. All references outlive this. `nodes`: by group of the fabric; where all nodes are alike, one.
    /// Throws InfeasibleError when the placement has fewer GPUs
    /// than ranks or the run is too large, ConfigError when communication does not match or has no size.
    ReplayRun(const ReplayTrace& trace, const ReplaySpec& spec, std::vector<ReplayNode> nodes,
              const Placement& placement, PathChoice paths, Simulation& simulation, SimTime start = SimTime(),
              const ReplayDevices& devices = {});
    ~ReplayRun();

    void set_progress(std::function<void(double)> progress) { executor_->set_progress(std::move(progress)); }
    /// After the run.
    [[nodiscard]] ReplayResult result(bool timeline) const;

  private:
    class Lowering;
    const ReplayTrace& trace_;
    const ReplaySpec& spec_;
    std::unique_ptr<NodeMemory> memory_;
    std::unique_ptr<Lowering> lowered_;
    Executor* executor_ = nullptr;
};

}  // namespace orrery::replay
