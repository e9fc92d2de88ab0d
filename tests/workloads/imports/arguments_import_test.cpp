// Command lines and configurations of other tools as scenarios.

#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/kinds/training.hpp"
#include "tools/driver/scenario.hpp"
#include "workloads/imports/importer.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;
using namespace orrery::test;

namespace {

Scenario imported(const std::string& format, const std::string& text, std::map<std::string, std::string> options = {}) {
    const Imported out = import_file(format, ImportInput::of_bytes("input", text, std::move(options)).with(data()));
    return read_scenario(parse_yaml(out.text, "imported.yaml"), "imported", data());
}

// A Megatron-LM script as they are written: arrays, variables, comments, lines that go on.
constexpr const char* kScript = R"(#!/bin/bash
# GPT-3 175B on 16 nodes
GPUS_PER_NODE=8
NUM_NODES=16
TP=8; DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes ${NUM_NODES:-1} # two sites
)
torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py \
    --tensor-model-parallel-size 8 \
    --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 6 \
    --num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 \
    --micro-batch-size=1 --global-batch-size 512 --recompute-granularity selective \
    --sequence-parallel --use-distributed-optimizer --bf16 --overlap-grad-reduce --lr 6.0e-5 --vocab-file "$DATA/vocab.json"
)";

}  // namespace

TEST_CASE("a Megatron-LM script becomes its model, plan and cluster") {
    const Scenario s = imported("megatron-args", kScript);
    const auto& training = s.as<TrainingKind>();
    CHECK(s.cluster.nodes == 16);
    CHECK(training.model.layers == 96);
    CHECK(training.model.hidden == 12288);
    CHECK(training.model.heads == 96);
    CHECK(training.plan.tensor == 8);
    CHECK(training.plan.pipeline == 4);
    CHECK(training.plan.data == 128 / 32);
    CHECK(training.plan.chunks == 96 / 4 / 6);
    CHECK(training.plan.global_batch == 512);
    CHECK(training.plan.recompute == Recompute::selective);
    CHECK(training.plan.sequence_parallel);
    CHECK(training.plan.zero == 1);
    CHECK(training.plan.overlap_data);
    CHECK(training.plan.loss == LossKernels::separate);
    const auto loss_with = [](const std::string& flags) {
        std::string script = kScript;
        script.replace(script.find("--bf16"), 6, "--bf16 " + flags);
        return imported("megatron-args", script).as<TrainingKind>().plan.loss;
    };
    std::string some = kScript;
    some.replace(some.find("selective"), 9, "full --recompute-method block --recompute-num-layers 4");
    CHECK(imported("megatron-args", some).as<TrainingKind>().plan.recompute_layers == 4);
    CHECK(loss_with("--cross-entropy-loss-fusion") == LossKernels::compiled);
    CHECK(loss_with("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te") == LossKernels::fused);
    const Imported out = import_file("megatron-args", ImportInput::of_bytes("input", kScript));
    CHECK(out.notes.left_out().contains(
        "without effect on time or memory (constants of the optimizer and its schedule): --lr"));
    CHECK(out.notes.left_out().contains("without effect on time or memory (data and its order): --vocab-file"));
    CHECK(imported("megatron-args", kScript, {{"node", "dgx-a100-80g"}}).cluster.node.name.find("A100") !=
          std::string::npos);
}

TEST_CASE("a Megatron-LM script with experts becomes their model and mapping") {
    const Scenario s = imported("megatron-args", R"(torchrun --nnodes 16 --nproc_per_node 8 pretrain_gpt.py
    --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --expert-model-parallel-size 8
    --expert-tensor-parallel-size 1 --num-experts 8 --moe-router-topk 2 --moe-token-dispatcher-type alltoall
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --num-query-groups 8 --swiglu
    --seq-length 4096 --micro-batch-size 1 --global-batch-size 256 --sequence-parallel --bf16)");
    const auto& training = s.as<TrainingKind>();
    CHECK(training.model.experts.count == 8);
    CHECK(training.model.experts.topk == 2);
    CHECK(training.model.experts.ffn == 14336);
    CHECK(training.plan.experts.expert == 8);
    CHECK(training.plan.expert_tensor() == 1);
    CHECK(training.plan.experts.dispatch == TokenDispatch::all_to_all);
}

TEST_CASE("a Megatron-LM script says what the ranks of a sequence exchange") {
    const auto plan = [](const std::string& flags) {
        return imported("megatron-args",
                        "pretrain_gpt.py --num-layers 8 --hidden-size 4096 --num-attention-heads 32 --seq-length 32768 "
                        "--micro-batch-size 1 --global-batch-size 8 --bf16 --context-parallel-size 8 " +
                            flags)
            .as<TrainingKind>()
            .plan;
    };
    CHECK(plan("").context_exchange == ContextExchange::ring);
    CHECK(plan("--cp-comm-type p2p").context_exchange == ContextExchange::ring);
    CHECK(plan("--cp-comm-type all_gather").context_exchange == ContextExchange::all_gather);
    CHECK(plan("--cp-comm-type a2a").context_exchange == ContextExchange::all_to_all);
    const PlanSpec both = plan("--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 4");
    CHECK(both.context_exchange == ContextExchange::hierarchical);
    CHECK(both.context_inner == 2);
}

TEST_CASE("a vLLM command line becomes its engine") {
    const Scenario s = imported("vllm-args",
                                "vllm serve meta-llama/Meta-Llama-3-70B-Instruct --tensor-parallel-size 4 "
                                "--gpu-memory-utilization 0.85 --max-num-seqs 128 --max-num-batched-tokens=4096 "
                                "--max-model-len 8192 --kv-cache-dtype fp8 --quantization fp8 --enable-prefix-caching "
                                "--data-parallel-size 2 --trust-remote-code --port 8000");
    const auto& serving = s.as<ServingKind>();
    CHECK(serving.model.name == "llama-3-70b");
    CHECK(s.cluster.nodes == 1);
    CHECK(serving.engine.mixed.tensor == 4);
    CHECK(serving.engine.mixed.replicas == 2);
    CHECK(serving.engine.memory_fraction == doctest::Approx(0.85));
    CHECK(serving.engine.mixed.scheduler.max_sequences == 128);
    CHECK(serving.engine.mixed.scheduler.token_budget == 4096);
    CHECK(serving.engine.max_context == 8192);
    CHECK(serving.engine.weights == Precision::fp8);
    CHECK(serving.engine.cache == Precision::fp8);
    CHECK(serving.engine.prefix_cache);
    const Scenario small = imported("vllm-args",
                                    "vllm serve llama-3-8b -tp 2\n"
                                    "vllm bench serve --request-rate 4 --random-input-len 512");
    CHECK(small.as<ServingKind>().engine.mixed.tensor == 2);
    CHECK(small.cluster.node.gpus == 2);
    CHECK(small.as<ServingKind>().requests.rate == 4);
    CHECK(small.as<ServingKind>().requests.prompt.mean == 512);
    // The name of a checkpoint says its precision, unless a flag does.
    const Scenario four = imported("vllm-args", "vllm serve Qwen/Qwen3-14B-AWQ --enforce-eager");
    CHECK(four.as<ServingKind>().model.name == "qwen3-14b");
    CHECK(four.as<ServingKind>().engine.weights == Precision::int4);
    CHECK(imported("vllm-args", "vllm serve /models/Qwen3-14B-AWQ -q fp8").as<ServingKind>().engine.weights ==
          Precision::fp8);
    // The plainest command line of all has no flag.
    CHECK(imported("vllm-args", "vllm serve llama-3-8b").as<ServingKind>().engine.mixed.tensor == 1);
}

TEST_CASE("a Hugging Face config.json becomes the model that the preset is") {
    struct Case {
        const char* preset;
        const char* json;
    };
    for (
        const Case& c : {
            Case{"llama-3-70b",
                 R"({"model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64,
                                     "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256,
                                     "max_position_embeddings": 8192, "tie_word_embeddings": false, "rope_theta": 5e5})"},
            Case{"mixtral-8x7b",
                 R"({"model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
                                      "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000,
                                      "max_position_embeddings": 32768, "tie_word_embeddings": false, "sliding_window": null,
                                      "num_local_experts": 8, "num_experts_per_tok": 2})"},
            Case{
                "deepseek-v3",
                R"({"model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
                                     "num_key_value_heads": 128, "intermediate_size": 18432, "vocab_size": 129280,
                                     "max_position_embeddings": 163840, "tie_word_embeddings": false, "n_routed_experts": 256,
                                     "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1,
                                     "first_k_dense_replace": 3, "kv_lora_rank": 512, "q_lora_rank": 1536,
                                     "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128})"},
            Case{"qwen3-32b",
                 R"({"model_type": "qwen3", "num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 64,
                                   "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 25600, "vocab_size": 151936,
                                   "max_position_embeddings": 40960, "tie_word_embeddings": false, "sliding_window": null,
                                   "use_sliding_window": false})"},
            Case{
                "nemotron-h-8b",
                R"({"model_type": "nemotron_h", "num_hidden_layers": 52, "hidden_size": 4096, "num_attention_heads": 32,
                                   "num_key_value_heads": 8, "attention_head_dim": 128, "intermediate_size": 21504,
                                   "vocab_size": 131072, "max_position_embeddings": 8192, "tie_word_embeddings": false,
                                   "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
                                   "mamba_num_heads": 128, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8,
                                   "conv_kernel": 4, "chunk_size": 128, "mlp_hidden_act": "relu2"})"},
        }) {
        const Imported out = import_file("hf-config", ImportInput::of_bytes("config.json", c.json));
        ModelSpec model;
        std::vector<Diagnostic> errors;
        const YamlNode root = parse_yaml(out.text, "model.yaml");
        read_fields(*root.find("model"), data(), errors, [&](Fields& fields) { describe(fields, model); });
        REQUIRE_MESSAGE(errors.empty(), c.preset);
        complete(model);
        ModelSpec preset;
        read_fields(load_yaml(data().path(kModelPresets, c.preset)), data(), errors,
                    [&](Fields& fields) { describe(fields, preset); });
        complete(preset);
        CHECK_MESSAGE(model.parameters() == preset.parameters(), c.preset);
        CHECK_MESSAGE(model.kv_heads == preset.kv_heads, c.preset);
        CHECK_MESSAGE(model.head_dim == preset.head_dim, c.preset);
        CHECK_MESSAGE(model.experts.topk == preset.experts.topk, c.preset);
        CHECK_MESSAGE(model.latent.kv_rank == preset.latent.kv_rank, c.preset);
        CHECK_MESSAGE(model.pattern == preset.pattern, c.preset);
        CHECK_MESSAGE(model.rotary == preset.rotary, c.preset);
        CHECK_MESSAGE(model.query_key_norm == preset.query_key_norm, c.preset);
        CHECK_MESSAGE(model.rotary == preset.rotary, c.preset);
        CHECK_MESSAGE(model.window == preset.window, c.preset);
    }
}

TEST_CASE("a config.json of a model that sees brings its encoder, or says that it is the language model alone") {
    const auto read = [](const std::string& json) {
        const Imported out = import_file("hf-config", ImportInput::of_bytes("config.json", json));
        ModelSpec model;
        std::vector<Diagnostic> errors;
        const YamlNode root = parse_yaml(out.text, "model.yaml");
        read_fields(*root.find("model"), data(), errors, [&](Fields& fields) { describe(fields, model); });
        REQUIRE(errors.empty());
        complete(model);
        return model;
    };
    const std::string text = R"({"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
        "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32064, "max_position_embeddings": 4096,
        "tie_word_embeddings": false})";
    const ModelSpec llava = read(R"({"model_type": "llava", "text_config": )" + text + R"(, "vision_config": {
        "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
        "num_hidden_layers": 24, "image_size": 336, "patch_size": 14}})");
    CHECK(llava.encoder.tokens == 577);
    CHECK(llava.encoder.places() == 576);
    CHECK(llava.encoder.patch_width == 588);
    CHECK(llava.encoder.projector == 4096);
    CHECK(llava.parameters() == doctest::Approx(7'063'427'072.0).epsilon(0.001));
    const ModelSpec internvl = read(R"({"model_type": "internvl_chat", "llm_config": )" + text + R"(, "vision_config": {
        "model_type": "intern_vit_6b", "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
        "num_hidden_layers": 24, "image_size": 448, "patch_size": 14}})");
    CHECK(internvl.encoder.places() == 256);
    CHECK(internvl.encoder.merged == 4);
    const ModelSpec qwen = read(R"({"model_type": "qwen2_5_vl", "text_config": )" + text +
                                R"(, "vision_config": {"depth": 32, "hidden_size": 1280, "patch_size": 14}})");
    CHECK(!qwen.encoder.given());
}

TEST_CASE("a config.json says what of it is not modelled, and is read in the spellings that are in use") {
    const auto read = [](const std::string& json) {
        return import_file("hf-config", ImportInput::of_bytes("config.json", json));
    };
    const auto model_of = [](const Imported& out) {
        ModelSpec model;
        std::vector<Diagnostic> errors;
        const YamlNode root = parse_yaml(out.text, "model.yaml");
        read_fields(*root.find("model"), data(), errors, [&](Fields& fields) { describe(fields, model); });
        REQUIRE(errors.empty());
        complete(model);
        return model;
    };
    const auto leaves_out = [](const Imported& out, const std::string& text) {
        const ImportNotes::Counts& all = out.notes.left_out();
        return std::any_of(all.begin(), all.end(),
                           [&](const auto& note) { return note.first.find(text) != std::string::npos; });
    };
    const std::string sizes =
        R"("num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100)";
    // Layers by kind.
    const Imported windows = read("{" + sizes + R"(, "sliding_window": 8, "layer_types": ["sliding_attention",
        "full_attention", "sliding_attention", "full_attention"]})");
    CHECK(model_of(windows).window == 8);
    CHECK(model_of(windows).full_every == 2);
    CHECK(!leaves_out(windows, "layer_types"));
    const Imported linear = read("{" + sizes + R"(, "full_attention_interval": 4, "linear_num_value_heads": 32,
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"]})");
    CHECK(model_of(linear).linear.value_heads == 32);
    CHECK(model_of(linear).full_every == 4);
    CHECK(
        leaves_out(read("{" + sizes + R"(, "index_topk": 2048})"), "'index_topk', which is not modelled: the indexer"));
    CHECK(leaves_out(read("{" + sizes + R"(, "novelty": 1})"), "'novelty', which is not understood"));
    CHECK(!leaves_out(read("{" + sizes + R"(, "novelty": false, "rope_theta": 10000})"), "not understood"));
    // Experts in every second layer, beside one that all tokens see.
    const ModelSpec interleaved = model_of(read(R"({"text_config": {"model_type": "llama4_text", )" + sizes +
                                                R"(, "interleave_moe_layer_step": 2, "intermediate_size": 32,
        "intermediate_size_mlp": 128, "num_local_experts": 8, "num_experts_per_tok": 1}})"));
    CHECK(interleaved.experts.every == 2);
    CHECK(interleaved.experts.ffn == 32);
    CHECK(interleaved.experts.shared == 32);
    CHECK(interleaved.ffn == 128);
    CHECK(!interleaved.tied_embeddings);
    const ModelSpec spelled = model_of(read("{" + sizes + R"(, "num_experts": 8, "num_experts_per_token": 2,
        "num_shared_experts": 1, "moe_intermediate_size": 16})"));
    CHECK(spelled.experts.topk == 2);
    CHECK(spelled.experts.shared == 16);
    // The root says of the whole model what its language part does not.
    CHECK(!model_of(read(R"({"tie_word_embeddings": false, "text_config": {)" + sizes + "}}")).tied_embeddings);
    // Python's numbers, and what a checkpoint stores.
    CHECK(model_of(read("{" + sizes + R"(, "time_step_limit": [0.0, Infinity, -Infinity, NaN]})")).layers == 4);
    const std::vector<std::pair<const char*, const char*>> formats = {
        {R"({"quant_method": "fp8", "weight_block_size": [128, 128]})", "fp8 (engine: {weights: fp8})"},
        {R"({"quant_method": "mxfp4"})", "mxfp4 (engine: {weights: bf16, experts: fp4})"},
        {R"({"quant_method": "awq", "bits": 4})", "awq (engine: {weights: int4})"},
        {R"({"quant_method": "gptq", "bits": 8})", "gptq (engine: {weights: int8})"},
        {R"({"quant_algo": "NVFP4", "quant_method": "modelopt"})", "modelopt (engine: {weights: fp4})"},
        {R"({"quant_method": "aqlm"})", "aqlm (not known here: weights count with 16 bits"}};
    for (const auto& [stored, said] : formats) {
        CHECK_MESSAGE(leaves_out(read("{" + sizes + R"(, "quantization_config": )" + stored + "}"), said),
                      std::string(stored));
    }
}

TEST_CASE("arguments and configurations that say too little or nothing are refused by name") {
    const std::vector<std::tuple<const char*, const char*, const char*>> cases = {
        {"megatron-args", "", "input:1:1: error: expected a command with flags"},
        {"megatron-args", "--hidden-size 12", "input:1:1: error: --num-layers is missing"},
        {"megatron-args", "pretrain.py \\\n  --hidden-size 64 --num-layers many",
         "input:2:20: error: --num-layers must be a whole number"},
        {"megatron-args",
         "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --nnodes 1 "
         "--tensor-model-parallel-size 3",
         "input:1:84: error: tensor 3 x pipeline 1 x context 1 does not divide 8 GPUs"},
        {"megatron-args",
         "--hybrid-override-pattern ME --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64",
         "input:1:1: error: a pattern of M, * and - can be described, not 'ME'"},
        {"megatron-args", "--vision-model-type clip --num-layers 2", "write 'model.encoder'"},
        {"hf-config",
         R"({"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 1, "vocab_size": 9,
             "hybrid_override_pattern": "MX"})",
         "input:2:14: error: the pattern of layers has others than state-space (M)"},
        {"vllm-args", "--tensor-parallel-size 2", "input:1:1: error: names no model"},
        {"vllm-args", "vllm serve ... --tensor-parallel-size 2", "input:1:12: error: names no model"},
        {"vllm-args", "# a\nvllm serve llama-3-8b --tensor-parallel-size 0",
         "input:2:23: error: --tensor-parallel-size must be a whole"},
        {"hf-config", "[]", "input:1:1: error: is no JSON object"},
        {"hf-config", "{\"hidden_size\": 1", "input:1:18: error: is no JSON: "},
        {"hf-config", "{\"hidden_size\": 64}", "input:1:1: error: 'num_hidden_layers' is missing"},
        {"hf-config", "{\n\"num_hidden_layers\": \"x\"}",
         "input:2:1: error: 'num_hidden_layers' must be a whole number"},
    };
    for (const auto& [format, text, expected] : cases) {
        std::string said;
        try {
            (void)import_file(format, ImportInput::of_bytes("input", text).with(data()));
        } catch (const ConfigError& error) {
            said = error.what();
        }
        const std::string given = fmt::format("{}: {}", format, text);
        CHECK_MESSAGE(said.find(expected) != std::string::npos, given << "\n" << said);
    }
}

TEST_CASE("variables of a script that grow by each other, and degrees beyond any cluster, are refused at their place") {
    std::string script = "A0=xxxxxxxxxx\n";
    for (int i = 1; i < 14; ++i) {
        script += fmt::format("A{}=", i);
        for (int k = 0; k < 10; ++k) {
            script += fmt::format("$A{}", i - 1);
        }
        script += "\n";
    }
    const auto refusal_of = [](const std::string& format, const std::string& text) {
        return problems_when([&] { (void)import_file(format, ImportInput::of_bytes("input", text).with(data())); });
    };
    CHECK(refusal_of("megatron-args", script + "torchrun p.py --num-layers $A13\n")
              .find("input:8:1: error: the variables of the script expand to more than 16 MiB") == 0);
    CHECK(refusal_of("vllm-args", "vllm serve llama-3-8b --tp 1000000000000 --pp 1000000000000\n")
              .find("input:1:23: error: --tp must be a whole number from 1 to 65536") == 0);
}

TEST_CASE("JSON that nests without end is refused by every importer of JSON") {
    const std::string deep(1000000, '[');
    for (const char* format : {"hf-config", "otlp", "pytorch-profiler"}) {
        CAPTURE(format);
        CHECK(problems_when([&] { (void)import_file(format, ImportInput::of_bytes("input", deep)); })
                  .find(std::string(format) == "hf-config" ? "input:1:65: error: is nested deeper than 64 levels"
                                                           : "is nested deeper than 64 levels") != std::string::npos);
    }
    // Brackets in words do not nest.
    CHECK(problems_when([&] {
              (void)import_file("hf-config", ImportInput::of_bytes("input", "{\"a\": \"\\\"" + deep + "\"}"));
          }).find("nested") == std::string::npos);
}
