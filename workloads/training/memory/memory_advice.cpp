// What to change about a plan that does not fit: the levers are tried, and those that help are named.

#include "workloads/training/memory/memory.hpp"

#include "sim/base/error.hpp"
#include "sim/base/math.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

namespace orrery::training {

namespace {

// One change of a plan, from the mildest on; the first that fits is named.
struct Lever {
    std::vector<std::pair<std::string, PlanSpec>> steps;
};

class Advice {
  public:
    Advice(double capacity, const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software)
        : capacity_(capacity), model_(model), plan_(plan), software_(software) {}

    [[nodiscard]] std::string text() const {
        // Schedules of that many micro-batches are long lists, and there is a list for each try.
        constexpr std::int64_t kMostPasses = 1'000'000;
        if (plan_.micro_batches() * plan_.pipeline > kMostPasses) {
            return "lower micro_batch, or use recompute: full or zero";
        }
        std::string alone = encoder_computed_again();
        for (const Lever& lever : levers(plan_)) {
            append(alone, first_that_fits(lever));
        }
        if (!alone.empty()) {
            return "each of these alone makes it fit: " + alone;
        }
        for (const Lever& first : levers(plan_)) {
            for (const auto& [name, plan] : first.steps) {
                std::string together;
                for (const Lever& second : levers(plan)) {
                    append(together, first_that_fits(second));
                }
                if (!together.empty()) {
                    return fmt::format("no single change makes it fit, but {} with one of {}", name, together);
                }
            }
        }
        return "no one or two changes of sequence_parallel, zero, recompute, micro_batch, context, tensor and pipeline "
               "make "
               "it fit on these GPUs: it needs more of them, or several changes together ('orrery plan' looks for "
               "them)";
    }

  private:
    static void append(std::string& list, const std::string& item) {
        list += item.empty() || list.empty() ? item : ", " + item;
    }

    // An encoder whose layers keep all may compute them again, with those of the language model.
    [[nodiscard]] std::string encoder_computed_again() const {
        const EncoderSpec& encoder = model_.encoder;
        if (!encoder.given() || !encoder.trained || encoder.recompute) {
            return {};
        }
        ModelSpec model = model_;
        model.encoder.recompute = true;
        PlanSpec plan = plan_;
        plan.recompute = Recompute::full;
        plan.recompute_modules.clear();
        const std::optional<double> bytes = most_memory(model, plan);
        return bytes && *bytes <= capacity_ ? fmt::format("model.encoder.recompute=true with plan.recompute=full ({})",
                                                          pretty_quantity(*bytes, Dimension::bytes))
                                            : "";
    }

    [[nodiscard]] std::string first_that_fits(const Lever& lever) const {
        for (const auto& [name, plan] : lever.steps) {
            if (const std::optional<double> bytes = most_memory(model_, plan); bytes && *bytes <= capacity_) {
                return fmt::format("{} ({})", name, pretty_quantity(*bytes, Dimension::bytes));
            }
        }
        return {};
    }

    // Of the fullest stage; nothing for a plan that cannot be.
    [[nodiscard]] std::optional<double> most_memory(const ModelSpec& model, const PlanSpec& plan) const {
        try {
            check_spec(model, plan, static_cast<std::uint32_t>(plan_.ranks()), Mark());
        } catch (const Error&) {
            return std::nullopt;
        }
        double most = 0;
        for (const MemoryUse& use : memory_by_stage(model, plan, software_)) {
            most = std::max(most, use.total() + use.idle);
        }
        return most;
    }

    [[nodiscard]] static std::vector<Lever> levers(const PlanSpec& from) {
        std::vector<Lever> out;
        const auto add = [&](std::int64_t PlanSpec::*member, const char* key, const std::vector<std::int64_t>& values) {
            Lever lever;
            for (const std::int64_t value : values) {
                PlanSpec plan = from;
                plan.*member = value;
                lever.steps.emplace_back(fmt::format("plan.{}={}", key, value), plan);
            }
            out.push_back(std::move(lever));
        };
        Lever sequence;
        if (from.tensor > 1 && !from.sequence_parallel) {
            sequence.steps.emplace_back("plan.sequence_parallel=true", from);
            sequence.steps.back().second.sequence_parallel = true;
        }
        out.push_back(std::move(sequence));
        Lever fused;
        if (from.attention == AttentionKernel::unfused) {
            fused.steps.emplace_back("plan.attention=flash", from);
            fused.steps.back().second.attention = AttentionKernel::flash;
        }
        out.push_back(std::move(fused));
        std::vector<std::int64_t> stages;
        for (std::int64_t zero = from.zero + 1; from.data * from.context > 1 && zero <= 3; ++zero) {
            stages.push_back(zero);
        }
        add(&PlanSpec::zero, "zero", stages);
        Lever recompute;
        for (const auto& [name, value] : {std::pair{"selective", Recompute::selective}, {"full", Recompute::full}}) {
            const bool more = static_cast<int>(value) > static_cast<int>(from.recompute);
            // Fused attention keeps no scores that selective recomputation could leave out.
            if (more && (value == Recompute::full || from.attention == AttentionKernel::unfused)) {
                recompute.steps.emplace_back(fmt::format("plan.recompute={}", name), from);
                recompute.steps.back().second.recompute = value;
            }
        }
        if (from.recompute_layers > 0) {
            recompute.steps.emplace_back("plan.recompute_layers=0", from);
            recompute.steps.back().second.recompute_layers = 0;
        }
        out.push_back(std::move(recompute));
        std::vector<std::int64_t> batches;
        for (std::int64_t batch = from.micro_batch - 1; batch >= 1; --batch) {
            if (from.micro_batch % batch == 0) {
                batches.push_back(batch);
            }
        }
        add(&PlanSpec::micro_batch, "micro_batch", batches);
        for (const auto& [member, key] : {std::pair{&PlanSpec::context, "context"},
                                          {&PlanSpec::tensor, "tensor"},
                                          {&PlanSpec::pipeline, "pipeline"}}) {
            Lever lever;  // on the same GPUs: fewer data-parallel ranks
            for (std::int64_t factor = 2; from.data % factor == 0; factor *= 2) {
                PlanSpec plan = from;
                plan.*member *= factor;
                plan.data /= factor;
                lever.steps.emplace_back(fmt::format("plan.{}={} with plan.data={}", key, plan.*member, plan.data),
                                         plan);
            }
            out.push_back(std::move(lever));
        }
        return out;
    }

    double capacity_;
    const ModelSpec& model_;
    const PlanSpec& plan_;
    const SoftwareSpec& software_;
};

}  // namespace

// Standard deviations of log(needed / predicted): of activations and what is kept beside them nine of ten peaks of
// `orrery validate training-memory` keep 12 %, most of it activations; weights, gradients and states are counted, and the rest of the
// board differs by some 0.3 GiB.
double odds_of_running_out(const MemoryUse& use, double capacity, const SoftwareSpec& software) {
    constexpr double kActivations = 0.08;
    constexpr double kStates = 0.015;
    const double needed = use.total() + use.idle;
    if (!(needed > 0) || !std::isfinite(capacity)) {
        return 0;
    }
    const double loose = kActivations * (use.activations + use.idle);
    const double firm = kStates * (needed - use.activations - use.idle);
    const double given = software.allocation.spread.value;
    const double spread = given > 0 ? given : std::sqrt(loose * loose + firm * firm) / needed;
    // The logistic curve that is nearest to the normal distribution.
    constexpr double kScale = 1.702;
    return 1 / (1 + exp_pinned(-kScale * log_pinned(needed / capacity) / spread));
}

void require_fits(const std::vector<MemoryUse>& stages, const std::vector<double>& capacities, const ModelSpec& model,
                  const PlanSpec& plan, const SoftwareSpec& software) {
    ORRERY_ASSERT(stages.size() == capacities.size());
    auto full = stages.begin();
    auto limit = capacities.begin();
    for (; full != stages.end() && odds_of_running_out(*full, *limit, software) <= kRefusedOdds; ++full, ++limit) {
    }
    if (full == stages.end()) {
        return;
    }
    const double capacity = *limit;
    const auto show = [](double bytes) { return pretty_quantity(bytes, Dimension::bytes); };
    throw InfeasibleError(
        fmt::format("out of memory: stage {} needs {} a GPU, the device has {} (weights {}, gradients {}, optimizer "
                    "{}, activations {}, "
                    "buffers {}{}); {}",
                    full - stages.begin(), show(full->total() + full->idle), show(capacity), show(full->weights),
                    show(full->gradients), show(full->optimizer), show(full->activations), show(full->buffers),
                    full->idle > 0 ? ", freed blocks and communicators " + show(full->idle) : "",
                    Advice(capacity, model, plan, software).text()),
        ErrorCode::out_of_memory);
}

}  // namespace orrery::training
