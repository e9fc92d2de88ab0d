// Fields as values with their sources.

#include "sim/base/error.hpp"
#include "sim/config/fields.hpp"

#include <fmt/format.h>

#include <cmath>

namespace orrery::config {

namespace {

class Explainer final : public Fields {
  public:
    std::vector<Explained> found;
    std::string prefix;

    void integer(const Field& field, std::int64_t& value) override { add(field, std::to_string(value)); }
    void number(const Field& field, double& value) override { add(field, fmt::format("{}", value)); }
    void boolean(const Field& field, bool& value) override { add(field, value ? "true" : "false"); }
    void text(const Field& field, std::string& value) override {
        if (!value.empty()) {
            add(field, value);
        }
    }
    void quantity(const Field& field, Dimension dimension, double& value) override {
        if (!std::isnan(value)) {
            add(field, pretty_quantity(value, dimension));
        }
    }
    void sourced(const Field& field, Dimension dimension, Sourced<double>& value) override {
        if (!value.how.empty()) {
            found.push_back(Explained{prefix + field.key, pretty_quantity(value.value, dimension), value.how,
                                      value.source, field.doc});
        }
    }
    void choice(const Field& field, const std::vector<std::string>& names, std::size_t& index) override {
        ORRERY_ASSERT(index < names.size());
        add(field, names[index]);
    }
    void nested(const Field& field, const PresetKind*, bool* present,
                const std::function<void(Fields&)>& describe) override {
        if (present != nullptr && !*present) {
            return;
        }
        const std::string outer = prefix;
        prefix += std::string(field.key) + ".";
        describe(*this);
        prefix = outer;
    }
    void range(const Field& field, Dimension dimension, double& low, double& high) override {
        add(field, fmt::format("{} to {}", pretty_quantity(low, dimension), pretty_quantity(high, dimension)));
    }
    void variant(const Field& field, const std::vector<std::string>& names, std::size_t& index, bool& parameters,
                 const std::function<void(Fields&)>& describe) override {
        choice(field, names, index);
        nested(field, nullptr, &parameters, describe);
    }
    void list(const Field& field, std::size_t& count,
              const std::function<void(Fields&, std::size_t)>& describe) override {
        const std::string outer = prefix;
        for (std::size_t i = 0; i < count; ++i) {
            prefix = fmt::format("{}{}.{}.", outer, field.key, i);
            describe(*this, i);
        }
        prefix = outer;
    }
    void when(bool holds, const std::string&, const std::function<void(Fields&)>& describe, Unmet) override {
        if (holds) {
            describe(*this);
        }
    }

  private:
    void add(const Field& field, const std::string& value) {
        found.push_back(Explained{prefix + field.key, value, "", "", field.doc});
    }
};

}  // namespace

std::vector<Explained> explain_fields(const std::function<void(Fields&)>& describe) {
    Explainer explainer;
    describe(explainer);
    return std::move(explainer.found);
}

}  // namespace orrery::config
