#pragma once
// What importers of graphs share: vertices and edges of a file as a scenario with `fabric: {kind: graph}`.

#include "sim/config/units.hpp"
#include "workloads/imports/importer.hpp"

#include <string>
#include <vector>

namespace orrery::imports {

/// Switches and hosts with the links between them, both directions each. Base units.
class GraphText {
  public:
    enum class Kind { unknown, host, nodes_on_switch };

    /// `file` is what errors call it.
    explicit GraphText(std::string file) : file_(std::move(file)) {}

    /// Where the next vertex or link stands, for errors; 0: unknown.
    void at(int line) { line_ = line; }
    /// A vertex is made when it is first named. `nodes` hang on it besides the hosts that have vertices of their own.
    void add_vertex(const std::string& name, Kind kind = Kind::unknown, std::uint32_t nodes = 0);
    /// Rate in B/s and latency in s; below 0 where the file does not say it.
    void add_link(const std::string& from, const std::string& to, double rate, double latency, std::uint32_t count = 1);
    /// Adds an error, which as_scenario() throws: here, or at a line of another file. Throws itself when there are a hundred.
    void error(const std::string& text);
    void error(const Diagnostic& diagnostic);

    /// "400 Gbps", "1.5 us"; a number alone counts in `unit` (0: not allowed). -1 for an empty text,
    /// not a number for one that is wrong.
    [[nodiscard]] double rate(const std::string& text, double unit = 0);
    [[nodiscard]] double latency(const std::string& text, double unit = 0);

    /// The scenario, `format` having written it. Vertices of unknown kind with one link are hosts where none is said to be one.
    /// Throws ConfigError with every problem found.
    [[nodiscard]] Imported as_scenario(const ImportInput& input, const char* format, ImportNotes notes);

  private:
    struct Vertex {
        std::string name;
        Kind kind = Kind::unknown;
        std::uint32_t nodes = 0;
        std::uint32_t links = 0;
        int line = 0;
    };
    struct Link {
        std::size_t from, to;
        double rate, latency;
        std::uint32_t count;
        int line;
    };

    std::size_t number_of(const std::string& name);
    void tell_hosts(ImportNotes& notes);
    void require_paths();
    void take_defaults(const ImportInput& input, ImportNotes& notes);
    [[nodiscard]] double value_of(const std::string& text, double unit, Dimension dimension, const char* what);

    std::string file_;
    int line_ = 0;
    std::map<std::string, std::size_t> numbers_;
    std::vector<Vertex> vertices_;
    std::vector<Link> links_;
    std::vector<Diagnostic> errors_;
};

/// Options of every format of graphs.
[[nodiscard]] std::vector<ImportOption> graph_options();

}  // namespace orrery::imports
