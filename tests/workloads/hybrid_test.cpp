// Hybrids: weights, FLOPs, kernels and memory of models whose layers are state spaces, feed-forwards or attention.

#include "tests/support/passes.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/kinds/training.hpp"
#include "workloads/model/attention_form.hpp"
#include "workloads/serving/cost/step_cost.hpp"
#include "workloads/training/memory/memory.hpp"
#include "workloads/training/passes/pass_cost.hpp"
#include "workloads/training/plan/state_space.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>

using namespace orrery;

namespace {

using test::train;

constexpr const char* kModel =
    "{layers: 5, hidden: 1024, heads: 8, ffn: 4096, vocabulary: 1024, sequence: 2048, tied_embeddings: false, "
    "pattern: M-M*-, state_space: {heads: 32, head_dim: 64, state: 128, groups: 4, chunk: 128}}";
constexpr const char* kPlan = "data: 8, global_batch: 16";

std::string text_with(const std::string& plan, const std::string& model = kModel) {
    return fmt::format(R"(orrery: 1
kind: training
cluster: {{nodes: 1, node: dgx-h100}}
model: {}
plan: {{{}}}
software: {{preset: megatron-core-2024, launch: 1 us}}
)",
                       model, plan);
}

Scenario with_plan(const std::string& plan, const std::string& model = kModel) {
    return test::scenario(text_with(plan, model));
}

std::string infeasible(const std::string& plan, const std::string& model = kModel) {
    try {
        (void)train(with_plan(plan, model));
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

constexpr LayerKind kScan{false, false, LayerPart::state_space};
constexpr LayerKind kFeed{false, false, LayerPart::feed_forward};
constexpr LayerKind kAttend{false, false, LayerPart::attention};

}  // namespace

TEST_CASE("hybrid: what scans reach is refused for a model that has none") {
    const std::string plain =
        "orrery: 1\nkind: training\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-3-8b\n"
        "plan: {tensor: 8, global_batch: 8}\nsoftware: {preset: megatron-core-2024, scan_efficiency: 50 %}\n";
    CHECK(test::refusal(plain).find("'software.scan_efficiency' has no effect") != std::string::npos);
}

TEST_CASE("hybrid: presets have the published numbers of parameters and the recipe's FLOPs") {
    const ModelSpec small = with_plan(kPlan, "nemotron-h-8b").as<TrainingKind>().model;
    const ModelSpec large = with_plan(kPlan, "nemotron-h-56b").as<TrainingKind>().model;
    CHECK(small.parameters() == doctest::Approx(8'100'852'736.0).epsilon(0.0002));
    CHECK(large.parameters() == doctest::Approx(56e9).epsilon(0.01));
    CHECK(large.layers_with(LayerPart::state_space) == 54);
    CHECK(large.layers_with(LayerPart::feed_forward) == 54);
    CHECK(large.layers_with(LayerPart::attention) == 10);
    // NVIDIA/dgxc-benchmarking, nemotronh/README.md: 2.816e15 FLOPs a sequence, where causality halves nothing and keys and values
    // are one product of the width of keys.
    const double attended = 12.0 * 10 * 8192 * 4096;
    const double inside = 3.0 * 54 * (16384 * 256 + 8 * 256 * 256);
    const double keys = 6.0 * 10 * 8192 * 1024;
    CHECK(8192 * (large.flops_per_token() + attended + inside - keys) == doctest::Approx(2.816e15).epsilon(0.002));
}

TEST_CASE("hybrid: weights and FLOPs of layers are closed forms") {
    const ModelSpec m = with_plan(kPlan).as<TrainingKind>().model;
    const double h = 1024;
    const double inner = 32 * 64;
    const double shared = 2 * 4 * 128;
    const double matrices = h * (2 * inner + shared + 32) + inner * h;
    CHECK(m.matrices_of(LayerPart::state_space) == matrices);
    CHECK(m.parameters_of(LayerPart::state_space) == matrices + (inner + shared) * 5 + 3 * 32 + inner + 2 * h);
    CHECK(m.parameters_of(LayerPart::feed_forward) == 2 * h * 4096 + 2 * h);
    CHECK(m.parameters_of(LayerPart::attention) == 4 * h * h + 2 * h);
    // A layer of both is the sum of one of each.
    ModelSpec whole = m;
    whole.pattern.clear();
    CHECK(whole.layer_parameters() == m.parameters_of(LayerPart::attention) + m.parameters_of(LayerPart::feed_forward));
    const double scan = 4 * inner * 128 + inner * 128 + 4.0 * 128 * 128;
    const double weights = 2 * matrices + 2 * 2 * h * 4096 + 4 * h * h + 1024 * h;
    CHECK(m.flops_per_token() == doctest::Approx(6 * weights + 3 * 2 * scan + 12 * h * 1024));
    CHECK(m.parameters() == 2 * m.parameters_of(LayerPart::state_space) + 2 * m.parameters_of(LayerPart::feed_forward) +
                                m.parameters_of(LayerPart::attention) + 2 * 1024 * h);
    const LayerMix mix = mix_of(m, 1, 3);
    CHECK(mix.feed_forward == 1);
    CHECK(mix.state_space == 1);
    CHECK(mix.attention == 1);
    CHECK(mix.total() == 3);
    CHECK(weights_of(m, with_plan(kPlan).as<TrainingKind>().plan, mix_of(m, 0, 5), 2).total() == m.parameters());
    for (std::size_t i = 0; i < LayerKind::kCount; ++i) {
        CHECK(LayerKind::at(i).index() == i);
    }
}

TEST_CASE("hybrid: a pattern of attention and feed-forwards in turn costs as whole layers do") {
    const std::string rest = "hidden: 1024, heads: 8, ffn: 4096, vocabulary: 1024, sequence: 2048";
    for (const char* plan :
         {"data: 8, global_batch: 16", "tensor: 2, data: 4, global_batch: 16, sequence_parallel: true",
          "data: 8, global_batch: 16, recompute: full",
          "data: 8, global_batch: 16, zero: 1, recompute: modules, recompute_modules: 'norm, ffn'"}) {
        const Scenario whole = with_plan(plan, "{layers: 3, " + rest + "}");
        const Scenario parts = with_plan(plan, "{layers: 6, pattern: '*-*-*-', " + rest + "}");
        const auto& training = parts.as<TrainingKind>();
        const TrainingResult a = train(whole);
        const TrainingResult b = train(parts);
        CHECK_MESSAGE(b.iteration_s == doctest::Approx(a.iteration_s).epsilon(1e-9), plan);
        CHECK(b.hardware_flops == doctest::Approx(a.hardware_flops));
        CHECK(training.model.parameters() == whole.as<TrainingKind>().model.parameters());
        CHECK(training.model.flops_per_token() == doctest::Approx(whole.as<TrainingKind>().model.flops_per_token()));
        if (whole.as<TrainingKind>().plan.recompute !=
            Recompute::full) {  // which keeps the inputs of twice as many layers
            CHECK(memory_by_stage(training.model, training.plan, training.software)[0].activations ==
                  doctest::Approx(memory_by_stage(whole.as<TrainingKind>().model, whole.as<TrainingKind>().plan,
                                                  whole.as<TrainingKind>().software)[0]
                                      .activations));
        }
    }
}

TEST_CASE("hybrid: a pass of a state-space layer is the sum of its kernels and collectives") {
    for (const char* plan : {kPlan, "tensor: 4, data: 2, global_batch: 16, sequence_parallel: true"}) {
        test::priced(with_plan(plan), [&](const PassCost& cost) {
            for (const bool backward : {false, true}) {
                const PassProgram& program = backward ? cost.backward_program(kScan) : cost.forward_program(kScan);
                double sum = 0;
                std::map<std::string, int> names;
                for (const PassOperation& operation : program.operations()) {
                    sum += operation.seconds;
                    ++names[operation.name];
                }
                CHECK(program.price().total() == doctest::Approx(sum));
                CHECK(names["causal convolution"] == (backward ? 2 : 1));  // again, and its gradients
                CHECK(names["states of chunks"] == 1);
                CHECK(names["passing of states"] == (backward ? 2 : 1));
                CHECK(names["norm after the scan"] == 1);
                CHECK(names["attention"] == 0);
            }
            return 0;
        });
    }
}

TEST_CASE("hybrid: FLOPs of a state-space layer are those of its products") {
    const double tokens = 2048;
    const double inner = 32 * 64;
    const double q = 128;
    const double n = 128;
    const double products = 2 * tokens * with_plan(kPlan).as<TrainingKind>().model.matrices_of(LayerPart::state_space);
    const double states = 2 * tokens * inner * n;  // into or out of them
    const double inside = tokens * inner * q;      // of which causality leaves half
    const double scores = 2 * tokens * 4 * n * q;  // whole chunks are computed
    test::priced(with_plan(kPlan), [&](const PassCost& cost) {
        CHECK(cost.layer_forward(kScan).flops == doctest::Approx(products + 2 * states + scores + inside));
        // Gradients of states, inputs and what writes and reads states; of inputs, scores and decays inside; of scores for both; and what
        // is computed again.
        CHECK(cost.layer_backward(kScan).flops ==
              doctest::Approx(2 * products + 4 * states + 3 * inside + 2 * scores + (states + scores)));
        CHECK(cost.layer_forward(kFeed).flops == doctest::Approx(2 * tokens * 2 * 1024.0 * 4096));
        return 0;
    });
}

TEST_CASE("hybrid: tensor-parallel ranks halve the kernels and sum as attention's do") {
    const auto of = [](const std::string& plan, LayerKind kind) {
        return test::priced(with_plan(plan), [&](const PassCost& cost) { return cost.layer_forward(kind); });
    };
    const Price one = of("data: 8, global_batch: 16", kScan);
    const Price two = of("tensor: 2, data: 4, global_batch: 16, sequence_parallel: true", kScan);
    CHECK(two.flops == doctest::Approx(one.flops / 2));
    CHECK(two[Category::forward] < one[Category::forward]);
    const Price attention = of("tensor: 2, data: 4, global_batch: 16, sequence_parallel: true", kAttend);
    CHECK(two[Category::tensor_communication] == doctest::Approx(attention[Category::tensor_communication]));
    CHECK(one[Category::tensor_communication] == 0);
}

TEST_CASE("hybrid: the scan stays in 16 bits where products are in 8") {
    const auto kernels = [](const std::string& plan) {
        return test::priced(with_plan(plan, "nemotron-h-8b"), [](const PassCost& cost) {
            std::map<std::string, double> out;
            for (const PassOperation& operation : cost.forward_program(kScan).operations()) {
                out[operation.name] += operation.seconds;
            }
            return out;
        });
    };
    auto wide = kernels("data: 8, global_batch: 16");
    auto narrow = kernels("data: 8, global_batch: 16, precision: fp8");
    for (const char* name : {"causal convolution", "states of chunks", "scan inside chunks", "norm after the scan"}) {
        CHECK_MESSAGE(narrow[name] == wide[name], name);
    }
    CHECK(narrow["product, in"] < 0.8 * wide["product, in"]);
}

TEST_CASE("hybrid: kernels of the scan reach a share of the vector units' rate, mamba_ssm's where none is given") {
    Scenario s = with_plan(kPlan);
    CHECK(s.as<TrainingKind>().software.scan_efficiency.value == usual_scan_efficiency().value);
    CHECK(with_plan(kPlan, "llama-3-8b").as<TrainingKind>().software.scan_efficiency.value == 0);
    const auto kernels = [&](double share) {
        s.as<TrainingKind>().software.scan_efficiency.value = share;
        return test::priced(s, [](const PassCost& cost) {
            std::map<std::string, double> out;
            for (const PassOperation& operation : cost.forward_program(kScan).operations()) {
                out[operation.name] += operation.seconds;
            }
            return out;
        });
    };
    auto slow = kernels(0.01);
    auto slower = kernels(0.005);
    auto free = kernels(0);
    for (const char* name : {"states of chunks", "scores inside chunks", "scan inside chunks"}) {
        CHECK_MESSAGE(slower[name] == doctest::Approx(2 * slow[name]), name);
        CHECK_MESSAGE(free[name] < slow[name], name);
    }
    for (const char* name : {"causal convolution", "passing of states", "product, in"}) {
        CHECK_MESSAGE(slow[name] == free[name], name);
    }
}

TEST_CASE("hybrid: memory of layers is what each keeps, and full recomputation keeps their inputs") {
    const auto use = [](const std::string& plan) {
        const Scenario s = with_plan(plan);
        return memory_by_stage(s.as<TrainingKind>().model, s.as<TrainingKind>().plan, s.as<TrainingKind>().software)[0];
    };
    const double h = 1024;
    const double tokens = 2048;
    const MemoryUse one = use(kPlan);
    const ModelSpec m = with_plan(kPlan).as<TrainingKind>().model;
    CHECK(one.weights == doctest::Approx(2 * m.parameters()));
    CHECK(one.optimizer == doctest::Approx(12 * m.parameters()));
    // Around each layer its input and the norm's output; queries, keys, values and what attention made; the feed-forward's two
    // middles; the state-space layer's first product's output, the scan's, the gated one and the norm's.
    const double inner = 32 * 64;
    const double space = 2 * (2 * inner + 2 * 4 * 128 + 32) + 6 * inner;
    CHECK(state_space_bytes(m, 2) == space);
    const double layers = 5 * 4 * h + 8 * h + 2 * 4 * 4096 + 2 * space;
    const double logits = 6 * 1024;
    CHECK(one.activations == doctest::Approx(tokens * (layers + logits)));
    const MemoryUse cut = use("tensor: 4, data: 2, global_batch: 16, sequence_parallel: true");
    CHECK(cut.activations == doctest::Approx(one.activations / 4));
    CHECK(cut.weights == doctest::Approx(one.weights / 4));
    const MemoryUse again = use("data: 8, global_batch: 16, recompute: full");
    CHECK(again.activations == doctest::Approx(tokens * (5 * 2 * h + 4 * h + space + logits)));
    // One layer at a time is gathered under ZeRO-3: that with the most weights.
    const MemoryUse sharded = use("data: 8, global_batch: 16, zero: 3");
    CHECK(sharded.weights == doctest::Approx(2 * m.parameters() / 8));
    CHECK(sharded.buffers > one.buffers + 2 * m.parameters_of(LayerPart::feed_forward));
}

TEST_CASE("hybrid: pipelines cut by layers, folded runs give the times of all ranks, and schedules that split run") {
    for (const char* plan :
         {"pipeline: 2, data: 4, global_batch: 16", "pipeline: 4, data: 2, global_batch: 16, schedule: zb-h1",
          "tensor: 2, data: 4, global_batch: 16, zero: 1, overlap: {data: true, parameters: true}",
          "data: 8, global_batch: 16, zero: 3"}) {
        Scenario s = with_plan(plan);
        const TrainingResult folded = train(s);
        s.network.fold = false;
        CHECK_MESSAGE(folded.iteration_s == doctest::Approx(train(s).iteration_s).epsilon(1e-9), plan);
    }
    const Scenario s = with_plan("pipeline: 2, data: 4, global_batch: 16, stages: [{layers: 2}, {layers: 3}]");
    CHECK(train(s).iteration_s > 0);
}

TEST_CASE("hybrid: bad patterns and plans are refused with their line") {
    const std::string head = "{layers: 3, hidden: 1024, heads: 8, vocabulary: 1024, sequence: 2048, ";
    const std::string space = "state_space: {heads: 32, groups: 4}";
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"pattern: M-, " + space + "}", ":4:87: error: the pattern has 2 letters, and the model 3 layers"},
        {"pattern: Mm-, " + space + "}",
         "the pattern has 'm' as letter 2: there are M (state space), - (feed-forward), E (experts) "
         "and * (attention) (did you mean 'M'?)"},
        {"pattern: MEM, " + space + "}", "it needs 'experts'"},
        {"pattern: M-M}", "it needs the heads of 'state_space'"},
        {space + "}", "'model.state_space' has no effect"},
        {"pattern: '-*-', " + space + "}", "'model.state_space' has no effect"},
        {"pattern: M-M, state_space: {heads: 30, groups: 4}}", "groups 4 must divide the 30 heads"},
        {"pattern: M-M, state_space: {heads: 32, state: 0}}", "state"},
        {"pattern: M-M, state_space: {heads: 32, chunks: 64}}", "did you mean 'chunk'?"},
        {"pattern: M-M, window: 128, " + space + "}", "a pattern with 'window' is not modelled"},
        {"pattern: M-M, experts: {count: 4, topk: 1, ffn: 64}, " + space + "}",
         "need an E in it for each of their layers"},
    };
    for (const auto& [rest, expected] : cases) {
        const std::string said = test::problems_when([&] { return test::scenario(text_with(kPlan, head + rest)); });
        CHECK_MESSAGE(said.find(expected) != std::string::npos, rest << "\n" << said);
    }
    // All at once.
    const std::string both = test::problems_when([&] {
        return test::scenario(
            text_with(kPlan, head + "pattern: Mx, window: 128, state_space: {heads: 30, groups: 4}}"));
    });
    for (const char* part : {"2 letters", "'x' as letter 2", "'window'", "groups 4"}) {
        CHECK_MESSAGE(both.find(part) != std::string::npos, both);
    }
    CHECK(infeasible("context: 2, data: 4, global_batch: 16").find("context above 1 with state-space layers") !=
          std::string::npos);
    CHECK(infeasible("tensor: 8, global_batch: 16").find("tensor 8 must divide the 4 groups") != std::string::npos);
    CHECK(infeasible("data: 8, global_batch: 16, adapters: {rank: 8}")
              .find("adapters cannot be combined with a model that has a") != std::string::npos);
    // A model without attention has no heads for tensor-parallel ranks to share.
    CHECK(
        infeasible("tensor: 4, data: 2, global_batch: 16",
                   "{layers: 2, hidden: 1024, heads: 1, vocabulary: 1024, sequence: 2048, pattern: MM, " + space + "}")
            .empty());
    const std::string served = test::refusal(
        "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: nemotron-h-8b\n"
        "engine: {tensor: 8, nano_batches: 2}\nrequests: {rate: 2, count: 10}\n");
    CHECK_MESSAGE(served.find("not modelled beside a 'pattern' of layers") != std::string::npos, served);
    const std::string scans = test::refusal(
        "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\n"
        "model: {layers: 2, hidden: 1024, heads: 8, vocabulary: 1024, pattern: M-, " +
        space +
        "}\n"
        "requests: {rate: 2, count: 10}\n");
    CHECK_MESSAGE(scans.find("a pattern without attention (*) is trained and not served") != std::string::npos, scans);
}

TEST_CASE("hybrid: a served model keeps states of its scans and reads them in a decoding step") {
    const ModelSpec m = with_plan(kPlan).as<TrainingKind>().model;
    const double inner = 32 * 64;
    // 128 values of 32 bits for each of a token's, and three tokens of what passes the convolution.
    const double state = 4 * inner * 128 + 2 * (inner + 2 * 4 * 128) * 3;
    CHECK(attention_form(m, kScan).sequence_bytes(m, kScan, Precision::bf16, 2) == state / 2);
    CHECK(cache_bytes_per_token(m, Precision::bf16) == 2 * 2 * 1024);  // of the one layer of attention
    CoreShape shape;
    shape.sequences = 8;
    shape.keys = 5000;
    const auto core = [&] { return attention_core({m, kScan, {}, LayerPhase::decode, 8}, shape); };
    const double moved = 2 * ((inner + 2 * 4 * 128) + 2 * inner);
    CHECK(std::get<Streaming>(core()).bytes == 8 * (2 * state + moved));
    shape.queries = 512;
    const LayerOperations beside = beside_attention({m, kScan, {}, LayerPhase::prompt, 8 * 512}, shape);
    CHECK(beside.size() == 4);
    double flops = 0;
    for (const LayerOperation& one : beside) {
        REQUIRE(one.kernel);
        flops += one.flops();
    }
    flops += std::get<Gemm>(core()).flops();
    // Scores of a chunk are computed in full.
    CHECK(flops == 8 * 512 * (4 * inner * 128 + inner * 128 + 2 * 4.0 * 128 * 128));
}

TEST_CASE("hybrid: Nemotron 3 and Granite 4 have experts in layers of their own") {
    const auto preset = [](const std::string& name) {
        return test::scenario("orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h200}\nmodel: " + name +
                              "\nengine: {tensor: 4}\nrequests: {arrivals: at-once, count: 4}\n");
    };
    // Model cards: 31.6 billion, 3.6 with embeddings active; 32 billion, 9 active.
    const ModelSpec nano = preset("nemotron-3-nano-30b-a3b").as<ServingKind>().model;
    CHECK(nano.parameters() == doctest::Approx(31.6e9).epsilon(0.01));
    CHECK(nano.expert_layers() == 23);
    CHECK(nano.layers_with(LayerPart::state_space) == 23);
    CHECK(preset("granite-4.0-h-small").as<ServingKind>().model.parameters() == doctest::Approx(32.2e9).epsilon(0.01));
    CHECK(run_scenario(preset("nemotron-3-nano-30b-a3b"), test::model_cache(), {}).seconds > 0);
}
