// The search for capacities and serving plans against closed forms and against trying everything.

#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/plan/serving_search.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>

using namespace orrery;
using namespace orrery::test;

namespace {

// One request at a time, each a prompt and one token, at even gaps.
std::string one_server(const std::string& rest) {
    return "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-2-70b\n"
           "engine: {tensor: 8, scheduler: {kind: static, max_sequences: 1}}\n"
           "requests: {arrivals: fixed, rate: 1, count: 200, prompt: {mean: 1024}, output: {mean: 1}}\n" +
           rest;
}

double service_seconds() {
    return run_scenario(scenario(one_server("")), model_cache(), {}).summary.find("ttft_s.p50")->value;
}

}  // namespace

TEST_CASE("capacity: of a server that takes one request at a time it is where the queue outgrows the limit") {
    const double service = service_seconds();
    const double limit = 10 * service;
    CapacityOptions options;
    options.tolerance = 1e-4;
    const Capacity found =
        find_capacity(scenario(one_server(fmt::format("slo: {{ttft: {:.9f} s}}\n", limit))), model_cache(), options);
    // At gaps g < s the n-th request (from 0) waits n (s - g); the last of 90 % of 200 may wait 9 s.
    const double gap = service - (limit - service) / 179;
    CHECK(found.rate * gap == doctest::Approx(1).epsilon(0.002));
    CHECK(found.gpus == 8);
    CHECK(found.low <= found.rate);
    CHECK(found.rate <= found.high);
    CHECK(found.high <= found.low * (1 + options.tolerance));
    CHECK(found.best().attainment >= 0.9);
    for (const CapacityTrial& trial : found.trials) {
        CHECK(trial.within == (trial.rate <= found.low));
    }
    // Of the 99th percentile the limit is stricter: only the last two may wait longer.
    options.percentile = 99;
    const Capacity strict =
        find_capacity(scenario(one_server(fmt::format("slo: {{ttft: {:.9f} s}}\n", limit))), model_cache(), options);
    CHECK(strict.rate < found.rate);
    CHECK(strict.rate * (service - (limit - service) / 198) == doctest::Approx(1).epsilon(0.002));
}

TEST_CASE("capacity: seeds give an interval, even arrivals hardly any, and both are the same on every call") {
    const std::string text = one_server("slo: {ttft: 1 s}\n");
    CapacityOptions options;
    options.seeds = 3;
    const Capacity even = find_capacity(scenario(text), model_cache(), options);
    CHECK(even.by_seed.size() == 3);
    // Chance moves nothing: what is left is how far interpolation is trusted.
    CHECK(even.by_seed.front() == doctest::Approx(even.by_seed.back()).epsilon(1e-9));
    CHECK(even.low <= even.rate);
    CHECK(even.rate <= even.high);
    CHECK(even.high / even.low < 1 + options.tolerance);
    std::string random = text;
    random.replace(random.find("fixed"), 5, "poisson");
    const Capacity one = find_capacity(scenario(random), model_cache(), options);
    CHECK(one.low < one.rate);
    CHECK(one.rate < one.high);
    CHECK(one.by_seed == find_capacity(scenario(random), model_cache(), options).by_seed);
}

TEST_CASE("capacity: a trace is played faster until it is too fast") {
    const Folder folder;
    std::string rows = "arrival_s,prompt,output\n";
    for (int i = 0; i < 200; ++i) {
        rows += fmt::format("{},1024,1\n", i);
    }
    (void)folder.file("trace.csv", rows);
    const std::string file =
        folder.file("s.yaml",
                    "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-2-70b\n"
                    "engine: {tensor: 8, scheduler: {kind: static, max_sequences: 1}}\nrequests: {trace: "
                    "trace.csv}\nslo: {ttft: 1 s}\n");
    const Capacity played = find_capacity(load_scenario(file, {}, data()), model_cache(), {});
    const Capacity made = find_capacity(scenario(one_server("slo: {ttft: 1 s}\n")), model_cache(), {});
    CHECK(played.rate == doctest::Approx(made.rate).epsilon(0.03));
}

TEST_CASE("capacity: what cannot be searched says why") {
    const auto message = [](const std::string& text, const CapacityOptions& options = {}) -> std::string {
        try {
            (void)find_capacity(scenario(text), model_cache(), options);
        } catch (const Error& error) {
            return error.what();
        }
        return "nothing";
    };
    CHECK(message(one_server("")).find("needs limits") != std::string::npos);
    CHECK(message(one_server("slo: {ttft: 1 us}\n")).find("not met at any rate") != std::string::npos);
    std::string at_once = one_server("slo: {ttft: 1 s}\n");
    at_once.replace(at_once.find("fixed"), 5, "at-once");
    CHECK(message(at_once).find("have none") != std::string::npos);
    CapacityOptions odd;
    odd.percentile = 95;
    CHECK(message(one_server("slo: {ttft: 1 s}\n"), odd).find("50, 90 or 99") != std::string::npos);
    CHECK(message("orrery: 1\nkind: collective\ncluster: {nodes: 1, node: dgx-h100}\ncollective: {size: 1 MiB}\n")
              .find("kind serving") != std::string::npos);
}

TEST_CASE("serving plans: the best of the list is the best of all, and its assignments reproduce it") {
    const std::string text =
        "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-2-70b\nengine: {tensor: 8}\n"
        "requests: {rate: 4, count: 500, prompt: {mean: 1024}, output: {mean: 64}}\nslo: {ttft: 1 s, tbt: 100 ms}\n";
    const Scenario base = scenario(text);
    ServingPlanOptions options;
    options.simulate = 1000;
    options.workers = 2;
    options.capacity.tolerance = 0.05;
    const ServingSearch search = search_serving(base, data(), options);
    CHECK(search.listed == search.do_not_divide + search.do_not_fit + search.miss_limits + search.ranked.size());
    CHECK(search.do_not_fit > 0);  // 70 billion weights on one GPU
    bool mixed = false;
    bool split = false;
    for (std::size_t i = 0; i < search.ranked.size(); ++i) {
        REQUIRE(search.ranked[i].whole_load);
        CHECK(search.ranked[i].gpus <= 8);
        mixed = mixed || !search.ranked[i].engine.split;
        split = split || search.ranked[i].engine.split;
        if (i > 0) {
            CHECK(search.ranked[i - 1].rate_per_gpu >= search.ranked[i].rate_per_gpu);
        }
    }
    CHECK(mixed);
    CHECK(split);
    CHECK(search.ranked.front().pareto);
    const Folder folder;
    const std::string file = folder.file("s.yaml", text);
    for (const bool want_split : {false, true}) {
        const auto found = std::find_if(search.ranked.begin(), search.ranked.end(),
                                        [&](const RankedServing& plan) { return plan.engine.split == want_split; });
        const Scenario again = load_scenario(file, assignments_of(found->engine), data());
        CHECK(describe_serving(again.as<ServingKind>().engine) == describe_serving(found->engine));
        CHECK(find_capacity(again, model_cache(), options.capacity).rate == doctest::Approx(found->rate).epsilon(0.06));
    }
}

TEST_CASE("capacity and plan as commands: a table for readers, JSON for programs, exit codes") {
    const Folder folder;
    const std::string file = folder.file("s.yaml", one_server("slo: {ttft: 1 s}\n"));
    const Outcome shown = orrery_command("capacity " + file + " --seeds 2");
    CHECK_MESSAGE(shown.code == 0, shown.text);
    CHECK_MESSAGE(shown.text.find("capacity ") != std::string::npos, shown.text);
    const Outcome json = orrery_command("capacity " + file + " --seeds 1 --json - --quiet");
    const auto parsed = nlohmann::json::parse(json.text);
    CHECK(parsed["schema"] == "orrery-capacity-1");
    CHECK(parsed["capacity_rps"]["value"].get<double>() > 0);
    CHECK(orrery_command("capacity " + file + " --percentile 99 --attainment 0.5").code == 2);
    CHECK(orrery_command("capacity " + file + " --attainment 7").code == 2);
    const Outcome plan = orrery_command("plan " + file + " --simulate 2 --top 2");
    CHECK_MESSAGE(plan.code == 0, plan.text);
    CHECK_MESSAGE(plan.text.find("To run the best: orrery run") != std::string::npos, plan.text);
    CHECK(orrery_command("plan " + file + " --price 2").code == 2);
}
