// Configurations of torchtitan, DeepSpeed, NeMo and Megatron-Bridge as training scenarios.

#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/scenario.hpp"
#include "workloads/imports/importer.hpp"
#include "workloads/imports/toml_text.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;
using namespace orrery::test;

namespace {

Imported import_text(const std::string& format, const std::string& text,
                     std::map<std::string, std::string> options = {}) {
    return import_file(format, ImportInput::of_bytes("config", text, std::move(options)));
}

// The scenario of a file, which must be one that runs.
std::string scenario_of(const std::string& format, const std::string& text,
                        std::map<std::string, std::string> options = {}) {
    const Imported out = import_text(format, text, std::move(options));
    (void)read_scenario(parse_yaml(out.text, "imported.yaml"), "imported", data());
    return out.text;
}

bool says(const std::string& text, const std::string& line) {
    return text.find(line + "\n") != std::string::npos;
}

std::string problem_of(const std::string& format, const std::string& text,
                       std::map<std::string, std::string> options = {}) {
    return problems_when([&] { return import_text(format, text, std::move(options)); });
}

bool names(const ImportNotes::Counts& counts, const std::string& part) {
    return std::any_of(counts.begin(), counts.end(),
                       [&](const auto& entry) { return entry.first.find(part) != std::string::npos; });
}

constexpr const char* kTitan = R"([model]
name = "llama3"
flavor = "70B" # a comment
converters = ["float8"]
[optimizer]
name = "AdamW"
lr = 8e-4
[training]
local_batch_size = 2
seq_len = 8_192
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
enable_async_tensor_parallel = true
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
[compile]
enable = true
[quantize.linear.float8]
enable_fsdp_float8_all_gather = true
[what]
is.this = {a = 1, b = [1, 2]}
)";

constexpr const char* kNemo = R"(trainer:
  devices: 8
  num_nodes: 4
  precision: bf16
  max_steps: 100
model:
  micro_batch_size: 1
  global_batch_size: 128
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: 4
  encoder_seq_length: 4096
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 32
  num_query_groups: 8
  activation: fast-swiglu
  bias: False
  share_embeddings_and_output_weights: False
  sequence_parallel: True
  activations_checkpoint_granularity: full
  activations_checkpoint_method: block
  activations_checkpoint_num_layers: 1
  ub_tp_comm_overlap: true
  fp8: true
  fp8_hybrid: true
  new_attention_of_tomorrow: 3
  optim: {name: distributed_fused_adam, lr: 1e-4, overlap_grad_sync: true}
)";

}  // namespace

TEST_CASE("a torchtitan configuration becomes its model, mesh and precision") {
    const std::string text = scenario_of("torchtitan", kTitan, {{"gpus", "64"}});
    CHECK(says(text, "model: {preset: llama-3.1-70b, sequence: 8192}"));
    for (const char* line :
         {"nodes: 8", "tensor: 8", "data: 8", "micro_batch: 2", "global_batch: 16", "recompute: half",
          "sequence_parallel: true", "zero: 3", "shard: 4", "sharding: {weight_bits: 8}", "precision: fp8",
          "fp8_scaling: current", "gradient_precision: fp32", "fusion: fused", "overlap: {data: true, tensor: full}",
          "software: pytorch-fsdp2"}) {
        CHECK_MESSAGE(says(text, line), line << "\n" << text);
    }
    const Imported out = import_text("torchtitan", kTitan);
    CHECK(names(out.notes.assumed(), "16 GPUs"));
    CHECK(out.notes.left_out().contains("not understood: what.is.this.a, what.is.this.b"));
    CHECK(names(out.notes.left_out(), "constants of the optimizer and its schedule): optimizer.lr"));
}

TEST_CASE("a torchtitan configuration that is none or names no preset says so at its place") {
    CHECK(problem_of("torchtitan", "").find("config:1:1: error: expected [model] with name and flavor") == 0);
    CHECK(problem_of("torchtitan", "{\"a\": 1}")
              .find("config:1:1: error: is no TOML: expected a key, and found '{\"a\": 1}'") == 0);
    CHECK(
        problem_of("torchtitan", "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n")
            .find("config:3:1: error: model 'llama3' of flavor 'debugmodel' has no preset (there are 8B, 70B, 405B)") ==
        0);
    CHECK(
        problem_of("torchtitan", "[model]\nname = llama3\n").find("config:2:8: error: is no TOML: expected a value") ==
        0);
    CHECK(problem_of("torchtitan", "[model\n")
              .find("config:1:7: error: is no TOML: expected ']', and found the end of the line") == 0);
    CHECK(problem_of("torchtitan", "a = [1,")
              .find("config:1:8: error: is no TOML: expected ']', and found the end of the file") == 0);
    CHECK(problem_of("torchtitan", "a = 1\na = 2\n").find("config:2:1: error: 'a' comes twice") == 0);
    CHECK(problem_of("torchtitan", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = \"long\"\n")
              .find("config:5:1: error: expected 'training.seq_len' to be a whole number") == 0);
    CHECK(problem_of("torchtitan", std::string("a = ") + std::string(5000, '[')).find("at most 64 levels") !=
          std::string::npos);
}

TEST_CASE("a DeepSpeed configuration takes model and batch from the line beside it") {
    const std::string zero =
        R"({"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3, "overlap_comm": true,
        "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto"}, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "odd": 1})";
    const std::string line =
        "deepspeed --num_gpus 4 train.py --model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 2 "
        "--gradient_accumulation_steps 8 --gradient_checkpointing True --bf16 True --max_seq_length 4096 "
        "--learning_rate 1e-5";
    const std::string text = scenario_of("deepspeed", zero, {{"line", line}});
    CHECK(says(text, "model: {preset: meta-llama/Llama-2-7b-hf, sequence: 4096}"));
    for (const char* expected : {"node: {preset: dgx-h100, gpus: 4}", "data: 4", "micro_batch: 2", "global_batch: 64",
                                 "recompute: full", "zero: 3", "precision: bf16", "overlap: {data: true}"}) {
        CHECK_MESSAGE(says(text, expected), expected << "\n" << text);
    }
    const Imported out = import_text("deepspeed", zero, {{"line", line}});
    CHECK(out.notes.left_out().contains("not understood: odd"));
    CHECK(names(out.notes.left_out(), "sizes of buckets"));
    CHECK(
        says(scenario_of("deepspeed",
                         R"({"fp16":{"enabled":true},"zero_optimization":{"stage":3},"train_micro_batch_size_per_gpu":1,
                               "gradient_accumulation_steps":2})",
                         {{"model", "llama-3-8b"}, {"gpus", "16"}}),
             "global_batch: 32"));
    const std::string offload =
        scenario_of("deepspeed", R"({"bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "nvme"}}})",
                    {{"model", "llama-2-7b"}});
    CHECK(says(offload, "offload: {optimizer: {tier: dram}, gradients: {tier: dram}, parameters: {tier: nvme}}"));
    CHECK(says(text, "software: deepspeed"));
    CHECK(says(scenario_of("deepspeed",
                           R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "reduce_bucket_size": 2e8},
                               "train_micro_batch_size_per_gpu": 1})",
                           {{"model", "llama-2-7b"}}),
               "software: {preset: deepspeed, gradient_bucket: {value: 200000000, how: spec, source: "
               "reduce_bucket_size}}"));
    const std::string lora = scenario_of(
        "deepspeed", zero, {{"line", line + " --finetuning_type lora --lora_rank 16 --lora_target q_proj,v_proj"}});
    CHECK(says(lora, "adapters: {rank: 16, modules: \"query,value\"}"));
}

TEST_CASE("a DeepSpeed configuration that is none or lacks something says what was expected") {
    CHECK(problem_of("deepspeed", "{\"a\": 1}").find("config:1:2: error: expected keys of DeepSpeed") == 0);
    CHECK(problem_of("deepspeed", "{\"zero_optimization\": {").find("expected a DeepSpeed configuration in JSON") !=
          std::string::npos);
    CHECK(problem_of("deepspeed", "{\"zero_optimization\": {\"stage\": 3}}").find("names no model: --model NAME") !=
          std::string::npos);
    CHECK(problem_of("deepspeed", "{\"zero_optimization\": {\"stage\": 7}}", {{"model", "llama-2-7b"}})
              .find("expected 'zero_optimization.stage' to be a whole number from 0 to 3, and found '7'") !=
          std::string::npos);
    CHECK(problem_of("deepspeed", "").find("config:1:1: error: expected a DeepSpeed configuration in JSON") == 0);
    CHECK(problem_of("deepspeed", R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": "big"}})",
                     {{"model", "llama-2-7b"}})
              .find("config:1:36: error: expected 'zero_optimization.reduce_bucket_size' to be a number of elements") ==
          0);
    CHECK(problem_of("deepspeed", "python train.py --deepspeed none.json")
              .find("config:1:17: error: names 'none.json'") == 0);
    CHECK(problem_of(
              "deepspeed",
              "{\"train_batch_size\": 30, \"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 1}",
              {{"model", "llama-2-7b"}, {"gpus", "8"}})
              .find("train_batch_size 30 is not micro-batch 4 x 1") != std::string::npos);
}

TEST_CASE("a NeMo configuration becomes what its Megatron-Core arguments would") {
    const std::string text = scenario_of("nemo", kNemo);
    for (const char* line : {"nodes: 4",
                             "layers: 32",
                             "kv_heads: 8",
                             "gated: true",
                             "tied_embeddings: false",
                             "sequence: 4096",
                             "tensor: 4",
                             "pipeline: 2",
                             "data: 4",
                             "global_batch: 128",
                             "schedule: interleaved",
                             "chunks: 4",
                             "recompute: full",
                             "recompute_layers: 1",
                             "sequence_parallel: true",
                             "zero: 1",
                             "precision: fp8",
                             "gradient_precision: fp32",
                             "loss: compiled",
                             "overlap: {tensor: full, pipeline: true, data: true}"}) {
        CHECK_MESSAGE(says(text, line), line << "\n" << text);
    }
    CHECK(text.find("biases") == std::string::npos);
    CHECK(text.find("  ffn:") == std::string::npos);
    const Imported out = import_text("nemo", kNemo);
    CHECK(out.notes.left_out().contains("not understood: model.new_attention_of_tomorrow"));
    CHECK(names(out.notes.left_out(), "length of the run and evaluation): trainer.max_steps"));
}

TEST_CASE("a Megatron-Bridge configuration becomes what its Megatron-Core arguments would") {
    const std::string text = scenario_of("nemo", R"(model:
  _target_: megatron.bridge.models.gpt_provider.GPTModelProvider
  num_layers: 24
  hidden_size: 2048
  num_attention_heads: 16
  seq_length: 4096
  num_moe_experts: 64
  moe_router_topk: 8
  moe_ffn_hidden_size: 1024
  moe_layer_freq: [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
  moe_token_dispatcher_type: alltoall
  expert_model_parallel_size: 8
  gated_linear_unit: true
  add_bias_linear: false
  qk_layernorm: true
  vocab_size: 50304
train: {micro_batch_size: 2, global_batch_size: 64, train_iters: 10}
ddp: {use_distributed_optimizer: true, overlap_grad_reduce: true, grad_reduce_in_fp32: false}
mixed_precision: bf16_with_mxfp8_mixed
comm_overlap: {tp_comm_overlap: false}
)",
                                         {{"gpus", "8"}});
    for (const char* line : {"experts: {count: 64, topk: 8, ffn: 1024, dense_layers: 1}", "query_key_norm: heads",
                             "micro_batch: 2", "global_batch: 64", "expert: 8", "zero: 1", "fp8_scaling: block",
                             "gradient_precision: bf16", "overlap: {data: true}"}) {
        CHECK_MESSAGE(says(text, line), line << "\n" << text);
    }
}

TEST_CASE("overrides on a command line are a configuration of Megatron-Bridge") {
    const std::string text =
        scenario_of("nemo",
                    "torchrun --nproc-per-node=8 pretrain.py \\\n  model.num_layers=32 model.hidden_size=4096 "
                    "+model.num_attention_heads=32 train.global_batch_size=128 dataset.sequence_length=4096\n",
                    {{"gpus", "8"}});
    CHECK(says(text, "layers: 32"));
    CHECK(says(text, "global_batch: 128"));
    CHECK(says(text, "sequence: 4096"));
}

TEST_CASE("a NeMo configuration that is none or is wrong says what was expected and where") {
    CHECK(problem_of("nemo", "").find("config:1:1: error: expected 'model' and 'trainer' of NeMo") == 0);
    CHECK(problem_of("nemo", "model: {hidden_size: 3}").find("expected 'model.num_layers'") != std::string::npos);
    std::string wrong = kNemo;
    wrong.replace(wrong.find("hidden_size: 4096"), 17, "hidden_size: wide");
    CHECK(problem_of("nemo", wrong).find("config:15:3: error: --hidden-size must be a whole number") == 0);
    CHECK(problem_of("nemo", "model: [1").find("config:") == 0);
}

TEST_CASE("a recipe of NeMo Automodel becomes its model under FSDP2") {
    const std::string recipe = R"(recipe: TrainFinetuneRecipeForNextTokenPrediction
step_scheduler: {global_batch_size: 64, local_batch_size: 2, max_steps: 50}
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: meta-llama/Llama-3.1-8B
  new_thing: 1
distributed:
  _target_: nemo_automodel.components.distributed.fsdp2.FSDP2Manager
  dp_size: none
  tp_size: 2
  cp_size: 1
  sequence_parallel: true
  activation_checkpointing: true
packed_sequence: {packed_sequence_size: 2048}
optimizer: {_target_: torch.optim.AdamW, lr: 1.0e-5}
)";
    const std::string text = scenario_of("automodel", recipe);
    for (const char* line : {"model: {preset: meta-llama/Llama-3.1-8B, sequence: 2048}", "nodes: 1", "tensor: 2",
                             "data: 4", "micro_batch: 2", "global_batch: 64", "recompute: full",
                             "sequence_parallel: true", "zero: 3", "precision: bf16"}) {
        CHECK_MESSAGE(says(text, line), line << "\n" << text);
    }
    CHECK(import_text("automodel", recipe).notes.left_out().contains("not understood: model.new_thing"));
    CHECK(problem_of("automodel", "a: 1").find("config:1:1: error: expected 'model.pretrained_model_name_or_path'") ==
          0);
    CHECK(problem_of("automodel", recipe, {{"gpus", "3"}})
              .find("config:10:3: error: tensor 2 x context 1 x pipeline 1 does not divide 3 GPUs") == 0);
}

TEST_CASE("overrides of verl and NeMo-RL become steps of reinforcement learning") {
    const auto read = [](const std::string& text) {
        return import_file("rl-config", ImportInput::of_bytes("run.sh", text).with(data())).text;
    };
    const auto says = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
    const std::string verl =
        "N=2\npython3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=64 \\\n"
        "  data.max_prompt_length=512 data.max_response_length=1024 \\\n"
        "  actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.actor.ppo_mini_batch_size=32 \\\n"
        "  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 actor_rollout_ref.actor.use_kl_loss=True \\\n"
        "  actor_rollout_ref.rollout.tensor_model_parallel_size=2 actor_rollout_ref.rollout.n=4 \\\n"
        "  trainer.n_gpus_per_node=8 trainer.nnodes=$N $@";
    const std::string text = read(verl);
    for (const char* part :
         {"kind: rl", "cluster: {nodes: 2", "algorithm: grpo", "prompts: 64, samples: 4", "replicas: 8, tensor: 2",
          "most: 1024", "role: reference", "data: 16, micro_batch: 2, global_batch: 128", "zero: 3"}) {
        CHECK_MESSAGE(says(text, part), std::string(part) << "\n" << text);
    }
    CHECK(says(text, "zero: 3, recompute: full"));
    CHECK_FALSE(says(read(verl + " actor_rollout_ref.model.enable_gradient_checkpointing=False"), "recompute"));
    CHECK(says(read(verl + " actor_rollout_ref.env.name=$1"), "kind: rl"));
    const std::string critic = read(verl + " algorithm.adv_estimator=gae");
    CHECK(says(critic, "role: critic"));
    CHECK(says(read(verl + " algorithm.adv_estimator=remax"), "algorithm: remax"));
    CHECK(says(critic, "zero: 2"));  // a scenario has no forward passes of weights that are cut
    CHECK(says(read(verl + " actor_rollout_ref.actor.ulysses_sequence_parallel_size=4"),
               "context: 4, context_exchange: all-to-all, data: 4"));
    const std::string nemo = read(
        "policy:\n  model_name: Qwen/Qwen3-8B\n  train_global_batch_size: 128\n  max_total_sequence_length: 2048\n"
        "  megatron_cfg: {enabled: true, tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2}\n"
        "grpo: {num_prompts_per_step: 16, num_generations_per_prompt: 8}\ncluster: {num_nodes: 1, gpus_per_node: 8}\n");
    for (const char* part : {"prompts: 16, samples: 8", "tensor: 2, pipeline: 2, data: 2", "sequence: 2048"}) {
        CHECK_MESSAGE(says(nemo, part), std::string(part) << "\n" << nemo);
    }
    // Experts of Megatron-Core, a checkpoint in 8 bits, and passes that padding does not fill.
    const std::string experts = read(verl +
                                     " actor_rollout_ref.model.path=deepseek-ai/DeepSeek-V2-Lite trainer.nnodes=4 "
                                     "actor_rollout_ref.actor.megatron.expert_model_parallel_size=8");
    for (const char* part : {"expert: 8, expert_tensor: 1", "synchronisation: {through: server"}) {
        CHECK_MESSAGE(says(experts, part), std::string(part) << "\n" << experts);
    }
    // A dense critic has no experts to share out, and ranks of its own.
    const std::string dense = read(verl +
                                   " algorithm.adv_estimator=gae critic.model.path=Qwen/Qwen3-8B "
                                   "actor_rollout_ref.model.path=deepseek-ai/DeepSeek-V2-Lite trainer.nnodes=4 "
                                   "critic.megatron.tensor_model_parallel_size=2 "
                                   "actor_rollout_ref.actor.megatron.expert_model_parallel_size=8");
    const std::string own =
        dense.substr(dense.find("role: critic"), dense.find("role: actor") - dense.find("role: critic"));
    CHECK_MESSAGE(says(own, "{tensor: 2, pipeline: 1, data: 16"), own);
    CHECK_FALSE(says(own, "expert:"));
    const std::string stored = read("main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-8B-FP8");
    CHECK_MESSAGE(says(stored, "model: Qwen/Qwen3-8B-FP8\n"), stored);
    CHECK_MESSAGE(says(stored, "model: {preset: qwen3-8b, sequence: 1024}"), stored);
    const std::string packed = " actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32";
    CHECK(says(read(verl + packed), "micro_batch: 32"));
    CHECK(says(read(verl + packed + " actor_rollout_ref.model.use_remove_padding=True"), "micro_batch: 16"));
    CHECK(says(read(verl + " actor_rollout_ref.actor.use_dynamic_bsz=True "
                           "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=6144"),
               "micro_batch: 4"));
    const auto problem = [&](const std::string& given) { return problems_when([&] { (void)read(given); }); };
    CHECK(problem("a: 1\n").find("expected 'actor_rollout_ref.model.path' of verl") != std::string::npos);
    CHECK(problem("").find("run.sh:1:1: error: expected 'actor_rollout_ref.model.path' of verl") != std::string::npos);
    CHECK(problem("policy:\n  model_name: \"a: b\"\n").find("run.sh:2:3: error: 'a: b' is no name") !=
          std::string::npos);
    CHECK(problem("python main_ppo.py actor_rollout_ref.model.path=q trainer.nnodes=two")
              .find("run.sh:1:51: error: expected 'trainer.nnodes' to be a whole number") != std::string::npos);
    CHECK(problem("python main_ppo.py actor_rollout_ref.model.path=q "
                  "actor_rollout_ref.rollout.tensor_model_parallel_size=3")
              .find("3 ranks of generation do not divide 8 GPUs") != std::string::npos);
}

TEST_CASE("a recipe of Megatron-Bridge is what the file starts from") {
    const auto text_of = [](const std::string& file, const std::string& gpus) {
        return import_file("nemo", ImportInput::of_bytes("input", file, {{"gpus", gpus}}).with(data(), {})).text;
    };
    const auto holds = [](const std::string& text, std::initializer_list<const char*> parts) {
        for (const char* part : parts) {
            CHECK_MESSAGE(text.find(part) != std::string::npos, std::string(part) << "\n" << text);
        }
    };
    holds(text_of("recipe:\n  _target_: megatron.bridge.recipes.llama.llama3_70b.pretrain_config\nConfigContainer:\n"
                  "  model: {context_parallel_size: 1}\n  train: {global_batch_size: 128}\n"
                  "  mixed_precision: bf16_with_fp8_current_scaling_mixed\n",
                  "64"),
          {"layers: 80", "tensor: 4", "pipeline: 4", "chunks: 5", "data: 4", "global_batch: 128", "precision: fp8",
           "fp8_scaling: current", "tensor: full"});
    holds(text_of("recipe: {_target_: megatron.bridge.recipes.qwen.qwen3_moe.qwen3_30b_a3b_pretrain_config, "
                  "micro_batch_size: 1}\nmodel: {expert_model_parallel_size: 8}\n",
                  "16"),
          {"count: 128", "expert: 8", "recompute: full", "micro_batch: 1", "global_batch: 32"});
    holds(text_of("torchrun run_recipe.py --recipe llama32_1b_pretrain_config train.global_batch_size=64\n", "8"),
          {"layers: 16", "tied_embeddings: true", "global_batch: 64", "tensor: 1"});
    try {
        (void)text_of(
            "model: {tensor_model_parallel_size: 2}\nrecipe: {_target_: "
            "megatron.bridge.recipes.llama.llama9_pretrain_config}\n",
            "8");
        FAIL("an unknown recipe is refused");
    } catch (const Error& error) {
        CHECK(std::string(error.what()).find("input:2:10: error: 'llama9' is none of the recipes") !=
              std::string::npos);
    }
}
