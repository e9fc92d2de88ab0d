#include "tools/plan/capacity.hpp"

#include "sim/base/error.hpp"
#include "sim/base/math.hpp"
#include "sim/record/batch_means.hpp"
#include "tools/driver/kind.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

namespace orrery::plan {

namespace {

constexpr double kLeastRate = 1e-3;  // requests/s: an idle system
constexpr double kSlowRate = 0.01;   // below, a thousand requests say it all, and time does not end before the load
constexpr double kMostRate = 1e9;
constexpr int kMostSeeds = 30;
constexpr std::uint64_t kLooks = 64;  // batches of which a run that is watched for its steady state has at least

double value_of(const Summary& summary, const std::string& name) {
    const Metric* metric = summary.find(name);
    return metric == nullptr || !metric->measured() ? 0 : metric->value;
}

constexpr std::size_t kNoSeed = std::numeric_limits<std::size_t>::max();

class Search {
  public:
    /// A rate with a run of each seed.
    struct Point {
        CapacityTrial pooled;
        std::vector<CapacityTrial> by_seed;
    };

    Search(const Scenario& scenario, ModelCache& models, const CapacityOptions& options)
        : scenario_(scenario), models_(models), options_(options) {
        if (!scenario.as<ServingKind>().requests.trace.empty()) {
            // A trace has a rate of its own, which a first run tells.
            const Summary summary = simulate(scenario);
            own_rate_ = value_of(summary, "offered_rps");
            if (!(own_rate_ > 0)) {
                throw ConfigError("the trace has no rate: all its requests come at once");
            }
        }
    }

    /// About where the capacity is, by short runs of the first seed.
    double find_nearly(std::vector<CapacityTrial>& trials) {
        length_ = Length::short_run;
        seeds_ = 1;
        CapacityTrial good;
        CapacityTrial bad;
        const auto try_rate = [&](double rate) {
            trials.push_back(measure(rate).pooled);
            (trials.back().within ? good : bad) = trials.back();
        };
        const RequestsSpec& requests = scenario_.as<ServingKind>().requests;
        double rate = requests.trace.empty() ? requests.rate : own_rate_;
        while (good.rate == 0 || bad.rate == 0) {
            try_rate(rate);
            if (rate < kLeastRate) {
                throw InfeasibleError(fmt::format("the limits are not met at any rate: {}", last_limit_),
                                      ErrorCode::limits_not_met);
            }
            if (rate > kMostRate) {
                throw InfeasibleError("the limits are met at any rate: the load is too short to fill the system",
                                      ErrorCode::limits_not_met);
            }
            rate = bad.rate == 0 ? good.rate * 2 : bad.rate / 2;
        }
        constexpr double kCoarse = 4;
        while (bad.rate / good.rate > 1 + kCoarse * options_.tolerance) {
            try_rate(std::sqrt(good.rate * bad.rate));
        }
        return std::sqrt(good.rate * bad.rate);
    }

    /// Rates tried with so many seeds, from the lowest, that bracket where they cross as a whole; `low` and `high` are tried first.
    const std::vector<Point>& cross(std::size_t seeds, double low, double high) {
        length_ = Length::whole;
        seeds_ = seeds;
        points_.clear();
        try_rate(low);
        double step = 1 + options_.tolerance;
        double rate = points_.front().pooled.within ? high : low / step;
        try_rate(rate);
        while (points_.front().pooled.within == points_.back().pooled.within) {
            step *= step;
            rate =
                points_.front().pooled.within ? points_.back().pooled.rate * step : points_.front().pooled.rate / step;
            if (rate < kLeastRate || rate > kMostRate) {
                throw InfeasibleError(fmt::format("no rate between {:g} and {:g} requests/s is just borne: {}",
                                                  kLeastRate, kMostRate, last_limit_),
                                      ErrorCode::limits_not_met);
            }
            try_rate(rate);
        }
        constexpr double kSharp = 16;  // brackets need not be narrower by more
        for (;;) {
            const auto [good, bad] = bracket();
            const double width = bad->pooled.rate / good->pooled.rate - 1;
            const double error = crossing(kNoSeed).error / good->pooled.rate;
            if (width <= options_.tolerance &&
                (error <= options_.tolerance / kSharp || width <= options_.tolerance / kSharp)) {
                return points_;
            }
            try_rate(std::sqrt(good->pooled.rate * bad->pooled.rate));
        }
    }

    struct Crossing {
        double rate = 0;   ///< requests/s
        double error = 0;  ///< of it, by which two ways to interpolate differ
    };

    /// Of the points that were tried last, without one seed (or with all: kNoSeed).
    [[nodiscard]] Crossing crossing(std::size_t without) const {
        const auto [good, bad] = bracket();
        if (bad->pooled.served > 0 && bad->pooled.excess <= 0) {
            // The limits hold for ever in what is started, and the rest waits.
            return {pool(*bad, without).served, 0};
        }
        if (bad->pooled.excess <= 0) {  // not borne for a reason that has no scale
            const double middle = std::sqrt(good->pooled.rate * bad->pooled.rate);
            return {middle, middle - good->pooled.rate};
        }
        // Without a seed others of the points are next to the crossing, or it is beyond all of them: as far as the line is believed.
        std::vector<CapacityTrial> trials;
        for (const Point& point : points_) {
            trials.push_back(pool(point, without));
        }
        ORRERY_ASSERT(trials.size() > 1);
        const auto first = std::find_if(trials.begin() + 1, trials.end() - 1,
                                        [](const CapacityTrial& trial) { return trial.log_excess > 0; });
        const CapacityTrial& above = *first;
        const CapacityTrial& below = *(first - 1);
        const double width = log_pinned(above.rate / below.rate);
        constexpr double kFarthest = 3;
        const auto at = [&](double low, double high) {
            const double part = low < high ? std::clamp(-low / (high - low), -kFarthest, 1 + kFarthest) : 1;
            return below.rate * exp_pinned(width * part);
        };
        const double rate = at(below.log_excess, above.log_excess);
        return {rate, std::fabs(rate - at(below.excess, above.excess))};
    }

    /// The highest rate that was borne before the lowest that was not.
    [[nodiscard]] std::pair<const Point*, const Point*> bracket() const {
        const auto bad =
            std::find_if(points_.begin(), points_.end(), [](const Point& point) { return !point.pooled.within; });
        ORRERY_ASSERT(bad != points_.begin() && bad != points_.end());
        return {&*(bad - 1), &*bad};
    }

    [[nodiscard]] std::uint64_t runs() const { return runs_; }

  private:
    enum class Length { short_run, whole };

    void try_rate(double rate) {
        const auto after =
            std::find_if(points_.begin(), points_.end(), [&](const Point& point) { return point.pooled.rate > rate; });
        points_.insert(after, measure(rate));
    }

    Point measure(double rate) {
        Point out;
        for (std::size_t i = 0; i < seeds_; ++i) {
            std::optional<CapacityTrial>& known = known_[{length_, rate, i}];
            if (!known) {
                known = measure(rate, i);
            }
            out.by_seed.push_back(*known);
        }
        out.pooled = pool(out, kNoSeed);
        last_limit_ = options_.percentile > 0
                          ? out.pooled.limit
                          : fmt::format("{:.1f} % of the requests meet all limits, {:.1f} % were asked for",
                                        100 * out.pooled.attainment, 100 * options_.attainment);
        if (options_.found) {
            options_.found(fmt::format("{:.4g} requests/s {} the limits", rate, out.pooled.within ? "meet" : "miss"));
        }
        return out;
    }

    // The means of all seeds' runs but one's; served: of those that overload.
    [[nodiscard]] CapacityTrial pool(const Point& point, std::size_t without) const {
        CapacityTrial out;
        out.rate = point.by_seed.front().rate;
        double runs = 0;
        double overloads = 0;
        double refused = 0;
        for (std::size_t i = 0; i < point.by_seed.size(); ++i) {
            if (i == without && point.by_seed.size() > 1) {
                continue;
            }
            const CapacityTrial& one = point.by_seed[i];
            ++runs;
            for (double CapacityTrial::*member :
                 {&CapacityTrial::attainment, &CapacityTrial::ttft, &CapacityTrial::tpot, &CapacityTrial::tbt,
                  &CapacityTrial::output_tokens, &CapacityTrial::energy_per_token_j, &CapacityTrial::input_cost,
                  &CapacityTrial::output_cost, &CapacityTrial::blended_cost, &CapacityTrial::served}) {
                out.*member += one.*member;
            }
            overloads += one.served > 0 ? 1 : 0;
            refused += one.refused ? 1 : 0;
        }
        ORRERY_ASSERT(runs > 0);
        for (double CapacityTrial::*member :
             {&CapacityTrial::attainment, &CapacityTrial::ttft, &CapacityTrial::tpot, &CapacityTrial::tbt,
              &CapacityTrial::output_tokens, &CapacityTrial::energy_per_token_j, &CapacityTrial::input_cost,
              &CapacityTrial::output_cost, &CapacityTrial::blended_cost}) {
            out.*member /= runs;
        }
        out.served = 2 * overloads > runs ? out.served / overloads : 0;
        out.refused = refused > 0;
        judge(out);
        return out;
    }

    Summary simulate(const Scenario& scenario) {
        ++runs_;
        RunOptions options;
        // A short run ends at any look at which the limits are told apart, a whole one has a single look.
        constexpr std::uint64_t kShorter = 4;
        options.steady.batch = std::max<std::uint64_t>(1, options_.requests / kLooks);
        options.steady.most = options.steady.batch * kLooks;
        if (length_ == Length::short_run) {
            options.steady.batch = std::max<std::uint64_t>(1, options.steady.batch / kShorter);
        }
        options.steady.attainment = options_.percentile > 0 ? options_.percentile / 100 : options_.attainment;
        return run_scenario(scenario, models_, options).summary;
    }

    CapacityTrial measure(double rate, std::size_t seed) {
        Scenario scenario = scenario_;
        scenario.seed += static_cast<std::int64_t>(seed);
        RequestsSpec& requests = scenario.as<ServingKind>().requests;
        if (requests.trace.empty()) {
            requests.rate = rate;
        } else {
            requests.time_scale *= own_rate_ / rate;
        }
        if (rate < kSlowRate) {
            constexpr std::int64_t kEnough = 1000;
            requests.count = requests.count > 0 ? std::min(kEnough, requests.count) : kEnough;
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
        trial.input_cost = value_of(summary, "cost_per_million_input_tokens_usd");
        trial.output_cost = value_of(summary, "cost_per_million_output_tokens_usd");
        trial.blended_cost = value_of(summary, "cost_per_million_blended_tokens_usd");
        trial.served = value_of(summary, "overloaded") > 0 ? value_of(summary, "sustainable_rps") : 0;
        trial.refused = value_of(summary, "requests_refused") > 0;
        return trial;
    }

    // Whether it is borne, what it exceeds, and by how much on the scales of interpolation.
    void judge(CapacityTrial& trial) const {
        const SloSpec& slo = scenario_.as<ServingKind>().slo;
        const auto exceeds = [&](const char* what) {
            trial.limit += (trial.limit.empty() ? "" : ", ") + std::string(what);
        };
        double most = 0;
        for (const auto& [name, value, limit] :
             {std::tuple{"ttft", trial.ttft, slo.ttft}, {"tpot", trial.tpot, slo.tpot}, {"tbt", trial.tbt, slo.tbt}}) {
            if (limit > 0) {
                most = std::max(most, value / limit);
                if (value > limit) {
                    exceeds(name);
                }
            }
        }
        if (trial.served > 0) {
            exceeds("overload");
        }
        constexpr double kLeast = 1e-4;  // a share of no request, or of all, is further than can be told
        if (options_.percentile > 0) {
            if (trial.refused) {
                exceeds("refused requests");
            }
            trial.within = trial.limit.empty();
            trial.excess = most - 1;
            trial.log_excess = log_pinned(std::max(most, kLeast));
            return;
        }
        const auto logit = [&](double share) {
            const double told = std::clamp(share, kLeast, 1 - kLeast);
            return log_pinned(told / (1 - told));
        };
        trial.within = trial.attainment >= options_.attainment && trial.served == 0;
        trial.excess = options_.attainment - trial.attainment;
        trial.log_excess = logit(options_.attainment) - logit(trial.attainment);
    }

    Scenario scenario_;
    ModelCache& models_;
    const CapacityOptions& options_;
    double own_rate_ = 0;  ///< of a trace
    Length length_ = Length::whole;
    std::size_t seeds_ = 1;
    std::map<std::tuple<Length, double, std::size_t>, std::optional<CapacityTrial>> known_;
    std::vector<Point> points_;  ///< by rate
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
    if (scenario.find<ServingKind>() == nullptr) {
        throw ConfigError("a capacity is searched for scenarios of kind serving");
    }
    const auto& serving = scenario.as<ServingKind>();
    if (serving.slo.ttft <= 0 && serving.slo.tpot <= 0 && serving.slo.tbt <= 0) {
        throw ConfigError("a capacity needs limits: give 'slo', such as slo: {ttft: 1 s, tbt: 100 ms}");
    }
    const ArrivalKind arrivals = serving.requests.arrivals;
    if (arrivals == ArrivalKind::closed || (serving.requests.trace.empty() && arrivals == ArrivalKind::at_once)) {
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
    out.gpus = serving_gpus(scenario.as<ServingKind>().engine);
    Search search(scenario, models, options);
    const double near = search.find_nearly(out.trials);
    const double step = std::sqrt(1 + options.tolerance);
    (void)search.cross(1, near / step, near * step);
    const auto seeds = static_cast<std::size_t>(options.seeds);
    auto [good, bad] = search.bracket();
    const std::vector<Search::Point>& points = search.cross(seeds, good->pooled.rate, bad->pooled.rate);
    std::tie(good, bad) = search.bracket();
    out.low = good->pooled.rate;
    out.high = bad->pooled.rate;
    ORRERY_ASSERT(out.low < out.high);
    // Short runs at rates of whole ones, or that say otherwise, say nothing.
    std::erase_if(out.trials, [&](const CapacityTrial& trial) {
        return (trial.rate > points.front().pooled.rate && trial.rate < points.back().pooled.rate) ||
               trial.within != (trial.rate < out.high);
    });
    for (const Search::Point& point : points) {
        out.trials.push_back(point.pooled);
    }
    out.runs = search.runs();
    std::sort(out.trials.begin(), out.trials.end(),
              [](const CapacityTrial& a, const CapacityTrial& b) { return a.rate < b.rate; });
    const Search::Crossing all = search.crossing(kNoSeed);
    if (seeds == 1) {
        out.rate = std::clamp(all.rate, out.low, out.high);
        out.by_seed = {out.rate};
        return out;
    }
    const auto n = static_cast<double>(seeds);
    for (std::size_t i = 0; i < seeds; ++i) {
        out.by_seed.push_back(n * all.rate - (n - 1) * search.crossing(i).rate);
        out.rate += out.by_seed.back() / n;
    }
    double squares = 0;
    for (const double rate : out.by_seed) {
        squares += (rate - out.rate) * (rate - out.rate);
    }
    const double half = student_t(0.95, seeds - 1) * std::sqrt(squares / (n - 1) / n) + all.error;
    out.low = std::max(0.0, out.rate - half);
    out.high = out.rate + half;
    return out;
}

}  // namespace orrery::plan
