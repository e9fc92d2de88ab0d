#include "workloads/training/features/signatures.hpp"

#include "workloads/training/plan/spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace orrery::training {

static void describe_dimension(Fields& fields, GridDimension& one) {
    const std::vector<std::string> names = {"S0", "S1", "B"};
    fields.integer({"ranks", "number of ranks along this dimension", true, 1, 1'000'000}, one.ranks);
    fields.enumeration({"activations", "layout of activations: split by samples (S0) or tokens (S1), or broadcast (B)"},
                       names, one.activations);
    fields.enumeration(
        {"weights_in",
         "layout of the weights of products into a block: split by rows (S0) or columns (S1), or broadcast"},
        names, one.weights_in);
    fields.enumeration({"weights_out", "layout of the weights of products out of a block"}, names, one.weights_out);
    fields.enumeration({"optimizer", "states of the optimizer: split (S0) or broadcast (B)"}, names, one.optimizer);
}

void SignaturePlan::describe(Fields& fields) {
    fields.items({"grid", "dimensions of the ranks of a stage, the outermost first"}, grid,
                 [](Fields& inner, GridDimension& one) { describe_dimension(inner, one); });
}

namespace {

enum class Meaning { data, context, tensor };

std::string text_of(const GridDimension& one) {
    constexpr const char* kNames[] = {"S0", "S1", "B"};
    const auto name = [&](Signature of) { return kNames[static_cast<std::size_t>(of)]; };
    return fmt::format("activations {}, weights_in {}, weights_out {}, optimizer {}", name(one.activations),
                       name(one.weights_in), name(one.weights_out), name(one.optimizer));
}

// What a dimension's signatures are together; none: no plan that is run.
std::optional<Meaning> meaning_of(const GridDimension& one) {
    const auto weights = [&](Signature in, Signature out) { return one.weights_in == in && one.weights_out == out; };
    const bool whole = weights(Signature::broadcast, Signature::broadcast);
    const bool gathered = weights(Signature::split_0, Signature::split_0);
    const bool states = one.optimizer != Signature::split_1;
    if (one.activations == Signature::split_0 && (whole || (gathered && one.optimizer == Signature::split_0)) &&
        states) {
        return Meaning::data;
    }
    if (one.optimizer != Signature::broadcast) {
        return std::nullopt;
    }
    if (one.activations == Signature::split_1 && whole) {
        return Meaning::context;
    }
    if (one.activations != Signature::split_0 && weights(Signature::split_1, Signature::split_0)) {
        return Meaning::tensor;
    }
    return std::nullopt;
}

// ZeRO stage of a data-parallel dimension.
std::int64_t zero_of(const GridDimension& one) {
    return one.weights_in == Signature::split_0 ? 3 : one.optimizer == Signature::split_0 ? 1 : 0;
}

}  // namespace

std::vector<std::string> SignaturePlan::resolve(PlanSpec& plan) const {
    std::vector<std::string> out;
    std::int64_t degrees[3] = {1, 1, 1};
    std::int64_t zero = -1;
    int sequence = -1;
    Meaning last = Meaning::data;
    for (std::size_t i = 0; i < grid.size(); ++i) {
        const GridDimension& one = grid[i];
        const std::optional<Meaning> meaning = meaning_of(one);
        if (!meaning) {
            out.push_back(
                fmt::format("signatures: dimension {} ({}) is no parallelism: split activations by samples, by "
                            "tokens, or weights_in by columns and weights_out by rows",
                            i, text_of(one)));
            continue;
        }
        if (*meaning < last) {
            out.push_back(
                fmt::format("signatures: dimension {} lies inside one that it must hold: data-parallel dimensions "
                            "are outermost, then context, then tensor",
                            i));
        }
        last = std::max(last, *meaning);
        degrees[static_cast<std::size_t>(*meaning)] *= one.ranks;
        if (*meaning == Meaning::data) {
            if (zero >= 0 && zero != zero_of(one)) {
                out.emplace_back("signatures: data-parallel dimensions must hold weights and states alike");
            }
            zero = zero_of(one);
        }
        if (*meaning == Meaning::tensor) {
            const int split = one.activations == Signature::split_1 ? 1 : 0;
            if (sequence >= 0 && sequence != split) {
                out.emplace_back("signatures: tensor-parallel dimensions must hold activations alike");
            }
            sequence = split;
        }
    }
    if (grid.empty()) {
        out.emplace_back("signatures need a grid of at least one dimension");
    }
    const auto set = [&](const char* name, std::int64_t& degree, std::int64_t value, std::int64_t unsaid) {
        if (degree != unsaid && degree != value) {
            out.push_back(fmt::format("signatures say {} {}, and the plan says {}", name, value, degree));
        }
        degree = value;
    };
    set("data", plan.data, degrees[0], 1);
    set("context", plan.context, degrees[1], 1);
    set("tensor", plan.tensor, degrees[2], 1);
    set("zero", plan.zero, std::max<std::int64_t>(0, zero), 0);
    if (plan.sequence_parallel && sequence == 0) {
        out.emplace_back("signatures say that activations are broadcast, and the plan says sequence_parallel");
    }
    plan.sequence_parallel = plan.sequence_parallel || sequence == 1;
    return out;
}

extern const FeatureRow kSignatures;
const FeatureRow kSignatures = {
    "signatures", "layout of tensors over the ranks of a stage, in place of tensor, context, data and zero",
    make_feature<SignaturePlan>};

}  // namespace orrery::training
