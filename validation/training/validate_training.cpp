#include "validation/scatter.hpp"
#include "validation/statistics.hpp"
#include "validation/validate.hpp"

#include "sim/base/math.hpp"
#include "tools/driver/interval.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

namespace orrery {

namespace {

struct Point {
    std::string id;
    std::string source;
    std::string hardware;
    std::string family;  ///< model and size: plans of one family compete
    double measured = 0;
    bool fitted_half = false;
    std::vector<Scenario> variants;  ///< one, or what the source leaves open
    // Results:
    double low = 0, high = 0;
    double interval_low = 0, interval_high = 0;  ///< 90 %, of the last variant
    bool refused_by_memory = false;              ///< although it ran
};

[[nodiscard]] double error_of(const Point& point) {
    return point.low / point.measured - 1;
}

std::string scalar(const YamlNode& node, const char* key) {
    const YamlNode* value = node.find(key);
    if (value == nullptr || value->kind != YamlNode::Kind::scalar) {
        throw ConfigError({node.mark.error(fmt::format("'{}' is missing", key))});
    }
    return value->scalar;
}

// Every combination of the values a source leaves open, as scenario trees.
std::vector<YamlNode> expand(const YamlNode& scenario, const YamlNode* unknown) {
    std::vector<YamlNode> out = {scenario};
    if (unknown == nullptr) {
        return out;
    }
    for (const YamlNode::Entry& entry : unknown->entries) {
        std::vector<YamlNode> next;
        for (const YamlNode& base : out) {
            for (const YamlNode& value : entry.value.items) {
                YamlNode copy = base;
                apply_override(copy, entry.key + "=" + value.scalar);
                next.push_back(std::move(copy));
            }
        }
        out = std::move(next);
    }
    return out;
}

std::vector<Point> load_points(const DataDirectory& data) {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(data.path("validation/training"))) {
        if (entry.path().extension() == ".yaml") {
            files.push_back(entry.path().string());
        }
    }
    std::sort(files.begin(), files.end());
    std::vector<Point> points;
    for (const std::string& file : files) {
        const YamlNode root = load_yaml(file);
        const YamlNode* list = root.find("points");
        if (list == nullptr) {
            throw ConfigError({root.mark.error("'points' is missing")});
        }
        std::size_t scored = 0;
        for (const YamlNode& node : list->items) {
            Point point;
            point.id = scalar(node, "id");
            point.source = std::filesystem::path(file).stem().string();
            std::string problem;
            if (!parse_quantity(scalar(node, "measured"), Dimension::time, point.measured, problem)) {
                throw ConfigError({node.mark.error(problem)});
            }
            const YamlNode* scenario = node.find("scenario");
            if (scenario == nullptr) {
                throw ConfigError({node.mark.error("'scenario' is missing")});
            }
            const YamlNode* unknown = node.find("unknown");
            for (const YamlNode& variant : expand(*scenario, unknown)) {
                point.variants.push_back(read_scenario(variant, point.id, data));
            }
            if (unknown == nullptr) {
                point.fitted_half = scored++ % 2 == 0;
            }
            const Scenario& first = point.variants[0];
            point.hardware = first.cluster.node.gpu.name;
            point.family = fmt::format("{} {}x{} {} GPUs, batch {}", point.source, first.model.layers,
                                       first.model.hidden, first.plan.ranks(), first.plan.global_batch);
            points.push_back(std::move(point));
        }
    }
    return points;
}

bool is_scored(const Point& point) {
    return point.variants.size() == 1;
}

// Runs the variants; a range over those that the model says fit, when there are several.
void predict(Point& point, ModelCache& models) {
    point.low = 0;
    RunOptions options;
    options.check_memory = point.variants.size() > 1;
    for (const bool insist : {options.check_memory, false}) {
        options.check_memory = insist;
        for (const Scenario& variant : point.variants) {
            try {
                const RunOutput out = run(variant, models, options);
                const Metric& metric = *out.summary.find("iteration_time_s");
                const double seconds = metric.value;
                point.interval_low = metric.low.value_or(seconds);
                point.interval_high = metric.high.value_or(seconds);
                point.refused_by_memory = out.training->memory_bytes > variant.cluster.node.gpu.memory.value;
                point.low = point.low == 0 ? seconds : std::min(point.low, seconds);
                point.high = std::max(point.high, seconds);
            } catch (const InfeasibleError&) {
                // Not every combination of what a source leaves open fits.
            }
        }
        if (point.low > 0) {
            break;
        }
    }
}

std::string percent(double value) {
    return fmt::format("{:+.1f} %", value);
}

void print_groups(const Terminal& terminal, const std::string& title, const std::vector<Point>& points,
                  const std::function<std::string(const Point&)>& key) {
    std::map<std::string, std::vector<double>> groups;
    for (const Point& point : points) {
        if (is_scored(point) && point.low > 0) {
            groups[key(point)].push_back(error_of(point));
        }
    }
    terminal.heading(title);
    std::vector<std::vector<std::string>> rows;
    for (const auto& [name, errors] : groups) {
        const ErrorStatistics s = statistics_of(errors);
        rows.push_back({name, std::to_string(s.count), fmt::format("{:.1f} %", s.mape), percent(s.median_bias),
                        fmt::format("{:.1f} %", s.worst)});
    }
    terminal.table({"group", "points", "MAPE", "median bias", "worst"}, rows);
}

// What is left of the errors of the declared half when the other parts of the predicted spreads are taken off: the part that
// tools/driver/interval.hpp books under software.
double software_spread(const std::vector<Point>& points) {
    double left = 0;
    double count = 0;
    for (const Point& point : points) {
        if (!is_scored(point) || !point.fitted_half) {
            continue;
        }
        const double error = log_pinned(point.measured / point.low);
        const double spread = log_pinned(point.interval_high / point.low) / kNinety;
        left += error * error - (spread * spread - kSoftwareSpread * kSoftwareSpread);
        ++count;
    }
    return count > 0 ? std::sqrt(std::max(0.0, left / count)) : 0;
}

double mean_of_sources(const std::vector<Point>& points, const std::function<bool(const Point&)>& wanted) {
    std::map<std::string, std::vector<double>> groups;
    for (const Point& point : points) {
        if (is_scored(point) && wanted(point) && point.low > 0) {
            groups[point.source].push_back(error_of(point));
        }
    }
    double sum = 0;
    for (const auto& [name, errors] : groups) {
        sum += statistics_of(errors).mape;
    }
    return groups.empty() ? 0 : sum / static_cast<double>(groups.size());
}

/// Means over the families of plans.
struct Ranking {
    double tau = 0;
    double regret = 0;  ///< %, of the plan predicted best
};

Ranking print_ranking(const Terminal& terminal, const std::vector<Point>& points) {
    std::map<std::string, std::vector<const Point*>> families;
    for (const Point& point : points) {
        if (is_scored(point) && point.low > 0) {
            families[point.family].push_back(&point);
        }
    }
    std::vector<std::vector<std::string>> rows;
    Ranking mean;
    for (const auto& [name, members] : families) {
        if (members.size() < 5) {
            continue;
        }
        std::vector<double> predicted;
        std::vector<double> measured;
        for (const Point* point : members) {
            predicted.push_back(point->low);
            measured.push_back(point->measured);
        }
        const auto chosen =
            static_cast<std::size_t>(std::min_element(predicted.begin(), predicted.end()) - predicted.begin());
        const double best = *std::min_element(measured.begin(), measured.end());
        const double tau = kendall_tau(predicted, measured);
        const double regret = 100 * (measured[chosen] / best - 1);
        mean.tau += tau;
        mean.regret += regret;
        rows.push_back(
            {name, std::to_string(members.size()), fmt::format("{:.2f}", tau), fmt::format("{:.1f} %", regret)});
    }
    if (!rows.empty()) {
        mean.tau /= static_cast<double>(rows.size());
        mean.regret /= static_cast<double>(rows.size());
    }
    terminal.heading("ranking of plans (families of five plans or more)");
    terminal.table({"family", "plans", "Kendall tau", "regret of the predicted best"}, rows);
    return mean;
}

using Constants = std::array<double, 2>;  // kernel_slowdown, s of step_overhead

// Mean |log(predicted / measured)| on the half declared for fitting. A source weighs as the square root of its points:
// a source with one point must not decide, nor must one with a hundred decide alone.
double objective(std::vector<Point>& points, ModelCache& models, const std::string& software,
                 const Constants& constants) {
    std::map<std::string, std::pair<double, double>> sums;
    for (Point& point : points) {
        if (!is_scored(point) || !point.fitted_half || point.variants[0].software.name != software) {
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

// Coordinate descent with shrinking steps: robust against the kinks of an absolute error.
void fit_software(std::vector<Point>& points, ModelCache& models, const Terminal& terminal) {
    std::map<std::string, Constants> fitted;
    for (const Point& point : points) {
        if (is_scored(point)) {
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
    for (Point& point : points) {
        for (Scenario& variant : point.variants) {
            const auto found = fitted.find(variant.software.name);
            if (found != fitted.end()) {
                variant.software.kernel_slowdown.value = found->second[0];
                variant.software.step_overhead.value = found->second[1];
            }
        }
    }
}

}  // namespace

Comparison validate_training(ModelCache& models, const Terminal& terminal, bool print_points, bool fit,
                             const std::string& svg) {
    std::vector<Point> points = load_points(models.data());
    if (fit) {
        fit_software(points, models, terminal);
    }
    Progress progress(terminal.quiet());
    for (std::size_t i = 0; i < points.size(); ++i) {
        predict(points[i], models);
        progress.update(static_cast<double>(i + 1) / static_cast<double>(points.size()));
    }
    progress.finish();
    Comparison out{"training", "training iterations", "", "", {"source", "hardware", "model"}, {}, {}};
    std::vector<ScatterPoint>& scatter = out.points;
    for (const Point& point : points) {
        if (is_scored(point) && point.low > 0) {
            scatter.push_back(ScatterPoint{point.measured,
                                           point.low,
                                           point.source,
                                           fmt::format("{}: {:+.1f} %", point.id, 100 * error_of(point)),
                                           {point.hardware, point.family}});
        }
    }
    if (!svg.empty()) {
        write_file(svg,
                   scatter_svg(fmt::format("{} measured training iterations; band: 10 %", scatter.size()), scatter));
    }
    if (print_points) {
        std::vector<std::vector<std::string>> rows;
        for (const Point& point : points) {
            const std::string predicted = is_scored(point) ? fmt::format("{:.4g}", point.low)
                                                           : fmt::format("{:.4g} to {:.4g}", point.low, point.high);
            const bool inside = point.measured >= point.low && point.measured <= point.high;
            rows.push_back(
                {point.id, fmt::format("{:.4g} s", point.measured), predicted,
                 is_scored(point) ? percent(100 * error_of(point))
                 : inside
                     ? "inside"
                     : percent(100 * ((point.measured > point.high ? point.high : point.low) / point.measured - 1)),
                 is_scored(point) ? (point.fitted_half ? "fitted half" : "held back") : "not scored"});
        }
        terminal.heading("points");
        terminal.table({"point", "measured", "predicted", "error", ""}, rows);
    }
    print_groups(terminal, "by source", points, [](const Point& p) { return p.source; });
    print_groups(terminal, "by hardware", points, [](const Point& p) { return p.hardware; });
    print_groups(terminal, "by scale", points, [](const Point& p) {
        const std::int64_t gpus = p.variants[0].plan.ranks();
        return std::string(gpus <= 8     ? "1: up to 8 GPUs"
                           : gpus <= 64  ? "2: 9 to 64 GPUs"
                           : gpus <= 512 ? "3: 65 to 512 GPUs"
                                         : "4: more");
    });
    const Ranking ranking = print_ranking(terminal, points);

    std::vector<double> all;
    std::size_t inside = 0;
    std::size_t open = 0;
    std::size_t covered = 0;
    std::size_t held_back = 0;
    std::vector<double> outside;
    for (const Point& point : points) {
        if (is_scored(point) && point.low > 0) {
            all.push_back(error_of(point));
            held_back += point.fitted_half ? 0 : 1;
            covered +=
                !point.fitted_half && point.measured >= point.interval_low && point.measured <= point.interval_high ? 1
                                                                                                                    : 0;
        } else if (!is_scored(point)) {
            ++open;
            const bool in = point.measured >= point.low && point.measured <= point.high;
            inside += in ? 1 : 0;
            if (!in) {
                outside.push_back((point.measured > point.high ? point.high : point.low) / point.measured - 1);
            }
        }
    }
    const auto refused =
        std::count_if(points.begin(), points.end(), [](const Point& p) { return is_scored(p) && p.refused_by_memory; });
    const ErrorStatistics s = statistics_of(all);
    terminal.heading("summary");
    const double software = software_spread(points);
    terminal.table(
        {},
        {{"scored points", std::to_string(s.count)},
         {"mean of the sources' MAPEs",
          fmt::format("{:.2f} %", mean_of_sources(points, [](const Point&) { return true; }))},
         {"  on the fitted half",
          fmt::format("{:.2f} %", mean_of_sources(points, [](const Point& p) { return p.fitted_half; }))},
         {"  on the half held back",
          fmt::format("{:.2f} %", mean_of_sources(points, [](const Point& p) { return !p.fitted_half; }))},
         {"MAPE over points", fmt::format("{:.2f} %", s.mape)},
         {"median bias", percent(s.median_bias)},
         {"worst", fmt::format("{:.1f} %", s.worst)},
         {"inside the 90 % interval, of the half held back", fmt::format("{} of {}", covered, held_back)},
         {"  spread of software, from the fitted half",
          fmt::format("{:.3f} (in use: {:.3f})", software, kSoftwareSpread)},
         {"runs that the memory model would refuse", std::to_string(refused)},
         {"runs with something left open", fmt::format("{}, measured inside the predicted range: {}", open, inside)},
         {"  MAPE to the range of those outside", fmt::format("{:.1f} %", statistics_of(outside).mape)}});
    const auto everything = [](const Point&) { return true; };
    const auto rest = [](const Point& p) { return !p.fitted_half; };
    out.scores = {{"points", static_cast<double>(s.count), ""},
                  {"error_over_points", s.mape, "%"},
                  {"error_mean_of_sources", mean_of_sources(points, everything), "%"},
                  {"error_held_back", mean_of_sources(points, rest), "%"},
                  {"median_bias", std::abs(s.median_bias), "%"},
                  {"coverage_held_back",
                   held_back > 0 ? 100.0 * static_cast<double>(covered) / static_cast<double>(held_back) : 0, "%"},
                  {"open_inside", static_cast<double>(inside), ""},
                  {"kendall_tau", ranking.tau, ""},
                  {"regret", ranking.regret, "%"}};
    return out;
}

}  // namespace orrery
