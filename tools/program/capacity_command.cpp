#include "tools/program/capacity_command.hpp"

#include "tools/driver/kinds/serving.hpp"
#include "tools/plan/serving_search.hpp"
#include "tools/program/best_scenario.hpp"
#include "tools/program/outputs.hpp"
#include "tools/program/search_reports.hpp"
#include "tools/report/page.hpp"
#include "tools/sweep/worker_pool.hpp"
#include "tools/terminal/terminal.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace orrery::program {

namespace {

using Json = nlohmann::ordered_json;

double rounded(double value) {
    return std::stod(fmt::format("{:.12g}", value));
}

double fraction_of(const CommandLine& line, const char* name, double otherwise, double least, double most) {
    double value = otherwise;
    if (line.has(name) && (!parse_number(line.text(name), value) || !(value >= least && value <= most))) {
        throw ConfigError(fmt::format("--{} is a number from {} to {}, not '{}'", name, least, most, line.text(name)),
                          ErrorCode::command_line);
    }
    return value;
}

CapacityOptions capacity_options(const CommandLine& line) {
    CapacityOptions options;
    options.attainment = fraction_of(line, "attainment", 0.9, 0.01, 1);
    options.percentile = fraction_of(line, "percentile", 0, 50, 99);
    options.tolerance = fraction_of(line, "tolerance", 0.02, 1e-4, 0.5);
    if (line.has("attainment") && line.has("percentile")) {
        throw ConfigError("--attainment and --percentile are two ways to say what must hold: give one",
                          ErrorCode::command_line);
    }
    return options;
}

std::string rule(const CapacityOptions& options) {
    return options.percentile > 0
               ? fmt::format("the {:g}th percentile of each limited metric is within its limit", options.percentile)
               : fmt::format("{:g} % of the requests meet all limits", 100 * options.attainment);
}

std::string capacity_json(const Capacity& capacity, const Scenario& scenario, double usd) {
    Json out;
    out["schema"] = "orrery-capacity-1";
    out["scenario"] = scenario.name;
    out["capacity_rps"] = {
        {"value", rounded(capacity.rate)}, {"low", rounded(capacity.low)}, {"high", rounded(capacity.high)}};
    out["by_seed"] = Json::array();
    for (const double rate : capacity.by_seed) {
        out["by_seed"].push_back(rounded(rate));
    }
    out["gpus"] = capacity.gpus;
    out["capacity_per_gpu_rps"] = rounded(capacity.rate / static_cast<double>(capacity.gpus));
    if (usd > 0) {
        const CapacityTrial& best = capacity.best();
        out["cost_per_million_tokens_usd"] = rounded(usd);
        out["cost_per_million_input_tokens_usd"] = rounded(best.input_cost);
        out["cost_per_million_output_tokens_usd"] = rounded(best.output_cost);
        out["cost_per_million_blended_tokens_usd"] = rounded(best.blended_cost);
    }
    out["runs"] = capacity.runs;
    out["trials"] = Json::array();
    for (const CapacityTrial& trial : capacity.trials) {
        out["trials"].push_back({{"rate_rps", rounded(trial.rate)},
                                 {"within", trial.within},
                                 {"slo_attainment", rounded(trial.attainment)},
                                 {"ttft_s", rounded(trial.ttft)},
                                 {"tpot_s", rounded(trial.tpot)},
                                 {"tbt_s", rounded(trial.tbt)},
                                 {"output_tokens_per_s", rounded(trial.output_tokens)},
                                 {"exceeds", trial.limit}});
    }
    return out.dump(1) + "\n";
}

Json plan_json(const RankedServing& plan) {
    Json row = {{"set", assignments_of(plan.engine)},
                {"gpus", plan.gpus},
                {"whole_load", plan.whole_load},
                {"capacity_rps", rounded(plan.rate)},
                {"capacity_per_gpu_rps", rounded(plan.rate_per_gpu)},
                {"output_tokens_per_s", rounded(plan.output_tokens)},
                {"ttft_s", rounded(plan.ttft)},
                {"tbt_s", rounded(plan.tbt)},
                {"exceeds_first", plan.limit},
                {"pareto", plan.pareto}};
    if (plan.usd_per_million > 0) {
        row["cost_per_million_tokens_usd"] = rounded(plan.usd_per_million);
    }
    return row;
}

std::vector<std::string> row_of(const RankedServing& plan, std::size_t rank, const RankedServing& best) {
    return {std::to_string(rank),
            fmt::format("{:.4g}", plan.rate),
            fmt::format("{:+.1f} %", 100 * (plan.rate / best.rate - 1)),
            fmt::format("{:.4g}", plan.rate_per_gpu),
            report::seconds_text(plan.ttft),
            report::seconds_text(plan.tbt),
            plan.usd_per_million > 0 ? fmt::format("{:.3g}", plan.usd_per_million) : "-",
            describe_serving(plan.engine),
            plan.limit};
}

}  // namespace

int command_capacity(const CommandLine& line, const DataDirectory& data) {
    const Terminal terminal = line.terminal();
    const Scenario scenario = load_scenario(line.arguments[0], line.overrides(), data);
    check_outputs(line, files_of(scenario));
    CapacityOptions options = capacity_options(line);
    options.seeds = static_cast<int>(line.whole("seeds", 5, 1, 30));
    Progress progress(terminal, "searching for the highest rate");
    options.found = [&](const std::string& text) { progress.note(text); };
    ModelCache models(data);
    const Capacity capacity = find_capacity(scenario, models, options);
    progress.finish();
    const CapacityTrial& best = capacity.best();
    const double price = scenario.cluster.mixed ? 0 : scenario.cluster.node.gpu.price.value;
    const double usd = price > 0 && best.output_tokens > 0
                           ? price / 3600 * static_cast<double>(capacity.gpus) / best.output_tokens * 1e6
                           : 0;
    if (line.has("json")) {
        write_output(line, "json", capacity_json(capacity, scenario, usd));
    }
    if (line.has("report")) {
        write_output(line, "report", capacity_report(capacity, scenario, rule(options)));
    }
    if (line.quiet() || line.text("json") == "-") {
        return 0;
    }
    std::vector<std::vector<std::string>> rows;
    for (const CapacityTrial& trial : capacity.trials) {
        rows.push_back({fmt::format("{:.4g}", trial.rate), trial.within ? "yes" : "no",
                        fmt::format("{:.1f} %", 100 * trial.attainment), report::seconds_text(trial.ttft),
                        report::seconds_text(trial.tpot), report::seconds_text(trial.tbt),
                        fmt::format("{:.0f}", trial.output_tokens), trial.limit});
    }
    const std::string at = options.percentile > 0 ? fmt::format("p{:g}", options.percentile) : "p99";
    terminal.heading(fmt::format("rates tried, around the capacity with {} seed{}: {}", options.seeds,
                                 options.seeds > 1 ? "s" : "", rule(options)));
    terminal.table(
        {"requests/s", "within", "attainment", "ttft " + at, "tpot " + at, "tbt " + at, "tokens/s", "exceeded"}, rows);
    say("\ncapacity {:.4g} requests/s", capacity.rate);
    if (capacity.by_seed.size() > 1) {
        say(" (95 % from {} seeds: {:.4g} to {:.4g})", capacity.by_seed.size(), capacity.low, capacity.high);
    }
    say(", {:.4g} per GPU on {} GPU{}, {:.0f} output tokens/s", capacity.rate / static_cast<double>(capacity.gpus),
        capacity.gpus, capacity.gpus == 1 ? "" : "s", best.output_tokens);
    if (usd > 0) {
        say(", {:.3g} USD per million output tokens\n", usd);
        say("USD per million tokens: {:.3g} input, {:.3g} output, {:.3g} blended", best.input_cost, best.output_cost,
            best.blended_cost);
    }
    say("\n");
    return 0;
}

int plan_serving(const CommandLine& line, const Scenario& scenario, const DataDirectory& data) {
    const Terminal terminal = line.terminal();
    for (const char* only : {"nodes", "price", "headroom", "engine"}) {
        if (line.has(only)) {
            throw ConfigError(fmt::format("--{} is for training scenarios", only), ErrorCode::command_line);
        }
    }
    ServingPlanOptions options;
    options.capacity = capacity_options(line);
    options.workers = static_cast<unsigned>(line.whole("jobs", available_cores(), 1, 1024));
    options.simulate = line.whole("simulate", 20, 1, 100'000);
    const std::size_t shown = line.whole("top", 10, 1, 100'000);
    Progress progress(terminal, "searching serving plans");
    options.progress = [&](double fraction) { progress.update(fraction); };
    options.found = [&](const std::string& text) { progress.note(text); };
    const ServingSearch search = search_serving(scenario, data, options);
    progress.finish();
    if (line.has("json")) {
        Json out = {{"schema", "orrery-serving-plan-1"},
                    {"scenario", scenario.name},
                    {"listed", search.listed},
                    {"do_not_divide", search.do_not_divide},
                    {"do_not_fit", search.do_not_fit},
                    {"miss_limits", search.miss_limits},
                    {"plans", Json::array()}};
        for (const RankedServing& plan : search.ranked) {
            out["plans"].push_back(plan_json(plan));
        }
        write_output(line, "json", out.dump(1) + "\n");
    }
    if (line.has("report")) {
        write_output(line, "report", serving_plan_report(search, scenario, rule(options.capacity)));
    }
    const RankedServing& best = search.ranked.front();
    std::vector<std::string> without;
    if (scenario.as<ServingKind>().engine.split && !best.engine.split) {
        without = {"engine.prefill", "engine.decode"};
    }
    if (line.has("output")) {
        write_best_scenario(line, data, without, assignments_of(best.engine),
                            fmt::format("{} with the best of {} arrangements.", line.arguments[0], search.listed));
    }
    if (line.quiet() || line.text("json") == "-" || line.text("output") == "-") {
        return 0;
    }
    say("{} plans: {} do not divide, {} do not fit into memory, {} miss the limits at any rate; {} are ranked by the "
        "rate at "
        "which {}\n",
        search.listed, search.do_not_divide, search.do_not_fit, search.miss_limits, search.ranked.size(),
        rule(options.capacity));
    const std::vector<std::string> header = {"rank", "requests/s",        "",         "a GPU",          "ttft",
                                             "tbt",  "USD / 10^6 tokens", "replicas", "gives out first"};
    std::vector<std::vector<std::string>> rows;
    std::vector<std::vector<std::string>> front;
    for (std::size_t i = 0; i < search.ranked.size() && search.ranked[i].whole_load; ++i) {
        if (i < shown) {
            rows.push_back(row_of(search.ranked[i], i + 1, best));
        }
        if (search.ranked[i].pareto) {
            front.push_back(row_of(search.ranked[i], i + 1, best));
        }
    }
    terminal.heading("best plans, on the whole load");
    const std::vector<ColumnFit> fit = {{}, {}, {1}, {4}, {3}, {3}, {5}, {0, true}, {2, true}};
    terminal.fitted_table(header, rows, fit, line.has("all"));
    terminal.heading("Pareto front: no plan bears a higher rate with less time between tokens");
    terminal.fitted_table(header, front, fit, line.has("all"));
    // A short load flatters what fills slowly, such as pipelines.
    const auto higher = std::count_if(search.ranked.begin(), search.ranked.end(), [&](const RankedServing& plan) {
        return !plan.whole_load && plan.rate_per_gpu > best.rate_per_gpu;
    });
    if (higher > 0) {
        say("note: {} more came out higher on a quarter of the load, where most plans do: --simulate {} judges them "
            "too\n",
            higher, options.simulate + static_cast<std::size_t>(higher));
    }
    if (line.has("output")) {
        say("\nTo run the best: orrery run {}\n", line.text("output"));
        return 0;
    }
    say("\nTo run the best{} orrery run {}{}\n",
        without.empty() ? ":" : ", take 'prefill' and 'decode' out of the scenario's engine; then", line.arguments[0],
        set_words(line, assignments_of(best.engine)));
    return 0;
}

}  // namespace orrery::program
