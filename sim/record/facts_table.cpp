#include "sim/record/facts_table.hpp"

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/config/units.hpp"
#include "sim/record/table_reader.hpp"

#include <fmt/format.h>

namespace orrery::record {

const std::string& FactsRow::text(const std::string& column) const {
    const auto found = cells.find(column);
    if (found == cells.end()) {
        throw ConfigError(
            {Diagnostic{file, line, 1, fmt::format("has no column '{}'", column), ErrorCode::malformed_trace}});
    }
    return found->second;
}

double FactsRow::number(const std::string& column) const {
    double value = 0;
    if (!parse_number(text(column), value)) {
        throw ConfigError({Diagnostic{file, line, 1, fmt::format("'{}' is no number for {}", text(column), column),
                                      ErrorCode::malformed_trace}});
    }
    return value;
}

std::vector<FactsRow> read_facts_table(const std::string& path, char separator) {
    const std::string text = read_input(path);
    TableReader table(text, path, {separator, true});
    std::vector<FactsRow> rows;
    while (table.next()) {
        ORRERY_ASSERT(table.cells().size() == table.columns().size());
        FactsRow& row = rows.emplace_back(FactsRow{{}, path, table.line()});
        for (std::size_t i = 0; i < table.cells().size(); ++i) {
            row.cells[std::string(table.columns()[i])] = table.cells()[i];
        }
    }
    table.finish();
    return rows;
}

}  // namespace orrery::record
