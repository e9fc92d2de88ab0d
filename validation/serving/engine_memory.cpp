// Caches that engines had at their start, and starts that they refused, against what the model of their memory says.

#include "workloads/serving/engine_memory.hpp"
#include "sim/base/text.hpp"
#include "sim/record/facts_table.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "validation/memory_group.hpp"
#include "validation/validate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery::validation {

namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kBand = 0.1;

/// What the model says of a row.
struct Start {
    std::string refused;  ///< why it does not start; empty: it does
    double tokens = 0;
    RankMemory rank;  ///< B
};

Scenario scenario_of(const FactsRow& row, const DataDirectory& data) {
    YamlNode tree = parse_yaml(
        fmt::format("orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: {}}}\nmodel: {}\n"
                    "engine: {{tensor: {}, software: {}, scheduler: {{kind: chunked-prefill}}, kv: {{memory: {}}}}}\n"
                    "requests: {{rate: 1, count: 1, prompt: {{mean: 1}}, output: {{mean: 1}}}}\n",
                    row.text("node"), row.text("model"), row.text("tensor"), row.text("software"), row.text("memory")),
        row.file);
    for (const auto& [column, key] : {std::pair{"budget", "engine.scheduler.token_budget"},
                                      {"sequences", "engine.scheduler.max_sequences"},
                                      {"context", "engine.max_context"}}) {
        if (!row.text(column).empty()) {
            apply_override(tree, fmt::format("{}={}", key, row.text(column)));
        }
    }
    for (const std::string_view change : split(row.text("set"), ' ')) {
        if (!change.empty()) {
            apply_override(tree, std::string(change));
        }
    }
    return read_scenario(tree, fmt::format("{}:{}", row.text("group"), row.line), data);
}

Start start_of(const Scenario& scenario) {
    const auto& serving = scenario.as<ServingKind>();
    const PhaseSpec& phase = serving.engine.mixed;
    Start out;
    try {
        const EngineCache cache = engine_cache(serving.engine, phase, serving.model, scenario.cluster.node.gpu);
        out.tokens = cache.tokens;
        out.rank = cache.rank;
        (void)limits_of(serving.engine, phase, serving.model, scenario.cluster.node.gpu);
    } catch (const InfeasibleError& problem) {
        out.refused = problem.what();
    }
    return out;
}

std::string shown(double value, const char* unit) {
    return value > 0 ? fmt::format("{:.{}f}{}", value, *unit == '\0' ? 0 : 2, unit) : "";
}

// GiB of a part as logged and as predicted.
std::string part(const FactsRow& row, const std::string& column, double bytes) {
    return fmt::format("{} {:.2f}", row.text(column).empty() ? "-" : row.text(column), bytes / kGiB);
}

}  // namespace

Comparison validate_engine_memory(const DataDirectory& data, const Terminal& terminal, bool points) {
    Comparison out{"engine-memory", "tokens of an engine's cache", "Logged at start.", "", {"engine"}, {}, {}};
    std::map<std::string, MemoryGroup> groups;
    std::map<std::string, int> left_out;
    std::vector<std::vector<std::string>> table;
    for (const FactsRow& row : read_facts_table(data.path("validation/serving/memory.csv"), ';')) {
        if (row.text("use") != "score") {
            ++left_out[row.text("use")];
            continue;
        }
        const Scenario scenario = scenario_of(row, data);
        const Start start = start_of(scenario);
        const std::string engine = fmt::format("{} {}", row.text("engine"), row.text("version"));
        const bool refused = row.text("outcome") == "refused";
        const bool half = row.text("group").size() % 2 == 0;
        const bool tokens = !row.text("tokens").empty();
        const double measured = tokens                         ? row.number("tokens")
                                : row.text("pool_gib").empty() ? 0
                                                               : row.number("pool_gib") * kGiB;
        const double predicted = tokens ? start.tokens : start.rank.pool;
        const bool scored = !refused && measured > 0;
        for (const std::string& name : {std::string("all"), engine, std::string(half ? "for fitting" : "held back")}) {
            MemoryGroup& group = groups[name];
            ++group.rows;
            group.right += refused == !start.refused.empty() ? 1 : 0;
            if (scored) {
                group.errors.push_back(predicted / measured - 1);
            }
        }
        if (scored && predicted > 0) {
            out.points.push_back({measured, predicted, engine, row.text("group"), {}});
        }
        const double scale = tokens ? 1 : kGiB;
        const char* unit = tokens ? "" : " GiB";
        table.push_back({row.text("group"), row.text("tensor"), row.text("context"),
                         refused ? "refused" : shown(measured / scale, unit),
                         !start.refused.empty() ? "refused" : shown(predicted / scale, unit),
                         scored ? fmt::format("{:+.1f} %", 100 * (predicted / measured - 1)) : "",
                         part(row, "weights_gib", start.rank.weights), part(row, "activation_gib", start.rank.peak),
                         part(row, "other_gib", start.rank.other), part(row, "graphs_gib", start.rank.graphs)});
    }
    if (points) {
        terminal.heading("memory at start, by row");
        terminal.table(
            {"row", "tensor", "context", "logged", "predicted", "error", "weights", "peak", "other", "graphs"}, table);
    }
    report_groups(out, terminal, {"tokens of caches at start", "engine", "start or refusal right", "starts_right"},
                  groups, kBand, left_out);
    return out;
}

}  // namespace orrery::validation
