// What the ranks of a sequence exchange, as closed forms of its bytes, and what cannot be.

#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/training.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

using test::train;

Scenario scenario_of(const std::string& plan, const std::string& model = "", int layers = 4,
                     const std::string& software = "") {
    Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-a100-80g}}
model: {{layers: {}, hidden: 4096, heads: 32, vocabulary: 32000, sequence: 65536{}}}
plan: {{context: 8, micro_batch: 1, global_batch: 1, recompute: none, {}}}
software: {{preset: megatron-core-2024, launch: 0 us{}}}
network: {{collectives: ideal}}
)",
                                            layers, model, plan, software));
    s.cluster.node.intra_latency.value = 0;
    return s;
}

// Exposed exchanges of a layer, in units of what a rank's tokens have in 16 bits of the model's width.
double exposed(const std::string& plan, const std::string& model = "", const std::string& software = "") {
    const auto of = [&](int layers) {
        const TrainingResult r = train(scenario_of(plan, model, layers, software));
        return r.booked[static_cast<std::size_t>(Category::context_communication)];
    };
    const double unit = 65536.0 / 8 * 4096 * 2 / 300e9;
    return (of(8) - of(4)) / 4 / unit;
}

std::string problems_of(const std::string& plan, const std::string& model = "") {
    return test::problems_when([&] { (void)train(scenario_of(plan, model)); });
}

}  // namespace

TEST_CASE("each exchange of context ranks sends its bytes and no others") {
    // Forward, then backward, of eight ranks; keys and values are two units, as are their gradients.
    CHECK(exposed("overlap: {context: false}") == doctest::Approx(7 * 2 + 7 * 4));
    CHECK(exposed("context_exchange: all-gather") == doctest::Approx(7 * 2 + 7 * 2 + 7 * 2));
    CHECK(exposed("context_exchange: all-to-all") == doctest::Approx(7.0 / 8 * (4 + 4)));
    CHECK(exposed("context_exchange: two-way, overlap: {context: false}") == doctest::Approx(7 * 2 + 7 * 4));
    // Gradients go round in 32 bits, and home at last.
    CHECK(exposed("context_exchange: gathered-ring, overlap: {context: false}") ==
          doctest::Approx(7 * 2 + 7 * 2 + 8 * 4));
    // Half of the heads' exchange stays, and rings have four ranks.
    CHECK(exposed("context_exchange: hierarchical, context_inner: 2, overlap: {context: false}") ==
          doctest::Approx(1.0 / 2 * (4 + 4) + 3 * 2 + 3 * 4));
}

TEST_CASE("grouped keys are fewer bytes, unless they are copied for every head before they leave") {
    CHECK(exposed("overlap: {context: false}", ", kv_heads: 8") == doctest::Approx((7 * 2 + 7 * 4) / 4.0));
    CHECK(exposed("overlap: {context: false}", ", kv_heads: 8", ", repeats_keys: true") ==
          doctest::Approx(7 * 2 + 7 * 4));
    CHECK(exposed("context_exchange: all-to-all", ", kv_heads: 8") == doctest::Approx(7.0 / 8 * (2 + 2.0 / 4) * 2));
}

TEST_CASE("rings of long sequences hide behind attention, and the last of what was found does not") {
    CHECK(exposed("context_exchange: ring") == doctest::Approx(0));
    CHECK(exposed("context_exchange: gathered-ring") <
          exposed("context_exchange: gathered-ring, overlap: {context: false}"));
    CHECK(exposed("context_exchange: two-way") == doctest::Approx(1 + 1).epsilon(0.01));
    CHECK(exposed("context_exchange: hierarchical, context_inner: 4") == doctest::Approx(3.0 / 4 * (4 + 4)));
}

TEST_CASE("in a mesh a hop of a ring takes one link, and queries and what was found for them take two at once") {
    // Links of 0.2 GB/s are what all wait for.
    const auto exposed_of = [](const std::string& plan, IntraKind intra) {
        const auto of = [&](int layers) {
            Scenario s = scenario_of(plan, "", layers);
            s.cluster.node.intra = intra;
            s.cluster.node.intra_bandwidth.value = 0.2e9;
            return train(s).booked[static_cast<std::size_t>(Category::context_communication)];
        };
        return (of(8) - of(4)) / 4 / (65536.0 / 8 * 4096 * 2 / 0.2e9);
    };
    const std::string in_turn = "overlap: {context: false}";
    CHECK(exposed_of(in_turn, IntraKind::mesh) == doctest::Approx(7 * 2 + 7 * 4));
    CHECK(exposed_of(in_turn, IntraKind::nvswitch) == doctest::Approx(7 * 2 + 7 * 4));
    // A collective uses all seven links.
    const std::string gather = "context_exchange: all-gather";
    CHECK(exposed_of(gather, IntraKind::mesh) == doctest::Approx(exposed_of(gather, IntraKind::nvswitch) / 7));
    // Queries take seven hops forward, and seven of thrice the bytes backward; what was found goes beside them but for the last. A port
    // sends one after another.
    const std::string two_way = "context_exchange: two-way";
    CHECK(exposed_of(two_way, IntraKind::mesh) == doctest::Approx(7 + 1 + 7 * 3 + 1).epsilon(0.05));
    CHECK(exposed_of(two_way, IntraKind::nvswitch) == doctest::Approx(7 * 2 + 7 * 4).epsilon(0.05));
    CHECK(exposed_of("context_exchange: ring", IntraKind::mesh) == doctest::Approx(7 * 2 + 7 * 4).epsilon(0.05));
}

TEST_CASE("all exchanges do the same work, whose kernels differ by sums and copies alone") {
    const double ring = train(scenario_of("context_exchange: ring")).hardware_flops;
    for (const char* plan :
         {"context_exchange: gathered-ring", "context_exchange: all-gather", "context_exchange: all-to-all",
          "context_exchange: two-way", "context_exchange: hierarchical, context_inner: 2"}) {
        CAPTURE(plan);
        CHECK(train(scenario_of(plan)).hardware_flops == doctest::Approx(ring));
    }
    // One kernel over whole heads is at least as fast as eight pieces with their sums.
    CHECK(train(scenario_of("context_exchange: all-gather")).iteration_s <
          train(scenario_of("context_exchange: ring, overlap: {context: false}")).iteration_s);
}

TEST_CASE("separate kernels of attention gather keys or exchange heads") {
    const std::string kUnfused = ", attention: unfused";
    CHECK(exposed("context_exchange: all-gather" + kUnfused) == doctest::Approx(3 * 7 * 2));
    CHECK(exposed("context_exchange: all-to-all" + kUnfused) == doctest::Approx(7.0 / 8 * 8));
    CHECK(problems_of("attention: unfused").find("needs context_exchange: all-gather or all-to-all") !=
          std::string::npos);
}

TEST_CASE("gathered keys of the whole sequence are in memory") {
    const auto bytes = [](const std::string& plan) { return train(scenario_of(plan)).memory[0].buffers; };
    CHECK(bytes("context_exchange: all-gather") - bytes("context_exchange: ring") ==
          doctest::Approx(2.0 * 65536 * 4096 * 2));
}

TEST_CASE("exchanges that cannot be say so") {
    CHECK(problems_of("context_exchange: hierarchical").find("needs context_inner of at least 2") != std::string::npos);
    CHECK(problems_of("context_inner: 2").find("context_inner needs context_exchange: hierarchical") !=
          std::string::npos);
    CHECK_THROWS_WITH_AS((void)train(scenario_of("context_exchange: hierarchical, context_inner: 3")),
                         doctest::Contains("context_inner 3 must divide context 8"), InfeasibleError);
    CHECK_THROWS_WITH_AS((void)train(scenario_of("context_exchange: all-to-all", ", kv_heads: 4")),
                         doctest::Contains("must divide the 4 heads of keys"), InfeasibleError);
    CHECK(problems_of("context_exchange: all-to-all, overlap: {context: false}")
              .find("overlap.context: false needs a ring") != std::string::npos);
    CHECK(problems_of("context_exchange: all-to-all, documents: {fill: packed, lengths: [{tokens: 4096, share: 1}]}")
              .find("documents are cut over ranks in rings") != std::string::npos);
    const std::string alone = test::problems_when([] {
        Scenario s = scenario_of("context_exchange: two-way, overlap: {context: false}");
        s.as<TrainingKind>().plan.context = 1;
        s.as<TrainingKind>().plan.data = 8;
        s.as<TrainingKind>().plan.global_batch = 8;
        (void)train(s);
    });
    CHECK(alone.find("context_exchange and context_inner need context above 1") != std::string::npos);
    CHECK(alone.find("overlap.context: false needs context above 1") != std::string::npos);
}
