// Plans written as signatures run what the plans run that name their degrees.

#include "tests/support/scenarios.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

std::string text_of(const std::string& plan) {
    return fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 2, node: dgx-a100-80g, fabric: {{nodes_per_leaf: 2, rails: 8}}}}
model: {{layers: 8, hidden: 2048, heads: 16, vocabulary: 32000, sequence: 2048}}
plan: {{micro_batch: 1, global_batch: 32, {}}}
)",
                       plan);
}

double seconds(const std::string& plan) {
    return run_scenario(test::scenario(text_of(plan)), test::model_cache(), {}).summary.find("iteration_time_s")->value;
}

constexpr const char* kData = "{ranks: 2, activations: S0}";

}  // namespace

TEST_CASE("a plan written as signatures takes exactly the time of the plan that names its degrees") {
    struct Pair {
        const char* degrees;
        const char* signatures;
    };
    const Pair pairs[] = {
        {"data: 16", "signatures: {grid: [{ranks: 16, activations: S0}]}"},
        {"data: 16, zero: 1", "signatures: {grid: [{ranks: 16, activations: S0, optimizer: S0}]}"},
        {"data: 16, zero: 3",
         "signatures: {grid: [{ranks: 16, activations: S0, weights_in: S0, weights_out: S0, optimizer: S0}]}"},
        {"data: 2, tensor: 8",
         "signatures: {grid: [{ranks: 2, activations: S0}, {ranks: 8, weights_in: S1, weights_out: S0}]}"},
        {"data: 2, tensor: 8, sequence_parallel: true",
         "signatures: {grid: [{ranks: 2, activations: S0}, {ranks: 8, activations: S1, weights_in: S1, weights_out: "
         "S0}]}"},
        {"data: 2, context: 2, tensor: 4",
         "signatures: {grid: [{ranks: 2, activations: S0}, {ranks: 2, activations: S1}, {ranks: 4, weights_in: S1, "
         "weights_out: S0}]}"},
        {"data: 2, pipeline: 2, tensor: 4",
         "pipeline: 2, signatures: {grid: [{ranks: 2, activations: S0}, {ranks: 4, weights_in: S1, weights_out: S0}]}"},
        {"data: 16", "signatures: {grid: [{ranks: 2, activations: S0}, {ranks: 8, activations: S0}]}"},
    };
    for (const Pair& pair : pairs) {
        CAPTURE(pair.degrees);
        CHECK(seconds(pair.degrees) == seconds(pair.signatures));
    }
    CHECK(seconds("data: 16") != seconds("data: 2, tensor: 8"));
}

TEST_CASE("signatures that are no plan are refused, all at once") {
    const std::string wrong =
        test::refusal(text_of("signatures: {grid: [{ranks: 4}, {ranks: 2, activations: S0, weights_in: S1}]}"));
    CHECK(wrong.find("dimension 0 (activations B") != std::string::npos);
    CHECK(wrong.find("dimension 1 (activations S0") != std::string::npos);
    const std::string order = test::refusal(
        text_of(fmt::format("signatures: {{grid: [{{ranks: 8, weights_in: S1, weights_out: S0}}, {}]}}", kData)));
    CHECK(order.find("outermost") != std::string::npos);
    const std::string twice =
        test::refusal(text_of("data: 4, tensor: 2, signatures: {grid: [{ranks: 16, activations: S0}]}"));
    CHECK(twice.find("say data 16, and the plan says 4") != std::string::npos);
    CHECK(twice.find("say tensor 1, and the plan says 2") != std::string::npos);
    CHECK(test::refusal(text_of("signatures: {}")).find("at least one dimension") != std::string::npos);
}
