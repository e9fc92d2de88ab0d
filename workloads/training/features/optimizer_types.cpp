#include "workloads/training/features/optimizer_types.hpp"

#include "workloads/training/plan/memory_use.hpp"
#include "workloads/training/plan/spec.hpp"

#include <string>
#include <vector>

namespace orrery::training {

namespace {

constexpr double kWide = 12;  // B of both moments and the copy in 32 bits

double bytes_of(StateType type) {
    return type == StateType::fp32 ? 4 : type == StateType::fp8 ? 1 : 2;
}

}  // namespace

void OptimizerTypes::describe(Fields& fields) {
    const std::vector<std::string> names = {"fp32", "bf16", "fp16", "fp8"};
    fields.enumeration({"master", "type of the copy of a weight that updates add to: fp32 or fp16"}, names, master);
    fields.enumeration({"first_moment", "type of the mean of gradients"}, names, first);
    fields.enumeration({"second_moment", "type of the mean of their squares"}, names, second);
    fields.boolean({"remainders", "hold only the 16 bits of a 32-bit copy that the bf16 weight lacks"}, remainders);
}

void OptimizerTypes::check(const ModelSpec&, const PlanSpec& plan, PlanProblems& out) const {
    out.refuse(plan.states != StateTypes::mixed, "optimizer_types says what mixed states are held in: states: mixed");
    out.refuse(held() >= kWide, "optimizer_types changes nothing: no state has fewer bits than 32");
    out.refuse(master == StateType::bf16 || master == StateType::fp8, "optimizer_types.master is fp32 or fp16");
    out.refuse(remainders && master != StateType::fp32, "optimizer_types.remainders are those of a master of fp32");
    out.refuse(remainders && plan.precision == Precision::fp16,
               "optimizer_types.remainders are those of weights in bf16");
}

void OptimizerTypes::states(const ModelSpec&, const PlanSpec&, const RankWeights&, MemoryUse& use) const {
    use.optimizer *= held() / kWide;
}

double OptimizerTypes::held() const {
    return (remainders ? 2 : bytes_of(master)) + bytes_of(first) + bytes_of(second);
}

double OptimizerTypes::unmoved() const {
    constexpr double kReadWeight = 2;
    return 2 * (kWide - held()) - (remainders ? kReadWeight : 0);
}

extern const FeatureRow kOptimizerTypes;
const FeatureRow kOptimizerTypes = {"optimizer_types",
                                    "types of Adam's moments and of its copy of the weights, where they are not all "
                                    "of 32 bits (a precision-aware optimizer)",
                                    make_feature<OptimizerTypes>};

}  // namespace orrery::training
