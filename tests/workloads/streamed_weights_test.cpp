// Weights that come to a device in every iteration, and sums by messages: closed forms, what fits, and what is refused.

#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/serving.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

// Of four devices of 10 GB/s over links of 1 Gb/s and 1 ms.
std::string text_of(
    const std::string& engine, const std::string& memory = "64 GiB",
    const std::string& model = "{layers: 16, hidden: 4096, heads: 32, vocabulary: 1024, sequence: 2048}") {
    return fmt::format(
        "orrery: 1\nkind: serving\ncluster:\n  nodes: 4\n  node:\n    gpus: 1\n"
        "    gpu: {{name: small, memory: {}, memory_bandwidth: 10 GB/s, memory_efficiency: 1, flops_fp32: 1 TFLOP/s, "
        "flops_bf16: 1 TFLOP/s, launch: 0 s, compute_units: 8}}\n"
        "    nics: 1\n    nic_bandwidth: 1 Gbps\n    nic_latency: 1 ms\n"
        "  fabric: {{nodes_per_leaf: 4, rails: 1, link: 1 Gbps, latency: 0 s}}\n"
        "model: {}\ncompute: {{model: roofline}}\nnetwork: {{collectives: ideal}}\n"
        "engine: {{tensor: 4, max_context: 512, scheduler: {{kind: vllm-v0, token_budget: 512, max_sequences: 1}}{}}}\n"
        "requests: {{arrivals: closed, clients: 1, count: 2, prompt: {{mean: 8}}, output: {{mean: 16}}}}\n",
        memory, model, engine);
}
double token(const std::string& engine) {
    return run_scenario(test::scenario(text_of(engine)), test::model_cache(), {}).summary.find("tpot_s.mean")->value;
}
std::string errors_of(const std::string& text) {
    try {
        (void)test::scenario(text);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

// Four square matrices and a feed-forward of four times the width, in 16 bits, of a quarter of 16 layers.
constexpr double kLayers = 16 * 12.0 * 4096 * 4096 * 2 / 4;

}  // namespace

TEST_CASE("layers that come in turn add their loads to an iteration, and those that come ahead the longer of both") {
    const double held = token("");
    const double loads = kLayers / 5e9;
    CHECK(token(", streamed: {bandwidth: 5 GB/s, window: 1}") == doctest::Approx(held + loads).epsilon(1e-3));
    // At 5 GB/s loads take longer than kernels and sums; at 100 GB/s they hide.
    CHECK(loads > held);
    CHECK(token(", streamed: {bandwidth: 5 GB/s, window: 2}") == doctest::Approx(loads).epsilon(1e-3));
    CHECK(token(", streamed: {bandwidth: 100 GB/s, window: 2}") == doctest::Approx(held).epsilon(1e-9));
    CHECK(token(", streamed: {bandwidth: 10 GB/s, window: 1}") < token(", streamed: {bandwidth: 5 GB/s, window: 1}"));
    // More than two layers hold nothing up that two do not.
    CHECK(token(", streamed: {bandwidth: 5 GB/s, window: 4}") == token(", streamed: {bandwidth: 5 GB/s, window: 2}"));
}

TEST_CASE("a sum through the first rank has two hops, and one round all ranks six, each of a quarter of the bytes") {
    const double bytes = 4096 * 2;
    const double rate = 1e9 / 8;
    const double star = token(", all_reduce: star");
    const double ring = token(", all_reduce: ring");
    // Two sums in each of 16 layers, and one of the embedding.
    CHECK(ring - star == doctest::Approx(33 * (4e-3 - (6 - 1.5) * bytes / rate)).epsilon(1e-3));
    // The closed form of the wire has the bytes of a ring and one hop.
    CHECK(star - token("") == doctest::Approx(33 * (1e-3 + (6 - 1.5) * bytes / rate)).epsilon(1e-3));
}

TEST_CASE("a model larger than all devices runs where its layers are streamed") {
    // 280 GB in 32 bits over four devices of 8 GiB.
    const std::string model = "llama-2-70b";
    const auto run = [&](const std::string& engine) {
        return run_scenario(test::scenario(text_of(", weights: fp32" + engine, "8 GiB", model)), test::model_cache(),
                            {})
            .summary.find("tpot_s.mean")
            ->value;
    };
    CHECK_THROWS_AS((void)run(""), InfeasibleError);
    CHECK(run(", streamed: {bandwidth: 5 GB/s}") > 60e9 / 5e9);
    CHECK_THROWS_AS((void)run(", streamed: {bandwidth: 5 GB/s, window: 40}"), InfeasibleError);
}

TEST_CASE("what does not go with streamed layers, or sums by messages, is refused") {
    const auto said = [](const std::string& text, const char* what) {
        return errors_of(text).find(what) != std::string::npos;
    };
    CHECK(said(text_of(", streamed: {bandwidth: 5 GB/s, window: 16}"), "holds all 16 of a stage"));
    CHECK(said(text_of(", streamed: {bandwidth: 5 GB/s}", "64 GiB", "mixtral-8x7b"), "of dense models"));
    CHECK(said(text_of(", streamed: {bandwidth: 5 GB/s}, software: vllm-0.19"), "give 'reserved_memory'"));
    CHECK(said(text_of(", streamed: {window: 2}"), "bandwidth"));
    std::string alone = text_of(", all_reduce: star");
    alone.replace(alone.find("tensor: 4"), 9, "tensor: 1");
    CHECK(said(alone, "'tensor' is 1"));
}
