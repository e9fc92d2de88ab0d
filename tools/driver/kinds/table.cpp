// The table of kinds: each has a row in its own file.

#include "tools/driver/kind.hpp"
#include "tools/driver/kinds/cluster.hpp"
#include "tools/driver/kinds/messages.hpp"
#include "tools/driver/kinds/replay.hpp"
#include "tools/driver/kinds/rl.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/kinds/training.hpp"

namespace orrery::driver {

const std::vector<const KindRow*>& scenario_kinds() {
    static const std::vector<const KindRow*> kRows = {&TrainingKind::kRow, &CollectiveKind::kRow, &NetworkKind::kRow,
                                                      &RecordKind::kRow,   &ServingKind::kRow,    &ClusterKind::kRow,
                                                      &RlKind::kRow};
    return kRows;
}

}  // namespace orrery::driver
