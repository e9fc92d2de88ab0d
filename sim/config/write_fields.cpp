// Fields as JSON.

#include "sim/config/fields.hpp"
#include "sim/config/given.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace orrery::inline config {

namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Writes text as it goes: each key is named once, and many scenarios are written only to be told apart.
class Writer final : public Fields {
  public:
    [[nodiscard]] std::string take() { return std::move(out_) + '}'; }

    void integer(const Field& field, std::int64_t& value) override { begin(field.key) += std::to_string(value); }
    void number(const Field& field, double& value) override { begin(field.key) += text_of(value); }
    void boolean(const Field& field, bool& value) override { begin(field.key) += value ? "true" : "false"; }
    void text(const Field& field, std::string& value) override {
        if (!value.empty()) {
            begin(field.key);
            quote(value);
        }
    }
    void quantity(const Field& field, Dimension dimension, double& value) override {
        begin(field.key);
        quote(format_quantity(value, dimension));
    }
    void sourced(const Field& field, Dimension dimension, Sourced<double>& value) override {
        if (value.how == kGivenInScenario) {
            // The line it stands on is no part of the scenario: what a run depends on stays when lines are added above.
            begin(field.key);
            quote(format_quantity(value.value, dimension));
        } else if (!value.how.empty()) {
            begin(field.key) += "{\"value\":";
            quote(format_quantity(value.value, dimension));
            out_ += ",\"how\":";
            quote(value.how);
            out_ += ",\"source\":";
            quote(value.source);
            out_ += '}';
        }
    }
    void choice(const Field& field, const std::vector<std::string>& names, std::size_t& index) override {
        begin(field.key);
        quote(names[index]);
    }
    void section(const Field& field, const std::optional<PresetKind>&, bool&,
                 const std::function<void(Fields&)>& describe) override {
        begin(field.key);
        inside([&] { describe(*this); });
    }
    void range(const Field& field, Dimension dimension, double& low, double& high) override {
        begin(field.key) += '[';
        quote(format_quantity(low, dimension));
        out_ += ',';
        quote(format_quantity(high, dimension));
        out_ += ']';
    }
    void variant(const Field& field, const std::vector<std::string>& names, std::size_t& index, bool& detailed,
                 const std::function<void(Fields&)>& describe) override {
        if (!detailed) {
            return choice(field, names, index);
        }
        begin(field.key);
        inside([&] {
            begin("kind");
            quote(names[index]);
            describe(*this);
        });
    }
    void list(const Field& field, std::size_t& count,
              const std::function<void(Fields&, std::size_t)>& describe) override {
        begin(field.key) += '[';
        for (std::size_t i = 0; i < count; ++i) {
            out_ += i > 0 ? "," : "";
            inside([&] { describe(*this, i); });
        }
        out_ += ']';
    }
    void group(bool& given, const std::function<void(Fields&)>& describe) override {
        if (given) {
            describe(*this);
        }
    }

  private:
    // Names the next value of the present map.
    std::string& begin(const char* key) {
        if (out_.back() != '{') {
            out_ += ',';
        }
        out_ += '"';
        out_ += key;
        return out_ += "\":";
    }
    void quote(const std::string& value) {
        const bool plain = std::all_of(value.begin(), value.end(),
                                       [](char c) { return c >= ' ' && c < '\x7f' && c != '"' && c != '\\'; });
        if (plain) {
            out_ += '"';
            out_ += value;
            out_ += '"';
        } else {
            out_ += text_of(value);
        }
    }
    template <class Describe>
    void inside(const Describe& describe) {
        out_ += '{';
        describe();
        out_ += '}';
    }

    std::string out_ = "{";
};

}  // namespace

std::string write_fields(const std::function<void(Fields&)>& describe) {
    Writer writer;
    describe(writer);
    return writer.take();
}

}  // namespace orrery::inline config
