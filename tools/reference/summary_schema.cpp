#include "tools/reference/summary_schema.hpp"

#include "sim/record/metric_table.hpp"
#include "tools/driver/kind.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <map>
#include <vector>

namespace orrery::reference {

namespace {

using Json = nlohmann::ordered_json;

Json reference_to(std::string name) {
    // A slash is '~1' in a JSON pointer.
    for (std::size_t at = name.find('/'); at != std::string::npos; at = name.find('/', at)) {
        name.replace(at, 1, "~1");
    }
    return "#/$defs/" + name;
}

Json text(const char* description) {
    return {{"type", "string"}, {"description", description}};
}

Json number_or_null(const char* description) {
    return {{"type", Json::array({"number", "null"})}, {"description", description}};
}

// A closed map, all keys of which are required.
Json map_of(const Json& properties) {
    Json required = Json::array();
    for (const auto& [key, value] : properties.items()) {
        required.push_back(key);
    }
    return {{"type", "object"}, {"properties", properties}, {"required", required}, {"additionalProperties", false}};
}

Json value_of_metric() {
    Json properties;
    properties["value"] = number_or_null("null where the run measured nothing");
    properties["unit"] = text("unit of the value; 1 for a share or a count");
    properties["low"] = number_or_null("lower end of the 90 % interval; null where the model gives none");
    properties["high"] = number_or_null("upper end of the 90 % interval; null where the model gives none");
    return map_of(properties);
}

std::string meaning_of(const MetricRow& row) {
    const std::string better = better_text(row.name);
    return better.empty() ? row.meaning : fmt::format("{} ({})", row.meaning, better);
}

}  // namespace

std::string summary_schema() {
    Json metrics;
    std::map<std::string, Json> units;  // what a metric in a unit looks like
    std::string names;
    for (const MetricRow& row : metric_table()) {
        const std::string in = fmt::format("in {}", row.unit);
        metrics[row.name] = {{"description", meaning_of(row)}, {"$ref", reference_to(in)}};
        const Json one = {{"$ref", reference_to("value")}, {"properties", {{"unit", {{"const", row.unit}}}}}};
        units[in] = {
            {"anyOf",
             Json::array({one,
                          {{"type", "object"},
                           {"description", "mean and quantiles, or a value per cause, level or policy, by name"},
                           {"not", {{"required", Json::array({"unit"})}}},
                           {"additionalProperties", one}}})}};
        names += (names.empty() ? "" : "|") + std::string(row.name);
    }
    Json definitions;
    definitions["value"] = value_of_metric();
    for (const auto& [name, definition] : units) {
        definitions[name] = definition;
    }
    definitions["part"] = {
        {"description", "metrics of a job or of another part of the scenario; quantiles as in ttft_s.p99"},
        {"type", "object"},
        {"propertyNames", {{"pattern", fmt::format("(^|\\.)({})(\\.|$)", names)}}},
        {"additionalProperties", Json{{"$ref", reference_to("value")}}}};

    Json properties;
    properties["schema"] = {{"const", "orrery-summary-1"}, {"description", "version of this layout"}};
    properties["scenario"] = text("name of the scenario's file, without its folder and extension");
    properties["kind"] = {{"enum", scenario_kind_names()}, {"description", "kind of the scenario"}};
    properties["hash"] = text("hash of the resolved scenario: equal hashes and seeds give equal summaries");
    properties["seed"] = {{"type", "integer"}, {"minimum", 0}, {"description", "seed of all random streams"}};
    properties["metrics"] = {{"description", "metrics of the run by name"},
                             {"type", "object"},
                             {"properties", metrics},
                             {"additionalProperties", {{"$ref", reference_to("part")}}}};
    properties["breakdown"] = {{"description", "parts of the headline time in seconds, which add up to it"},
                               {"type", "object"},
                               {"additionalProperties", {{"type", "number"}}}};
    Json expectation;
    expectation["metric"] = text("name of the metric");
    expectation["expected"] = text("bound that the scenario gives, such as < 2 s");
    expectation["value"] = number_or_null("null where the run measured nothing");
    expectation["unit"] = text("unit of the value; 1 for a share or a count");
    expectation["met"] = {{"type", "boolean"}, {"description", "whether the value keeps the bound"}};
    properties["expectations"] = {{"description", "outcome of each expectation (expect), where the scenario has some"},
                                  {"type", "array"},
                                  {"items", map_of(expectation)}};
    properties["notes"] = {{"description", "notes on the run; 'warning: ' begins those on metrics unfit to act on"},
                           {"type", "array"},
                           {"items", {{"type", "string"}}}};
    Json host;
    host["wall_time_s"] = {{"type", "number"}, {"description", "wall time of the run in seconds"}};
    host["peak_rss_mib"] = {{"type", "number"}, {"description", "largest resident memory of the process in MiB"}};
    Json last = map_of(host);
    last["description"] = "the machine that ran it; never compared";

    Json out = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                {"title", "Summary of a run of Orrery"},
                {"description", "What 'orrery run --json' writes."}};
    out.update(map_of(properties));
    out["properties"]["host"] = last;
    std::erase_if(out["required"].get_ref<Json::array_t&>(), [](const Json& key) { return key == "expectations"; });
    out["$defs"] = definitions;
    return out.dump(1) + "\n";
}

}  // namespace orrery::reference
