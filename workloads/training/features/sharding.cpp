#include "workloads/training/features/sharding.hpp"

#include "workloads/training/plan/spec.hpp"

#include <fmt/format.h>

namespace orrery::training {

void ShardingPlan::describe(Fields& fields) {
    constexpr double kMostRanks = 1'000'000;
    fields.integer({"weights", "neighbouring ranks that share the 16-bit weights; 0: all", false, 0, kMostRanks},
                   weights);
    fields.integer({"gradients", "neighbouring ranks that share the gradients; 0: all", false, 0, kMostRanks},
                   gradients);
    fields.integer({"optimizer", "neighbouring ranks that share the optimizer states; 0: all", false, 0, kMostRanks},
                   optimizer);
    fields.integer({"secondary", "neighbours that share a second copy of the weights, for backward passes; 0: none",
                    false, 0, kMostRanks},
                   secondary);
    fields.integer({"weight_bits", "bits of gathered weights on the wire; 0: 16", false, 0, 8}, weight_bits);
    fields.integer(
        {"gradient_bits", "bits of gradients on the wire, by all-to-all; 0: as gradient_precision", false, 0, 8},
        gradient_bits);
    fields.integer({"block", "quantised values that share one 32-bit scale", false, 16, 1'000'000}, block);
    fields.integer(
        {"prefetch", "layers gathered ahead of the one that computes (needs overlap.data); 0: two", false, 0, 1000},
        prefetch);
}

void ShardingPlan::check(const ModelSpec&, const PlanSpec& plan, PlanProblems& out) const {
    out.refuse(plan.zero != 3, "sharding needs zero: 3");
    out.refuse(plan.shard > 0, "sharding and shard say the same: give one");
    out.refuse(prefetch > 0 && !plan.overlap_data, "sharding.prefetch needs overlap: {data: true}");
    const ShardDegrees degrees = degrees_of(plan);
    const auto divides = [&](const char* inner, std::int64_t a, const std::string& outer, std::int64_t b) {
        out.require(a >= 1 && b % a == 0, fmt::format("sharding: {} {} must divide {} {}", inner, a, outer, b));
    };
    divides("weights", degrees.weights, "gradients", degrees.gradients);
    divides("gradients", degrees.gradients, "optimizer", degrees.optimizer);
    divides("optimizer", degrees.optimizer, "the ranks that hold the same weights,", plan.alike());
    if (secondary > 0) {
        divides("secondary", secondary, "weights", degrees.weights);
        out.refuse(secondary == degrees.weights, "sharding.secondary is the partition that weights have already");
    }
}

void ShardingPlan::share(const PlanSpec& plan, ShardDegrees& out) const {
    const auto or_all = [&](std::int64_t count) { return count > 0 ? count : plan.alike(); };
    if (plan.zero == 3) {
        out = {or_all(weights), or_all(gradients), or_all(optimizer), secondary};
    }
}

// Quantised values and their part of a scale of 4 bytes.
static double quantised_bytes(const ShardingPlan& sharding, std::int64_t bits) {
    return static_cast<double>(bits) / 8 + 4 / static_cast<double>(sharding.block);
}

double weight_wire_bytes(const PlanSpec& plan) {
    const auto& own = plan.feature<ShardingPlan>();
    return own.weight_bits > 0 ? quantised_bytes(own, own.weight_bits) : 2;
}

double gradient_wire_bytes(const PlanSpec& plan) {
    const auto& own = plan.feature<ShardingPlan>();
    return own.gradient_bits > 0 ? quantised_bytes(own, own.gradient_bits) : bytes_of(plan.gradient_precision);
}

double gathered_layers(const PlanSpec& plan) {
    constexpr double kDefault = 2;  // rate limiter of FSDP
    const auto& own = plan.feature<ShardingPlan>();
    return own.prefetch > 0 ? static_cast<double>(own.prefetch) : kDefault;
}

extern const FeatureRow kSharding;
const FeatureRow kSharding = {
    "sharding", "sharding under ZeRO-3: the ranks that share weights, gradients and states, and bits on the wire",
    make_feature<ShardingPlan>};

}  // namespace orrery::training
