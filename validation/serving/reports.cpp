// Speeds that people reported with their commands, against what the imported commands come to in a run.

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/yaml_tree.hpp"
#include "sim/record/facts_table.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/run.hpp"
#include "tools/driver/scenario_trial.hpp"
#include "validation/serving/in_threads.hpp"
#include "validation/statistics.hpp"
#include "validation/validate.hpp"
#include "workloads/imports/importer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace orrery::validation {

namespace {

constexpr std::int64_t kMostRequests = 3000;  ///< longer runs are cut, as their length changes little
constexpr std::int64_t kAlone = 40;  ///< requests at least where a client sends one at a time: a draw of lengths

/// What a table prints, in the order of `ServingReport::measured`.
struct ReportMeasure {
    const char* name;
    const char* column;
    double unit;    ///< of the column, in that of the run
    double within;  ///< what is aimed at
};
constexpr std::array<ReportMeasure, 3> kMeasures = {ReportMeasure{"TPOT", "tpot_ms", kMillisecond, 0.15},
                                                    ReportMeasure{"TTFT", "ttft_ms", kMillisecond, 0.25},
                                                    ReportMeasure{"output tokens/s", "tok_s", 1, 0.15}};

struct ServingReport {
    const FactsRow* row = nullptr;
    std::string problem;               ///< why it does not run
    std::vector<std::string> unknown;  ///< flags of its commands that the importer does not know
    std::array<double, kMeasures.size()> measured{}, predicted{};

    [[nodiscard]] std::string engine() const { return row->text("engine"); }
    [[nodiscard]] bool scored(std::size_t i) const { return problem.empty() && measured[i] > 0; }
    [[nodiscard]] double error(std::size_t i) const { return predicted[i] / measured[i] - 1; }
};

// The chance that makes steps of speculation come to so many tokens.
double acceptance_of(double accepted, std::uint32_t drafts) {
    double low = 0;
    double high = 1;
    for (int i = 0; i < 50; ++i) {
        const double middle = (low + high) / 2;
        double tokens = 1;
        double chance = 1;
        for (std::uint32_t k = 0; k < drafts; ++k) {
            chance *= middle;
            tokens += chance;
        }
        (tokens < accepted ? low : high) = middle;
    }
    return low;
}

// The scenario that the importer writes of the commands, with the lengths and the acceptance that the report prints.
Scenario reported_scenario(const FactsRow& row, ModelCache& models, std::vector<std::string>& unknown) {
    const bool sglang = row.text("engine") == "SGLang";
    const std::string package = sglang ? "sglang" : "vllm";
    const std::string text =
        (row.text("version").empty() ? "" : fmt::format("pip install {}=={}\n", package, row.text("version"))) +
        row.text("server") + "\n" + row.text("client") + "\n";
    const std::string name = fmt::format("{}:{}", row.text("group"), row.line);
    const Imported imported =
        import_file(package + "-args",
                    ImportInput::of_bytes(name, text, {{"node", row.text("node")}})
                        .with(models.data(), [&](const std::string& tried) { return trial_problem(tried, models); }));
    for (const auto& [note, count] : imported.notes.left_out()) {
        if (note.find("not understood") != std::string::npos) {
            unknown.push_back(note);
        }
    }
    YamlNode tree = parse_yaml(imported.text, name);
    const bool images = row.text("client").find("--dataset-name image") != std::string::npos;
    if (images) {
        apply_override(tree, fmt::format("requests.prompt={{kind: fixed, mean: {}}}", row.text("prompt")));
    } else if (!row.text("prompt").empty()) {
        apply_override(tree, "requests.prompt.mean=" + row.text("prompt"));
    }
    if (!row.text("output").empty()) {
        apply_override(tree, "requests.output.mean=" + row.text("output"));
    }
    const Scenario first = read_scenario(tree, name, models.data());
    const auto& serving = first.as<ServingKind>();
    const bool alone = serving.requests.arrivals == ArrivalKind::closed && serving.requests.clients == 1;
    apply_override(
        tree, fmt::format("requests.count={}", std::clamp(serving.requests.count, alone ? kAlone : 1, kMostRequests)));
    if (!row.text("accepted").empty()) {
        apply_override(tree, fmt::format("engine.speculation.acceptance={:.4f}",
                                         acceptance_of(row.number("accepted"), serving.engine.speculation.tokens)));
    }
    return read_scenario(tree, name, models.data());
}

// The first line of a refusal.
std::string refusal_of(const std::string& text) {
    constexpr std::size_t kMost = 150;
    return text.substr(0, std::min(text.find('\n'), kMost));
}

void predict_report(ServingReport& report, ModelCache& models) {
    const FactsRow& row = *report.row;
    for (std::size_t i = 0; i < kMeasures.size(); ++i) {
        const std::string& cell = row.text(kMeasures[i].column);
        report.measured[i] = cell.empty() ? 0 : kMeasures[i].unit * row.number(kMeasures[i].column);
    }
    try {
        const Scenario scenario = reported_scenario(row, models, report.unknown);
        const Summary summary = run_scenario(scenario, models, RunOptions()).summary;
        const auto latency = [&](const char* name, const std::string& of) {
            const Metric* metric = summary.find(std::string(name) + (of == "median" ? ".p50" : ".mean"));
            return metric == nullptr ? 0 : metric->value;
        };
        report.predicted = {latency("tpot_s", row.text("tpot_of")), latency("ttft_s", row.text("ttft_of")),
                            summary.find("output_tokens_per_s")->value};
        if (summary.find("requests_refused")->value > 0) {
            report.problem = "requests were refused";
        }
    } catch (const InfeasibleError& error) {
        const std::string text = error.what();
        const std::size_t place = text.find(": this does not run");
        report.problem = refusal_of(place == std::string::npos ? text : text.substr(place + 2));
    } catch (const ConfigError& error) {
        report.problem =
            refusal_of(error.diagnostics().empty() ? std::string(error.what()) : error.diagnostics()[0].text);
    }
}

/// Errors of a group of reports, by measure.
struct ReportErrors {
    std::array<std::vector<double>, kMeasures.size()> errors;  ///< signed

    void add(const ServingReport& report) {
        for (std::size_t i = 0; i < kMeasures.size(); ++i) {
            if (report.scored(i)) {
                errors[i].push_back(report.error(i));
            }
        }
    }
    [[nodiscard]] double median(std::size_t i) const {
        std::vector<double> sizes;
        for (const double error : errors[i]) {
            sizes.push_back(std::abs(error));
        }
        return statistics_of(std::move(sizes)).median_bias;
    }
    [[nodiscard]] double within(std::size_t i) const {
        const auto inside = std::count_if(errors[i].begin(), errors[i].end(),
                                          [&](double error) { return std::abs(error) <= kMeasures[i].within; });
        return errors[i].empty() ? 0 : 100.0 * static_cast<double>(inside) / static_cast<double>(errors[i].size());
    }
    [[nodiscard]] std::vector<std::string> cells(const std::string& name) const {
        std::vector<std::string> out = {name};
        for (std::size_t i = 0; i < kMeasures.size(); ++i) {
            out.push_back(errors[i].empty()
                              ? "-"
                              : fmt::format("{:.0f} % of {}, {:.1f} % ({:+.1f})", within(i), errors[i].size(),
                                            median(i), statistics_of(errors[i]).median_bias));
        }
        return out;
    }
};

std::string figure(const ServingReport& report, std::size_t i) {
    return report.scored(i) ? fmt::format("{:.4g} > {:.4g} ({:+.1f} %)", report.measured[i] / kMeasures[i].unit,
                                          report.predicted[i] / kMeasures[i].unit, 100 * report.error(i))
                            : "-";
}

// "--num-prompts 80 --max-concurrency 16" of a client's command as "80 requests, 16 clients".
std::string shown_load(const FactsRow& row) {
    std::string out;
    const std::vector<std::string_view> words = split(std::string_view(row.text("client")), ' ');
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
        for (const auto& [flag, before] : {std::pair{"--random-input-len", ""},
                                           {"--random-output-len", "/"},
                                           {"--num-prompts", " n"},
                                           {"--max-concurrency", " c"},
                                           {"--request-rate", " r"}}) {
            if (words[i] == flag) {
                out += before + std::string(words[i + 1]);
            }
        }
    }
    return out;
}

}  // namespace

Comparison validate_serving_reports(const DataDirectory& data, const Terminal& terminal, bool points) {
    Comparison out{"serving-reports",
                   "figures of published serving reports",
                   "Three constants are fitted on 48 of the rows.",
                   "",
                   {"figure", "engine", "kind"},
                   {},
                   {}};
    const std::vector<FactsRow> rows = read_facts_table(data.path("validation/serving/reports.csv"), ';');
    std::map<std::string, int> left_out;
    std::map<std::string, int> flags;  ///< that were left out of runs
    std::vector<ServingReport> reports;
    for (const FactsRow& row : rows) {
        if (row.text("use") == "score" || row.text("use") == "fitted") {
            reports.push_back({});
            reports.back().row = &row;
        } else {
            ++left_out[row.text("use")];
        }
    }
    in_threads(reports.size(), data, terminal, "running reported servers",
               [&](ModelCache& models, std::size_t i) { predict_report(reports[i], models); });
    ReportErrors all;
    ReportErrors fitted;
    ReportErrors others;
    std::map<std::string, ReportErrors> groups;
    std::vector<std::vector<std::string>> table;
    std::size_t run = 0;
    for (const ServingReport& report : reports) {
        const FactsRow& row = *report.row;
        table.push_back({fmt::format("{}:{}", row.text("group"), row.line), shown_load(row)});
        if (!report.problem.empty()) {
            ++left_out["not run: " + report.problem];
            table.back().insert(table.back().end(), {report.problem, "", ""});
            continue;
        }
        ++run;
        for (const std::string& note : report.unknown) {
            ++flags[note];
        }
        all.add(report);
        (row.text("use") == "fitted" ? fitted : others).add(report);
        groups["engine: " + report.engine()].add(report);
        groups["kind: " + row.text("kind")].add(report);
        groups["node: " + row.text("node")].add(report);
        for (std::size_t i = 0; i < kMeasures.size(); ++i) {
            table.back().push_back(figure(report, i));
            if (report.scored(i) && report.predicted[i] > 0) {
                out.points.push_back({report.measured[i],
                                      report.predicted[i],
                                      kMeasures[i].name,
                                      table.back()[0],
                                      {report.engine(), row.text("kind")}});
            }
        }
    }
    std::vector<std::string> columns = {"report", "load"};
    for (const ReportMeasure& measure : kMeasures) {
        columns.emplace_back(measure.name);
    }
    if (points) {
        terminal.heading("reports: measured > predicted, ms and output tokens/s");
        terminal.table(columns, table);
    }
    std::vector<std::vector<std::string>> cells;
    for (const auto& [name, group] : groups) {
        cells.push_back(group.cells(name));
    }
    cells.push_back(fitted.cells("fitted on"));
    cells.push_back(others.cells("not fitted on"));
    cells.push_back(all.cells("all"));
    columns = {"group"};
    for (const ReportMeasure& measure : kMeasures) {
        columns.push_back(fmt::format("{}: within {:.0f} %, median error (bias)", measure.name, 100 * measure.within));
    }
    terminal.heading("serving reports");
    terminal.table(columns, cells);
    out.tables.push_back({"serving reports", columns, cells});
    std::vector<std::vector<std::string>> excluded;
    for (const auto& [why, count] : left_out) {
        excluded.push_back({std::to_string(count), why});
    }
    terminal.heading("rows left out");
    terminal.table({"rows", "reason"}, excluded);
    excluded.clear();
    for (const auto& [note, count] : flags) {
        excluded.push_back({std::to_string(count), note});
    }
    terminal.heading("rows that run without a flag of theirs");
    terminal.table({"rows", "flag"}, excluded);
    out.scores = {{"rows", static_cast<double>(run), ""},
                  {"tpot_within_15", all.within(0), "%"},
                  {"ttft_within_25", all.within(1), "%"},
                  {"throughput_within_15", all.within(2), "%"},
                  {"tpot", all.median(0), "%"},
                  {"ttft", all.median(1), "%"},
                  {"throughput", all.median(2), "%"},
                  {"tpot_not_fitted", others.median(0), "%"},
                  {"ttft_not_fitted", others.median(1), "%"},
                  {"throughput_not_fitted", others.median(2), "%"}};
    return out;
}

}  // namespace orrery::validation
