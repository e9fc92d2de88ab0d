// Measured steps of reinforcement learning and times of weight transfers, each as a run of the scenario that its row is read as.

#include "sim/base/error.hpp"
#include "sim/config/yaml_tree.hpp"
#include "sim/record/facts_table.hpp"
#include "tools/driver/run.hpp"
#include "validation/medians.hpp"
#include "validation/rl/setup.hpp"
#include "validation/serving/in_threads.hpp"
#include "validation/validate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace orrery::validation {

namespace {

/// What is compared of a step: a column of steps.csv, and the metrics that make it up.
struct StepFigure {
    const char* name;
    const char* column;
    std::vector<const char*> metrics;
};
const std::array<StepFigure, 5>& step_figures() {
    static const std::array<StepFigure, 5> kFigures = {
        StepFigure{"step", "step_s", {"iteration_time_s"}}, StepFigure{"generation", "generation_s", {"generation_s"}},
        StepFigure{"log-probabilities", "logprob_s", {"reference.forward_s", "actor.forward_s"}},
        StepFigure{"training", "training_s", {"training_s"}},
        StepFigure{"weights", "weights_s", {"synchronisation_s"}}};
    return kFigures;
}

struct RlRow {
    const FactsRow* row = nullptr;
    std::array<double, 5> measured{}, predicted{};  ///< s; 0: not printed
    std::string problem;                            ///< why it does not run

    [[nodiscard]] bool compares(std::size_t i) const { return measured[i] > 0 && predicted[i] > 0; }
    [[nodiscard]] double error(std::size_t i) const { return predicted[i] / measured[i] - 1; }
};

std::string compared(double measured, double predicted) {
    return fmt::format("{:.4g} > {:.4g} ({:+.1f} %)", measured, predicted, 100 * (predicted / measured - 1));
}

constexpr const char* kAll = "~";  ///< the group of all, behind the others

/// Rows that are left out, by reason.
using LeftOut = std::map<std::string, double>;

std::vector<RlRow> read_rows(const std::vector<FactsRow>& all, LeftOut& left_out) {
    std::vector<RlRow> out;
    for (const FactsRow& row : all) {
        if (row.text("use") != "score") {
            ++left_out[row.text("use")];
            continue;
        }
        out.emplace_back();
        out.back().row = &row;
    }
    return out;
}

Summary run_text(const std::string& text, const std::string& name, const DataDirectory& data, ModelCache& models) {
    RunOptions options;
    options.check_memory =
        false;  // the runs had room; what frameworks keep beside weights and states is not in question here
    return run_scenario(read_scenario(parse_yaml(text, name), name, data), models, options).summary;
}

double value_of(const Summary& summary, const std::string& name) {
    const Metric* metric = summary.find(name);
    return metric != nullptr && metric->measured() ? metric->value : 0.0;
}

void predict_step(RlRow& one, const DataDirectory& data, ModelCache& models) {
    try {
        const Summary summary = run_text(step_scenario(*one.row), one.row->text("row"), data, models);
        // Without its log-probabilities a step is not whole.
        const bool whole = summary.find("actor.forward_s") != nullptr;
        for (std::size_t i = 0; i < step_figures().size(); ++i) {
            const std::string& cell = one.row->text(step_figures()[i].column);
            one.measured[i] = cell.empty() ? 0 : one.row->number(step_figures()[i].column);
            for (const char* metric : step_figures()[i].metrics) {
                one.predicted[i] += value_of(summary, metric);
            }
        }
        one.predicted[0] = whole ? one.predicted[0] : 0;
    } catch (const InfeasibleError& error) {
        one.problem = error.what();
    }
}

void predict_weights(RlRow& one, const DataDirectory& data, ModelCache& models) {
    try {
        one.measured[0] = one.row->number("seconds");
        one.predicted[0] =
            value_of(run_text(weights_scenario(*one.row), one.row->text("row"), data, models), "synchronisation_s");
    } catch (const InfeasibleError& error) {
        one.problem = error.what();
    }
}

// Errors by group, each with one list for each figure.
using Grouped = std::map<std::string, std::array<std::vector<double>, 5>>;

void print_groups(const Grouped& groups, const std::vector<std::string>& columns, const std::string& title,
                  const Terminal& terminal, Comparison& out) {
    std::vector<std::vector<std::string>> table;
    for (const auto& [name, errors] : groups) {
        std::size_t figures = 0;
        std::vector<std::string> cells = {name == kAll ? "all" : name, ""};
        for (std::size_t i = 0; i + 2 < columns.size(); ++i) {
            figures += errors[i].size();
            cells.push_back(shown_errors(errors[i]));
        }
        cells[1] = std::to_string(figures);
        table.push_back(std::move(cells));
    }
    terminal.heading(title);
    terminal.table(columns, table);
    out.tables.push_back({title, columns, table});
}

void print_rows(const std::vector<RlRow>& rows, std::size_t figures, const std::vector<std::string>& columns,
                const std::string& title, const Terminal& terminal) {
    std::vector<std::vector<std::string>> table;
    for (const RlRow& one : rows) {
        table.push_back({one.row->text("row")});
        for (std::size_t i = 0; i < figures; ++i) {
            table.back().push_back(one.compares(i) ? compared(one.measured[i], one.predicted[i]) : "-");
        }
    }
    terminal.heading(title);
    terminal.table(columns, table);
}

void count_problems(const std::vector<RlRow>& rows, LeftOut& left_out) {
    for (const RlRow& one : rows) {
        if (!one.problem.empty()) {
            ++left_out["not run: " + one.problem.substr(0, one.problem.find('\n'))];
        }
    }
}

}  // namespace

Comparison validate_rl(const DataDirectory& data, const Terminal& terminal, bool points) {
    Comparison out{
        "rl", "phases of steps of reinforcement learning", "Nothing is fitted on them.", "", {"figure", "model"}, {},
        {}};
    const std::vector<FactsRow> step_table = read_facts_table(data.path("validation/rl/steps.csv"), ';');
    const std::vector<FactsRow> weight_table = read_facts_table(data.path("validation/rl/weights.csv"), ';');
    LeftOut left_out;
    std::vector<RlRow> steps = read_rows(step_table, left_out);
    std::vector<RlRow> weights = read_rows(weight_table, left_out);
    in_threads(steps.size() + weights.size(), data, terminal, "running steps", [&](ModelCache& models, std::size_t i) {
        i < steps.size() ? predict_step(steps[i], data, models)
                         : predict_weights(weights[i - steps.size()], data, models);
    });
    count_problems(steps, left_out);
    count_problems(weights, left_out);
    if (points) {
        print_rows(steps, 5, {"row", "step", "generation", "log-probabilities", "training", "weights"},
                   "steps: measured > predicted, s", terminal);
        print_rows(weights, 1, {"row", "weights"}, "weights: measured > predicted, s", terminal);
    }
    Grouped groups;
    std::vector<double> all;
    std::vector<double> others;  // than DeepSeek-V3
    std::array<std::vector<double>, 5> by_figure;
    double runs = 0;
    for (const RlRow& one : steps) {
        runs += one.problem.empty() ? 1 : 0;
        const std::string& model = one.row->text("model");
        const std::string& mode = one.row->text("mode");
        for (std::size_t i = 0; i < step_figures().size(); ++i) {
            if (!one.compares(i)) {
                continue;
            }
            all.push_back(one.error(i));
            by_figure[i].push_back(one.error(i));
            if (model != "deepseek-v3") {
                others.push_back(one.error(i));
            }
            groups[fmt::format("{}, {}, {}, {}", one.row->text("source"), model, one.row->text("node"),
                               mode.substr(0, mode.find(' ')))][i]
                .push_back(one.error(i));
            out.points.push_back(
                {one.measured[i], one.predicted[i], step_figures()[i].name, one.row->text("row"), {model}});
        }
    }
    groups[kAll] = by_figure;
    const std::vector<std::string> columns = {"source, model, node, mode",
                                              "figures",
                                              "step: median error (bias)",
                                              "generation",
                                              "log-probabilities",
                                              "training",
                                              "weights"};
    print_groups(groups, columns, "steps of reinforcement learning (nothing is fitted on them)", terminal, out);
    Grouped ways;
    std::vector<double> direct;
    std::vector<double> gathered;
    for (const RlRow& one : weights) {
        if (one.compares(0)) {
            const bool whole = one.row->text("way") == "gathered";
            (whole ? gathered : direct).push_back(one.error(0));
            ways[one.row->text("source") + ", " + one.row->text("way")][0].push_back(one.error(0));
        }
    }
    print_groups(ways, {"source, way", "figures", "weights: median error (bias)"}, "weights brought to the generator",
                 terminal, out);
    for (const FactsRow& row : read_facts_table(data.path("validation/rl/left_out.csv"), ';')) {
        left_out[row.text("why")] += row.number("rows");
    }
    std::vector<std::vector<std::string>> excluded;
    for (const auto& [why, count] : left_out) {
        excluded.push_back({fmt::format("{:g}", count), why});
    }
    terminal.heading("rows left out");
    terminal.table({"rows", "reason"}, excluded);
    out.scores = {{"runs", runs, ""},
                  {"figures", static_cast<double>(all.size()), ""},
                  {"phases", median_size(all), "%"},
                  {"phases_without_deepseek_v3", median_size(others), "%"},
                  {"steps", median_size(by_figure[0]), "%"},
                  {"weights", static_cast<double>(direct.size() + gathered.size()), ""},
                  {"weights_direct", median_size(direct), "%"},
                  {"weights_gathered", median_size(gathered), "%"}};
    return out;
}

}  // namespace orrery::validation
