// Partitions of ZeRO-3: bytes on the links of each level, memory of each, pipelines, and what is refused.

#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/driver/kinds/training_input.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

using test::train;

/// Bytes that rank 0 sends inside its node and out of it in one step, over all links of full efficiency.
struct Sent {
    double inside = 0;
    double outside = 0;
    TrainingResult result;
};

Scenario scenario_of(const std::string& plan, const std::string& rest = "") {
    Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 4, node: dgx-a100-80g, fabric: {{nodes_per_leaf: 4, rails: 8}}}}
model: {{layers: 8, hidden: 1024, heads: 16, vocabulary: 32000, sequence: 512, tied_embeddings: false}}
plan: {{{}}}
network: {{collectives: ideal}}
{})",
                                            plan, rest));
    return s;
}

Sent sent_by(Scenario s) {
    s.network.fold = false;
    const Fabric fabric(shape_of(s.cluster, s.cluster_mark));
    const Placement placement(fabric);
    const TrainingInput input = training_input(s, test::model_cache(), fabric, placement);
    const TrainingGraph lowered = lower(input);
    Sent out;
    for (std::uint32_t i = 0; i < lowered.graph.size(); ++i) {
        const Task& task = lowered.graph.task(TaskId(i));
        if (task.activity == Task::kNoActivity) {
            continue;
        }
        const TaskGraph::Activity activity = lowered.graph.activity(TaskId(i));
        for (const Demand& demand : lowered.graph.demands(activity.demand_set)) {
            if (demand.resource == fabric.intra_up(GpuId(0))) {
                out.inside += activity.amount * demand.weight;
            }
            if (demand.resource == fabric.nic_out(fabric.nic_of(GpuId(0)))) {
                out.outside += activity.amount * demand.weight;
            }
        }
    }
    return out;
}

double weights_of(const Scenario& s) {
    const auto& training = s.as<TrainingKind>();
    return weights_of(training.model, training.plan, LayerMix{static_cast<double>(training.model.layers)}, 2).total();
}

const std::string kPlan = "data: 32, zero: 3, micro_batch: 1, global_batch: 64, ";  // two micro-batches

}  // namespace

TEST_CASE("three levels: weights between two GPUs, gradients in a node, optimizer states over all, to the byte") {
    const Scenario s = scenario_of(kPlan + "sharding: {weights: 2, gradients: 8, optimizer: 32}");
    const double w = weights_of(s);
    const Sent sent = sent_by(s);
    // Each micro-batch gathers twice between two and reduces among eight. At the end four nodes reduce the eighths, and sixteen
    // ranks, four in a node, gather the halves that they have updated: a ring leaves each node once, over four NICs.
    const double passes = 2 * (2 * 2 * w / 2 + 2 * w * 7 / 8);
    const double update = 2 * w / 2 * 15 / 16;
    CHECK(sent.inside == doctest::Approx(passes + update * 3 / 4).epsilon(1e-9));
    CHECK(sent.outside == doctest::Approx(2 * w / 8 * 3 / 4 + update / 4).epsilon(1e-9));
    // All over all ranks: everything leaves the node, an eighth of it over each NIC.
    const Sent flat = sent_by(scenario_of(kPlan + "sharding: {weights: 32}"));
    CHECK(flat.outside == doctest::Approx(2 * 3 * 2 * w * 31 / 32 / 8).epsilon(1e-9));
    CHECK(sent_by(scenario_of(kPlan.substr(0, kPlan.size() - 2))).outside == flat.outside);
}

TEST_CASE("a second copy of the weights keeps the gathers of backward passes inside the node") {
    const Scenario s = scenario_of(kPlan + "sharding: {secondary: 8}");
    const double w = weights_of(s);
    const Sent sent = sent_by(s);
    const double ring = 2 * w * 31 / 32;  // of weights forward, and of gradients
    CHECK(sent.outside == doctest::Approx(2 * 2 * ring / 8).epsilon(1e-9));
    CHECK(sent.inside == doctest::Approx(2 * (2 * ring * 7 / 8 + 2 * w * 7 / 8)).epsilon(1e-9));
}

TEST_CASE("quantised weights and gradients put their bits and scales on the wire, gradients in two all-to-alls") {
    const Scenario s = scenario_of(kPlan + "sharding: {weight_bits: 8, gradient_bits: 4, block: 256}");
    const double w = weights_of(s);
    const Sent sent = sent_by(s);
    const double eight = (1 + 4.0 / 256) * w;
    const double four = (0.5 + 4.0 / 256) * w;
    CHECK(sent.outside == doctest::Approx(2 * (2 * eight * 31 / 32 / 8 + four / 8 * 3 / 4)).epsilon(1e-9));
    CHECK(sent.inside == doctest::Approx(2 * (2 * eight * 31 / 32 * 7 / 8 + four * 7 / 8)).epsilon(1e-9));
    // What rounds and adds up is memory traffic of the passes.
    const auto kernels = [](const std::string& sharding) {
        const Price price = [&] {
            Price sum;
            const Scenario one = scenario_of(kPlan + sharding);
            const TrainingResult result = train(one);
            sum.seconds = result.booked;
            return sum;
        }();
        return price[Category::data_communication];
    };
    CHECK(kernels("overlap: {data: true}, sharding: {weight_bits: 8, weights: 8, gradients: 8}") >
          kernels("overlap: {data: true}, sharding: {weights: 8, gradients: 8}"));
}

TEST_CASE("each partition takes the memory of its share, the second copy its own") {
    const auto memory = [](const std::string& plan) {
        const Scenario s = scenario_of(kPlan + plan);
        return memory_by_stage(s.as<TrainingKind>().model, s.as<TrainingKind>().plan, s.as<TrainingKind>().software)[0];
    };
    const double w = weights_of(scenario_of(kPlan.substr(0, kPlan.size() - 2)));
    const MemoryUse three = memory("sharding: {weights: 2, gradients: 8, optimizer: 32}");
    CHECK(three.weights == doctest::Approx(2 * w / 2));
    CHECK(three.gradients == doctest::Approx(2 * w / 8));
    CHECK(three.optimizer == doctest::Approx(12 * w / 32));
    CHECK(memory("sharding: {secondary: 8}").weights == doctest::Approx(2 * w / 32 + 2 * w / 8));
    const double layer =
        weights_of(scenario_of(kPlan + "sharding: {weights: 32}").as<TrainingKind>().model,
                   scenario_of(kPlan + "sharding: {weights: 32}").as<TrainingKind>().plan, LayerMix{1}, 0)
            .total();
    const MemoryUse few = memory("overlap: {data: true}, sharding: {prefetch: 1}");
    const MemoryUse many = memory("overlap: {data: true}, sharding: {prefetch: 5}");
    CHECK(many.buffers - few.buffers == doctest::Approx(4 * 2 * layer));
}

TEST_CASE("ZeRO-3 in a pipeline gathers a stage's layers for every pass, and folds like others") {
    const std::string plan = "pipeline: 2, data: 16, zero: 3, micro_batch: 1, global_batch: 64, schedule: 1f1b";
    const Scenario s = scenario_of(plan);
    // Four micro-batches through half of the layers and one table, among sixteen ranks on two nodes.
    const double w = weights_of(s.as<TrainingKind>().model, s.as<TrainingKind>().plan, LayerMix{4}, 1).total();
    const double boundary = 512.0 * 1024 * 2;
    CHECK(sent_by(s).outside == doctest::Approx(4 * (3 * 2 * w * 15 / 16 / 8 + boundary)).epsilon(1e-9));
    CHECK(sent_by(scenario_of(plan + ", sharding: {weights: 8, gradients: 8, optimizer: 8}")).outside ==
          doctest::Approx(4 * boundary + 2 * 2 * w / 8 / 2).epsilon(1e-9));
    for (const char* change : {"", ", overlap: {data: true}", ", overlap: {data: true}, sharding: {weights: 8}"}) {
        Scenario folded = scenario_of(plan + change);
        const TrainingResult one = train(folded);
        folded.network.fold = false;
        CHECK_MESSAGE(one.folded_into_one == 16, change);
        CHECK_MESSAGE(one.iteration_s == train(folded).iteration_s, change);
    }
    // Collectives that take no units leave the passes of the same plan without shards, but for the memory that both use.
    const auto passes = [&](const std::string& zero) {
        Scenario wide = scenario_of("pipeline: 2, data: 16, micro_batch: 1, global_batch: 64, schedule: 1f1b, " + zero);
        wide.as<TrainingKind>().software.communication_units.value = 0;
        const TrainingResult result = train(wide);
        return result.booked[static_cast<std::size_t>(Category::forward)] +
               result.booked[static_cast<std::size_t>(Category::backward)];
    };
    const double beside = passes("zero: 3, overlap: {data: true}");
    CHECK(beside >= passes("zero: 1"));
    CHECK(beside == doctest::Approx(passes("zero: 1")).epsilon(0.01));
}

TEST_CASE("every schedule of one copy of the model runs under ZeRO-3, and moves the same bytes") {
    const double first =
        sent_by(scenario_of("pipeline: 2, data: 16, zero: 3, global_batch: 64, schedule: gpipe")).outside;
    for (const PipelineSchedule* row : schedule_table()) {
        if (row->map != StageMap::round_robin || row->chunked) {
            continue;
        }
        const Scenario s =
            scenario_of(fmt::format("pipeline: 2, data: 16, zero: 3, global_batch: 64, schedule: {}", row->name));
        CHECK_MESSAGE(sent_by(s).outside == doctest::Approx(first).epsilon(1e-9), row->name);
        CHECK_MESSAGE(train(s).iteration_s > 0, row->name);
    }
}

TEST_CASE("weights gathered further ahead never make an iteration slower") {
    double before = 1e9;
    for (const int prefetch : {1, 2, 4}) {
        const double seconds =
            train(scenario_of(kPlan + fmt::format("overlap: {{data: true}}, sharding: {{prefetch: {}}}", prefetch)))
                .iteration_s;
        CHECK(seconds <= before);
        before = seconds;
    }
}

TEST_CASE("partitions that cannot be say so, all at once") {
    const auto said = [](const std::string& plan) {
        try {
            (void)train(scenario_of(plan));
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(said("data: 32, global_batch: 64, zero: 2, sharding: {weights: 8, prefetch: 3}").find("needs zero: 3") !=
          std::string::npos);
    CHECK(said("data: 32, global_batch: 64, zero: 2, sharding: {weights: 8, prefetch: 3}").find("needs overlap") !=
          std::string::npos);
    CHECK(said(kPlan + "sharding: {weights: 8, gradients: 4}").find("weights 8 must divide gradients 4") !=
          std::string::npos);
    CHECK(said(kPlan + "shard: 8, sharding: {weights: 8}").find("say the same") != std::string::npos);
    CHECK(said(kPlan + "sharding: {weights: 8, secondary: 8}").find("have already") != std::string::npos);
}
