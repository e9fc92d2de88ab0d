#include "sim/base/math.hpp"
#include "validation/serving/serving_points.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace orrery {

namespace {

// In this order: step, sequence, request, frontend, layer_launch, layer_gap, slowdown.
constexpr std::size_t kConstants = 7;
constexpr std::size_t kHostConstants = 5;  ///< the first ones
constexpr std::size_t kSlowdown = 6;
using Constants = std::array<double, kConstants>;
constexpr Constants kSteps = {1e-3, 10e-6, 10e-3, 1e-3, 100e-6, 4e-6, 0.1};
/// A run that queues for memory tells nothing of a host's microseconds: its error counts no more than this.
constexpr double kMostError = 0.5;
constexpr double kTtftWeight = 0.5;
constexpr std::size_t kMostPoints = 20;
constexpr int kRounds = 6;
constexpr double kLonger = 1.5;
constexpr double kShorter = 0.4;
constexpr double kLeastSlowdown = 0.9;

Constants constants_of(const HostSpec& host) {
    return {host.step.value,         host.sequence.value,  host.request.value, host.frontend.value,
            host.layer_launch.value, host.layer_gap.value, host.slowdown.value};
}

void set_constants(HostSpec& host, const Constants& constants) {
    host.step.value = constants[0];
    host.sequence.value = constants[1];
    host.request.value = constants[2];
    host.frontend.value = constants[3];
    host.layer_launch.value = constants[4];
    host.layer_gap.value = constants[5];
    host.slowdown.value = constants[kSlowdown];
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

// At most `kMostPoints`, evenly from the whole half; dense models alone where there are enough of them, so that no constant of
// the host takes up what the kernels of experts err by.
std::vector<ServingPoint*> thinned(std::vector<ServingPoint*> all) {
    constexpr std::ptrdiff_t kEnough = 8;
    const auto dense = [](const ServingPoint* point) { return point->dense; };
    if (std::count_if(all.begin(), all.end(), dense) >= kEnough) {
        all.erase(std::remove_if(all.begin(), all.end(), [&](const ServingPoint* one) { return !dense(one); }),
                  all.end());
    }
    std::vector<ServingPoint*> out;
    const std::size_t count = std::min(kMostPoints, all.size());
    for (std::size_t i = 0; i < count; ++i) {
        out.push_back(all[i * all.size() / count]);
    }
    return out;
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
        const std::vector<ServingPoint*> chosen = thinned(half);
        if (chosen.size() < kConstants) {
            continue;  // fewer points than constants: they stay those of a related version
        }
        Constants constants = constants_of(chosen.front()->scenario.engine.software);
        Constants step = kSteps;
        double best = objective(chosen, data, constants);
        // Without dense models the two constants of kernels stay: they would take up what those of experts err by.
        const std::size_t fitted = chosen.front()->dense ? kConstants : kHostConstants;
        // Coordinate descent, each constant with a step of its own: robust against the kinks of an absolute error.
        for (int round = 0; round < kRounds; ++round) {
            for (std::size_t i = 0; i < fitted; ++i) {
                bool better = false;
                for (const double sign : {1.0, -1.0}) {
                    Constants trial = constants;
                    trial[i] = std::max(i == kSlowdown ? kLeastSlowdown : 0.0, trial[i] + sign * step[i]);
                    const double value = trial[i] == constants[i] ? best : objective(chosen, data, trial);
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
        for (ServingPoint& point : points) {
            if (point.engine == engine) {
                set_constants(point.scenario.engine.software, constants);
            }
        }
        rows.push_back({engine, std::to_string(chosen.size())});
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
                    "slowdown", "mean |log error|"},
                   rows);
}

}  // namespace orrery
