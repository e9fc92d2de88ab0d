// Fields as JSON Schema.

#include "sim/base/text.hpp"
#include "sim/config/fields.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace orrery::config {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kNeeds = "{}; no effect without {}";

class SchemaWriter final : public Fields {
  public:
    [[nodiscard]] bool names_all() const override { return true; }

    Json properties = Json::object();
    Json required = Json::array();

    void integer(const Field& field, std::int64_t& value) override { limits(add(field, "integer", value), field); }
    void number(const Field& field, double& value) override { limits(add(field, "number", value), field); }
    void boolean(const Field& field, bool& value) override { add(field, "boolean", value); }
    void text(const Field& field, std::string& value) override { add(field, "string", value); }
    void table(const Field& field, const TableKind& kind, std::string& value) override {
        // Whoever knows the data directory puts the names of its files here.
        add(field, "string", value)["x-names-from"] = {kind.directory, kind.extension};
    }
    void quantity(const Field& field, Dimension dimension, double& value) override {
        Json& entry = add(field, "string", std::isnan(value) ? Json() : Json(format_quantity(value, dimension)));
        describe_unit(entry, field, dimension);
        if (dimension == Dimension::fraction) {
            entry["type"] = {"string", "number"};
        }
    }
    void sourced(const Field& field, Dimension dimension, Sourced<double>& value) override {
        Json& entry = add(field, "string", format_quantity(value.value, dimension));
        describe_unit(entry, field, dimension);
        entry["type"] = {"string", "object", "number"};
    }
    void choice(const Field& field, const std::vector<std::string>& names, std::size_t& index) override {
        add(field, "string", names[index])["enum"] = names;
    }
    void nested(const Field& field, const PresetKind* preset, bool* present,
                const std::function<void(Fields&)>& describe) override {
        SchemaWriter inner;
        describe(inner);
        Json object = inner.object();
        if (preset != nullptr) {
            const Json name = {{"type", "string"}, {"x-names-from", {preset->directory, ".yaml"}}};
            object["properties"]["preset"] = name;
            object["properties"]["preset"]["description"] = fmt::format("start from this {} preset", preset->what);
            object.erase("required");
            properties[field.key] = {{"description", doc(field)}, {"anyOf", Json::array({name, object})}};
        } else if (field.alone != nullptr) {
            const Json one = object["properties"][field.alone];
            properties[field.key] = {{"description", doc(field)}, {"anyOf", Json::array({one, object})}};
        } else {
            object["description"] = doc(field);
            if (present != nullptr) {
                object["type"] = {"object", "string"};
                object["pattern"] = "^none$";
            }
            properties[field.key] = std::move(object);
        }
        if (field.required) {
            required.push_back(field.key);
        }
    }

    void range(const Field& field, Dimension dimension, double& low, double& high) override {
        Json& entry = add(field, "array", {format_quantity(low, dimension), format_quantity(high, dimension)});
        describe_unit(entry, field, dimension);
        entry["items"] = {{"type", "string"}};
        entry["minItems"] = entry["maxItems"] = 2;
    }
    void variant(const Field& field, const std::vector<std::string>& names, std::size_t& index, bool&,
                 const std::function<void(Fields&)>& describe) override {
        SchemaWriter inner;
        inner.choice(Field{"kind", field.doc}, names, index);
        describe(inner);
        properties[field.key] = {{"description", doc(field)},
                                 {"anyOf", Json::array({Json{{"enum", names}}, inner.object()})}};
    }
    void list(const Field& field, std::size_t&, const std::function<void(Fields&, std::size_t)>& describe) override {
        SchemaWriter inner;
        describe(inner, 0);
        Json item = inner.object();
        if (field.alone != nullptr) {
            const Json one = item["properties"][field.alone];
            item = {{"anyOf", Json::array({one, item})}};
        }
        properties[field.key] = {{"type", "array"}, {"description", doc(field)}, {"items", std::move(item)}};
    }
    void when(bool, const std::string& needs, const std::function<void(Fields&)>& describe, Unmet) override {
        const std::string outer = needs_;
        needs_ = outer.empty() ? needs : outer + ", and " + needs;
        describe(*this);
        needs_ = outer;
    }
    void needs(const std::string& path, bool, const std::string& needs, Unmet) override {
        Json* at = &properties;
        for (const std::string_view key : split(path, '.')) {
            at = at->contains("properties") ? &(*at)["properties"] : at;
            at = at->contains("anyOf") ? &(*at)["anyOf"].back()["properties"] : at;
            if (!at->contains(key)) {
                return;
            }
            at = &(*at)[std::string(key)];
        }
        (*at)["description"] = fmt::format(fmt::runtime(kNeeds), (*at)["description"].get<std::string>(), needs);
    }

    [[nodiscard]] Json object() const {
        Json out = {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
        if (!required.empty()) {
            out["required"] = required;
        }
        return out;
    }

  private:
    [[nodiscard]] std::string doc(const Field& field) const {
        return needs_.empty() ? field.doc : fmt::format(fmt::runtime(kNeeds), field.doc, needs_);
    }
    Json& add(const Field& field, const char* type, const Json& value) {
        Json entry = {{"type", type}, {"description", doc(field)}};
        if (field.required) {
            required.push_back(field.key);
        } else if (!value.is_null()) {
            entry["default"] = value;
        }
        return properties[field.key] = std::move(entry);
    }
    static void limits(Json& entry, const Field& field) {
        if (std::isfinite(field.min)) {
            entry["minimum"] = field.min;
        }
        if (std::isfinite(field.max)) {
            entry["maximum"] = field.max;
        }
    }
    void describe_unit(Json& entry, const Field& field, Dimension dimension) const {
        entry["description"] = fmt::format("{} (units: {})", doc(field), fmt::join(unit_names(dimension), ", "));
    }

    std::string needs_;  ///< that the fields being described have an effect
};

}  // namespace

std::string schema_of(const std::function<void(Fields&)>& describe) {
    SchemaWriter writer;
    describe(writer);
    return writer.object().dump(2);
}

}  // namespace orrery::config
