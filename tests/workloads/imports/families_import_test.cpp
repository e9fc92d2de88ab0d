// Families of models in config.json: spellings, values that files leave to the class, and models that are none of ours.

#include "tests/support/support.hpp"
#include "workloads/imports/importer.hpp"
#include "workloads/model/model_spec.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

using namespace orrery;
using namespace orrery::test;

namespace {

Imported import_text(const std::string& json) {
    return import_file("hf-config", ImportInput::of_bytes("config.json", json));
}

ModelSpec model_of(const std::string& json) {
    const Imported out = import_text(json);
    ModelSpec model;
    std::vector<Diagnostic> errors;
    const YamlNode root = parse_yaml(out.text, "model.yaml");
    read_fields(*root.find("model"), data(), errors, [&](Fields& fields) { describe(fields, model); });
    REQUIRE_MESSAGE(errors.empty(), out.text);
    complete(model);
    return model;
}

double billions(const std::string& json) {
    return model_of(json).parameters() / 1e9;
}

bool says(const ImportNotes::Counts& notes, const std::string& part) {
    return std::any_of(notes.begin(), notes.end(),
                       [&](const auto& note) { return note.first.find(part) != std::string::npos; });
}

}  // namespace

// Parameters in billions as published by the makers of each model.
TEST_CASE("a config.json of any family comes out with its published parameters") {
    const std::vector<std::pair<double, const char*>> files = {
        {9.40, R"({"model_type": "chatglm", "hidden_size": 4096, "num_layers": 40, "num_attention_heads": 32,
                   "kv_channels": 128, "multi_query_attention": true, "multi_query_group_num": 2,
                   "ffn_hidden_size": 13696, "padded_vocab_size": 151552, "tie_word_embeddings": false})"},
        {7.72, R"({"model_type": "qwen", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                   "kv_channels": 128, "intermediate_size": 22016, "vocab_size": 151936})"},
        {131.6, R"({"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352,
                    "attn_config": {"kv_n_heads": 8, "clip_qkv": 8},
                    "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}})"},
        {7.07, R"({"model_type": "bloom", "n_embed": 4096, "n_layer": 30, "num_attention_heads": 32,
                   "vocab_size": 250880})"},
        {13.9, R"({"model_type": "baichuan", "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40,
                   "intermediate_size": 13696, "vocab_size": 125696})"},
        {7.39, R"({"model_type": "phi3small", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                   "num_key_value_heads": 8, "ff_intermediate_size": 14336, "vocab_size": 100352,
                   "tie_word_embeddings": true})"},
        {9.3, R"({"model_type": "persimmon", "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 64,
                  "intermediate_size": 16384, "vocab_size": 262144, "hidden_act": "relu2"})"},
        {8.05, R"({"model_type": "apertus", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                   "num_key_value_heads": 8, "intermediate_size": 21504, "vocab_size": 131072, "hidden_act": "xielu"})"},
        {270, R"({"model_type": "git", "hidden_size": 8192, "num_hidden_layers": 64, "num_attention_heads": 64,
                  "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 32768,
                  "moe_intermediate_size": 16384, "num_local_experts": 8, "num_experts_per_tok": 2,
                  "residual_moe": true, "vocab_size": 131072, "tie_word_embeddings": false})"},
        {479, R"({"model_type": "arctic", "hidden_size": 7168, "num_hidden_layers": 35, "num_attention_heads": 56,
                  "num_key_value_heads": 8, "intermediate_size": 4864, "num_local_experts": 128,
                  "num_experts_per_tok": 2, "parallel_attn_mlp_res": true, "vocab_size": 32000,
                  "tie_word_embeddings": false})"},
        {7.59, R"({"model_type": "falcon_h1", "hidden_size": 3072, "num_hidden_layers": 44, "num_attention_heads": 12,
                   "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 12288, "mamba_d_state": 256,
                   "mamba_n_groups": 1, "mamba_n_heads": 24, "mamba_d_head": 128, "mamba_d_ssm": 3072,
                   "vocab_size": 130048, "tie_word_embeddings": false})"},
        {4.07, R"({"model_type": "minicpm3", "hidden_size": 2560, "num_hidden_layers": 62, "num_attention_heads": 40,
                   "num_key_value_heads": 40, "intermediate_size": 6400, "q_lora_rank": 768, "kv_lora_rank": 256,
                   "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "vocab_size": 73448})"},
        {0.742, R"({"model_type": "lfm2", "hidden_size": 1536, "num_hidden_layers": 16, "num_attention_heads": 24,
                    "num_key_value_heads": 8, "intermediate_size": 6912, "conv_L_cache": 3, "tie_embedding": true,
                    "full_attn_idxs": [2, 5, 8, 10, 12, 14], "vocab_size": 65536})"},
        {9.78, R"({"model_type": "bamba", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                   "num_key_value_heads": 8, "intermediate_size": 14336, "attn_layer_indices": [9, 18, 27],
                   "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1,
                   "vocab_size": 128256})"},
    };
    for (const auto& [published, json] : files) {
        INFO(json);
        CHECK(billions(json) == doctest::Approx(published).epsilon(0.015));
    }
}

TEST_CASE("the params.json of Mistral and Meta is read as a config.json") {
    CHECK(
        billions(R"({"dim": 5120, "n_layers": 40, "head_dim": 128, "hidden_dim": 32768, "n_heads": 32, "n_kv_heads": 8,
                       "norm_eps": 1e-05, "vocab_size": 131072})") == doctest::Approx(23.57).epsilon(0.01));
    CHECK(
        billions(R"({"dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8,
                       "vocab_size": 32000, "moe": {"num_experts_per_tok": 2, "num_experts": 8}})") ==
        doctest::Approx(46.7).epsilon(0.01));
    // Meta leaves the width of a feed-forward to a formula.
    CHECK(model_of(R"({"dim": 8192, "n_layers": 80, "n_heads": 64, "n_kv_heads": 8, "vocab_size": 128256,
                       "ffn_dim_multiplier": 1.3, "multiple_of": 4096, "norm_eps": 1e-05})")
              .ffn == 28672);
    const Imported first = import_text(
        R"({"dim": 4096, "n_layers": 32, "n_heads": 32, "multiple_of": 256, "vocab_size": -1, "norm_eps": 1e-05})");
    CHECK(says(first.notes.assumed(), "a vocabulary of 32,000 tokens"));
    CHECK(first.text.find("ffn: 11008") != std::string::npos);
}

TEST_CASE("values that a config.json leaves to its class are taken from there and named") {
    const std::string gemma =
        R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 2560,
        "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}})";
    CHECK(billions(gemma) == doctest::Approx(3.88).epsilon(0.01));
    CHECK(model_of(gemma).full_every == 6);
    CHECK(says(import_text(gemma).notes.assumed(), "num_attention_heads 8"));
    const std::string pixtral = R"({"model_type": "llava", "text_config": {"model_type": "mistral", "hidden_size": 5120,
        "head_dim": 128, "intermediate_size": 14336, "num_hidden_layers": 40, "vocab_size": 131072},
        "vision_config": {"model_type": "pixtral", "image_size": 1024, "patch_size": 16}})";
    CHECK(billions(pixtral) == doctest::Approx(12.2).epsilon(0.01));
    CHECK(says(import_text(pixtral).notes.assumed(), "the language model alone"));
    // A class gives nothing to a file that says nothing itself.
    CHECK(problems_when([] {
              return import_text(R"({"model_type": "llama"})");
          }).find("'num_hidden_layers' is missing") != std::string::npos);
}

TEST_CASE("attention, a state space beside it and the feed-forward are three layers of a pattern") {
    const std::string falcon =
        R"({"model_type": "falcon_h1", "hidden_size": 3072, "num_hidden_layers": 44, "num_attention_heads": 12,
        "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 12288, "mamba_d_state": 256,
        "mamba_n_groups": 1, "mamba_n_heads": 24, "mamba_d_head": 128, "mamba_d_ssm": 3072, "vocab_size": 130048,
        "ssm_multipliers": [1, 1], "tie_word_embeddings": false})";
    const ModelSpec model = model_of(falcon);
    CHECK(model.layers == 3 * 44);
    CHECK(model.layers_with(LayerPart::state_space) == 44);
    CHECK(model.layers_with(LayerPart::attention) == 44);
    CHECK(model.layers_with(LayerPart::feed_forward) == 44);
    CHECK(!says(import_text(falcon).notes.left_out(), "state-space layers"));
    CHECK(!says(import_text(falcon).notes.left_out(), "not understood"));
    // AFMoE says its plan by a number alone.
    const ModelSpec trinity = model_of(
        R"({"model_type": "afmoe", "hidden_size": 2048, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "sliding_window": 2048,
        "global_attn_every_n_layers": 4, "vocab_size": 200192})");
    CHECK(trinity.full_every == 4);
    CHECK(trinity.window == 2048);
}

TEST_CASE("groups of linear layers with one of full attention are a plan of layers") {
    const Imported out = import_text(R"({"hidden_size": 256, "num_hidden_layers": 10, "num_attention_heads": 4,
        "vocab_size": 100, "layer_group_size": 5})");
    CHECK(out.text.find("full_every: 5") != std::string::npos);
    CHECK(says(out.notes.left_out(), "8 linear-attention layers"));
}

TEST_CASE("the language model may stand inside of two other parts") {
    const std::string omni = R"({"model_type": "qwen2_5_omni", "thinker_config": {"audio_config": {"d_model": 1280},
        "text_config": {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 1000}},
        "talker_config": {"hidden_size": 8}})";
    CHECK(model_of(omni).layers == 4);
    CHECK(says(import_text(omni).notes.left_out(), "'talker_config', which is not modelled: speech as an output"));
}

TEST_CASE("a config.json of another kind of model is refused with what it is") {
    const std::string sizes =
        R"("hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 100)";
    for (const auto& [key, what] : std::vector<std::pair<std::string, std::string>>{
             {R"("model_type": "bert")", "an encoder that generates nothing"},
             {R"("model_type": "t5")", "an encoder with a decoder"},
             {R"("is_encoder_decoder": true)", "an encoder with a decoder"},
             {R"("model_type": "mamba2")", "a model without attention"},
             {R"("model_type": "zamba2")", "share their weights"},
             {R"("model_type": "hymba")", "side by side"},
             {R"("model_type": "recurrent_gemma", "lru_width": 256)", "recurrent layers"}}) {
        const std::string problem = problems_when([&] { return import_text("{\n" + key + ",\n" + sizes + "}"); });
        CHECK_MESSAGE(problem.find(what) != std::string::npos, problem);
        CHECK_MESSAGE(problem.find("config.json:2:") != std::string::npos, problem);
    }
    // A file of the same folder that is no description of a model.
    const std::string other = problems_when([] { return import_text(R"({"peft_type": "LORA", "r": 8})"); });
    CHECK_MESSAGE(other.find("this one has 'peft_type', 'r'") != std::string::npos, other);
}

TEST_CASE("layers that share caches or have embeddings of their own are named, not dropped") {
    const std::string sizes =
        R"({"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 100, )";
    for (const auto& [key, what] : std::vector<std::pair<std::string, std::string>>{
             {R"("use_cla": true, "cla_share_factor": 2})", "share their caches"},
             {R"("num_kv_shared_layers": 2})", "share their caches"},
             {R"("hidden_size_per_layer_input": 64})", "embeddings of each layer"},
             {R"("altup_num_inputs": 4})", "streams beside the residual one"},
             {R"("share_q_dim": 64})", "projected twice"}}) {
        CHECK_MESSAGE(says(import_text(sizes + key).notes.left_out(), what), key);
    }
}

TEST_CASE("formats of quantised checkpoints name the precision that an engine stores") {
    const auto engine = [](const std::string& stored, bool experts) {
        const Imported out = import_text(
            R"({"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 100, )" +
            std::string(experts ? R"("num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, )" : "") +
            R"("quantization_config": )" + stored + "}");
        std::string text;
        for (const auto& [key, value] : out.engine) {
            text += (text.empty() ? "" : " ") + key + "=" + value;
        }
        return text;
    };
    CHECK(engine(R"({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0})", false) == "weights=fp8");
    CHECK(engine(R"({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}})", true) ==
          "weights=fp4 experts=fp4");
    CHECK(engine(R"({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}})", false) ==
          "weights=fp8");
    CHECK(engine(R"({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}}})",
                 false) == "weights=int4");
    CHECK(engine(R"({"quant_method": "torchao", "quant_type": "int8_weight_only"})", false) == "weights=int8");
    CHECK(engine(R"({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4}}})", false) ==
          "weights=int4");
    CHECK(engine(R"({"quant_method": "w4afp8", "group_size": 128})", true) == "weights=int4");
    // What stands of keys and values says nothing of weights.
    CHECK(engine(R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8,
                     "type": "int"}}}, "kv_cache_scheme": {"num_bits": 8, "type": "float"}})",
                 false) == "weights=int8 cache=fp8");
    CHECK(engine(R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"})", false) ==
          "weights=fp4 cache=fp8");
    CHECK(engine(R"({"quant_method": "eetq", "weights": "int8"})", false) == "weights=int8");
    CHECK(engine(R"({"quant_method": "exl2", "bits": 4.25})", false).empty());  // bits differ between layers
    CHECK(engine(R"({"quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": {"quant_algo": "NVFP4"},
                     "b": {"quant_algo": "FP8"}}})",
                 true) == "weights=fp8 experts=fp4");
}
