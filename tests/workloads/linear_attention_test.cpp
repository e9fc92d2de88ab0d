// Layers of linear attention and indexers: weights, FLOPs, states and kernels in closed forms, in training and serving.

#include "models/roofline.hpp"
#include "sim/config/yaml_tree.hpp"
#include "tests/support/passes.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/kinds/training.hpp"
#include "topologies/device_preset.hpp"
#include "workloads/model/layer_program.hpp"
#include "workloads/serving/cost/step_cost.hpp"
#include "workloads/serving/engine_memory.hpp"
#include "workloads/training/passes/pass_cost.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>

using namespace orrery;

namespace {

ModelSpec preset(const std::string& name) {
    ModelSpec model;
    std::vector<Diagnostic> errors;
    read_fields(load_yaml(test::data().path(kModelPresets, name)), test::data(), errors,
                [&](Fields& fields) { describe(fields, model); });
    REQUIRE(errors.empty());
    complete(model);
    return model;
}

std::string training_text(const std::string& model, const std::string& plan) {
    return fmt::format(
        "orrery: 1\nkind: training\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: {}\nplan: {{{}}}\n"
        "software: {{preset: megatron-core-2024}}\n",
        model, plan);
}

constexpr const char* kLinear =
    "{layers: 4, hidden: 1024, heads: 8, kv_heads: 2, head_dim: 128, ffn: 2048, gated: true, vocabulary: 1024, "
    "sequence: 2048, full_every: 4, output_gate: true, linear: {key_heads: 4, value_heads: 8}}";

}  // namespace

TEST_CASE("linear attention: presets have the published numbers of parameters") {
    // Model cards, without the drafting layers: Qwen3-Next has 80 billion, 3 of them active.
    CHECK(preset("qwen3-next-80b-a3b").parameters() == doctest::Approx(79.674e9).epsilon(0.0005));
    CHECK(preset("qwen3.5-397b-a17b").parameters() == doctest::Approx(396.35e9).epsilon(0.0005));
    CHECK(preset("qwen3.5-122b-a10b").parameters() == doctest::Approx(122.1e9).epsilon(0.001));
    CHECK(preset("qwen3.5-35b-a3b").parameters() == doctest::Approx(34.66e9).epsilon(0.001));
    CHECK(preset("qwen3.5-27b").parameters() == doctest::Approx(26.9e9).epsilon(0.001));
    CHECK(preset("qwen3.5-9b").parameters() == doctest::Approx(8.954e9).epsilon(0.001));
    CHECK(preset("kimi-linear-48b-a3b").parameters() == doctest::Approx(49.12e9).epsilon(0.002));
    CHECK(preset("deepseek-v3.2").parameters() == doctest::Approx(671.03e9 + 61 * 13.96e6).epsilon(0.0005));
}

TEST_CASE("linear attention: weights, FLOPs and states are closed forms") {
    const ModelSpec m = preset("qwen3-next-80b-a3b");
    const double h = 2048;
    const double keys = 16 * 128;
    const double values = 32 * 128;
    // One product for queries, keys, values and gate, one for steps and decays, the output's; a convolution over 4 tokens, a norm's
    // weights, a rate and an offset of each head.
    const double net = h * (2 * keys + 2 * values) + h * 2 * 32 + values * h + 4 * (2 * keys + values) + 128 + 2 * 32;
    CHECK(m.attention_parameters({false, true}) == net);
    CHECK(m.attention_parameters({}) == h * 256 * (2 * 16 + 2 * 2) + 16 * 256 * h);
    CHECK(m.attention_parameters() == doctest::Approx((36 * net + 12 * m.attention_parameters({})) / 48));
    CHECK(m.linear_layers() == 36);
    CHECK(cached_values(m, {true, true}) == 0);
    CHECK(cached_values(m, {true, false}) == 2 * 2 * 256);
    CHECK(m.linear.state_bytes() == 32.0 * 128 * 128 * 2 + 3 * 2 * (2 * keys + values));
    // Nothing of a decoding step grows with the context but the layers of full attention.
    const auto decode = [&](double keys_before) {
        CoreShape shape;
        shape.keys = keys_before;
        return attention_core({m, {true, true}, {}, LayerPhase::decode, 1}, shape);
    };
    const DeltaScan step = std::get<DeltaScan>(decode(100));
    CHECK(step.flops() == 32 * 7.0 * 128 * 128);
    CHECK(std::get<DeltaScan>(decode(100'000)).bytes() == step.bytes());
    CHECK(step.bytes() == 2 * 2 * 32.0 * 128 * 128 + 2 * (2 * keys + 2 * values) + 4 * 32 * 2);

    const ModelSpec kimi = preset("kimi-linear-48b-a3b");
    const double k = 2304;
    const double d = 32 * 128;
    CHECK(kimi.attention_parameters({false, true}) ==
          k * (3 * d + 32) + k * 2 * 128 + 2 * 128 * d + d * k + 4 * 3 * d + 128 + 32 + d);
    CHECK(std::get<DeltaScan>(attention_core({kimi, {true, true}, {}, LayerPhase::decode, 1}, {})).channels);
}

TEST_CASE("linear attention: the scan's FLOPs are those of its products, and its backward pass has 2.7 times as many") {
    DeltaScan scan;
    scan.queries = 4096;
    const double inverse = 2.0 / 3 * 64 * 64;
    CHECK(scan.flops() == doctest::Approx(4096 * 32 * (6 * 16384.0 + 64 * 5 * 128 + inverse)));
    DeltaScan backward = scan;
    backward.backward = true;
    CHECK(backward.flops() / scan.flops() == doctest::Approx(2.71).epsilon(0.002));
    // A device prices the backward pass by the forward one.
    const Roofline roof(read_device("h100-sxm", test::data()));
    scan.trains = true;
    DeltaScan narrow = scan;
    narrow.state = Precision::bf16;  // between passes of serving alone
    CHECK(narrow.bytes() == scan.bytes());
    CHECK(roof.cost(backward).seconds.value() > 2 * roof.cost(scan).seconds.value());
}

TEST_CASE("linear attention: a pass of training has its kernels, and ranks share heads") {
    const auto pass = [](const std::string& plan, bool backward) {
        return test::priced(test::scenario(training_text(kLinear, plan)), [&](const PassCost& cost) {
            const LayerKind linear{false, true};
            const PassProgram& program = backward ? cost.backward_program(linear) : cost.forward_program(linear);
            std::map<std::string, int> names;
            for (const PassOperation& operation : program.operations()) {
                ++names[operation.name];
            }
            return std::pair(program.price(), names);
        });
    };
    for (const bool backward : {false, true}) {
        auto [price, names] = pass("data: 8, global_batch: 8, micro_batch: 1", backward);
        for (const char* name : {"causal convolution", "delta rule", "norm after the scan", "rates of decay"}) {
            CHECK_MESSAGE(names[name] == 1, name);
        }
        CHECK(names["attention"] == 0);
        auto [half, same] = pass("tensor: 2, data: 4, global_batch: 8, micro_batch: 1", backward);
        CHECK(half.flops == doctest::Approx(price.flops / 2));
    }
    // The products: three by the width of values, two by that of keys, and steps and decays; and those of the feed-forward.
    const double tokens = 2048;
    const double products = 2 * tokens * 1024 * (3 * 8 * 128.0 + 2 * 4 * 128 + 2 * 8 + 3 * 2048);
    DeltaScan scan;
    scan.queries = tokens;
    scan.value_heads = 8;
    CHECK(pass("data: 8, global_batch: 8, micro_batch: 1", false).first.flops ==
          doctest::Approx(products + scan.flops()));
}

TEST_CASE("linear attention: what does not fit a model or a plan is refused") {
    const auto refused = [](const std::string& model, const std::string& plan) {
        try {
            (void)run_scenario(test::scenario(training_text(model, plan)), test::model_cache(), {});
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    const auto says = [&](const std::string& model, const std::string& plan, const char* text) {
        CHECK_MESSAGE(refused(model, plan).find(text) != std::string::npos, refused(model, plan));
    };
    says(kLinear, "tensor: 8, global_batch: 8", "the 4 heads of keys and 8 of values of linear attention");
    says(kLinear, "context: 2, data: 4, global_batch: 8", "with linear attention is not modelled");
    const std::string sizes = "{layers: 4, hidden: 1024, heads: 8, vocabulary: 1024, ";
    says(sizes + "full_every: 2, linear: {value_heads: 6, key_heads: 4}}", "data: 8, global_batch: 8",
         "key_heads 4 must divide the 6 heads of values");
    says(sizes + "linear: {value_heads: 8}}", "data: 8, global_batch: 8", "full_every must be at least 2");
    says(sizes + "full_every: 2, window: 64, linear: {value_heads: 8}}", "data: 8, global_batch: 8",
         "a window beside 'linear' is not modelled");
}

TEST_CASE("indexer: scores of all keys, a choice, and attention to what was chosen") {
    const ModelSpec m = preset("deepseek-v3.2");
    const ModelSpec plain = preset("deepseek-v3");
    CHECK(m.attention_parameters() - plain.attention_parameters() == 1536.0 * 64 * 128 + 7168.0 * (128 + 64));
    CHECK(cache_bytes_per_token(m, Precision::fp8) == 61 * (576 + 128 + 4));
    const auto kernels = [&](double queries, double keys) {
        CoreShape shape;
        shape.heads = 128;
        shape.queries = queries;
        shape.keys = keys;
        const LayerContext at{m, {}, {}, queries > 1 ? LayerPhase::prompt : LayerPhase::decode, queries};
        LayerOperations out = beside_attention(at, shape);
        LayerOperation core{"attention", LayerRole::core};
        core.kernel = attention_core(at, shape);
        out.push_back(core);
        return out;
    };
    // A short prompt attends to all.
    const LayerOperations brief = kernels(2048, 2048);
    REQUIRE(brief.size() == 1);
    CHECK(!std::get<LatentAttention>(*brief[0].kernel).sparse());
    const LayerOperations prompt = kernels(4096, 65536);
    REQUIRE(prompt.size() == 3);
    CHECK(prompt[0].flops() == 2.0 * 4096 * (65536 - 4095 / 2.0) * 64 * 128);
    CHECK(std::get<TopChoice>(*prompt[1].kernel).rows == 4096);
    CHECK(prompt[2].flops() == 2.0 * 4096 * 128 * 2048 * (2 * 512 + 64));
    // Attention of decoding stops growing at what is chosen; scores go on.
    const LayerOperations near = kernels(1, 4096);
    const LayerOperations far = kernels(1, 131072);
    REQUIRE(far.size() == 3);
    CHECK(near[2].flops() == far[2].flops());
    CHECK(far[0].flops() == 32 * near[0].flops());
    CHECK(kernels(1, 1024).size() == 2);
}

TEST_CASE("linear attention: a served sequence has a state, whatever its length") {
    const auto blocks = [](const char* model, int sequences) {
        const Scenario s = test::scenario(fmt::format(R"(orrery: 1
kind: serving
cluster: {{nodes: 1, node: dgx-h100}}
model: {}
engine: {{tensor: 1, scheduler: {{kind: chunked-prefill, token_budget: 512, max_sequences: {}}}}}
requests: {{arrivals: closed, clients: 4, count: 4, prompt: {{mean: 64}}, output: {{mean: 8}}}}
)",
                                                      model, sequences));
        const auto& spec = s.as<ServingKind>();
        return static_cast<double>(limits_of(spec.engine, spec.engine.mixed, spec.model, s.cluster.node.gpu).blocks);
    };
    const ModelSpec m = preset("qwen3.5-9b");
    const double block = 16 * cache_bytes_per_token(m, Precision::bf16);
    CHECK(block == 16 * 8 * 2 * 2 * 4 * 256);
    const double fewer = blocks("qwen3.5-9b", 1) - blocks("qwen3.5-9b", 101);
    CHECK(fewer * block == doctest::Approx(100 * 24 * m.linear.state_bytes()).epsilon(0.01));
    CHECK(blocks("qwen3-8b", 1) == blocks("qwen3-8b", 101));
}
