#include "validation/training/points.hpp"

#include "sim/base/math.hpp"
#include "sim/config/units.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/terminal/terminal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

namespace orrery::validation {

namespace {

using Constants = std::vector<double>;

/// Constants of a software that are fitted together, on the points that tell them.
struct Fitted {
    std::vector<Constants> starts;  ///< beside the constants as they are: an absolute error has more than one valley
    Constants first_step;
    Constants least;
    Constants (*get)(const SoftwareSpec& spec);
    void (*set)(SoftwareSpec& spec, const Constants& constants);
    bool (*tells)(const TrainingPoint& point);
};

constexpr std::size_t kSlowdown = 0, kOverhead = 1, kLaunch = 2;

// Overhead and launches are fitted where the preset says that they are: launches on runs that they slow down. What a preset has from
// elsewhere stays.
const Fitted kSoftware = {{{1.0, 0.0, 2e-5}, {1.15, 0.05, 6e-5}},
                          {0.1, 0.02, 2e-5},
                          {1.0, 0.0, 0.0},
                          [](const SoftwareSpec& spec) {
                              return Constants{spec.kernel_slowdown.value, spec.step_overhead.value, spec.launch.value};
                          },
                          [](SoftwareSpec& spec, const Constants& constants) {
                              spec.kernel_slowdown.value = constants[kSlowdown];
                              if (spec.step_overhead.how == "fitted") {
                                  spec.step_overhead.value = constants[kOverhead];
                              }
                              if (spec.launch.how == "fitted") {
                                  spec.launch.value = constants[kLaunch];
                              }
                          },
                          [](const TrainingPoint& point) { return point.fitted_half; }};

// On x86 hosts: those of GB200 are slower, and the one family of runs on them that waits has losses of its own. Of both halves,
// since no score of experts is one of a half held back.
const Fitted kExpertWait = {
    {},
    {1e-3},
    {0.0},
    [](const SoftwareSpec& spec) { return Constants{spec.expert_wait.value}; },
    [](SoftwareSpec& spec, const Constants& constants) { spec.expert_wait.value = constants[0]; },
    [](const TrainingPoint& point) {
        return point.software().graphs == CudaGraphs::none && !point.variants[0].as<TrainingKind>().plan.experts.pad &&
               point.hardware.find("NVIDIA GB") == std::string::npos;
    }};

using ByName = std::function<bool(const TrainingPoint&)>;

// Mean |log(predicted / measured)| of the points that are wanted. A source weighs as the square root of its points:
// a source with one point must not decide, nor must one with a hundred decide alone.
double objective(std::vector<TrainingPoint>& points, ModelCache& models, const Fitted& fit, const ByName& wanted,
                 const Constants& constants) {
    std::map<std::string, std::pair<double, double>> sums;
    for (TrainingPoint& point : points) {
        if (!wanted(point)) {
            continue;
        }
        fit.set(point.variants[0].as<TrainingKind>().software, constants);
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

// Directions that are tried: along each constant, and from one to another, as a slow kernel and a long wait do the same to a run.
std::vector<Constants> directions_of(const Constants& step) {
    std::vector<Constants> out;
    for (std::size_t i = 0; i < step.size(); ++i) {
        if (step[i] == 0) {
            continue;
        }
        Constants along(step.size());
        along[i] = step[i];
        out.push_back(along);
        for (std::size_t j = 0; j < i && step[j] > 0; ++j) {
            Constants exchange = along;
            exchange[j] = -step[j];
            out.push_back(exchange);
        }
    }
    return out;
}

// Descent with shrinking steps: robust against the kinks of an absolute error. Returns the objective.
double descend(Constants& constants, const Fitted& fit, const std::function<double(const Constants&)>& value_of) {
    Constants step = fit.first_step;
    double best = value_of(constants);
    for (int round = 0; round < 24 && step[0] >= 0.04 * fit.first_step[0]; ++round) {
        bool better = false;
        for (const Constants& direction : directions_of(step)) {
            for (const double sign : {1.0, -1.0}) {
                Constants trial = constants;
                for (std::size_t i = 0; i < trial.size(); ++i) {
                    trial[i] = std::max(fit.least[i], trial[i] + sign * direction[i]);
                }
                const double value = value_of(trial);
                if (value < best - 1e-6) {
                    best = value;
                    constants = trial;
                    better = true;
                    break;
                }
            }
        }
        for (double& s : step) {
            s = better ? s : s / 2;
        }
    }
    return best;
}

// The best of the descents from all starts.
double fit_one(Constants& constants, const Fitted& fit, const std::function<double(const Constants&)>& value_of) {
    double best = descend(constants, fit, value_of);
    for (Constants start : fit.starts) {
        const double value = descend(start, fit, value_of);
        if (value < best - 1e-6) {
            best = value;
            constants = start;
        }
    }
    return best;
}

// Of a software whose preset has some constants from elsewhere: no steps along these.
Fitted only_fitted(Fitted fit, const SoftwareSpec& software) {
    const Constants now = fit.get(software);
    for (std::size_t i = 0; i < now.size(); ++i) {
        Constants moved = now;
        moved[i] += fit.first_step[i];
        SoftwareSpec trial = software;
        fit.set(trial, moved);
        if (fit.get(trial) == now) {
            fit.first_step[i] = 0;
        }
    }
    return fit;
}

void fit_all(std::vector<TrainingPoint>& points, ModelCache& models, const Terminal& terminal, const Fitted& fit,
             const std::function<std::vector<std::string>(const SoftwareSpec&)>& words,
             const std::vector<std::string>& headings) {
    std::map<std::string, Constants> fitted;
    for (const TrainingPoint& point : points) {
        if (point.scored() && fit.tells(point)) {
            fitted[point.variants[0].as<TrainingKind>().software.name] =
                fit.get(point.variants[0].as<TrainingKind>().software);
        }
    }
    std::vector<std::vector<std::string>> rows;
    for (auto& [name, constants] : fitted) {
        const auto wanted = [&, &software = name](const TrainingPoint& point) {
            return point.scored() && point.variants[0].as<TrainingKind>().software.name == software && fit.tells(point);
        };
        const auto some = std::find_if(points.begin(), points.end(), wanted);
        const Fitted own = only_fitted(fit, some->variants[0].as<TrainingKind>().software);
        const double best = fit_one(
            constants, own, [&](const Constants& trial) { return objective(points, models, fit, wanted, trial); });
        std::vector<std::string> row{name};
        fit.set(some->variants[0].as<TrainingKind>().software, constants);
        for (const std::string& word : words(some->variants[0].as<TrainingKind>().software)) {
            row.push_back(word);
        }
        row.push_back(fmt::format("{:.1f} %", 100 * best));
        row.push_back(std::to_string(std::count_if(points.begin(), points.end(), wanted)));
        rows.push_back(std::move(row));
    }
    terminal.table(headings, rows);
    for (TrainingPoint& point : points) {
        for (Scenario& variant : point.variants) {
            const auto found = fitted.find(variant.as<TrainingKind>().software.name);
            if (found != fitted.end()) {
                fit.set(variant.as<TrainingKind>().software, found->second);
            }
        }
    }
}

}  // namespace

void fit_software(std::vector<TrainingPoint>& points, ModelCache& models, const Terminal& terminal) {
    terminal.heading("constants fitted on the declared half");
    fit_all(points, models, terminal, kSoftware,
            [](const SoftwareSpec& spec) {
                const auto if_fitted = [](const Sourced<double>& value) {
                    return value.how == "fitted" ? pretty_quantity(value.value, Dimension::time) : "not fitted";
                };
                return std::vector<std::string>{fmt::format("{:.3f}", spec.kernel_slowdown.value),
                                                if_fitted(spec.step_overhead), if_fitted(spec.launch)};
            },
            {"software", "kernel_slowdown", "step_overhead", "launch", "mean |log error| of its half", "points"});
}

void fit_expert_wait(std::vector<TrainingPoint>& experts, ModelCache& models, const Terminal& terminal) {
    terminal.heading("waits for the tokens of experts, fitted on the runs that have them");
    fit_all(experts, models, terminal, kExpertWait,
            [](const SoftwareSpec& spec) {
                return std::vector<std::string>{pretty_quantity(spec.expert_wait.value, Dimension::time)};
            },
            {"software", "expert_wait", "mean |log error|", "points"});
}

}  // namespace orrery::validation
