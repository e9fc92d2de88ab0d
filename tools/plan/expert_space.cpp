#include "tools/plan/expert_space.hpp"

#include "sim/base/error.hpp"
#include "tools/driver/kinds/training.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::plan {

namespace {

constexpr const char* kDispatches[] = {"all-to-all", "all-gather", "hierarchical"};
constexpr const char* kOverlaps[] = {"none", "shared", "batches"};

std::vector<TokenDispatch> dispatches(const ExpertPlan& experts) {
    if (experts.expert == 1) {
        return {experts.dispatch};  // no token leaves
    }
    return {TokenDispatch::all_to_all, TokenDispatch::all_gather, TokenDispatch::hierarchical};
}

std::vector<ExpertOverlap> overlaps(const ExpertPlan& experts, const ModelSpec& model, bool given) {
    if (given || model.experts.shared == 0 || experts.expert == 1) {
        return {experts.overlap};
    }
    return {ExpertOverlap::none, ExpertOverlap::shared};
}

}  // namespace

std::vector<ExpertPlan> expert_choices(const Scenario& scenario, const PlanSpec& plan) {
    const ModelSpec& model = scenario.as<TrainingKind>().model;
    const ExpertPlan& own = scenario.as<TrainingKind>().plan.experts;
    const bool overlap_given = scenario.origins.contains("plan.overlap.experts");
    if (model.experts.count == 0) {
        return {own};
    }
    std::vector<std::int64_t> cuts = {1};
    if (plan.tensor > 1 && model.experts.ffn % plan.tensor == 0) {
        cuts.push_back(plan.tensor);
    }
    std::vector<ExpertPlan> out;
    for (std::int64_t expert = 1; expert <= std::min(model.experts.count, plan.stage_ranks()); ++expert) {
        for (const std::int64_t tensor : cuts) {
            if (model.experts.count % expert != 0 || plan.stage_ranks() % (expert * tensor) != 0) {
                continue;
            }
            ExpertPlan one = own;
            one.expert = expert;
            one.tensor = tensor;
            for (const TokenDispatch dispatch : dispatches(one)) {
                for (const ExpertOverlap overlap : overlaps(one, model, overlap_given)) {
                    out.push_back(one);
                    out.back().dispatch = dispatch;
                    out.back().overlap = overlap;
                    const bool batches = overlap == ExpertOverlap::batches;
                    if (batches || expert < 2 || dispatch == TokenDispatch::all_gather) {
                        out.back().shadowed = 0;
                    }
                    out.back().pieces = batches ? 1 : own.pieces;
                }
            }
        }
    }
    ORRERY_ASSERT(!out.empty());
    return out;
}

std::string describe_experts(const PlanSpec& plan) {
    const ExpertPlan& experts = plan.experts;
    if (!experts.spread()) {
        return "";
    }
    std::string out = fmt::format(", expert {}", experts.expert);
    if (plan.expert_tensor() > 1) {
        out += fmt::format(" x {}", plan.expert_tensor());
    }
    if (experts.expert > 1) {
        out += fmt::format(", {}", kDispatches[static_cast<std::size_t>(experts.dispatch)]);
    }
    return out + (experts.overlap == ExpertOverlap::shared ? ", behind shared experts" : "");
}

void assign_experts(const PlanSpec& plan, std::vector<std::string>& assignments) {
    if (!plan.experts.spread()) {
        return;
    }
    assignments.push_back(fmt::format("plan.expert={}", plan.experts.expert));
    assignments.push_back(fmt::format("plan.expert_tensor={}", plan.experts.tensor));
    assignments.push_back(
        fmt::format("plan.dispatch={}", kDispatches[static_cast<std::size_t>(plan.experts.dispatch)]));
    assignments.push_back(fmt::format("plan.shadowed={}", plan.experts.shadowed));
    assignments.push_back(fmt::format("plan.expert_pieces={}", plan.experts.pieces));
    assignments.push_back(
        fmt::format("plan.overlap.experts={}", kOverlaps[static_cast<std::size_t>(plan.experts.overlap)]));
}

}  // namespace orrery::plan
