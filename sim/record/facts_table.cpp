#include "sim/record/facts_table.hpp"

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <sstream>

namespace orrery::inline record {

const std::string& FactsRow::text(const std::string& column) const {
    const auto found = cells.find(column);
    if (found == cells.end()) {
        throw ConfigError({Diagnostic{file, line, 1, fmt::format("has no column '{}'", column)}});
    }
    return found->second;
}

double FactsRow::number(const std::string& column) const {
    double value = 0;
    if (!parse_number(text(column), value)) {
        throw ConfigError({Diagnostic{file, line, 1, fmt::format("'{}' is no number for {}", text(column), column)}});
    }
    return value;
}

std::vector<FactsRow> read_facts_table(const std::string& path, char separator) {
    std::istringstream stream(read_input(path));
    std::vector<std::string> header;
    std::vector<FactsRow> rows;
    std::string line;
    for (int number = 1; std::getline(stream, line); ++number) {
        if (!line.empty() && line.back() == '\r') {
            line.pop_back();  // as spreadsheets and Python's csv end lines
        }
        if (line.empty() || line[0] == '#') {
            continue;
        }
        std::vector<std::string> cells;
        std::size_t start = 0;
        for (std::size_t end = line.find(separator); end != std::string::npos; end = line.find(separator, start)) {
            if (!header.empty() && cells.size() + 1 == header.size()) {
                break;
            }
            cells.push_back(line.substr(start, end - start));
            start = end + 1;
        }
        cells.push_back(line.substr(start));
        if (header.empty()) {
            header = cells;
            continue;
        }
        if (cells.size() != header.size()) {
            throw ConfigError({Diagnostic{path, number, 1, fmt::format("expected {} cells", header.size())}});
        }
        FactsRow& row = rows.emplace_back();
        row.file = path;
        row.line = number;
        for (std::size_t i = 0; i < cells.size(); ++i) {
            row.cells[header[i]] = cells[i];
        }
    }
    return rows;
}

}  // namespace orrery::inline record
