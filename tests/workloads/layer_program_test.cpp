// The list of a layer's operations against closed forms of parameters, FLOPs and cached values, for every model preset.

#include "workloads/model/layer_program.hpp"

#include "sim/config/yaml_tree.hpp"
#include "tests/support/support.hpp"
#include "workloads/serving/cost/step_cost.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <functional>

namespace orrery {

namespace {

void with_presets(const std::function<void(const ModelSpec&)>& check) {
    std::size_t count = 0;
    for (const std::string& name : test::data().names(kModelPresets)) {
        CAPTURE(name);
        ModelSpec model;
        std::vector<Diagnostic> errors;
        read_fields(load_yaml(test::data().path(kModelPresets, name)), test::data(), errors,
                    [&](Fields& fields) { describe(fields, model); });
        REQUIRE(errors.empty());
        complete(model);
        check(model);
        ++count;
    }
    REQUIRE(count > 100);
}

LayerOperations whole_layer(const ModelSpec& model, LayerKind kind, LayerPhase phase, double tokens) {
    const LayerContext at{model, kind, {}, phase, tokens};
    CoreShape shape;
    shape.heads = static_cast<double>(model.heads);
    shape.queries = shape.keys = tokens;
    return layer_operations(at, shape, whole_experts(model, tokens));
}

// A model of 8 layers whose `attention` is this, with a window in all but the last, or without one.
ModelSpec model_of(const std::string& attention, std::int64_t window) {
    ModelSpec model;
    std::vector<Diagnostic> errors;
    read_fields(parse_yaml(fmt::format("{{layers: 8, hidden: 4096, heads: 32, kv_heads: 8, vocabulary: 32000, "
                                       "attention: {}{}}}",
                                       attention, window > 0 ? fmt::format(", window: {}, full_every: 8", window) : ""),
                           "model"),
                test::data(), errors, [&](Fields& fields) { describe(fields, model); });
    REQUIRE(errors.empty());
    complete(model);
    return model;
}

Attention attention_of(const ModelSpec& model, double queries, double keys, bool windowed) {
    CoreShape shape;
    shape.heads = static_cast<double>(model.heads);
    shape.queries = queries;
    shape.keys = keys;
    const LayerContext at{model, {false, windowed}, {}, queries > 1 ? LayerPhase::prompt : LayerPhase::decode, queries};
    return std::get<Attention>(attention_core(at, shape));
}

double flops_of(const LayerOperations& operations) {
    double sum = 0;
    for (const LayerOperation& one : operations) {
        sum += one.flops();
    }
    return sum;
}

}  // namespace

TEST_CASE("layers: weights of all operations are the parameters of every model preset") {
    with_presets([](const ModelSpec& model) {
        const auto h = static_cast<double>(model.hidden);
        double sum = 0;
        for (std::int64_t layer = 0; layer < model.layers; ++layer) {
            sum += all_weights(whole_layer(model, model.kind_of(layer), LayerPhase::training, 1));
        }
        const double tables = static_cast<double>(model.vocabulary) * h * (model.tied_embeddings ? 1 : 2);
        CHECK(sum + tables + model.encoder_parameters() == doctest::Approx(model.parameters()).epsilon(1e-12));
        // A dense layer of a plain transformer: queries and output, keys and values, two or three matrices of its feed-forward.
        if (!model.hybrid() && model.latent.kv_rank == 0 && model.attention.name() != "indexed-blocks" &&
            model.attention.name() != "compressed" && model.attention.name() != "gemma") {
            const auto d = static_cast<double>(model.head_dim);
            const double gate = model.output_gate ? static_cast<double>(model.heads) : 0;
            const double attention = h * d * (2 * static_cast<double>(model.heads + model.kv_heads) + gate);
            const double ffn = (model.gated ? 3 : 2) * h * static_cast<double>(model.ffn);
            CHECK(product_weights(whole_layer(model, {}, LayerPhase::decode, 1)) == doctest::Approx(attention + ffn));
        }
    });
}

TEST_CASE("layers: FLOPs of all operations are a third of a token's in training, for every model preset") {
    with_presets([](const ModelSpec& model) {
        const auto tokens = static_cast<double>(model.sequence);
        double sum = 2 * tokens * static_cast<double>(model.vocabulary) * static_cast<double>(model.hidden);
        for (std::int64_t layer = 0; layer < model.layers; ++layer) {
            sum += flops_of(whole_layer(model, model.kind_of(layer), LayerPhase::training, tokens));
        }
        if (model.hybrid()) {
            // Scores of a chunk are computed in full, where the closed form counts what causality leaves.
            const StateSpaceSpec& space = model.state_space;
            sum -= tokens *
                   static_cast<double>(model.layers_with(LayerPart::state_space) * space.groups * space.state) *
                   static_cast<double>(std::min(space.chunk, model.sequence));
        }
        const double expected = (3 * sum + model.encoder_flops()) / tokens;
        // The diagonal of causal attention is counted, which closed forms leave out.
        CHECK(expected == doctest::Approx(model.flops_per_token()).epsilon(0.002));
    });
}

TEST_CASE("layers: cached values of decoding steps are those that a served model keeps, for every model preset") {
    with_presets([](const ModelSpec& model) {
        double sum = 0;
        double indexed = 0;
        for (std::int64_t layer = 0; layer < model.layers; ++layer) {
            const LayerKind kind = model.kind_of(layer);
            for (const LayerOperation& one : whole_layer(model, kind, LayerPhase::decode, 1)) {
                sum += one.cached;
            }
            const bool keeps = kind.part == LayerPart::whole || kind.part == LayerPart::attention;
            CHECK((cached_values(model, kind) > 0) == (keeps && !model.is_linear(kind)));
            indexed += indexed_bytes(model, kind);
            if (model.attention.name() == "compressed" && !kind.windowed) {
                indexed += (128.0 + 4) / 4;  // a key of the indexer and its scale, for every four tokens
            }
        }
        CHECK(2 * sum + indexed == cache_bytes_per_token(model, Precision::bf16));
    });
}

TEST_CASE("layers: tensor ranks share heads and matrices, and hold whole what latent attention compresses") {
    const auto shared = [](const char* name) {
        const auto model = [&] {
            ModelSpec out;
            std::vector<Diagnostic> errors;
            read_fields(load_yaml(test::data().path(kModelPresets, name)), test::data(), errors,
                        [&](Fields& fields) { describe(fields, out); });
            complete(out);
            return out;
        }();
        const LayerKind kind = model.kind_of(0);
        const LayerContext whole{model, kind};
        const LayerContext part{model, kind, {8, std::min<double>(8, static_cast<double>(model.kv_heads))}};
        return std::pair(product_weights(before_attention(whole)) + product_weights(after_attention(whole)),
                         8 * (product_weights(before_attention(part)) + product_weights(after_attention(part))));
    };
    const auto [llama, its_parts] = shared("llama-3-8b");
    CHECK(llama == its_parts);
    const auto [deepseek, parts] = shared("deepseek-v3");
    CHECK(parts - deepseek == 7 * 7168.0 * (1536 + 512 + 64));
}

TEST_CASE("attention: sinks widen the window by the first tokens of a sequence") {
    const ModelSpec plain = model_of("{kind: standard}", 4096);
    const ModelSpec model = model_of("{kind: sinks, tokens: 16}", 4096);
    CHECK(attention_of(model, 1, 100'000, true).window == 4096 + 16);
    CHECK(attention_of(model, 1, 100'000, false).window == 0);
    CHECK(attention_of(plain, 1, 100'000, true).window == 4096);
    CHECK(model.parameters() == plain.parameters());
    CHECK(layer_problems(model_of("sinks", 0)).at(0).text.find("no effect without a window") != std::string::npos);
}

TEST_CASE("attention: a block-sparse step reads its share of the keys, a prompt computes its share of the products") {
    const ModelSpec model = model_of("{kind: block-sparse, density: 0.1, block: 64}", 0);
    const ModelSpec dense = model_of("standard", 0);
    CHECK(attention_of(model, 1, 64'000, false).keys == 6400);
    CHECK(attention_of(model, 1, 100, false).keys == 64);  // a whole block
    CHECK(attention_of(model, 1, 10, false).keys == 10);
    for (const auto& [queries, keys] : {std::pair(8192.0, 8192.0), {2048.0, 32768.0}, {20000.0, 32768.0}}) {
        CAPTURE(queries);
        const double share =
            attention_of(model, queries, keys, false).flops() / attention_of(dense, queries, keys, false).flops();
        // Half a block more for each query, whose mean context is that before all of them and half of theirs.
        CHECK(share == doctest::Approx(0.1 + 32 / (keys - queries / 2)).epsilon(0.002));
    }
    // Model FLOPs count what is computed: 6 for each weight of products, and that share of attention's.
    const auto attention_flops = [](const ModelSpec& of) {
        return of.flops_per_token() - 6 * (8 * (of.layer_parameters() - 4 * 4096) + of.embedding_parameters());
    };
    CHECK(attention_flops(model) == doctest::Approx((0.1 + 32.0 / 1024) * attention_flops(dense)).epsilon(0.005));
    CHECK(attention_of(model_of("{kind: block-sparse, density: 1}", 0), 4096, 4096, false).window == 0);
    CHECK(layer_problems(model_of("block-sparse", 128)).size() == 1);
}

}  // namespace orrery
