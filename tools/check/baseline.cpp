#include "tools/check/baseline.hpp"

#include "sim/base/input_file.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "sim/record/metric_table.hpp"
#include "tools/driver/run.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>

namespace orrery::check {

namespace {

constexpr std::size_t kMostReverted = 30;  // changed inputs that are put back one by one to find the cause

std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A key or a text of YAML: in quotes where it could be read as something else.
std::string plain_or_quoted(const std::string& text) {
    const auto plain = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view("_./-+ ").find(c) != std::string_view::npos;
    };
    const bool starts_plain = !text.empty() && text.front() != '-' && text.front() != ' ' && text.back() != ' ';
    return starts_plain && text != "null" && std::all_of(text.begin(), text.end(), plain) ? text : quoted(text);
}

class BaselineReader {
  public:
    explicit BaselineReader(const std::string& path) : root_(load_yaml(path)) { baseline_.path = path; }

    Baseline read() {
        if (root_.kind != YamlNode::Kind::map || root_.find("orrery-baseline") == nullptr ||
            root_.find("orrery-baseline")->scalar != "1") {
            throw ConfigError(
                {root_.mark.error("a baseline is a map that starts with 'orrery-baseline: 1'", ErrorCode::wrong_type)});
        }
        keys_of(root_, {"orrery-baseline", "scenario", "set", "reason", "metrics", "inputs"});
        if (const YamlNode* scenario = root_.find("scenario"); scenario != nullptr && !scenario->scalar.empty()) {
            baseline_.scenario = scenario->scalar;
            try {
                require_input_file(baseline_.scenario_path());
            } catch (const ConfigError& error) {
                errors_.push_back(scenario->mark.error(
                    fmt::format("'{}' {}", scenario->scalar, error.diagnostics().front().text), error.code()));
            }
        } else {
            errors_.push_back(root_.mark.error("'scenario' is missing: the path of the scenario, relative to this file",
                                               ErrorCode::missing_key));
        }
        if (const YamlNode* set = root_.find("set")) {
            for (const YamlNode& item : set->items) {
                baseline_.overrides.push_back(item.scalar);
            }
        }
        if (const YamlNode* reason = root_.find("reason")) {
            baseline_.reason = reason->scalar;
        }
        read_metrics();
        if (const YamlNode* inputs = root_.find("inputs")) {
            for (const YamlNode::Entry& entry : inputs->entries) {
                baseline_.inputs[entry.key] = json_of(entry.value);
            }
        }
        throw_if_any(errors_);
        return std::move(baseline_);
    }

  private:
    void keys_of(const YamlNode& node, const std::vector<std::string>& known) {
        for (const YamlNode::Entry& entry : node.entries) {
            if (std::find(known.begin(), known.end(), entry.key) == known.end()) {
                const std::string nearest = nearest_name(entry.key, known);
                errors_.push_back(entry.key_mark.error(
                    fmt::format("unknown key '{}'{}", entry.key,
                                nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest)),
                    ErrorCode::unknown_key));
            }
        }
    }

    // Inputs are written as JSON: a quoted scalar is a text. Gives the same JSON, character by character.
    std::string json_of(const YamlNode& node) {
        if (node.kind == YamlNode::Kind::sequence) {
            std::vector<std::string> items;
            for (const YamlNode& item : node.items) {
                items.push_back(json_of(item));
            }
            return fmt::format("[{}]", fmt::join(items, ","));
        }
        if (node.kind == YamlNode::Kind::map) {
            std::vector<std::string> entries;
            for (const YamlNode::Entry& entry : node.entries) {
                entries.push_back(fmt::format("{}:{}", quoted(entry.key), json_of(entry.value)));
            }
            return fmt::format("{{{}}}", fmt::join(entries, ","));
        }
        if (node.kind == YamlNode::Kind::null) {
            return "null";
        }
        if (!node.quoted && !nlohmann::json::accept(node.scalar)) {
            errors_.push_back(node.mark.error(
                fmt::format("'{}' is not a value as 'orrery check --update' writes it: a number, true or false, a text "
                            "in quotes, or a list of these",
                            node.scalar),
                ErrorCode::wrong_type));
        }
        return node.quoted ? quoted(node.scalar) : node.scalar;
    }

    void read_metrics() {
        const YamlNode* metrics = root_.find("metrics");
        if (metrics == nullptr || metrics->kind != YamlNode::Kind::map || metrics->entries.empty()) {
            errors_.push_back((metrics != nullptr ? *metrics : root_)
                                  .mark.error("'metrics' must be a map of names to {value, tolerance}",
                                              metrics == nullptr ? ErrorCode::missing_key : ErrorCode::wrong_type));
            return;
        }
        for (const YamlNode::Entry& entry : metrics->entries) {
            keys_of(entry.value, {"value", "tolerance", "better"});
            ExpectedMetric metric;
            metric.name = entry.key;
            const YamlNode* value = entry.value.find("value");
            if (value == nullptr || !parse_number(value->scalar, metric.value)) {
                errors_.push_back(entry.value.mark.error(fmt::format("'{}' needs a number as its 'value'", entry.key),
                                                         ErrorCode::missing_key));
            }
            std::string problem;
            if (const YamlNode* tolerance = entry.value.find("tolerance");
                tolerance != nullptr &&
                (!parse_quantity(tolerance->scalar, Dimension::fraction, metric.tolerance, problem) ||
                 metric.tolerance < 0)) {
                errors_.push_back(tolerance->mark.error(
                    fmt::format("'tolerance' must be like 1 %, not '{}'", tolerance->scalar), ErrorCode::wrong_type));
            }
            if (const YamlNode* better = entry.value.find("better")) {
                metric.better = better->scalar;
                if (metric.better != "lower" && metric.better != "higher" && metric.better != "neither") {
                    errors_.push_back(
                        better->mark.error(fmt::format("'better' is lower, higher or neither, not '{}'", metric.better),
                                           ErrorCode::unknown_name));
                }
            }
            baseline_.metrics.push_back(std::move(metric));
        }
    }

    YamlNode root_;
    Baseline baseline_;
    std::vector<Diagnostic> errors_;
};

double relative(double now, double expected) {
    if (now == expected) {
        return 0;
    }
    return expected == 0 ? std::copysign(1.0, now) : (now - expected) / std::abs(expected);
}

Verdict judge(const ExpectedMetric& metric, double change) {
    if (change == 0) {
        return Verdict::same;
    }
    ORRERY_ASSERT(metric.tolerance >= 0);
    if (std::abs(change) <= metric.tolerance) {
        return Verdict::moved;
    }
    const Better side = metric.better.empty()       ? better_of(metric.name)
                        : metric.better == "lower"  ? Better::lower
                        : metric.better == "higher" ? Better::higher
                                                    : Better::neither;
    const bool better = (side == Better::lower && change < 0) || (side == Better::higher && change > 0);
    return better ? Verdict::improved : Verdict::regressed;
}

bool fails(const MetricOutcome& outcome) {
    return outcome.verdict == Verdict::regressed || !outcome.known();
}

// Which changed inputs explain the move of a metric: each is put back alone and the scenario run again.
void find_causes(BaselineOutcome& outcome, const Scenario& scenario, ModelCache& models) {
    for (const ChangedInput& change : changes_between(outcome.baseline.inputs, inputs_of(scenario, models.data()))) {
        if (!is_read_no_more(change, models.data())) {
            outcome.causes.push_back({change, "", std::nullopt});
        }
    }
    // Metrics stand in the order of their summary, what the kind is asked for first.
    auto moved = std::find_if(outcome.metrics.begin(), outcome.metrics.end(),
                              [](const auto& one) { return fails(one) && one.change != 0; });
    if (moved == outcome.metrics.end()) {
        moved = std::max_element(outcome.metrics.begin(), outcome.metrics.end(),
                                 [](const auto& a, const auto& b) { return std::abs(a.change) < std::abs(b.change); });
    }
    if (moved == outcome.metrics.end() || moved->change == 0) {
        return;
    }
    std::size_t tried = 0;
    for (ChangeCause& cause : outcome.causes) {
        ORRERY_ASSERT(cause.input.before != cause.input.after);
        const std::optional<Scenario> reverted = with_reverted(scenario, cause.input, models.data());
        if (!reverted || ++tried > kMostReverted) {
            continue;
        }
        try {
            const RunOutput out = run_scenario(*reverted, models, {});
            if (const Metric* metric = out.summary.find(moved->expected.name)) {
                cause.metric = metric->name;
                cause.contribution = moved->change - relative(metric->value, moved->expected.value);
            }
        } catch (const Error&) {
            // Alone it does not run: its share stays unknown.
        }
    }
    std::stable_sort(outcome.causes.begin(), outcome.causes.end(), [](const ChangeCause& a, const ChangeCause& b) {
        return std::abs(a.contribution.value_or(0)) > std::abs(b.contribution.value_or(0));
    });
}

// XML has no control characters but the ends of lines.
std::string escaped(const std::string& given) {
    std::string text;
    for (const std::string_view line : split(given, '\n')) {
        text += (text.empty() ? "" : "\n") + printable(line);
    }
    std::string out;
    for (const char c : text) {
        out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
    }
    return out;
}

std::string outcome_line(const MetricOutcome& m) {
    if (!m.known()) {
        return fmt::format("{}: expected {:.6g}, {}", m.expected.name, m.expected.value,
                           m.verdict == Verdict::missing ? "which the run does not have" : "but nothing was measured");
    }
    return fmt::format("{}: expected {:.6g} within {:.3g} %, now {:.6g} ({:+.3g} %)", m.expected.name, m.expected.value,
                       100 * m.expected.tolerance, m.now, 100 * m.change);
}

}  // namespace

std::string MetricOutcome::now_text() const {
    return known() ? fmt::format("{:.6g}", now) : "-";
}

std::string MetricOutcome::change_text() const {
    return known() ? fmt::format("{:+.3g} %", 100 * change) : "-";
}

std::string Baseline::scenario_path() const {
    return (std::filesystem::path(path).parent_path() / scenario).string();
}

bool BaselineOutcome::as_pinned() const {
    return error.empty() && std::none_of(metrics.begin(), metrics.end(), fails);
}

bool BaselineOutcome::expectations_met() const {
    return std::all_of(expectations.begin(), expectations.end(), [](const auto& one) { return one.met; });
}

std::string why_without_cause(const BaselineOutcome& outcome) {
    if (outcome.passed() || !outcome.causes.empty()) {
        return "";
    }
    return outcome.as_pinned() ? "the run gives what the baseline pins; the 'expect' of the scenario fails"
                               : "no input changed: the program itself computes something else";
}

std::string expectation_line(const ExpectationOutcome& outcome) {
    const Metric& metric = outcome.metric;
    return fmt::format("{}: {}, expected {}", metric.name,
                       metric.measured() ? fmt::format("{:.6g}", metric.value) : "not measured", outcome.expected);
}

Baseline load_baseline(const std::string& path) {
    return BaselineReader(path).read();
}

std::string baseline_text(const Baseline& baseline) {
    std::string out = "# Written by 'orrery check --update'; tolerances and the choice of metrics are made by hand.\n";
    out += fmt::format("orrery-baseline: 1\nscenario: {}\n", plain_or_quoted(baseline.scenario));
    if (!baseline.overrides.empty()) {
        out += "set:\n";
        for (const std::string& assignment : baseline.overrides) {
            out += fmt::format("  - {}\n", quoted(assignment));
        }
    }
    out += fmt::format("reason: {}\nmetrics:\n", quoted(baseline.reason));
    for (const ExpectedMetric& metric : baseline.metrics) {
        out +=
            fmt::format("  {}: {{value: {:.12g}, tolerance: {:.6g} %{}}}\n", plain_or_quoted(metric.name), metric.value,
                        100 * metric.tolerance, metric.better.empty() ? "" : ", better: " + metric.better);
    }
    out += "inputs:\n";
    for (const auto& [path, value] : baseline.inputs) {
        out += fmt::format("  {}: {}\n", plain_or_quoted(path), value);
    }
    return out;
}

std::string baseline_schema() {
    using Json = nlohmann::ordered_json;
    const Json metric = {{"type", "object"},
                         {"properties",
                          {{"value", {{"type", "number"}, {"description", "what is expected"}}},
                           {"tolerance",
                            {{"type", Json::array({"string", "number"})},
                             {"description", "relative; a move beyond it to the worse side fails (units: %)"},
                             {"default", "1 %"}}},
                           {"better",
                            {{"enum", Json::array({"lower", "higher", "neither"})},
                             {"description", "which side is no regression; as the metric is when absent"}}}}},
                         {"required", Json::array({"value"})},
                         {"additionalProperties", false}};
    Json properties;
    properties["orrery-baseline"] = {{"const", 1}, {"description", "version of this layout"}};
    properties["scenario"] = {{"type", "string"}, {"description", "path of the scenario, relative to this file"}};
    properties["set"] = {{"type", "array"},
                         {"items", {{"type", "string"}, {"pattern", "^[^=]+=.+"}}},
                         {"description", "values of the scenario to change, as with --set"}};
    properties["reason"] = {{"type", "string"}, {"description", "why the expected values are what they are"}};
    properties["metrics"] = {{"type", "object"},
                             {"minProperties", 1},
                             {"additionalProperties", metric},
                             {"description", "metrics of the run by name"}};
    properties["inputs"] = {
        {"type", "object"},
        {"additionalProperties", {{"type", Json::array({"string", "number", "boolean", "array", "null"})}}},
        {"description", "what the values were recorded with; written by 'orrery check --update'"}};
    return Json{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                {"title", "Orrery baseline"},
                {"type", "object"},
                {"properties", properties},
                {"required", Json::array({"orrery-baseline", "scenario", "metrics"})},
                {"additionalProperties", false}}
        .dump(2);
}

BaselineOutcome check_baseline(const Baseline& baseline, ModelCache& models) {
    BaselineOutcome outcome;
    outcome.baseline = baseline;
    const Scenario scenario = load_scenario(baseline.scenario_path(), baseline.overrides, models.data());
    try {
        const RunOutput out = run_scenario(scenario, models, {});
        outcome.seconds = out.summary.wall_time_s;
        for (const ExpectedMetric& metric : baseline.metrics) {
            MetricOutcome m{metric, 0, 0, Verdict::missing};
            const Metric* now = out.summary.find(metric.name);
            if (now != nullptr && !now->measured()) {
                m.verdict = Verdict::unmeasured;
            } else if (now != nullptr) {
                // What a file holds has twelve digits; less than that is no change.
                m.now = std::stod(fmt::format("{:.12g}", now->value));
                m.change = relative(m.now, metric.value);
                m.verdict = judge(metric, m.change);
            }
            outcome.metrics.push_back(m);
        }
        ORRERY_ASSERT(outcome.metrics.size() == baseline.metrics.size());
        outcome.expectations = out.summary.expectations;
    } catch (const InfeasibleError& error) {
        outcome.error = error.what();
    }
    find_causes(outcome, scenario, models);
    return outcome;
}

Baseline updated(Baseline baseline, ModelCache& models, const std::string& reason) {
    const Scenario scenario = load_scenario(baseline.scenario_path(), baseline.overrides, models.data());
    const RunOutput out = run_scenario(scenario, models, {});
    if (baseline.metrics.empty()) {
        for (const Metric& metric : out.summary.metrics) {
            if (metric.measured()) {
                baseline.metrics.push_back({metric.name, 0, 0.01, ""});
            }
        }
    }
    for (ExpectedMetric& metric : baseline.metrics) {
        const Metric* now = out.summary.find(metric.name);
        if (now == nullptr) {
            throw ConfigError(
                {Diagnostic{baseline.path, 0, 0, fmt::format("the scenario has no metric '{}'", metric.name),
                            ErrorCode::unknown_metric}});
        }
        if (!now->measured()) {
            throw ConfigError({Diagnostic{
                baseline.path, 0, 0,
                fmt::format("the run measured nothing of '{}': there is no value to expect", metric.name)}});
        }
        metric.value = now->value;
    }
    baseline.reason = reason;
    baseline.inputs = inputs_of(scenario, models.data());
    ORRERY_ASSERT(!baseline.inputs.empty());  // a scenario has a kind at least
    return baseline;
}

std::string verdict_name(Verdict verdict) {
    switch (verdict) {
        case Verdict::same:
            return "same";
        case Verdict::moved:
            return "within tolerance";
        case Verdict::improved:
            return "improved";
        case Verdict::regressed:
            return "REGRESSED";
        case Verdict::missing:
            return "MISSING";
        case Verdict::unmeasured:
            return "NOT MEASURED";
    }
    return "";
}

std::string cause_text(const ChangeCause& cause) {
    std::string text = fmt::format("{}: {} -> {}", cause.input.path, pretty_input(cause.input.before),
                                   pretty_input(cause.input.after));
    if (cause.contribution) {
        text += std::abs(*cause.contribution) < 5e-7
                    ? ", without effect"
                    : fmt::format(", makes {} {:+.3g} %", cause.metric, 100 * *cause.contribution);
    }
    return text;
}

std::string junit_xml(const std::vector<BaselineOutcome>& outcomes, const std::string& command) {
    std::string out =
        fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"orrery {}\">\n", command);
    for (const BaselineOutcome& outcome : outcomes) {
        const auto failures = std::count_if(outcome.metrics.begin(), outcome.metrics.end(), fails) +
                              std::count_if(outcome.expectations.begin(), outcome.expectations.end(),
                                            [](const auto& one) { return !one.met; });
        const std::size_t cases =
            outcome.metrics.size() + outcome.expectations.size() + (outcome.error.empty() ? 0 : 1);
        ORRERY_ASSERT(static_cast<std::size_t>(failures) <= cases);
        const std::string suite = escaped(outcome.baseline.path);
        out += fmt::format("  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\">\n", suite, cases,
                           failures, outcome.error.empty() ? 0 : 1);
        std::string causes;
        for (const ChangeCause& cause : outcome.causes) {
            causes += "\n" + cause_text(cause);
        }
        if (!outcome.error.empty()) {
            out +=
                fmt::format("    <testcase classname=\"{}\" name=\"run\"><error message=\"{}\">{}</error></testcase>\n",
                            suite, escaped(outcome.error), escaped(causes));
        }
        for (const MetricOutcome& m : outcome.metrics) {
            const std::string text = escaped(outcome_line(m));
            out += fmt::format("    <testcase classname=\"{}\" name=\"{}\"", suite, escaped(m.expected.name));
            out += fails(m) ? fmt::format("><failure message=\"{}\">{}{}</failure></testcase>\n", text, text,
                                          escaped(causes))
                            : std::string("/>\n");
        }
        for (const ExpectationOutcome& one : outcome.expectations) {
            const std::string text = escaped(expectation_line(one));
            out += fmt::format("    <testcase classname=\"{}\" name=\"expect {}\"", suite, escaped(one.metric.name));
            out += one.met ? std::string("/>\n")
                           : fmt::format("><failure message=\"{0}\">{0}</failure></testcase>\n", text);
        }
        out += "  </testsuite>\n";
    }
    return out + "</testsuites>\n";
}

std::string markdown_summary(const std::vector<BaselineOutcome>& outcomes) {
    const auto passed = std::count_if(outcomes.begin(), outcomes.end(), [](const auto& o) { return o.passed(); });
    std::string out = fmt::format(
        "### Orrery: {} of {} baselines hold\n\n| baseline | metric | expected | now | change | verdict |\n"
        "|---|---|---:|---:|---:|---|\n",
        passed, outcomes.size());
    std::string causes;
    for (const BaselineOutcome& outcome : outcomes) {
        const std::string name = std::filesystem::path(outcome.baseline.path).stem().string();
        if (!outcome.error.empty()) {
            out += fmt::format("| {} | | | | | :x: {} |\n", name, outcome.error);
        }
        for (const MetricOutcome& m : outcome.metrics) {
            if (m.verdict != Verdict::same) {
                out += fmt::format("| {} | {} | {:.6g} | {} | {} | {} {} |\n", name, m.expected.name, m.expected.value,
                                   m.now_text(), m.change_text(),
                                   fails(m) ? ":x:" : ":white_check_mark:", verdict_name(m.verdict));
            }
        }
        for (const ExpectationOutcome& one : outcome.expectations) {
            if (!one.met) {
                out += fmt::format("| {} | {} | {} | {:.6g} | | :x: not as expected |\n", name, one.metric.name,
                                   one.expected, one.metric.value);
            }
        }
        for (const ChangeCause& cause : outcome.causes) {
            causes += fmt::format("- {}: {}\n", name, cause_text(cause));
        }
    }
    return out + (causes.empty() ? "" : "\nInputs that changed:\n\n" + causes);
}

}  // namespace orrery::check
