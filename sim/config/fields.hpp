#pragma once
// One description of a section serves its reading, its writing, its JSON Schema and its explanation.
//
// A specification names its fields once, in a function `describe(Fields&, Spec&)`. Visitors do the rest:
//   Reader        YAML -> specification, collecting every error with its position
//   Writer        specification -> resolved JSON that reads back to the same specification
//   SchemaWriter  specification -> JSON Schema for editors
//   Explainer     specification -> each value with where it comes from

#include "sim/config/data_directory.hpp"
#include "sim/config/units.hpp"
#include "sim/config/yaml_tree.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace orrery::inline config {

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
    /// A nested map. With a preset kind, a plain word or `preset: name` starts from a file.
    /// `present` tells whether the section was given at all (stays as it was when not).
    virtual void section(const Field& field, const std::optional<PresetKind>& preset, bool& present,
                         const std::function<void(Fields&)>& describe) = 0;

    /// Two quantities in a list, the first not above the second.
    virtual void range(const Field& field, Dimension dimension, double& low, double& high) = 0;
    /// A choice that may carry parameters: a plain word, or a map with `kind` and what `describe` names.
    /// `detailed` tells which of the two was given, and decides which is written.
    virtual void variant(const Field& field, const std::vector<std::string>& names, std::size_t& index, bool& detailed,
                         const std::function<void(Fields&)>& describe) = 0;
    /// A list of maps. `count`: how many there are; a reader sets it before `describe` is called for each.
    virtual void list(const Field& field, std::size_t& count,
                      const std::function<void(Fields&, std::size_t)>& describe) = 0;
    /// Fields of this level that are written only when `given`: a reader sets it when it finds one of them.
    virtual void group(bool& given, const std::function<void(Fields&)>& describe) = 0;
    /// Fields of this level that belong to one policy of several, of which a visitor that `names_all` sees every one.
    virtual void alternative(const char* /*name*/, const char* /*description*/,
                             const std::function<void(Fields&)>& describe) {
        describe(*this);
    }

    void section(const Field& field, const std::function<void(Fields&)>& describe) {
        bool present = false;
        section(field, std::nullopt, present, describe);
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

/// Reads a map into a specification. Errors collect in `errors`; nothing is thrown but for unreadable presets.
void read_fields(const YamlNode& node, const DataDirectory& data, std::vector<Diagnostic>& errors,
                 const std::function<void(Fields&)>& describe, Origins* origins = nullptr);
/// The specification as JSON text (one object), fields in the order of description.
[[nodiscard]] std::string write_fields(const std::function<void(Fields&)>& describe);
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

}  // namespace orrery::inline config
