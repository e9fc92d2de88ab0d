// A graph as a table of its links: a header, then a line for each link.
//
// Columns: from, to; rate (with a unit) or gbps; latency (with a unit) or latency_us; count. Others are left out. Lines that
// begin with # are comments. Hosts are the vertices with one link; `--switches FILE` has the columns name and nodes instead.

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "workloads/imports/graph_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <set>
#include <string_view>

namespace orrery::imports {

namespace {

std::string trimmed(std::string_view text) {
    const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
    while (!text.empty() && blank(text.front())) {
        text.remove_prefix(1);
    }
    while (!text.empty() && blank(text.back())) {
        text.remove_suffix(1);
    }
    if (text.size() > 1 && text.front() == '"' && text.back() == '"') {
        text = text.substr(1, text.size() - 2);
    }
    return std::string(text);
}

// The lines of a table by the names of its columns.
class Table {
  public:
    Table(const std::string& text, std::string file, GraphText& graph) : file_(std::move(file)), graph_(graph) {
        int line = 0;
        for (const std::string_view row : split(text, '\n')) {
            ++line;
            if (trimmed(row).empty() || trimmed(row).front() == '#') {
                continue;
            }
            std::vector<std::string> cells;
            for (const std::string_view cell : split(row, ',')) {
                cells.push_back(trimmed(cell));
            }
            if (columns_.empty()) {
                columns_ = cells;
                std::set<std::string_view> seen;
                for (const std::string& cell : cells) {
                    if (!seen.insert(cell).second) {
                        graph_.error(Diagnostic{file_, line, 1,
                                                fmt::format("column '{}' comes twice", printable(cell, 60)),
                                                ErrorCode::malformed_trace});
                    }
                }
            } else if (cells.size() != columns_.size()) {
                graph_.error(Diagnostic{
                    file_, line, 1,
                    fmt::format("{} values where the header names {} columns", cells.size(), columns_.size()),
                    ErrorCode::malformed_trace});
            } else {
                rows_.push_back({line, std::move(cells)});
            }
        }
    }
    void require(const std::vector<std::string>& names) const {
        std::vector<Diagnostic> errors;
        for (const std::string& name : names) {
            if (std::find(columns_.begin(), columns_.end(), name) == columns_.end()) {
                errors.push_back(Diagnostic{file_, 1, 1,
                                            fmt::format("no column '{}' in the header, which has {}", name,
                                                        printable(fmt::format("{}", fmt::join(columns_, ", ")), 60)),
                                            ErrorCode::malformed_trace});
            }
        }
        if (!errors.empty()) {
            throw ConfigError(errors);
        }
    }
    void count_others(const std::vector<std::string>& known, ImportNotes& notes) const {
        for (const std::string& column : columns_) {
            if (std::find(known.begin(), known.end(), column) == known.end()) {
                notes.left_out("column " + printable(column, 40));
            }
        }
    }
    // Empty where there is no such column.
    [[nodiscard]] std::string value(std::size_t row, const std::string& column) const {
        ORRERY_ASSERT(row < rows_.size());
        const auto found = std::find(columns_.begin(), columns_.end(), column);
        return found == columns_.end() ? std::string()
                                       : rows_[row].second[static_cast<std::size_t>(found - columns_.begin())];
    }
    [[nodiscard]] std::size_t rows() const { return rows_.size(); }
    [[nodiscard]] int line(std::size_t row) const { return rows_[row].first; }
    [[nodiscard]] std::uint32_t whole(std::size_t row, const std::string& column, double least) const {
        const std::string text = value(row, column);
        double number = 0;
        if (!parse_number(text, number) || number != std::floor(number) || number < least || number > 65536) {
            graph_.error(Diagnostic{file_, line(row), 1,
                                    fmt::format("'{}' must be a whole number from {} to 65536, not '{}'", column, least,
                                                printable(text, 60)),
                                    ErrorCode::malformed_trace});
            return static_cast<std::uint32_t>(least);
        }
        return static_cast<std::uint32_t>(number);
    }

  private:
    std::string file_;
    GraphText& graph_;
    std::vector<std::string> columns_;
    std::vector<std::pair<int, std::vector<std::string>>> rows_;
};

Imported read_table(const ImportInput& input) {
    constexpr double kGbps = 1e9 / 8;
    ImportNotes notes;
    GraphText graph(input.path());
    const Table links(input.bytes(), input.path(), graph);
    links.require({"from", "to"});
    links.count_others({"from", "to", "rate", "gbps", "latency", "latency_us", "count"}, notes);
    if (const std::string file = input.option("switches"); !file.empty()) {
        const Table switches(read_input(file), file, graph);
        switches.require({"name", "nodes"});
        switches.count_others({"name", "nodes"}, notes);
        for (std::size_t i = 0; i < switches.rows(); ++i) {
            graph.add_vertex(switches.value(i, "name"), GraphText::Kind::nodes_on_switch,
                             switches.whole(i, "nodes", 0));
        }
    }
    for (std::size_t i = 0; i < links.rows(); ++i) {
        graph.at(links.line(i));
        const std::string gbps = links.value(i, "gbps");
        const std::string us = links.value(i, "latency_us");
        graph.add_link(links.value(i, "from"), links.value(i, "to"),
                       gbps.empty() ? graph.rate(links.value(i, "rate")) : graph.rate(gbps, kGbps),
                       us.empty() ? graph.latency(links.value(i, "latency")) : graph.latency(us, 1e-6),
                       links.value(i, "count").empty() ? 1 : links.whole(i, "count", 1));
    }
    return graph.as_scenario(input, "graph-csv", std::move(notes));
}

std::vector<ImportOption> options() {
    std::vector<ImportOption> out = graph_options();
    out.push_back({"switches", "FILE", "a table of switches: name, nodes (that hang on it)"});
    return out;
}

}  // namespace

extern const Importer kGraphCsvImporter = {
    "graph-csv", "a table of links (from, to, rate, latency, count), as a fabric", options(), read_table, "yaml"};

}  // namespace orrery::imports
