#include "tools/plan/recovery_search.hpp"

#include "tools/driver/kinds/training.hpp"
#include "tools/driver/kinds/training_faults.hpp"
#include "tools/driver/run.hpp"
#include "workloads/faults/campaign.hpp"

#include <algorithm>
#include <set>

namespace orrery::plan {

std::vector<RecoveryChoice> search_recovery(const Scenario& scenario, ModelCache& models) {
    constexpr std::int64_t kFewestRuns = 8;
    constexpr double kIntervals[] = {0.25, 0.5, 0.71, 1, 1.41, 2, 4};
    const std::int64_t given = scenario.as<TrainingKind>().faults.recovery.standbys;
    std::set<std::int64_t> standbys = {0};
    if (takes_standbys(scenario)) {
        standbys.insert({1, 2, 4, 8, 16, given / 2, given, 2 * given});
    }
    RunOptions options;
    for (const std::int64_t count : standbys) {
        for (const double interval : kIntervals) {
            CampaignVariant variant{"", scenario.as<TrainingKind>().faults, interval};
            variant.faults.recovery.standbys = count;
            if (!variant.faults.processes.empty()) {
                variant.faults.runs = std::max(variant.faults.runs, kFewestRuns);
            }
            options.campaigns.push_back(std::move(variant));
        }
    }
    const RunOutput run = orrery::run_scenario(scenario, models, options);
    const double nodes = job_shape(scenario).nodes;
    std::vector<RecoveryChoice> out;
    for (std::size_t i = 0; i < run.campaigns.size(); ++i) {
        const MeanInterval goodput = mean_interval(run.campaigns[i].goodput, 0.95);
        const std::int64_t count = options.campaigns[i].faults.recovery.standbys;
        out.push_back({run.campaigns[i].interval_s, count, goodput.mean, goodput.half_width,
                       goodput.mean * nodes / (nodes + static_cast<double>(count))});
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const RecoveryChoice& a, const RecoveryChoice& b) { return a.per_machine > b.per_machine; });
    return out;
}

}  // namespace orrery::plan
