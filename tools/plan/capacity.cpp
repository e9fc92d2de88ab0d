#include "tools/plan/capacity.hpp"

#include "sim/base/math.hpp"
#include "sim/record/batch_means.hpp"
#include "tools/driver/kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::inline planning {

namespace {

constexpr double kLeastRate = 1e-3;  // requests/s: an idle system
constexpr double kSlowRate = 0.01;   // below, a thousand requests say it all, and time does not end before the load
constexpr double kMostRate = 1e9;
constexpr int kMostSeeds = 30;

double value_of(const Summary& summary, const std::string& name) {
    const Metric* metric = summary.find(name);
    return metric == nullptr || !metric->measured() ? 0 : metric->value;
}

class Search {
  public:
    Search(const Scenario& scenario, ModelCache& models, const CapacityOptions& options)
        : scenario_(scenario), models_(models), options_(options) {
        if (!scenario.requests.trace.empty()) {
            // A trace has a rate of its own, which a first run tells.
            const Summary summary = simulate(scenario);
            own_rate_ = value_of(summary, "offered_rps");
            if (!(own_rate_ > 0)) {
                throw ConfigError("the trace has no rate: all its requests come at once");
            }
        }
    }

    struct Bracket {
        double good = 0;  ///< requests/s that are borne
        double bad = 0;   ///< and that are not
    };

    Bracket find(std::vector<CapacityTrial>* trials) {
        const auto try_rate = [&](double rate) {
            const CapacityTrial trial = measure(rate);
            if (trials != nullptr) {
                trials->push_back(trial);
            }
            return trial.within;
        };
        double good = 0;
        double bad = 0;
        double rate = (scenario_.requests.trace.empty() ? scenario_.requests.rate : own_rate_) * shift_;
        while (good == 0 || bad == 0) {
            (try_rate(rate) ? good : bad) = rate;
            if (rate < kLeastRate) {
                throw InfeasibleError(fmt::format("the limits are not met at any rate: {}", last_limit_));
            }
            if (rate > kMostRate) {
                throw InfeasibleError("the limits are met at any rate: the load is too short to fill the system");
            }
            rate = bad == 0 ? good * 2 : good == 0 ? bad / 2 : rate;
        }
        while (bad / good > 1 + options_.tolerance) {
            const double middle = std::sqrt(good * bad);
            (try_rate(middle) ? good : bad) = middle;
        }
        return {good, bad};
    }

    /// `part`: of a step of the rates that are tried by which they all are higher.
    void seed(std::int64_t seed, double part) {
        scenario_.seed = seed;
        double step = 2;
        while (step > 1 + options_.tolerance) {
            step = std::sqrt(step);
        }
        shift_ = pow_pinned(step, part);
    }
    [[nodiscard]] std::uint64_t runs() const { return runs_; }

  private:
    Summary simulate(const Scenario& scenario) {
        ++runs_;
        RunOptions options;
        options.steady.batch = options_.batch;
        options.steady.most = 512 * options_.batch;
        options.steady.attainment = options_.percentile > 0 ? options_.percentile / 100 : options_.attainment;
        return run(scenario, models_, options).summary;
    }

    CapacityTrial measure(double rate) {
        Scenario scenario = scenario_;
        if (scenario.requests.trace.empty()) {
            scenario.requests.rate = rate;
        } else {
            scenario.requests.time_scale *= own_rate_ / rate;
        }
        if (rate < kSlowRate) {
            constexpr std::int64_t kEnough = 1000;
            scenario.requests.count =
                scenario.requests.count > 0 ? std::min(kEnough, scenario.requests.count) : kEnough;
        }
        const Summary summary = simulate(scenario);
        CapacityTrial trial;
        trial.rate = rate;
        const Metric* attainment = summary.find("slo_attainment");
        if (attainment != nullptr && !attainment->measured()) {
            throw ConfigError(
                fmt::format("at {:.4g} requests a second none comes in the measured time: change 'measure'", rate));
        }
        trial.attainment = value_of(summary, "slo_attainment");
        const std::string at = options_.percentile > 0 ? fmt::format(".p{:g}", options_.percentile) : ".p99";
        trial.ttft = value_of(summary, "ttft_s" + at);
        trial.tpot = value_of(summary, "tpot_s" + at);
        trial.tbt = value_of(summary, "tbt_s" + at);
        trial.output_tokens = value_of(summary, "output_tokens_per_s");
        trial.energy_per_token_j = value_of(summary, "energy_per_token_j");
        const SloSpec& slo = scenario.slo;
        for (const auto& [name, value, limit] :
             {std::tuple{"ttft", trial.ttft, slo.ttft}, {"tpot", trial.tpot, slo.tpot}, {"tbt", trial.tbt, slo.tbt}}) {
            if (limit > 0 && value > limit) {
                trial.limit += fmt::format("{}{}", trial.limit.empty() ? "" : ", ", name);
            }
        }
        if (value_of(summary, "overloaded") > 0) {
            trial.limit += trial.limit.empty() ? "overload" : ", overload";
        }
        if (value_of(summary, "requests_refused") > 0 && options_.percentile > 0) {
            trial.limit += trial.limit.empty() ? "refused requests" : ", refused requests";
        }
        trial.within = options_.percentile > 0
                           ? trial.limit.empty()
                           : trial.attainment >= options_.attainment && !(value_of(summary, "overloaded") > 0);
        last_limit_ = options_.percentile > 0
                          ? trial.limit
                          : fmt::format("{:.1f} % of the requests meet all limits, {:.1f} % were asked for",
                                        100 * trial.attainment, 100 * options_.attainment);
        return trial;
    }

    Scenario scenario_;
    ModelCache& models_;
    const CapacityOptions& options_;
    double own_rate_ = 0;  ///< of a trace
    double shift_ = 1;     ///< of the rates that are tried
    std::uint64_t runs_ = 0;
    std::string last_limit_;
};

}  // namespace

const CapacityTrial& Capacity::best() const {
    const auto found =
        std::find_if(trials.rbegin(), trials.rend(), [](const CapacityTrial& trial) { return trial.within; });
    ORRERY_ASSERT(found != trials.rend());
    return *found;
}

std::int64_t serving_gpus(const EngineSpec& engine) {
    const auto of = [](const PhaseSpec& phase) { return phase.replicas * phase.ranks(); };
    return engine.split ? of(engine.prefill) + of(engine.decode) : of(engine.mixed);
}

void check_capacity(const Scenario& scenario, const CapacityOptions& options) {
    if (!row_of(scenario.kind).requests) {
        throw ConfigError("a capacity is searched for scenarios of kind serving");
    }
    if (scenario.slo.ttft <= 0 && scenario.slo.tpot <= 0 && scenario.slo.tbt <= 0) {
        throw ConfigError("a capacity needs limits: give 'slo', such as slo: {ttft: 1 s, tbt: 100 ms}");
    }
    const ArrivalKind arrivals = scenario.requests.arrivals;
    if (arrivals == ArrivalKind::closed || (scenario.requests.trace.empty() && arrivals == ArrivalKind::at_once)) {
        throw ConfigError(
            "a capacity needs a rate to change: requests that arrive at once or in closed loops have none");
    }
    if (options.percentile != 0 && options.percentile != 50 && options.percentile != 90 && options.percentile != 99) {
        throw ConfigError("the percentile of a limit is 50, 90 or 99");
    }
}

Capacity find_capacity(const Scenario& scenario, ModelCache& models, const CapacityOptions& options) {
    check_capacity(scenario, options);
    ORRERY_ASSERT(options.seeds >= 1 && options.seeds <= kMostSeeds && options.tolerance > 0);
    Capacity out;
    out.gpus = serving_gpus(scenario.engine);
    Search search(scenario, models, options);
    for (int i = 0; i < options.seeds; ++i) {
        search.seed(scenario.seed + i, static_cast<double>(i) / options.seeds);
        const Search::Bracket found = search.find(i == 0 ? &out.trials : nullptr);
        out.by_seed.push_back(found.good);
        out.high += found.bad / options.seeds;
        if (options.progress) {
            options.progress(static_cast<double>(i + 1) / options.seeds);
        }
    }
    out.runs = search.runs();
    std::sort(out.trials.begin(), out.trials.end(),
              [](const CapacityTrial& a, const CapacityTrial& b) { return a.rate < b.rate; });
    const auto n = static_cast<double>(out.by_seed.size());
    for (const double rate : out.by_seed) {
        out.rate += rate / n;
    }
    double squares = 0;
    for (const double rate : out.by_seed) {
        squares += (rate - out.rate) * (rate - out.rate);
    }
    const double half = n > 1 ? student_t(0.95, out.by_seed.size() - 1) * std::sqrt(squares / (n - 1) / n) : 0;
    out.low = std::max(0.0, out.rate - half);
    out.high += half;
    return out;
}

}  // namespace orrery::inline planning
