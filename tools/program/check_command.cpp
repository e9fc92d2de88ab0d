// orrery check: scenarios against their baselines.

#include "tools/check/baseline.hpp"
#include "tools/driver/model_cache.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/error_codes.hpp"
#include "tools/program/outputs.hpp"
#include "tools/program/print_summary.hpp"
#include "tools/report/report.hpp"
#include "tools/terminal/terminal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace orrery::program {

namespace {

int update(const CommandLine& line, ModelCache& models) {
    const std::string reason = line.text("reason");
    if (reason.empty()) {
        throw ConfigError("--update needs --reason TEXT: why the expected values change", ErrorCode::command_line);
    }
    for (const std::string& path : line.arguments) {
        Baseline baseline;
        if (!std::filesystem::exists(path) && line.has("scenario")) {
            baseline.path = path;
            const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
            baseline.scenario =
                std::filesystem::relative(std::filesystem::absolute(line.text("scenario")), folder).string();
            baseline.overrides = line.overrides();
        } else {
            baseline = load_baseline(path);
        }
        write_file(path, baseline_text(updated(baseline, models, reason)));
        if (!line.quiet()) {
            say("{} written\n", path);
        }
    }
    return 0;
}

std::string why_failed(const BaselineOutcome& outcome) {
    std::string out = outcome.error;
    for (const ExpectationOutcome& one : outcome.expectations) {
        if (!one.met) {
            out += (out.empty() ? "" : "; ") + expectation_text(one);
        }
    }
    for (const MetricOutcome& m : outcome.metrics) {
        if (m.verdict == Verdict::regressed || !m.known()) {
            out += fmt::format("{}{}: expected {:.6g}, now {} ({})", out.empty() ? "" : "; ", m.expected.name,
                               m.expected.value, m.now_text(), verdict_name(m.verdict));
        }
    }
    return out;
}

void print(const std::vector<BaselineOutcome>& outcomes, const Terminal& terminal) {
    std::vector<std::vector<std::string>> rows;
    for (const BaselineOutcome& outcome : outcomes) {
        const std::string name = std::filesystem::path(outcome.baseline.path).stem().string();
        if (!outcome.error.empty()) {
            rows.push_back({name, "run", "", "", "", "FAILED: " + outcome.error});
        }
        for (const MetricOutcome& m : outcome.metrics) {
            rows.push_back({name, m.expected.name, fmt::format("{:.6g}", m.expected.value), m.now_text(),
                            m.change_text(), verdict_name(m.verdict)});
        }
        for (const ExpectationOutcome& one : outcome.expectations) {
            if (!one.met) {
                rows.push_back({name, one.metric.name, one.expected, one_line(one.metric), "", "NOT AS EXPECTED"});
            }
        }
    }
    terminal.table({"baseline", "metric", "expected", "now", "change", "verdict"}, rows);
    for (const BaselineOutcome& outcome : outcomes) {
        if (const std::string why = why_without_cause(outcome); !why.empty()) {
            say("{}: {}\n", outcome.baseline.path, why);
        }
        if (outcome.causes.empty()) {
            continue;
        }
        terminal.heading(
            fmt::format("inputs of {} that changed", std::filesystem::path(outcome.baseline.path).stem().string()));
        for (const ChangeCause& cause : outcome.causes) {
            say("  {}\n", cause_text(cause));
        }
    }
}

}  // namespace

int command_check(const CommandLine& line, const DataDirectory& data) {
    const Terminal terminal = line.terminal();
    ModelCache models(data);
    if (line.has("update")) {
        return update(line, models);
    }
    for (const char* name : {"scenario", "set", "reason"}) {
        if (line.has(name)) {
            throw ConfigError(fmt::format("--{} goes with --update", name), ErrorCode::command_line);
        }
    }
    std::vector<Baseline> baselines;
    std::vector<std::string> read;
    for (const std::string& path : line.arguments) {
        baselines.push_back(load_baseline(path));
        const Baseline& one = baselines.back();
        read.push_back(one.scenario_path());
        const auto files = files_of(load_scenario(one.scenario_path(), one.overrides, data));
        read.insert(read.end(), files.begin(), files.end());
    }
    check_outputs(line, read);
    std::vector<BaselineOutcome> outcomes;
    Progress progress(terminal, "checking baselines");
    for (const Baseline& baseline : baselines) {
        outcomes.push_back(check_baseline(baseline, models));
        progress.update(static_cast<double>(outcomes.size()) / static_cast<double>(baselines.size()));
    }
    progress.finish();
    if (line.has("junit")) {
        write_output(line, "junit", junit_xml(outcomes));
    }
    if (line.has("summary")) {
        write_output(line, "summary", markdown_summary(outcomes));
    }
    if (line.has("report")) {
        write_output(line, "report", check_report(outcomes));
    }
    const auto failed = std::count_if(outcomes.begin(), outcomes.end(), [](const auto& o) { return !o.passed(); });
    if (!line.quiet()) {
        print(outcomes, terminal);
        say("\n{} of {} baselines hold\n", outcomes.size() - static_cast<std::size_t>(failed), outcomes.size());
    }
    const OutputFormat format = output_format(line.text("output-format"));
    for (const BaselineOutcome& outcome : outcomes) {
        if (format == OutputFormat::text || outcome.passed()) {
            continue;
        }
        const Diagnostic regressed{outcome.baseline.path, 0, 0, why_failed(outcome)};
        say(stderr, "{}\n",
            format == OutputFormat::github ? github_annotation(regressed, "regression")
                                           : diagnostic_json(regressed, "", "regression"));
    }
    return failed > 0 ? 1 : 0;
}

}  // namespace orrery::program
