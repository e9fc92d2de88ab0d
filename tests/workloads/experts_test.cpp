// Mixtures of experts in training: bytes of each dispatch, memory of each sharding, folding, and limits that are dense.

#include "workloads/training/plan/experts.hpp"
#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/driver/kinds/training_input.hpp"
#include "workloads/training/memory/memory.hpp"
#include "workloads/training/passes/pass_cost.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

using test::train;

constexpr const char* kModel =
    "{layers: 4, hidden: 1024, heads: 8, ffn: 4096, gated: true, vocabulary: 1024, sequence: 1024, tied_embeddings: "
    "false, "
    "experts: {count: 16, topk: 2, ffn: 1024}}";

// Four nodes of eight GPUs, each with a NIC of its own.
Scenario with_plan(const std::string& plan, const std::string& model = kModel, int nodes = 4,
                   const std::string& rest = "") {
    Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: {}, node: dgx-h100, fabric: {{nodes_per_leaf: 4, rails: 8}}}}
model: {}
plan: {{{}}}
{}
)",
                                            nodes, model, plan, rest));
    if (rest.find("launch") == std::string::npos) {
        s.as<TrainingKind>().software.launch.value = 1e-6;  // no kernel waits for its host
    }
    return s;
}

ExpertExchange::Sent sent(const Scenario& s, double tokens) {
    const auto& training = s.as<TrainingKind>();
    const Fabric fabric(shape_of(s.cluster, s.cluster_mark));
    const IdealCollectives ideal;
    return ExpertExchange(training.model, training.plan, ideal, RankGroups(training.plan, fabric, PathChoice::spray))
        .bytes_sent(tokens, training.plan.experts.dispatch_precision);
}

double exchange_seconds(const Scenario& s, double tokens) {
    const auto& training = s.as<TrainingKind>();
    const Fabric fabric(shape_of(s.cluster, s.cluster_mark));
    const IdealCollectives ideal;
    return ExpertExchange(training.model, training.plan, ideal, RankGroups(training.plan, fabric, PathChoice::spray))
        .dispatch(tokens, training.plan.experts.dispatch_precision);
}

std::string refusal_of(const std::string& plan, const std::string& model = kModel) {
    try {
        (void)train(with_plan(plan, model));
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

double booked(const TrainingResult& result, Category category) {
    return result.booked[static_cast<std::size_t>(category)];
}

}  // namespace

TEST_CASE(
    "experts: all-to-all sends each token once a choice, all-gather each to all, hierarchical once a node and GPU") {
    const double token = 1024 * 2;  // B
    const double tokens = 1000;
    const std::string plan = "data: 32, global_batch: 32, expert: 16, dispatch: ";
    // 15 of 16 choices are those of other ranks.
    const auto flat = sent(with_plan(plan + "all-to-all"), tokens);
    CHECK(flat.across == doctest::Approx(tokens * token * 2 * 15 / 16));
    CHECK(flat.inside == 0);
    const auto gathered = sent(with_plan(plan + "all-gather"), tokens);
    CHECK(gathered.across == doctest::Approx(tokens * token * 15));
    // Two nodes of eight ranks with an expert each: two choices without repetition are on one node with 7 of 15, so on
    // 2 - 7 / 15 nodes, half of which are others; on two GPUs, 7 of 8 of them not the one where they arrive.
    const auto steps = sent(with_plan(plan + "hierarchical"), tokens);
    CHECK(steps.across == doctest::Approx(tokens * token * (2 - 7.0 / 15) / 2));
    CHECK(steps.inside == doctest::Approx(tokens * token * 2 * 7 / 8));
    // In 8 bits it is half of it, with a scale of 32 bits for 128 values.
    CHECK(sent(with_plan(plan + "all-to-all, dispatch_precision: fp8"), tokens).across ==
          doctest::Approx(flat.across / 2 * (1 + 4.0 / 128)));
    // The slower of NICs and NVLink decides, where the flat exchange takes all its bytes between nodes over the NIC.
    const double nic = 400e9 / 8;
    const double hops = 1e-3;
    CHECK(exchange_seconds(with_plan(plan + "hierarchical"), 1e6) ==
          doctest::Approx(1e6 * token * (2 - 7.0 / 15) / 2 / nic).epsilon(hops));
    CHECK(exchange_seconds(with_plan(plan + "all-to-all"), 1e6) ==
          doctest::Approx(1e6 * token * 2 * 8 / 16 / nic).epsilon(hops));
}

TEST_CASE("experts: what comes back takes the bytes of its own precision") {
    const auto seconds = [](const std::string& precision, bool back) {
        const Scenario s = with_plan("data: 32, global_batch: 32, expert: 16, combine_precision: " + precision);
        const Fabric fabric(shape_of(s.cluster, s.cluster_mark));
        const IdealCollectives ideal;
        const auto& training = s.as<TrainingKind>();
        const ExpertExchange exchange(training.model, training.plan, ideal,
                                      RankGroups(training.plan, fabric, PathChoice::spray));
        return back ? exchange.combine(1e6, s.as<TrainingKind>().plan.experts.combine_precision)
                    : exchange.dispatch(1e6, s.as<TrainingKind>().plan.experts.dispatch_precision);
    };
    CHECK(seconds("fp8", true) == doctest::Approx(seconds("bf16", true) * (1 + 4.0 / 128) / 2).epsilon(1e-3));
    CHECK(seconds("fp8", false) == seconds("bf16", false));
    // Forward passes alone: gradients go both ways in 16 bits.
    const auto communication = [](const std::string& precision) {
        return booked(train(with_plan("data: 32, global_batch: 32, expert: 16, combine_precision: " + precision)),
                      Category::expert_communication);
    };
    CHECK(communication("fp8") < communication("bf16"));
    CHECK(communication("fp8") > 0.8 * communication("bf16"));
}

TEST_CASE("experts: a router that is limited to groups reaches fewer nodes") {
    ExpertsSpec experts;
    experts.count = 256;
    experts.topk = 8;
    // 8 of 256 without repetition over 8 holders of 32: 8 (1 - C(224, 8) / C(256, 8)).
    double missed = 1;
    for (int i = 0; i < 8; ++i) {
        missed *= (224.0 - i) / (256.0 - i);
    }
    CHECK(holders_reached(experts, 8) == doctest::Approx(8 * (1 - missed)));
    experts.groups = 8;
    experts.group_topk = 4;
    CHECK(holders_reached(experts, 8) < 4);
    CHECK(holders_reached(experts, 8) > 3.5);
    CHECK(holders_reached(experts, 1) == doctest::Approx(1));
}

TEST_CASE("experts: loads by a law or a list, capacity, and padding decide the rows of the busiest rank") {
    const auto load = [](const std::string& keys) {
        const Scenario s = with_plan("data: 32, global_batch: 32, expert: 16" + keys);
        return load_of(s.as<TrainingKind>().model.experts, s.as<TrainingKind>().plan);
    };
    CHECK(load("").hottest == 1);
    CHECK(load("").kept == 1);
    // Zipf with exponent 1 over 16 experts: the first has 1 / H(16) of all choices.
    double harmonic = 0;
    for (int i = 1; i <= 16; ++i) {
        harmonic += 1.0 / i;
    }
    CHECK(load(", router_exponent: 1").hottest == doctest::Approx(16 / harmonic));
    CHECK(load(", router_exponent: 1").kept == doctest::Approx(1));
    CHECK(load(", router_exponent: 1, capacity: 1.5").hottest == doctest::Approx(1.5));
    CHECK(load(", router_exponent: 1, capacity: 1.5").kept < 1);
    CHECK(load(", capacity: 1.25, pad: true").hottest == 1.25);
    CHECK(load(", capacity: 1.25").hottest == 1);
    std::string loads = ", router_loads: [{load: 3}";
    for (int i = 1; i < 16; ++i) {
        loads += ", {load: 1}";
    }
    CHECK(load(loads + "]").hottest == doctest::Approx(3.0 * 16 / 18));
    const auto seconds = [](const std::string& keys) {
        return train(with_plan("data: 32, global_batch: 32, expert: 16" + keys)).iteration_s;
    };
    CHECK(seconds(", router_exponent: 1") > seconds(""));
    CHECK(seconds(", capacity: 2, pad: true") > seconds(", capacity: 1, pad: true"));
}

TEST_CASE(
    "experts: weights are divided by their own mapping and optimizer states over the ranks with the same experts") {
    const auto use = [](const std::string& plan) {
        const Scenario s = with_plan(plan);
        return memory_by_stage(s.as<TrainingKind>().model, s.as<TrainingKind>().plan, s.as<TrainingKind>().software)[0];
    };
    const Scenario any = with_plan("data: 32, global_batch: 32");
    const double routed = 4 * any.as<TrainingKind>().model.routed_parameters();
    const double beside = any.as<TrainingKind>().model.parameters() - routed;
    CHECK(routed == 4 * 16 * 3 * 1024.0 * 1024);
    const MemoryUse whole = use("data: 32, global_batch: 32");
    CHECK(whole.weights == doctest::Approx(2 * (beside + routed)));
    const MemoryUse spread = use("data: 32, global_batch: 32, expert: 16");
    CHECK(spread.weights == doctest::Approx(2 * (beside + routed / 16)));
    CHECK(spread.optimizer == doctest::Approx(12 * (beside + routed / 16)));
    const MemoryUse zero = use("data: 32, global_batch: 32, expert: 16, zero: 1");
    CHECK(zero.optimizer == doctest::Approx(12 * (beside / 32 + routed / 16 / 2)));
    // Attention over 4 ranks, experts over 2 x 16: none holds the same experts.
    const MemoryUse folded =
        use("tensor: 4, data: 8, sequence_parallel: true, global_batch: 32, expert: 16, expert_tensor: 2, "
            "zero: 1");
    CHECK(folded.weights == doctest::Approx(2 * (beside / 4 + routed / 32)));
    CHECK(folded.optimizer == doctest::Approx(12 * (beside / 4 / 8 + routed / 32)));
    // Experts that are recomputed keep nothing.
    const MemoryUse again = use("data: 32, global_batch: 32, expert: 16, recompute: experts");
    CHECK(again.activations < spread.activations);
}

TEST_CASE("experts: one expert that sees every token is the dense layer of its width and a router") {
    const std::string dense =
        "{layers: 4, hidden: 1024, heads: 8, ffn: 4096, gated: true, vocabulary: 1024, sequence: 1024, "
        "tied_embeddings: false";
    const std::string plan = "data: 32, global_batch: 64";
    const Scenario plain = with_plan(plan, dense + "}");
    const Scenario one = with_plan(plan, dense + ", experts: {count: 1, topk: 1, ffn: 4096}}");
    const TrainingResult a = train(plain);
    const TrainingResult b = train(one);
    // What is left is moving rows into and out of their order: kernels that the dense layer has none of.
    CHECK(booked(b, Category::expert_communication) == 0);
    CHECK(b.iteration_s > a.iteration_s);
    const double router = 6 * 4 * 1024.0;  // FLOPs of a token
    CHECK(one.as<TrainingKind>().model.flops_per_token() ==
          doctest::Approx(plain.as<TrainingKind>().model.flops_per_token() + router));
    CHECK(b.hardware_flops == doctest::Approx(a.hardware_flops + router * 64 * 1024).epsilon(1e-9));
    const auto products = [](const Scenario& s) {
        const Fabric fabric(shape_of(s.cluster, s.cluster_mark));
        const TrainingInput in = training_input(s, test::model_cache(), fabric, Placement(fabric));
        const PassCost cost(in.model, in.plan, in.software, in.device, in.gpu, in.fabric, in.collectives, in.paths);
        double seconds = 0;
        for (const PassOperation& op : cost.forward_program(in.model.kind_of(0)).operations()) {
            const std::string name = op.name;
            seconds += name.starts_with("product") || name.starts_with("activation") ? op.seconds : 0;
        }
        return seconds;
    };
    CHECK(products(one) == doctest::Approx(products(plain)).epsilon(1e-9));
}

TEST_CASE("experts: a folded run gives the same times as one of every rank") {
    for (const char* plan :
         {"tensor: 2, data: 16, sequence_parallel: true, zero: 1, global_batch: 64, expert: 16, expert_tensor: 1, "
          "overlap: {data: true, parameters: true}",
          "pipeline: 2, data: 16, global_batch: 64, expert: 4, expert_tensor: 1, zero: 1",
          "data: 32, zero: 3, global_batch: 32, expert: 8, expert_tensor: 1, overlap: {data: true}"}) {
        Scenario s = with_plan(plan);
        const TrainingResult folded = train(s);
        s.network.fold = false;
        const TrainingResult each = train(s);
        CHECK_MESSAGE(folded.iteration_s == doctest::Approx(each.iteration_s).epsilon(1e-9), plan);
        CHECK(each.folded_into_one == 1);
    }
}

TEST_CASE("experts: exchanges wait, hide behind shared experts, or behind another micro-batch") {
    const std::string shared =
        "{layers: 4, hidden: 1024, heads: 8, ffn: 4096, gated: true, vocabulary: 1024, sequence: 4096, "
        "tied_embeddings: false, "
        "experts: {count: 16, topk: 2, ffn: 1024, shared: 4096}}";
    const auto run_with = [&](const std::string& overlap) {
        return train(with_plan(
            "data: 32, global_batch: 640, expert: 16, expert_tensor: 1, overlap: {experts: " + overlap + "}", shared));
    };
    const TrainingResult none = run_with("none");
    const TrainingResult beside = run_with("shared");
    const TrainingResult batches = run_with("batches");
    CHECK(booked(none, Category::expert_communication) > 0);
    CHECK(booked(beside, Category::expert_communication) < booked(none, Category::expert_communication));
    CHECK(booked(batches, Category::expert_communication) < booked(beside, Category::expert_communication));
    CHECK(none.exposed_communication_s >= booked(none, Category::expert_communication));
}

TEST_CASE("experts: gradients of experts travel among the ranks that hold the same ones alone") {
    // All ranks hold different experts: what is reduced is what lies beside them.
    const auto moved = [](const std::string& plan) {
        return booked(train(with_plan(plan)), Category::data_communication);
    };
    CHECK(moved("data: 32, global_batch: 32, expert: 16, expert_tensor: 2") <
          moved("data: 32, global_batch: 32, expert: 16, expert_tensor: 1"));
    CHECK(moved("data: 32, global_batch: 32, expert: 16, expert_tensor: 1") <
          moved("data: 32, global_batch: 32, expert: 1, expert_tensor: 1"));
}

TEST_CASE("experts: a plan that cannot be says all that is wrong with it at once") {
    const std::string text = refusal_of("data: 32, global_batch: 32, expert: 5, expert_tensor: 3");
    CHECK(text.find("expert 5 must divide the 16 experts") != std::string::npos);
    CHECK(text.find("expert 5 x expert_tensor 3 must divide the 32 ranks of a stage") != std::string::npos);
    CHECK(text.find("expert_tensor 3 must divide the width 1024 of an expert") != std::string::npos);
    CHECK(refusal_of("tensor: 2, data: 16, global_batch: 32").find("need sequence_parallel: true") !=
          std::string::npos);
    CHECK(refusal_of("data: 32, global_batch: 32, pad: true").find("pad needs a capacity") != std::string::npos);
    CHECK(refusal_of("data: 32, global_batch: 32, router_loads: [{load: 1}]").find("1 entries for 16 experts") !=
          std::string::npos);
    CHECK(refusal_of("data: 32, global_batch: 32, expert: 2",
                     "{layers: 4, hidden: 1024, heads: 8, vocabulary: 1024, sequence: 1024}")
              .find("'plan.expert' has no effect without a model with experts") != std::string::npos);
    CHECK(refusal_of("data: 32, global_batch: 32, overlap: {experts: shared}").find("needs shared experts") !=
          std::string::npos);
}

TEST_CASE("layers of a model differ by experts and windows, and a stage runs those it holds") {
    ModelSpec model;
    model.layers = 12;
    model.window = 128;
    model.full_every = 2;
    model.experts = {.count = 8, .topk = 2, .ffn = 64, .dense_layers = 3, .every = 2};
    CHECK(model.expert_layers() == 5);  // layers 3, 5, 7, 9, 11
    CHECK(model.windowed_layers() == 6);
    CHECK(model.layers_of({true, false}, 0, 12) == 5);
    CHECK(model.layers_of({false, true}, 0, 12) == 6);
    CHECK(model.layers_of({true, true}, 0, 12) == 0);
    CHECK(mix_of(model, 0, 4).experts == 1);
    // Latent attention of DeepSeek-V3: 37 billion active weights; FLOPs of its scores are those of 192 and 128 wide heads.
    const Scenario s =
        with_plan("data: 32, global_batch: 32, expert: 32, expert_tensor: 1, precision: bf16", "deepseek-v3");
    const double scores = 61 * 6 * 128.0 * (192 + 128) * 2048;
    CHECK(s.as<TrainingKind>().model.flops_per_token() - scores == doctest::Approx(6 * 37e9).epsilon(0.02));
    // Fused attention computes its scores anew in its backward pass: 14 products of that size and not 12.
    CHECK(train(s).hardware_flops ==
          doctest::Approx(32 * 4096 * (s.as<TrainingKind>().model.flops_per_token() + scores / 6)).epsilon(0.001));
}

TEST_CASE("experts: the device waits once per forward pass of a layer whose sizes the host does not know") {
    const auto waited = [](const std::string& plan, const std::string& software) {
        const auto iteration = [&](const char* wait) {
            return train(with_plan("data: 32, global_batch: 64, expert: 16" + plan, kModel, 4,
                                   fmt::format("software: {{preset: megatron-core-2024, expert_wait: {}{}}}", wait,
                                               software)))
                .iteration_s;
        };
        return iteration("3 ms") - iteration("1 ms");
    };
    const double once = 4 * 2 * 2e-3;  // layers, micro-batches, s
    CHECK(waited("", "") == doctest::Approx(once));
    CHECK(waited(", dispatch: hierarchical", "") == doctest::Approx(once));
    CHECK(waited(", capacity: 2", "") == doctest::Approx(once));
    CHECK(waited(", recompute: full", "") == doctest::Approx(2 * once));
    CHECK(waited(", recompute: experts", "") == doctest::Approx(2 * once));
    // Of known sizes, or where graphs of an iteration leave the host nothing to launch. Beside graphs of layers it waits 1.5 ms at most.
    CHECK(waited(", capacity: 2, pad: true", "") == 0);
    CHECK(waited("", ", graphs: layers") == doctest::Approx(4 * 2 * 0.5e-3));
    CHECK(waited("", ", graphs: iteration") == 0);
}

TEST_CASE("experts: a library of dispatch waits and starts as it does, in every exchange of every layer") {
    const auto iteration = [](const std::string& plan) {
        return train(with_plan("data: 32, global_batch: 64, expert: 16" + plan, kModel, 4,
                               "software: {preset: megatron-core-2024, expert_wait: 4 ms}"))
            .iteration_s;
    };
    const double passes = 4 * 2;  // layers, micro-batches
    const double plain = iteration("");
    CHECK(iteration(", dispatcher: {library: nccl}") == plain);
    CHECK(iteration(", dispatcher: {wait: 5 ms}") - plain == doctest::Approx(passes * 1e-3));
    // A dispatch and a combine, forward and backward.
    CHECK(iteration(", dispatcher: {start: 1 ms}") - plain == doctest::Approx(passes * 4 * 1e-3));
    CHECK(iteration(", dispatcher: {library: hybridep}") < plain);
    CHECK(iteration(", dispatcher: {library: proxy}") > plain);
    CHECK(iteration(", dispatcher: {library: uccl}") - plain == doctest::Approx(passes * 4 * 1.682e-3));
    // A message of 0.488 us for each token and other node bounds the few bytes of these layers; GIN reaches less of the rate.
    const std::string steps = ", dispatch: hierarchical";
    const double whole = iteration(steps + ", dispatcher: {library: deepep}");
    const double messages = 1024 * (2 - 7.0 / 15) / 2;
    const double slow = iteration(steps + ", dispatcher: {library: nvshmem}") - whole;
    CHECK(slow < passes * 4 * messages * 0.488e-6);
    CHECK(slow > passes * 4 * messages * 0.35e-6);
    CHECK(iteration(steps + ", dispatcher: {library: gin}") > whole + passes * 4 * 0.1e-3);
    CHECK(refusal_of("data: 32, global_batch: 32, expert: 16, dispatcher: {library: nvshmem}")
              .find("set dispatch: hierarchical") != std::string::npos);
    CHECK(refusal_of("data: 32, global_batch: 32, dispatcher: {library: nccl}",
                     "{layers: 4, hidden: 1024, heads: 8, vocabulary: 1024, sequence: 1024}")
              .find("dispatcher needs a model with experts") != std::string::npos);
}

TEST_CASE("experts: a dispatch that blocks the host shows beside another micro-batch, in forward passes alone") {
    const auto shown = [](const std::string& library) {
        return booked(train(with_plan("pipeline: 2, data: 16, expert: 16, expert_tensor: 1, global_batch: 512, "
                                      "overlap: {experts: batches}, dispatcher: {library: " +
                                      library + "}")),
                      Category::expert_communication);
    };
    const double hidden = shown("nccl");
    const double blocked = shown("deepep");
    CHECK(blocked > 1.5 * hidden);
}

TEST_CASE("experts: exchanges show in the passes of a pipeline that have no other micro-batch beside them") {
    const auto shown = [](const std::string& batch, const std::string& overlap) {
        const TrainingResult run =
            train(with_plan("pipeline: 2, data: 16, expert: 16, expert_tensor: 1, global_batch: " + batch +
                            ", overlap: {experts: " + overlap + "}"));
        return booked(run, Category::expert_communication);
    };
    // Of 2 micro-batches on 2 stages (1/2 + 1) / 2 have none, of 32 a sixteenth of that.
    CHECK(shown("32", "batches") / shown("32", "none") > 0.7);
    CHECK(shown("512", "batches") / shown("512", "none") < shown("32", "batches") / shown("32", "none"));
}

TEST_CASE("CUDA graphs of layers leave exchanges and products of experts to the host, those of iterations nothing") {
    const auto iteration = [](const std::string& software, const std::string& model) {
        return train(with_plan("data: 32, global_batch: 64" +
                                   std::string(model.find("experts") == std::string::npos ? "" : ", expert: 16"),
                               model, 4, "software: {preset: megatron-core-2024, expert_wait: 0 s, " + software + "}"))
            .iteration_s;
    };
    const double free = iteration("step_overhead: 0 s, launch: 0 s", kModel);
    const double eager = iteration("step_overhead: 0 s, launch: 1 ms", kModel);
    const double layers = iteration("step_overhead: 0 s, launch: 1 ms, graphs: layers", kModel);
    CHECK(free < layers);
    CHECK(layers < eager);
    // But for the kernels of the optimizer.
    const double passes = iteration("launch: 1 ms, graphs: iteration", kModel);
    CHECK(passes >= free);
    CHECK(passes <= free + 8e-3);
    // Without experts all kernels of the layers are in their graphs; the tables at both ends are launched.
    const std::string dense =
        "{layers: 4, hidden: 1024, heads: 8, ffn: 4096, vocabulary: 1024, sequence: 1024, tied_embeddings: false}";
    const std::string twice =
        "{layers: 8, hidden: 1024, heads: 8, ffn: 4096, vocabulary: 1024, sequence: 1024, tied_embeddings: false}";
    const auto by_layer = [&](const std::string& software) {
        return iteration("step_overhead: 0 s, " + software, twice) -
               iteration("step_overhead: 0 s, " + software, dense);
    };
    CHECK(by_layer("launch: 1 ms") > 10 * by_layer("launch: 0 s"));
    CHECK(by_layer("launch: 1 ms, graphs: layers") < 2 * by_layer("launch: 0 s"));
}
