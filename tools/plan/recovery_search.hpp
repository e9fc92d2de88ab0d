#pragma once
// The interval between checkpoints and the standbys with which a training job under faults gets most out of its machines.
//
// The scenario's campaign again for each pair of an interval around its own and a number of standbys; the states of the cluster are
// priced once for all. Judged by useful training per machine that the job holds, standbys included.

#include "tools/driver/model_cache.hpp"
#include "tools/driver/scenario.hpp"

#include <vector>

namespace orrery::plan {

struct RecoveryChoice {
    double interval_s = 0;  ///< between checkpoints
    std::int64_t standbys = 0;
    double goodput = 0;      ///< fraction, mean over runs
    double half_width = 0;   ///< of its 95 % interval
    double per_machine = 0;  ///< goodput times the job's nodes over nodes and standbys
};

/// Best first. `scenario`: training with a campaign.
[[nodiscard]] std::vector<RecoveryChoice> search_recovery(const Scenario& scenario, ModelCache& models);

}  // namespace orrery::plan
