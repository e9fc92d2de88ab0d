#include "workloads/training/plan/state_space.hpp"

#include <fmt/format.h>

#include <utility>

namespace orrery::training {

PlanProblems state_space_problems(const ModelSpec& model, const PlanSpec& plan) {
    PlanProblems out;
    if (model.linear.given()) {
        const LinearSpec& linear = model.linear;
        if (plan.context > 1) {
            out.refused.emplace_back(
                "context above 1 with linear attention is not modelled: its states go on from token to token");
        }
        if (linear.key_heads % plan.tensor != 0 || linear.value_heads % plan.tensor != 0) {
            out.unfit.push_back(
                fmt::format("tensor {} must divide the {} heads of keys and {} of values of linear attention",
                            plan.tensor, linear.key_heads, linear.value_heads));
        }
    }
    if (!model.hybrid()) {
        return out;
    }
    if (model.expert_layers() > 0 && model.pattern.find('-') != std::string::npos) {
        out.refused.emplace_back(
            "a pattern of dense feed-forwards (-) beside experts (E) is served and not trained here");
    }
    const bool scans = model.layers_with(LayerPart::state_space) > 0;
    if (scans && plan.context > 1) {
        out.refused.emplace_back(
            "context above 1 with state-space layers is not modelled: their states go on from token to token");
    }
    const StateSpaceSpec& space = model.state_space;
    if (scans && space.heads % plan.tensor != 0) {
        out.unfit.push_back(
            fmt::format("tensor {} must divide the {} heads of state-space layers", plan.tensor, space.heads));
    }
    if (scans && space.groups % plan.tensor != 0) {
        out.unfit.push_back(
            fmt::format("tensor {} must divide the {} groups of state-space layers", plan.tensor, space.groups));
    }
    return out;
}

double state_space_bytes(const ModelSpec& model, double operand) {
    const StateSpaceSpec& space = model.state_space;
    return 2 * space.projected() + (2 + 2 + operand) * space.inner();
}

Sourced<double> usual_scan_efficiency() {
    return {0.51, "derived", "state-spaces/mamba issue 904: Mamba-2 1.3B on one H200, 239 TFLOP/s"};
}

}  // namespace orrery::training
