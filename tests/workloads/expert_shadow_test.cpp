// Copies of the most wanted experts, and exchanges of tokens cut into pieces that hide behind the products of others.

#include "tests/support/scenarios.hpp"
#include "workloads/training/plan/experts.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

using test::train;

Scenario scenario_of(const std::string& plan, const std::string& experts = "count: 16, topk: 2, ffn: 8192",
                     int layers = 4) {
    Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-h100}}
model: {{layers: {}, hidden: 4096, heads: 32, vocabulary: 1024, sequence: 8192, experts: {{{}}}}}
plan: {{data: 8, expert: 8, micro_batch: 1, global_batch: 8{}}}
software: {{preset: megatron-core-2024, launch: 0 us, expert_wait: 0 us}}
network: {{collectives: ideal}}
)",
                                            layers, experts, plan));
    s.cluster.node.intra_latency.value = 0;
    return s;
}

double exposed(const std::string& plan) {
    return train(scenario_of(plan)).booked[static_cast<std::size_t>(Category::expert_communication)];
}

std::string refusal_of(const std::string& plan, const std::string& experts = "count: 16, topk: 2, ffn: 8192") {
    try {
        (void)train(scenario_of(plan, experts));
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

ExpertLoad load(std::vector<double> loads, std::int64_t shadowed) {
    ExpertsSpec experts;
    experts.count = static_cast<std::int64_t>(loads.size());
    experts.topk = 1;
    PlanSpec plan;
    plan.experts.expert = 2;
    plan.experts.loads = std::move(loads);
    plan.experts.shadowed = shadowed;
    return load_of(experts, plan);
}

}  // namespace

TEST_CASE("shadowed experts take their tokens from the exchange and from the busiest rank") {
    // Of a mean of 2: 4 and 2 on one rank, 1 and 1 on the other.
    CHECK(load({4, 2, 1, 1}, 0).hottest == doctest::Approx(1.5));
    CHECK(load({4, 2, 1, 1}, 0).kept == doctest::Approx(1));
    // Half of all choices stay at home; 2 against 1 and 1 are left.
    CHECK(load({4, 2, 1, 1}, 1).hottest == doctest::Approx(0.5 + 2.0 / 4));
    CHECK(load({4, 2, 1, 1}, 1).kept == doctest::Approx(0.5));
    CHECK(load({1, 2, 4, 1}, 1).kept == doctest::Approx(0.5));  // wherever they are
    CHECK(load({4, 2, 1, 1}, 4).hottest == doctest::Approx(1));
    CHECK(load({4, 2, 1, 1}, 4).kept == 0);
    // Without a law all experts are alike.
    CHECK(load({}, 0).kept == doctest::Approx(1));
}

TEST_CASE("weights of shadowed experts are gathered behind attention, kept for a layer, and their gradients summed") {
    const std::string skew = ", router_exponent: 1.2";
    const TrainingResult plain = train(scenario_of(skew));
    const TrainingResult shadowed = train(scenario_of(skew + ", shadowed: 2"));
    CHECK(shadowed.iteration_s < plain.iteration_s);
    // 2 x 4,096 x 8,192 weights of an expert, in 16 bits, and as many gradients.
    const double expert = 2.0 * 4096 * 8192;
    CHECK(shadowed.memory[0].buffers - plain.memory[0].buffers == doctest::Approx(2 * expert * 4));
    // All experts everywhere: no tokens travel, and nothing waits for the weights of all but what attention does not hide.
    const double gathered = exposed(skew + ", shadowed: 16");
    CHECK(gathered > 0);
    CHECK(gathered < 4 * 2 * (7.0 / 8) * 16 * expert * 2 / 450e9);
}

TEST_CASE("pieces expose the first exchange of tokens and the last, whose parts are as small") {
    const double whole = exposed("");
    CHECK(exposed(", expert_pieces: 2") / whole == doctest::Approx(0.5).epsilon(0.01));
    CHECK(exposed(", expert_pieces: 4") / whole == doctest::Approx(0.25).epsilon(0.01));
    CHECK(train(scenario_of(", expert_pieces: 2")).hardware_flops ==
          doctest::Approx(train(scenario_of("")).hardware_flops));
}

TEST_CASE("shadows and pieces that cannot be say so") {
    CHECK(refusal_of(", shadowed: 17").find("shadowed 17 is more than the 16 experts") != std::string::npos);
    for (const char* plan : {", shadowed: 1, dispatch: all-gather", ", shadowed: 1, capacity: 1.25, pad: true"}) {
        CAPTURE(plan);
        CHECK(refusal_of(plan).find("shadowed experts need expert of at least 2") != std::string::npos);
    }
    for (const char* plan :
         {", shadowed: 1, overlap: {experts: batches}", ", expert_pieces: 2, overlap: {experts: batches}"}) {
        CAPTURE(plan);
        CHECK(refusal_of(plan).find("hides all exchanges already") != std::string::npos);
    }
}
