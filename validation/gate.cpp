#include "validation/gate.hpp"

#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "sim/config/yaml_tree.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace orrery::validation {

const std::vector<std::string>& suite_names() {
    static const std::vector<std::string> kNames = {
        "compute", "training", "collectives",   "devices",         "serving", "serving-reports", "disaggregated",
        "fleets",  "mlperf",   "engine-memory", "training-memory", "faults",  "energy",          "rl"};
    return kNames;
}

namespace {

struct Limit {
    bool at_least = false;
    double value = 0;
    std::string unit;
};

// "<= 6.80 %", ">= 230".
bool parse_limit(const std::string& text, Limit& out) {
    if (text.rfind("<= ", 0) != 0 && text.rfind(">= ", 0) != 0) {
        return false;
    }
    out.at_least = text[0] == '>';
    const std::size_t space = text.find(' ', 3);
    out.unit = space == std::string::npos ? "" : text.substr(space + 1);
    return parse_number(text.substr(3, space == std::string::npos ? space : space - 3), out.value);
}

[[noreturn]] void fail(const Mark& mark, const std::string& problem) {
    throw ConfigError({mark.error(problem)});
}

std::string nearest_hint(const std::string& name, const std::vector<std::string>& names) {
    const std::string near = nearest_name(name, names);
    return near.empty() ? fmt::format("; there are {}", fmt::join(names, ", "))
                        : fmt::format(" (did you mean '{}'?)", near);
}

// The limits of one suite, by score.
std::map<std::string, Limit> limits_of(const YamlNode& node, const Comparison& suite) {
    std::vector<std::string> names;
    for (const Score& score : suite.scores) {
        names.push_back(score.name);
    }
    std::map<std::string, Limit> out;
    for (const YamlNode::Entry& entry : node.entries) {
        const auto score = std::find(names.begin(), names.end(), entry.key);
        if (score == names.end()) {
            fail(entry.value.mark,
                 fmt::format("{} has no score '{}'{}", suite.suite, entry.key, nearest_hint(entry.key, names)));
        }
        Limit limit;
        if (!parse_limit(entry.value.scalar, limit)) {
            fail(entry.value.mark,
                 fmt::format("'{}': a limit is \"<= 6.8 %\" or \">= 230\", not '{}'", entry.key, entry.value.scalar));
        }
        const std::string& unit = suite.scores[static_cast<std::size_t>(score - names.begin())].unit;
        if (limit.unit != unit) {
            fail(entry.value.mark,
                 fmt::format("'{}' is {}", entry.key, unit.empty() ? "a plain number" : "in " + unit));
        }
        out[entry.key] = limit;
    }
    for (const std::string& name : names) {
        if (!out.contains(name)) {
            fail(node.mark, fmt::format("{}: the score '{}' has no limit", suite.suite, name));
        }
    }
    return out;
}

}  // namespace

std::string limits_file(const DataDirectory& data) {
    return data.path("validation/thresholds.yaml");
}

bool within_limits(const std::vector<Comparison>& suites, const std::string& file, const Terminal& terminal) {
    const YamlNode root = load_yaml(file);
    for (const YamlNode::Entry& entry : root.entries) {
        if (std::find(suite_names().begin(), suite_names().end(), entry.key) == suite_names().end()) {
            fail(entry.value.mark,
                 fmt::format("there is no suite '{}'{}", entry.key, nearest_hint(entry.key, suite_names())));
        }
    }
    std::vector<std::vector<std::string>> rows;
    bool fine = true;
    for (const Comparison& suite : suites) {
        const YamlNode* own = root.find(suite.suite);
        if (own == nullptr) {
            fail(root.mark, fmt::format("the suite '{}' has no limits", suite.suite));
        }
        const std::map<std::string, Limit> limits = limits_of(*own, suite);
        for (const Score& score : suite.scores) {
            const Limit& limit = limits.at(score.name);
            const bool kept = limit.at_least ? score.value >= limit.value : score.value <= limit.value;
            fine = fine && kept;
            const auto show = [&](double value) {
                return fmt::format("{:.6g}{}{}", value, score.unit.empty() ? "" : " ", score.unit);
            };
            rows.push_back({suite.suite, score.name, show(score.value),
                            fmt::format("{} {}", limit.at_least ? "at least" : "at most", show(limit.value)),
                            kept ? "kept" : "WORSE"});
        }
    }
    terminal.heading("limits (" + file + ")");
    terminal.table({"suite", "score", "now", "limit", ""}, rows);
    return fine;
}

}  // namespace orrery::validation
