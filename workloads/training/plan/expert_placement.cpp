#include "workloads/training/plan/expert_placement.hpp"

#include "workloads/training/plan/spec.hpp"

#include <algorithm>
#include <numeric>

namespace orrery::training {

namespace {

// One exchange of two experts that makes the larger load of their ranks smaller; false: there is none.
bool improve(const std::vector<double>& loads, std::vector<std::size_t>& rank_of, std::vector<double>& sums) {
    constexpr double kSmallest = 1e-12;  // relative, so that rounding moves nothing
    for (std::size_t a = 0; a < loads.size(); ++a) {
        for (std::size_t b = a + 1; b < loads.size(); ++b) {
            double& of_a = sums[rank_of[a]];
            double& of_b = sums[rank_of[b]];
            const double moved = loads[a] - loads[b];
            const double before = std::max(of_a, of_b);
            if (rank_of[a] != rank_of[b] && std::max(of_a - moved, of_b + moved) < before * (1 - kSmallest)) {
                of_a -= moved;
                of_b += moved;
                std::swap(rank_of[a], rank_of[b]);
                return true;
            }
        }
    }
    return false;
}

}  // namespace

void ExpertPlacement::describe(Fields& fields) {
    fields.enumeration({"policy", "in-order: as the model numbers them; balanced: the busiest rank has least to do"},
                       {"in-order", "balanced"}, policy);
}

void ExpertPlacement::check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const {
    out.refuse(model.experts.count == 0, "expert_placement is of a model with experts");
    out.refuse(plan.experts.exponent <= 0 && plan.experts.loads.empty(),
               "expert_placement needs loads that differ: router_exponent or router_loads");
    out.refuse(plan.experts.expert == 1, "expert_placement is on several ranks: expert above 1");
    out.refuse(plan.experts.pad,
               "expert_placement changes nothing with pad, under which all experts compute the same rows");
}

std::vector<std::size_t> ExpertPlacement::place(const std::vector<double>& loads, std::size_t ranks) const {
    const std::size_t places = loads.size() / ranks;
    std::vector<std::size_t> out(loads.size());
    if (policy == PlacementPolicy::in_order) {
        for (std::size_t i = 0; i < loads.size(); ++i) {
            out[i] = i / places;
        }
        return out;
    }
    std::vector<std::size_t> order(loads.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return loads[a] > loads[b]; });
    std::vector<double> sums(ranks, 0);
    std::vector<std::size_t> held(ranks, 0);
    for (const std::size_t expert : order) {
        std::size_t best = ranks;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            if (held[rank] < places && (best == ranks || sums[rank] < sums[best])) {
                best = rank;
            }
        }
        out[expert] = best;
        sums[best] += loads[expert];
        ++held[best];
    }
    while (improve(loads, out, sums)) {
    }
    return out;
}

extern const FeatureRow kExpertPlacement;
const FeatureRow kExpertPlacement = {"expert_placement",
                                     "ranks that have the experts of a layer, by how often these are chosen",
                                     make_feature<ExpertPlacement>};

}  // namespace orrery::training
