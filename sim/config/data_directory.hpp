#pragma once
// Where presets and tables of measured values lie.

#include <string>
#include <utility>
#include <vector>

namespace orrery {

/// Where presets of a kind live and what they are called in messages.
struct PresetKind {
    const char* what;       ///< "node", "model"
    const char* directory;  ///< relative to the data directory, such as "workloads/data/models"
};

/// Where tables of measured or fitted values live that a field names.
struct TableKind {
    const char* directory;  ///< relative to the data directory; "/*" at its end: any folder in it
    const char* extension;  ///< of the files, such as ".fit"; empty: they are folders
};

/// Finds presets and data files. Holds the directory that has models/, topologies/, workloads/.
class DataDirectory {
  public:
    explicit DataDirectory(std::string root) : root_(std::move(root)) {}
    [[nodiscard]] const std::string& root() const { return root_; }
    /// Names of the presets of a kind, sorted.
    [[nodiscard]] std::vector<std::string> names(const PresetKind& kind) const;
    [[nodiscard]] std::vector<std::string> names(const TableKind& kind) const;
    [[nodiscard]] std::string path(const PresetKind& kind, const std::string& name) const;
    [[nodiscard]] std::string path(const std::string& relative) const { return root_ + "/" + relative; }

  private:
    std::string root_;
};

}  // namespace orrery
