#include "tools/program/search_reports.hpp"

#include "tools/driver/kinds/serving.hpp"
#include "tools/report/answer_report.hpp"
#include "tools/report/page.hpp"
#include "tools/report/story.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::program {

using report::Answer;
using report::AnswerChart;
using report::seconds_text;

namespace {

constexpr std::size_t kRows = 200;  // of a table; `--json` has all

Answer answer_of(const Scenario& scenario, const char* command, const std::string& question) {
    Answer out;
    out.title = scenario.name;
    out.subtitle = fmt::format("orrery {}", command);
    out.facts = {{"Question", question},
                 {"Model", report::model_of(scenario)},
                 {"Hardware", report::hardware_of(scenario.cluster)}};
    return out;
}

void note_rest(Answer& answer, std::size_t shown, std::size_t all) {
    if (shown < all) {
        answer.notes.push_back(fmt::format("The table has the first {} of {} rows; --json writes all.", shown, all));
    }
}

std::string per_second(double value) {
    return report::value_text(value, "1/s");
}

}  // namespace

std::string plan_report(const PlanSearch& search, const Scenario& scenario, double price) {
    Answer out = answer_of(scenario, "plan", "Which parallel plan trains this model fastest here?");
    const RankedPlan& best = search.ranked.front();
    out.facts.emplace_back("Plan", plan::describe_plan(best.plan));
    out.facts.emplace_back(
        "Answer", fmt::format("{} per iteration, {:.1f} % MFU, {:.4g}k tokens/s", seconds_text(best.iteration_s),
                              100 * best.mfu, 1e-3 * best.tokens_per_s));
    if (price > 0) {
        out.facts.emplace_back("Cost", fmt::format("{:.5g} USD per billion tokens at {:.4g} USD per GPU hour",
                                                   best.gpu_hours * price, price));
    }
    out.facts.emplace_back("Searched", fmt::format("{} plans: {} do not divide the work, {} do not fit into memory, {} "
                                                   "are feasible",
                                                   search.listed, search.do_not_divide, search.do_not_fit,
                                                   search.ranked.size() - search.moved));
    out.findings.push_back(fmt::format("The best plan spends its time so: {}.", best.reason));
    // The leanest of the plans that are nearly as fast.
    constexpr double kNearly = 1.25;
    const auto leanest =
        std::min_element(search.ranked.begin(), search.ranked.end(), [&](const RankedPlan& a, const RankedPlan& b) {
            const auto slow = [&](const RankedPlan& plan) {
                return !plan.simulated || plan.iteration_s > kNearly * best.iteration_s;
            };
            return std::pair(slow(a), a.memory_gib) < std::pair(slow(b), b.memory_gib);
        });
    if (leanest->simulated && leanest->memory_gib < 0.95 * best.memory_gib) {
        out.findings.push_back(
            fmt::format("With {}, a GPU needs {:.3g} GiB in place of {:.3g}, and an iteration takes {:.1f} % longer.",
                        plan::describe_plan(leanest->plan), leanest->memory_gib, best.memory_gib,
                        100 * (leanest->iteration_s / best.iteration_s - 1)));
    }
    if (search.ranked.size() > 1 && search.ranked[1].simulated) {
        const RankedPlan& second = search.ranked[1];
        out.findings.push_back(fmt::format("The second best, {}, is {:.1f} % slower: {}.",
                                           plan::describe_plan(second.plan),
                                           100 * (second.iteration_s / best.iteration_s - 1), second.reason));
    }
    AnswerChart chart{"Time and memory of the simulated plans",
                      "Points on the front are faster than all with as little memory; their plans stand in the table.",
                      "memory per GPU, GiB",
                      "iteration time, s",
                      {},
                      false};
    ResultTable table{{"rank", "iteration, s", "MFU, %", "tokens/s", "memory, GiB", "GPU hours / 10^9 tokens",
                       price > 0 ? "USD / 10^9 tokens" : "nodes", "plan", "where its time goes"},
                      {}};
    for (std::size_t i = 0; i < search.ranked.size() && table.rows.size() < kRows; ++i) {
        const RankedPlan& plan = search.ranked[i];
        if (!plan.simulated) {
            break;
        }
        const std::string words = plan::describe_plan(plan.plan);
        chart.points.push_back({fmt::format("{}: {}", i + 1, words), plan.memory_gib, plan.iteration_s,
                                fmt::format("pipeline {}", plan.plan.pipeline), plan.pareto});
        table.rows.push_back(
            {static_cast<double>(i + 1), plan.iteration_s, 100 * plan.mfu, plan.tokens_per_s, plan.memory_gib,
             plan.gpu_hours, price > 0 ? plan.gpu_hours * price : static_cast<double>(plan.nodes), words, plan.reason});
    }
    out.charts.push_back(std::move(chart));
    note_rest(out, table.rows.size(), search.ranked.size());
    out.tables.push_back({"Simulated plans", std::move(table)});
    return report::answer_report(out);
}

std::string serving_plan_report(const ServingSearch& search, const Scenario& scenario, const std::string& rule) {
    Answer out = answer_of(scenario, "plan", fmt::format("Which replicas bear the highest rate while {}?", rule));
    const RankedServing& best = search.ranked.front();
    out.facts.emplace_back("Plan", "replicas: " + plan::describe_serving(best.engine));
    out.facts.emplace_back(
        "Answer", fmt::format("{:.4g} requests/s, {} output tokens", best.rate, per_second(best.output_tokens)));
    if (best.usd_per_million > 0) {
        out.facts.emplace_back("Cost", fmt::format("{:.3g} USD per million output tokens", best.usd_per_million));
    }
    out.facts.emplace_back("Searched",
                           fmt::format("{} plans: {} do not divide the work, {} do not fit into memory, {} "
                                       "miss the limits at any rate",
                                       search.listed, search.do_not_divide, search.do_not_fit, search.miss_limits));
    if (!best.limit.empty()) {
        out.findings.push_back(fmt::format("Above this rate the best plan first exceeds {}.", best.limit));
    }
    if (search.ranked.size() > 1 && search.ranked[1].whole_load) {
        out.findings.push_back(fmt::format("The second best, {}, bears {:.1f} % less.",
                                           plan::describe_serving(search.ranked[1].engine),
                                           100 * (1 - search.ranked[1].rate / best.rate)));
    }
    AnswerChart chart{
        "Rate and time between tokens", "Judged on the whole load.", "requests/s", "time between tokens, s", {}, false};
    ResultTable table{{"rank", "requests/s", "requests/s per GPU", "ttft, s", "time between tokens, s",
                       "USD / 10^6 output tokens", "replicas", "gives out first"},
                      {}};
    for (std::size_t i = 0; i < search.ranked.size() && search.ranked[i].whole_load; ++i) {
        const RankedServing& plan = search.ranked[i];
        const std::string words = plan::describe_serving(plan.engine);
        chart.points.push_back(
            {words, plan.rate, plan.tbt, plan.engine.split ? "prefill and decode apart" : "mixed", plan.pareto});
        table.rows.push_back({static_cast<double>(i + 1), plan.rate, plan.rate_per_gpu, plan.ttft, plan.tbt,
                              plan.usd_per_million, words, plan.limit});
    }
    out.charts.push_back(std::move(chart));
    out.tables.push_back({"Plans on the whole load", std::move(table)});
    return report::answer_report(out);
}

std::string capacity_report(const Capacity& capacity, const Scenario& scenario, const std::string& rule) {
    Answer out =
        answer_of(scenario, "capacity", fmt::format("Which request rate does this deployment bear while {}?", rule));
    const CapacityTrial& best = capacity.best();
    out.facts.emplace_back("Plan", "replicas: " + plan::describe_serving(scenario.as<driver::ServingKind>().engine));
    out.facts.emplace_back(
        "Answer",
        fmt::format("{:.4g} requests/s (95 %: {:.4g} to {:.4g}), {:.4g} per GPU on {} GPUs", capacity.rate,
                    capacity.low, capacity.high, capacity.rate / static_cast<double>(capacity.gpus), capacity.gpus));
    if (best.blended_cost > 0) {
        out.facts.emplace_back("Cost", fmt::format("{:.3g} USD per million input tokens, {:.3g} output, {:.3g} of both",
                                                   best.input_cost, best.output_cost, best.blended_cost));
    }
    if (best.energy_per_token_j > 0) {
        out.facts.emplace_back("Energy", fmt::format("{:.3g} J per output token", best.energy_per_token_j));
    }
    const auto above = std::find_if(capacity.trials.begin(), capacity.trials.end(),
                                    [](const CapacityTrial& trial) { return !trial.within; });
    if (above != capacity.trials.end()) {
        out.findings.push_back(
            fmt::format("At {:.4g} requests/s the deployment exceeds: {}.", above->rate, above->limit));
    }
    out.findings.push_back(
        fmt::format("At the capacity, {:.1f} % of requests meet all limits; TTFT is {} and time per "
                    "output token {}.",
                    100 * best.attainment, seconds_text(best.ttft), seconds_text(best.tpot)));
    AnswerChart chart{"Latency and rate",
                      "At the judged percentile. Rates at which the queue grows without bound have "
                      "no steady latency and are listed only in the table.",
                      "requests/s",
                      "time to first token, s",
                      {},
                      true};
    ResultTable table{
        {"requests/s", "within", "attainment, %", "ttft, s", "tpot, s", "tbt, s", "output tokens/s", "exceeded"}, {}};
    for (const CapacityTrial& trial : capacity.trials) {
        if (trial.served <= 0) {
            chart.points.push_back({trial.within ? "within" : trial.limit, trial.rate, trial.ttft, "TTFT", false});
        }
        table.rows.push_back({trial.rate, std::string(trial.within ? "yes" : "no"), 100 * trial.attainment, trial.ttft,
                              trial.tpot, trial.tbt, trial.output_tokens, trial.limit});
    }
    out.charts.push_back(std::move(chart));
    out.tables.push_back({"Rates tried", std::move(table)});
    return report::answer_report(out);
}

std::string recommend_report(const RecommendSearch& search, const Scenario& scenario, const std::string& rule) {
    Answer out =
        answer_of(scenario, "recommend", fmt::format("What is the cheapest hardware for this load: {}?", rule));
    out.facts.erase(out.facts.begin() + 2);  // the hardware is what is asked for
    const auto words = [&](const Recommendation& one) {
        const Arrangement& arrangement = search.list.open[one.arrangement];
        return fmt::format("{} GPUs, {}", one.gpus, arrangement.words);
    };
    const Recommendation& best = search.ranked.front();
    const double hourly = best.usd_per_hour;
    out.facts.emplace_back("Answer", words(best));
    out.facts.emplace_back("Cost", fmt::format("{:.2f} USD per hour, {:.3g} USD per million output tokens", hourly,
                                               hourly / 3600 / std::max(best.output_tokens, 1e-12) * 1e6));
    out.facts.emplace_back("Searched", fmt::format("{} arrangements, {} of them judged on the whole load in {} runs",
                                                   search.list.listed, search.ranked.size(), search.runs));
    out.findings.push_back(fmt::format("With one replica fewer: {}.", best.fewer));
    if (search.ranked.size() > 1) {
        const Recommendation& second = search.ranked[1];
        out.findings.push_back(
            fmt::format("The next cheapest is {} at {:.2f} USD per hour.", words(second), second.usd_per_hour));
    }
    const auto fastest = std::max_element(
        search.ranked.begin(), search.ranked.end(),
        [](const Recommendation& a, const Recommendation& b) { return a.tokens_per_user < b.tokens_per_user; });
    if (fastest->tokens_per_user > best.tokens_per_user) {
        out.findings.push_back(
            fmt::format("The fastest for a user, {}, gives {:.0f} tokens/s in place of {:.0f} and "
                        "costs {:.2f} USD per hour.",
                        words(*fastest), fastest->tokens_per_user, best.tokens_per_user, fastest->usd_per_hour));
    }
    AnswerChart chart{"Cost and speed for a user",
                      "The front: nothing cheaper is as fast for a user.",
                      "USD per hour",
                      "output tokens/s per user",
                      {},
                      false};
    ResultTable table{{"rank", "USD per hour", "USD / 10^6 output tokens", "GPUs", "arrangement", "output tokens/s",
                       "ttft p95, s", "tpot p95, s", "tokens/s per GPU", "tokens/s per user", "with one fewer"},
                      {}};
    for (std::size_t i = 0; i < search.ranked.size(); ++i) {
        const Recommendation& one = search.ranked[i];
        const Arrangement& arrangement = search.list.open[one.arrangement];
        const bool front = std::none_of(search.ranked.begin(), search.ranked.end(), [&](const Recommendation& other) {
            return other.usd_per_hour <= one.usd_per_hour && other.tokens_per_user >= one.tokens_per_user &&
                   (other.usd_per_hour < one.usd_per_hour || other.tokens_per_user > one.tokens_per_user);
        });
        chart.points.push_back({words(one), one.usd_per_hour, one.tokens_per_user, arrangement.device, front});
        table.rows.push_back({static_cast<double>(i + 1), one.usd_per_hour,
                              one.usd_per_hour / 3600 / std::max(one.output_tokens, 1e-12) * 1e6,
                              static_cast<double>(one.gpus), arrangement.words, one.output_tokens, one.ttft, one.tpot,
                              one.tokens_per_gpu, one.tokens_per_user, one.fewer});
    }
    out.charts.push_back(std::move(chart));
    out.tables.push_back({"Arrangements on the whole load", std::move(table)});
    return report::answer_report(out);
}

}  // namespace orrery::program
