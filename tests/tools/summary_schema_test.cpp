// The JSON Schema of summaries: what runs of every kind write follows it.

#include "tools/reference/summary_schema.hpp"
#include "sim/record/metric_table.hpp"
#include "tests/support/command.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kind.hpp"
#include "tools/driver/scenario.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <regex>
#include <set>

using namespace orrery;
using namespace orrery::test;

namespace {

using Json = nlohmann::json;

// Judges values by a schema, as far as the schema of summaries needs it: an unknown keyword is an error.
class Validator {
  public:
    explicit Validator(const Json& schema) : root_(schema) {}

    /// Where the value does not follow the schema, and why; empty where it does.
    [[nodiscard]] std::string problem(const Json& value) const { return problem(value, root_, ""); }

  private:
    std::string problem(const Json& value, const Json& schema, const std::string& at) const {
        if (schema.is_boolean()) {
            return schema.get<bool>() ? "" : at + " is not allowed";
        }
        for (const auto& [keyword, rule] : schema.items()) {
            if (std::string found = judged(value, schema, keyword, rule, at); !found.empty()) {
                return found;
            }
        }
        return "";
    }

    std::string judged(const Json& value, const Json& schema, const std::string& keyword, const Json& rule,
                       const std::string& at) const {
        if (keyword == "$schema" || keyword == "$defs" || keyword == "title" || keyword == "description") {
            return "";
        }
        if (keyword == "$ref") {
            return problem(value, root_.at(Json::json_pointer(rule.get<std::string>().substr(1))), at);
        }
        if (keyword == "const") {
            return value == rule ? "" : at + " is not " + rule.dump();
        }
        if (keyword == "enum") {
            return std::find(rule.begin(), rule.end(), value) != rule.end() ? "" : at + " is none of " + rule.dump();
        }
        if (keyword == "minimum") {
            return value.get<double>() >= rule.get<double>() ? "" : at + " is below " + rule.dump();
        }
        if (keyword == "type") {
            const auto is = [&](const std::string& type) {
                return type == "integer" ? value.is_number_integer() : type == std::string(value.type_name());
            };
            const bool fits = rule.is_array() ? std::any_of(rule.begin(), rule.end(), is) : is(rule);
            return fits ? "" : at + " is no " + rule.dump();
        }
        if (keyword == "anyOf") {
            const bool fits =
                std::any_of(rule.begin(), rule.end(), [&](const Json& one) { return problem(value, one, at).empty(); });
            return fits ? "" : at + " fits none of the alternatives";
        }
        if (keyword == "not") {
            return problem(value, rule, at).empty() ? at + " fits what it must not" : "";
        }
        if (keyword == "items") {
            for (std::size_t i = 0; i < value.size(); ++i) {
                if (std::string found = problem(value[i], rule, at + "[]"); !found.empty()) {
                    return found;
                }
            }
            return "";
        }
        if (keyword == "required") {
            for (const auto& key : rule) {
                if (!value.contains(key.get<std::string>())) {
                    return at + " has no " + key.dump();
                }
            }
            return "";
        }
        if (keyword == "properties" || keyword == "additionalProperties" || keyword == "propertyNames") {
            return judged_map(value, schema, keyword, rule, at);
        }
        return at + ": keyword " + keyword + " is not known";
    }

    std::string judged_map(const Json& value, const Json& schema, const std::string& keyword, const Json& rule,
                           const std::string& at) const {
        for (const auto& [key, one] : value.items()) {
            const std::string here = at + "." + key;
            const bool named = schema.contains("properties") && schema["properties"].contains(key);
            std::string found;
            if (keyword == "propertyNames") {
                found =
                    std::regex_search(key, std::regex(rule["pattern"].get<std::string>())) ? "" : here + " is no name";
            } else if (keyword == "properties" && named) {
                found = problem(one, rule[key], here);
            } else if (keyword == "additionalProperties" && !named) {
                found = problem(one, rule, here);
            }
            if (!found.empty()) {
                return found;
            }
        }
        return "";
    }

    const Json& root_;
};

}  // namespace

TEST_CASE("the schema of summaries describes what runs of every kind write, with the metrics of the table") {
    const Json schema = Json::parse(summary_schema());
    CHECK(orrery_command("schema summary").text == summary_schema());
    for (const MetricRow& row : metric_table()) {
        const Json& one = schema["properties"]["metrics"]["properties"][row.name];
        CHECK_MESSAGE(one["description"].get<std::string>().find(row.meaning) == 0, row.name);
    }
    const Validator validator(schema);
    const std::string scenarios = std::string(ORRERY_SOURCE_DIR) + "/scenarios/";
    std::set<std::string> kinds;
    Json last;
    for (const char* scenario : {"training/searched-order-8xA100", "serving/split-phases-70b", "collective/ring-4096",
                                 "network/packet-flap-32", "replay/two-layer-step", "cluster/training-beside-serving",
                                 "rl/grpo-8b-colocated", "faults/spot-preemptions", "faults/serving-host-loss"}) {
        const Outcome out = orrery_command("run " + scenarios + scenario + ".yaml --json - 2>/dev/null");
        const Json summary = Json::parse(out.text);
        kinds.insert(summary["kind"].get<std::string>());
        const std::string problem = validator.problem(summary);
        CHECK_MESSAGE(problem.empty(), scenario, ": ", problem);
        last = summary;
    }
    CHECK(kinds.size() == scenario_kind_names().size());
    // And it refuses what no run writes.
    const auto refused = [&](const char* pointer, const Json& value) {
        Json changed = last;
        changed[Json::json_pointer(pointer)] = value;
        return !validator.problem(changed).empty();
    };
    CHECK(refused("/metrics/events/unit", "s"));
    CHECK(refused("/metrics/events/value", "many"));
    CHECK(refused("/metrics/job", {{"speed", {{"value", 1}, {"unit", "1"}, {"low", nullptr}, {"high", nullptr}}}}));
    CHECK(refused("/more", 1));
    CHECK(refused("/schema", "orrery-summary-2"));
    CHECK(refused("/seed", -1));
}
