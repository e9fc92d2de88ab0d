// Exchanges of tokens with experts against measured kernels of expert-parallel libraries.

#include "sim/config/units.hpp"
#include "sim/record/facts_table.hpp"
#include "tools/driver/model_cache.hpp"
#include "validation/statistics.hpp"
#include "validation/validate.hpp"
#include "workloads/training/plan/experts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery::validation {

namespace {

using Setups = std::map<std::pair<std::string, std::string>, FactsRow>;

Setups read_setups(const std::string& path) {
    Setups out;
    for (FactsRow& row : read_facts_table(path, ';')) {
        out[{row.text("kind"), row.text("name")}] = row;
    }
    return out;
}

bool given(const FactsRow& row, const std::string& column) {
    return row.text(column) != "-";
}

// Why a row is not scored; empty: it is.
std::string left_out(const FactsRow& row, const Setups& setups) {
    const auto system = setups.find({"system", row.text("system")});
    if (system == setups.end()) {
        throw ConfigError({Diagnostic{row.file, row.line, 1, "its system is not in dispatch_setups.csv",
                                      ErrorCode::malformed_trace}});
    }
    const std::string& why = system->second.text("left out");
    const bool between = why.rfind("between nodes: ", 0) == 0;
    if (!why.empty() && !(between && row.text("nodes") == "1")) {
        return between ? why.substr(15) : why;
    }
    if (!row.text("remark").empty()) {
        return row.text("remark");
    }
    if (row.text("op") != "dispatch" && row.text("op") != "combine") {
        return "another operation than dispatch or combine";
    }
    for (const char* column : {"tokens", "hidden", "precision", "choices"}) {
        if (!given(row, column)) {
            return fmt::format("{} not stated", column);
        }
    }
    if (!given(row, "us")) {
        return "no time";
    }
    return setups.contains({"library", row.text("library")}) ? "" : "the library's way of sending is not known";
}

double predicted_seconds(ModelCache& models, const FactsRow& row, const Setups& setups) {
    const double nodes = row.number("nodes");
    const double ranks = row.number("ranks");
    const YamlNode written = parse_yaml(
        fmt::format("orrery: 1\nkind: collective\ncluster: {{nodes: {}, node: {}, fabric: {{nodes_per_leaf: 16}}}}\n"
                    "collective: {{size: 1 B}}\n",
                    nodes, setups.at({"system", row.text("system")}).text("is")),
        "dispatch.csv");
    const Scenario parsed = read_scenario(written, "point", models.data());
    const Fabric fabric(shape_of(parsed.cluster, parsed.cluster_mark));
    ModelSpec model;
    model.hidden = static_cast<std::int64_t>(row.number("hidden"));
    model.experts.count = static_cast<std::int64_t>(row.number("experts"));
    model.experts.topk = static_cast<std::int64_t>(row.number("choices"));
    PlanSpec plan;
    plan.data = static_cast<std::int64_t>(ranks);
    plan.experts.expert = plan.data;
    plan.experts.tensor = 1;
    const std::string& dispatch = setups.at({"library", row.text("library")}).text("is");
    plan.experts.dispatch = dispatch == "hierarchical" ? TokenDispatch::hierarchical : TokenDispatch::all_to_all;
    std::vector<std::uint32_t> order;
    const auto per_node = static_cast<std::uint32_t>(ranks / nodes);
    for (std::uint32_t node = 0; node < static_cast<std::uint32_t>(nodes); ++node) {
        for (std::uint32_t i = 0; i < per_node; ++i) {
            order.push_back(node * fabric.shape().gpus_per_node + i);
        }
    }
    const auto& names = precision_names();
    const auto precision =
        static_cast<Precision>(std::find(names.begin(), names.end(), row.text("precision")) - names.begin());
    const CollectiveModel& library = models.collectives(parsed.cluster.node, LibraryKind::nccl);
    const RankGroups places(plan, fabric, PathChoice::spray, {Placement(fabric).reordered(std::move(order))});
    const ExpertExchange exchange(model, plan, library, places);
    return row.text("op") == "combine" ? exchange.combine(row.number("tokens"), precision)
                                       : exchange.dispatch(row.number("tokens"), precision);
}

// Errors of a group of rows, and of those with enough tokens for rates to decide.
struct Sums {
    std::vector<double> all, large;
};
constexpr double kLarge = 1024;  // tokens of a rank

double median_of(std::vector<double> errors) {
    for (double& error : errors) {
        error = std::abs(error);
    }
    return statistics_of(std::move(errors)).median_bias;
}

std::vector<std::string> cells_of(const Sums& sums) {
    const ErrorStatistics all = statistics_of(sums.all);
    return {std::to_string(all.count), fmt::format("{:.1f} %", all.mape), fmt::format("{:.1f} %", median_of(sums.all)),
            fmt::format("{:+.1f} %", all.median_bias),
            sums.large.empty() ? "-" : fmt::format("{:.1f} %", statistics_of(sums.large).mape)};
}

void add_table(const Terminal& terminal, Comparison& out, ComparisonTable table) {
    terminal.heading(table.title);
    terminal.table(table.columns, table.rows);
    out.tables.push_back(std::move(table));
}

}  // namespace

void validate_dispatch(ModelCache& models, const Terminal& terminal, bool points, Comparison& out) {
    const Setups setups = read_setups(models.data().path("validation/collectives/dispatch_setups.csv"));
    std::map<std::pair<std::string, std::string>, Sums> groups;
    std::map<std::string, Sums> systems;
    std::map<std::string, std::size_t> why;
    Sums all;
    std::vector<std::vector<std::string>> listed;
    for (const FactsRow& row : read_facts_table(models.data().path("validation/collectives/dispatch.csv"), ';')) {
        if (const std::string reason = left_out(row, setups); !reason.empty()) {
            ++why[reason];
            continue;
        }
        const double measured = row.number("us");
        const double predicted = predicted_seconds(models, row, setups) * 1e6;
        const double error = predicted / measured - 1;
        for (Sums* sums : {&groups[{row.text("system"), row.text("library")}], &systems[row.text("system")], &all}) {
            sums->all.push_back(error);
            if (row.number("tokens") >= kLarge) {
                sums->large.push_back(error);
            }
        }
        listed.push_back({row.text("system"), row.text("library"), row.text("op"), row.text("ranks"),
                          row.text("tokens"), row.text("precision"), row.text("choices"),
                          fmt::format("{:.1f} us", measured), fmt::format("{:.1f} us", predicted),
                          fmt::format("{:+.1f} %", 100 * error)});
    }
    if (points) {
        terminal.heading("measured exchanges of tokens with experts");
        terminal.table(
            {"system", "library", "op", "ranks", "tokens", "precision", "choices", "measured", "predicted", "error"},
            listed);
    }
    std::vector<std::vector<std::string>> rows;
    for (const auto& [key, sums] : groups) {
        std::vector<std::string>& cells = rows.emplace_back(std::vector<std::string>{key.first, key.second});
        const std::vector<std::string> errors = cells_of(sums);
        cells.insert(cells.end(), errors.begin(), errors.end());
    }
    std::vector<std::string>& last = rows.emplace_back(std::vector<std::string>{"all", ""});
    const std::vector<std::string> errors = cells_of(all);
    last.insert(last.end(), errors.begin(), errors.end());
    add_table(terminal, out,
              {"Tokens to experts and back, by system and library",
               {"system", "library", "points", "MAPE", "median error", "median bias", "from 1,024 tokens a rank"},
               std::move(rows)});
    std::vector<std::vector<std::string>> reasons;
    for (const auto& [reason, count] : why) {
        reasons.push_back({reason, std::to_string(count)});
    }
    add_table(terminal, out, {"Exchanges left out", {"reason", "rows"}, std::move(reasons)});
    double mean = 0;
    for (const auto& [name, sums] : systems) {
        mean += statistics_of(sums.all).mape / static_cast<double>(systems.size());
    }
    out.scores.insert(out.scores.end(), {{"dispatch_points", static_cast<double>(all.all.size()), ""},
                                         {"dispatch_systems", static_cast<double>(systems.size()), ""},
                                         {"dispatch_error_median", median_of(all.all), "%"},
                                         {"dispatch_error_mean_of_systems", mean, "%"},
                                         {"dispatch_bias", std::abs(statistics_of(all.all).median_bias), "%"}});
}

}  // namespace orrery::validation
