#include "sim/record/expectation.hpp"

#include "sim/base/error.hpp"
#include "sim/config/units.hpp"
#include "sim/record/metric_table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::record {

namespace {

constexpr const char* kParts = "breakdown.";

bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// The row of the table that a name with its job in front and its quantile behind is of; empty: none.
std::string base_of(const std::string& name) {
    std::string found;
    for (std::size_t at = 0; at <= name.size();) {
        const std::size_t dot = std::min(name.find('.', at), name.size());
        const std::string word = name.substr(at, dot - at);
        const auto& rows = metric_table();
        if (std::any_of(rows.begin(), rows.end(), [&](const MetricRow& row) { return word == row.name; })) {
            found = word;
        }
        at = dot + 1;
    }
    return found;
}

bool is_time(const std::string& base) {
    return ends_with(base, "_s") && !ends_with(base, "_per_s");
}

// "< 2 s" without its comparison.
bool take_comparison(std::string& text, Expectation::Sign& sign) {
    for (const auto& [written, meaning] : {std::pair{"<=", Expectation::Sign::at_most},
                                           {">=", Expectation::Sign::at_least},
                                           {"<", Expectation::Sign::below},
                                           {">", Expectation::Sign::above}}) {
        if (text.rfind(written, 0) == 0) {
            sign = meaning;
            text.erase(0, std::string(written).size());
            text.erase(0, text.find_first_not_of(' '));
            return true;
        }
    }
    return false;
}

// `code`: of what kind the problem is, where there is one.
std::string problem_of(Expectation& out, ErrorCode& code) {
    std::string rest = out.text;
    if (!take_comparison(rest, out.sign)) {
        return fmt::format("'{}' is expected to be '{}': write a bound such as \"< 2 s\", \"<= 0.5\" or \"> 40 %\"",
                           out.metric, out.text);
    }
    const std::string base = base_of(out.metric);
    std::string problem;
    if (is_time(base) || out.metric.rfind(kParts, 0) == 0) {
        return parse_quantity(rest, Dimension::time, out.bound, problem, &code)
                   ? ""
                   : fmt::format("'{}': {}", out.metric, problem);
    }
    out.percent = ends_with(rest, "%");
    if (!out.percent) {
        // The unit of the metric may stand behind the number: "< 80 GiB".
        const std::size_t space = std::min(rest.find(' '), rest.size());
        out.unit = rest.substr(std::min(rest.find_first_not_of(' ', space), rest.size()));
        rest.resize(space);
    }
    if (out.percent ? parse_quantity(rest, Dimension::fraction, out.bound, problem) : parse_number(rest, out.bound)) {
        return "";
    }
    return fmt::format("'{}' is expected to be '{}': its bound is a number{}", out.metric, out.text,
                       problem.empty() ? ", in the unit of the metric" : ": " + problem);
}

void read_level(const YamlNode& node, const std::string& prefix, std::vector<Expectation>& out,
                std::vector<Diagnostic>& errors) {
    for (const YamlNode::Entry& entry : node.entries) {
        const std::string name = prefix + entry.key;
        if (entry.value.kind == YamlNode::Kind::map) {
            read_level(entry.value, name + ".", out, errors);
            continue;
        }
        if (base_of(name).empty() && name != "events" && name.rfind(kParts, 0) != 0) {
            std::vector<std::string> known;
            for (const MetricRow& row : metric_table()) {
                known.emplace_back(row.name);
            }
            const std::string nearest = nearest_name(name.substr(0, name.find('.')), known);
            errors.push_back(
                entry.key_mark.error(fmt::format("unknown metric '{}'{}", name,
                                                 nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest)),
                                     ErrorCode::unknown_metric));
            continue;
        }
        Expectation one;
        one.metric = name;
        one.text = entry.value.scalar;
        one.mark = entry.value.mark;
        ErrorCode code = ErrorCode::no_bound;
        if (const std::string problem = problem_of(one, code); !problem.empty()) {
            errors.push_back(one.mark.error(problem, code));
        } else {
            out.push_back(std::move(one));
        }
    }
}

bool holds(const Expectation& one, double value) {
    switch (one.sign) {
        case Expectation::Sign::below:
            return value < one.bound;
        case Expectation::Sign::at_most:
            return value <= one.bound;
        case Expectation::Sign::above:
            return value > one.bound;
        case Expectation::Sign::at_least:
            return value >= one.bound;
    }
    return false;
}

}  // namespace

std::vector<Expectation> read_expectations(const YamlNode& section, std::vector<Diagnostic>& errors) {
    std::vector<Expectation> out;
    if (section.kind != YamlNode::Kind::map || section.entries.empty()) {
        errors.push_back(section.mark.error("'expect' is a map of metrics to bounds, such as {mfu: \"> 40 %\"}",
                                            ErrorCode::wrong_type));
        return out;
    }
    read_level(section, "", out, errors);
    return out;
}

std::vector<ExpectationOutcome> judge(const std::vector<Expectation>& expectations, const Summary& summary) {
    std::vector<Metric> metrics = summary.metrics;
    for (const auto& [name, seconds] : summary.breakdown) {
        metrics.push_back(Metric{kParts + name, seconds, "s", std::nullopt, std::nullopt});
    }
    metrics.push_back(Metric{"events", static_cast<double>(summary.events), "events", std::nullopt, std::nullopt});
    std::vector<std::string> names;
    for (const Metric& metric : metrics) {
        names.push_back(metric.name);
    }
    std::vector<Diagnostic> errors;
    std::vector<ExpectationOutcome> out;
    for (const Expectation& one : expectations) {
        const auto found = std::find_if(metrics.begin(), metrics.end(),
                                        [&](const Metric& metric) { return metric.name == one.metric; });
        if (found == metrics.end()) {
            // A quantity that has quantiles is not their nearest name by letters.
            const auto longer = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
                return name.rfind(one.metric + ".", 0) == 0;
            });
            const std::string nearest = longer != names.end() ? *longer : nearest_name(one.metric, names);
            errors.push_back(
                one.mark.error(fmt::format("unknown metric '{}': this run has none of that name{}", one.metric,
                                           nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest)),
                               ErrorCode::unknown_metric));
            continue;
        }
        if (one.percent && found->unit != "1") {
            errors.push_back(one.mark.error(
                fmt::format("'{}' is no share but in {}: its bound is a number", one.metric, found->unit),
                ErrorCode::wrong_unit));
            continue;
        }
        if (!one.unit.empty() && one.unit != found->unit) {
            errors.push_back(
                one.mark.error(fmt::format("'{}' is expected to be '{}': its bound is a number{}", one.metric, one.text,
                                           found->unit == "1" ? "" : ", in " + found->unit),
                               ErrorCode::no_bound));
            continue;
        }
        out.push_back({*found, one.text, found->measured() && holds(one, found->value)});
    }
    throw_if_any(errors);
    ORRERY_ASSERT(out.size() == expectations.size());
    return out;
}

}  // namespace orrery::record
