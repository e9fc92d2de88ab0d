// orrery plan: the best parallel plans of a training scenario.

#include "tools/driver/kind.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/plan/search.hpp"
#include "tools/program/best_scenario.hpp"
#include "tools/program/capacity_command.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/outputs.hpp"
#include "tools/program/search_reports.hpp"
#include "tools/sweep/worker_pool.hpp"
#include "tools/terminal/terminal.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace orrery::program {

namespace {

using Json = nlohmann::ordered_json;

// The lines of a document that stand inside another one, so deep.
std::string indented(const std::string& text, std::size_t depth) {
    std::string out;
    out.reserve(text.size() + depth);
    for (const char c : text) {
        out += c;
        if (c == '\n') {
            out.append(depth, ' ');
        }
    }
    return out;
}

// A million plans are written one by one: as one document in memory they would take gigabytes.
std::string plan_json(const PlanSearch& search, const Scenario& scenario, double price) {
    Json out;
    out["schema"] = "orrery-plan-1";
    out["scenario"] = scenario.name;
    out["listed"] = search.listed;
    out["do_not_divide"] = search.do_not_divide;
    out["do_not_fit"] = search.do_not_fit;
    out["feasible"] = search.ranked.size() - search.moved;
    out["moved"] = search.moved;
    const auto rounded = [](double value) { return std::stod(fmt::format("{:.12g}", value)); };
    std::string text = out.dump(1);
    text.erase(text.size() - 2);  // its end
    text += ",\n \"plans\": [";
    for (const RankedPlan& plan : search.ranked) {
        Json row = {{"set", assignments_of(plan)},
                    {"simulated", plan.simulated},
                    {"iteration_time_s", rounded(plan.iteration_s)},
                    {"estimate_s", rounded(plan.estimate_s)},
                    {"memory_per_gpu_gib", rounded(plan.memory_gib)},
                    {"gpu_hours_per_billion_tokens", rounded(plan.gpu_hours)},
                    {"pareto", plan.pareto}};
        if (price > 0) {
            row["cost_per_billion_tokens"] = rounded(plan.gpu_hours * price);
        }
        if (plan.simulated) {
            row["mfu"] = rounded(plan.mfu);
            row["tokens_per_s"] = rounded(plan.tokens_per_s);
            row["reason"] = plan.reason;
        }
        text += (&plan == &search.ranked.front() ? "\n  " : ",\n  ") + indented(row.dump(1), 2);
    }
    text += "\n ]";
    Json recovery = Json::array();
    for (const RecoveryChoice& choice : search.recovery) {
        recovery.push_back({{"interval_s", rounded(choice.interval_s)},
                            {"standbys", choice.standbys},
                            {"goodput_fraction", rounded(choice.goodput)},
                            {"half_width", rounded(choice.half_width)},
                            {"goodput_per_machine", rounded(choice.per_machine)}});
    }
    if (!recovery.empty()) {
        text += ",\n \"recovery\": " + indented(recovery.dump(1), 1);
    }
    return text + "\n}\n";
}

void print_recovery(const Terminal& terminal, const std::vector<RecoveryChoice>& choices, std::size_t shown) {
    if (choices.empty()) {
        return;
    }
    std::vector<std::vector<std::string>> rows;
    for (std::size_t i = 0; i < std::min(shown, choices.size()); ++i) {
        const RecoveryChoice& choice = choices[i];
        rows.push_back({fmt::format("{:.4g} s", choice.interval_s), std::to_string(choice.standbys),
                        fmt::format("{:.2f} % +-{:.2f}", 100 * choice.goodput, 100 * choice.half_width),
                        fmt::format("{:.2f} %", 100 * choice.per_machine)});
    }
    terminal.heading("checkpoints and standbys for the best plan: useful training per machine, standbys included");
    terminal.table({"checkpoint every", "standbys", "goodput", "per machine"}, rows);
}

std::vector<std::string> best_assignments(const PlanSearch& search) {
    std::vector<std::string> out = assignments_of(search.ranked.front());
    if (!search.recovery.empty()) {
        const RecoveryChoice& choice = search.recovery.front();
        out.emplace_back("faults.checkpoint.interval.kind=fixed");
        out.push_back(fmt::format("faults.checkpoint.interval.every={:.6g} s", choice.interval_s));
        out.push_back(fmt::format("faults.recovery.standbys={}", choice.standbys));
    }
    return out;
}

std::vector<std::string> row_of(const RankedPlan& plan, std::size_t rank, const RankedPlan& best, double price,
                                bool with_nodes) {
    std::vector<std::string> row = {std::to_string(rank),
                                    fmt::format("{:.4g} s", plan.iteration_s),
                                    fmt::format("{:+.1f} %", 100 * (plan.iteration_s / best.iteration_s - 1)),
                                    fmt::format("{:.1f} %", 100 * plan.mfu),
                                    fmt::format("{:.4g}k", 1e-3 * plan.tokens_per_s),
                                    fmt::format("{:.1f} GiB", plan.memory_gib)};
    if (with_nodes || price > 0) {
        row.push_back(price > 0 ? fmt::format("{:.5g}", plan.gpu_hours * price)
                                : fmt::format("{:.4g}", plan.gpu_hours));
    }
    row.push_back((with_nodes ? fmt::format("{} nodes, ", plan.nodes) : "") + describe_plan(plan.plan));
    row.push_back(plan.reason);
    return row;
}

}  // namespace

int command_plan(const CommandLine& line, const DataDirectory& data) {
    const Terminal terminal = line.terminal();
    const Scenario scenario = load_scenario(line.arguments[0], line.overrides(), data);
    check_outputs(line, files_of(scenario));
    check_best_scenario(line, files_of(scenario));
    if (scenario.find<ServingKind>() != nullptr) {
        return plan_serving(line, scenario, data);
    }
    for (const char* only : {"attainment", "percentile", "tolerance"}) {
        if (line.has(only)) {
            throw ConfigError(fmt::format("--{} is for serving scenarios", only), ErrorCode::command_line);
        }
    }
    PlanOptions options;
    options.workers = static_cast<unsigned>(line.whole("jobs", available_cores(), 1, 1024));
    options.simulate = line.whole("simulate", 50, 1, 100'000);
    for (const std::string& text : line.list("nodes")) {
        double nodes = 0;
        if (!parse_number(text, nodes) || nodes != std::floor(nodes) || nodes < 1 || nodes > 1e6) {
            throw ConfigError(fmt::format("--nodes is a list of whole numbers, such as 64,128; not '{}'", text),
                              ErrorCode::command_line);
        }
        const auto count = static_cast<std::int64_t>(nodes);
        if (std::find(options.nodes.begin(), options.nodes.end(), count) == options.nodes.end()) {
            options.nodes.push_back(count);
        }
    }
    std::string problem;
    if (line.has("headroom") &&
        (!parse_quantity(line.text("headroom"), Dimension::fraction, options.headroom, problem) ||
         options.headroom < 0 || options.headroom >= 1)) {
        throw ConfigError(
            fmt::format("--headroom is the share of memory to leave free, from 0 to below 1, such as 5 %; "
                        "not '{}'",
                        line.text("headroom")),
            ErrorCode::command_line);
    }
    double price = scenario.cluster.mixed ? 0 : scenario.cluster.node.gpu.price.value;
    if (line.has("price") && (!parse_number(line.text("price"), price) || price <= 0)) {
        throw ConfigError("--price is a positive number: the price of a GPU hour", ErrorCode::command_line);
    }
    if (line.has("engine")) {
        options.software = &plan_software(line.text("engine"));
    }
    const std::size_t shown = line.whole("top", 10, 1, 100'000);
    Progress progress(terminal, "searching plans");
    options.progress = [&](double fraction) { progress.update(fraction); };
    options.found = [&](const std::string& text) { progress.note(text); };
    const PlanSearch search = search_plans(scenario, data, options);
    progress.finish();
    if (line.has("json")) {
        write_output(line, "json", plan_json(search, scenario, price));
    }
    if (line.has("report")) {
        write_output(line, "report", plan_report(search, scenario, price));
    }
    if (line.has("output")) {
        write_best_scenario(
            line, data, {}, best_assignments(search),
            fmt::format("{} with the best of {} plans: {}, {:.4g} s per iteration.", line.arguments[0], search.listed,
                        describe_plan(search.ranked.front().plan), search.ranked.front().iteration_s));
    }
    if (line.quiet() || line.text("json") == "-" || line.text("output") == "-") {
        return 0;
    }
    const auto simulated = static_cast<std::size_t>(
        std::count_if(search.ranked.begin(), search.ranked.end(), [](const RankedPlan& p) { return p.simulated; }));
    const RankedPlan& best = search.ranked.front();
    say("{} plans: {} do not divide, {} do not fit into memory with {:.4g} % of it left free (--headroom), {} are "
        "feasible; "
        "the {} best by estimate and on its front are simulated{}\n",
        search.listed, search.do_not_divide, search.do_not_fit, 100 * options.headroom,
        search.ranked.size() - search.moved, simulated - search.moved,
        search.moved > 0 ? fmt::format(", {} of them once more, faster with layers moved between stages", search.moved)
                         : std::string());
    if (options.software != nullptr) {
        say("Listed are the plans of {}. Kernels and overheads are those of the scenario's software.\n",
            options.software->what);
    }
    const bool with_nodes = options.nodes.size() > 1;
    std::vector<std::string> header = {"rank", "iteration", "", "MFU", "tokens/s", "memory"};
    if (with_nodes || price > 0) {
        header.emplace_back(price > 0 ? "USD / 10^9 tokens" : "GPU hours / 10^9 tokens");
    }
    header.insert(header.end(), {"plan", "where its time goes; from the second on, against the best"});
    std::vector<std::vector<std::string>> rows;
    for (std::size_t i = 0; i < std::min(shown, simulated); ++i) {
        rows.push_back(row_of(search.ranked[i], i + 1, best, price, with_nodes));
    }
    // Texts wrap, and where its time goes gives way first.
    std::vector<ColumnFit> fit(header.size());
    fit[fit.size() - 2].wraps = true;
    fit.back() = {2, true};
    fit[4] = {3};  // tokens per second and MFU say what the time says
    fit[3] = {4};
    if (header.size() > 8) {
        fit[6] = {1};  // cost, which of plans on equal GPUs does too
    }
    terminal.heading("best plans, simulated");
    terminal.fitted_table(header, rows, fit, line.has("all"));
    rows.clear();
    for (std::size_t i = 0; i < simulated; ++i) {
        if (search.ranked[i].pareto) {
            rows.push_back(row_of(search.ranked[i], i + 1, best, price, with_nodes));
        }
    }
    terminal.heading("Pareto front: no plan is better in time, memory and cost at once");
    terminal.fitted_table(header, rows, fit, line.has("all"));
    print_recovery(terminal, search.recovery, shown);
    if (simulated < search.ranked.size()) {
        say("\nThe best plan that was not simulated is estimated at {:.4g} s; among the simulated the estimate errs by "
            "at most "
            "{:.1f} %.\n",
            search.ranked[simulated].estimate_s, 100 * search.worst_error);
    }
    say("\nTo run the best: orrery run {}\n",
        line.has("output") ? line.text("output") : line.arguments[0] + set_words(line, best_assignments(search)));
    return 0;
}

}  // namespace orrery::program
