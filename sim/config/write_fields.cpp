// Fields as JSON.

#include "sim/config/fields.hpp"
#include "sim/config/given.hpp"

#include <nlohmann/json.hpp>

namespace orrery::inline config {

namespace {

using Json = nlohmann::ordered_json;

class Writer final : public Fields {
  public:
    Json json = Json::object();

    void integer(const Field& field, std::int64_t& value) override { json[field.key] = value; }
    void number(const Field& field, double& value) override { json[field.key] = value; }
    void boolean(const Field& field, bool& value) override { json[field.key] = value; }
    void text(const Field& field, std::string& value) override {
        if (!value.empty()) {
            json[field.key] = value;
        }
    }
    void quantity(const Field& field, Dimension dimension, double& value) override {
        json[field.key] = format_quantity(value, dimension);
    }
    void sourced(const Field& field, Dimension dimension, Sourced<double>& value) override {
        if (value.how == kGivenInScenario) {
            // The line it stands on is no part of the scenario: what a run depends on stays when lines are added above.
            json[field.key] = format_quantity(value.value, dimension);
        } else if (!value.how.empty()) {
            json[field.key] = {
                {"value", format_quantity(value.value, dimension)}, {"how", value.how}, {"source", value.source}};
        }
    }
    void choice(const Field& field, const std::vector<std::string>& names, std::size_t& index) override {
        json[field.key] = names[index];
    }
    void section(const Field& field, const std::optional<PresetKind>&, bool&,
                 const std::function<void(Fields&)>& describe) override {
        Writer inner;
        describe(inner);
        json[field.key] = std::move(inner.json);
    }
    void range(const Field& field, Dimension dimension, double& low, double& high) override {
        json[field.key] = {format_quantity(low, dimension), format_quantity(high, dimension)};
    }
    void variant(const Field& field, const std::vector<std::string>& names, std::size_t& index, bool& detailed,
                 const std::function<void(Fields&)>& describe) override {
        if (!detailed) {
            return choice(field, names, index);
        }
        Writer inner;
        inner.json["kind"] = names[index];
        describe(inner);
        json[field.key] = std::move(inner.json);
    }
    void list(const Field& field, std::size_t& count,
              const std::function<void(Fields&, std::size_t)>& describe) override {
        json[field.key] = Json::array();
        for (std::size_t i = 0; i < count; ++i) {
            Writer inner;
            describe(inner, i);
            json[field.key].push_back(std::move(inner.json));
        }
    }
    void group(bool& given, const std::function<void(Fields&)>& describe) override {
        if (given) {
            describe(*this);
        }
    }
};

}  // namespace

std::string write_fields(const std::function<void(Fields&)>& describe) {
    Writer writer;
    describe(writer);
    return writer.json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace orrery::inline config
