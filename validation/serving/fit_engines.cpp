#include "sim/base/math.hpp"
#include "validation/serving/serving_points.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace orrery {

namespace {

// In this order: step, sequence, request, frontend, layer_launch, layer_gap, slowdown, experts_launch.
constexpr std::size_t kConstants = 8;
constexpr std::size_t kFewest = 5;  ///< points for a constant of its own
constexpr std::size_t kSlowdown = 6;
constexpr std::size_t kExpertsLaunch = 7;
using Constants = std::array<double, kConstants>;
constexpr Constants kSteps = {1e-3, 10e-6, 10e-3, 1e-3, 100e-6, 4e-6, 0.1, 200e-6};
/// A run that queues for memory tells nothing of a host's microseconds: its error counts no more than this.
constexpr double kMostError = 0.5;
constexpr double kTtftWeight = 0.5;
constexpr std::size_t kMostPoints = 40;
constexpr int kRounds = 8;
constexpr double kLonger = 1.5;
constexpr double kShorter = 0.4;
constexpr double kLeastSlowdown = 0.9;

Constants constants_of(const HostSpec& host) {
    return {host.step.value,         host.sequence.value,  host.request.value,  host.frontend.value,
            host.layer_launch.value, host.layer_gap.value, host.slowdown.value, host.experts_launch.value};
}

void set_constants(HostSpec& host, const Constants& constants) {
    host.step.value = constants[0];
    host.sequence.value = constants[1];
    host.request.value = constants[2];
    host.frontend.value = constants[3];
    host.layer_launch.value = constants[4];
    host.layer_gap.value = constants[5];
    host.slowdown.value = constants[kSlowdown];
    host.experts_launch.value = constants[kExpertsLaunch];
}

double error(double predicted, double measured) {
    return std::min(kMostError, std::abs(log_pinned(std::max(1e-9, predicted) / measured)));
}

double objective(const std::vector<ServingPoint*>& points, const DataDirectory& data, const Constants& constants) {
    for (ServingPoint* point : points) {
        set_constants(point->scenario.engine.software, constants);
    }
    predict_all(points, data, nullptr);
    double sum = 0;
    double weights = 0;
    for (const ServingPoint* point : points) {
        sum += error(point->predicted_tpot, point->tpot);
        weights += 1;
        if (point->ttft > 0) {
            sum += kTtftWeight * error(point->predicted_ttft, point->ttft);
            weights += kTtftWeight;
        }
    }
    return sum / weights;
}

// At most `kMostPoints`, evenly from those of dense models or of mixtures of experts.
std::vector<ServingPoint*> thinned(const std::vector<ServingPoint*>& half, bool dense) {
    std::vector<ServingPoint*> all;
    std::copy_if(half.begin(), half.end(), std::back_inserter(all),
                 [&](const ServingPoint* point) { return point->dense == dense; });
    std::vector<ServingPoint*> out;
    const std::size_t count = std::min(kMostPoints, all.size());
    for (std::size_t i = 0; i < count; ++i) {
        out.push_back(all[i * all.size() / count]);
    }
    return out;
}

// Coordinate descent, each constant with a step of its own: robust against the kinks of an absolute error.
double descend(const std::vector<ServingPoint*>& points, const DataDirectory& data,
               const std::vector<std::size_t>& which, Constants& constants) {
    Constants step = kSteps;
    double best = objective(points, data, constants);
    for (int round = 0; round < kRounds; ++round) {
        for (const std::size_t i : which) {
            bool better = false;
            for (const double sign : {1.0, -1.0}) {
                Constants trial = constants;
                trial[i] = std::max(i == kSlowdown ? kLeastSlowdown : 0.0, trial[i] + sign * step[i]);
                const double value = trial[i] == constants[i] ? best : objective(points, data, trial);
                if (value < best - 1e-5) {
                    best = value;
                    constants = trial;
                    step[i] *= sign;
                    better = true;
                    break;
                }
            }
            step[i] *= better ? kLonger : kShorter;
        }
    }
    return best;
}

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
    for (auto& [engine, half] : halves) {
        // The constants of the host and of all kernels are those that dense models show, where there are enough of them: what
        // the kernels of experts err by is not to enter. Without dense models the two of kernels stay.
        const std::vector<ServingPoint*> dense = thinned(half, true);
        const std::vector<ServingPoint*> experts = thinned(half, false);
        Constants constants = constants_of(half.front()->scenario.engine.software);
        const bool host_known = dense.size() > kExpertsLaunch;
        if (!host_known && experts.size() <= kExpertsLaunch) {
            continue;  // fewer points than constants: they stay those of a related version
        }
        const double best = host_known ? descend(dense, data, {0, 1, 2, 3, 4, 5, kSlowdown}, constants)
                                       : descend(experts, data, {0, 1, 2, 3, kExpertsLaunch}, constants);
        if (host_known && experts.size() >= kFewest) {
            (void)descend(experts, data, {kExpertsLaunch}, constants);
        }
        const std::size_t used = (host_known ? dense.size() : 0) + (experts.size() >= kFewest ? experts.size() : 0);
        for (ServingPoint& point : points) {
            if (point.engine == engine) {
                set_constants(point.scenario.engine.software, constants);
            }
        }
        rows.push_back({engine, std::to_string(used)});
        for (std::size_t i = 0; i < constants.size(); ++i) {
            rows.back().push_back(i == kSlowdown ? fmt::format("{:.3f}", constants[i])
                                                 : pretty_quantity(constants[i], Dimension::time));
        }
        rows.back().push_back(fmt::format("{:.1f} %", 100 * best));
        fmt::print("{}\n", fmt::join(rows.back(), "  "));
        std::fflush(stdout);
    }
    terminal.heading("constants of engine software, fitted on the declared half");
    terminal.table({"software", "points", "step", "sequence", "request", "frontend", "layer_launch", "layer_gap",
                    "slowdown", "experts_launch", "mean |log error|"},
                   rows);
}

}  // namespace orrery
