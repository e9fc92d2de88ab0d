// Classes of prices (models/data/prices.yaml), and what tokens and campaigns cost by them.

#include "tests/support/command.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <map>

using namespace orrery;
using namespace orrery::test;

namespace {

constexpr const char* kServing = R"(orrery: 1
kind: serving
cluster: {nodes: 1, node: dgx-h100}
model: llama-2-70b
engine: {tensor: 8}
requests: {count: 60, rate: 5, prompt: {mean: 1000}, output: {mean: 100}}
)";

constexpr const char* kTraining = R"(orrery: 1
kind: training
cluster: {nodes: 1, node: dgx-h100}
model: {layers: 4, hidden: 1024, heads: 8, vocabulary: 32000, sequence: 512}
plan: {data: 8, global_batch: 16, micro_batch: 1}
)";

std::map<std::string, double> metrics(const std::string& file, const std::string& more = "") {
    const Outcome out = orrery_command(fmt::format("run {} {} --quiet --json -", file, more));
    REQUIRE_MESSAGE(out.code == 0, out.text);
    std::map<std::string, double> values;
    const auto summary = nlohmann::json::parse(out.text);
    for (const auto& [name, metric] : summary["metrics"].items()) {
        if (metric.contains("value") && metric["value"].is_number()) {
            values[name] = metric["value"].get<double>();
        }
    }
    return values;
}

std::string set_price(const char* price) {
    return fmt::format("--set cluster.node.gpu.price={}", price);
}

}  // namespace

TEST_CASE("prices: a class is a price of the table, and a cost follows its price") {
    const Folder folder;
    const std::string file = folder.file("s.yaml", kServing);
    const char* const cost = "cost_per_million_tokens_usd";
    const double on_demand = metrics(file).at(cost);
    CHECK(metrics(file, set_price("on-demand")).at(cost) == doctest::Approx(on_demand).epsilon(1e-6));
    CHECK(metrics(file, set_price("reserved")).at(cost) == doctest::Approx(on_demand * 2.35 / 2.95).epsilon(1e-6));
    CHECK(metrics(file, set_price("spot")).at(cost) == doctest::Approx(on_demand * 1.25 / 2.95).epsilon(1e-6));
    // 30,000 USD with its server and network less 15 %, over four years; 700 W x 1.82 with cooling, and its place.
    const double written_off = 30000 * 1.35 * 1.125 * 0.85 / (4 * 8760);
    const double kilowatts = 0.7 * 1.82;
    const double owned = written_off + kilowatts * (1.2 * 0.08 + 120 / 730.0);
    CHECK(metrics(file, set_price("owned")).at(cost) == doctest::Approx(on_demand * owned / 2.95).epsilon(1e-5));
    CHECK(metrics(file, set_price("5.9")).at(cost) == doctest::Approx(2 * on_demand).epsilon(1e-6));
    // An instance has its own price, and what is not listed has a discount on it.
    const double instance = metrics(file, "--set cluster.node=p5-h100").at(cost);
    CHECK(metrics(file, "--set cluster.node=p5-h100 " + set_price("spot")).at(cost) ==
          doctest::Approx(0.42 * instance).epsilon(1e-6));
}

TEST_CASE("prices: what input and output tokens cost adds up to what the GPUs cost") {
    const Folder folder;
    const std::string file = folder.file("s.yaml", kServing);
    const auto check_sum = [&](const std::string& more) {
        const auto all = metrics(file, more);
        const double output = all.at("cost_per_million_output_tokens_usd");
        const double input = all.at("cost_per_million_input_tokens_usd");
        const double blended = all.at("cost_per_million_blended_tokens_usd");
        const double whole = all.at("cost_per_million_tokens_usd");  // of output tokens
        const double inputs_per_output = whole / blended - 1;
        CHECK_MESSAGE(input * inputs_per_output + output == doctest::Approx(whole).epsilon(1e-6), more);
        CHECK_MESSAGE(inputs_per_output == doctest::Approx(10).epsilon(0.1), more);
        CHECK_MESSAGE(input < output, more);  // prompts are computed many tokens at a time
        return all;
    };
    check_sum("");
    check_sum("--set requests.rate=1");
    // Half of the GPUs read prompts and half decode: each half pays for its own tokens.
    const std::string split = "--set engine='{prefill: {replicas: 1, tensor: 4}, decode: {replicas: 1, tensor: 4}}'";
    const auto pools = check_sum(split);
    CHECK(pools.at("cost_per_million_output_tokens_usd") ==
          doctest::Approx(pools.at("cost_per_million_tokens_usd") / 2).epsilon(1e-6));
}

TEST_CASE("prices: training costs its GPU hours, and a campaign those of its lost time too") {
    const Folder folder;
    const std::string file = folder.file("t.yaml", kTraining);
    const auto all = metrics(file);
    CHECK(all.at("cost_per_billion_tokens_usd") ==
          doctest::Approx(8 * 2.95 / 3600 / all.at("tokens_per_s") * 1e9).epsilon(1e-6));
    const auto campaign = metrics(std::string(ORRERY_SOURCE_DIR) + "/scenarios/faults/gpu-fail-stop.yaml",
                                  "--set cluster.node.gpu.price=2");
    const double gpus = campaign.at("campaign_cost_usd") / (2 * campaign.at("campaign_s") / 3600);
    // The job and a node that stands by.
    CHECK(gpus == doctest::Approx(128 + 8).epsilon(1e-6));
    // A device without a price states no cost.
    CHECK(metrics(file, "--set cluster.node.gpu.price=0").count("cost_per_billion_tokens_usd") == 0);
}

TEST_CASE("prices: a table of the user's own takes the place of the bundled one") {
    const Folder folder;
    const std::string file = folder.file("s.yaml", kServing);
    const double before = metrics(file).at("cost_per_million_tokens_usd");
    const std::string own = folder.file("own");
    std::filesystem::create_directories(own + "/models/data");
    std::ofstream(own + "/models/data/prices.yaml")
        << "devices:\n  h100-sxm:\n    on-demand: {value: 1, how: measured, source: \"contract 7\"}\n";
    const std::string with = "--data " + own;
    CHECK(metrics(file, with).at("cost_per_million_tokens_usd") == doctest::Approx(before / 2.95).epsilon(1e-6));
    const Outcome spot = orrery_command(fmt::format("run {} {} {}", file, with, set_price("spot")));
    CHECK(spot.code == 2);
    CHECK_MESSAGE(spot.text.find("'discounts' needs 'spot: {value, how, source}'") != std::string::npos, spot.text);
}

TEST_CASE("prices: a class that is unknown, or that a device has no price of, is refused at its place") {
    const Folder folder;
    const auto refused = [&](const std::string& text, const char* why) {
        const Outcome out = orrery_command("run " + folder.file("bad.yaml", text));
        CHECK_MESSAGE(out.code == 2, out.text);
        CHECK_MESSAGE(out.text.find(why) != std::string::npos, out.text);
    };
    const std::string serving = kServing;
    const auto with = [&](const std::string& cluster) {
        return "orrery: 1\nkind: serving\n" + cluster + serving.substr(serving.find("model:"));
    };
    refused(with("cluster: {nodes: 1, node: {preset: dgx-h100, gpu: {preset: h100-sxm, price: sopt}}}\n"),
            "bad.yaml:3:77: error: 'price' cannot be 'sopt' (did you mean 'spot'?)");
    refused(with("cluster: {nodes: 1, node: {preset: dgx-h100, gpu: {preset: l40s, price: reserved}}}\n"),
            "no price of class 'reserved' is known for 'l40s'");
    refused(with("cluster: {nodes: 1, node: {preset: dgx-h100, gpu: {preset: a100-sxm-80g, price: owned}}}\n"),
            "no price of class 'owned' is known for 'a100-sxm-80g'");
}
