#pragma once
// Tables of sweep results: filter, sort, group, pivot; as text, CSV or JSON.

#include "tools/sweep/result_store.hpp"

#include <string>
#include <variant>
#include <vector>

namespace orrery::sweep {

/// A cell: nothing, a number or a text.
using Cell = std::variant<std::monostate, double, std::string>;

struct ResultTable {
    std::vector<std::string> columns;
    std::vector<std::vector<Cell>> rows;

    /// Index of a column. Throws ConfigError with the nearest name.
    [[nodiscard]] std::size_t column(const std::string& name) const;
};

/// Every point: `point`, the parameters in the order of the sweep, `status`, the metrics, `message`. With `intervals`, metrics that
/// have a 90 % interval are followed by its ends, as columns NAME.low and NAME.high.
[[nodiscard]] ResultTable read_table(const ResultStore& store, bool intervals = false);

struct TableOptions {
    std::string where;                 ///< an expression over columns
    std::vector<std::string> group;    ///< columns whose equal values make one row
    std::string aggregate = "mean";    ///< of the other columns in a group: mean, min, max, median, sum or count
    std::vector<std::string> pivot;    ///< row column, column column, value column
    std::vector<std::string> columns;  ///< which to show; empty: all
    std::vector<std::string> sort;     ///< columns, "-name" for descending
    std::uint64_t limit = 0;           ///< 0: all
};

/// Applies the options in this order: where, group, pivot, sort, columns, limit. Throws ConfigError.
[[nodiscard]] ResultTable select(ResultTable table, const TableOptions& options);

[[nodiscard]] std::string cell_text(const Cell& cell);
/// RFC 4180, numbers with up to 12 significant digits.
[[nodiscard]] std::string to_csv(const ResultTable& table);
/// An array of objects.
[[nodiscard]] std::string to_json(const ResultTable& table);

}  // namespace orrery::sweep
