#include "tools/report/report.hpp"

#include "sim/config/units.hpp"
#include "tools/report/resources.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace orrery {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kTimelineRows = 16;
constexpr int kBins = 120;  // of the utilisation over time

const ChartStyle kPage = {"currentColor", "var(--line)", "none", false};

void replace(std::string& text, const std::string& mark, std::string_view by) {
    const auto at = text.find(mark);
    ORRERY_ASSERT(at != std::string::npos);
    text.replace(at, mark.size(), by);
}

std::string page(const std::string& title, const std::string& subtitle, const std::string& verdict, Json blocks) {
    const Json data = {{"title", title}, {"subtitle", subtitle}, {"verdict", verdict}, {"blocks", std::move(blocks)}};
    // A text may hold anything, also the end of a script.
    std::string json;
    for (const char c : data.dump(-1, ' ', true, Json::error_handler_t::replace)) {
        json += c == '<' ? std::string("\\u003c") : std::string(1, c);
    }
    std::string escaped;
    for (const char c : title) {
        escaped += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
    }
    std::string out(report_page());
    replace(out, "{{TITLE}}", escaped);
    replace(out, "{{STYLE}}", report_style());
    replace(out, "{{CHART}}", chart_script());
    replace(out, "{{SCRIPT}}", report_script());
    replace(out, "{{DATA}}", json);
    return out;
}

double rounded(double value) {
    return std::stod(fmt::format("{:.12g}", value));
}

std::string seconds_text(double seconds) {
    return pretty_quantity(seconds, Dimension::time);
}

// 101140 as "101,140".
std::string grouped(double value) {
    std::string digits = fmt::format("{:.0f}", value);
    for (std::size_t at = digits.size(); at > 3 && digits[at - 4] != '-';) {
        at -= 3;
        digits.insert(at, ",");
    }
    return digits;
}

std::string value_text(double value, const std::string& unit) {
    if (unit == "s") {
        return seconds_text(value);
    }
    if (unit == "B") {
        return pretty_quantity(value, Dimension::bytes);
    }
    if (unit == "1" && value >= 0 && value <= 1) {
        return fmt::format("{:.4g} %", 100 * value);
    }
    const std::string number = std::abs(value) >= 1e5 ? grouped(value) : fmt::format("{:.5g}", value);
    return fmt::format("{}{}", number, unit == "1" ? "" : unit == "1/s" ? " /s" : " " + unit);
}

Json tile(const std::string& name, double value, const std::string& text) {
    return {{"name", name}, {"value", rounded(value)}, {"text", text}};
}

Json metric_tiles(const Summary& summary) {
    Json items = Json::array();
    for (const Metric& metric : summary.metrics) {
        Json item = tile(metric.name, metric.value, value_text(metric.value, metric.unit));
        if (metric.low && metric.high) {
            item["low"] = value_text(*metric.low, metric.unit);
            item["high"] = value_text(*metric.high, metric.unit);
        }
        items.push_back(std::move(item));
    }
    return {{"kind", "tiles"}, {"items", items}};
}

Json breakdown_bars(const Summary& summary) {
    double total = 0;
    for (const auto& [name, seconds] : summary.breakdown) {
        total += seconds;
    }
    Json items = Json::array();
    for (const auto& [name, seconds] : summary.breakdown) {
        items.push_back({{"name", name},
                         {"value", rounded(seconds)},
                         {"text", fmt::format("{} ({:.1f} %)", seconds_text(seconds), 100 * seconds / total)},
                         {"colour", colour_of(name)}});
    }
    return {{"kind", "bars"},
            {"title", "Where the time goes"},
            {"note", "Mean over ranks; the parts add up to the iteration."},
            {"items", items}};
}

Json lever_bars(const Explanation& why) {
    Json items = Json::array();
    for (const Elasticity& lever : why.levers) {
        items.push_back({{"name", lever.lever},
                         {"value", rounded(lever.gain_s)},
                         {"text", fmt::format("{:.2f} % faster", 100 * lever.gain_s / why.seconds)},
                         {"colour", "#009e73"}});
    }
    return {{"kind", "bars"},
            {"title", "What would help"},
            {"note", "Simulated again with 10 % more of each; of latency and overhead 10 % less."},
            {"items", items}};
}

Json path_bars(const Explanation& why) {
    Json items = Json::array();
    for (const BlameRow& row : why.critical_path) {
        if (row.seconds > 0.0005 * why.seconds) {
            items.push_back(
                {{"name", row.operation + " (" + row.resource + ")"},
                 {"value", rounded(row.seconds)},
                 {"text", fmt::format("{} ({:.1f} %)", seconds_text(row.seconds), 100 * row.seconds / why.seconds)},
                 {"colour", colour_of(row.operation)}});
        }
    }
    return {{"kind", "bars"},
            {"title", "Critical path"},
            {"note", "What the end of the iteration waited for, by operation and what binds it."},
            {"items", items}};
}

Json phase_table(const Explanation& why) {
    Json rows = Json::array();
    for (const PhaseBound& phase : why.phases) {
        rows.push_back({phase.phase, rounded(phase.seconds), phase.bound,
                        phase.share > 0 ? Json(std::round(1000 * phase.share) / 10) : Json()});
    }
    return {{"kind", "table"},
            {"title", "What bounds each part"},
            {"columns", {"part", "seconds", "bound by", "of it that scales, %"}},
            {"rows", rows}};
}

// Share of the drawn ranks that compute, communicate on the compute stream's behalf, or wait, over time.
Json utilisation(const Timeline& timeline) {
    double end = 0;
    for (const Span& span : timeline.spans) {
        end = std::max(end, span.start_us + span.duration_us);
    }
    std::map<std::string, std::vector<double>> busy;
    for (const char* name : {"computing", "transfers only"}) {
        busy[name].assign(kBins, 0);
    }
    std::vector<double> transfers(kBins, 0);
    const double bin = end / kBins;
    const double ranks = static_cast<double>(timeline.processes.size());
    const auto add = [&](std::vector<double>& bins, const Span& span) {
        const auto first = static_cast<int>(span.start_us / bin);
        for (int i = first; i < kBins && i * bin < span.start_us + span.duration_us; ++i) {
            const double from = std::max(span.start_us, i * bin);
            const double to = std::min(span.start_us + span.duration_us, (i + 1) * bin);
            bins[static_cast<std::size_t>(i)] += std::max(0.0, to - from) / bin / ranks;
        }
    };
    for (const Span& span : timeline.spans) {
        add(span.thread == 0 ? busy["computing"] : transfers, span);
    }
    Json series = Json::array();
    const auto points = [&](const std::vector<double>& bins) {
        Json out = Json::array();
        for (int i = 0; i < kBins; ++i) {
            out.push_back({rounded((i + 0.5) * bin * 1e-6),
                           std::round(std::min(1.0, bins[static_cast<std::size_t>(i)]) * 1e6) / 1e6});
        }
        return out;
    };
    series.push_back({{"name", "compute stream busy"}, {"points", points(busy["computing"])}, {"colour", "#0072b2"}});
    series.push_back({{"name", "transfers under way"}, {"points", points(transfers)}, {"colour", "#d55e00"}});
    return {{"kind", "lines"},
            {"title", "Utilisation"},
            {"note", "Share of the drawn ranks, over the time of the iteration."},
            {"x", "seconds"},
            {"y", "share of ranks"},
            {"max", 1},
            {"end", rounded(end * 1e-6)},
            {"series", series}};
}

Json resolved_table(Scenario scenario) {
    Json rows = Json::array();
    for (const Explained& value : explain_fields([&](Fields& fields) { describe(fields, scenario); })) {
        const auto origin = scenario.origins.find(value.path);
        const std::string place = origin != scenario.origins.end() ? origin->second : "default";
        rows.push_back({value.path, value.value, value.how.empty() ? place : value.how + ": " + value.source});
    }
    return {{"kind", "details"},
            {"title", "The scenario as resolved, with the source of each value"},
            {"blocks", Json::array({{{"kind", "table"}, {"columns", {"value", "is", "source"}}, {"rows", rows}}})}};
}

Json cell_json(const Cell& cell) {
    if (const double* number = std::get_if<double>(&cell)) {
        return rounded(*number);
    }
    return std::holds_alternative<std::string>(cell) ? Json(std::get<std::string>(cell)) : Json();
}

}  // namespace

std::vector<FabricLayer> fabric_layers(const Scenario& scenario, const std::map<std::string, double>& link_use) {
    const Fabric fabric(shape_of(scenario.cluster, scenario.cluster_mark));
    const FabricShape& shape = fabric.shape();
    const auto use = [&](std::initializer_list<const char*> kinds) -> std::optional<double> {
        std::optional<double> most;
        for (const char* kind : kinds) {
            if (const auto found = link_use.find(kind); found != link_use.end()) {
                most = std::max(most.value_or(0), found->second);
            }
        }
        return most;
    };
    std::vector<FabricLayer> layers;
    if (shape.gpus_per_node > 1) {
        layers.push_back({"GPUs", static_cast<double>(fabric.gpus()), "inside the node", shape.intra_bandwidth,
                          use({"GPU to node switch", "node switch to GPU", "mesh link"})});
    }
    if (shape.nodes > 1 && shape.nics_per_node > 0) {
        layers.push_back({shape.gpus_per_node > 1 ? "nodes" : "hosts", static_cast<double>(shape.nodes),
                          fmt::format("{} NIC{} each", shape.nics_per_node, shape.nics_per_node > 1 ? "s" : ""),
                          shape.nic_bandwidth, use({"NIC out", "NIC in"})});
        const double up = shape.nic_bandwidth * shape.nodes_per_leaf * shape.nics_per_node / shape.rails /
                          shape.leaf_oversubscription;
        const bool fat_tree = shape.kind == FabricKind::fat_tree;
        layers.push_back({"leaf switches", static_cast<double>(fabric.leaves()), "uplinks of a leaf", up,
                          use({"uplinks of leaf", "downlinks of leaf", "leaf to spine", "spine to leaf"})});
        if (fabric.spines() > 0) {
            layers.push_back({"spine switches", static_cast<double>(fabric.spines()), "to the cores",
                              up / shape.spine_oversubscription,
                              fat_tree ? use({"uplinks of pod", "downlinks of pod", "spine to core", "core to spine"})
                                       : std::nullopt});
        }
        if (fat_tree && fabric.cores() > 0) {
            layers.push_back({"core switches", static_cast<double>(fabric.cores()), "", 0, std::nullopt});
        }
    }
    return layers;
}

std::string run_report(const Scenario& scenario, const RunOutput& out, const Explanation& why) {
    Json blocks = Json::array();
    blocks.push_back(metric_tiles(out.summary));
    if (!out.summary.breakdown.empty()) {
        blocks.push_back(breakdown_bars(out.summary));
    }
    blocks.push_back(lever_bars(why));
    if (!why.critical_path.empty()) {
        blocks.push_back(path_bars(why));
        blocks.push_back(phase_table(why));
    }
    if (!out.timeline.spans.empty()) {
        blocks.push_back(
            {{"kind", "svg"},
             {"title", scenario.kind == ScenarioKind::training ? "Schedule" : "Timeline"},
             {"note", "One row a rank, compute above, transfers as a thin line below; at most 16 ranks are drawn."},
             {"svg", timeline_svg("timeline", out.timeline, kTimelineRows, kPage)}});
        if (scenario.kind == ScenarioKind::training) {
            blocks.push_back(utilisation(out.timeline));
        }
    }
    blocks.push_back({{"kind", "svg"},
                      {"title", "Fabric"},
                      {"note",
                       "With the use of the busiest link of each kind over the whole run, by transfers between passes, "
                       "where it was simulated."},
                      {"svg", fabric_svg(fabric_layers(scenario, why.link_use), kPage)}});
    if (!out.summary.notes.empty()) {
        blocks.push_back({{"kind", "text"}, {"title", "Notes"}, {"lines", out.summary.notes}});
    }
    blocks.push_back(resolved_table(scenario));
    return page(
        scenario.name,
        fmt::format("{} scenario, resolved as {}, seed {}", out.summary.kind, out.summary.hash, out.summary.seed),
        why.verdict, blocks);
}

std::string sweep_report(const std::string& name, const ResultTable& table, const std::vector<std::string>& keys,
                         const std::vector<std::string>& metrics) {
    const std::size_t status = table.column("status");
    double done = 0;
    double infeasible = 0;
    Json rows = Json::array();
    for (const auto& row : table.rows) {
        done += row[status] == Cell(std::string("done")) ? 1 : 0;
        infeasible += row[status] == Cell(std::string("infeasible")) ? 1 : 0;
        Json cells = Json::array();
        for (const Cell& cell : row) {
            cells.push_back(cell_json(cell));
        }
        rows.push_back(std::move(cells));
    }
    const auto points = static_cast<double>(table.rows.size());
    Json tiles = Json::array();
    std::string verdict;
    if (!metrics.empty() && done > 0) {
        // Times and memory are better when lower, rates and fractions of peak when higher.
        const std::string& metric = metrics[0];
        const bool lower = metric.find("_s") != std::string::npos && metric.find("per_s") == std::string::npos;
        const std::size_t column = table.column(metric);
        const std::vector<Cell>* best = nullptr;
        for (const auto& row : table.rows) {
            if (std::holds_alternative<double>(row[column]) &&
                (best == nullptr || (std::get<double>(row[column]) < std::get<double>((*best)[column])) == lower)) {
                best = &row;
            }
        }
        if (best != nullptr) {
            tiles.push_back(tile("best " + metric, std::get<double>((*best)[column]),
                                 fmt::format("{:.5g}", std::get<double>((*best)[column]))));
            std::string setting;
            for (const std::string& key : keys) {
                setting +=
                    fmt::format("{}{} {}", setting.empty() ? "" : ", ", key, cell_text((*best)[table.column(key)]));
            }
            verdict = fmt::format("Best {}: {:.5g} at point {}: {}.", metric, std::get<double>((*best)[column]),
                                  cell_text((*best)[0]), setting);
        }
    }
    tiles.push_back(tile("points", points, fmt::format("{:.0f}", points)));
    tiles.push_back(tile("done", done, fmt::format("{:.0f}", done)));
    tiles.push_back(tile("infeasible", infeasible, fmt::format("{:.0f}", infeasible)));
    tiles.push_back(
        tile("failed or invalid", points - done - infeasible, fmt::format("{:.0f}", points - done - infeasible)));
    Json blocks = Json::array();
    blocks.push_back({{"kind", "tiles"}, {"items", tiles}});
    blocks.push_back({{"kind", "explore"},
                      {"title", "Curves and heat map"},
                      {"columns", table.columns},
                      {"rows", rows},
                      {"keys", keys},
                      {"metrics", metrics}});
    blocks.push_back({{"kind", "table"}, {"title", "Points"}, {"columns", table.columns}, {"rows", std::move(rows)}});
    return page(name, "sweep", verdict, blocks);
}

std::string check_report(const std::vector<BaselineOutcome>& outcomes) {
    const auto passed =
        static_cast<double>(std::count_if(outcomes.begin(), outcomes.end(), [](const auto& o) { return o.passed(); }));
    const double all = static_cast<double>(outcomes.size());
    Json rows = Json::array();
    Json moves = Json::array();
    Json causes = Json::array();
    std::string worst;
    for (const BaselineOutcome& outcome : outcomes) {
        const std::string name = std::filesystem::path(outcome.baseline.path).stem().string();
        if (!outcome.error.empty()) {
            rows.push_back({name, "run", nullptr, nullptr, nullptr, nullptr, "FAILED: " + outcome.error});
        }
        for (const MetricOutcome& m : outcome.metrics) {
            rows.push_back({name, m.expected.name, rounded(m.expected.value), rounded(m.now), rounded(100 * m.change),
                            rounded(100 * m.expected.tolerance), verdict_name(m.verdict)});
            if (m.change != 0) {
                moves.push_back({{"name", name + ": " + m.expected.name},
                                 {"value", rounded(100 * m.change)},
                                 {"text", fmt::format("{:+.3g} % ({})", 100 * m.change, verdict_name(m.verdict))},
                                 {"colour", m.verdict == Verdict::regressed ? "#d55e00" : "#009e73"}});
            }
        }
        for (const Cause& cause : outcome.causes) {
            causes.push_back(name + ": " + cause_text(cause));
            if (worst.empty() && !outcome.passed()) {
                worst = cause_text(cause);
            }
        }
    }
    Json blocks = Json::array();
    blocks.push_back({{"kind", "tiles"},
                      {"items",
                       {tile("baselines that hold", passed, fmt::format("{:.0f} of {:.0f}", passed, all)),
                        tile("metrics that moved", static_cast<double>(moves.size()), std::to_string(moves.size()))}}});
    if (!moves.empty()) {
        blocks.push_back({{"kind", "bars"}, {"title", "What moved"}, {"items", moves}});
    }
    if (!causes.empty()) {
        blocks.push_back({{"kind", "text"}, {"title", "Inputs that changed"}, {"lines", causes}});
    }
    blocks.push_back({{"kind", "table"},
                      {"title", "Metrics"},
                      {"columns", {"baseline", "metric", "expected", "now", "change, %", "tolerance, %", "verdict"}},
                      {"rows", rows}});
    const std::string verdict =
        passed == all ? "Every baseline holds."
                      : fmt::format("{:.0f} of {:.0f} baselines regressed{}.", all - passed, all,
                                    worst.empty() ? fmt::format("; {}", kNoInputChanged) : "; first cause: " + worst);
    return page("Baselines", "orrery check", verdict, blocks);
}

std::string validation_report(const std::vector<ScatterPoint>& points) {
    std::map<std::string, std::vector<const ScatterPoint*>> groups;
    for (const ScatterPoint& point : points) {
        groups[point.group].push_back(&point);
    }
    const auto error_of = [](const ScatterPoint& p) { return p.predicted / p.measured - 1; };
    Json scatter = Json::array();
    Json by_group = Json::array();
    Json rows = Json::array();
    double sum_of_mapes = 0;
    double inside = 0;
    for (const auto& [name, members] : groups) {
        Json drawn = Json::array();
        double sum = 0;
        double worst = 0;
        for (const ScatterPoint* p : members) {
            drawn.push_back({rounded(p->measured), rounded(p->predicted), p->label});
            sum += std::abs(error_of(*p));
            worst = std::max(worst, std::abs(error_of(*p)));
            inside += std::abs(error_of(*p)) <= 0.1 ? 1 : 0;
            rows.push_back({p->label, name, rounded(p->measured), rounded(p->predicted), rounded(100 * error_of(*p))});
        }
        const double mape = sum / static_cast<double>(members.size());
        sum_of_mapes += mape;
        scatter.push_back({{"name", name}, {"points", drawn}});
        by_group.push_back({name, members.size(), rounded(100 * mape), rounded(100 * worst)});
    }
    const double mean = groups.empty() ? 0 : sum_of_mapes / static_cast<double>(groups.size());
    const double share = points.empty() ? 0 : inside / static_cast<double>(points.size());
    Json blocks = Json::array();
    blocks.push_back({{"kind", "tiles"},
                      {"items",
                       {tile("mean of the sources' MAPEs", 100 * mean, fmt::format("{:.2f} %", 100 * mean)),
                        tile("points", static_cast<double>(points.size()), std::to_string(points.size())),
                        tile("within 10 %", 100 * share, fmt::format("{:.1f} %", 100 * share))}}});
    blocks.push_back({{"kind", "scatter"},
                      {"title", "Predicted against measured"},
                      {"note", "Dashed: 10 % to each side. Logarithmic axes, seconds."},
                      {"x", "measured, s"},
                      {"y", "predicted, s"},
                      {"log", true},
                      {"band", true},
                      {"groups", scatter}});
    blocks.push_back({{"kind", "table"},
                      {"title", "By source"},
                      {"columns", {"source", "points", "MAPE, %", "worst, %"}},
                      {"rows", by_group}});
    blocks.push_back({{"kind", "table"},
                      {"title", "Points"},
                      {"columns", {"point", "source", "measured, s", "predicted, s", "error, %"}},
                      {"rows", rows}});
    return page(
        "Validation: training", "measured training iterations against predictions",
        fmt::format(
            "{} measured runs; the sources' mean absolute error is {:.2f} %, {:.0f} % of the runs are within 10 %.",
            points.size(), 100 * mean, 100 * share),
        blocks);
}

}  // namespace orrery
