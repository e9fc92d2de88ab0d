#include "workloads/training/features/communication_plan.hpp"

#include "workloads/training/plan/spec.hpp"

#include <fmt/format.h>

namespace orrery::training {

void describe(Fields& fields, ShardingPlan& sharding) {
    constexpr double kMostRanks = 1'000'000;
    fields.integer({"weights", "neighbouring ranks that share the 16-bit weights; 0: all", false, 0, kMostRanks},
                   sharding.weights);
    fields.integer({"gradients", "neighbouring ranks that share the gradients; 0: all", false, 0, kMostRanks},
                   sharding.gradients);
    fields.integer({"optimizer", "neighbouring ranks that share the optimizer states; 0: all", false, 0, kMostRanks},
                   sharding.optimizer);
    fields.integer({"secondary", "neighbours that share a second copy of the weights, for backward passes; 0: none",
                    false, 0, kMostRanks},
                   sharding.secondary);
    fields.integer({"weight_bits", "bits of gathered weights on the wire; 0: 16", false, 0, 8}, sharding.weight_bits);
    fields.integer(
        {"gradient_bits", "bits of gradients on the wire, by all-to-all; 0: as gradient_precision", false, 0, 8},
        sharding.gradient_bits);
    fields.integer({"block", "quantised values that share one 32-bit scale", false, 16, 1'000'000}, sharding.block);
    fields.integer(
        {"prefetch", "layers gathered ahead of the one that computes (needs overlap.data); 0: two", false, 0, 1000},
        sharding.prefetch);
}

void describe(Fields& fields, OuterPlan& outer) {
    fields.integer({"workers", "islands that the data-parallel replicas divide into", false, 1, 1'000'000},
                   outer.workers);
    fields.integer({"steps", "inner steps from one exchange of a weight to the next", false, 1, 100'000}, outer.steps);
    fields.integer({"fragments", "parts of the model that are exchanged one after another", false, 1, 10'000},
                   outer.fragments);
    fields.integer({"overlap", "inner steps that go on before an exchange is waited for; 0: none", false, 0, 100'000},
                   outer.overlap);
    fields.integer({"bits", "bits of an exchanged weight", false, 1, 32}, outer.bits);
}

void describe(Fields& fields, CompressionPlan& compression) {
    fields.number({"density", "share of the gradients that is sent", false, 1e-6, 1}, compression.density);
    fields.integer({"value_bits", "bits of a gradient that is sent", false, 1, 32}, compression.value_bits);
    fields.integer({"index_bits", "bits that tell where a gradient belongs", false, 0, 64}, compression.index_bits);
    fields.number({"dense", "share of the weights whose gradients are exchanged whole (norms, biases)", false, 0, 1},
                  compression.dense);
    fields.number({"sample", "share of the gradients that the threshold is estimated from; 1: exact", false, 1e-6, 1},
                  compression.sample);
}

static void check_sharding(const PlanSpec& plan, bool has_experts, PlanProblems& out) {
    const ShardingPlan& own = plan.sharding;
    const auto refuse = [&](bool wrong, const char* text) {
        if (wrong) {
            out.refused.emplace_back(text);
        }
    };
    refuse(plan.zero != 3, "sharding needs zero: 3");
    refuse(plan.shard > 0, "sharding and shard say the same: give one");
    refuse(has_experts, "sharding with experts is not modelled: use zero: 3 over all ranks");
    refuse(own.prefetch > 0 && !plan.overlap_data, "sharding.prefetch needs overlap: {data: true}");
    const ShardDegrees degrees = degrees_of(plan);
    const auto divides = [&](const char* inner, std::int64_t a, const std::string& outer, std::int64_t b) {
        if (a < 1 || b % a != 0) {
            out.unfit.push_back(fmt::format("sharding: {} {} must divide {} {}", inner, a, outer, b));
        }
    };
    divides("weights", degrees.weights, "gradients", degrees.gradients);
    divides("gradients", degrees.gradients, "optimizer", degrees.optimizer);
    divides("optimizer", degrees.optimizer, "the ranks that hold the same weights,", plan.alike());
    if (own.secondary > 0) {
        divides("secondary", own.secondary, "weights", degrees.weights);
        refuse(own.secondary == degrees.weights, "sharding.secondary is the partition that weights have already");
    }
}

PlanProblems communication_problems(const PlanSpec& plan, bool has_experts) {
    PlanProblems out;
    const auto refuse = [&](bool wrong, const std::string& text) {
        if (wrong) {
            out.refused.push_back(text);
        }
    };
    if (plan.outer.given) {
        const OuterPlan& outer = plan.outer;
        refuse(outer.workers < 2, "outer needs workers of at least 2");
        refuse(outer.overlap > outer.steps,
               fmt::format("outer.overlap {} is longer than the {} steps to the next exchange", outer.overlap,
                           outer.steps));
        refuse(outer.fragments > outer.steps,
               fmt::format("outer.fragments {} are more than the {} steps that they take turns in", outer.fragments,
                           outer.steps));
        refuse(has_experts, "outer with experts is not modelled");
        refuse(plan.copies() > 1, fmt::format("outer with schedule: {} is not modelled", plan.schedule->name));
        if (plan.data % std::max<std::int64_t>(1, outer.workers) != 0) {
            out.unfit.push_back(fmt::format("outer.workers {} must divide data {}", outer.workers, plan.data));
            return out;  // no other degree can be judged
        }
    }
    if (plan.sharding.given) {
        check_sharding(plan, has_experts, out);
    }
    if (plan.zero == 3 && plan.pipeline > 1) {
        refuse(plan.copies() > 1, fmt::format("zero: 3 with schedule: {} is not modelled", plan.schedule->name));
        refuse(plan.vocabulary != VocabularyParallel::none, "zero: 3 with vocabulary_parallel is not modelled");
    }
    if (plan.compression.given) {
        refuse(plan.zero > 0, "compression is of gradients that every rank has whole: zero: 0");
        refuse(has_experts, "compression with experts is not modelled");
        refuse(plan.copies() > 1, fmt::format("compression with schedule: {} is not modelled", plan.schedule->name));
        refuse(plan.alike() < 2, "compression needs ranks that exchange gradients: data of at least 2");
    }
    return out;
}

ShardDegrees degrees_of(const PlanSpec& plan) {
    const std::int64_t all = plan.alike();
    const auto or_all = [&](std::int64_t count) { return count > 0 ? count : all; };
    if (plan.sharding.given && plan.zero == 3) {
        return {or_all(plan.sharding.weights), or_all(plan.sharding.gradients), or_all(plan.sharding.optimizer),
                plan.sharding.secondary};
    }
    const std::int64_t shard = or_all(plan.shard);
    return {plan.zero >= 3 ? shard : 1, plan.zero >= 2 ? shard : 1,
            plan.zero >= 3   ? shard
            : plan.zero >= 1 ? all
                             : 1,
            0};
}

// Quantised values and their part of a scale of 4 bytes.
static double quantised_bytes(const ShardingPlan& sharding, std::int64_t bits) {
    return static_cast<double>(bits) / 8 + 4 / static_cast<double>(sharding.block);
}

double weight_wire_bytes(const PlanSpec& plan) {
    return plan.sharding.weight_bits > 0 ? quantised_bytes(plan.sharding, plan.sharding.weight_bits) : 2;
}

double gradient_wire_bytes(const PlanSpec& plan) {
    return plan.sharding.gradient_bits > 0 ? quantised_bytes(plan.sharding, plan.sharding.gradient_bits)
                                           : bytes_of(plan.gradient_precision);
}

double gathered_layers(const PlanSpec& plan) {
    constexpr double kDefault = 2;  // rate limiter of FSDP
    return plan.sharding.prefetch > 0 ? static_cast<double>(plan.sharding.prefetch) : kDefault;
}

CompressedBytes compressed_bytes(const PlanSpec& plan, double weights, double ranks) {
    const CompressionPlan& own = plan.compression;
    const double entry = static_cast<double>(own.value_bits + own.index_bits) / 8;
    // Every rank ends with what all have sent.
    return {bytes_of(plan.gradient_precision) * own.dense * weights,
            ranks * entry * own.density * (1 - own.dense) * weights};
}

// In 32 bits, DGC's algorithm 4: u = m u + g reads two and writes one, v = v + u reads two and writes one, what is above the
// threshold is read, and leaves u and v, which are read with it and written. The threshold is found in the sample by radix
// selection, four passes of eight bits.
double compress_traffic(const PlanSpec& plan, double weights) {
    const CompressionPlan& own = plan.compression;
    const double values = (1 - own.dense) * weights;
    const double entry = static_cast<double>(own.value_bits + own.index_bits) / 8;
    return values * (4 * (3 + 3 + 1 + 4) + 4 * 4 * own.sample + entry * own.density);
}

// Each entry is read, and a sector of 32 bytes, the least that a GPU's memory moves, is read and written.
// Source: CUDA C++ Programming Guide, "Device Memory Accesses".
double decompress_traffic(const PlanSpec& plan, double weights, double ranks) {
    constexpr double kSector = 32;
    const CompressionPlan& own = plan.compression;
    const double entry = static_cast<double>(own.value_bits + own.index_bits) / 8;
    return ranks * own.density * (1 - own.dense) * weights * (entry + 2 * kSector);
}

}  // namespace orrery::training
