#pragma once
// Islands of replicas that take inner steps alone and exchange their weights every so many (PlanSpec::outer).
//
// Claims: an inner step is simulated as that of one worker among all; in the steady state a round is `steps` of them, and of every
// fragment, in turn, what the outer step takes: forming the difference to the weights of the last exchange and rounding it, an
// all-reduce among the ranks of all workers that hold the same weights, and outer SGD with Nesterov momentum. One exchange is on its
// way at a time; passes wait for it `overlap` steps after it began. The all-reduces of all ranks share the links, of which the mean
// traffic of inner steps leaves the rest.
// Limits: workers are alike; other jobs on the links do not slow an exchange.
// Sources: Douillard et al., "DiLoCo", arXiv:2311.08105, and "Streaming DiLoCo", arXiv:2501.18512, section 2; Sun et al., "CO2",
// ICLR 2024, arXiv:2401.16265.
// Validated by tests/workloads/outer_test.cpp (closed forms) and scenarios/papers.

#include "workloads/training/features/outer.hpp"

#include <vector>

namespace orrery::training {

struct TrainingInput;
struct TrainingGraph;

/// What each outer step of one fragment takes, s.
struct FragmentCost {
    double prepare = 0;   ///< kernels before its exchange
    double exchange = 0;  ///< on the links
    double update = 0;    ///< kernels behind it
};

/// A round in the steady state, per inner step, s.
struct OuterTimes {
    double step = 0;      ///< all of it
    double inner = 0;     ///< the inner step alone
    double wait = 0;      ///< for exchanges
    double kernels = 0;   ///< of outer steps
    double exchange = 0;  ///< on the links, hidden or not, of a round
    double bytes = 0;     ///< B that a rank puts on the wire for outer steps
};

/// Plays rounds until they repeat. `fragments`: in turn, spread evenly over the steps of a round; the first is due at its end.
[[nodiscard]] OuterTimes play_rounds(const OuterPlan& outer, double inner_step,
                                     const std::vector<FragmentCost>& fragments);

/// The same with what the outer steps of this plan take on these links.
[[nodiscard]] OuterTimes outer_times(const TrainingInput& input, const TrainingGraph& inner, double inner_step);

}  // namespace orrery::training
