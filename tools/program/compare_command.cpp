// orrery compare: runs, or summaries of them, side by side.

#include "sim/base/input_file.hpp"
#include "sim/base/text.hpp"
#include "sim/record/json_text.hpp"
#include "sim/record/metric_table.hpp"
#include "tools/driver/kind.hpp"
#include "tools/driver/run.hpp"
#include "tools/driver/scenario.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/outputs.hpp"
#include "tools/program/print_summary.hpp"
#include "tools/report/answer_report.hpp"
#include "tools/report/svg.hpp"
#include "tools/terminal/terminal.hpp"
#include "workloads/imports/importer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace orrery::program {

namespace {

using Json = nlohmann::ordered_json;

struct Compared {
    std::string name;
    std::vector<Metric> metrics;
};

/// One metric of all of them. Null: that one does not have it.
struct Row {
    std::string name;
    std::vector<const Metric*> values;

    // Over the first one; NaN where that says nothing.
    [[nodiscard]] double relative(std::size_t i) const {
        const Metric* first = values.front();
        const Metric* own = values[i];
        const bool both = first != nullptr && own != nullptr && first->measured() && own->measured();
        return !both                        ? kNotMeasured
               : own->value == first->value ? 0
               : first->value == 0          ? kNotMeasured
                                            : (own->value - first->value) / std::fabs(first->value);
    }
    [[nodiscard]] bool same() const {
        for (std::size_t i = 1; i < values.size(); ++i) {
            if (relative(i) != 0) {
                return false;
            }
        }
        return true;
    }
};

bool is_leaf(const Json& node) {
    return node.is_object() && node.contains("value") && node.contains("unit");
}

// A summary as `run --json` writes it. Problems are collected with their places.
class SummaryFile {
  public:
    explicit SummaryFile(const std::string& path) : path_(path), text_(read_input(path)) {}

    std::vector<Metric> read() {
        require_shallow_json(text_, path_);
        Json tree;
        try {
            tree = Json::parse(text_);
        } catch (const Json::exception& problem) {
            throw ConfigError({json_problem(path_, problem)});
        }
        const bool summary = tree.is_object() && tree.contains("metrics") && tree["metrics"].is_object() &&
                             tree.contains("schema") && tree["schema"] == "orrery-summary-1";
        if (!summary) {
            throw ConfigError({Diagnostic{path_, 0, 0, "this is no summary as 'orrery run --json' writes it",
                                          ErrorCode::malformed_trace}});
        }
        for (const auto& [name, node] : tree["metrics"].items()) {
            if (is_leaf(node)) {
                add(node, name, {"metrics", name});
                continue;
            }
            if (!node.is_object()) {
                error({"metrics", name}, "is no map with 'value' and 'unit'");
                continue;
            }
            for (const auto& [part, inner] : node.items()) {
                if (is_leaf(inner)) {
                    add(inner, name + "." + part, {"metrics", name, part});
                } else {
                    error({"metrics", name, part}, "is no map with 'value' and 'unit'");
                }
            }
        }
        throw_if_any(errors_);
        return std::move(metrics_);
    }

  private:
    using Keys = std::vector<std::string>;

    // At the last of these keys, each inside the one before.
    void error(const Keys& keys, const std::string& problem) {
        std::size_t at = 0;
        for (const std::string& key : keys) {
            at = std::min(text_.find(Json(key).dump(-1, ' ', false, Json::error_handler_t::replace), at), text_.size());
        }
        errors_.push_back(
            diagnostic_at(path_, text_, at == text_.size() ? 0 : at,
                          fmt::format("'{}' {}", printable(fmt::format("{}", fmt::join(keys, ".")), 200), problem)));
    }

    void add(const Json& node, const std::string& name, const Keys& keys) {
        const auto at = [&](const char* key) {
            Keys out = keys;
            out.emplace_back(key);
            return out;
        };
        const auto number = [&](const char* key) -> std::optional<double> {
            const auto found = node.find(key);
            if (found == node.end() || found->is_null()) {
                return std::nullopt;
            }
            if (!found->is_number()) {
                error(at(key), "must be a number or null");
                return std::nullopt;
            }
            return found->get<double>();
        };
        if (!node["unit"].is_string()) {
            error(at("unit"), "must be a text, such as \"s\"");
            return;
        }
        metrics_.push_back({name, number("value").value_or(kNotMeasured), node["unit"].get<std::string>(),
                            number("low"), number("high")});
    }

    const std::string& path_;
    std::string text_;
    std::vector<Metric> metrics_;
    std::vector<Diagnostic> errors_;
};

Compared load(const std::string& path, const CommandLine& line, const DataDirectory& data, ModelCache& models) {
    if (std::filesystem::path(unpacked_name(path)).extension() == ".json") {
        return {path, SummaryFile(path).read()};
    }
    const Scenario scenario = load_scenario(path, line.overrides(), data);
    check_outputs(line, files_of(scenario));
    Summary summary = run_scenario(scenario, models, {}).summary;
    summary.add("events", static_cast<double>(summary.events), "1");
    return {path, std::move(summary.metrics)};
}

std::vector<Row> rows_of(const std::vector<Compared>& all, const std::vector<std::string>& wanted) {
    std::vector<Row> rows;
    for (std::size_t i = 0; i < all.size(); ++i) {
        for (const Metric& metric : all[i].metrics) {
            const bool chosen =
                wanted.empty() || std::any_of(wanted.begin(), wanted.end(), [&](const std::string& name) {
                    return metric.name == name || metric.name.rfind(name + ".", 0) == 0;
                });
            if (!chosen) {
                continue;
            }
            auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.name == metric.name; });
            if (row == rows.end()) {
                row = rows.insert(rows.end(), Row{metric.name, std::vector<const Metric*>(all.size(), nullptr)});
            }
            row->values[i] = &metric;
        }
    }
    return rows;
}

void require_known(const std::vector<Compared>& all, const std::vector<std::string>& wanted) {
    std::vector<std::string> names;
    for (const Compared& one : all) {
        for (const Metric& metric : one.metrics) {
            names.push_back(metric.name);
            names.push_back(metric.name.substr(0, metric.name.find('.')));
        }
    }
    for (const std::string& name : wanted) {
        if (std::find(names.begin(), names.end(), name) == names.end()) {
            const std::string nearest = nearest_name(name, names);
            throw ConfigError(fmt::format("unknown metric '{}'{}", name,
                                          nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest)),
                              ErrorCode::unknown_metric);
        }
    }
}

std::string change_text(double relative) {
    return std::isnan(relative) ? "-" : relative == 0 ? "=" : fmt::format("{:+.2f} %", 100 * relative);
}

std::vector<std::string> header_of(const std::vector<Compared>& all) {
    std::vector<std::string> out = {"metric"};
    for (std::size_t i = 0; i < all.size(); ++i) {
        const std::filesystem::path path(all[i].name);
        const bool alone = std::count_if(all.begin(), all.end(), [&](const Compared& other) {
                               return std::filesystem::path(other.name).stem() == path.stem();
                           }) == 1;
        out.push_back(alone ? path.stem().string() : all[i].name);
        if (i > 0) {
            out.emplace_back("relative");
        }
    }
    return out;
}

std::vector<std::string> cells_of(const Row& row) {
    std::vector<std::string> out = {with_arrow(row.name)};
    for (std::size_t i = 0; i < row.values.size(); ++i) {
        const std::string interval = row.values[i] != nullptr ? interval_text(*row.values[i]) : "";
        out.push_back(row.values[i] == nullptr
                          ? "-"
                          : one_line(*row.values[i]) + (interval.empty() ? "" : fmt::format(" ({})", interval)));
        if (i > 0) {
            out.push_back(change_text(row.relative(i)));
        }
    }
    return out;
}

std::string markdown(const std::vector<Compared>& all, const std::vector<Row>& rows) {
    const auto line = [](const std::vector<std::string>& cells) {
        std::string out = "|";
        for (std::string cell : cells) {
            for (std::size_t at = 0; (at = cell.find('|', at)) != std::string::npos; at += 2) {
                cell.insert(at, "\\");
            }
            out += " " + cell + " |";
        }
        return out + "\n";
    };
    const std::vector<std::string> header = header_of(all);
    std::string out = line(header) + "|---|";
    for (std::size_t i = 1; i < header.size(); ++i) {
        out += "---:|";
    }
    out += "\n";
    for (const Row& row : rows) {
        out += line(cells_of(row));
    }
    return out;
}

std::string number_text(double value) {
    return std::isnan(value) ? "" : fmt::format("{:.12g}", value);
}

std::string csv(const std::vector<Compared>& all, const std::vector<Row>& rows) {
    const auto quoted = [](const std::string& text) {
        std::string out;
        for (const char c : text) {
            out += c == '"' ? std::string("\"\"") : std::string(1, c);
        }
        return text.find_first_of(",\"\n") == std::string::npos ? text : "\"" + out + "\"";
    };
    std::string out = "metric,unit";
    for (std::size_t i = 0; i < all.size(); ++i) {
        out += "," + quoted(all[i].name) + (i > 0 ? "," + quoted(all[i].name + " relative") : "");
    }
    out += "\n";
    for (const Row& row : rows) {
        const auto any =
            std::find_if(row.values.begin(), row.values.end(), [](const Metric* m) { return m != nullptr; });
        out += quoted(row.name) + "," + quoted((*any)->unit);
        for (std::size_t i = 0; i < row.values.size(); ++i) {
            out += "," + (row.values[i] != nullptr ? number_text(row.values[i]->value) : "");
            out += i > 0 ? "," + number_text(row.relative(i)) : "";
        }
        out += "\n";
    }
    return out;
}

std::string json(const std::vector<Compared>& all, const std::vector<Row>& rows) {
    Json out = {{"schema", "orrery-comparison-1"}, {"runs", Json::array()}, {"metrics", Json::object()}};
    for (const Compared& one : all) {
        out["runs"].push_back(one.name);
    }
    const auto number = [](double value) { return std::isnan(value) ? Json() : Json(std::stod(number_text(value))); };
    for (const Row& row : rows) {
        Json values = Json::array();
        for (std::size_t i = 0; i < row.values.size(); ++i) {
            const Metric* metric = row.values[i];
            values.push_back(
                {{"value", metric != nullptr ? number(metric->value) : Json()}, {"relative", number(row.relative(i))}});
            if (metric != nullptr && metric->low && metric->high) {
                values.back()["low"] = number(*metric->low);
                values.back()["high"] = number(*metric->high);
            }
        }
        out["metrics"][row.name] = std::move(values);
    }
    return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Bars: of each metric that differs what each run has of the first one's.
std::string bars(const std::vector<Compared>& all, const std::vector<Row>& rows) {
    std::vector<std::string> names;
    const std::vector<std::string> header = header_of(all);
    for (std::size_t i = 0; i < all.size(); ++i) {
        names.push_back(header[i == 0 ? 1 : 2 * i]);
    }
    std::vector<std::string> groups;
    std::vector<std::vector<std::optional<double>>> values;
    for (const Row& row : rows) {
        const bool positive = std::all_of(row.values.begin(), row.values.end(),
                                          [](const Metric* m) { return m == nullptr || !(m->value < 0); });
        if (row.same() || row.values.front() == nullptr || !(row.values.front()->value > 0) || !positive) {
            continue;
        }
        groups.push_back(with_arrow(row.name));
        auto& own = values.emplace_back();
        for (std::size_t i = 0; i < all.size(); ++i) {
            const double relative = row.relative(i);
            own.push_back(std::isnan(relative) ? std::nullopt : std::optional<double>(1 + relative));
        }
    }
    return groups_svg("times those of " + names.front(), groups, names, values, ChartStyle());
}

// The largest changes as findings, all metrics as a table.
std::string page(const std::vector<Compared>& all, const std::vector<Row>& rows) {
    const std::vector<std::string> header = header_of(all);
    report::Answer out;
    out.title = fmt::format("{} and {} more", header[1], all.size() - 1);
    out.subtitle = "orrery compare";
    out.facts.emplace_back("Question", "How do these runs differ?");
    out.facts.emplace_back("First", all.front().name);
    std::vector<const Row*> changed;
    for (const Row& row : rows) {
        if (!row.same() && row.name != "events" && !std::isnan(row.relative(1))) {
            changed.push_back(&row);
        }
    }
    std::stable_sort(changed.begin(), changed.end(),
                     [](const Row* a, const Row* b) { return std::fabs(a->relative(1)) > std::fabs(b->relative(1)); });
    out.facts.emplace_back("Answer", fmt::format("{} of {} metrics differ", changed.size(), rows.size()));
    for (std::size_t i = 0; i < std::min<std::size_t>(3, changed.size()); ++i) {
        const Row& row = *changed[i];
        out.findings.push_back(fmt::format("{} goes from {} to {} ({}) in {}.", row.name, one_line(*row.values[0]),
                                           one_line(*row.values[1]), change_text(row.relative(1)), header[2]));
    }
    ResultTable table{header, {}};
    for (const Row& row : rows) {
        std::vector<Cell> cells;
        for (const std::string& cell : cells_of(row)) {
            cells.emplace_back(cell);
        }
        table.rows.push_back(std::move(cells));
    }
    out.tables.push_back({"All metrics", std::move(table)});
    return report::answer_report(out);
}

}  // namespace

int command_compare(const CommandLine& line, const DataDirectory& data) {
    const Terminal terminal = line.terminal();
    ModelCache models(data);
    std::vector<Compared> all;
    Progress progress(terminal, "simulating");
    for (const std::string& path : line.arguments) {
        all.push_back(load(path, line, data, models));
        progress.update(static_cast<double>(all.size()) / static_cast<double>(line.arguments.size()));
    }
    progress.finish();
    const std::vector<std::string> wanted = line.list("metrics");
    require_known(all, wanted);
    const std::vector<Row> rows = rows_of(all, wanted);
    const auto shared = [](const Row& row) {
        return std::count_if(row.values.begin(), row.values.end(), [](const Metric* m) { return m != nullptr; }) > 1;
    };
    if (std::none_of(rows.begin(), rows.end(), [&](const Row& row) { return row.name != "events" && shared(row); })) {
        throw ConfigError("these runs are of different kinds and have no metric in common");
    }
    using Writer = std::string (*)(const std::vector<Compared>&, const std::vector<Row>&);
    bool to_output = false;
    for (const auto& [option, writer] : {std::pair<const char*, Writer>{"export-markdown", markdown},
                                         {"export-csv", csv},
                                         {"export-json", json},
                                         {"export-svg", bars},
                                         {"report", page}}) {
        if (line.has(option)) {
            write_output(line, option, writer(all, rows));
            to_output = to_output || line.text(option) == "-";
        }
    }
    if (line.quiet() || to_output) {
        return 0;
    }
    std::vector<std::vector<std::string>> cells;
    for (const Row& row : rows) {
        if (line.has("all") || !row.same()) {
            cells.push_back(cells_of(row));
        }
    }
    terminal.table(header_of(all), cells);
    const bool intervals = std::any_of(rows.begin(), rows.end(), [](const Row& row) {
        return std::any_of(row.values.begin(), row.values.end(),
                           [](const Metric* m) { return m != nullptr && m->low; });
    });
    if (intervals) {
        fmt::print("In brackets: 90 % intervals. Errors that the runs share cancel in 'relative'.\n");
    }
    if (cells.size() < rows.size()) {
        const std::size_t same = rows.size() - cells.size();
        fmt::print("{} the same everywhere (--all shows {})\n",
                   same == 1 ? "1 metric is" : fmt::format("{} metrics are", same), same == 1 ? "it" : "them");
    }
    return 0;
}

}  // namespace orrery::program
