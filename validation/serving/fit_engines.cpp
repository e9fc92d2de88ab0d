#include "sim/base/math.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "validation/serving/serving_points.hpp"
#include "workloads/serving/spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace orrery::validation {

namespace {

enum Constant : std::size_t {
    kStep,
    kSequence,
    kRequest,
    kFrontend,
    kPromptToken,
    kLayerLaunch,
    kLayerGap,
    kSlowdown,
    kExpertsLaunch,
    kConstants,
};
using Constants = std::array<double, kConstants>;
constexpr Constants kWidths = {1e-3, 10e-6, 10e-3, 1e-3, 1e-6, 100e-6, 4e-6, 0.1, 200e-6};  ///< of the first moves
constexpr double kLonger = 1.5;
constexpr double kShorter = 0.4;
constexpr int kRounds = 9;
constexpr double kLeastGain = 1e-5;
constexpr double kLeastSlowdown = 0.7;
/// A run that queues for memory tells nothing of a host's microseconds: its error counts no more than this.
constexpr double kMostError = 0.5;
constexpr double kTtftWeight = 0.5;
constexpr std::ptrdiff_t kFewestExperts = 5;  ///< points for a constant of their own

// An absolute error has many valleys. The descent starts from the present constants, from them with a front end that takes its
// time by token alone, and from the best of a grid over those constants of the host that matter most, on a sample of the points,
// and ends on all of them.
constexpr std::array<double, 4> kStartSteps = {0.3e-3, 1e-3, 3e-3, 6e-3};
constexpr std::array<double, 4> kStartSequences = {0, 20e-6, 60e-6, 120e-6};
constexpr std::array<double, 2> kStartRequests = {10e-3, 40e-3};
constexpr std::array<double, 2> kStartExperts = {0, 500e-6};
constexpr double kStartPromptToken = 4e-6;
constexpr std::size_t kStarts = 2;  ///< of the grid
constexpr std::size_t kGridSample = 12;
constexpr std::size_t kSample = 40;

// A run is some milliseconds, and what it predicts is nearly a plane in the constants near by: each step of the descent takes the
// slopes of all runs, descends on the planes as far as they are trusted, and runs again what it has found.
constexpr double kSlope = 0.25;    ///< of the widths of the first moves, over which slopes are taken
constexpr double kFirstTrust = 2;  ///< widths
constexpr double kLeastTrust = 0.05;
constexpr int kSteps = 6;
constexpr double kNear = 0.5;  ///< trust of the last descent, on all points

Constants constants_of(const HostSpec& host) {
    return {host.step.value,      host.sequence.value,     host.request.value,
            host.frontend.value,  host.prompt_token.value, host.layer_launch.value,
            host.layer_gap.value, host.slowdown.value,     host.experts_launch.value};
}

void set_constants(HostSpec& host, const Constants& constants) {
    host.step.value = constants[kStep];
    host.sequence.value = constants[kSequence];
    host.request.value = constants[kRequest];
    host.frontend.value = constants[kFrontend];
    host.prompt_token.value = constants[kPromptToken];
    host.layer_launch.value = constants[kLayerLaunch];
    host.layer_gap.value = constants[kLayerGap];
    host.slowdown.value = constants[kSlowdown];
    host.experts_launch.value = constants[kExpertsLaunch];
}

/// Mean errors of one set of constants.
struct FitErrors {
    double dense = 0;  ///< over points of dense models
    double all = 0;

    /// That which decides on a step: those that decide on its constants, together.
    [[nodiscard]] double merit() const { return dense + all; }
    /// That which decides on a constant. Kernels are as dense models show them, for those of experts are less well known; a
    /// host is as all points show it, for only short iterations tell what it takes at least.
    [[nodiscard]] double of(Constant constant, bool has_dense) const {
        return has_dense && (constant == kLayerGap || constant == kSlowdown) ? dense : all;
    }
};

/// What runs predict, or what a plane through them does: logs of times per token and to the first token.
struct Logs {
    double tpot = 0, ttft = 0;
};

double log_of(double seconds) {
    return log_pinned(std::max(1e-9, seconds));
}

FitErrors errors_of(const std::vector<ServingPoint*>& points, const std::vector<Logs>& predicted) {
    double sums[2] = {0, 0};  // of dense models, of all
    double weights[2] = {0, 0};
    for (std::size_t i = 0; i < points.size(); ++i) {
        const ServingPoint& point = *points[i];
        const double tpot = std::min(kMostError, std::abs(predicted[i].tpot - log_of(point.tpot)));
        const double ttft = point.ttft > 0 ? std::min(kMostError, std::abs(predicted[i].ttft - log_of(point.ttft))) : 0;
        for (std::size_t k = point.dense ? 0 : 1; k < 2; ++k) {
            sums[k] += tpot + kTtftWeight * ttft;
            weights[k] += 1 + (point.ttft > 0 ? kTtftWeight : 0);
        }
    }
    return {weights[0] > 0 ? sums[0] / weights[0] : 0, weights[1] > 0 ? sums[1] / weights[1] : 0};
}

std::vector<Logs> run_all(const std::vector<ServingPoint*>& points, const DataDirectory& data,
                          const Constants& constants) {
    for (ServingPoint* point : points) {
        set_constants(point->scenario.as<ServingKind>().engine.software, constants);
    }
    predict_all(points, data, nullptr);
    std::vector<Logs> out;
    for (const ServingPoint* point : points) {
        out.push_back({log_of(point->predicted_tpot), log_of(point->predicted_ttft)});
    }
    return out;
}

// The fit of one engine version on its half of the points.
class EngineFit {
  public:
    /// `data` outlives this.
    EngineFit(std::vector<ServingPoint*> half, const DataDirectory& data) : half_(std::move(half)), data_(data) {
        const auto dense =
            std::count_if(half_.begin(), half_.end(), [](const ServingPoint* point) { return point->dense; });
        const auto experts = static_cast<std::ptrdiff_t>(half_.size()) - dense;
        has_dense_ = dense > static_cast<std::ptrdiff_t>(kConstants);
        free_ = {kStep, kSequence, kRequest, kFrontend, kPromptToken, kLayerLaunch};
        if (has_dense_) {
            free_.insert(free_.end(), {kLayerGap, kSlowdown});
        }
        if (experts >= kFewestExperts) {
            free_.push_back(kExpertsLaunch);
        }
    }

    /// With not more points than constants, they stay those of a related version.
    [[nodiscard]] bool determined() const { return half_.size() > kConstants; }

    /// Sets the constants; returns the error that is left.
    double run(Constants& constants) {
        const std::vector<ServingPoint*> few = sampled(kGridSample);
        const std::vector<ServingPoint*> sample = sampled(kSample);
        std::vector<std::pair<double, Constants>> starts;
        for (const Constants& start : grid(constants)) {
            starts.emplace_back(errors_of(few, run_all(few, data_, start)).all, start);
        }
        std::sort(starts.begin(), starts.end());
        starts.resize(kStarts);
        starts.emplace_back(0, constants);
        // Time by request and time by token are one another's valley.
        starts.emplace_back(0, constants);
        starts.back().second[kFrontend] = 0;
        starts.back().second[kPromptToken] = kStartPromptToken;
        for (auto& [error, reached] : starts) {
            error = descend(sample, kFirstTrust, reached).all;
        }
        constants = std::min_element(starts.begin(), starts.end())->second;
        const double left = descend(half_, kNear, constants).all;
        if (constants[kSlowdown] > kLeastSlowdown) {
            return left;
        }
        // At its bound it tells of something else: kernels then keep their times.
        constants[kSlowdown] = 1;
        std::erase(free_, kSlowdown);
        return descend(half_, kFirstTrust, constants).all;
    }

  private:
    // Without dense models, kernels stay as they are.
    [[nodiscard]] std::vector<Constants> grid(const Constants& former) const {
        std::vector<Constants> out;
        for (const double step : kStartSteps) {
            for (const double sequence : kStartSequences) {
                for (const double request : kStartRequests) {
                    for (const double experts : kStartExperts) {
                        if (experts > 0 && free_.back() != kExpertsLaunch) {
                            continue;
                        }
                        out.push_back({step, sequence, request, 2e-3, 0, 200e-6, has_dense_ ? 2e-6 : former[kLayerGap],
                                       has_dense_ ? 1.0 : former[kSlowdown], experts});
                    }
                }
            }
        }
        return out;
    }

    // At most so many points, evenly from all.
    [[nodiscard]] std::vector<ServingPoint*> sampled(std::size_t most) const {
        std::vector<ServingPoint*> out;
        const std::size_t count = std::min(most, half_.size());
        for (std::size_t i = 0; i < count; ++i) {
            out.push_back(half_[i * half_.size() / count]);
        }
        return out;
    }

    using Slopes =
        std::array<std::vector<Logs>, kConstants>;  ///< by constant and point, per second (of the slowdown: per one)

    static double least(Constant constant) { return constant == kSlowdown ? kLeastSlowdown : 0; }

    FitErrors descend(const std::vector<ServingPoint*>& points, double trust, Constants& constants) const {
        std::vector<Logs> here = run_all(points, data_, constants);
        FitErrors best = errors_of(points, here);
        for (int step = 0; step < kSteps && trust > kLeastTrust; ++step) {
            const Slopes slopes = slopes_at(points, constants, here);
            for (bool moved = false; !moved && trust > kLeastTrust;) {
                const Constants trial = descend_planes(points, here, slopes, trust, constants);
                std::vector<Logs> there = run_all(points, data_, trial);
                const FitErrors reached = errors_of(points, there);
                moved = reached.merit() < best.merit() - kLeastGain;
                if (moved) {
                    constants = trial;
                    here = std::move(there);
                    best = reached;
                }
                trust *= moved ? kLonger : kShorter;
            }
        }
        return best;
    }

    [[nodiscard]] Slopes slopes_at(const std::vector<ServingPoint*>& points, const Constants& constants,
                                   const std::vector<Logs>& here) const {
        Slopes out;
        for (const Constant i : free_) {
            Constants beside = constants;
            const double by = kSlope * kWidths[i];
            beside[i] += by;
            out[i] = run_all(points, data_, beside);
            for (std::size_t p = 0; p < points.size(); ++p) {
                out[i][p] = {(out[i][p].tpot - here[p].tpot) / by, (out[i][p].ttft - here[p].ttft) / by};
            }
        }
        return out;
    }

    // Coordinate descent, each constant with a width of its own: robust against the kinks of an absolute error.
    [[nodiscard]] Constants descend_planes(const std::vector<ServingPoint*>& points, const std::vector<Logs>& here,
                                           const Slopes& slopes, double trust, const Constants& from) const {
        const auto errors_at = [&](const Constants& constants) {
            std::vector<Logs> there = here;
            for (const Constant i : free_) {
                const double by = constants[i] - from[i];
                for (std::size_t p = 0; by != 0 && p < points.size(); ++p) {
                    there[p].tpot += by * slopes[i][p].tpot;
                    there[p].ttft += by * slopes[i][p].ttft;
                }
            }
            return errors_of(points, there);
        };
        Constants constants = from;
        Constants width = kWidths;
        FitErrors best = errors_at(constants);
        for (int round = 0; round < kRounds; ++round) {
            for (const Constant i : free_) {
                bool better = false;
                for (const double sign : {1.0, -1.0}) {
                    Constants trial = constants;
                    trial[i] =
                        std::clamp(trial[i] + sign * trust * width[i], std::max(least(i), from[i] - trust * kWidths[i]),
                                   from[i] + trust * kWidths[i]);
                    const FitErrors reached = errors_at(trial);
                    if (reached.of(i, has_dense_) < best.of(i, has_dense_) - kLeastGain) {
                        best = reached;
                        constants = trial;
                        width[i] *= sign;
                        better = true;
                        break;
                    }
                }
                width[i] *= better ? kLonger : kShorter;
            }
        }
        return constants;
    }

    std::vector<ServingPoint*> half_;
    const DataDirectory& data_;
    bool has_dense_ = false;
    std::vector<Constant> free_;
};

}  // namespace

void fit_engines(std::vector<ServingPoint>& points, const DataDirectory& data, const Terminal& terminal,
                 const std::string& only) {
    std::map<std::string, std::vector<ServingPoint*>> halves;
    for (ServingPoint& point : points) {
        if (point.fitted_half && (only.empty() || point.engine == only)) {
            halves[point.engine].push_back(&point);
        }
    }
    std::vector<std::vector<std::string>> rows;
    for (const auto& [engine, half] : halves) {
        EngineFit fit(half, data);
        if (!fit.determined()) {
            continue;
        }
        Constants constants = constants_of(half.front()->scenario.as<ServingKind>().engine.software);
        const double left = fit.run(constants);
        for (ServingPoint& point : points) {
            if (point.engine == engine) {
                set_constants(point.scenario.as<ServingKind>().engine.software, constants);
            }
        }
        rows.push_back({engine, std::to_string(half.size())});
        for (std::size_t i = 0; i < constants.size(); ++i) {
            rows.back().push_back(i == kSlowdown ? fmt::format("{:.3f}", constants[i])
                                                 : pretty_quantity(constants[i], Dimension::time));
        }
        rows.back().push_back(fmt::format("{:.1f} %", 100 * left));
        fmt::print("{}\n", fmt::join(rows.back(), "  "));
        std::fflush(stdout);
    }
    terminal.heading("constants of engine software, fitted on the declared half");
    terminal.table({"software", "points", "step", "sequence", "request", "frontend", "prompt_token", "layer_launch",
                    "layer_gap", "slowdown", "experts_launch", "mean |log error|"},
                   rows);
}

}  // namespace orrery::validation
