#include "tools/sweep/table.hpp"

#include "sim/base/error.hpp"
#include "tools/sweep/expression.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace orrery::sweep {

namespace {

// Numbers before texts before nothing; then by value.
bool before(const Cell& a, const Cell& b) {
    const auto rank = [](const Cell& cell) {
        return std::holds_alternative<double>(cell) ? 0 : std::holds_alternative<std::string>(cell) ? 1 : 2;
    };
    if (rank(a) != rank(b) || rank(a) == 2) {
        return rank(a) < rank(b);
    }
    return rank(a) == 0 ? std::get<double>(a) < std::get<double>(b)
                        : std::get<std::string>(a) < std::get<std::string>(b);
}

// Quantities sort and compare by their size ("100 Gbps" before "1 Tbps") and are shown as written.
Cell sortable(const Cell& cell) {
    if (const std::string* text = std::get_if<std::string>(&cell)) {
        const ExpressionValue value = value_of_text(*text);
        if (const double* number = std::get_if<double>(&value)) {
            return *number;
        }
    }
    return cell;
}

Cell aggregated(const std::string& how, std::vector<double> values, std::size_t rows) {
    if (how == "count") {
        return static_cast<double>(rows);
    }
    if (values.empty()) {
        return {};
    }
    std::sort(values.begin(), values.end());
    const std::size_t n = values.size();
    if (how == "min" || how == "max") {
        return how == "min" ? values.front() : values.back();
    }
    if (how == "median") {
        return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
    }
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    return how == "sum" ? sum : sum / static_cast<double>(n);
}

void filter(ResultTable& table, const std::string& where) {
    const Expression expression(where, Mark{std::make_shared<const std::string>("--where"), 0, 0});
    for (const std::string& name : expression.names()) {
        (void)table.column(name);
    }
    std::vector<std::vector<Cell>> kept;
    for (std::vector<Cell>& row : table.rows) {
        bool complete = true;  // a condition on a value that a row does not have is not met
        const auto lookup = [&](const std::string& name) -> ExpressionValue {
            const Cell& cell = row[table.column(name)];
            if (const double* number = std::get_if<double>(&cell)) {
                return *number;
            }
            complete = complete && !std::holds_alternative<std::monostate>(cell);
            return std::holds_alternative<std::string>(cell) ? value_of_text(std::get<std::string>(cell))
                                                             : ExpressionValue(0.0);
        };
        if (expression.is_true(lookup) && complete) {
            kept.push_back(std::move(row));
        }
    }
    table.rows = std::move(kept);
}

void group_by(ResultTable& table, const std::vector<std::string>& keys, const std::string& how) {
    static const std::vector<std::string> kAggregates = {"mean", "min", "max", "median", "sum", "count"};
    if (std::find(kAggregates.begin(), kAggregates.end(), how) == kAggregates.end()) {
        throw ConfigError(fmt::format("--aggregate is one of {}, not '{}'", fmt::join(kAggregates, ", "), how),
                          ErrorCode::command_line);
    }
    std::vector<std::size_t> key_columns;
    for (const std::string& key : keys) {
        key_columns.push_back(table.column(key));
    }
    std::map<std::vector<std::string>, std::vector<std::size_t>> groups;
    std::vector<std::vector<std::string>> order;
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
        std::vector<std::string> key;
        for (const std::size_t column : key_columns) {
            key.push_back(cell_text(table.rows[i][column]));
        }
        auto& members = groups[key];
        if (members.empty()) {
            order.push_back(key);
        }
        members.push_back(i);
    }
    ResultTable out;
    out.columns = keys;
    out.columns.emplace_back("points");
    std::vector<std::size_t> value_columns;
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
        const bool numeric = std::any_of(table.rows.begin(), table.rows.end(), [&](const std::vector<Cell>& row) {
            return std::holds_alternative<double>(row[c]);
        });
        if (numeric && table.columns[c] != "point" &&
            std::find(key_columns.begin(), key_columns.end(), c) == key_columns.end()) {
            value_columns.push_back(c);
            out.columns.push_back(table.columns[c]);
        }
    }
    std::size_t grouped = 0;
    for (const std::vector<std::string>& key : order) {
        const std::vector<std::size_t>& members = groups[key];
        std::vector<Cell> row;
        for (const std::size_t column : key_columns) {
            row.push_back(table.rows[members[0]][column]);
        }
        row.emplace_back(static_cast<double>(members.size()));
        grouped += members.size();
        for (const std::size_t column : value_columns) {
            std::vector<double> values;
            for (const std::size_t i : members) {
                if (const double* number = std::get_if<double>(&table.rows[i][column])) {
                    values.push_back(*number);
                }
            }
            row.push_back(aggregated(how, values, values.size()));
        }
        out.rows.push_back(std::move(row));
    }
    ORRERY_ASSERT(out.rows.size() == groups.size());
    ORRERY_ASSERT(grouped == table.rows.size());  // every row is in one group
    table = std::move(out);
}

// One row for each value of the first column, one column for each value of the second, the mean of the third inside.
void pivot(ResultTable& table, const std::vector<std::string>& names) {
    if (names.size() != 3) {
        throw ConfigError("--pivot takes three columns: rows,columns,values", ErrorCode::command_line);
    }
    const std::size_t r = table.column(names[0]);
    const std::size_t c = table.column(names[1]);
    const std::size_t v = table.column(names[2]);
    const auto distinct = [&](std::size_t column) {
        std::vector<Cell> cells;
        for (const auto& row : table.rows) {
            if (std::find(cells.begin(), cells.end(), row[column]) == cells.end()) {
                cells.push_back(row[column]);
            }
        }
        std::stable_sort(cells.begin(), cells.end(),
                         [](const Cell& a, const Cell& b) { return before(sortable(a), sortable(b)); });
        return cells;
    };
    const std::vector<Cell> row_values = distinct(r);
    const std::vector<Cell> column_values = distinct(c);
    if (column_values.size() > 1000) {
        throw ConfigError(fmt::format("'{}' has {} values, too many for columns", names[1], column_values.size()));
    }
    ResultTable out;
    out.columns = {names[0]};
    for (const Cell& value : column_values) {
        out.columns.push_back(fmt::format("{}={}", names[1], cell_text(value)));
    }
    for (const Cell& row_value : row_values) {
        std::vector<Cell> row = {row_value};
        for (const Cell& column_value : column_values) {
            std::vector<double> values;
            for (const auto& cells : table.rows) {
                if (cells[r] == row_value && cells[c] == column_value && std::holds_alternative<double>(cells[v])) {
                    values.push_back(std::get<double>(cells[v]));
                }
            }
            row.push_back(aggregated("mean", values, values.size()));
        }
        ORRERY_ASSERT(row.size() == out.columns.size());
        out.rows.push_back(std::move(row));
    }
    table = std::move(out);
}

}  // namespace

std::size_t ResultTable::column(const std::string& name) const {
    const auto found = std::find(columns.begin(), columns.end(), name);
    if (found == columns.end()) {
        const std::string nearest = nearest_name(name, columns);
        throw ConfigError(
            fmt::format("no column '{}'{}; there are {}", name,
                        nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest), fmt::join(columns, ", ")),
            ErrorCode::unknown_name);
    }
    return static_cast<std::size_t>(found - columns.begin());
}

namespace {

// Of metrics that some point has an interval of: each is followed by its ends.
std::vector<std::string> with_ends(const ResultStore& store, const std::vector<std::string>& metrics) {
    std::set<std::string> wide;
    store.each([&](const StoredPoint&, const PointResult& result) {
        for (const Metric& metric : result.metrics) {
            if (metric.low && metric.high) {
                wide.insert(metric.name);
            }
        }
    });
    std::vector<std::string> out;
    for (const std::string& name : metrics) {
        out.push_back(name);
        if (wide.contains(name)) {
            out.push_back(name + ".low");
            out.push_back(name + ".high");
        }
    }
    return out;
}

}  // namespace

ResultTable read_table(const ResultStore& store, bool intervals) {
    const auto split = [](const std::string& text) {
        std::vector<std::string> out;
        for (std::size_t start = 0; start < text.size();) {
            const std::size_t end = std::min(text.find(',', start), text.size());
            out.push_back(text.substr(start, end - start));
            start = end + 1;
        }
        return out;
    };
    std::map<std::string, std::string> manifest = store.manifest();
    const std::vector<std::string> keys = split(manifest["keys"]);
    std::vector<std::string> metrics = split(manifest["keep"]);
    ResultTable table;
    if (metrics.empty()) {
        // All metrics: in the order of the first points that have them.
        store.each([&](const StoredPoint&, const PointResult& result) {
            for (const Metric& metric : result.metrics) {
                if (std::find(metrics.begin(), metrics.end(), metric.name) == metrics.end()) {
                    metrics.push_back(metric.name);
                }
            }
        });
    }
    if (intervals) {
        metrics = with_ends(store, metrics);
    }
    table.columns = {"point"};
    table.columns.insert(table.columns.end(), keys.begin(), keys.end());
    table.columns.emplace_back("status");
    table.columns.insert(table.columns.end(), metrics.begin(), metrics.end());
    table.columns.emplace_back("message");
    store.each([&](const StoredPoint& point, const PointResult& result) {
        std::vector<Cell> row(table.columns.size());
        row[0] = static_cast<double>(point.id);
        for (std::size_t i = 0; i < point.parameters.size() && i < keys.size(); ++i) {
            const std::string& text = point.parameters[i].second;
            double number = 0;
            const ExpressionValue value = value_of_text(text);
            const bool plain =
                std::holds_alternative<double>(value) && text.find_first_not_of("0123456789.-+eE") == std::string::npos;
            if (plain) {
                number = std::get<double>(value);
            }
            row[i + 1] = plain ? Cell(number) : Cell(text);
        }
        row[keys.size() + 1] = result.status;
        const auto put = [&](const std::string& name, double value) {
            const auto found = std::find(metrics.begin(), metrics.end(), name);
            ORRERY_ASSERT(found != metrics.end());
            row[keys.size() + 2 + static_cast<std::size_t>(found - metrics.begin())] = value;
        };
        for (const Metric& metric : result.metrics) {
            put(metric.name, metric.value);
            if (intervals && metric.low && metric.high) {
                put(metric.name + ".low", *metric.low);
                put(metric.name + ".high", *metric.high);
            }
        }
        if (!result.message.empty()) {
            row.back() = result.message;
        }
        table.rows.push_back(std::move(row));
    });
    return table;
}

ResultTable select(ResultTable table, const TableOptions& options) {
    if (!options.where.empty()) {
        filter(table, options.where);
    }
    if (!options.group.empty()) {
        group_by(table, options.group, options.aggregate);
    }
    if (!options.pivot.empty()) {
        pivot(table, options.pivot);
    }
    for (auto key = options.sort.rbegin(); key != options.sort.rend(); ++key) {
        const bool down = key->rfind('-', 0) == 0;
        const std::size_t column = table.column(down ? key->substr(1) : *key);
        std::stable_sort(table.rows.begin(), table.rows.end(), [&](const auto& a, const auto& b) {
            const Cell left = sortable(a[column]);
            const Cell right = sortable(b[column]);
            const bool absent =
                std::holds_alternative<std::monostate>(left) || std::holds_alternative<std::monostate>(right);
            return down && !absent ? before(right, left) : before(left, right);
        });
    }
    if (!options.columns.empty()) {
        ResultTable out;
        out.columns = options.columns;
        std::vector<std::size_t> wanted;
        for (const std::string& name : options.columns) {
            wanted.push_back(table.column(name));
        }
        for (const auto& row : table.rows) {
            std::vector<Cell> cells;
            for (const std::size_t column : wanted) {
                cells.push_back(row[column]);
            }
            out.rows.push_back(std::move(cells));
        }
        table = std::move(out);
    }
    if (options.limit > 0 && table.rows.size() > options.limit) {
        table.rows.resize(options.limit);
    }
    return table;
}

std::string cell_text(const Cell& cell) {
    if (const double* number = std::get_if<double>(&cell)) {
        return fmt::format("{:.12g}", *number);
    }
    return std::holds_alternative<std::string>(cell) ? std::get<std::string>(cell) : std::string();
}

std::string to_csv(const ResultTable& table) {
    const auto quoted = [](const std::string& text) {
        if (text.find_first_of(",\"\r\n") == std::string::npos) {
            return text;
        }
        std::string out = "\"";
        for (const char c : text) {
            out += c == '"' ? std::string("\"\"") : std::string(1, c);
        }
        return out + "\"";
    };
    std::string out;
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
        out += (i > 0 ? "," : "") + quoted(table.columns[i]);
    }
    out += "\n";
    for (const auto& row : table.rows) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            out += (i > 0 ? "," : "") + quoted(cell_text(row[i]));
        }
        out += "\n";
    }
    return out;
}

std::string to_json(const ResultTable& table) {
    std::string out = "[";
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
        ORRERY_ASSERT(table.rows[r].size() == table.columns.size());
        nlohmann::ordered_json object = nlohmann::ordered_json::object();
        for (std::size_t i = 0; i < table.columns.size(); ++i) {
            const Cell& cell = table.rows[r][i];
            if (const double* number = std::get_if<double>(&cell)) {
                object[table.columns[i]] = std::stod(fmt::format("{:.12g}", *number));
            } else if (const std::string* text = std::get_if<std::string>(&cell)) {
                object[table.columns[i]] = *text;
            } else {
                object[table.columns[i]] = nullptr;
            }
        }
        out += (r > 0 ? ",\n " : "\n ") + object.dump();
    }
    return out + "\n]\n";
}

}  // namespace orrery::sweep
