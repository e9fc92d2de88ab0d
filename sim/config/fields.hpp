#pragma once
// One description of a section serves its reading, its writing, its JSON Schema and its explanation.
//
// A specification names its fields once, in a function `describe(Fields&, Spec&)`. Visitors do the rest:
//   Reader        YAML -> specification, collecting every error with its position
//   Writer        specification -> resolved JSON that reads back to the same specification, and what in it has no effect
//   SchemaWriter  specification -> JSON Schema for editors
//   Explainer     specification -> each value with where it comes from

#include "sim/config/data_directory.hpp"
#include "sim/config/units.hpp"
#include "sim/config/yaml_tree.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace orrery::config {

/// A value with where it comes from. `how`: spec, measured, fitted, derived, assumed or scenario.
template <class T>
struct Sourced {
    T value{};
    std::string how;
    std::string source;
};

/// Name, documentation and limits of one field.
struct Field {
    const char* key;
    const char* doc;
    bool required = false;
    double min = -std::numeric_limits<double>::infinity();
    double max = std::numeric_limits<double>::infinity();
    const char* alone = nullptr;  ///< of a section: its key that a single value stands for, such as prompt: 1024
};

/// What becomes of a field that is given and has no effect: an error, or a note where sweeps give it to points that it
/// says nothing to.
enum class Unmet { refused, noted };

class Fields {
  public:
    virtual ~Fields() = default;
    /// True for a visitor that wants every field that there could be, and not only those of the choices made.
    [[nodiscard]] virtual bool names_all() const { return false; }
    virtual void integer(const Field& field, std::int64_t& value) = 0;
    virtual void number(const Field& field, double& value) = 0;
    virtual void boolean(const Field& field, bool& value) = 0;
    virtual void text(const Field& field, std::string& value) = 0;
    /// The name of a table; a reader sees that it is there.
    virtual void table(const Field& field, const TableKind&, std::string& value) { text(field, value); }
    /// A quantity in base units; limits are in base units too.
    virtual void quantity(const Field& field, Dimension dimension, double& value) = 0;
    /// As quantity, but the value may carry its source: {value: ..., how: ..., source: ...}.
    virtual void sourced(const Field& field, Dimension dimension, Sourced<double>& value) = 0;
    virtual void choice(const Field& field, const std::vector<std::string>& names, std::size_t& index) = 0;
    /// A nested map. With a preset kind, a plain word or `preset: name` starts from a file. `present`: whether the map is
    /// there, of one whose presence turns something on; null: it always is, with its defaults.
    virtual void nested(const Field& field, const PresetKind* preset, bool* present,
                        const std::function<void(Fields&)>& describe) = 0;

    /// Two quantities in a list, the first not above the second.
    virtual void range(const Field& field, Dimension dimension, double& low, double& high) = 0;
    /// A choice that may carry parameters: a plain word, or a map with `kind` and what `describe` names.
    /// `parameters`: whether the choice made has any; a reader sets it where it finds a map.
    virtual void variant(const Field& field, const std::vector<std::string>& names, std::size_t& index,
                         bool& parameters, const std::function<void(Fields&)>& describe) = 0;
    /// A list of maps. `count`: how many there are; a reader sets it before `describe` is called for each.
    virtual void list(const Field& field, std::size_t& count,
                      const std::function<void(Fields&, std::size_t)>& describe) = 0;
    /// Fields of this level that belong to one policy of several, of which a visitor that `names_all` sees every one.
    virtual void alternative(const char* /*name*/, const char* /*description*/,
                             const std::function<void(Fields&)>& describe) {
        describe(*this);
    }
    /// Fields of this level that have an effect only while `holds`. `needs` completes "has no effect without".
    virtual void when(bool /*holds*/, const std::string& /*needs*/, const std::function<void(Fields&)>& describe,
                      Unmet /*unmet*/ = Unmet::refused) {
        describe(*this);
    }
    /// The same of a field by its path below this level, where the condition spans sections. Called after its description.
    virtual void needs(const std::string& /*path*/, bool /*holds*/, const std::string& /*needs*/,
                       Unmet /*unmet*/ = Unmet::refused) {}
    /// The defaults of fields of this level, where they follow from a choice that was made.
    virtual void defaults(const std::function<void(Fields&)>& /*describe*/) {}

    void section(const Field& field, const std::function<void(Fields&)>& describe) {
        nested(field, nullptr, nullptr, describe);
    }
    void section(const Field& field, const PresetKind& preset, const std::function<void(Fields&)>& describe) {
        nested(field, &preset, nullptr, describe);
    }
    /// A section whose presence turns something on.
    void optional(const Field& field, bool& present, const std::function<void(Fields&)>& describe) {
        nested(field, nullptr, &present, describe);
    }
    void optional(const Field& field, const PresetKind& preset, bool& present,
                  const std::function<void(Fields&)>& describe) {
        nested(field, &preset, &present, describe);
    }
    /// An enumeration that may be left to something else, which `otherwise` names.
    template <class Enum>
    void enumeration(const Field& field, std::vector<std::string> names, const char* otherwise,
                     std::optional<Enum>& value) {
        names.emplace_back(otherwise);
        std::size_t index = value ? static_cast<std::size_t>(*value) : names.size() - 1;
        choice(field, names, index);
        value = index + 1 < names.size() ? std::optional(static_cast<Enum>(index)) : std::nullopt;
    }
    /// A quantity without a default.
    void quantity(const Field& field, Dimension dimension, std::optional<double>& value) {
        double number = value.value_or(std::numeric_limits<double>::quiet_NaN());
        quantity(field, dimension, number);
        if (number == number) {
            value = number;
        }
    }
    /// A list of maps in a vector, each described by `describe_one(Fields&, T&)`; `usual`: one as it is before it is read.
    template <class T, class Describe>
    void items(const Field& field, std::vector<T>& all, const Describe& describe_one, const T& usual = T()) {
        std::size_t count = all.size();
        const bool shown = names_all() && all.empty();
        list(field, count, [&](Fields& inner, std::size_t i) {
            all.resize(std::max(all.size(), std::max(count, i + 1)), usual);
            inner.defaults([&](Fields& fields) {
                T one = usual;
                describe_one(fields, one);
            });
            describe_one(inner, all[i]);
        });
        all.resize(shown ? 0 : std::min(all.size(), count));
    }
    /// An enumeration whose values are 0, 1, 2... in the order of `names`.
    template <class Enum>
    void enumeration(const Field& field, const std::vector<std::string>& names, Enum& value) {
        auto index = static_cast<std::size_t>(value);
        choice(field, names, index);
        value = static_cast<Enum>(index);
    }
};

/// Where each given value stands ("file:line"), by path such as "plan.tensor"; what is not in it is a default.
using Origins = std::map<std::string, std::string>;

/// Reads a map into a specification. Errors collect in `errors`; nothing is thrown but for unreadable presets. `besides`: a key of the map
/// that somebody else reads.
void read_fields(const YamlNode& node, const DataDirectory& data, std::vector<Diagnostic>& errors,
                 const std::function<void(Fields&)>& describe, Origins* origins = nullptr,
                 const char* besides = nullptr);
/// The specification as JSON text (one object), fields in the order of description, with all its defaults.
[[nodiscard]] std::string write_fields(const std::function<void(Fields&)>& describe);
/// The same without what is as in `usual`, which describes a specification with its defaults, and without what has no effect.
[[nodiscard]] std::string write_differences(const std::function<void(Fields&)>& describe,
                                            const std::function<void(Fields&)>& usual);

/// What a specification gives to no effect.
struct WithoutEffect {
    std::vector<Diagnostic> errors;
    std::vector<std::string> notes;
};
/// Looks for what differs from its default in `node`, from which the specification was read, and whose condition (Fields::when,
/// Fields::needs) does not hold. What stands beside overrides may lose its meaning by them: errors are then of overrides alone.
[[nodiscard]] WithoutEffect without_effect(const YamlNode& node, const std::function<void(Fields&)>& describe,
                                           const std::function<void(Fields&)>& usual);
/// The JSON Schema of one object, as text.
[[nodiscard]] std::string schema_of(const std::function<void(Fields&)>& describe);

/// One value of a specification with its origin.
struct Explained {
    std::string path;
    std::string value;
    std::string how;
    std::string source;
    std::string doc;
};
[[nodiscard]] std::vector<Explained> explain_fields(const std::function<void(Fields&)>& describe);

}  // namespace orrery::config
