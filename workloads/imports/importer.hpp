#pragma once
// Importers: readers of what other tools write, one file and one row each.
//
// A row owns its name, description and options. `orrery import`, its help, completion and errors and `orrery list formats` come
// from the table; nobody else lists formats. An importer gives the text of a file that scenarios take, and counts what it read,
// what it left out and why, and what it had to assume.
// All of them throw ConfigError for a malformed, truncated or too large file, with the line or the byte where it is.

#include "sim/base/error.hpp"
#include "sim/config/data_directory.hpp"
#include "sim/record/json_text.hpp"

#include <cstdint>
#include <functional>
#include <istream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::imports {

/// Counts by their words, such as "kernels" or "events of category cpu_op".
class ImportNotes {
  public:
    using Counts = std::map<std::string, std::uint64_t>;

    void read(const std::string& what, std::uint64_t count = 1) { read_[what] += count; }
    /// `what` says why too, where the words alone do not.
    void left_out(const std::string& what, std::uint64_t count = 1) {
        if (count > 0) {
            left_out_[what] += count;
        }
    }
    void assumed(const std::string& what, std::uint64_t count = 1) { assumed_[what] += count; }
    [[nodiscard]] const Counts& read() const { return read_; }
    [[nodiscard]] const Counts& left_out() const { return left_out_; }
    [[nodiscard]] const Counts& assumed() const { return assumed_; }

  private:
    Counts read_, left_out_, assumed_;
};

/// An option of one importer, as `orrery import` takes it.
struct ImportOption {
    const char* name;      ///< without dashes
    const char* argument;  ///< what it takes, for people; empty: a switch
    const char* description;
};

/// Why a scenario cannot run, by the checks of a run; empty: it can. Throws ConfigError for one that is no scenario.
using ScenarioCheck = std::function<std::string(const std::string& text)>;

/// The file to read, with the options given.
class ImportInput {
  public:
    explicit ImportInput(std::string path, std::map<std::string, std::string> options = {})
        : path_(std::move(path)), options_(std::move(options)) {}
    /// As if a file `name` held these bytes.
    [[nodiscard]] static ImportInput of_bytes(std::string name, std::string bytes,
                                              std::map<std::string, std::string> options = {});

    /// The same with tables and presets, and with what checks the scenarios that are written.
    [[nodiscard]] ImportInput with(DataDirectory data, ScenarioCheck check = {}) const;

    [[nodiscard]] const DataDirectory& data() const { return data_; }
    [[nodiscard]] bool checks() const { return static_cast<bool>(check_); }
    /// Empty where nothing checks, too.
    [[nodiscard]] std::string problem(const std::string& scenario) const;
    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] bool in_memory() const { return bytes_.has_value(); }
    /// The whole file. Throws ConfigError when it cannot be read.
    [[nodiscard]] std::string bytes() const;
    /// The same as a stream, for what is read once from front to back and may be larger than memory.
    [[nodiscard]] std::unique_ptr<std::istream> stream() const;
    [[nodiscard]] bool has(const std::string& option) const { return options_.contains(option); }
    /// Empty when the option is not given.
    [[nodiscard]] std::string option(const std::string& name) const;
    /// A size in bytes, such as "4 MiB"; 0 when the option is not given. Throws ConfigError for anything else.
    [[nodiscard]] double bytes_option(const std::string& name) const;
    /// A whole number from 1 to 2^20; 0 when the option is not given. Throws ConfigError for anything else.
    [[nodiscard]] std::uint32_t whole_option(const std::string& name) const;

  private:
    std::string path_;
    std::map<std::string, std::string> options_;
    std::optional<std::string> bytes_;
    DataDirectory data_{""};
    ScenarioCheck check_;
};

struct Imported {
    std::string text;                             ///< the file to write
    std::string use;                              ///< what a scenario says to take it
    bool scenario = false;                        ///< the file is one, and nobody has looked yet whether it runs
    std::vector<std::vector<std::string>> facts;  ///< key and value, for people
    ImportNotes notes;
    std::vector<std::pair<std::string, std::string>> engine;  ///< of a model: keys of its checkpoint's precision
};

inline constexpr std::uint32_t kMostRanks = 1U << 20U;

/// One row of the table.
struct Importer {
    const char* name;
    const char* description;
    std::vector<ImportOption> options;
    Imported (*read)(const ImportInput& input);
    const char* extension = "replay";  ///< of the name of what is written, where the user gives none

    /// In the present folder.
    [[nodiscard]] std::string default_output(const std::string& input) const;
};
[[nodiscard]] const std::vector<const Importer*>& importer_table();
/// Throws ConfigError with the nearest name for a format that is not there.
[[nodiscard]] const Importer& importer(const std::string& format);
/// Reads `input` as `format`. Throws ConfigError for an option that belongs to other formats, too.
[[nodiscard]] Imported import_file(const std::string& format, const ImportInput& input);

}  // namespace orrery::imports
