// Serving runs that nobody gave a length: their answer is that of a much longer run.

#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/kinds/serving_intervals.hpp"
#include "tools/plan/capacity.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

using namespace orrery;
using namespace orrery::test;

namespace {

std::string small(const std::string& requests, const std::string& engine = "{}", const std::string& rest = "") {
    return fmt::format(
        "orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: llama-3-8b\n"
        "engine: {}\nrequests: {}\n{}",
        engine, requests, rest);
}

double value(const Summary& summary, const std::string& name) {
    const Metric* metric = summary.find(name);
    REQUIRE_MESSAGE(metric != nullptr, name);
    return metric->value;
}

}  // namespace

TEST_CASE("steady state: a run of no given length answers as one twenty times longer does, within 5 %") {
    const std::string lognormal = "{kind: lognormal, mean: 256, spread: 0.6, most: 2048}";
    const std::vector<std::pair<const char*, std::string>> cases = {
        {"one GPU at half of what it bears", small("{rate: 15}")},
        {"one GPU near what it bears", small("{rate: 30}")},
        {"bursts and uneven lengths",
         small(
             fmt::format("{{arrivals: gamma, burstiness: 2, rate: 10, prompt: {}, output: {{mean: 64}}}}", lognormal))},
        {"two replicas and conversations",
         small("{rate: 4, turns: 3, think: 2 s, prompt: {mean: 200}, output: {mean: 64}}",
               "{replicas: 2, router: session, kv: {prefix: {host: 10 GiB}}}")},
        {"a closed loop", small("{arrivals: closed, clients: 24, prompt: {kind: uniform, mean: 300, spread: 0.5}, "
                                "output: {kind: uniform, mean: 60, spread: 0.5}}")}};
    for (const auto& [name, text] : cases) {
        const Scenario s = scenario(text);
        const Summary own = run_scenario(s, model_cache(), {}).summary;
        RunOptions longer;
        longer.steady.batch *= 20;
        longer.steady.most *= 20;
        const Summary far = run_scenario(s, model_cache(), longer).summary;
        CHECK_MESSAGE(value(far, "requests") >= 32'000, name);
        for (const char* metric : {"output_tokens_per_s", "requests_per_s", "cost_per_million_tokens_usd"}) {
            const double ratio = value(own, metric) / value(far, metric);
            CHECK_MESSAGE(std::fabs(ratio - 1) < 0.05, fmt::format("{}: {} is {:.4f} times", name, metric, ratio));
            MESSAGE(fmt::format("{}: {} {:.4f} of {:.6g}; {} requests", name, metric, ratio, value(far, metric),
                                value(own, "requests")));
        }
        CHECK(value(own, "overloaded") == 0);
        const Metric* rate = own.find("output_tokens_per_s");
        REQUIRE(rate->low);
        CHECK(*rate->low < rate->value);
        CHECK(*rate->high > rate->value);
        CHECK(*rate->high / rate->value < 1.026);
    }
}

TEST_CASE("steady state: an overload is said with the rate that is sustained, and a given count stays as it was") {
    const Summary over = run_scenario(scenario(small("{rate: 500}")), model_cache(), {}).summary;
    CHECK(value(over, "overloaded") == 1);
    const double sustained = value(over, "sustainable_rps");
    CHECK(sustained < 200);
    CHECK(value(over, "requests_per_s") == doctest::Approx(sustained).epsilon(0.02));
    REQUIRE(!over.notes.empty());
    CHECK(over.notes.back().rfind("warning: overloaded", 0) == 0);
    // Just below it the queue stays.
    CHECK(
        value(
            run_scenario(scenario(small(fmt::format("{{rate: {:.6g}}}", 0.9 * sustained))), model_cache(), {}).summary,
            "overloaded") == 0);
    const Summary counted = run_scenario(scenario(small("{rate: 500, count: 300}")), model_cache(), {}).summary;
    CHECK(value(counted, "requests") == 300);
    CHECK(counted.find("overloaded") == nullptr);
    CHECK(!counted.find("output_tokens_per_s")->low);
}

TEST_CASE("steady state: what ends the load, where no count is given") {
    const auto end_of = [](const std::string& requests, const std::string& engine = "{}",
                           const std::string& rest = "") {
        const Scenario s = scenario(small(requests, engine, rest));
        return load_end(s.as<ServingKind>().engine, s.as<ServingKind>().requests, s.as<ServingKind>().measure);
    };
    CHECK(end_of("{rate: 1}") == LoadEnd::steady);
    CHECK(end_of("{arrivals: closed, clients: 2}") == LoadEnd::steady);
    CHECK(end_of("{rate: 1, count: 5}") == LoadEnd::count);
    CHECK(end_of("{arrivals: at-once}") == LoadEnd::count);
    CHECK(end_of("{rate: 1}", "{}", "faults: {events: [{at: 5 s, kind: fail-stop, where: replica0}]}\n") ==
          LoadEnd::count);
    CHECK(end_of("{rate: 1, swing: 0.5}") == LoadEnd::time);
    CHECK(end_of("{rate: 1}", "{}", "measure: {from: 10 s, to: 40 s}\n") == LoadEnd::time);
    // The window is filled to its end, and a swing is one whole period.
    const Summary window =
        run_scenario(scenario(small("{rate: 5}", "{}", "measure: {from: 100 s, to: 1100 s}\n")), model_cache(), {})
            .summary;
    CHECK(value(window, "requests") == doctest::Approx(5000).epsilon(0.05));
    const Summary day =
        run_scenario(scenario(small("{rate: 5, swing: 0.8, period: 600 s}")), model_cache(), {}).summary;
    CHECK(value(day, "requests") == doctest::Approx(3000).epsilon(0.05));
    // A warm-up that is given is left out at least.
    const Summary late =
        run_scenario(scenario(small("{rate: 15}", "{}", "measure: {from: 60 s}\n")), model_cache(), {}).summary;
    CHECK(value(late, "output_tokens_per_s") == doctest::Approx(15 * 128).epsilon(0.05));
}

TEST_CASE("steady state: the capacity of a load without a count covers that of runs ten times longer") {
    // One request at a time that comes at random: an M/D/1 queue with a limit on waiting.
    const std::string text =
        "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-2-70b\n"
        "engine: {tensor: 8, scheduler: {kind: static, max_sequences: 1}}\n"
        "requests: {rate: 8, prompt: {mean: 1024}, output: {mean: 1}}\nslo: {ttft: 500 ms}\n";
    Scenario s = scenario(text);
    CapacityOptions options;
    options.seeds = 5;
    options.requests = 6400;
    CapacityOptions longer = options;
    longer.requests *= 10;
    s.seed = 1000;
    const double truth = find_capacity(s, model_cache(), longer).rate;
    int covered = 0;
    const int cases = 12 * scale();
    for (int i = 0; i < cases; ++i) {
        s.seed = 10 * i;
        const Capacity found = find_capacity(s, model_cache(), options);
        covered += found.low <= truth && truth <= found.high ? 1 : 0;
        CHECK(found.rate == doctest::Approx(truth).epsilon(0.05));
    }
    MESSAGE(fmt::format("{} of {} intervals hold {:.5g} requests/s", covered, cases, truth));
    CHECK(covered >= 0.9 * cases);
    // In closed form: P(W <= x) = (1 - r) sum over k <= x / s of (l (k s - x))^k / k! exp(l (x - k s)) (Erlang, 1909).
    Scenario idle = s;
    idle.as<ServingKind>().requests.rate = 1e-2;
    const double service = value(run_scenario(idle, model_cache(), {}).summary, "ttft_s.p50");
    const auto in_time = [&](double rate) {
        const double wait = s.as<ServingKind>().slo.ttft - service;
        double sum = 0;
        double factorial = 1;
        for (int k = 0; k * service <= wait; ++k) {
            factorial *= std::max(1, k);
            sum += std::pow(rate * (k * service - wait), k) / factorial * std::exp(rate * (wait - k * service));
        }
        return (1 - rate * service) * sum;
    };
    double low = 0.01 / service;
    double high = 1 / service;
    for (int i = 0; i < 50; ++i) {
        (in_time((low + high) / 2) >= options.attainment ? low : high) = (low + high) / 2;
    }
    CHECK(truth == doctest::Approx(low).epsilon(0.015));
    MESSAGE(fmt::format("{:.5g} requests/s in closed form", low));
}

TEST_CASE("intervals of serving hold what measured runs of the engine left, where the engine sets the metric") {
    const std::string software =
        "{name: own, step: 1 ms, interval: {tpot: 10 %, ttft: 0.5, end_to_end: 0.2}, experts_interval: {tpot: 0.4, "
        "ttft: 0.5, end_to_end: 0.6}}";
    const std::string engine = fmt::format("{{software: {}}}", software);
    const auto of = [&](const std::string& requests, const std::string& own, const std::string& model = "llama-3-8b") {
        std::string text = small(requests, own);
        text.replace(text.find("llama-3-8b"), 10, model);
        return run_scenario(scenario(text), model_cache(), {}).summary;
    };
    const auto width = [](const Summary& summary, const std::string& name) {
        const Metric* metric = summary.find(name);
        REQUIRE(metric != nullptr);
        REQUIRE(metric->low.has_value() == metric->high.has_value());
        if (metric->high) {
            CHECK(*metric->high / metric->value == doctest::Approx(metric->value / *metric->low));
        }
        return metric->high ? std::log(*metric->high / metric->value) : 0;
    };
    const Summary closed = of("{arrivals: closed, clients: 4, count: 8}", engine);
    CHECK(width(closed, "tpot_s.mean") == doctest::Approx(0.1));
    CHECK(width(closed, "tpot_s.p99") == doctest::Approx(0.1));
    CHECK(width(closed, "ttft_s.mean") == doctest::Approx(0.5));
    CHECK(width(closed, "e2e_s.p50") == doctest::Approx(0.2));
    CHECK(width(closed, "output_tokens_per_s") == doctest::Approx(0.2));
    CHECK(width(closed, "e2e_s.max") == 0);
    // A load that the engine bears sets the throughput; an engine without software or with times of its own has no error here.
    const Summary open = of("{rate: 2, count: 8}", engine);
    CHECK(width(open, "output_tokens_per_s") == 0);
    CHECK(width(open, "tpot_s.mean") == doctest::Approx(0.1));
    CHECK(width(of("{rate: 2, count: 8}", "{}"), "tpot_s.mean") == 0);
    CHECK(width(of("{rate: 2, count: 8}", "{step_cost: {fixed: 5 ms}}"), "tpot_s.mean") == 0);
    // Mixtures of experts have widths of their own; engines without any have those of all.
    CHECK(width(of("{rate: 2, count: 8}", fmt::format("{{tensor: 4, software: {}}}", software), "mixtral-8x7b"),
                "tpot_s.mean") == doctest::Approx(0.4));
    CHECK(width(of("{rate: 2, count: 8}", "{software: {name: own, step: 1 ms}}"), "ttft_s.mean") ==
          doctest::Approx(kDenseWidths.ttft));
    // Chance and model are independent: their squares add.
    const Summary steady = of("{rate: 8}", engine);
    const Summary chance =
        of("{rate: 8}", "{software: {name: own, step: 1 ms, interval: {tpot: 0, ttft: 0, end_to_end: 0}}}");
    const Metric* own = steady.find("tpot_s.mean");
    const Metric* bare = chance.find("tpot_s.mean");
    REQUIRE(bare->high);
    CHECK(std::log(*own->high / own->value) == doctest::Approx(std::hypot(std::log(*bare->high / bare->value), 0.1)));
}
