// Layers of unlike kinds in a Hugging Face config.json: what a description can say of them, and what is noted of the rest.

#include "tests/support/support.hpp"
#include "workloads/imports/importer.hpp"
#include "workloads/model/layer_program.hpp"
#include "workloads/model/model_names.hpp"
#include "workloads/model/model_spec.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

using namespace orrery;
using namespace orrery::test;

namespace {

struct Read {
    ModelSpec model;
    ImportNotes::Counts left_out, assumed;
    std::vector<std::pair<std::string, std::string>> engine;
};

Read read(const std::string& json) {
    const Imported out = import_file("hf-config", ImportInput::of_bytes("config.json", json));
    Read read;
    std::vector<Diagnostic> errors;
    const YamlNode root = parse_yaml(out.text, "model.yaml");
    read_fields(*root.find("model"), data(), errors, [&](Fields& fields) { describe(fields, read.model); });
    REQUIRE_MESSAGE(errors.empty(), out.text);
    complete(read.model);
    read.left_out = out.notes.left_out();
    read.assumed = out.notes.assumed();
    read.engine = out.engine;
    return read;
}

bool says(const ImportNotes::Counts& notes, const std::string& part) {
    return std::any_of(notes.begin(), notes.end(),
                       [&](const auto& note) { return note.first.find(part) != std::string::npos; });
}

std::string sizes(int layers, const std::string& rest) {
    return R"({"num_hidden_layers": )" + std::to_string(layers) +
           R"(, "hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 1000,
               "intermediate_size": 512, "tie_word_embeddings": false, )" +
           rest + "}";
}

}  // namespace

TEST_CASE("windows of a config.json stand where its layers have them") {
    const Read chunks = read(sizes(8, R"("attention_chunk_size": 64, "no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0])"));
    CHECK(chunks.model.window == 64);
    CHECK(chunks.model.full_every == 4);
    CHECK(says(chunks.assumed, "attention in chunks of 64 tokens"));
    CHECK(read(sizes(8, R"("sliding_window": 16, "sliding_window_pattern": "LLLG")")).model.full_every == 4);
    CHECK(read(sizes(8, R"("sliding_window": 16, "model_type": "gemma2")")).model.full_every == 2);
    CHECK(read(sizes(8, R"("sliding_window": 16, "use_sliding_window": false)")).model.window == 0);
    const Read first = read(sizes(6, R"("sliding_window": 16, "hybrid_layer_pattern": [0, 1, 1, 0, 1, 1])"));
    CHECK(first.model.full_every == 3);
    CHECK(says(first.assumed, "full attention in the last of every 3 layers"));
    CHECK(read(sizes(4, R"("attn_type_list": [1, 1, 1, 1])")).left_out.empty());
}

TEST_CASE("layers with a state take its memory and the weights of their projections") {
    // 6 of 8 layers are gated delta nets.
    const Read delta =
        read(sizes(8, R"("full_attention_interval": 4, "linear_num_key_heads": 4, "linear_num_value_heads": 8,
        "linear_key_head_dim": 32, "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4, "attn_output_gate": true)"));
    CHECK(delta.model.window == 0);
    CHECK(delta.model.full_every == 4);
    CHECK(delta.model.linear_layers() == 6);
    CHECK(delta.model.linear.value_dim == 64);
    CHECK(delta.model.output_gate);
    CHECK(!says(delta.left_out, "linear"));
    CHECK(!says(delta.left_out, "not understood"));
    const double net = 256 * (2 * 128 + 3 * 512 + 2 * 8) + 4 * (2 * 128 + 512) + 64 + 2 * 8;
    const double full = 256 * (3 * 256 + 2 * 64);
    CHECK(delta.model.attention_parameters() == doctest::Approx((6 * net + 2 * full) / 8));
    CHECK(delta.model.heads == 8);
    // Linear attention of another kind keeps its place: a window with the bytes of its state.
    const Read other = read(sizes(8, R"("attn_type_list": [0, 0, 0, 1, 0, 0, 0, 1])"));
    CHECK(other.model.window > 0);
    CHECK(says(other.left_out, "6 linear-attention layers"));
    // Every second layer has experts, and every fourth attends; the others are state-space layers of 1996's kind.
    const Read jamba = read(sizes(8, R"("attn_layer_period": 4, "attn_layer_offset": 2, "expert_layer_period": 2,
        "expert_layer_offset": 1, "num_experts": 4, "num_experts_per_tok": 2, "mamba_d_state": 16, "mamba_expand": 2)"));
    CHECK(jamba.model.window == 128);
    CHECK(jamba.model.experts.every == 2);
    CHECK(says(jamba.left_out, "6 state-space layers"));
    // Nemotron 3: experts, state-space and attention layers of their own.
    const Read nemotron =
        read(sizes(9, R"("layers_block_type": ["mamba", "moe", "mamba", "attention", "moe", "mamba", "moe", "mamba",
        "moe"], "mamba_num_heads": 8, "mamba_head_dim": 32, "ssm_state_size": 16, "n_groups": 1, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 64, "moe_latent_size": 128)"));
    CHECK(nemotron.model.pattern == "MEM*EMEME");
    CHECK(nemotron.model.state_space.heads == 8);
    CHECK(nemotron.model.expert_layers() == 4);
    CHECK(nemotron.model.experts.ffn == 32);
    // Granite 4: experts behind each state-space layer and each attention.
    const Read granite =
        read(sizes(3, R"("model_type": "granitemoehybrid", "layer_types": ["mamba", "attention", "mamba"],
        "mamba_n_heads": 8, "mamba_d_head": 32, "mamba_d_state": 16, "mamba_n_groups": 1, "num_local_experts": 8,
        "num_experts_per_tok": 2, "shared_intermediate_size": 128)"));
    CHECK(granite.model.pattern == "ME*EME");
    CHECK(granite.model.layers == 6);
    CHECK(says(nemotron.left_out, "experts' stream of 128"));
    // Kimi delta attention beside latent attention.
    const Read kimi =
        read(sizes(4, R"("kv_lora_rank": 32, "q_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
        "v_head_dim": 32, "linear_attn_config": {"full_attn_layers": [4], "num_heads": 8, "head_dim": 32})"));
    CHECK(kimi.model.heads == 8);
    CHECK(kimi.model.window == 0);
    CHECK(kimi.model.linear_layers() == 3);
    CHECK(kimi.model.linear.kind == LinearKind::kimi_delta);
    CHECK(kimi.model.linear.key_dim == 32);
    const Read sparse =
        read(sizes(4, R"("kv_lora_rank": 32, "q_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
        "v_head_dim": 32, "index_topk": 512, "index_n_heads": 16, "index_head_dim": 64)"));
    CHECK(sparse.model.indexer.topk == 512);
    CHECK(sparse.model.indexer.heads == 16);
    CHECK(sparse.model.indexer.dim == 64);
    CHECK(sparse.left_out.empty());
    // Compressed keys, of which every second layer chooses; the last ratio is a drafting layer's.
    const Read compressed =
        read(sizes(5, R"("q_lora_rank": 64, "o_lora_rank": 32, "o_groups": 2, "qk_rope_head_dim": 16,
        "head_dim": 64, "sliding_window": 32, "compress_ratios": [0, 4, 128, 4, 128, 0], "index_topk": 96,
        "index_n_heads": 16, "index_head_dim": 64, "hc_mult": 2, "hc_sinkhorn_iters": 5)"));
    CHECK(compressed.model.attention.name() == "compressed");
    CHECK(compressed.model.kv_heads == 1);
    CHECK(compressed.model.window == 32);
    CHECK(compressed.model.windowed_layers() == 3);
    CHECK(says(compressed.assumed, "1 of 5 layers, which have the window alone"));
    CHECK(compressed.left_out.empty());
    // Gemma 4: heads of another width in layers that see everything, and layers that take keys and values of others.
    const Read gemma = read(sizes(6, R"("model_type": "gemma4_text", "head_dim": 32, "global_head_dim": 64,
        "num_global_key_value_heads": 2, "attention_k_eq_v": true, "num_kv_shared_layers": 2,
        "hidden_size_per_layer_input": 16, "sliding_window": 32, "layer_types": ["sliding_attention",
        "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"])"));
    CHECK(gemma.model.attention.name() == "gemma");
    CHECK(gemma.model.full_every == 3);
    CHECK(cached_values(gemma.model, {}) == doctest::Approx(2 * 2 * 64 * 4.0 / 6));
    CHECK(gemma.left_out.empty());
}

TEST_CASE("experts of a config.json stand in the layers that have them") {
    const std::string experts = R"("num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, )";
    const auto of = [&](const std::string& rest) { return read(sizes(6, experts + rest)); };
    CHECK(of(R"("moe_layer_freq": [0, 0, 1, 1, 1, 1])").model.experts.dense_layers == 2);
    CHECK(of(R"("mlp_layer_types": ["dense", "sparse", "sparse", "sparse", "sparse", "sparse"])")
              .model.experts.dense_layers == 1);
    CHECK(of(R"("moe_layers_enum": "3,4,5")").model.experts.dense_layers == 3);
    CHECK(of(R"("decoder_sparse_step": 2, "mlp_only_layers": [])").model.experts.every == 2);
    const Read only = of(R"("mlp_only_layers": [3])");
    CHECK(only.model.experts.dense_layers == 1);
    CHECK(says(only.assumed, "experts in 5 of 6 layers"));
    const Read lists = read(sizes(2, R"("num_experts": 16, "moe_topk": [1, 1], "moe_intermediate_size": [64, 64],
        "num_shared_expert": [1, 1], "n_group": 4, "topk_group": 2)"));
    CHECK(lists.model.experts.topk == 1);
    CHECK(lists.model.experts.shared == 64);
    CHECK(lists.model.experts.group_topk == 2);
    CHECK(read(sizes(2, R"("num_experts": 1, "num_experts_per_tok": 1)")).model.experts.count == 0);
    CHECK(says(of(R"("n_shared_experts": [1, 3, 1, 3, 1, 3])").assumed, "the mean of 'n_shared_experts'"));
}

TEST_CASE("blocks that a search has thinned out keep their weights") {
    const Read nas = read(sizes(3, R"("block_configs": [
        {"attention": {"n_heads_in_group": 4, "no_op": false}, "ffn": {"intermediate_size": 1024, "no_op": false}},
        {"attention": {"no_op": true}, "ffn": {"intermediate_size": 512, "no_op": false}},
        {"attention": {"n_heads_in_group": 4, "no_op": false}, "ffn": {"no_op": true}}])"));
    CHECK(nas.model.layers == 2);
    CHECK(nas.model.ffn == 768);
    CHECK(nas.model.kv_heads == 2);
    CHECK(says(nas.assumed, "of 3 blocks of which 2 have attention"));
}

TEST_CASE("a config.json with layers of unknown kinds is refused at their key") {
    const auto problem = [](const std::string& json) {
        return problems_when([&] { (void)import_file("hf-config", ImportInput::of_bytes("c.json", json)); });
    };
    CHECK(problem("{\"num_hidden_layers\": 1, \"hidden_size\": 8, \"num_attention_heads\": 1, \"vocab_size\": 9,\n"
                  "\"layer_types\": [\"oracle\"]}")
              .find("c.json:2:1: error: 'layer_types' has layers of kind 'oracle', which is not known") !=
          std::string::npos);
    CHECK(problem(sizes(4, R"("layer_types": ["full_attention"])")).find("has 1 layers, and the model 4") !=
          std::string::npos);
    CHECK(problem(sizes(4, R"("hybrid_override_pattern": "MX")")).find("which are not modelled") != std::string::npos);
    CHECK(problem(sizes(1'000'000'000, R"("sliding_window": 4)")).find("at most 10,000 layers") != std::string::npos);
    CHECK(problem(sizes(4, R"("block_configs": [1])")).find("must have an 'attention' and an 'ffn'") !=
          std::string::npos);
    CHECK(problem(R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}})")
              .find("is an hf_quant_config.json") != std::string::npos);
}

TEST_CASE("what a checkpoint leaves in 16 bits tells weights from experts") {
    const std::string experts = R"("num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, )";
    const auto engine = [&](const std::string& stored) {
        std::string out;
        for (const auto& [key, value] : read(sizes(2, experts + "\"quantization_config\": " + stored)).engine) {
            out += key + "=" + value + " ";
        }
        return out;
    };
    CHECK(engine(R"({"quant_algo": "NVFP4", "exclude_modules": ["lm_head", "model.layers.0.self_attn*"]})") ==
          "weights=bf16 experts=fp4 ");
    CHECK(engine(R"({"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]})") == "weights=fp4 experts=fp4 ");
    CHECK(
        engine(
            R"({"config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}}, "ignore": ["re:.*self_attn.*"]})") ==
        "weights=bf16 experts=int4 ");
    CHECK(engine(R"({"quant_method": "fp8", "weight_block_size": [128, 128]})") == "weights=fp8 scaling=block ");
    CHECK(engine(R"({"quant_method": "bitsandbytes", "load_in_8bit": true})") == "weights=int8 ");
}
