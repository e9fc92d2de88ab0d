#pragma once
// How long a job trains from one checkpoint to the next: one rule per file, one row each.

#include "sim/config/policy.hpp"

namespace orrery::faults {

class CheckpointInterval {
  public:
    virtual ~CheckpointInterval() = default;
    /// Seconds of training between two checkpoints that stall the job for `cost_s` each, where it is interrupted every `mtbf_s`
    /// on average (infinity: never).
    [[nodiscard]] virtual double seconds(double cost_s, double mtbf_s) const = 0;
    /// True where the rule follows from how often the job is interrupted.
    [[nodiscard]] virtual bool needs_mtbf() const { return true; }
};

[[nodiscard]] const PolicyTable<CheckpointInterval>& checkpoint_interval_table();
using CheckpointIntervalChoice = PolicyChoice<CheckpointInterval>;

}  // namespace orrery::faults
