// Attention to compressed keys and hyper-connections (DeepSeek-V4): weights, FLOPs, cache and kernels in closed forms.

#include "sim/config/yaml_tree.hpp"
#include "tests/support/presets.hpp"
#include "workloads/model/attention/hyper_connections.hpp"
#include "workloads/model/attention_form.hpp"
#include "workloads/model/layer_program.hpp"
#include "workloads/serving/cost/step_cost.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <variant>

using namespace orrery;
using test::preset;

namespace {

constexpr LayerKind kIndexed{true, false};
constexpr LayerKind kHeavy{true, true};

CoreShape shape_of(double sequences, double queries, double keys) {
    CoreShape shape;
    shape.sequences = sequences;
    shape.heads = 64;
    shape.queries = queries;
    shape.keys = keys;
    return shape;
}

std::vector<std::string> problems_of(const std::string& model) {
    ModelSpec spec;
    std::vector<Diagnostic> errors;
    read_fields(parse_yaml(model, "model"), test::data(), errors, [&](Fields& fields) { describe(fields, spec); });
    REQUIRE(errors.empty());
    std::vector<std::string> out;
    for (const model::ModelProblem& problem : model::layer_problems(spec)) {
        out.push_back(problem.text);
    }
    return out;
}

}  // namespace

TEST_CASE("compressed attention: DeepSeek-V4 has the published numbers of parameters") {
    // arXiv:2606.19348: 284 and 1,600 billion, 13 and 49 active.
    const ModelSpec flash = preset("deepseek-v4-flash");
    const ModelSpec pro = preset("deepseek-v4-pro");
    CHECK(flash.parameters() == doctest::Approx(284e9).epsilon(0.002));
    CHECK(pro.parameters() == doctest::Approx(1600e9).epsilon(0.02));
    const auto active = [](const ModelSpec& m) {
        const auto experts = static_cast<double>(m.experts.count);
        return m.parameters() - static_cast<double>(m.layers) * m.routed_parameters() *
                                    (1 - static_cast<double>(m.experts.topk) / experts);
    };
    CHECK(active(flash) == doctest::Approx(13e9).epsilon(0.1));  // both tables, of 0.53 billion each, among them
    CHECK(active(pro) == doctest::Approx(49e9).epsilon(0.05));
}

TEST_CASE("compressed attention: weights of a layer are a closed form") {
    const ModelSpec m = preset("deepseek-v4-flash");
    const double h = 4096;
    const double d = 512;
    const double streams =
        2 * (24 * 4 * h + 24 + 3);  // of both blocks: sums of 24 from all streams, offsets and scales
    // Queries through 1,024 and the key; outputs of eight groups of heads through 1,024 each.
    const double common = h * (1024 + d) + 1024 * 64 * d + 64 * d * 1024 + 8 * 1024 * h + streams;
    // A value and a weight of a key of 128 tokens, whose places have weights of their own.
    CHECK(m.attention_parameters(kHeavy) == common + h * 2 * d + 128 * d);
    // Keys of four tokens take in four more; the indexer's are 128 wide.
    const double indexer = 1024 * 64 * 128 + h * (4 * 128 + 64) + 4 * 2 * 128;
    CHECK(m.attention_parameters(kIndexed) == common + h * 4 * d + 4 * 2 * d + indexer);
    CHECK(m.windowed_layers() == 22);
    CHECK(m.attention_parameters() ==
          doctest::Approx((22 * m.attention_parameters(kHeavy) + 21 * m.attention_parameters(kIndexed)) / 43));
    CHECK(model::stream_weights(1, h) == 0);
}

TEST_CASE("compressed attention: a token leaves a part of an entry in the cache, and a sequence its window") {
    const ModelSpec m = preset("deepseek-v4-flash");
    // In 8 bits an entry has 448 values, 64 in 16 bits, and seven scales in 8 bytes; the indexer's key has a scale of 4.
    CHECK(cache_bytes_per_token(m, Precision::fp8) == doctest::Approx(21 * (584.0 / 4 + 132.0 / 4) + 22 * 584.0 / 128));
    CHECK(cache_bytes_per_token(m, Precision::bf16) ==
          doctest::Approx(21 * (1024.0 / 4 + 132.0 / 4) + 22 * 1024.0 / 128));
    const AttentionForm& form = model::attention_form(m, kHeavy);
    // 128 tokens wait for their key, a value and a weight of 32 bits each.
    CHECK(form.sequence_bytes(m, kHeavy, Precision::fp8, 1) == 128 * 584 + 128 * 2 * 512 * 4);
    // Of eight tokens, twice as wide; and of the indexer.
    CHECK(form.sequence_bytes(m, kIndexed, Precision::fp8, 8) == 128 * 584 + 8 * 2 * 2 * (512 + 128) * 4);
    // A tenth of DeepSeek-V3.2's at a million tokens, as the report says of Pro.
    const double before = cache_bytes_per_token(preset("deepseek-v3.2"), Precision::bf16) / 2;
    CHECK(cache_bytes_per_token(preset("deepseek-v4-pro"), Precision::fp8) / before ==
          doctest::Approx(0.1).epsilon(0.6));
}

TEST_CASE("compressed attention: a decoding step reads its window and the chosen or all compressed keys") {
    const ModelSpec m = preset("deepseek-v4-flash");
    const auto core = [&](LayerKind kind, double keys) {
        return std::get<LatentAttention>(
            model::attention_core({m, kind, {}, LayerPhase::decode, 8}, shape_of(8, 1, keys)));
    };
    CHECK(core(kHeavy, 100).chosen == 100);
    CHECK(core(kHeavy, 12'800).chosen == 128 + 100);
    CHECK(core(kIndexed, 1000).chosen == 128 + 250);
    CHECK(core(kIndexed, 100'000).chosen == 128 + 512);
    // Two products of 64 heads with entries of 512.
    CHECK(core(kIndexed, 100'000).flops() == 8.0 * 64 * (128 + 512) * 2 * 2 * 512);
    const auto beside = [&](LayerKind kind, double queries, double keys) {
        return model::beside_attention({m, kind, {}, queries > 1 ? LayerPhase::prompt : LayerPhase::decode, queries},
                                       shape_of(1, queries, keys));
    };
    CHECK(beside(kHeavy, 1, 100'000).empty());
    CHECK(beside(kIndexed, 1, 2000).size() == 1);  // no more keys than are chosen
    REQUIRE(beside(kIndexed, 1, 100'000).size() == 2);
    CHECK(beside(kIndexed, 1, 100'000)[0].flops() == 2.0 * 25'000 * 64 * 128);
    // Each query of a prompt sees a quarter of the tokens before it: half of a quarter in the mean.
    CHECK(beside(kIndexed, 16'384, 16'384)[0].flops() ==
          doctest::Approx(2.0 * 16'384 * (16'384.0 / 8) * 64 * 128).epsilon(0.001));
}

TEST_CASE("compressed attention: training attends to as many keys as queries see in the mean") {
    const ModelSpec m = preset("deepseek-v4-flash");
    const double n = 65'536;
    const auto flops = [&](LayerKind kind) {
        const CoreShape shape = shape_of(1, n, n);
        return std::get<Attention>(model::attention_core({m, kind, {}, LayerPhase::training, n}, shape)).flops();
    };
    double heavy = 0;
    double indexed = 0;
    for (int query = 1; query <= 65'536; ++query) {
        const double q = query;
        heavy += std::min(q, 128.0) + q / 128;
        indexed += std::min(q, 128.0) + std::min(q / 4, 512.0);
    }
    CHECK(flops(kHeavy) == doctest::Approx(4 * 64 * 512 * heavy).epsilon(0.005));
    CHECK(flops(kIndexed) == doctest::Approx(4 * 64 * 512 * indexed).epsilon(0.005));
}

TEST_CASE("compressed attention: what contradicts it in a model is refused") {
    const std::string head = "{layers: 4, hidden: 1024, heads: 8, vocabulary: 1000, ";
    const auto first = [&](const std::string& rest) {
        const std::vector<std::string> all = problems_of(head + rest);
        return all.empty() ? "" : all.front();
    };
    CHECK(first("kv_heads: 1, window: 64, full_every: 2, attention: compressed}").empty());
    CHECK(first("kv_heads: 1, attention: compressed}").find("needs a window") != std::string::npos);
    CHECK(first("window: 64, full_every: 2, attention: compressed}").find("kv_heads: 1") != std::string::npos);
    CHECK(first("kv_heads: 1, window: 64, full_every: 2, attention: {kind: compressed, groups: 3}}")
              .find("must divide") != std::string::npos);
}
