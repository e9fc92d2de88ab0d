#pragma once
// Why a run takes as long as it does: the critical path, what is hidden, and what would help.
//
// The critical path goes back from the last task to finish through the task whose completion released it; its pieces add
// up to the iteration. What would help is found by simulating again with one rate 10 % higher (or one latency 10 % lower).

#include "tools/driver/scenario.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace orrery {

/// Time on the critical path by operation and resource.
struct BlameRow {
    std::string operation;  ///< a kind of computation, or the name of a transfer
    std::string resource;   ///< what it is bound by: "GPU", a kind of link, "latency"
    double seconds = 0;
};

/// Communication of one kind, mean over ranks.
struct HiddenRow {
    std::string kind;
    double busy_s = 0;     ///< transfers under way
    double exposed_s = 0;  ///< of it, seen by the compute stream
};

/// One lever: what 10 % more of it gives.
struct Elasticity {
    std::string lever;
    double gain_s = 0;  ///< of the headline time
    double share = 0;   ///< gain over the most it could be (1 - 1/1.1): 1 bounds everything
    std::vector<std::pair<std::string, double>> by_phase;  ///< gain of each part of the breakdown, s
};

/// What bounds a part of the breakdown.
struct PhaseBound {
    std::string phase;
    double seconds = 0;
    std::string bound;  ///< the lever with the largest gain, or "the schedule"
    double share = 0;   ///< of the phase that this lever scales
};

struct Explanation {
    double seconds = 0;  ///< headline time
    std::vector<BlameRow> critical_path;
    std::vector<HiddenRow> hidden;
    std::map<std::string, double> link_use;  ///< utilisation of the busiest link of each kind, by activities
    std::vector<Elasticity> levers;          ///< best first
    std::vector<PhaseBound> phases;
    std::string verdict;  ///< one sentence: what limits this run
};

/// Explains a run; a training run of fidelity packet by the same run of fidelity fluid, and its verdict says so. Throws
/// as run() does.
[[nodiscard]] Explanation explain(const Scenario& scenario, ModelCache& models);

/// Name of the metric that is the headline of a kind: such as iteration_time_s.
[[nodiscard]] std::string headline_metric(ScenarioKind kind);

}  // namespace orrery
