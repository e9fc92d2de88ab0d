#pragma once
// Where presets and tables of measured values lie.

#include "sim/base/namespaces.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orrery::config {

struct YamlNode;

/// Where presets of a kind live and what they are called in messages.
struct PresetKind {
    const char* what;       ///< "node", "model"
    const char* directory;  ///< relative to the data directory, such as "workloads/data/models"
    /// A key of it that takes presets of its own, and where these are: who names one of them in the place of the whole is told.
    const char* part = nullptr;
    const char* part_directory = nullptr;
};

/// Where tables of measured or fitted values live that a field names.
struct TableKind {
    const char* directory;  ///< relative to the data directory; "/*" at its end: any folder in it
    const char* extension;  ///< of the files, such as ".fit"; empty: they are folders
};

/// Finds presets and data files. Holds the directory that has models/, topologies/, workloads/, and may hold one of the user's
/// own with the same layout: a file, or a folder of kernels, that is in it goes before that of the same name.
class DataDirectory {
  public:
    explicit DataDirectory(std::string root, std::string own = {}) : root_(std::move(root)), own_(std::move(own)) {}
    [[nodiscard]] const std::string& root() const { return root_; }
    /// Empty where there is none.
    [[nodiscard]] const std::string& own() const { return own_; }
    /// The same with a directory of the user's own. Throws ConfigError where it has none of the folders of data.
    [[nodiscard]] DataDirectory with_own(const std::string& own) const;
    /// The same, which lists each directory and reads each preset once: for many scenarios, over which the files stay as they are.
    [[nodiscard]] DataDirectory read_once() const;
    /// The file of a preset. Throws ConfigError where it cannot be read.
    [[nodiscard]] std::shared_ptr<const YamlNode> preset(const PresetKind& kind, const std::string& name) const;
    /// Names of the presets of a kind, sorted.
    [[nodiscard]] std::vector<std::string> names(const PresetKind& kind) const;
    [[nodiscard]] std::vector<std::string> names(const TableKind& kind) const;
    [[nodiscard]] std::string path(const PresetKind& kind, const std::string& name) const;
    [[nodiscard]] std::string path(const std::string& relative) const;

  private:
    struct Read;
    [[nodiscard]] std::vector<std::string> listed(const TableKind& kind) const;

    std::string root_, own_;
    std::shared_ptr<Read> read_;  ///< shared by copies; null: every answer is read anew
};

}  // namespace orrery::config
