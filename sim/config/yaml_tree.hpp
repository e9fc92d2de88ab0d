#pragma once
// The strict YAML layer: text to a tree in which every value knows its file, line and column.
//
// yaml-cpp reads the text; this layer refuses what it lets pass: duplicate keys, unterminated quotes, several
// documents, aliases that explode ("YAML bombs"), files beyond 16 MiB and nesting beyond 64 levels. Scalars stay text:
// what a number means is decided where it is read, so `010` is never 8.

#include "sim/base/error.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orrery::config {

/// Where a value stands. Lines and columns count from 1; 0 means: not from a file (a default, the command line).
struct Mark {
    std::shared_ptr<const std::string> file;
    int line = 0;
    int column = 0;

    [[nodiscard]] Diagnostic error(const std::string& text, ErrorCode code = ErrorCode::contradiction) const {
        return Diagnostic{file ? *file : std::string(), line, column, text, code};
    }
};

struct YamlNode {
    enum class Kind { null, scalar, sequence, map };
    struct Entry;

    Kind kind = Kind::null;
    bool quoted = false;
    std::string scalar;
    Mark mark;
    std::vector<YamlNode> items;
    std::vector<Entry> entries;

    /// The value of a key, or nullptr.
    [[nodiscard]] const YamlNode* find(const std::string& key) const;
    [[nodiscard]] YamlNode* find(const std::string& key);
};

struct YamlNode::Entry {
    std::string key;
    Mark key_mark;
    YamlNode value;
};

/// Parses a text. `name` is what errors call it. Throws ConfigError with every problem found.
[[nodiscard]] YamlNode parse_yaml(const std::string& text, const std::string& name);
/// Reads and parses a file. Throws ConfigError when it cannot be read.
[[nodiscard]] YamlNode load_yaml(const std::string& path);

/// Applies `a.b.c=value` (value in YAML) to a tree; creates maps on the way; entries of lists go by their
/// `name` or their number from 0 on. Throws ConfigError.
void apply_override(YamlNode& root, const std::string& assignment);

/// The tree as canonical YAML-compatible JSON text, for hashing: keys in file order, scalars as strings.
[[nodiscard]] std::string canonical_text(const YamlNode& node);

}  // namespace orrery::config
