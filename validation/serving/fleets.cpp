// Published ladders of fleets behind routers, each as one run of its scenario.

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

constexpr double kSaturatedTtft = 2;  ///< s: a stage with a longer one, as measured, is beyond saturation

/// What is compared of a stage, in the order of `FleetStage::measured`.
struct StageMeasure {
    const char* name;
    const char* column;  ///< of fleets.csv
    const char* metric;  ///< of the summary, behind the stage
};
constexpr std::array<StageMeasure, 7> kStageMeasures = {StageMeasure{"output tokens/s", "tok_s", "output_tokens_per_s"},
                                                        StageMeasure{"TTFT mean", "ttft_mean_s", "ttft_s.mean"},
                                                        StageMeasure{"TTFT p50", "ttft_p50_s", "ttft_s.p50"},
                                                        StageMeasure{"TTFT p90", "ttft_p90_s", "ttft_s.p90"},
                                                        StageMeasure{"latency p50", "e2e_p50_s", "e2e_s.p50"},
                                                        StageMeasure{"latency mean", "e2e_mean_s", "e2e_s.mean"},
                                                        StageMeasure{"latency p90", "e2e_p90_s", "e2e_s.p90"}};
constexpr std::size_t kThroughput = 0, kTtftMean = 1, kTtftP90 = 3, kLatencyMedian = 4, kLatencyMean = 5;

/// A stage of a ladder; what was not printed is 0.
struct FleetStage {
    int stage = 0;  ///< of the scenario; 0: the whole run
    double rate = 0;
    std::array<double, kStageMeasures.size()> measured{}, predicted{};
    double tpot = 0;      ///< s, predicted,
    double requests = 0;  ///< of so many
    bool below = false;   ///< saturation

    [[nodiscard]] bool compares(std::size_t i) const { return measured[i] > 0 && predicted[i] > 0; }
    [[nodiscard]] double error(std::size_t i) const { return predicted[i] / measured[i] - 1; }
    /// The TTFT that counts: the mean, or else p90.
    [[nodiscard]] std::size_t ttft() const { return measured[kTtftMean] > 0 ? kTtftMean : kTtftP90; }
};

struct FleetArm {
    const FactsRow* row = nullptr;
    std::vector<FleetStage> stages;
    std::string problem;  ///< why it does not run
    double hits = 0;      ///< predicted share of prompt tokens found in the prefix cache
    bool caches = false;

    [[nodiscard]] std::string name() const { return row->text("arm"); }
    [[nodiscard]] double printed_itl() const {
        return row->text("itl_ms").empty() ? 0 : kMillisecond * row->number("itl_ms");
    }
    /// Mean time per output token of all its stages.
    [[nodiscard]] double itl() const {
        double sum = 0;
        double requests = 0;
        for (const FleetStage& stage : stages) {
            sum += stage.tpot * stage.requests;
            requests += stage.requests;
        }
        return requests > 0 ? sum / requests : 0;
    }
    [[nodiscard]] double most(bool measured) const {
        double out = 0;
        for (const FleetStage& stage : stages) {
            if (stage.compares(kThroughput)) {
                out = std::max(out, measured ? stage.measured[kThroughput] : stage.predicted[kThroughput]);
            }
        }
        return out;
    }
};

std::vector<FleetArm> read_arms(const std::vector<FactsRow>& arms, const std::vector<FactsRow>& stages,
                                std::map<std::string, std::pair<int, double>>& left_out) {
    std::vector<FleetArm> out;
    for (const FactsRow& row : arms) {
        if (row.text("use") != "score") {
            auto& [series, figures] = left_out[row.text("use")];
            ++series;
            figures += row.number("rows");
            continue;
        }
        FleetArm arm;
        arm.row = &row;
        bool below = true;
        for (const FactsRow& given : stages) {
            if (given.text("arm") != row.text("arm")) {
                continue;
            }
            FleetStage stage;
            stage.stage = static_cast<int>(given.number("stage"));
            stage.rate = given.number("rate");
            for (std::size_t i = 0; i < kStageMeasures.size(); ++i) {
                const char* column = kStageMeasures[i].column;
                stage.measured[i] = given.text(column).empty() ? 0 : given.number(column);
            }
            below = below && stage.measured[stage.measured[kTtftP90] > 0 ? kTtftP90 : kTtftMean] <= kSaturatedTtft;
            stage.below = below;
            arm.stages.push_back(stage);
        }
        out.push_back(std::move(arm));
    }
    return out;
}

void predict_arm(FleetArm& arm, const DataDirectory& data, ModelCache& models) {
    const std::string file = data.path("validation/serving/fleets/" + arm.row->text("setup") + ".yaml");
    try {
        YamlNode tree = load_yaml(file);
        apply_override(tree, "engine.router=" + arm.row->text("router"));
        if (!arm.row->text("gateway").empty()) {
            apply_override(tree, "engine.gateway=" + arm.row->text("gateway"));
        }
        const Summary summary = run_scenario(read_scenario(tree, file, data), models, RunOptions()).summary;
        const auto value = [&](const std::string& name) {
            const Metric* metric = summary.find(name);
            return metric != nullptr && metric->measured() ? metric->value : 0.0;
        };
        for (FleetStage& stage : arm.stages) {
            const std::string front = stage.stage > 0 ? fmt::format("stage{}.", stage.stage) : "";
            for (std::size_t i = 0; i < kStageMeasures.size(); ++i) {
                stage.predicted[i] = value(front + kStageMeasures[i].metric);
            }
            stage.tpot = value(front + "tpot_s.mean");
            stage.requests = value(front + "requests");
        }
        arm.caches = summary.find("prefix_hit_fraction") != nullptr;
        arm.hits = value("prefix_hit_fraction");
    } catch (const InfeasibleError& error) {
        arm.problem = error.what();
    }
}

// Measured > predicted (error).
std::string compared(double measured, double predicted, const char* format) {
    return fmt::format("{} > {} ({:+.1f} %)", fmt::format(fmt::runtime(format), measured),
                       fmt::format(fmt::runtime(format), predicted), 100 * (predicted / measured - 1));
}

/// Errors over arms and stages.
struct FleetErrors {
    std::vector<double> throughput, ttft, latency, itl, saturation, gain;
    std::vector<double> throughput_beyond;

    /// The stages of an arm, as a row of the table begins.
    std::vector<std::string> add(const FleetArm& arm, Comparison& out) {
        FleetErrors own;
        std::size_t below = 0;
        for (const FleetStage& stage : arm.stages) {
            below += stage.below ? 1 : 0;
            const std::size_t t = stage.ttft();
            if (stage.compares(kThroughput)) {
                (stage.below ? own.throughput : own.throughput_beyond).push_back(stage.error(kThroughput));
            }
            if (stage.below && stage.compares(t)) {
                own.ttft.push_back(stage.error(t));
                out.points.push_back({stage.measured[t],
                                      stage.predicted[t],
                                      "TTFT",
                                      fmt::format("{} {}/s", arm.name(), stage.rate),
                                      {arm.row->text("setup")}});
            }
            // The mean that counts, or else the median.
            const std::size_t whole = stage.measured[kLatencyMean] > 0 ? kLatencyMean : kLatencyMedian;
            if (stage.below && stage.compares(whole)) {
                own.latency.push_back(stage.error(whole));
            }
        }
        if (arm.printed_itl() > 0 && arm.itl() > 0) {
            own.itl.push_back(arm.itl() / arm.printed_itl() - 1);
        }
        if (arm.stages.size() > 1 && !arm.stages.back().below) {  // a ladder that saturates, as measured
            own.saturation.push_back(arm.most(false) / arm.most(true) - 1);
        }
        const std::vector<std::string> cells = {
            arm.name(),
            fmt::format("{} of {}", below, arm.stages.size()),
            shown_errors(own.throughput),
            shown_errors(own.throughput_beyond),
            shown_errors(own.ttft),
            shown_errors(own.latency),
            own.itl.empty() ? "-" : compared(arm.printed_itl() / kMillisecond, arm.itl() / kMillisecond, "{:.1f}"),
            own.saturation.empty() ? "-" : compared(arm.most(true), arm.most(false), "{:.0f}")};
        for (const auto member : {&FleetErrors::throughput, &FleetErrors::throughput_beyond, &FleetErrors::ttft,
                                  &FleetErrors::latency, &FleetErrors::itl, &FleetErrors::saturation}) {
            (this->*member).insert((this->*member).end(), (own.*member).begin(), (own.*member).end());
        }
        return cells;
    }
};

void print_stages(const std::vector<FleetArm>& arms, const Terminal& terminal) {
    std::vector<std::string> columns = {"arm", "rate", "below"};
    for (const StageMeasure& measure : kStageMeasures) {
        columns.emplace_back(measure.name);
    }
    std::vector<std::vector<std::string>> table;
    for (const FleetArm& arm : arms) {
        for (const FleetStage& stage : arm.stages) {
            table.push_back({arm.name(), fmt::format("{:g}", stage.rate), stage.below ? "yes" : "no"});
            for (std::size_t i = 0; i < kStageMeasures.size(); ++i) {
                table.back().push_back(stage.compares(i) ? compared(stage.measured[i], stage.predicted[i], "{:.4g}")
                                                         : "-");
            }
        }
    }
    terminal.heading("stages of fleets: measured > predicted, tokens/s and s");
    terminal.table(columns, table);
}

}  // namespace

Comparison validate_fleets(const DataDirectory& data, const Terminal& terminal, bool points) {
    Comparison out{"fleets",
                   "stages of ladders of fleets behind routers",
                   "Nothing is fitted on them.",
                   "",
                   {"figure", "setup"},
                   {},
                   {}};
    const std::vector<FactsRow> rows = read_facts_table(data.path("validation/serving/fleet_arms.csv"), ';');
    const std::vector<FactsRow> stages = read_facts_table(data.path("validation/serving/fleets.csv"), ';');
    std::map<std::string, std::pair<int, double>> left_out;
    std::vector<FleetArm> arms = read_arms(rows, stages, left_out);
    in_threads(arms.size(), data, terminal, "running fleets",
               [&](ModelCache& models, std::size_t i) { predict_arm(arms[i], data, models); });
    if (points) {
        print_stages(arms, terminal);
    }
    FleetErrors all;
    std::size_t run = 0;
    std::size_t scored = 0;
    std::vector<std::vector<std::string>> table;
    for (const FleetArm& arm : arms) {
        if (!arm.problem.empty()) {
            auto& [series, figures] = left_out["not run: " + arm.problem.substr(0, arm.problem.find('\n'))];
            ++series;
            figures += arm.row->number("rows");
            continue;
        }
        ++run;
        scored += arm.stages.size();
        table.push_back(all.add(arm, out));
        const auto other = std::find_if(arms.begin(), arms.end(), [&](const FleetArm& one) {
            return one.name() == arm.row->text("against") && one.problem.empty();
        });
        const bool gains = other != arms.end() && other->stages.size() > 1;
        if (gains) {
            const double measured = arm.most(true) / other->most(true);
            const double predicted = arm.most(false) / other->most(false);
            all.gain.push_back(predicted / measured - 1);
            table.back().push_back(compared(measured, predicted, "{:.2f}"));
        } else {
            table.back().emplace_back("-");
        }
        table.back().push_back(arm.caches ? fmt::format("{:.1f} %", 100 * arm.hits) : "-");
    }
    table.push_back({"all", std::to_string(scored), shown_errors(all.throughput), shown_errors(all.throughput_beyond),
                     shown_errors(all.ttft), shown_errors(all.latency), shown_errors(all.itl),
                     shown_errors(all.saturation), shown_errors(all.gain), ""});
    const std::vector<std::string> columns = {"arm",
                                              "below saturation",
                                              "throughput below: median error (bias)",
                                              "throughput beyond",
                                              "TTFT below",
                                              "latency below",
                                              "ITL (ms)",
                                              "highest output tokens/s",
                                              "gain of the router",
                                              "prompt tokens cached"};
    terminal.heading("fleets behind routers (nothing is fitted on them)");
    terminal.table(columns, table);
    out.tables.push_back({"fleets behind routers", columns, table});
    std::vector<std::vector<std::string>> excluded;
    for (const auto& [why, counts] : left_out) {
        excluded.push_back({std::to_string(counts.first), fmt::format("{:g}", counts.second), why});
    }
    terminal.heading("series left out");
    terminal.table({"series", "figures", "reason"}, excluded);
    out.scores = {{"arms", static_cast<double>(run), ""},
                  {"stages", static_cast<double>(scored), ""},
                  {"throughput", median_size(all.throughput), "%"},
                  {"ttft", median_size(all.ttft), "%"},
                  {"itl", median_size(all.itl), "%"},
                  {"saturation", median_size(all.saturation), "%"},
                  {"gain", median_size(all.gain), "%"}};
    return out;
}

}  // namespace orrery::validation
