#include "validation/training/points.hpp"

#include "sim/base/math.hpp"
#include "sim/config/units.hpp"
#include "tools/program/terminal.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <map>

namespace orrery::inline validation {

namespace {

using Constants = std::array<double, 2>;  // kernel_slowdown, s of step_overhead

// Mean |log(predicted / measured)| on the half declared for fitting. A source weighs as the square root of its points:
// a source with one point must not decide, nor must one with a hundred decide alone.
double objective(std::vector<TrainingPoint>& points, ModelCache& models, const std::string& software,
                 const Constants& constants) {
    std::map<std::string, std::pair<double, double>> sums;
    for (TrainingPoint& point : points) {
        if (!point.scored() || !point.fitted_half || point.variants[0].software.name != software) {
            continue;
        }
        SoftwareSpec& spec = point.variants[0].software;
        spec.kernel_slowdown.value = constants[0];
        spec.step_overhead.value = constants[1];
        predict(point, models);
        if (point.low > 0) {
            auto& [sum, count] = sums[point.source];
            sum += std::abs(log_pinned(point.low / point.measured));
            count += 1;
        }
    }
    double total = 0;
    double weights = 0;
    for (const auto& [source, sum] : sums) {
        const double weight = std::sqrt(sum.second);
        total += weight * sum.first / sum.second;
        weights += weight;
    }
    return weights > 0 ? total / weights : 0;
}

}  // namespace

// Coordinate descent with shrinking steps: robust against the kinks of an absolute error.
void fit_software(std::vector<TrainingPoint>& points, ModelCache& models, const Terminal& terminal) {
    std::map<std::string, Constants> fitted;
    for (const TrainingPoint& point : points) {
        if (point.scored()) {
            const SoftwareSpec& spec = point.variants[0].software;
            fitted[spec.name] = {spec.kernel_slowdown.value, spec.step_overhead.value};
        }
    }
    terminal.heading("constants fitted on the declared half");
    std::vector<std::vector<std::string>> rows;
    for (auto& [name, constants] : fitted) {
        Constants step = {0.1, 0.02};
        double best = objective(points, models, name, constants);
        for (int round = 0; round < 24; ++round) {
            bool better = false;
            for (std::size_t i = 0; i < step.size(); ++i) {
                for (const double sign : {1.0, -1.0}) {
                    Constants trial = constants;
                    trial[i] = std::max(i == 0 ? 1.0 : 0.0, trial[i] + sign * step[i]);
                    const double value = objective(points, models, name, trial);
                    if (value < best - 1e-6) {
                        best = value;
                        constants = trial;
                        better = true;
                        break;
                    }
                }
            }
            if (!better) {
                for (double& s : step) {
                    s /= 2;
                }
                if (step[0] < 0.004) {
                    break;
                }
            }
        }
        rows.push_back({name, fmt::format("{:.3f}", constants[0]), pretty_quantity(constants[1], Dimension::time),
                        fmt::format("{:.1f} %", 100 * best)});
    }
    terminal.table({"software", "kernel_slowdown", "step_overhead", "mean |log error| of its half"}, rows);
    for (TrainingPoint& point : points) {
        for (Scenario& variant : point.variants) {
            const auto found = fitted.find(variant.software.name);
            if (found != fitted.end()) {
                variant.software.kernel_slowdown.value = found->second[0];
                variant.software.step_overhead.value = found->second[1];
            }
        }
    }
}

}  // namespace orrery::inline validation
