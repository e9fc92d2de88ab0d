// The table of rules for the interval of checkpoints: one row each.

#include "workloads/faults/intervals/interval.hpp"

namespace orrery::faults {

extern const PolicyRow<CheckpointInterval> kFixedInterval;
extern const PolicyRow<CheckpointInterval> kYoungInterval;
extern const PolicyRow<CheckpointInterval> kDalyInterval;

const PolicyTable<CheckpointInterval>& checkpoint_interval_table() {
    static const PolicyTable<CheckpointInterval> kTable = {&kFixedInterval, &kYoungInterval, &kDalyInterval};
    return kTable;
}

}  // namespace orrery::faults
