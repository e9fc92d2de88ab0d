#pragma once
// A configuration file (YAML, JSON or TOML) by its dotted keys: shared by importers of other tools' configurations.
//
// A key that is asked for counts as read. Every other one is listed: without effect, not modelled, or not understood.

#include "sim/config/yaml_tree.hpp"
#include "workloads/imports/command_text.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace orrery::imports {

/// A YAML document. Throws ConfigError where the text holds nothing: "expected ..., and the file is empty".
[[nodiscard]] YamlNode expected_yaml(const std::string& text, const std::string& name, const std::string& expected);

class ConfigText {
  public:
    /// Values of a list are joined by ", "; those of a list of maps have its number in their key.
    explicit ConfigText(const YamlNode& root);

    [[nodiscard]] bool has(const std::string& key);
    /// The value of the first of these keys that is given; empty when none is, or when it is null.
    [[nodiscard]] std::string text(const std::vector<std::string>& keys);
    /// The same as a whole number from `least` to `most`; nothing where it is null, or as `absent` says. Throws ConfigError else.
    [[nodiscard]] std::optional<std::int64_t> whole(const std::vector<std::string>& keys, double most = 1e12,
                                                    double least = 1, const std::string& absent = "");
    [[nodiscard]] bool is_true(const std::vector<std::string>& keys);
    /// Something wrong with the first of these keys that is given, at its place; else at the start of the file.
    [[nodiscard]] Diagnostic error(const std::vector<std::string>& keys, const std::string& problem) const;
    /// Keys that are not read, with the reason of the group that names them; a name that ends with a dot covers what is below it.
    void count(ImportNotes& notes, const std::vector<FlagGroup>& groups) const;
    /// All keys in the order of their names.
    [[nodiscard]] std::vector<std::string> keys() const;

  private:
    struct Value {
        std::string text;
        Mark mark;
    };
    void add(const YamlNode& node, const std::string& path, const Mark& mark);

    Mark start_;
    std::map<std::string, Value> values_;
    std::set<std::string> used_;
};

/// The overrides of a command line of Hydra, as in "python main.py model.layers=2 +data.size=4", as a map; none where it has none.
[[nodiscard]] std::optional<YamlNode> read_overrides(const std::string& text, const std::string& name);

}  // namespace orrery::imports
