#include "tools/driver/kinds/training.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

using namespace orrery;

namespace {

const char* kTwoStages = R"(orrery: 1
kind: training
cluster: {nodes: 8, node: dgx-a100-80g, fabric: {nodes_per_leaf: 4, rails: 8}}
model: {layers: 8, hidden: 2048, heads: 16, vocabulary: 32000, sequence: 1024}
plan: {tensor: 4, pipeline: 2, data: 8, micro_batch: 1, global_batch: 64, recompute: full}
software: {preset: megatron-lm-2021, attention: flash}
)";

TrainingResult train(Scenario s) {
    RunOptions options;
    options.check_memory = false;
    return *run_scenario(s, test::model_cache(), options).training;
}

}  // namespace

TEST_CASE("layers split evenly, and where layers + 2 divides the ends hold one fewer") {
    CHECK(split_layers(8, 4) == std::vector<std::uint32_t>{2, 2, 2, 2});
    CHECK(split_layers(10, 4) == std::vector<std::uint32_t>{2, 3, 3, 2});
    CHECK(split_layers(9, 4) == std::vector<std::uint32_t>{3, 2, 2, 2});
    CHECK(split_layers(126, 16) == [] {
        std::vector<std::uint32_t> v(16, 8);
        v.front() = v.back() = 7;
        return v;
    }());
}

TEST_CASE("the bubble of equal stages is what the row of the schedule says: (p - 1)(f + b) over the chunks") {
    for (const PipelineSchedule* schedule : schedule_table()) {
        if (schedule->splits) {
            continue;  // passes of three lengths: pipeline_schedules_test.cpp
        }
        Scenario s = test::scenario(R"(orrery: 1
kind: training
cluster: {nodes: 1, node: dgx-a100-80g}
model: {layers: 16, hidden: 4096, heads: 32, vocabulary: 8, sequence: 2048, tied_embeddings: false}
plan: {pipeline: 8, micro_batch: 1, global_batch: 16, overlap: {pipeline: true}}
software: {preset: megatron-core-2024, launch: 0 us, step_overhead: 0 s}
network: {collectives: ideal}
)");
        auto& training = s.as<TrainingKind>();
        training.plan.schedule = schedule;
        training.plan.chunks = schedule->chunked ? 2 : 1;
        s.cluster.node.intra_bandwidth.value = 1e14;  // sends take no time
        s.cluster.node.intra_latency.value = 0;
        const TrainingResult r = train(s);
        const double work = r.booked[static_cast<std::size_t>(Category::forward)] +
                            r.booked[static_cast<std::size_t>(Category::backward)];
        const double pass_pair = work / 16;             // of one micro-batch
        if (std::string(schedule->name) != "hanayo") {  // waves wait as pipeline_schedules_test.cpp has it
            CHECK(schedule->bubble(training.plan.shape()) == 7.0 / static_cast<double>(training.plan.chunks));
        }
        CHECK(r.bubble_s == doctest::Approx(schedule->bubble(training.plan.shape()) * pass_pair).epsilon(0.04));
    }
}

TEST_CASE("zero bubble: a third of the wait of 1F1B with its memory, none with nearly twice, and the same work") {
    const PipelineSchedule& once = schedule_named("zb-h1");
    const PipelineSchedule& twice = schedule_named("zb-h2");
    for (const std::uint32_t stages : {2U, 4U, 8U, 32U}) {
        const PipelineShape shape{stages, 1, 3 * stages};
        CHECK(once.bubble(shape) == doctest::Approx((stages - 1) / 3.0));  // (p - 1)(f + b - w) of equal f, b and w
        CHECK(twice.bubble(shape) == 0);
        for (std::uint32_t stage = 0; stage < stages; ++stage) {
            CHECK(once.in_flight(shape)[stage] <= stages);
            CHECK(twice.in_flight(shape)[stage] <= 2 * stages - 1);
        }
    }
    const auto trained = [](const std::string& plan) {
        return train(test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 2, node: dgx-a100-80g}}
model: {{layers: 16, hidden: 4096, heads: 32, vocabulary: 8, sequence: 2048, tied_embeddings: false}}
plan: {{pipeline: 8, micro_batch: 1, {}}}
software: {{preset: megatron-core-2024, launch: 0 us, step_overhead: 0 s}}
network: {{collectives: ideal}}
)",
                                                plan)));
    };
    const std::string rest = "data: 2, global_batch: 48, overlap: {pipeline: true}, schedule: ";
    const TrainingResult plain = trained(rest + "1f1b");
    const TrainingResult h1 = trained(rest + "zb-h1");
    const TrainingResult h2 = trained(rest + "zb-h2");
    const auto work = [](const TrainingResult& r) {
        return r.booked[static_cast<std::size_t>(Category::forward)] +
               r.booked[static_cast<std::size_t>(Category::backward)];
    };
    CHECK(work(h1) == doctest::Approx(work(plain)).epsilon(1e-9));
    CHECK(h1.hardware_flops == doctest::Approx(plain.hardware_flops).epsilon(1e-9));
    CHECK(h1.bubble_s < 0.6 * plain.bubble_s);
    CHECK(h2.bubble_s < 0.5 * h1.bubble_s);
    CHECK(h2.memory_bytes > h1.memory_bytes);
    CHECK(h1.memory_bytes == doctest::Approx(plain.memory_bytes).epsilon(0.02));
    // Gradients leave in buckets of the weight gradients' last pass; tensor-parallel parts add up to the whole.
    const std::string tensor =
        "data: 1, tensor: 2, sequence_parallel: true, global_batch: 24, overlap: {pipeline: true}, schedule: ";
    CHECK(work(trained(tensor + "zb-h1")) == doctest::Approx(work(trained(tensor + "1f1b"))).epsilon(1e-9));
    CHECK(trained(rest + "zb-h1").iteration_s >
          trained("data: 2, global_batch: 48, overlap: {pipeline: true, data: true}, schedule: zb-h1").iteration_s);
}

TEST_CASE(
    "breadth-first: bubble (p - 1)/(m v), all activations held, gradients of a chunk reduced behind the next one's") {
    const PipelineSchedule& schedule = schedule_named("breadth-first");
    // Twelve micro-batches, no multiple of the eight stages: 7 / (12 x 2) of the ideal time.
    Scenario s = test::scenario(R"(orrery: 1
kind: training
cluster: {nodes: 2, node: dgx-a100-80g}
model: {layers: 16, hidden: 4096, heads: 32, vocabulary: 8, sequence: 2048, tied_embeddings: false}
plan: {pipeline: 8, data: 2, micro_batch: 1, global_batch: 24, schedule: breadth-first, chunks: 2,
       overlap: {pipeline: true, data: true}}
software: {preset: megatron-core-2024, launch: 0 us, step_overhead: 0 s, waits_at_ends: false}
network: {collectives: ideal}
)");
    auto& training = s.as<TrainingKind>();
    s.cluster.node.intra_bandwidth.value = 1e14;
    s.cluster.node.intra_latency.value = 0;
    const TrainingResult r = train(s);
    const auto booked = [](const TrainingResult& of, Category category) {
        return of.booked[static_cast<std::size_t>(category)];
    };
    const double work = booked(r, Category::forward) + booked(r, Category::backward);
    CHECK(r.bubble_s / work == doctest::Approx(7.0 / 24).epsilon(0.04));  // the last stage has the final norm, too
    CHECK(schedule.bubble(training.plan.shape()) / 12 == 7.0 / 24);
    CHECK(schedule.in_flight(training.plan.shape()) == std::vector<std::uint32_t>(8, 24));
    // Fewer micro-batches than stages: the second chunk waits for the far end too.
    training.plan.global_batch = 8;
    CHECK(schedule.bubble(training.plan.shape()) == (7 + 4) / 2.0);
    const TrainingResult few = train(s);
    const double few_work = booked(few, Category::forward) + booked(few, Category::backward);
    CHECK(few.bubble_s / few_work == doctest::Approx(5.5 / 4).epsilon(0.04));
    // The gradients of chunk 1 are final when half of the backward passes are still to come, and go meanwhile; an
    // interleaved schedule ends its last groups of both chunks close together.
    training.plan.global_batch = 32;
    const auto passes = schedule.order(training.plan.shape())[3];
    const auto last_of_chunk_1 = std::find(passes.rbegin(), passes.rend(), Pass{PassWork::backward, 1, 15});
    CHECK(last_of_chunk_1 - passes.rbegin() == 16);
    const double hidden = train(s).iteration_s;
    training.plan.schedule = &schedule_named("interleaved");
    const auto interleaved = training.plan.schedule->order(training.plan.shape())[3];
    CHECK(std::find(interleaved.rbegin(), interleaved.rend(), Pass{PassWork::backward, 1, 15}) - interleaved.rbegin() ==
          8);
    CHECK(hidden <= train(s).iteration_s * (1 + 1e-9));
    // What it needs is said by its row.
    training.plan.schedule = &schedule;
    training.plan.pipeline = 1;
    training.plan.data = 16;
    CHECK_THROWS_AS((void)train(s), const InfeasibleError&);
}

TEST_CASE("chunks belong to schedules that take several, and the error names them from the table") {
    YamlNode tree = parse_yaml(kTwoStages, "test.yaml");
    apply_override(tree, "plan.chunks=2");
    const Scenario s = read_scenario(tree, "test", test::data());
    std::string problem;
    try {
        (void)train(s);
    } catch (const ConfigError& error) {
        problem = error.what();
    }
    CHECK_MESSAGE(problem.find("'chunks' above 1 needs schedule: interleaved or breadth-first") != std::string::npos,
                  problem);
}

TEST_CASE("a folded iteration takes exactly as long as the unfolded one") {
    for (const char* change : {"plan.zero=0", "plan.zero=1", "plan.overlap.data=true", "plan.overlap.pipeline=true",
                               "plan.recompute=none", "plan.sequence_parallel=true", "plan.data=4 plan.context=2"}) {
        YamlNode tree = parse_yaml(kTwoStages, "test.yaml");
        std::string rest = change;
        while (!rest.empty()) {
            const auto space = rest.find(' ');
            apply_override(tree, rest.substr(0, space));
            rest = space == std::string::npos ? "" : rest.substr(space + 1);
        }
        Scenario s = read_scenario(tree, "test", test::data());
        const TrainingResult folded = train(s);
        s.network.fold = false;
        const TrainingResult unfolded = train(s);
        CHECK_MESSAGE(folded.folded_into_one > 1, change);
        CHECK_MESSAGE(unfolded.simulated_ranks == 64, change);
        CHECK_MESSAGE(folded.iteration_s == unfolded.iteration_s, change);
        CHECK_MESSAGE(folded.bubble_s == doctest::Approx(unfolded.bubble_s).epsilon(1e-9), change);
    }
}

TEST_CASE("a folded FSDP iteration equals the unfolded one, also with hybrid shards") {
    for (const char* shard : {"plan.shard=0", "plan.shard=8", "plan.shard=16"}) {
        YamlNode tree = parse_yaml(kTwoStages, "test.yaml");
        for (const char* change :
             {"plan.tensor=1", "plan.pipeline=1", "plan.data=64", "plan.zero=3", "plan.overlap.data=true", shard}) {
            apply_override(tree, change);
        }
        Scenario s = read_scenario(tree, "test", test::data());
        const TrainingResult folded = train(s);
        s.network.fold = false;
        const TrainingResult unfolded = train(s);
        CHECK_MESSAGE(folded.folded_into_one == 64, shard);
        CHECK_MESSAGE(folded.iteration_s == unfolded.iteration_s, shard);
    }
}

TEST_CASE("collectives over lists cost the host one piece for every rank and tensor, on the critical path") {
    Scenario s = test::scenario(R"(orrery: 1
kind: training
cluster: {nodes: 4, node: dgx-a100-80g, fabric: {nodes_per_leaf: 4, rails: 8}}
model: {layers: 4, hidden: 2048, heads: 16, vocabulary: 32000, sequence: 1024}
plan: {data: 32, micro_batch: 1, global_batch: 32, recompute: full, zero: 3}
software: {preset: megatron-deepspeed-2022, launch: 1 us}
)");
    s.as<TrainingKind>().software.piece_time.value = 1e-6;
    const double fast = train(s).iteration_s;
    s.as<TrainingKind>().software.piece_time.value = 4e-6;
    const double slow = train(s).iteration_s;
    // A layer's 4 matrices are gathered forward, for the recomputation and backward, its 12 tensors reduced, and the 8
    // small ones gathered after the step; the (tied) embedding is gathered three times and reduced once.
    const double pieces = 4 * (3 * 4 + 12 + 8) + 3 + 1;
    CHECK(slow - fast == doctest::Approx(3e-6 * 32 * pieces).epsilon(1e-6));
}

TEST_CASE("gradients leave bucket by bucket under every schedule: what is exposed is the last bucket") {
    const auto seconds = [](const std::string& plan, double bucket) {
        Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 16, node: dgx-a100-80g, fabric: {{nodes_per_leaf: 16, rails: 8}}}}
model: {{layers: 16, hidden: 4096, heads: 32, vocabulary: 32000, sequence: 2048, tied_embeddings: false}}
plan: {{tensor: 8, data: 16, global_batch: 64, micro_batch: 4, {}}}
software: megatron-core-2024
network: {{collectives: ideal}}
)",
                                                plan));
        s.as<TrainingKind>().software.gradient_bucket.value = bucket;
        s.as<TrainingKind>().software.gradient_bucket_per_rank.value = 0;
        s.as<TrainingKind>().software.communication_units.value = 0;
        return train(s).iteration_s;
    };
    const double late = seconds("overlap: {data: false}", 1);
    const double whole = seconds("overlap: {data: true}", 1e12);
    CHECK(whole == doctest::Approx(late).epsilon(1e-9));  // one bucket is final with the last layer
    const double layers = seconds("overlap: {data: true}", 1);
    // The ring moves 2 x 15/16 of 2 bytes a weight over a NIC of 25 GB/s; but for the last bucket it hides.
    const double layer = 12.0 * 4096 * 4096 / 8;
    const double table = 32000.0 * 4096 / 8;
    const double ring = 2 * 15.0 / 16 * 2 / 25e9;
    CHECK(late - layers == doctest::Approx(ring * (15 * layer + table)).epsilon(0.01));
    // The weights of ZeRO-1 come bucket by bucket as well.
    CHECK(seconds("zero: 1, overlap: {data: true, parameters: true}", 1) <
          seconds("zero: 1, overlap: {data: true, parameters: true}", 1e12));
    CHECK(seconds("zero: 1, overlap: {data: true, parameters: true}", 1) <
          1.02 * seconds("zero: 2, overlap: {data: true}", 1));
}

TEST_CASE("collectives beside a pass take units from its kernels") {
    const auto seconds = [](double units) {
        Scenario s = test::scenario(R"(orrery: 1
kind: training
cluster: {nodes: 1, node: dgx-h100}
model: {layers: 16, hidden: 4096, heads: 32, vocabulary: 32000, sequence: 2048}
plan: {data: 8, zero: 3, global_batch: 16, overlap: {data: true}}
software: pytorch-fsdp
)");
        s.as<TrainingKind>().software.communication_units.value = units;
        return train(s).iteration_s;
    };
    CHECK(seconds(10) > 1.001 * seconds(0));
    CHECK(seconds(20) - seconds(10) == doctest::Approx(seconds(10) - seconds(0)).epsilon(0.05));
}

TEST_CASE("narrow operands: casts of blocks and of 4 bits, and what is kept of them") {
    const auto train_in = [](const char* precision) {
        return train(test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-b200}}
model: {{layers: 4, hidden: 4096, heads: 32, vocabulary: 32000, sequence: 4096}}
plan: {{data: 8, global_batch: 8, precision: {}}}
software: {{preset: megatron-core-2024, launch: 0 us}}
)",
                                                precision)));
    };
    const TrainingResult wide = train_in("bf16");
    const TrainingResult tensor = train_in("fp8");
    const TrainingResult block = train_in("fp8, fp8_scaling: block");
    const TrainingResult fp4 = train_in("fp4");
    // Four inputs of products (three of 4096 values a token, one of 16384) are kept in 1, 33/32 and 9/16 bytes instead of 2.
    const double values = 4.0 * 4096 * (3 * 4096 + 16384);
    CHECK(wide.memory[0].activations - tensor.memory[0].activations == doctest::Approx(values));
    CHECK(wide.memory[0].activations - block.memory[0].activations == doctest::Approx(values * (2 - 33.0 / 32)));
    CHECK(wide.memory[0].activations - fp4.memory[0].activations == doctest::Approx(values * (2 - 9.0 / 16)));
    const auto forward = [](const TrainingResult& result) {
        return result.booked[static_cast<std::size_t>(Category::forward)];
    };
    CHECK(forward(fp4) < forward(block));
    CHECK(forward(block) < forward(wide));
}

TEST_CASE("casts to 8 bits cost what their scales need") {
    const auto forward = [](const char* scaling, bool fused, bool activation = false) {
        Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-h100}}
model: {{layers: 4, hidden: 4096, heads: 32, vocabulary: 32000, sequence: 4096}}
plan: {{data: 8, global_batch: 8, precision: fp8, fp8_scaling: {}}}
software: megatron-core-2024
)",
                                                scaling));
        s.as<TrainingKind>().software.fused_casts = fused;
        s.as<TrainingKind>().software.fused_activation_casts = activation;
        s.as<TrainingKind>().software.launch.value = 0;
        return train(s).booked[static_cast<std::size_t>(Category::forward)];
    };
    const double delayed = forward("delayed", true);
    const double unfused = forward("delayed", false);
    const double current = forward("current", true);
    CHECK(delayed < unfused);
    CHECK(unfused < current);
    // Unfused: the inputs of the first and third product (4096 wide) move 4 bytes a value more, and where the activation function
    // casts, the fourth (16384 wide) as many less; a scale of this step reads all four inputs again.
    ModelCache models(test::data());
    const Scenario s = test::scenario(
        "orrery: 1\nkind: training\ncluster: {nodes: 1, node: dgx-h100}\nmodel: gpt3-175b\nplan: {data: 8, "
        "global_batch: 8}\n");
    const CostModel& device = models.device(s.cluster.node.gpu, s.as<TrainingKind>().compute);
    const double slowdown = test::scenario(
                                "orrery: 1\nkind: training\ncluster: {nodes: 1, node: dgx-h100}\nmodel: "
                                "gpt3-175b\nplan: {data: 8, global_batch: 8}\nsoftware: megatron-core-2024\n")
                                .as<TrainingKind>()
                                .software.kernel_slowdown.value;
    const auto cast = [&](double width, double bytes) {
        return slowdown * device.seconds(Streaming{4096.0 * width * bytes, 1}).value();
    };
    CHECK(unfused - delayed == doctest::Approx(4 * 2 * cast(4096, 4)).epsilon(1e-6));
    CHECK(delayed - forward("delayed", true, true) == doctest::Approx(4 * cast(16384, 4)).epsilon(1e-6));
    CHECK(forward("row", true) > delayed);
}

TEST_CASE("matrix kernels run at the speed of the slowest device of a job") {
    DeviceSpec device;
    CHECK(device.slowest_of(1) == 1);
    device.speed_spread.value = 0.01;
    // Expected largest of n standard normal draws (Harter, Biometrika 48, 1961): 2: 0.5642, 10: 1.5388, 100: 2.5076, 400: 2.9682.
    CHECK(device.slowest_of(2) == doctest::Approx(1.005642).epsilon(3e-4));
    CHECK(device.slowest_of(10) == doctest::Approx(1.015388).epsilon(2e-4));
    CHECK(device.slowest_of(100) == doctest::Approx(1.025076).epsilon(2e-4));
    CHECK(device.slowest_of(400) == doctest::Approx(1.029682).epsilon(2e-4));
}

TEST_CASE("operands in 8 bits are kept in 8 bits, and keys of fewer heads take less") {
    const auto activations = [](const char* plan, const char* heads, const char* software) {
        const Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-h100}}
model: {{layers: 4, hidden: 4096, heads: 32, {}vocabulary: 32000, sequence: 4096}}
plan: {{data: 8, global_batch: 8{}}}
software: {}
)",
                                                      heads, plan, software));
        return memory_of(s.as<TrainingKind>().model, s.as<TrainingKind>().plan, s.as<TrainingKind>().software,
                         LayerMix{4}, false, false, 1)
            .activations;
    };
    const double sbh = 4 * 4096.0 * 4096.0;
    const double wide = activations("", "", "megatron-core-2024");
    CHECK(wide == doctest::Approx(sbh * (8 + 24)));
    CHECK(wide - activations(", precision: fp8", "", "megatron-core-2024") == doctest::Approx(sbh * (2 + 1 + 4)));
    CHECK(wide == activations(", precision: fp8", "", "pytorch-fsdp"));  // what it cast is kept, in 16 bits
    CHECK(wide - activations("", "kv_heads: 8, ", "megatron-core-2024") == doctest::Approx(sbh * 4 * 0.75));
}

TEST_CASE("what tensor-parallel ranks gather travels in the format of the products, what they add up does not") {
    const std::string text = R"(orrery: 1
kind: training
cluster: {nodes: 1, node: dgx-h100}
model: {layers: 4, hidden: 2048, heads: 16, vocabulary: 32000, sequence: 1024}
plan: {tensor: 8, global_batch: 3, recompute: none, sequence_parallel: true, precision: fp8)";
    const std::string rest = "}\nsoftware: megatron-core-2024\nnetwork: {collectives: ideal}\n";
    const auto communication = [](const std::string& given) {
        return train(test::scenario(given)).booked[static_cast<std::size_t>(Category::tensor_communication)];
    };
    const double wide = communication(text + ", gather_precision: bf16" + rest);
    // Software that casts in the kernel before gathers what it has cast.
    CHECK(communication(text + rest) == communication(text + ", gather_precision: fp8" + rest));
    // A layer gathers twice forward and four times backward; half of the bytes stay at home, of which a rank has one eighth.
    const double bytes = 3 * 4 * 6 * (1024 * 2048 * 2) / 2.0 * 7 / 8;
    const double rate = test::scenario(text + rest).cluster.node.intra_bandwidth.value;
    CHECK(wide - communication(text + ", gather_precision: fp8" + rest) == doctest::Approx(bytes / rate).epsilon(1e-6));
    // Without products in 8 bits, or without gathers, there is nothing to ask for.
    for (const char* instead : {"precision=bf16", "sequence_parallel=false"}) {
        YamlNode tree = parse_yaml(text + ", gather_precision: fp8" + rest, "test.yaml");
        apply_override(tree, std::string("plan.") + instead);
        CHECK_THROWS_AS(train(read_scenario(tree, "test", test::data())), ConfigError);
    }
}

TEST_CASE("an oversubscribed fabric or hashed paths are not folded") {
    for (const char* change : {"cluster.fabric.oversubscription=2", "network.paths=ecmp"}) {
        YamlNode tree = parse_yaml(kTwoStages, "test.yaml");
        apply_override(tree, change);
        CHECK(train(read_scenario(tree, "test", test::data())).folded_into_one == 1);
    }
}

TEST_CASE("every second of an iteration is booked") {
    for (const char* change : {"plan.zero=0", "plan.zero=1", "plan.overlap.data=true", "plan.pipeline=1 "}) {
        YamlNode tree = parse_yaml(kTwoStages, "test.yaml");
        std::string text = change;
        if (text.back() == ' ') {
            apply_override(tree, "plan.pipeline=1");
            apply_override(tree, "plan.data=16");
            apply_override(tree, "plan.zero=3");
        } else {
            apply_override(tree, text);
        }
        const TrainingResult r = train(read_scenario(tree, "test", test::data()));
        double sum = r.bubble_s;
        for (const double seconds : r.booked) {
            sum += seconds;
        }
        CHECK(sum == doctest::Approx(r.iteration_s).epsilon(1e-9));
    }
}

TEST_CASE(
    "model FLOPs are six times the matrix weights plus causal attention, and hardware FLOPs agree without "
    "recomputation") {
    YamlNode tree = parse_yaml(kTwoStages, "test.yaml");
    apply_override(tree, "plan.recompute=none");
    const Scenario s = read_scenario(tree, "test", test::data());
    const double h = 2048;
    const double weights = 8 * (4 * h * h + 8 * h * h) + 32000 * h;
    CHECK(s.as<TrainingKind>().model.flops_per_token() == doctest::Approx(6 * weights + 12 * 8 * h * 512));
    const TrainingResult r = train(s);
    // Flash attention recomputes scores: ten products backward instead of eight, 7/6 of the attention's share in all.
    const double attention = 12 * 8 * h * 512 * 64 * 1024;
    CHECK(r.hardware_flops == doctest::Approx(r.model_flops + attention / 6).epsilon(2e-3));
}

TEST_CASE("an iteration takes at least its work at peak rate, and more under full recomputation") {
    YamlNode tree = parse_yaml(kTwoStages, "test.yaml");
    const auto passes_alone = [&] {
        Scenario s = read_scenario(tree, "test", test::data());
        s.as<TrainingKind>().software.step_overhead.value = 0;
        return train(s);
    };
    const TrainingResult full = passes_alone();
    apply_override(tree, "plan.recompute=none");
    const TrainingResult none = passes_alone();
    CHECK(none.iteration_s > none.model_flops / 64 / 312e12);
    CHECK(full.iteration_s > 1.15 * none.iteration_s);
    CHECK(full.memory_bytes < none.memory_bytes);
}

TEST_CASE("recomputing some layers lies between none and all by as many, in time and in memory") {
    YamlNode tree = parse_yaml(kTwoStages, "test.yaml");
    const auto with = [&](const std::string& recompute) {
        apply_override(tree, recompute);
        return read_scenario(tree, "test", test::data());
    };
    const auto kept = [](const Scenario& s) {
        return memory_of(s.as<TrainingKind>().model, s.as<TrainingKind>().plan, s.as<TrainingKind>().software,
                         LayerMix{4}, false, false, 3)
            .activations;
    };
    const Scenario all = with("plan.recompute=full");
    const Scenario one = with("plan.recompute_layers=1");
    const Scenario every = with("plan.recompute_layers=4");  // of each stage
    with("plan.recompute_layers=0");
    const Scenario none = with("plan.recompute=none");
    // Three micro-batches of four layers in flight; one layer at work is held whole besides.
    const double layer = kept(none) / 12;
    const double input = 2.0 * 1024 * 2048;
    CHECK(kept(all) == doctest::Approx(12 * input + layer));
    CHECK(kept(one) == doctest::Approx(9 * layer + 3 * input + layer));
    CHECK(kept(every) == kept(all));
    const double least = train(none).iteration_s;
    const double most = train(all).iteration_s;
    CHECK(train(every).iteration_s == most);
    CHECK(train(one).iteration_s == doctest::Approx(least + (most - least) / 4).epsilon(0.01));
}

TEST_CASE("modules computed again are not kept: norms, the core, the activation function, the feed-forward") {
    YamlNode tree = parse_yaml(kTwoStages, "test.yaml");
    apply_override(tree, "plan.recompute=modules");
    const auto with = [&](const std::string& modules) {
        apply_override(tree, "plan.recompute_modules=" + modules);
        return read_scenario(tree, "test", test::data());
    };
    const auto saved = [&](const Scenario& s) {
        Scenario plain = s;
        plain.as<TrainingKind>().plan.recompute = Recompute::none;
        const auto kept = [](const Scenario& of) {
            return memory_of(of.as<TrainingKind>().model, of.as<TrainingKind>().plan, of.as<TrainingKind>().software,
                             LayerMix{4}, false, false, 3)
                .activations;
        };
        return (kept(plain) - kept(s)) / (1024 * 2048.0);  // in values of a layer's input
    };
    // A plain feed-forward of 4h on four tensor-parallel ranks: its function writes 16 bits a value, of which the layer at work has
    // one copy again.
    CHECK(saved(with("norm")) == doctest::Approx(12 * 4));
    CHECK(saved(with("attention")) == doctest::Approx(12 * 2 / 4.0));
    CHECK(saved(with("activation")) == doctest::Approx((12 - 1) * 2 * 4 / 4.0));
    CHECK(saved(with("ffn")) == doctest::Approx((12 - 1) * 4 * 4 / 4.0));
    CHECK(saved(with("norm, attention")) == doctest::Approx(12 * (4 + 2 / 4.0)));
    const double none = train([&] {
                            Scenario s = with("norm");
                            s.as<TrainingKind>().plan.recompute = Recompute::none;
                            s.as<TrainingKind>().plan.recompute_modules.clear();
                            return s;
                        }())
                            .iteration_s;
    const double norms = train(with("norm")).iteration_s;
    const double ffn = train(with("ffn")).iteration_s;
    const double full = train(read_scenario(parse_yaml(kTwoStages, "test.yaml"), "test", test::data())).iteration_s;
    CHECK(none < norms);
    CHECK(norms < ffn);
    CHECK(ffn < full);
}

TEST_CASE("what recomputation cannot do is said, with every reason at once") {
    YamlNode tree = parse_yaml(kTwoStages, "test.yaml");
    apply_override(tree, "plan.recompute=modules");
    apply_override(tree, "plan.recompute_modules=norms, ffn, activation");
    apply_override(tree, "plan.recompute_layers=2");
    try {
        (void)train(read_scenario(tree, "test", test::data()));
        FAIL("was run");
    } catch (const ConfigError& error) {
        const std::string text = error.what();
        CHECK(text.find("did you mean 'norm'?") != std::string::npos);
        CHECK(text.find("recompute_layers needs recompute: full") != std::string::npos);
        CHECK(text.find("ffn holds the activation function already") != std::string::npos);
    }
}

TEST_CASE("sends that overlap may still be waited for while a pipeline fills and drains") {
    const auto seconds = [](const char* overlap, const char* waits) {
        return train(test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 2, node: {{preset: dgx-h100, gpus: 1, nics: 1}}}}
model: {{layers: 8, hidden: 4096, heads: 32, vocabulary: 8, sequence: 2048, tied_embeddings: false}}
plan: {{pipeline: 2, micro_batch: 1, global_batch: 4, schedule: gpipe, overlap: {{pipeline: {}}}}}
software: {{preset: megatron-core-2024, launch: 0 us, pipeline_sync: false, waits_at_ends: {}}}
network: {{collectives: ideal}}
)",
                                                overlap, waits)))
            .iteration_s;
    };
    // Of four micro-batches the first stage sends three before its last forward pass, and the second three after its first backward
    // pass. The first of these goes while passes take turns. What the ends of the model add is 0.5 % of it.
    const double free = seconds("true", "false");
    CHECK((seconds("true", "true") - free) / (seconds("false", "false") - free) ==
          doctest::Approx(5.0 / 6).epsilon(0.01));
    CHECK(seconds("false", "true") == seconds("false", "false"));
}

TEST_CASE(
    "biases and split heads move so many bytes of the main memory, and those of frozen products none on the way back") {
    const auto iteration = [](const char* model, const char* software, const char* plan = ", attention: flash2") {
        Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: {{preset: dgx-a100-80g, gpus: 1}}}}
model: {{layers: 2, hidden: 4096, heads: 32, vocabulary: 1000, sequence: 2048, biases: {}}}
plan: {{micro_batch: 16, global_batch: 16{}}}
software: {{preset: megatron-core-2024, {}}}
network: {{collectives: ideal}}
)",
                                                model, plan, software));
        s.as<TrainingKind>().software.launch.value = 0;
        s.as<TrainingKind>().software.kernel_slowdown.value = 1;
        return train(s).iteration_s;
    };
    const char* const kSeparate = "fused_biases: false";
    const char* const kAdapters = ", attention: flash2, adapters: {rank: 1, modules: output, base: 16-bit}";
    const double plain = iteration("true", "fused_biases: true");
    // Tokens, values, layers.
    const double values = 16.0 * 2048 * 4096 * 2;
    const DeviceSpec a100 = test::scenario(test::kSmallTraining).cluster.node.gpu;
    const CostModel& device = test::model_cache().device(a100, ComputeKind::calibrated);
    const double per_byte = device.seconds(Streaming{16e9}).value() / 16e9;
    // Bytes a value that would take as long, as ratios: an absolute difference of milliseconds would be near anything.
    const auto bytes = [&](double longer) { return longer / (values * per_byte); };
    constexpr double kStrided = 0.48, kJoined = 0.27;  // of the memory's rate, as measured
    // Forward 12 bytes, a vector added to all rows; backward 8 and 10.
    CHECK(bytes(iteration("true", kSeparate) - plain) == doctest::Approx(12 / kStrided + 18).epsilon(0.02));
    CHECK(bytes(iteration("true", "splits_heads: true") - plain) ==
          doctest::Approx(12 / kStrided + 12 / kJoined).epsilon(0.02));
    CHECK(iteration("false", kSeparate) == plain);
    CHECK(bytes(iteration("true", kSeparate, kAdapters) - iteration("true", "fused_biases: true", kAdapters)) ==
          doctest::Approx(12 / kStrided).epsilon(0.02));
    // Unfused attention splits its heads anyway.
    CHECK(iteration("true", "splits_heads: true", ", attention: unfused") ==
          iteration("true", "splits_heads: false", ", attention: unfused"));
}

TEST_CASE("gradients are summed over micro-batches in the format in which they are exchanged") {
    const auto backward = [](const char* gradient, int micro_batches) {
        Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: {{preset: dgx-a100-80g, gpus: 1}}}}
model: {{layers: 2, hidden: 4096, heads: 32, vocabulary: 1024, sequence: 2048}}
plan: {{micro_batch: 1, global_batch: {}, gradient_precision: {}}}
software: {{preset: megatron-core-2024, kernel_slowdown: 1, launch: 0 us}}
)",
                                                micro_batches, gradient));
        return train(s).booked[static_cast<std::size_t>(Category::backward)];
    };
    const double weights = 2 * 12 * 4096.0 * 4096 + 1024 * 4096;
    const DeviceSpec a100 = test::scenario(test::kSmallTraining).cluster.node.gpu;
    const double second = weights * kSumsBesideProduct / (a100.memory_bandwidth.value * a100.memory_efficiency.value);
    // 4 bytes read and written instead of 2 written, or 2 read as well; one micro-batch alone writes what it makes.
    CHECK((backward("fp32", 4) - backward("fp16", 4)) / second == doctest::Approx(4 * (6 - 2)).epsilon(1e-3));
    CHECK((backward("fp16", 4) - 4 * backward("fp16", 1)) / second == doctest::Approx(4 * 2).epsilon(1e-3));
}

TEST_CASE("overlap never makes an iteration slower; more bandwidth neither") {
    YamlNode tree = parse_yaml(kTwoStages, "test.yaml");
    const double base = train(read_scenario(tree, "test", test::data())).iteration_s;
    for (const char* change : {"plan.overlap.tensor=backward", "plan.overlap.tensor=full", "plan.overlap.pipeline=true",
                               "plan.overlap.data=true", "cluster.fabric.link=400 Gbps"}) {
        YamlNode changed = tree;
        apply_override(changed, change);
        CHECK_MESSAGE(train(read_scenario(changed, "test", test::data())).iteration_s <= base * (1 + 1e-9), change);
    }
}

TEST_CASE("activation memory follows Korthikanti et al., equations 1 to 5") {
    ModelSpec model;
    model.layers = 1;
    model.hidden = 6144;
    model.heads = 64;
    model.vocabulary = 1;
    model.sequence = 2048;
    model.dropout = true;
    complete(model);
    PlanSpec plan;
    plan.micro_batch = 4;
    plan.global_batch = 4;
    plan.tensor = 8;
    plan.attention = AttentionKernel::unfused;
    const double sbh = 2048.0 * 4 * 6144;
    const double scores = 5.0 * 64 * 2048 / 6144;
    const auto activations = [&] {
        return memory_of(model, plan, SoftwareSpec{}, LayerMix{1}, true, false, 1).activations / sbh;
    };
    CHECK(activations() == doctest::Approx(10 + 24 / 8.0 + scores / 8));
    plan.sequence_parallel = true;
    CHECK(activations() == doctest::Approx((34 + scores) / 8));
    plan.recompute = Recompute::selective;
    CHECK(activations() == doctest::Approx(34 / 8.0));
    plan.sequence_parallel = false;
    plan.recompute = Recompute::full;
    CHECK(activations() == doctest::Approx(2 + 10 + 24 / 8.0 + scores / 8));
}

TEST_CASE("ZeRO stages shard what they say") {
    ModelSpec model;
    model.layers = 10;
    model.hidden = 4096;
    model.heads = 32;
    model.vocabulary = 50000;
    complete(model);
    PlanSpec plan;
    plan.data = 8;
    plan.global_batch = 8;
    MemoryUse use[4];
    for (std::int64_t zero = 0; zero < 4; ++zero) {
        plan.zero = zero;
        use[zero] = memory_of(model, plan, SoftwareSpec{}, LayerMix{10}, true, true, 1);
    }
    const double n = model.parameters();
    CHECK(use[0].weights == doctest::Approx(2 * n));
    CHECK(use[0].optimizer == doctest::Approx(12 * n));
    CHECK(use[1].optimizer == doctest::Approx(12 * n / 8));
    CHECK(use[1].gradients == doctest::Approx(2 * n));
    CHECK(use[2].gradients == doctest::Approx(2 * n / 8));
    CHECK(use[3].weights == doctest::Approx(2 * n / 8));
}
