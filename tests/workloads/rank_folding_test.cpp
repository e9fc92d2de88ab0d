// One rank of a stage for all of them: when it is proven, what its transfers demand, and that no time changes.

#include "workloads/training/lowering/rank_folding.hpp"
#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/driver/kinds/training_input.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

using test::train;

FabricShape two_nodes(std::uint32_t nics) {
    FabricShape shape;
    shape.nodes = 2;
    shape.gpus_per_node = 8;
    shape.nics_per_node = nics;
    shape.intra_bandwidth = 300e9;
    shape.nic_bandwidth = 25e9;
    shape.rails = nics;
    return shape;
}

// A message from every GPU of the first node to its counterpart; GPU `odd` sends to the GPU beside that.
std::optional<std::vector<RankFolding::Folded>> folded_sends(const Fabric& fabric, std::uint32_t odd) {
    const auto send = [&](std::uint32_t i) {
        return make_send(fabric, IdealCollectives(), GpuId(i), GpuId(8 + (i == odd ? i ^ 1U : i)), Bytes(1e6),
                         PathChoice::spray, 0);
    };
    RankFolding folding;
    folding.begin(3, send(0));
    for (std::uint32_t i = 1; i < 8; ++i) {
        folding.add(send(i));
    }
    return folding.fold(fabric);
}

constexpr std::uint32_t kNone = 8;

double on(const std::vector<Demand>& demands, ResourceId resource) {
    double sum = 0;
    for (const Demand& demand : demands) {
        sum += demand.resource == resource ? demand.weight : 0;
    }
    return sum;
}

Scenario job(const std::string& fabric, const std::string& plan, const std::string& more = "",
             const std::string& node = "dgx-a100-80g") {
    return test::scenario(
        fmt::format("orrery: 1\nkind: training\ncluster: {{nodes: 8, node: {}, fabric: {{nodes_per_leaf: 4, {}}}}}\n"
                    "model: {{layers: 16, hidden: 2048, heads: 16, vocabulary: 32000, sequence: 1024}}\n"
                    "plan: {{micro_batch: 1, {}}}\nsoftware: megatron-core-2024\n{}",
                    node, fabric, plan, more));
}

}  // namespace

TEST_CASE("ranks with a NIC each fold onto the links of the first; with half as many NICs it loads one twice") {
    const Fabric own(two_nodes(8));
    const auto one = folded_sends(own, kNone);
    REQUIRE(one.has_value());
    REQUIRE(one->size() == 1);
    CHECK(one->front().set == 3);
    CHECK(on(one->front().demands, own.nic_out(0)) == 1);
    CHECK(on(one->front().demands, own.nic_out(1)) == 0);
    CHECK(on(one->front().demands, own.nic_in(8)) ==
          0);  // as full as the NIC that sends at all times, which stands for it

    const Fabric shared(two_nodes(4));
    const auto both = folded_sends(shared, kNone);
    REQUIRE(both.has_value());
    CHECK(on(both->front().demands, shared.nic_out(0)) == 2);
}

TEST_CASE("ranks do not fold where two of them end at one NIC and nobody at another") {
    CHECK(!folded_sends(Fabric(two_nodes(8)), 2).has_value());
}

TEST_CASE("one rank of a stage takes exactly as long as all of them") {
    const char* plans[] = {
        "tensor: 8, pipeline: 4, data: 2, global_batch: 16",
        "tensor: 2, pipeline: 4, data: 8, global_batch: 64, schedule: interleaved, chunks: 2, overlap: {data: true}",
        "tensor: 4, pipeline: 2, data: 4, context: 2, global_batch: 32, zero: 1, overlap: {data: true}",
        "tensor: 16, pipeline: 2, data: 2, global_batch: 16, sequence_parallel: true",
        "tensor: 1, pipeline: 2, data: 32, global_batch: 64, zero: 3",
        "tensor: 1, pipeline: 1, data: 64, global_batch: 64, zero: 3, overlap: {data: true}",
        "tensor: 8, pipeline: 4, data: 2, global_batch: 16, schedule: dualpipe, chunks: 2",
        "tensor: 8, pipeline: 4, data: 2, global_batch: 16, schedule: zb-v, chunks: 2",
        "tensor: 8, pipeline: 4, data: 2, global_batch: 16, schedule: 1f1b, vocabulary_parallel: one-barrier",
    };
    for (const char* plan : plans) {
        for (const char* fabric : {"rails: 8", "rails: 1"}) {
            Scenario s = job(fabric, plan);
            const TrainingResult one = train(s);
            s.network.fold = false;
            const TrainingResult each = train(s);
            CAPTURE(plan);
            CAPTURE(fabric);
            CHECK(one.simulated_ranks == s.as<TrainingKind>().plan.pipeline);
            CHECK(each.simulated_ranks == 64);
            CHECK(one.iteration_s == each.iteration_s);
            for (std::size_t i = 0; i < one.booked.size(); ++i) {
                CHECK(one.booked[i] == doctest::Approx(each.booked[i]).epsilon(1e-9));
            }
            CHECK(one.bubble_s == doctest::Approx(each.bubble_s).epsilon(1e-9));
            CHECK(one.hardware_flops == doctest::Approx(each.hardware_flops).epsilon(1e-12));
        }
    }
}

TEST_CASE("ranks of a stage as copies of one take exactly as long as each described by itself") {
    const char* plans[] = {
        "tensor: 2, pipeline: 4, data: 8, global_batch: 64, schedule: interleaved, chunks: 2, zero: 1, "
        "overlap: {data: true, parameters: true}",
        "tensor: 4, pipeline: 2, data: 4, context: 2, global_batch: 32, zero: 1",
        "tensor: 2, pipeline: 1, data: 32, global_batch: 64, zero: 3, sharding: {weights: 4, gradients: 4, optimizer: "
        "32}, "
        "overlap: {data: true}",
        "tensor: 1, pipeline: 1, data: 64, global_batch: 128, zero: 3, overlap: {data: true}",
        "tensor: 8, pipeline: 4, data: 2, global_batch: 16, schedule: dualpipe, chunks: 2",
        "tensor: 8, pipeline: 4, data: 2, global_batch: 16, schedule: 1f1b, vocabulary_parallel: one-barrier",
    };
    for (const char* plan : plans) {
        for (const char* how : {"fold: false", "paths: ecmp", "fidelity: analytic, fold: false"}) {
            const Scenario s = job("rails: 8, oversubscription: 2", plan, fmt::format("network: {{{}}}\n", how));
            CAPTURE(plan);
            CAPTURE(how);
            const Fabric fabric = fabric_of(s);
            TrainingInput input = training_input(s, test::model_cache(), fabric, Placement(fabric));
            TrainingResult of[2];
            std::uint32_t copies[2];
            for (const bool each : {false, true}) {
                if (each) {
                    input.slow = {{0, 1.0}};  // at full speed, and yet a rank unlike the others
                }
                copies[each ? 1 : 0] = lower(input).graph.copies();
                Simulation simulation(fabric, run_settings(s));
                const TrainingRun run(input, std::numeric_limits<double>::infinity(), simulation);
                simulation.run();
                of[each ? 1 : 0] = run.result();
            }
            CHECK(copies[0] > 1);
            CHECK(copies[1] == 1);
            CHECK(of[0].tasks == of[1].tasks);
            CHECK(of[0].simulated_ranks == of[1].simulated_ranks);
            CHECK(of[0].iteration_s == of[1].iteration_s);
            CHECK(of[0].booked == of[1].booked);
            CHECK(of[0].bubble_s == of[1].bubble_s);
        }
    }
}

TEST_CASE("at analytic fidelity, whose links serve in turn, replicas fold and take exactly as long as unfolded") {
    const char* plans[] = {
        "tensor: 8, pipeline: 4, data: 2, global_batch: 16",
        "tensor: 2, pipeline: 4, data: 8, global_batch: 64, overlap: {data: true}",
        "tensor: 1, pipeline: 2, data: 32, global_batch: 64, zero: 1",
        "tensor: 8, pipeline: 2, data: 4, global_batch: 32, zero: 1, overlap: {data: true, parameters: true, pipeline: "
        "true}",
        "tensor: 4, pipeline: 2, data: 4, context: 2, global_batch: 32, zero: 1, overlap: {data: true}",
        "tensor: 8, pipeline: 2, data: 4, global_batch: 32, schedule: interleaved, chunks: 2, overlap: {data: true}",
        "tensor: 8, pipeline: 1, data: 8, global_batch: 64, zero: 3, overlap: {data: true}",
        "tensor: 8, pipeline: 4, data: 2, global_batch: 16, schedule: dualpipe, chunks: 2",
    };
    for (const char* fabric : {"rails: 8", "rails: 1", "kind: fat-tree, leaf_groups_per_pod: 1, rails: 8"}) {
        for (const char* plan : plans) {
            CAPTURE(fabric);
            CAPTURE(plan);
            Scenario s = job(fabric, plan, "network: {fidelity: analytic}\n");
            const TrainingResult folded = train(s);
            s.network.fold = false;
            const TrainingResult each = train(s);
            CHECK(folded.simulated_ranks < each.simulated_ranks);
            CHECK(folded.iteration_s == each.iteration_s);
        }
    }
    // Links that more NICs send over than they can carry are waited for, in turns that no single replica knows.
    Scenario s = job("rails: 8, oversubscription: 2", plans[0], "network: {fidelity: analytic}\n");
    CHECK(train(s).simulated_ranks == 64);
}

TEST_CASE(
    "ranks that differ are simulated each: slow ones, hashed paths, switches that bind, links that serve in order") {
    const char* plan = "tensor: 8, pipeline: 4, data: 2, global_batch: 16";
    CHECK(train(job("rails: 8, oversubscription: 2", plan)).simulated_ranks == 64);
    CHECK(train(job("rails: 8", plan, "network: {paths: ecmp}\n")).simulated_ranks == 64);
    CHECK(train(job("rails: 8", plan, "network: {fidelity: analytic}\n")).simulated_ranks > 4);
    const Scenario s = job("rails: 8", plan);
    const Fabric fabric = fabric_of(s);
    TrainingInput input = training_input(s, test::model_cache(), fabric, Placement(fabric));
    CHECK(lower(input).ranks.size() == 4);
    input.slow.push_back({3, 0.5});
    CHECK(lower(input).ranks.size() > 4);
}
