#include "sim/base/error.hpp"
#include "workloads/model/model_spec.hpp"

#include <algorithm>

namespace orrery::model {

namespace {

// Of `parts` equal parts of `all`, the mean number that `picks` without repetition touch.
double touched(double parts, double all, double picks) {
    const double part = all / parts;
    double missed = 1;  // that a part has none of them
    for (double i = 0; i < picks; ++i) {
        missed *= std::max(0.0, all - part - i) / std::max(1.0, all - i);
    }
    ORRERY_ASSERT(missed >= 0 && missed <= 1);
    return parts * (1 - missed);
}

}  // namespace

double holders_reached(const ExpertsSpec& experts, double holders) {
    const auto count = static_cast<double>(experts.count);
    const auto topk = static_cast<double>(experts.topk);
    if (experts.groups == 0 || experts.group_topk == 0) {
        return touched(holders, count, topk);
    }
    const auto groups = static_cast<double>(experts.groups);
    const auto chosen = static_cast<double>(experts.group_topk);
    // Holders of the chosen groups, and the choices among those.
    const double open = holders >= groups ? holders * chosen / groups : touched(holders, groups, chosen);
    return touched(open, std::max(topk, count * chosen / groups), topk);
}

}  // namespace orrery::model
