// Megatron-LM scripts as people write them: the shell around the flags, lists, and what each flag becomes.

#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/scenario.hpp"
#include "workloads/imports/importer.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;
using namespace orrery::test;

namespace {

constexpr const char* kModel =
    " --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --global-batch-size 256 "
    "--hidden-dropout 0 --attention-dropout 0 --vocab-size 32000 --bf16 ";

Imported import_script(const std::string& text, std::map<std::string, std::string> options = {}) {
    return import_file("megatron-args", ImportInput::of_bytes("run.sh", text, std::move(options)));
}

// The scenario of a script, which must be one that runs.
std::string scenario_of(const std::string& text) {
    const Imported out = import_script(text);
    (void)read_scenario(parse_yaml(out.text, "imported.yaml"), "imported", data());
    return out.text;
}

std::string with_flags(const std::string& flags) {
    return scenario_of("torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py" + std::string(kModel) + flags);
}

bool says(const std::string& text, const std::string& line) {
    return text.find("  " + line + "\n") != std::string::npos;
}

std::string problem_of(const std::string& text) {
    try {
        (void)import_script(text);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "none";
}

bool names(const ImportNotes::Counts& counts, const std::string& part) {
    return std::any_of(counts.begin(), counts.end(),
                       [&](const auto& entry) { return entry.first.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("flags of a Megatron-LM script may stand in strings, quoted pairs and branches") {
    const std::string text = scenario_of(R"(#!/bin/bash
#SBATCH --nodes=4 --gpus-per-node=8
MODEL_SIZE=${1:-8B}
if [ $MODEL_SIZE = 8B ]; then NUM_LAYERS=32; HIDDEN=4096; else NUM_LAYERS=80; HIDDEN=8192; fi
TP=4; PP=2
GPT_ARGS="
    --num-layers $NUM_LAYERS --hidden-size ${HIDDEN} \
    --num-attention-heads 32 --seq-length 4096 --vocab-size 32000 --hidden-dropout 0.0 --attention-dropout 0.0"
PLAN_ARGS=(
    "--tensor-model-parallel-size $TP"
    "--pipeline-model-parallel-size $PP"
)
GPT_ARGS="$GPT_ARGS --global-batch-size $(( TP * PP * 32 )) --micro-batch 2 --bf16"
python tools/preprocess_data.py --input x --workers 8
srun -l bash -c "python -u pretrain_gpt.py ${GPT_ARGS} ${PLAN_ARGS[@]} --save $OUT"
)");
    CHECK(says(text, "nodes: 4"));
    CHECK(says(text, "layers: 32"));
    CHECK(says(text, "tensor: 4"));
    CHECK(says(text, "pipeline: 2"));
    CHECK(says(text, "global_batch: 256"));
    CHECK(says(text, "micro_batch: 2"));  // by a prefix, as argparse takes it
    CHECK(scenario_of("ARGS=\"" + std::string(kModel) + "\"\n").find("layers: 32") != std::string::npos);
}

TEST_CASE("flags of Megatron-LM's test cases stand in YAML") {
    const std::string text = scenario_of(
        "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\nTEST_TYPE: regular\nMODEL_ARGS:\n  --num-layers: 12\n  "
        "--hidden-size: 512\n"
        "  --num-attention-heads: 8\n  --seq-length: 1024\n  --micro-batch-size: 4\n  --bf16: true\n  "
        "--sequence-parallel: false\n"
        "  --tensor-model-parallel-size: 2\n");
    CHECK(says(text, "layers: 12"));
    CHECK(says(text, "micro_batch: 4"));
    CHECK(says(text, "precision: bf16"));
    CHECK(text.find("sequence_parallel") == std::string::npos);
}

TEST_CASE("lists of a Megatron-LM script choose layers with experts and windows") {
    const std::string experts = "--num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 1408 ";
    const auto moe = [&](const std::string& list) { return with_flags(experts + "--moe-layer-freq " + list); };
    CHECK(moe("'([0]*1+[1]*31)'").find("ffn: 1408, dense_layers: 1}") != std::string::npos);
    CHECK(moe("[0,1]*16").find("ffn: 1408, every: 2}") != std::string::npos);
    CHECK(moe("1").find("ffn: 1408}") != std::string::npos);
    CHECK(with_flags("--num-experts 8 --topk 1 --moe-expert-parallel-size 2 --ffn-hidden-size 1408")
              .find("count: 8, topk: 1, ffn: 1408") != std::string::npos);
    CHECK(with_flags("--num-experts 1 --topk 2").find("experts") == std::string::npos);
    CHECK(moe("4").find("ffn: 1408, every: 4}") != std::string::npos);
    const std::string run = "pretrain_gpt.py" + std::string(kModel) + experts;
    CHECK(problem_of(run + "--moe-layer-freq [1]*31").find("lists 31 layers, and the model has 32") !=
          std::string::npos);
    CHECK(problem_of(run + "--moe-layer-freq '[1]*16+[0]*16'").find("run.sh:1:") != std::string::npos);
    CHECK(problem_of(run + "--moe-layer-freq '[1'").find("not '[1'") != std::string::npos);
    CHECK(says(with_flags("--window-size '(127,0)' --window-attn-skip-freq 2"), "full_every: 2"));
    CHECK(says(with_flags("--window-size 128,0 --window-attn-skip-freq '[1,0]*16'"), "window: 128"));
}

TEST_CASE("flags of a Megatron-LM script become keys") {
    struct Case {
        const char* flags;
        const char* line;
    };
    for (const Case& c : {
             Case{"", "gradient_precision: fp32"},
             Case{"--grad-reduce-in-bf16", "gradient_precision: bf16"},
             Case{"--use-distributed-optimizer --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype "
                  "bf16",
                  "optimizer_types: {master: fp32, first_moment: bf16, second_moment: bf16, remainders: true}"},
             Case{"--use-precision-aware-optimizer --main-params-dtype fp16 --exp-avg-sq-dtype fp8",
                  "optimizer_types: {master: fp16, first_moment: fp32, second_moment: fp8}"},
             Case{"--fp8-format hybrid", "precision: fp8"},
             Case{"--fp8-format hybrid --fp8-recipe tensorwise", "fp8_scaling: current"},
             Case{"--fp8-format e4m3 --fp8-recipe mxfp8", "fp8_scaling: block"},
             Case{"--tensor-model-parallel-size 4 --sequence-parallel --tp-comm-overlap", "overlap: {tensor: full}"},
             Case{"--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
                  "overlap: {data: true, parameters: true}"},
             Case{"--recompute-granularity selective --recompute-modules core_attn mlp layernorm",
                  "recompute_modules: \"attention,ffn,norm\""},
             Case{"--recompute-granularity selective --recompute-modules core_attn", "recompute: selective"},
             Case{"--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 7 "
                  "--decoder-last-pipeline-num-layers 7",
                  "stages: [{layers: 7}, {layers: 9}, {layers: 9}, {layers: 7}]"},
             Case{"--pipeline-model-parallel-size 2 --account-for-embedding-in-pipeline-split "
                  "--account-for-loss-in-pipeline-split",
                  "stages: [{layers: 16}, {layers: 16}]"},
             Case{"--num-layers 30 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4 "
                  "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
                  "stages: [{layers: 3}, {layers: 4}, {layers: 4}, {layers: 4}, {layers: 4}, {layers: 4}, {layers: 4}, "
                  "{layers: 3}]"},
             Case{"--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*9|(t*8|)*2t*7L'", "chunks: 2"},
             Case{"--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 4",
                  "overlap: {pipeline: true}"},
             Case{"--qk-layernorm", "query_key_norm: heads"},
             Case{"--window-size 1024", "window: 1024"},
             Case{"--group-query-attention --num-query-groups 8", "kv_heads: 8"},
             Case{"--tensor-model-parallel-size 8", "vocabulary: 32768"},
             Case{"--disable-bias-linear --attention-backend unfused", "attention: unfused"},
             Case{"--multi-latent-attention --kv-lora-rank 512 --q-lora-rank 1536",
                  "latent: {kv_rank: 512, q_rank: 1536, rotary: 64, value_dim: 128}"},
             Case{"--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", "zero: 3"},
             Case{"--use-torch-fsdp2 --optimizer-cpu-offload --optimizer-offload-fraction 0.5",
                  "offload: {optimizer: {tier: dram, fraction: 0.5}}"},
         }) {
        CAPTURE(c.flags);
        const std::string text = with_flags(c.flags);
        CAPTURE(text);
        CHECK(says(text, c.line));
    }
    CHECK(with_flags("--no-gradient-accumulation-fusion --cuda-graph-impl local")
              .find("software: {preset: megatron-core-2024, graphs: layers, fused_gradient_accumulation: false}") !=
          std::string::npos);
    const std::string narrow = "pretrain_gpt.py" + std::string(kModel);
    CHECK(says(scenario_of(narrow.substr(0, narrow.find("--bf16")) + "--fp16"), "gradient_precision: fp16"));
}

TEST_CASE("a tokenizer that a Megatron-LM script names gives its vocabulary") {
    const std::string model =
        "pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --bf16 ";
    CHECK(says(
        import_script(model + "--tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Llama-3.1-8B").text,
        "vocabulary: 128256"));
    CHECK(says(import_script(model + "--patch-tokenizer-type Qwen2Tokenizer --extra-vocab-size 421").text,
               "vocabulary: 152064"));
    CHECK(says(import_script(model + "--tokenizer-type Llama2Tokenizer --tokenizer-model /x/tokenizer.model").text,
               "vocabulary: 32000"));
}

TEST_CASE("every flag of a Megatron-LM script is taken, explained or called not understood") {
    const Imported out = import_script("torchrun --nnodes 1 pretrain_gpt.py" + std::string(kModel) +
                                       "--pipeline-model-parallel-size 2 --optimizer-cpu-offload --mtp-num-layers 1 "
                                       "--deterministic-mode --save /x --fly-to-the-moon 3 --recompute-granularity "
                                       "selective --recompute-modules core_attn mla_up_proj");
    const ImportNotes::Counts& left = out.notes.left_out();
    CHECK(left.contains("not understood: --fly-to-the-moon"));
    CHECK(names(left, "not modelled (heads that predict further tokens"));
    CHECK(names(left, "deterministic kernels"));
    CHECK(names(left, "memory of GPUs is overstated"));
    CHECK(names(left, "--recompute-modules mla_up_proj"));
    CHECK(names(left, "checkpoints, whose time 'faults.checkpoint' models): --save"));
}

TEST_CASE("a layout with a stage that predicts further tokens alone gives the model that layer") {
    const std::string text = with_flags(
        "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et*3|t*14|t*15|mL' --mtp-num-layers 1");
    CHECK_MESSAGE(says(text, "layers: 33"), text);
    CHECK_MESSAGE(text.find("stages: [{layers: 3}, {layers: 14}, {layers: 15}, {layers: 1}]") != std::string::npos,
                  text);
}

TEST_CASE("the activation function of experts is computed again without the dense layers' feed-forward") {
    const Imported out = import_script("torchrun --nnodes 1 pretrain_gpt.py" + std::string(kModel) +
                                       "--recompute-granularity selective --recompute-modules mlp moe_act");
    CHECK(out.text.find("recompute_modules: \"activation\"") != std::string::npos);
    CHECK(names(out.notes.left_out(), "--recompute-modules mlp, of dense layers alone"));
}

TEST_CASE("an encoder with a decoder is refused at its flag") {
    CHECK(problem_of("pretrain_t5.py --encoder-num-layers 12 --decoder-num-layers 12 --hidden-size 64 "
                     "--num-attention-heads 4")
              .find("run.sh:1:40: error: --decoder-num-layers is of an encoder with a decoder") == 0);
}

TEST_CASE("a script that is none, is cut or lacks a value says what was expected") {
    CHECK(problem_of("").find("expected a command with flags") != std::string::npos);
    CHECK(problem_of("{\"a\": 1}").find("run.sh:1:1: error: expected a command with flags") != std::string::npos);
    CHECK(problem_of("pretrain_gpt.py --hidden-size 4096").find("--num-layers is missing") != std::string::npos);
    CHECK(
        problem_of("pretrain_gpt.py \\\n  --num-layers $LAYERS --hidden-size 4096")
            .find(
                "run.sh:2:3: error: --num-layers must be a whole number from 1 to 1000000000000, not '$LAYERS', which "
                "the script does not set") != std::string::npos);
    CHECK(says(import_script(
                   "NL=${1}; pretrain_gpt.py --num-layers $NL --hidden-size 64 --num-attention-heads 4 --seq-length 64",
                   {{"variables", "1=24 X=y"}})
                   .text,
               "layers: 24"));
    CHECK_THROWS_WITH_AS((void)import_script("pretrain_gpt.py --num-layers 2", {{"variables", "24"}}),
                         doctest::Contains("--variables takes NAME=VALUE"), ConfigError);
    CHECK(problem_of("vllm serve x --tensor-parallel-size 8").find("--num-layers is missing") != std::string::npos);
}

TEST_CASE("without a number of GPUs there are as many as attention and experts both fill") {
    const std::string line =
        "torchrun pretrain_gpt.py --num-layers 8 --hidden-size 1024 --num-attention-heads 8 --seq-length 1024 "
        "--max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 32 --vocab-size 1024 --bf16 "
        "--num-experts 16 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 "
        "--expert-model-parallel-size 4";
    const auto text = [](const std::string& given) {
        return import_file("megatron-args", ImportInput::of_bytes("run.sh", given).with(data())).text;
    };
    CHECK_MESSAGE(text(line).find("nodes: 4") != std::string::npos, text(line));  // experts are cut over 4 ranks each
    CHECK(text(line + " --expert-tensor-parallel-size 1").find("nodes: 1") != std::string::npos);
}
