// The recommended arrangement against trying everything, and against runs of what it says.

#include "tools/plan/recommend.hpp"
#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/serving.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

using namespace orrery;
using namespace orrery::test;

namespace {

std::string load(double rate, const std::string& rest = "") {
    return fmt::format(
        "orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: llama-3.1-8b\n"
        "engine: {{software: vllm-0.16, router: least-requests, scheduler: {{kind: chunked-prefill, token_budget: "
        "2048}}}}\n"
        "requests: {{rate: {}, count: 1200, prompt: {{kind: lognormal, mean: 1000, spread: 0.8}}, output: {{kind: "
        "lognormal, "
        "mean: 150, spread: 0.6}}}}\n{}",
        rate, rest);
}

RecommendOptions options_of(const std::vector<std::string>& devices) {
    RecommendOptions options;
    std::vector<Diagnostic> errors;
    for (const std::string& device : devices) {
        options.devices.push_back(device_choice(device, data(), errors));
    }
    options.limits = {{"ttft", 95, 0.5}, {"tpot", 95, 0.02}};
    options.weights = {Precision::bf16};
    options.most_gpus = 8;
    options.workers = 2;
    CHECK(errors.empty());
    return options;
}

RecommendSearch search(const std::string& text, const RecommendOptions& options) {
    return recommend(parse_yaml(text, "test.yaml"), scenario(text), data(), options);
}

// What a run of these replicas says of the limits: the largest of value / limit.
double strain(const RecommendSearch& found, const Recommendation& one, ReplicaCounts less,
              const RecommendOptions& options) {
    RunOptions run;
    run.requests = true;
    const ReplicaCounts counts{one.replicas.first - less.first, one.replicas.second - less.second};
    const RunOutput out = run_scenario(plan::scenario_of(found.list.open[one.arrangement], counts), model_cache(), run);
    double most = 0;
    for (const LatencyLimit& limit : options.limits) {
        std::vector<double> values;
        for (const RequestRow& row : out.requests) {
            if (limit.metric == "ttft" || row.output > 1) {
                values.push_back(limit.metric == "ttft" ? row.ttft : row.tpot);
            }
        }
        std::sort(values.begin(), values.end());
        const auto rank =
            static_cast<std::size_t>(std::ceil(limit.percentile / 100 * static_cast<double>(values.size())));
        most = std::max(most, values.at(rank - 1) / limit.seconds);
    }
    return most;
}

}  // namespace

TEST_CASE("recommend: trying everything finds nothing that is cheaper by more than 2 %") {
    struct Case {
        double rate;
        std::vector<std::string> devices;
        bool split;
    };
    for (const Case& one : {Case{25, {"h100-sxm", "h200-sxm"}, false}, Case{60, {"h100-sxm", "b200-sxm"}, false},
                            Case{40, {"h100-sxm"}, true}}) {
        CAPTURE(one.rate);
        RecommendOptions options = options_of(one.devices);
        options.split = one.split;
        options.mixed = !one.split;
        options.most_gpus = one.split ? 6 : 8;
        options.judged = 1;
        const RecommendSearch quick = search(load(one.rate), options);
        options.exhaustive = true;
        const RecommendSearch all = search(load(one.rate), options);
        CHECK(quick.list.listed == all.list.listed);
        CHECK((one.split || quick.runs < all.runs));
        const double best = all.ranked.front().usd_per_hour;
        CHECK(quick.ranked.front().usd_per_hour >= best);
        CHECK(quick.ranked.front().usd_per_hour <= 1.02 * best);
        // A bound asks for no more replicas than are enough.
        for (const Recommendation& found : all.ranked) {
            const Arrangement& arrangement = all.list.open[found.arrangement];
            const auto same = std::find_if(quick.list.open.begin(), quick.list.open.end(),
                                           [&](const Arrangement& other) { return other.words == arrangement.words; });
            REQUIRE(same != quick.list.open.end());
            CHECK(same->least <= found.replicas.first);
        }
    }
}

TEST_CASE("recommend: its replicas hold the limits in a run of their own, and one fewer does not") {
    RecommendOptions options = options_of({"h100-sxm", "h200-sxm"});
    const std::string text = load(60);
    const RecommendSearch found = search(text, options);
    REQUIRE(found.ranked.size() >= 12);
    CHECK(std::is_sorted(
        found.ranked.begin(), found.ranked.end(),
        [](const Recommendation& a, const Recommendation& b) { return a.usd_per_hour < b.usd_per_hour; }));
    CHECK(found.ranked.front().pareto);
    for (std::size_t i = 0; i < 3; ++i) {
        const Recommendation& one = found.ranked[i];
        const Arrangement& arrangement = found.list.open[one.arrangement];
        CAPTURE(arrangement.words);
        CHECK(one.usd_per_hour == doctest::Approx(arrangement.price * static_cast<double>(one.gpus)));
        CHECK(strain(found, one, {0, 0}, options) <= 1);
        CHECK(one.values.size() == 2);
        CHECK(std::max(one.values[0] / 0.5, one.values[1] / 0.02) ==
              doctest::Approx(strain(found, one, {0, 0}, options)));
        if (one.replicas.first > 1) {
            CHECK(strain(found, one, {1, 0}, options) > 1);
            CHECK(one.fewer.find("p95") != std::string::npos);
        }
    }
    // With a spare one the limits hold with one lost, of either pool.
    options.spare = 1;
    const RecommendSearch safe = search(text, options);
    CHECK(safe.ranked.front().usd_per_hour > found.ranked.front().usd_per_hour);
    for (std::size_t i = 0; i < 3; ++i) {
        const Recommendation& one = safe.ranked[i];
        CHECK(one.replicas.first >= 2);
        CHECK(strain(safe, one, {1, 0}, options) <= 1);
        CHECK(one.lost.size() == 2);
        if (safe.list.open[one.arrangement].split) {
            CHECK(one.replicas.second >= 2);
            CHECK(strain(safe, one, {0, 1}, options) <= 1);
        }
    }
}

TEST_CASE("recommend: more requests never cost less, stricter limits neither, and prices choose the device") {
    RecommendOptions options = options_of({"h100-sxm", "h200-sxm"});
    options.split = false;
    options.judged = 1;
    double before = 0;
    for (const double rate : {10., 40., 80., 120.}) {
        const double usd = search(load(rate), options).ranked.front().usd_per_hour;
        CHECK(usd >= before);
        before = usd;
    }
    options.limits[1].seconds = 0.012;
    options.most_gpus = 32;
    CHECK(search(load(120), options).ranked.front().usd_per_hour >= before);
    options.limits[1].seconds = 0.02;
    for (std::size_t cheap = 0; cheap < 2; ++cheap) {
        options.devices[cheap].price = 0.01;
        options.devices[1 - cheap].price = 10;
        const RecommendSearch found = search(load(40), options);
        CHECK(found.list.open[found.ranked.front().arrangement].device == options.devices[cheap].name);
    }
    options.whole_nodes = true;  // eight GPUs are paid for
    CHECK(search(load(40), options).ranked.front().usd_per_hour == doctest::Approx(0.08));
}

TEST_CASE("recommend: the scenario that it writes runs to the same figures, whatever the number of workers") {
    const Folder folder;
    const std::string file = folder.file("load.yaml", load(40, "slo: {ttft: 0.5 s, tpot: 20 ms}\n"));
    const std::string best = folder.file("best.yaml");
    const auto ask = [&](const std::string& rest) {
        return orrery_command("recommend " + file + " --gpus h100-sxm,h200-sxm --weights bf16 --max-gpus 8 " + rest);
    };
    const Outcome one = ask("--json - --jobs 1");
    CHECK(one.code == 0);
    CHECK(ask("--json - --jobs 2").text == one.text);
    const Outcome table = ask("-o " + best);
    CHECK(table.code == 0);
    CHECK(table.text.find("Why not one replica fewer") != std::string::npos);
    const auto found = nlohmann::json::parse(one.text);
    const auto run = nlohmann::json::parse(orrery_command("run " + best + " --json -").text);
    CHECK(run["metrics"]["output_tokens_per_s"]["value"].get<double>() ==
          doctest::Approx(found["arrangements"][0]["output_tokens_per_s"].get<double>()).epsilon(1e-9));
    CHECK(run["metrics"]["slo_attainment"]["value"].get<double>() >= 0.9);
    CHECK(run["metrics"]["slo_attainment"]["value"].get<double>() ==
          doctest::Approx(found["arrangements"][0]["values"][0].get<double>()));
}

TEST_CASE("recommend: a deployment is read back as the arrangement, and foreign files stay") {
    const Folder folder;
    const std::string file = folder.file("load.yaml", load(40));
    const std::string ask = "recommend " + file +
                            " --gpus h200-sxm --weights bf16 --max-gpus 8 --pools mixed --judged 1 " +
                            "--slo ttft_p95=500ms,tpot_p95=20ms ";
    const std::string target = folder.file("deploy");
    const std::string best = folder.file("best.yaml");
    const Outcome first = orrery_command(ask + "-o " + best + " --deploy " + target);
    CHECK_MESSAGE(first.code == 0, first.text);
    const Scenario wanted = load_scenario(best, {}, data());
    const std::string back = folder.file("back.yaml");
    const Outcome imported =
        orrery_command("import vllm-args " + target + "/vllm-serve.sh --node dgx-h200 -o " + back + " --force");
    CHECK_MESSAGE(imported.code == 0, imported.text);
    const Scenario is = load_scenario(back, {}, data());
    CHECK(is.as<ServingKind>().engine.mixed.replicas == wanted.as<ServingKind>().engine.mixed.replicas);
    CHECK(is.as<ServingKind>().engine.mixed.tensor == wanted.as<ServingKind>().engine.mixed.tensor);
    CHECK(orrery_command(ask + "--deploy " + target).code == 0);  // its own files
    (void)folder.file("deploy/dynamo.yaml", "mine\n");
    const Outcome foreign = orrery_command(ask + "--deploy " + target);
    CHECK(foreign.code == 2);
    CHECK(foreign.text.find("not an earlier output") != std::string::npos);
    CHECK(read(target + "/dynamo.yaml") == "mine\n");
    CHECK(orrery_command(ask + "--force --deploy " + target).code == 0);
}

TEST_CASE("recommend: what is wrong is told at once, and what cannot be is infeasible") {
    const Folder folder;
    const std::string file = folder.file("load.yaml", load(20));
    const Outcome wrong =
        orrery_command("recommend " + file +
                       " --gpus h100,h200-sxm --slo ttft_p95=2,tpt=50ms,tbt_p95=1s --weights bf61 --pricing spt "
                       "--price x=2 --routers foo "
                       "--engines vlm-0.16 --pools both --max-gpus 0 --budget -1 --exhaustive --judged 3");
    CHECK(wrong.code == 2);
    for (const char* part :
         {"did you mean 'h100-sxm'?", "expected METRIC_pNN=TIME", "did you mean 'tpot'?", "are 50, 90 and 99",
          "did you mean 'bf16'?", "--pricing: unknown name 'spt'; did you mean 'spot'?", "'x' is none of --gpus",
          "unknown name 'foo'", "did you mean 'vllm-0.16'?", "unknown name 'both'", "--max-gpus must be",
          "--budget is USD an hour", "--judged has no effect"}) {
        CHECK_MESSAGE(wrong.text.find(part) != std::string::npos, std::string(part) << "\n" << wrong.text);
    }
    const Outcome none = orrery_command("recommend " + file);
    CHECK(none.code == 2);
    CHECK(none.text.find("limits are needed") != std::string::npos);
    const Outcome unpriced = orrery_command("recommend " + file + " --gpus l40s --slo ttft=2s");
    CHECK(unpriced.code == 2);
    CHECK(unpriced.text.find("give --price l40s=USD") != std::string::npos);
    const Outcome impossible = orrery_command("recommend " + file + " --max-gpus 2 --weights bf16 --slo tpot_p50=2ms");
    CHECK(impossible.code == 3);
    CHECK(impossible.text.find("none of") != std::string::npos);
    const Outcome faults = orrery_command("recommend " + file +
                                          " --slo ttft=2s --set requests.arrivals=closed --set "
                                          "requests.clients=4");
    CHECK(faults.code == 2);
}
