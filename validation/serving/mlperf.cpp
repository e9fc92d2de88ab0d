// Rows of MLPerf Inference, each as a run of one replica of its system.

#include "sim/base/error.hpp"
#include "sim/config/yaml_tree.hpp"
#include "sim/record/facts_table.hpp"
#include "tools/driver/run.hpp"
#include "validation/medians.hpp"
#include "validation/serving/in_threads.hpp"
#include "validation/validate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace orrery::validation {

namespace {

constexpr double kMostSamples = 20000;  ///< of a replica; arriving one by one always so many

struct MlperfMeasure {
    const char* name;
    const char* column;  ///< of mlperf.csv
    const char* metric;
};
constexpr std::array<MlperfMeasure, 5> kMlperfMeasures = {
    MlperfMeasure{"output tokens/s", "tok_s", "output_tokens_per_s"},
    MlperfMeasure{"TPOT mean", "tpot_mean_ms", "tpot_s.mean"}, MlperfMeasure{"TPOT p99", "tpot_p99_ms", "tpot_s.p99"},
    MlperfMeasure{"TTFT mean", "ttft_mean_ms", "ttft_s.mean"}, MlperfMeasure{"TTFT p99", "ttft_p99_ms", "ttft_s.p99"}};

using MlperfValues = std::array<double, kMlperfMeasures.size()>;  ///< tokens/s of the system, s; 0: not measured

struct MlperfRow {
    const FactsRow* row = nullptr;
    MlperfValues measured{};
    std::size_t run = 0;  ///< that predicts it

    [[nodiscard]] std::string scenario() const { return row->text("scenario"); }
};

/// What rows with the same system, engine and load share.
struct MlperfRun {
    std::string file;
    std::vector<std::string> overrides;
    double replicas = 1;
    MlperfValues predicted{};
    std::string problem;  ///< why it does not run
};

MlperfRun run_of(const FactsRow& row, const DataDirectory& data) {
    MlperfRun out;
    out.file = data.path("validation/serving/mlperf/" + row.text("model") + ".yaml");
    out.replicas = row.number("replicas");
    for (const char* const key : {"tensor", "pipeline", "groups", "expert", "weights", "software"}) {
        out.overrides.push_back(fmt::format("engine.{}={}", key, row.text(key)));
    }
    out.overrides.push_back("cluster.node=" + row.text("node"));
    out.overrides.push_back("network.collectives=" + row.text("collectives"));
    const double groups = row.number("groups");  // limits are of each
    out.overrides.push_back(fmt::format("engine.scheduler={{kind: {}, token_budget: {:.0f}, max_sequences: {:.0f}}}",
                                        row.text("scheduler"), groups * row.number("tokens"),
                                        groups * row.number("sequences")));
    out.overrides.push_back(fmt::format("engine.kv={{precision: {}, of_free: {}, memory: {}}}", row.text("kv"),
                                        row.text("of_free") == "yes", row.text("memory")));
    out.overrides.push_back(fmt::format("requests.output.mean={:.0f}", row.number("output")));
    if (row.text("rate").empty()) {
        const double count = std::min(std::ceil(row.number("samples") / out.replicas), kMostSamples);
        out.overrides.push_back(fmt::format("requests.count={:.0f}", count));
    } else {
        const double rate = row.number("rate") / out.replicas;
        out.overrides.emplace_back("requests.arrivals=poisson");
        out.overrides.push_back(fmt::format("requests.rate={:.6g}", rate));
        out.overrides.push_back(fmt::format("requests.count={:.0f}", kMostSamples));
    }
    return out;
}

void predict_run(MlperfRun& run, const DataDirectory& data, ModelCache& models) {
    try {
        YamlNode tree = load_yaml(run.file);
        for (const std::string& one : run.overrides) {
            apply_override(tree, one);
        }
        const Summary summary = run_scenario(read_scenario(tree, run.file, data), models, RunOptions()).summary;
        for (std::size_t i = 0; i < kMlperfMeasures.size(); ++i) {
            const Metric* metric = summary.find(kMlperfMeasures[i].metric);
            run.predicted[i] = metric != nullptr && metric->measured() ? metric->value : 0;
        }
        run.predicted[0] *= run.replicas;
    } catch (const InfeasibleError& error) {
        run.problem = error.what();
        run.problem.resize(std::min(run.problem.find('\n'), run.problem.size()));
    }
}

}  // namespace

Comparison validate_mlperf(const DataDirectory& data, const Terminal& terminal, bool points) {
    Comparison out{"mlperf", "rows of MLPerf Inference", "Nothing is fitted on them.", "", {"figure", "model"}, {}, {}};
    const std::vector<FactsRow> table = read_facts_table(data.path("validation/serving/mlperf.csv"), ';');
    std::map<std::string, int> left_out;
    std::map<std::vector<std::string>, std::size_t> run_by_overrides;
    std::vector<MlperfRow> rows;
    std::vector<MlperfRun> runs;
    for (const FactsRow& row : table) {
        if (row.text("use") != "score") {
            ++left_out[row.text("use")];
            continue;
        }
        MlperfRow one;
        one.row = &row;
        for (std::size_t i = 0; i < kMlperfMeasures.size(); ++i) {
            const std::string& column = kMlperfMeasures[i].column;
            one.measured[i] = row.text(column).empty() ? 0 : row.number(column) * (i == 0 ? 1 : kMillisecond);
        }
        MlperfRun run = run_of(row, data);
        std::vector<std::string> key = run.overrides;
        key.push_back(run.file);
        const auto [place, is_new] = run_by_overrides.emplace(std::move(key), runs.size());
        one.run = place->second;
        if (is_new) {
            runs.push_back(std::move(run));
        }
        rows.push_back(one);
    }
    in_threads(runs.size(), data, terminal, "running MLPerf Inference",
               [&](ModelCache& models, std::size_t i) { predict_run(runs[i], data, models); });

    // Errors by scenario, and of each model, device and scenario; by measure.
    using Errors = std::array<std::vector<double>, kMlperfMeasures.size()>;
    std::map<std::string, Errors> by_scenario;
    std::map<std::vector<std::string>, Errors> by_group;
    std::vector<std::vector<std::string>> shown_points;
    int scored = 0;
    for (const MlperfRow& row : rows) {
        const MlperfRun& run = runs[row.run];
        if (!run.problem.empty()) {
            ++left_out["not run: " + run.problem];
            continue;
        }
        ++scored;
        shown_points.push_back({row.row->text("series"), row.scenario()});
        for (std::size_t i = 0; i < kMlperfMeasures.size(); ++i) {
            if (row.measured[i] <= 0 || run.predicted[i] <= 0) {
                shown_points.back().emplace_back("-");
                continue;
            }
            const double error = run.predicted[i] / row.measured[i] - 1;
            by_scenario[row.scenario()][i].push_back(error);
            by_group[{row.row->text("model"), row.row->text("node"), row.scenario()}][i].push_back(error);
            shown_points.back().push_back(
                fmt::format("{:.4g} > {:.4g} ({:+.1f} %)", row.measured[i], run.predicted[i], 100 * error));
            out.points.push_back({row.measured[i],
                                  run.predicted[i],
                                  kMlperfMeasures[i].name,
                                  row.row->text("series") + " " + row.scenario(),
                                  {row.row->text("model")}});
        }
    }
    std::vector<std::string> columns = {"system", "scenario"};
    for (const MlperfMeasure& measure : kMlperfMeasures) {
        columns.emplace_back(measure.name);
    }
    if (points) {
        terminal.heading("rows of MLPerf Inference: measured > predicted, tokens/s and s");
        terminal.table(columns, shown_points);
    }
    columns.insert(columns.begin(), "model");
    columns[1] = "node";
    columns.insert(columns.begin() + 3, "rows");
    std::vector<std::vector<std::string>> cells;
    const auto add = [&](std::vector<std::string> line, const Errors& errors) {
        line.push_back(std::to_string(errors[0].size()));
        for (const std::vector<double>& each : errors) {
            line.push_back(shown_errors(each));
        }
        cells.push_back(std::move(line));
    };
    for (const auto& [group, errors] : by_group) {
        add(group, errors);
    }
    for (const auto& [scenario, errors] : by_scenario) {
        add({"all", "", scenario}, errors);
    }
    terminal.heading("MLPerf Inference: median error (bias); nothing is fitted on it");
    terminal.table(columns, cells);
    out.tables.push_back({"MLPerf Inference", columns, cells});
    std::vector<std::vector<std::string>> excluded;
    for (const auto& [why, count] : left_out) {
        excluded.push_back({std::to_string(count), why});
    }
    terminal.heading("rows left out");
    terminal.table({"rows", "reason"}, excluded);
    out.scores = {{"rows", static_cast<double>(scored), ""},
                  {"offline", median_size(by_scenario["offline"][0]), "%"},
                  {"server", median_size(by_scenario["server"][0]), "%"},
                  {"interactive", median_size(by_scenario["interactive"][0]), "%"},
                  {"tpot", median_size(by_scenario["server"][1]), "%"},
                  {"ttft", median_size(by_scenario["server"][3]), "%"}};
    return out;
}

}  // namespace orrery::validation
