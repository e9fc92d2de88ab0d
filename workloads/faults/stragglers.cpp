#include "workloads/faults/stragglers.hpp"

#include "sim/base/random.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace orrery::faults {

namespace {

// What slow workers of one round after the other take beside their work.
class SlowWorkers {
  public:
    SlowWorkers(const StragglerSpec& spec, std::int64_t workers, std::uint64_t seed)
        : spec_(spec), random_(seed, "faults/stragglers"), slow_(static_cast<std::size_t>(workers)) {
        for (std::size_t i = 0; i < slow_.size(); ++i) {
            slow_[i] = random_.uniform() < spec.share;
        }
    }

    /// Adds to the times of all workers, of which `computing` goes with their speed.
    void add(double computing, std::vector<double>& answers) {
        for (std::size_t i = 0; i < slow_.size(); ++i) {
            const double delay = spec_.spread_s > 0 ? random_.exponential(spec_.spread_s) : 0;
            if (slow_[i]) {
                answers[i] += computing * (1 / spec_.factor - 1) + spec_.delay_s + delay;
            }
        }
        const double leaves = 1 / spec_.mean_burst();
        const double enters = spec_.share / (1 - spec_.share) * leaves;
        for (std::size_t i = 0; i < slow_.size(); ++i) {
            slow_[i] = slow_[i] ? random_.uniform() >= leaves : random_.uniform() < enters;
        }
    }

  private:
    const StragglerSpec& spec_;
    RandomStream random_;
    std::vector<bool> slow_;
};

// When a round ends that leaves those who were not in time behind, as far as the code bears it: of the others it waits for one after
// the other. `late` becomes who is left behind.
double end_of_round(const CodingSpec& coding, const GradientCode& code, const std::vector<double>& answers,
                    const std::deque<LateWorkers>& past, LateWorkers& late, bool& waited) {
    const auto [first, last] = std::minmax_element(answers.begin(), answers.end());
    const double patience = *first * (1 + coding.patience);
    std::vector<std::size_t> behind;
    for (std::size_t i = 0; i < answers.size(); ++i) {
        late[i] = coding.given() && answers[i] > patience;
        if (late[i]) {
            behind.push_back(i);
        }
    }
    if (behind.empty()) {
        return *last;
    }
    if (code.bears(late, past)) {
        return patience;
    }
    waited = true;
    std::stable_sort(behind.begin(), behind.end(),
                     [&](std::size_t a, std::size_t b) { return answers[a] < answers[b]; });
    for (const std::size_t worker : behind) {
        late[worker] = false;
        if (coding.waits == WaitsOn::enough && code.bears(late, past)) {
            return answers[worker];
        }
    }
    return *last;
}

}  // namespace

void describe(Fields& fields, StragglerSpec& stragglers) {
    fields.optional(
        {"stragglers", "data-parallel replicas that are slow for single iterations"}, stragglers.given,
        [&](Fields& inner) {
            inner.quantity({"share", "share of iterations in which a replica is slow", false, 0, 0.99},
                           Dimension::fraction, stragglers.share);
            inner.number({"burst", "mean number of iterations that a slow spell lasts; 0: iterations are independent",
                          false, 0, 1e6},
                         stragglers.burst);
            inner.quantity({"factor", "speed of a slow replica, as a share of its normal speed", false, 0.001, 1},
                           Dimension::fraction, stragglers.factor);
            inner.quantity({"delay", "least additional time that a late worker takes to answer", false, 0, 1e6},
                           Dimension::time, stragglers.delay_s);
            inner.quantity(
                {"spread", "mean of the exponential time that a late worker takes beyond the delay", false, 0, 1e6},
                Dimension::time, stragglers.spread_s);
            inner.integer({"rounds", "rounds that are played for the mean, in each run", false, 1, 1'000'000},
                          stragglers.rounds);
        });
}

void describe(Fields& fields, CodingSpec& coding) {
    const auto describe_master = [&](Fields& inner) {
        inner.number(
            {"patience", "additional time that late workers get, as a share of the fastest one's (mu)", false, 0, 1000},
            coding.patience);
        inner.enumeration({"waits", "workers that a round waits for when more are late than the code tolerates"},
                          {"enough", "all"}, coding.waits);
        inner.integer({"models", "number of models that the same replicas train round-robin", false, 1, 1 << 16},
                      coding.models);
    };
    coding.code.describe_variant(
        fields,
        {"coding", "gradient coding: replicas compute redundant parts, so that a step does not wait for stragglers"},
        [&](Fields& inner) {
            if (!inner.names_all()) {
                coding.code.describe_parameters(inner);
                if (coding.given()) {
                    describe_master(inner);
                }
                return;
            }
            for (const PolicyRow<GradientCode>* row : gradient_code_table()) {
                const auto parameters = row->defaults();
                inner.alternative(row->name, row->description, [&](Fields& same) {
                    parameters->describe(same);
                    if (row != gradient_code_table().front()) {
                        describe_master(same);
                    }
                });
            }
        });
}

void check_spec(const YamlNode& node, const StragglerSpec& stragglers, const CodingSpec& coding, std::int64_t workers,
                std::vector<Diagnostic>& errors) {
    const auto at = [&](const char* section, const char* key) -> const Mark& {
        const YamlNode* found = node.find(section);
        const YamlNode* inner = found != nullptr ? found->find(key) : nullptr;
        return inner != nullptr ? inner->mark : found != nullptr ? found->mark : node.mark;
    };
    if (stragglers.given) {
        if (stragglers.share <= 0) {
            errors.push_back(at("stragglers", "share").error("'stragglers' need a 'share' of iterations above 0"));
        }
        if (stragglers.factor == 1 && stragglers.delay_s == 0 && stragglers.spread_s == 0) {
            errors.push_back(at("stragglers", "")
                                 .error("'stragglers' are not slow: they need a factor below 1, a delay or a spread"));
        }
        const double least = stragglers.share / (1 - stragglers.share);
        if (stragglers.burst > 0 && (stragglers.burst < 1 || stragglers.burst < least)) {
            errors.push_back(
                at("stragglers", "burst")
                    .error(fmt::format("bursts of slow iterations last at least 1, and with this share {:.3g}",
                                       std::max(1.0, least))));
        }
    }
    if (!coding.given()) {
        return;
    }
    const auto code = coding.code.make();
    if (const std::string problem = code->problem(workers); !problem.empty()) {
        errors.push_back(at("coding", "").error(problem));
    } else if (coding.models <= code->delay()) {
        errors.push_back(at("coding", "models")
                             .error(fmt::format("a gradient is there {} rounds after its own: '{}' needs at least {} "
                                                "'models' that are trained in turn",
                                                code->delay(), coding.code.name(), code->delay() + 1)));
    }
}

RoundsPlayed play_rounds(const StragglerSpec& stragglers, const CodingSpec& coding, std::int64_t workers,
                         const RoundParts& parts, std::uint64_t seed) {
    const auto code = coding.code.make();
    const double computing = parts.computing * code->load(workers) * static_cast<double>(workers);
    const double own = computing + parts.exchange * static_cast<double>(code->results()) + parts.fixed;
    if (!stragglers.given) {
        return {own, 0, 0};
    }
    SlowWorkers slow(stragglers, workers, seed);
    std::deque<LateWorkers> past;
    std::vector<double> answers;
    LateWorkers late(static_cast<std::size_t>(workers));
    RoundsPlayed sum;
    for (std::int64_t round = 0; round < stragglers.rounds; ++round) {
        answers.assign(static_cast<std::size_t>(workers), own);
        slow.add(computing, answers);
        bool waited = false;
        sum.round_s += end_of_round(coding, *code, answers, past, late, waited);
        sum.late += static_cast<double>(std::count(late.begin(), late.end(), true));
        sum.waited += waited ? 1 : 0;
        past.push_front(late);
        if (past.size() > static_cast<std::size_t>(code->memory())) {
            past.pop_back();
        }
    }
    ORRERY_ASSERT(past.size() <= static_cast<std::size_t>(code->memory()) && sum.round_s > 0);
    const auto rounds = static_cast<double>(stragglers.rounds);
    return {sum.round_s / rounds, sum.late / rounds, sum.waited / rounds};
}

}  // namespace orrery::faults
