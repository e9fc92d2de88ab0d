#include "tools/reference/schema.hpp"

#include "tools/driver/kind.hpp"
#include "tools/driver/scenario.hpp"

#include <nlohmann/json.hpp>

#include <map>
#include <utility>

namespace orrery::reference {

namespace {

using Json = nlohmann::ordered_json;

// Schemas that are written twice or more become definitions, named after the key that has the first of them.
class Definitions {
  public:
    explicit Definitions(const std::map<std::string, Json>& kinds) {
        for (const auto& [kind, schema] : kinds) {
            count(schema);
            definitions_[kind];  // a key of that name is not to take its place
        }
    }

    void add_kind(const std::string& kind, const Json& schema) { definitions_[kind] = shared_inside(schema, kind); }
    [[nodiscard]] const Json& all() const { return definitions_; }

  private:
    static constexpr std::size_t kShortest =
        12;  // lines, below which a reference reads no better than what it stands for

    static bool is_schema(const Json& value) {
        return value.is_object() && (value.contains("type") || value.contains("anyOf") || value.contains("enum"));
    }

    static std::size_t lines(const Json& value) {
        std::size_t sum = 1;
        if (value.is_structured()) {
            for (const Json& part : value) {
                sum += lines(part);
            }
            ++sum;
        }
        return sum;
    }

    void count(const Json& value) {
        if (is_schema(value) && lines(value) >= kShortest) {
            ++uses_[value.dump()];
        }
        if (value.is_structured()) {
            for (const Json& part : value) {
                count(part);
            }
        }
    }

    Json shared(const Json& value, const std::string& key) {
        if (is_schema(value) && lines(value) >= kShortest) {
            const std::string text = value.dump();
            if (uses_.at(text) > 1) {
                std::string& name = names_[text];
                if (name.empty()) {
                    name = free_name(key);
                    definitions_[name];  // before those inside it
                    definitions_[name] = shared_inside(value, key);
                }
                return {{"$ref", "#/$defs/" + name}};
            }
        }
        return shared_inside(value, key);
    }

    Json shared_inside(const Json& value, const std::string& key) {
        Json out = value;
        if (value.is_object()) {
            for (auto& [name, part] : out.items()) {
                if (name == "properties") {
                    for (auto& [property, schema] : part.items()) {
                        schema = shared(schema, property);
                    }
                } else {
                    part = shared(part, key);
                }
            }
        } else if (value.is_array()) {
            for (Json& part : out) {
                part = shared(part, key);
            }
        }
        return out;
    }

    [[nodiscard]] std::string free_name(const std::string& key) const {
        std::string name = key;
        for (int i = 2; definitions_.contains(name); ++i) {
            name = key + "-" + std::to_string(i);
        }
        return name;
    }

    std::map<std::string, std::size_t> uses_;
    std::map<std::string, std::string> names_;  ///< by text of the schema
    Json definitions_ = Json::object();
};

}  // namespace

std::string schema_of_all_kinds(const DataDirectory& data) {
    const std::vector<std::string>& names = scenario_kind_names();
    std::map<std::string, Json> kinds;
    for (const KindRow* kind : scenario_kinds()) {
        Json schema = Json::parse(scenario_schema(*kind, data));
        schema.erase("$schema");
        kinds[kind->name] = std::move(schema);
    }
    Definitions definitions(kinds);
    Json branches = Json::array();
    for (const std::string& name : names) {
        definitions.add_kind(name, kinds.at(name));
        branches.push_back({{"if", {{"properties", {{"kind", {{"const", name}}}}}, {"required", {"kind"}}}},
                            {"then", {{"$ref", "#/$defs/" + name}}}});
    }
    const Json out = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                      {"title", "Orrery scenario"},
                      {"type", "object"},
                      {"properties",
                       {{"orrery", {{"const", 1}, {"description", "version of the scenario language; this is 1"}}},
                        {"kind", {{"enum", names}, {"description", "what the scenario asks"}}}}},
                      {"required", {"orrery", "kind"}},
                      {"allOf", branches},
                      {"$defs", definitions.all()}};
    return out.dump(1) + "\n";
}

}  // namespace orrery::reference
