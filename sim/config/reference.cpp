#include "sim/config/reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::config {

namespace {

class ReferenceWriter final : public Fields {
  public:
    std::vector<KeyReference> rows;

    [[nodiscard]] bool names_all() const override { return true; }

    void integer(const Field& field, std::int64_t& value) override {
        KeyReference& row = add(field, "whole number");
        row.range = limits(field, [](double limit) { return fmt::format("{}", static_cast<std::int64_t>(limit)); });
        with_default(row, field, std::to_string(value), value != 0);
        if (row.example.empty()) {
            row.example = fmt::format("{}", static_cast<std::int64_t>(inside(field, 1)));
        }
    }
    void number(const Field& field, double& value) override {
        KeyReference& row = add(field, "number");
        row.range = limits(field, [](double limit) { return fmt::format("{:g}", limit); });
        with_default(row, field, fmt::format("{}", value), value != 0);
        if (row.example.empty()) {
            row.example = fmt::format("{:g}", inside(field, 1));
        }
    }
    void boolean(const Field& field, bool& value) override {
        KeyReference& row = add(field, "true or false");
        with_default(row, field, value ? "true" : "false", false);
        row.example = value ? "false" : "true";
    }
    void text(const Field& field, std::string& value) override {
        KeyReference& row = add(field, "text");
        with_default(row, field, value, true);
        if (row.example.empty()) {
            row.example = fmt::format("my-{}", field.key);
        }
    }
    void table(const Field& field, const TableKind& kind, std::string& value) override {
        text(field, value);
        rows.back().type = "name of a table";
        rows.back().presets = kind.directory;
        rows.back().example = value;  // else one of the names
    }
    void quantity(const Field& field, Dimension dimension, double& value) override {
        KeyReference& row = add(field, name_of(dimension));
        row.units = unit_names(dimension);
        row.range = limits(field, [&](double limit) { return pretty_quantity(limit, dimension); });
        if (!std::isnan(value)) {
            with_default(row, field, pretty_quantity(value, dimension), value != 0);
        }
        if (row.example.empty()) {
            row.example = pretty_quantity(inside(field, usual(dimension)), dimension);
        }
    }
    void sourced(const Field& field, Dimension dimension, Sourced<double>& value) override {
        quantity(field, dimension, value.value);
        rows.back().type += ", or {value, how, source}";
        if (value.how.empty()) {
            rows.back().otherwise.clear();
        }
    }
    void choice(const Field& field, const std::vector<std::string>& names, std::size_t& index) override {
        KeyReference& row = add(field, "one of");
        with_default(row, field, names[index], false);
        row.example = names[names.size() > 1 && index == 0 ? 1 : 0];
        for (const std::string& name : names) {
            row.choices.emplace_back(name, "");
        }
    }
    void nested(const Field& field, const PresetKind* preset, bool* present,
                const std::function<void(Fields&)>& describe) override {
        KeyReference& row = add(field, preset != nullptr ? "name of a preset" : "keys");
        if (field.alone != nullptr) {
            row.type = fmt::format("keys, or `{}` alone", field.alone);
        } else if (present != nullptr && preset == nullptr) {
            row.type = "keys, or `none`";
        }
        row.or_keys = preset != nullptr;
        row.section = true;
        row.required = field.required;
        if (preset != nullptr) {
            row.presets = preset->directory;
        }
        inside_of(std::string(field.key) + ".", [&] {
            if (preset != nullptr) {
                KeyReference& base = add({"preset", "the preset that the other keys change"}, "name of a preset");
                base.presets = preset->directory;
            }
            describe(*this);
        });
    }
    void range(const Field& field, Dimension dimension, double& low, double& high) override {
        KeyReference& row = add(field, "");
        row.type = fmt::format("list of two of {}", name_of(dimension));
        row.units = unit_names(dimension);
        row.range = limits(field, [&](double limit) { return pretty_quantity(limit, dimension); });
        const std::string both =
            fmt::format("[{}, {}]", pretty_quantity(low, dimension), pretty_quantity(high, dimension));
        with_default(row, field, both, true);
    }
    void variant(const Field& field, const std::vector<std::string>& names, std::size_t& index, bool&,
                 const std::function<void(Fields&)>& describe) override {
        choice(field, names, index);
        rows.back().or_keys = true;
        rows.back().section = true;
        inside_of(std::string(field.key) + ".", [&] { describe(*this); });
    }
    void list(const Field& field, std::size_t&, const std::function<void(Fields&, std::size_t)>& describe) override {
        KeyReference& row = add(field, "list of maps");
        if (field.alone != nullptr) {
            row.type = fmt::format("list of maps, or of `{}` alone", field.alone);
        }
        row.section = true;
        inside_of(std::string(field.key) + "[].", [&] { describe(*this, 0); });
    }
    void when(bool, const std::string& needs, const std::function<void(Fields&)>& describe, Unmet) override {
        const std::string outer = needs_;
        needs_ = outer.empty() ? needs : outer + ", and " + needs;
        describe(*this);
        needs_ = outer;
    }
    void needs(const std::string& path, bool, const std::string& needs, Unmet) override {
        for (KeyReference& row : rows) {
            if (row.path == prefix_ + path) {
                row.needs = needs;
            }
        }
    }
    void alternative(const char* name, const char* description, const std::function<void(Fields&)>& describe) override {
        // The choice stands in this section as `kind`, or is the section itself.
        const std::string section = prefix_.empty() ? "" : prefix_.substr(0, prefix_.size() - 1);
        for (KeyReference& row : rows) {
            if (row.path == prefix_ + "kind" || row.path == section) {
                for (auto& [choice, help] : row.choices) {
                    help = choice == name ? description : help;
                }
            }
        }
        const std::string outer = policy_;
        policy_ = name;
        describe(*this);
        policy_ = outer;
    }

  private:
    KeyReference& add(const Field& field, const char* type) {
        KeyReference row;
        row.path = prefix_ + field.key;
        row.doc = field.doc;
        row.type = type;
        row.required = field.required;
        row.policy = policy_;
        row.needs = needs_;
        return rows.emplace_back(std::move(row));
    }
    void inside_of(const std::string& section, const std::function<void()>& describe) {
        const std::string outer = prefix_;
        const std::string outer_policy = policy_;
        const std::string outer_needs = needs_;
        prefix_ += section;
        policy_.clear();
        needs_.clear();
        describe();
        needs_ = outer_needs;
        prefix_ = outer;
        policy_ = outer_policy;
    }
    static void with_default(KeyReference& row, const Field& field, const std::string& value, bool telling) {
        if (!field.required) {
            row.otherwise = value;
            row.example = telling ? value : "";
        }
    }
    template <class Show>
    static std::string limits(const Field& field, const Show& show) {
        const bool low = std::isfinite(field.min);
        const bool high = std::isfinite(field.max);
        return low && high ? fmt::format("{} to {}", show(field.min), show(field.max))
               : low       ? "at least " + show(field.min)
               : high      ? "at most " + show(field.max)
                           : "";
    }
    static const char* name_of(Dimension dimension) {
        switch (dimension) {
            case Dimension::time:
                return "time";
            case Dimension::bytes:
                return "size";
            case Dimension::rate:
                return "rate";
            case Dimension::flops:
                return "FLOP rate";
            case Dimension::frequency:
                return "frequency";
            case Dimension::power:
                return "power";
            case Dimension::fraction:
                return "share";
            case Dimension::number:
                return "number";
        }
        return "";
    }
    static double inside(const Field& field, double value) { return std::clamp(value, field.min, field.max); }
    // A value in base units that is of the usual size.
    static double usual(Dimension dimension) {
        switch (dimension) {
            case Dimension::bytes:
                return 1024.0 * 1024 * 1024;
            case Dimension::rate:
            case Dimension::flops:
            case Dimension::frequency:
                return 1e9;
            case Dimension::power:
                return 100;
            case Dimension::fraction:
                return 0.5;
            case Dimension::time:
            case Dimension::number:
                return 1;
        }
        return 1;
    }

    std::string prefix_;
    std::string policy_;  ///< that the fields being described belong to
    std::string needs_;   ///< that they have an effect
};

}  // namespace

std::vector<KeyReference> reference_of(const std::function<void(Fields&)>& describe) {
    ReferenceWriter writer;
    describe(writer);
    return std::move(writer.rows);
}

}  // namespace orrery::config
