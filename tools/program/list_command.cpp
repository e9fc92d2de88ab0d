// orrery list: presets, tables and files by name.

#include "sim/record/metric_table.hpp"
#include "tools/program/command_line.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/list_papers.hpp"
#include "tools/program/outputs.hpp"
#include "tools/reference/reference.hpp"
#include "tools/terminal/terminal.hpp"
#include "workloads/collective/algorithms/algorithm.hpp"
#include "workloads/imports/importer.hpp"
#include "workloads/model/attention_form.hpp"
#include "workloads/model/model_names.hpp"
#include "workloads/serving/cost/step_cost.hpp"
#include "workloads/serving/requests/formats/trace_format.hpp"
#include "workloads/serving/requests/recorded/recorded.hpp"
#include "workloads/serving/routers/router.hpp"
#include "workloads/serving/schedulers/scheduler.hpp"
#include "workloads/training/plan/spec.hpp"
#include "workloads/training/schedules/schedule.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

namespace orrery::program {

namespace {

using Rows = std::vector<std::vector<std::string>>;

struct Topic {
    std::string name;
    std::string heading;
    std::vector<std::string> header;
    std::function<Rows(const DataDirectory&)> rows;  ///< the name first
    bool overview = true;                            ///< shown where no topic is asked for
};

Topic presets(const PresetKind& kind) {
    const std::string name = std::string(kind.what) + "s";
    return {name, name, {}, [kind](const DataDirectory& data) {
                Rows rows;
                for (const std::string& preset : data.names(kind)) {
                    const YamlNode file = load_yaml(data.path(kind, preset));
                    const YamlNode* title = file.find("name");
                    rows.push_back({preset, title != nullptr && title->scalar != preset ? title->scalar : ""});
                }
                return rows;
            }};
}

// What tells models apart: weights and caches in 16 bits.
Rows models(const DataDirectory& data) {
    std::map<std::string, std::string> sources;
    for (const ModelSource& row : model_sources(data)) {
        sources[row.preset] = row.source;
    }
    const auto billions = [](double parameters) {
        const double billion = parameters / 1e9;
        return billion >= 1000 ? fmt::format("{:.2f} T", billion / 1000)
                               : fmt::format("{:.{}f} B", billion, billion < 10 ? 2 : 1);
    };
    Rows rows;
    for (const std::string& preset : data.names(kModelPresets)) {
        ModelSpec model;
        std::vector<Diagnostic> errors;
        read_fields(load_yaml(data.path(kModelPresets, preset)), data, errors,
                    [&](Fields& fields) { describe(fields, model); });
        if (!errors.empty()) {  // of a folder of the user's own: scenarios say what is wrong with it
            rows.push_back({preset, "", "", "", "", "", ""});
            continue;
        }
        complete(model);
        const double total = model.parameters();
        const std::optional<NamedCheckpoint> named = find_checkpoint(preset, data);
        const std::int64_t context = named && named->context > 0 ? named->context : model.sequence;
        rows.push_back({preset, billions(total), billions(active_parameters(model)), std::to_string(context),
                        fmt::format("{:.1f} GiB", 2 * total / (1024.0 * 1024 * 1024)),
                        fmt::format("{:.1f} KiB", cache_bytes_per_token(model, Precision::bf16) / 1024),
                        sources[preset]});
    }
    return rows;
}

// A table of policies; `key` is where a scenario names one.
template <class Table>
Topic policies(const char* name, const char* key, const Table& table) {
    return {name, fmt::format("{} ({})", name, key), {}, [&table](const DataDirectory&) {
                Rows rows;
                for (const auto* row : table) {
                    rows.push_back({row->name, row->description});
                }
                return rows;
            }};
}

// In a checkout they are named from its root, as the documents do; an installed program has them elsewhere.
Rows scenarios(const DataDirectory& data) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    const bool here = fs::equivalent("scenarios", data.path("scenarios"), ignored);
    Rows rows;
    for (const auto& entry : fs::recursive_directory_iterator(data.path("scenarios"), ignored)) {
        if (entry.path().extension() == ".yaml" && entry.path().filename() != "expected.yaml") {
            rows.push_back({here ? "scenarios/" + fs::relative(entry.path(), data.path("scenarios")).string()
                                 : entry.path().string()});
        }
    }
    std::sort(rows.begin(), rows.end());
    return rows;
}

Rows formats(const DataDirectory&) {
    Rows rows;
    for (const Importer* row : importer_table()) {
        rows.push_back({row->name, row->description, "orrery import"});
    }
    for (const TraceFormat* row : trace_format_table()) {
        rows.push_back({row->name, row->description, std::string("requests.trace: ") + row->looks});
    }
    for (const RecordFormat* row : record_format_table()) {
        rows.push_back({row->name, row->description, std::string("requests.trace: ") + row->looks});
    }
    return rows;
}

Rows fields(const DataDirectory& data) {
    Rows rows;
    for (const std::string& kind : reference_kinds()) {
        for (const KeyReference& row : reference_of_kind(kind, data)) {
            rows.push_back({row.path, kind, row.otherwise, row.doc});
        }
    }
    return rows;
}

Rows metrics(const DataDirectory&) {
    Rows rows;
    for (const MetricRow& row : metric_table()) {
        const char* better = row.better == Better::higher ? "higher" : row.better == Better::lower ? "lower" : "";
        rows.push_back({row.name, row.unit, better, row.meaning});
    }
    std::sort(rows.begin(), rows.end());
    return rows;
}

// Objects by the names of the columns.
nlohmann::ordered_json json_of(const Topic& topic, const Rows& rows) {
    auto out = nlohmann::ordered_json::array();
    for (const auto& row : rows) {
        nlohmann::ordered_json one;
        for (std::size_t i = 0; i < row.size(); ++i) {
            one[i < topic.header.size() ? topic.header[i] : i == 0 ? "name" : i == 1 ? "description" : "key"] = row[i];
        }
        out.push_back(one);
    }
    return out;
}

std::vector<Topic> topics() {
    return {{"models",
             "models (weights and cache in 16 bits)",
             {"model", "parameters", "active", "context", "weights", "cache/token", "source"},
             models},
            presets(kNodePresets),
            presets(kHostPresets),
            presets(kDevicePresets),
            presets(kSoftwarePresets),
            presets(kEnginePresets),
            policies("attention", "model.attention", attention_table()),
            policies("schedules", "plan.schedule", schedule_table()),
            policies("schedulers", "engine.scheduler.kind", scheduler_table()),
            policies("routers", "engine.router", router_table()),
            policies("algorithms", "collective.algorithm", algorithm_table()),
            policies("transports", "network.transport.kind", packet::transport_table()),
            policies("paths", "network.paths", packet::path_table()),
            {"metrics", "metrics (orrery help METRIC)", {"metric", "unit", "better", "meaning"}, metrics, false},
            {"scenarios", "scenarios", {}, scenarios},
            {"papers", "published systems (scenarios/papers)", paper_columns(), paper_rows, false},
            {"formats", "formats", {}, formats},
            {"fields", "fields (orrery help KIND KEY)", {"key", "kind", "default", "meaning"}, fields, false}};
}

}  // namespace

int command_list(const CommandLine& line, const DataDirectory& data) {
    const Terminal terminal = line.terminal();
    const std::string wanted = line.arguments.empty() ? "" : line.arguments[0];
    std::vector<std::string> known;
    bool found = false;
    if (line.has("json") && wanted.empty()) {
        throw ConfigError("'--json' is of one list: name its kind", ErrorCode::command_line);
    }
    for (const Topic& topic : topics()) {
        known.push_back(topic.name);
        if (wanted.empty() ? !topic.overview : wanted != topic.name) {
            continue;
        }
        found = true;
        if (line.has("json")) {
            write_output(line, "json",
                         topic.name == "papers" ? papers_json(read_papers(data))
                                                : json_of(topic, topic.rows(data)).dump(1) + "\n");
        }
        if (line.text("json") == "-") {
            continue;
        }
        const Rows rows = topic.rows(data);
        if (line.quiet()) {  // names alone, for completions
            std::set<std::string> names;
            for (const auto& row : rows) {
                names.insert(row[0]);
            }
            say("{}\n", fmt::join(names, "\n"));
            continue;
        }
        terminal.heading(topic.heading);
        terminal.table(topic.header, rows);
        if (topic.name == "papers") {
            say("{}", paper_totals(read_papers(data)));
        }
    }
    if (!found) {
        const std::string nearest = nearest_name(wanted, known);
        throw ConfigError(
            fmt::format("unknown kind '{}'{}; it is one of {}", wanted,
                        nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest), fmt::join(known, ", ")),
            ErrorCode::unknown_name);
    }
    return 0;
}

}  // namespace orrery::program
