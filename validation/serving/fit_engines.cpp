#include "sim/base/math.hpp"
#include "validation/serving/serving_points.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace orrery::inline validation {

namespace {

enum Constant : std::size_t {
    kStep,
    kSequence,
    kRequest,
    kFrontend,
    kLayerLaunch,
    kLayerGap,
    kSlowdown,
    kExpertsLaunch,
    kConstants,
};
using Constants = std::array<double, kConstants>;
constexpr Constants kWidths = {1e-3, 10e-6, 10e-3, 1e-3, 100e-6, 4e-6, 0.1, 200e-6};  ///< of the first moves
constexpr double kLonger = 1.5;
constexpr double kShorter = 0.4;
constexpr int kRounds = 9;
constexpr double kLeastGain = 1e-5;
constexpr double kLeastSlowdown = 0.9;
/// A run that queues for memory tells nothing of a host's microseconds: its error counts no more than this.
constexpr double kMostError = 0.5;
constexpr double kTtftWeight = 0.5;
constexpr std::ptrdiff_t kFewestExperts = 5;  ///< points for a constant of their own

// An absolute error has many valleys. The descent starts from the best of a grid over those constants of the host that matter
// most, on a sample of the points, and ends on all of them.
constexpr std::array<double, 4> kStartSteps = {0.3e-3, 1e-3, 3e-3, 6e-3};
constexpr std::array<double, 4> kStartSequences = {0, 20e-6, 60e-6, 120e-6};
constexpr std::array<double, 2> kStartRequests = {10e-3, 40e-3};
constexpr std::array<double, 2> kStartExperts = {0, 500e-6};
constexpr std::size_t kStarts = 4;
constexpr std::size_t kSample = 40;
constexpr double kPolish = 0.3;  ///< how far the last descent looks, over the widths of the first

Constants constants_of(const HostSpec& host) {
    return {host.step.value,         host.sequence.value,  host.request.value,  host.frontend.value,
            host.layer_launch.value, host.layer_gap.value, host.slowdown.value, host.experts_launch.value};
}

void set_constants(HostSpec& host, const Constants& constants) {
    host.step.value = constants[kStep];
    host.sequence.value = constants[kSequence];
    host.request.value = constants[kRequest];
    host.frontend.value = constants[kFrontend];
    host.layer_launch.value = constants[kLayerLaunch];
    host.layer_gap.value = constants[kLayerGap];
    host.slowdown.value = constants[kSlowdown];
    host.experts_launch.value = constants[kExpertsLaunch];
}

double error(double predicted, double measured) {
    return std::min(kMostError, std::abs(log_pinned(std::max(1e-9, predicted) / measured)));
}

/// Mean errors of one set of constants.
struct Errors {
    double dense = 0;  ///< over points of dense models
    double all = 0;

    /// That which decides on a constant. Kernels are as dense models show them, for those of experts are less well known; a
    /// host is as all points show it, for only short iterations tell what it takes at least.
    [[nodiscard]] double of(Constant constant, bool has_dense) const {
        return has_dense && (constant == kLayerGap || constant == kSlowdown) ? dense : all;
    }
};

class MeanError {
  public:
    void add(const ServingPoint& point) {
        sum_ += error(point.predicted_tpot, point.tpot);
        weight_ += 1;
        if (point.ttft > 0) {
            sum_ += kTtftWeight * error(point.predicted_ttft, point.ttft);
            weight_ += kTtftWeight;
        }
    }
    [[nodiscard]] double value() const { return weight_ > 0 ? sum_ / weight_ : 0; }

  private:
    double sum_ = 0;
    double weight_ = 0;
};

Errors errors_of(const std::vector<ServingPoint*>& points, const DataDirectory& data, const Constants& constants) {
    for (ServingPoint* point : points) {
        set_constants(point->scenario.engine.software, constants);
    }
    predict_all(points, data, nullptr);
    MeanError dense;
    MeanError all;
    for (const ServingPoint* point : points) {
        all.add(*point);
        if (point->dense) {
            dense.add(*point);
        }
    }
    return {dense.value(), all.value()};
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
        free_ = {kStep, kSequence, kRequest, kFrontend, kLayerLaunch};
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
        const std::vector<ServingPoint*> sample = sampled();
        std::vector<std::pair<double, Constants>> starts;
        for (const Constants& start : grid(constants)) {
            starts.emplace_back(errors_of(sample, data_, start).all, start);
        }
        std::sort(starts.begin(), starts.end());
        starts.resize(kStarts);
        for (auto& [error, reached] : starts) {
            (void)descend(sample, 1, reached);
            error = errors_of(half_, data_, reached).all;
        }
        constants = std::min_element(starts.begin(), starts.end())->second;
        return descend(half_, kPolish, constants).all;
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
                        out.push_back({step, sequence, request, 2e-3, 200e-6, has_dense_ ? 2e-6 : former[kLayerGap],
                                       has_dense_ ? 1.0 : former[kSlowdown], experts});
                    }
                }
            }
        }
        return out;
    }

    // At most `kSample` points, evenly from all.
    [[nodiscard]] std::vector<ServingPoint*> sampled() const {
        std::vector<ServingPoint*> out;
        const std::size_t count = std::min(kSample, half_.size());
        for (std::size_t i = 0; i < count; ++i) {
            out.push_back(half_[i * half_.size() / count]);
        }
        return out;
    }

    // Coordinate descent, each constant with a width of its own: robust against the kinks of an absolute error.
    Errors descend(const std::vector<ServingPoint*>& points, double reach, Constants& constants) const {
        Constants width = kWidths;
        Errors best = errors_of(points, data_, constants);
        for (int round = 0; round < kRounds; ++round) {
            for (const Constant i : free_) {
                bool better = false;
                for (const double sign : {1.0, -1.0}) {
                    Constants trial = constants;
                    trial[i] = std::max(i == kSlowdown ? kLeastSlowdown : 0.0, trial[i] + sign * reach * width[i]);
                    if (trial[i] == constants[i]) {
                        continue;
                    }
                    const Errors reached = errors_of(points, data_, trial);
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
        return best;
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
        Constants constants = constants_of(half.front()->scenario.engine.software);
        const double left = fit.run(constants);
        for (ServingPoint& point : points) {
            if (point.engine == engine) {
                set_constants(point.scenario.engine.software, constants);
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
    terminal.table({"software", "points", "step", "sequence", "request", "frontend", "layer_launch", "layer_gap",
                    "slowdown", "experts_launch", "mean |log error|"},
                   rows);
}

}  // namespace orrery::inline validation
