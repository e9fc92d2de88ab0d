#include "sim/record/facts_table.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "validation/serving/serving_points.hpp"
#include "validation/validate.hpp"
#include "workloads/serving/spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

namespace orrery::validation {

namespace {

using Key = std::function<std::string(const ServingPoint&)>;
using Filter = std::function<bool(const ServingPoint&)>;

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.empty() ? 0 : values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

struct Errors {
    std::vector<double> ttft, tpot, e2e;  ///< relative, signed
    void add(const ServingPoint& point) {
        tpot.push_back(point.predicted_tpot / point.tpot - 1);
        if (point.ttft > 0) {
            ttft.push_back(point.predicted_ttft / point.ttft - 1);
            e2e.push_back(point.predicted_e2e / point.e2e - 1);
        }
    }
};

// Median of the absolute error with the median of the signed one.
std::string cell(const std::vector<double>& errors) {
    if (errors.empty()) {
        return "-";
    }
    std::vector<double> absolute = errors;
    for (double& value : absolute) {
        value = std::abs(value);
    }
    return fmt::format("{:.1f} % ({:+.1f})", 100 * median(absolute), 100 * median(errors));
}

std::vector<std::string> row_of(const std::string& name, const Errors& errors) {
    return {name, std::to_string(errors.tpot.size()), cell(errors.tpot), cell(errors.ttft), cell(errors.e2e)};
}

const std::vector<std::string> kColumns = {"group", "points", "TPOT: median error (bias)", "TTFT", "end to end"};

void print_groups(const Terminal& terminal, const std::string& title, const std::vector<ServingPoint>& points,
                  const Key& key, const Filter& wanted) {
    std::map<std::string, Errors> groups;
    for (const ServingPoint& point : points) {
        if (point.problem.empty() && wanted(point)) {
            groups[key(point)].add(point);
        }
    }
    std::vector<std::vector<std::string>> rows;
    for (const auto& [name, errors] : groups) {
        rows.push_back(row_of(name, errors));
    }
    terminal.heading(title);
    terminal.table(kColumns, rows);
}

void print_points(const Terminal& terminal, const std::vector<ServingPoint>& points) {
    const auto pair = [](double measured, double predicted) {
        return measured <= 0 ? std::string("-")
                             : fmt::format("{:.4g} > {:.4g} ({:+.1f} %)", 1e3 * measured, 1e3 * predicted,
                                           100 * (predicted / measured - 1));
    };
    std::vector<std::vector<std::string>> rows;
    for (const ServingPoint& point : points) {
        const RequestsSpec& requests = point.scenario.as<ServingKind>().requests;
        rows.push_back(
            {point.id, std::to_string(point.scenario.as<ServingKind>().engine.mixed.ranks()),
             point.scenario.as<ServingKind>().requests.trace.empty()
                 ? fmt::format("{} x {:.0f}/{:.0f}", requests.clients, requests.prompt.mean, requests.output.mean)
                 : "trace",
             point.fitted_half ? "fitted half" : "held back"});
        if (point.problem.empty()) {
            rows.back().push_back(pair(point.tpot, point.predicted_tpot));
            rows.back().push_back(pair(point.ttft, point.predicted_ttft));
            rows.back().push_back(pair(point.e2e, point.predicted_e2e));
        } else {
            rows.back().insert(rows.back().end(), {point.problem, "", ""});
        }
    }
    terminal.heading("points: measured > predicted, in ms");
    terminal.table({"point", "GPUs", "load", "", "TPOT", "TTFT", "end to end"}, rows);
}

std::string setup_of(const ServingPoint& point) {
    return point.id.substr(0, point.id.find(':'));
}

// One latency of a point: measured, predicted, and the half-width of its interval.
struct Latency {
    const char* name;
    double ServingPoint::*measured;
    double ServingPoint::*predicted;
    double ServingPoint::*width;

    [[nodiscard]] bool known(const ServingPoint& point) const { return point.*measured > 0 && point.*predicted > 0; }
    [[nodiscard]] double error(const ServingPoint& point) const {
        return std::abs(std::log(point.*measured / point.*predicted));
    }
    [[nodiscard]] bool inside(const ServingPoint& point) const { return error(point) <= point.*width; }
};
constexpr std::array<Latency, 3> kLatencies = {
    Latency{"TPOT", &ServingPoint::tpot, &ServingPoint::predicted_tpot, &ServingPoint::tpot_width},
    Latency{"TTFT", &ServingPoint::ttft, &ServingPoint::predicted_ttft, &ServingPoint::ttft_width},
    Latency{"end to end", &ServingPoint::e2e, &ServingPoint::predicted_e2e, &ServingPoint::e2e_width}};

// Points of the half held back, and those of them inside their interval.
struct Coverage {
    std::size_t all = 0;
    std::size_t inside = 0;
    [[nodiscard]] double share() const {
        return all > 0 ? 100 * static_cast<double>(inside) / static_cast<double>(all) : 0;
    }
    [[nodiscard]] std::string text() const { return all > 0 ? fmt::format("{} of {}", inside, all) : "-"; }
};

Coverage coverage_of(const std::vector<ServingPoint>& points, const Latency& latency, const Filter& wanted) {
    Coverage out;
    for (const ServingPoint& point : points) {
        if (point.problem.empty() && !point.fitted_half && latency.known(point) && wanted(point)) {
            ++out.all;
            out.inside += latency.inside(point) ? 1 : 0;
        }
    }
    return out;
}

// The error that covers the next run in nine of ten cases, see serving_intervals.hpp; nothing of too few.
std::optional<double> width_left(const std::vector<ServingPoint>& points, const Latency& latency,
                                 const Filter& wanted) {
    constexpr std::size_t kFewest = 10;
    std::vector<double> errors;
    for (const ServingPoint& point : points) {
        if (point.problem.empty() && point.fitted_half && latency.known(point) && wanted(point)) {
            errors.push_back(latency.error(point));
        }
    }
    if (errors.size() < kFewest) {
        return std::nullopt;
    }
    std::sort(errors.begin(), errors.end());
    const auto rank = static_cast<std::size_t>(std::ceil(0.9 * static_cast<double>(errors.size() + 1)));
    return errors[std::min(rank, errors.size()) - 1];
}

void print_intervals(const Terminal& terminal, const std::vector<ServingPoint>& points) {
    std::map<std::string, Filter> groups;
    for (const ServingPoint& point : points) {
        const bool dense = point.dense;
        const auto same = [dense](const ServingPoint& p) { return p.dense == dense; };
        groups[std::string("all engines, ") + (dense ? "dense" : "experts")] = same;
        groups[point.engine + (dense ? ", dense" : ", experts")] =
            [same, engine = point.engine](const ServingPoint& p) { return same(p) && p.engine == engine; };
    }
    std::vector<std::vector<std::string>> rows;
    for (const auto& [name, wanted] : groups) {
        std::vector<std::string> row = {name};
        for (const Latency& latency : kLatencies) {
            const std::optional<double> left = width_left(points, latency, wanted);
            row.push_back(left ? fmt::format("{:.3f}", *left) : "-");
        }
        for (const Latency& latency : kLatencies) {
            row.push_back(coverage_of(points, latency, wanted).text());
        }
        rows.push_back(std::move(row));
    }
    const std::vector<std::string> inside = {"TPOT inside", "TTFT inside", "end to end inside"};
    terminal.heading(
        "90 % intervals: half-widths of log(time) that the declared half leaves; the half held back inside those in "
        "use");
    terminal.table({"engine and kind of model", "TPOT", "TTFT", "end to end", inside[0], inside[1], inside[2]}, rows);
    std::map<std::string, Filter> devices;
    for (const ServingPoint& point : points) {
        devices[point.device] = [device = point.device](const ServingPoint& p) { return p.device == device; };
    }
    rows.clear();
    for (const auto& [name, wanted] : devices) {
        rows.push_back({name});
        for (const Latency& latency : kLatencies) {
            rows.back().push_back(coverage_of(points, latency, wanted).text());
        }
    }
    terminal.table({"device", inside[0], inside[1], inside[2]}, rows);
}

void predict_each(std::vector<ServingPoint>& points, const DataDirectory& data, const Terminal& terminal) {
    std::vector<ServingPoint*> every;
    for (ServingPoint& point : points) {
        every.push_back(&point);
    }
    Progress progress(terminal, "predicting measured serving runs");
    predict_all(every, data, [&](double fraction) { progress.update(fraction); });
    progress.finish();
}

// Throughput of whole systems with all requests there from the start, by engine, device, model and format.
void validate_offline(const DataDirectory& data, const Terminal& terminal, bool each) {
    std::vector<ServingPoint> points = load_offline_points(data);
    predict_each(points, data, terminal);
    std::map<std::string, std::vector<double>> groups;
    std::vector<std::vector<std::string>> rows;
    for (const ServingPoint& point : points) {
        const RequestsSpec& requests = point.scenario.as<ServingKind>().requests;
        const std::string load =
            fmt::format("{} of {:.0f}/{:.0f}", requests.count, requests.prompt.mean, requests.output.mean);
        const std::string gpus = std::to_string(point.scenario.as<ServingKind>().engine.mixed.ranks());
        if (!point.problem.empty()) {
            rows.push_back({point.id, gpus, load, point.problem});
            continue;
        }
        const double error = point.predicted_tokens_per_s / point.tokens_per_s - 1;
        for (const std::string& group :
             {std::string(point.dense ? "all dense models" : "all mixtures of experts"), setup_of(point)}) {
            groups[group].push_back(error);
        }
        rows.push_back({point.id, gpus, load,
                        fmt::format("{:.0f} > {:.0f} ({:+.1f} %)", point.tokens_per_s, point.predicted_tokens_per_s,
                                    100 * error)});
    }
    if (each) {
        terminal.heading("offline points: measured > predicted, in output tokens/s");
        terminal.table({"point", "GPUs", "load", "throughput"}, rows);
    }
    rows.clear();
    for (const auto& [name, errors] : groups) {
        rows.push_back({name, std::to_string(errors.size()), cell(errors)});
    }
    terminal.heading("offline throughput (nothing is fitted on it)");
    terminal.table({"group", "points", "median error (bias)"}, rows);
}

// What the 90 % intervals of runs that nothing is fitted on would have to be, from every other point of each setup, and how many of
// the others lie inside those in use.
void print_halves(const Terminal& terminal, const std::string& title, std::vector<ServingPoint> points) {
    std::map<std::string, int> counts;
    for (ServingPoint& point : points) {
        point.fitted_half = counts[setup_of(point)]++ % 2 == 0;
    }
    std::vector<std::vector<std::string>> rows;
    for (const Latency& latency : kLatencies) {
        const std::optional<double> left = width_left(points, latency, [](const ServingPoint&) { return true; });
        const Coverage inside = coverage_of(points, latency, [](const ServingPoint&) { return true; });
        rows.push_back({latency.name, left ? fmt::format("{:.3f}", *left) : "-", inside.text()});
    }
    terminal.heading(
        fmt::format("{}: half-width of log(time) that every other point leaves; the rest inside those in use", title));
    terminal.table({"latency", "left", "inside the 90 % interval"}, rows);
}

// Points whose degrees their source misstates, or whose attention was not measured on their device: no part of the scores.
void validate_apart(const DataDirectory& data, const Terminal& terminal, bool each) {
    std::vector<ServingPoint> points = load_points_apart(data);
    predict_each(points, data, terminal);
    if (each) {
        print_points(terminal, points);
    }
    const Filter any = [](const ServingPoint&) { return true; };
    print_groups(
        terminal,
        "scored apart, since engines were fitted without them: degrees that the source multiplied, latent, linear and "
        "sparse attention, B300",
        points, [](const ServingPoint& p) { return p.id.substr(0, p.id.find(':')); }, any);
}

void print_excluded(const Terminal& terminal, const DataDirectory& data, const std::vector<ServingPoint>& points) {
    std::map<std::string, double> reasons;
    double dense_out = 0;
    for (const FactsRow& row : read_facts_table(data.path("validation/serving/excluded.csv"))) {
        reasons[row.text("reason")] += row.number("points");
        dense_out += row.number("dense") * row.number("points");
    }
    std::vector<std::vector<std::string>> rows;
    for (const auto& [reason, count] : reasons) {
        rows.push_back({reason, fmt::format("{:.0f}", count)});
    }
    for (const ServingPoint& point : points) {
        if (!point.problem.empty()) {
            rows.push_back({point.id + ": " + point.problem, "1"});
        }
    }
    terminal.heading("left out");
    terminal.table({"reason", "points"}, rows);
    const auto dense_in =
        std::count_if(points.begin(), points.end(), [](const ServingPoint& p) { return p.dense && p.problem.empty(); });
    fmt::print("{} points in; of dense models {} of {:.0f}\n", points.size(), dense_in,
               static_cast<double>(dense_in) + dense_out);
}

Comparison comparison_of(const std::vector<ServingPoint>& points) {
    Comparison out{
        "serving", "latencies of served requests", "", "", {"latency", "engine", "device", "model", "kind", "half"}, {},
        {}};
    for (const ServingPoint& point : points) {
        if (!point.problem.empty()) {
            continue;
        }
        for (const auto& [name, measured, predicted] : {std::tuple{"TTFT", point.ttft, point.predicted_ttft},
                                                        {"time per output token", point.tpot, point.predicted_tpot},
                                                        {"end to end", point.e2e, point.predicted_e2e}}) {
            if (measured <= 0) {
                continue;  // the source does not say
            }
            out.points.push_back(
                {measured,
                 predicted,
                 name,
                 fmt::format("{}, {} GPUs: {:+.1f} %", point.id, point.scenario.as<ServingKind>().engine.mixed.ranks(),
                             100 * (predicted / measured - 1)),
                 {point.engine, point.device, point.model, point.dense ? "dense" : "experts",
                  point.fitted_half ? "fitted" : "held back"}});
        }
    }
    return out;
}

std::vector<Score> scores_of(const std::vector<ServingPoint>& points) {
    Errors every;
    Errors held_back;
    double count = 0;
    for (const ServingPoint& point : points) {
        if (point.problem.empty()) {
            ++count;
            every.add(point);
            if (!point.fitted_half) {
                held_back.add(point);
            }
        }
    }
    const auto error = [](const std::vector<double>& errors) {
        std::vector<double> sizes;
        for (const double one : errors) {
            sizes.push_back(std::abs(one));
        }
        return 100 * median(sizes);
    };
    const auto share = [&](const Latency& latency) {
        return coverage_of(points, latency, [](const ServingPoint&) { return true; }).share();
    };
    return {{"points", count, ""},
            {"tpot", error(every.tpot), "%"},
            {"ttft", error(every.ttft), "%"},
            {"end_to_end", error(every.e2e), "%"},
            {"tpot_held_back", error(held_back.tpot), "%"},
            {"ttft_held_back", error(held_back.ttft), "%"},
            {"end_to_end_held_back", error(held_back.e2e), "%"},
            {"tpot_coverage_held_back", share(kLatencies[0]), "%"},
            {"ttft_coverage_held_back", share(kLatencies[1]), "%"},
            {"end_to_end_coverage_held_back", share(kLatencies[2]), "%"},
            {"tpot_bias", std::abs(100 * median(every.tpot)), "%"},
            {"ttft_bias", std::abs(100 * median(every.ttft)), "%"}};
}

std::vector<Score> named(const std::string& prefix, const std::vector<ServingPoint>& points) {
    std::vector<Score> out;
    for (const Score& score : scores_of(points)) {
        if (score.name == "points" || score.name == "tpot" || score.name == "ttft" || score.name == "end_to_end" ||
            score.name == "tpot_bias" || (prefix.empty() && score.name.ends_with("_coverage_held_back"))) {
            out.push_back({prefix + score.name, score.value, score.unit});
        }
    }
    return out;
}

}  // namespace

Comparison validate_serving(const DataDirectory& data, const Terminal& terminal, bool points, bool fit,
                            const std::string& only) {
    // Before the points are loaded, which takes a while.
    if (const std::vector<std::string> engines = data.names(kEnginePresets);
        !only.empty() && std::find(engines.begin(), engines.end(), only) == engines.end()) {
        const std::string near = nearest_name(only, engines);
        throw ConfigError(
            fmt::format("no engine is called '{}'{}; there are {}", only,
                        near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near), fmt::join(engines, ", ")),
            ErrorCode::unknown_name);
    }
    std::vector<ServingPoint> all = load_serving_points(data);
    if (!only.empty()) {
        std::erase_if(all, [&](const ServingPoint& point) { return point.engine != only; });
    }
    if (all.empty()) {
        throw ConfigError(fmt::format("no measured run is of engine '{}'", only));
    }
    if (fit) {
        fit_engines(all, data, terminal, only);
    }
    predict_each(all, data, terminal);
    if (points) {
        print_points(terminal, all);
    }
    const Filter any = [](const ServingPoint&) { return true; };
    const Filter dense = [](const ServingPoint& p) { return p.dense; };
    print_groups(
        terminal, "runs of single requests and traces, by run", all, [](const ServingPoint& p) { return p.id; },
        [](const ServingPoint& p) { return p.source == "llmservingsim"; });
    print_groups(
        terminal, "dense models, by engine", all, [](const ServingPoint& p) { return p.engine; }, dense);
    print_groups(
        terminal, "mixtures of experts, by engine", all, [](const ServingPoint& p) { return p.engine; },
        [](const ServingPoint& p) { return !p.dense; });
    print_groups(
        terminal, "by device", all, [](const ServingPoint& p) { return p.device; }, any);
    print_groups(
        terminal, "by model", all, [](const ServingPoint& p) { return p.model; }, any);
    const auto which = [](const ServingPoint& p) { return p.fitted_half ? "half for fitting" : "half held back"; };
    print_groups(
        terminal, "by half", all, [&](const ServingPoint& p) { return "all, " + std::string(which(p)); }, any);
    print_groups(
        terminal, "by half and kind of model", all,
        [&](const ServingPoint& p) { return (p.dense ? "dense, " : "experts, ") + std::string(which(p)); }, any);
    print_groups(
        terminal, "all points", all, [](const ServingPoint&) { return std::string("all"); }, any);
    print_groups(
        terminal, "by kind of model", all,
        [](const ServingPoint& p) { return std::string(p.dense ? "dense" : "experts"); }, any);
    print_intervals(terminal, all);
    std::vector<Score> wide;
    if (only.empty()) {
        validate_offline(data, terminal, points);
        validate_apart(data, terminal, points);
        wide = validate_wide_ep(data, terminal);
    }
    print_excluded(terminal, data, all);
    validate_layers(data, terminal);
    Comparison out = comparison_of(all);
    out.scores = scores_of(all);
    out.scores.insert(out.scores.end(), wide.begin(), wide.end());
    return out;
}

// Prompts and decoding on replicas of their own, most of them with experts over many GPUs: those that state their workers, then those
// whose workers the recipes give.
Comparison validate_disaggregated(const DataDirectory& data, const Terminal& terminal, bool each) {
    const Filter any = [](const ServingPoint&) { return true; };
    std::vector<ServingPoint> all;
    std::vector<Score> scores;
    const auto score = [&](std::vector<ServingPoint> points, const std::string& title, const std::string& prefix) {
        predict_each(points, data, terminal);
        if (each) {
            print_points(terminal, points);
        }
        print_groups(terminal, title + ", by setup (nothing is fitted on them but the time of a hand-over)", points,
                     setup_of, any);
        print_groups(
            terminal, title + ", by attention of the decode replicas", points,
            [](const ServingPoint& p) {
                const auto groups = static_cast<int>(p.scenario.as<ServingKind>().engine.decode.groups);
                return groups == 1 ? std::string("one group") : fmt::format("{:2} groups", groups);
            },
            any);
        print_groups(
            terminal, title + ", by drafts", points,
            [](const ServingPoint& p) {
                const auto drafts = p.scenario.as<ServingKind>().engine.speculation.tokens;
                return drafts == 0 ? std::string("no drafts") : fmt::format("drafts of {}", drafts);
            },
            any);
        print_groups(
            terminal, title + ", all", points, [](const ServingPoint&) { return std::string("all"); }, any);
        for (const ServingPoint& point : points) {
            if (!point.problem.empty()) {
                fmt::print("{}: {}\n", point.id, point.problem);
            }
        }
        const std::vector<Score> some = named(prefix, points);
        scores.insert(scores.end(), some.begin(), some.end());
        std::move(points.begin(), points.end(), std::back_inserter(all));
    };
    score(load_disaggregated_points(data), "disaggregated", "stated_");
    score(load_recipe_points(data), "disaggregated, replicas from recipes", "recipes_");
    const auto drafts = [](const ServingPoint& p) {
        return p.scenario.as<ServingKind>().engine.speculation.tokens > 0;
    };
    const auto first = std::stable_partition(all.begin(), all.end(), [&](const ServingPoint& p) { return !drafts(p); });
    print_halves(terminal, "disaggregated without drafts", {all.begin(), first});
    print_halves(terminal, "disaggregated with drafts", {first, all.end()});
    Comparison out = comparison_of(all);
    out.suite = "disaggregated";
    out.scores = scores;
    constexpr std::string_view kHalf = "_held_back";
    for (const Score& one : named("", {all.begin(), first})) {
        if (one.name.ends_with(kHalf)) {
            out.scores.push_back(
                {"without_drafts_" + one.name.substr(0, one.name.size() - kHalf.size()), one.value, "%"});
        }
    }
    return out;
}

}  // namespace orrery::validation
