// orrery explain and diff.

#include "sim/config/units.hpp"
#include "tools/explain/diff.hpp"
#include "tools/explain/explain.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/print_summary.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {

namespace {

std::string time_text(double seconds) {
    return pretty_quantity(seconds, Dimension::time);
}

std::string share_text(double part, double whole) {
    return fmt::format("{:5.1f} %", whole > 0 ? 100 * part / whole : 0);
}

void print_values(const Terminal& terminal, Scenario scenario) {
    terminal.heading("values and where they come from");
    std::vector<std::vector<std::string>> rows;
    for (const Explained& value : explain_fields([&](Fields& fields) { describe(fields, scenario); })) {
        const auto origin = scenario.origins.find(value.path);
        const std::string place = origin != scenario.origins.end() ? origin->second : "default";
        rows.push_back({value.path, value.value, value.how.empty() ? place : value.how + ": " + value.source});
    }
    terminal.table({"value", "", "source"}, rows);
}

void print_memory(const Terminal& terminal, const TrainingResult& training, const Scenario& scenario) {
    terminal.heading("memory of the fullest stage");
    const auto fullest = std::max_element(training.memory.begin(), training.memory.end(),
                                          [](const MemoryUse& a, const MemoryUse& b) { return a.total() < b.total(); });
    const auto show = [](double bytes) { return pretty_quantity(bytes, Dimension::bytes); };
    terminal.table({}, {{"weights", show(fullest->weights)},
                        {"gradients", show(fullest->gradients)},
                        {"optimizer", show(fullest->optimizer)},
                        {"activations", show(fullest->activations)},
                        {"buffers", show(fullest->buffers)},
                        {"total", show(fullest->total())},
                        {"device", show(scenario.cluster.node.gpu.memory.value)}});
}

void print_explanation(const Terminal& terminal, const Explanation& e) {
    std::vector<std::vector<std::string>> rows;
    if (!e.critical_path.empty()) {
        terminal.heading("critical path: what the end of the iteration waited for");
        for (const BlameRow& row : e.critical_path) {
            if (row.seconds > 0.0005 * e.seconds) {
                rows.push_back({row.operation, row.resource, time_text(row.seconds), share_text(row.seconds, e.seconds),
                                terminal.bar(row.seconds / e.seconds)});
            }
        }
        terminal.table({"operation", "bound by", "time", "", ""}, rows);
    }
    if (!e.hidden.empty()) {
        terminal.heading("transfers: under way, and of it exposed to the compute stream (mean over ranks)");
        rows.clear();
        for (const HiddenRow& row : e.hidden) {
            rows.push_back({row.kind, time_text(row.busy_s), time_text(row.exposed_s)});
        }
        terminal.table({"kind", "under way", "exposed"}, rows);
    }
    if (!e.phases.empty()) {
        terminal.heading("what bounds each part");
        rows.clear();
        for (const PhaseBound& phase : e.phases) {
            rows.push_back({phase.phase, time_text(phase.seconds), phase.bound,
                            phase.share > 0 ? fmt::format("{:.0f} % of it scales", 100 * phase.share) : ""});
        }
        terminal.table({"part", "time", "bound by", ""}, rows);
    }
    terminal.heading("what would help: simulated again with 10 % more (latency, overhead: 10 % less)");
    rows.clear();
    for (const Elasticity& lever : e.levers) {
        rows.push_back({lever.lever, time_text(lever.gain_s), fmt::format("{:+.2f} %", -100 * lever.gain_s / e.seconds),
                        terminal.bar(std::clamp(lever.share, 0.0, 1.0))});
    }
    terminal.table({"10 % more", "saves", "time", "share of the run that it scales"}, rows);
    fmt::print("\n{}\n", e.verdict);
}

std::string number_text(const std::optional<double>& value) {
    return value ? fmt::format("{:.6g}", *value) : "-";
}

}  // namespace

int command_explain(const CommandLine& line, const DataDirectory& data) {
    const Scenario scenario = load_scenario(line.arguments[0], line.overrides(), data);
    const Terminal terminal(line.color(), line.quiet());
    if (!line.quiet()) {
        print_values(terminal, scenario);
    }
    ModelCache models(data);
    const RunOutput out = run(scenario, models, {});
    print_summary(terminal, out.summary);
    if (out.training) {
        print_memory(terminal, *out.training, scenario);
    }
    print_explanation(terminal, explain(scenario, models));
    return 0;
}

int command_diff(const CommandLine& line, const DataDirectory& data) {
    const Terminal terminal(line.color(), line.quiet());
    ModelCache models(data);
    // --set changes the second run: with one file, that is compared with itself, changed.
    const Scenario first = load_scenario(line.arguments[0], {}, data);
    const Scenario second = load_scenario(line.arguments.back(), line.overrides(), data);
    const RunDifference d = compare_runs(first, second, models);
    terminal.heading(fmt::format("{}: {} -> {} ({:+.2f} %)", d.metric, time_text(d.first_s), time_text(d.second_s),
                                 100 * (d.second_s / d.first_s - 1)));
    std::vector<std::vector<std::string>> rows;
    for (const InputEffect& effect : d.inputs) {
        rows.push_back({effect.input.path, pretty_input(effect.input.before), pretty_input(effect.input.after),
                        effect.seconds ? fmt::format("{:+.4g} s", *effect.seconds) : "not alone"});
    }
    terminal.heading("inputs that differ, and what each makes alone");
    terminal.table({"input", "first", "second", "makes"}, rows);
    rows.clear();
    for (const auto& [part, before, after] : d.breakdown) {
        rows.push_back({part, time_text(before), time_text(after), fmt::format("{:+.4g} s", after - before)});
    }
    if (!rows.empty()) {
        terminal.heading("where the time moved");
        terminal.table({"part", "first", "second", "difference"}, rows);
    }
    rows.clear();
    for (const auto& [name, before, after, unit] : d.metrics) {
        rows.push_back({name, number_text(before), number_text(after), unit});
    }
    terminal.heading("metrics");
    terminal.table({"metric", "first", "second", "unit"}, rows);
    if (d.first_record.empty()) {
        fmt::print("\nall {} records are equal\n", d.equal_records);
    } else {
        fmt::print("\nfirst record that differs, after {} equal ones:\n  first:  {}\n  second: {}\n", d.equal_records,
                   d.first_record, d.second_record);
    }
    return 0;
}

}  // namespace orrery
