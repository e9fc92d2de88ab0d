#pragma once
// A job of known speed, for tests of campaigns.

#include "workloads/faults/campaign.hpp"

namespace orrery::test {

class SteadyJob final : public JobModel {
  public:
    SteadyJob(std::uint32_t nodes, double iteration_s) : nodes_(nodes), iteration_(iteration_s) {}

    /// Each impairment divides the speed by its factor; missing nodes by their share.
    double iteration_s(const ClusterState& state) override {
        double seconds = iteration_ * nodes_ / state.nodes / (1 - state.nic_share);
        for (const Impairment& one : state.impairments) {
            seconds /= one.factor;
        }
        return seconds;
    }
    std::vector<std::uint32_t> nodes_used(const std::vector<std::uint32_t>& nodes) const override {
        return {nodes.front() >= least ? nodes.front() : 0};
    }
    CheckpointSetting checkpoint() const override { return setting; }

    std::uint32_t least = 1;
    CheckpointSetting setting;

  private:
    std::uint32_t nodes_;
    double iteration_;
};

inline JobShape nodes_of_eight(std::uint32_t nodes) {
    JobShape shape;
    shape.nodes = nodes;
    shape.leaves = (nodes + 15) / 16;
    shape.spines = 4;
    return shape;
}

/// Checkpoints that stall for `stall_s` every `every_s`; recovery of `detect_s` + `restart_s`, loads included.
inline void set_cycle(FaultsSpec& faults, SteadyJob& job, double every_s, double stall_s, double detect_s,
                      double restart_s) {
    job.setting.storage.latency = stall_s;
    job.setting.storage.write = job.setting.storage.read = 1e12;
    std::vector<Diagnostic> errors;
    read_fields(parse_yaml("interval: {kind: fixed, every: " + std::to_string(every_s) + " s}", "test"),
                DataDirectory(""), errors, [&](Fields& fields) {
                    faults.checkpoint.interval.describe(fields, {"interval", "of checkpoints"});
                });
    faults.recovery.heartbeat_s = detect_s;
    faults.recovery.diagnosis_s = 0;
    faults.recovery.restart_s = restart_s - stall_s;
    faults.recovery.join_s = 0;
}

}  // namespace orrery::test
