#include "tools/sweep/sweep_spec.hpp"

#include <nlohmann/json.hpp>

namespace orrery::sweep {

std::string sweep_schema() {
    using Json = nlohmann::ordered_json;
    const Json list = {{"type", "array"}, {"items", {{"type", Json::array({"string", "number", "boolean"})}}}};
    const Json values = {{"description", "a list, {from, to, step}, {linear: [a, b], count} or {log: [a, b], count}"},
                         {"type", Json::array({"array", "object", "string", "number", "boolean"})}};
    const Json map_of_values = {{"type", "object"}, {"additionalProperties", values}};
    const Json text_map = {{"type", "object"},
                           {"additionalProperties", {{"type", Json::array({"string", "number", "boolean"})}}}};
    const Json texts = {{"type", "array"}, {"items", {{"type", "string"}}}};
    const auto described = [](Json schema, const char* text) {
        schema["description"] = text;
        return schema;
    };
    Json properties;
    properties["orrery"] = {{"const", 1}, {"description", "version of the scenario language"}};
    properties["kind"] = {{"const", "sweep"}};
    properties["base"] = {{"type", "string"}, {"description", "scenario to start from, relative to this file"}};
    properties["set"] = described(text_map, "values of the base scenario to change in every point");
    properties["axes"] = described(map_of_values, "keys of the scenario and their values; points are the product");
    properties["zip"] = {{"description", "groups of keys whose values advance together"},
                         {"anyOf", Json::array({map_of_values, Json{{"type", "array"}, {"items", map_of_values}}})}};
    properties["sample"] = {{"type", "object"},
                            {"description", "keys drawn at random"},
                            {"properties",
                             {{"method", {{"enum", Json::array({"random", "latin-hypercube"})}}},
                              {"count", {{"type", "integer"}, {"minimum", 1}}},
                              {"seed", {{"type", "integer"}, {"minimum", 0}}},
                              {"values", map_of_values}}},
                            {"required", Json::array({"method", "count", "values"})},
                            {"additionalProperties", false}};
    properties["derive"] = described(text_map, "values that follow from others, as expressions, in order");
    properties["where"] = described(texts, "conditions that a point must meet");
    properties["seeds"] = {{"description", "replicas: a number of seeds or a list"},
                           {"anyOf", Json::array({Json{{"type", "integer"}}, list})}};
    properties["keep"] = described(texts, "metrics to keep; all when absent");
    properties["timeout"] = {{"type", "string"}, {"description", "wall time a point may take; 600 s when absent"}};
    return Json{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                {"title", "Orrery sweep"},
                {"type", "object"},
                {"properties", properties},
                {"required", Json::array({"orrery", "kind", "base"})},
                {"additionalProperties", false}}
        .dump(2);
}

}  // namespace orrery::sweep
