#pragma once
// A walk through the same of a description that exist by its choices, for what changes some of them in place.

#include "sim/config/fields.hpp"

#include <fmt/format.h>

namespace orrery::explain {

/// Visits everything and changes nothing; who derives overrides what it looks at. Keys have their path in front: "fabric.links.0.".
class FieldWalk : public Fields {
  public:
    void integer(const Field& /*field*/, std::int64_t& /*value*/) override {}
    void number(const Field& /*field*/, double& /*value*/) override {}
    void boolean(const Field& /*field*/, bool& /*value*/) override {}
    void text(const Field& /*field*/, std::string& /*value*/) override {}
    void quantity(const Field& /*field*/, Dimension /*dimension*/, double& /*value*/) override {}
    void sourced(const Field& /*field*/, Dimension /*dimension*/, Sourced<double>& /*value*/) override {}
    void choice(const Field& /*field*/, const std::vector<std::string>& /*names*/, std::size_t& /*index*/) override {}
    void range(const Field& /*field*/, Dimension /*dimension*/, double& /*low*/, double& /*high*/) override {}
    void nested(const Field& field, const PresetKind* /*preset*/, bool* present,
                const std::function<void(Fields&)>& describe) override {
        if (present == nullptr || *present) {
            within(fmt::format("{}.", field.key), [&] { describe(*this); });
        }
    }
    void variant(const Field& field, const std::vector<std::string>& /*names*/, std::size_t& /*index*/,
                 bool& parameters, const std::function<void(Fields&)>& describe) override {
        nested(field, nullptr, &parameters, describe);
    }
    void list(const Field& field, std::size_t& count,
              const std::function<void(Fields&, std::size_t)>& describe) override {
        for (std::size_t i = 0; i < count; ++i) {
            within(fmt::format("{}.{}.", field.key, i), [&] { describe(*this, i); });
        }
    }

  protected:
    [[nodiscard]] const std::string& prefix() const { return prefix_; }

  private:
    void within(const std::string& key, const std::function<void()>& visit) {
        const std::string outer = prefix_;
        prefix_ += key;
        visit();
        prefix_ = outer;
    }

    std::string prefix_;
};

}  // namespace orrery::explain
