// Budgets of power by demand: what some GPUs cannot draw goes to the others.

#include "tests/support/scenarios.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

using namespace orrery;

namespace {

std::string text(const std::string& power) {
    return fmt::format(R"(orrery: 1
kind: training
cluster:
  groups:
    - {{name: small, nodes: 2, node: dgx-h100}}
    - {{name: large, nodes: 2, node: dgx-b200}}
  power: {{{}}}
model: {{layers: 4, hidden: 1024, heads: 8, vocabulary: 32000, sequence: 512}}
plan: {{data: 32, global_batch: 32, micro_batch: 1}}
)",
                       power);
}

double limit(const std::string& power, std::size_t group) {
    return test::scenario(text(power)).cluster.groups[group].node.gpu.power_limit.value;
}

}  // namespace

TEST_CASE("the level of a budget serves those first who can draw least") {
    CHECK(power_level(1000, {{2, 300}, {2, 700}}) == doctest::Approx(250));
    CHECK(power_level(1400, {{2, 300}, {2, 700}}) == doctest::Approx(400));
    CHECK(power_level(1400, {{2, 700}, {2, 300}}) == doctest::Approx(400));
    CHECK(power_level(1400, {{1, 100}, {1, 200}, {1, 2000}}) == doctest::Approx(1100));
    CHECK(std::isinf(power_level(2000, {{2, 300}, {2, 700}})));
}

TEST_CASE("what H100s cannot draw goes to B200s of the same budget") {
    // 16 GPUs of 700 W and 16 of 1,000 W under 24 kW: 750 W each, or 700 and 800.
    CHECK(limit("cluster: 24 kW", 0) == 0);
    CHECK(limit("cluster: 24 kW", 1) == doctest::Approx(750));
    CHECK(limit("cluster: 24 kW, sharing: demand", 0) == 0);
    CHECK(limit("cluster: 24 kW, sharing: demand", 1) == doctest::Approx(800));
    // Nodes take theirs first: 20 kW are left, 625 W each, which nobody needs less of.
    CHECK(limit("cluster: 24 kW, beside: 1 kW, sharing: demand", 1) == doctest::Approx(625));
    // Racks of two nodes hold one kind each: there is nothing to give.
    CHECK(limit("rack: 12 kW, nodes_per_rack: 2, sharing: demand", 1) == doctest::Approx(750));
    // Of three nodes the first has 16 H100s and 8 B200s, the second 8 B200s alone: all B200s keep to the tighter of both.
    CHECK(limit("rack: 18 kW, nodes_per_rack: 3, sharing: demand", 1) == doctest::Approx((18000.0 - 16 * 700) / 8));
}

TEST_CASE("a budget by demand needs unlike GPUs") {
    const std::string one = R"(orrery: 1
kind: training
cluster: {nodes: 1, node: dgx-h100, power: {cluster: 5 kW, sharing: demand}}
model: {layers: 4, hidden: 1024, heads: 8, vocabulary: 32000, sequence: 512}
plan: {data: 8, global_batch: 8, micro_batch: 1}
)";
    CHECK(test::refusal(one).find("unlike GPUs") != std::string::npos);
}

TEST_CASE("a resolved scenario with a budget of the cluster alone reads back") {
    const Scenario given = test::scenario(R"(orrery: 1
kind: training
cluster: {nodes: 1, node: dgx-h100, power: {cluster: 5 kW}}
model: {layers: 4, hidden: 1024, heads: 8, vocabulary: 32000, sequence: 512}
plan: {data: 8, global_batch: 8, micro_batch: 1}
)");
    CHECK(resolved_json(test::scenario(resolved_json(given))) == resolved_json(given));
}
