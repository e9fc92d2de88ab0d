// Recipes of torchtune, axolotl and LLaMA-Factory, and command lines of Hugging Face's Trainer, become training
// scenarios.

#include "tests/support/support.hpp"
#include "workloads/imports/importer.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

using namespace orrery;
using namespace orrery::test;

namespace {

Imported read(const std::string& text, std::map<std::string, std::string> options = {}) {
    return import_file("finetune", ImportInput::of_bytes("recipe.yaml", text, std::move(options)).with(data()));
}

void check_says(const std::string& text, const std::vector<const char*>& parts) {
    for (const char* part : parts) {
        CHECK_MESSAGE(text.find(part) != std::string::npos, std::string(part) << "\n" << text);
    }
}

bool notes(const ImportNotes::Counts& counts, const std::string& part) {
    return std::any_of(counts.begin(), counts.end(),
                       [&](const auto& note) { return note.first.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("recipes of torchtune are FSDP2 over its own modules, with states in 16 bits") {
    const std::string full =
        "# tune run --nproc_per_node 4 full_finetune_distributed --config llama3_1/8B_full\n"
        "tokenizer:\n  _component_: torchtune.models.llama3.llama3_tokenizer\n  max_seq_len: 4096\n"
        "model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\n"
        "batch_size: 2\ngradient_accumulation_steps: 8\nenable_activation_checkpointing: True\ncompile: True\n"
        "dtype: bf16\noptimizer:\n  _component_: torch.optim.AdamW\n"
        "loss:\n  _component_: torchtune.modules.loss.LinearCrossEntropyLoss\n";
    check_says(read(full).text, {"gpus: 4", "model: {preset: llama-3.1-8b, sequence: 4096}", "data: 4",
                                 "micro_batch: 2", "global_batch: 64", "recompute: full", "zero: 3", "states: 16-bit",
                                 "fusion: fused", "loss: chunked", "software: pytorch-fsdp2"});
    check_says(read(full, {{"gpus", "16"}, {"node", "dgx-a100-80g"}}).text, {"nodes: 2", "dgx-a100-80g", "data: 16"});
    const std::string low_rank =
        "# tune run lora_finetune_single_device --config qwen2_5/7B_lora_single_device\n"
        "model:\n  _component_: torchtune.models.qwen2_5.qlora_qwen2_5_7b_instruct\n"
        "  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']\n  apply_lora_to_mlp: True\n  lora_rank: 16\n"
        "batch_size: 4\ndtype: bf16\noptimizer:\n  _component_: bitsandbytes.optim.PagedAdamW8bit\n";
    const Imported out = read(low_rank);
    check_says(out.text, {"gpus: 1", "preset: qwen2.5-7b",
                          "adapters: {rank: 16, modules: \"query,value,output,gate,up,down\", base: nf4}"});
    CHECK(out.text.find("zero:") == std::string::npos);  // one GPU has nothing to share
    CHECK(notes(out.notes.left_out(), "in few bits"));
    CHECK(notes(out.notes.assumed(), "sequences of 2,048 tokens"));
}

TEST_CASE("recipes of axolotl and LLaMA-Factory run Hugging Face's Trainer") {
    const Imported axolotl = read(
        "base_model: NousResearch/Meta-Llama-3.1-8B\nload_in_4bit: true\nadapter: qlora\nlora_r: 32\n"
        "lora_target_linear: true\nsequence_len: 4096\nsample_packing: true\ngradient_accumulation_steps: 4\n"
        "micro_batch_size: 2\noptimizer: paged_adamw_32bit\nbf16: auto\ngradient_checkpointing: true\n"
        "flash_attention: true\ndeepspeed: deepspeed_configs/zero2.json\n",
        {{"gpus", "4"}});
    check_says(axolotl.text,
               {"sequence: 4096", "micro_batch: 2", "global_batch: 32", "zero: 2", "attention: flash2",
                "rank: 32, modules: \"query,key,value,output,gate,up,down\", base: nf4", "software: deepspeed"});
    CHECK(notes(axolotl.notes.assumed(), "ZeRO-2, as the name 'zero2.json' says"));
    CHECK(notes(axolotl.notes.left_out(), "sample_packing"));
    CHECK_FALSE(notes(axolotl.notes.left_out(), "optimizer"));  // pages of the host's memory are AdamW's still
    const std::string factory =
        "model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\nstage: sft\nfinetuning_type: full\n"
        "cutoff_len: 1024\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 2\nbf16: true\n";
    check_says(read(factory + "deepspeed: examples/deepspeed/ds_z3_offload_config.json\n").text,
               {"zero: 3", "recompute: full", "sequence: 1024", "global_batch: 16", "parameters: {tier: dram}"});
    check_says(read(factory + "disable_gradient_checkpointing: true\nfsdp: hybrid_shard auto_wrap\n").text,
               {"zero: 3", "shard: 8", "software: hf-trainer"});
    CHECK(read(factory + "disable_gradient_checkpointing: true\n").text.find("recompute") == std::string::npos);
    const auto problem = [](const std::string& text) { return problems_when([&] { (void)read(text); }); };
    CHECK(problem("model_name_or_path: q\nstage: dpo\n")
              .find("recipe.yaml:2:1: error: 'dpo' has passes of its own, which are not modelled") !=
          std::string::npos);
    CHECK(problem("model_name_or_path: q\nfinetuning_type: freeze\n").find("recipe.yaml:2:1: error: 'freeze'") !=
          std::string::npos);
    CHECK(problem("base_model: q\ndeepspeed: my.json\n").find("its name says no stage of ZeRO") != std::string::npos);
    CHECK(problem("base_model: q\nmicro_batch_size: two\n").find("recipe.yaml:2:1: error:") != std::string::npos);
    CHECK(problem("a: 1\n").find("recipe.yaml:1:1: error: expected 'model._component_' of torchtune") !=
          std::string::npos);
    CHECK(problem("").find("expected a recipe of torchtune") != std::string::npos);
    CHECK(problem("a: [1\n").find("recipe.yaml:") != std::string::npos);
    CHECK(problem("model: {_component_: torchtune.models.clip.clip_vision}\n").find("no preset describes") !=
          std::string::npos);
}

TEST_CASE("command lines of Hugging Face's Trainer take the FSDP that they name") {
    check_says(read("torchrun --nproc_per_node=4 train.py --model_name_or_path huggyllama/llama-7b --bf16 True "
                    "--per_device_train_batch_size 4 --gradient_accumulation_steps 8 --fsdp \"full_shard auto_wrap\" "
                    "--model_max_length 2048\n")
                   .text,
               {"gpus: 4", "preset: huggyllama/llama-7b, sequence: 2048", "micro_batch: 4", "global_batch: 128",
                "zero: 3", "precision: bf16", "software: hf-trainer"});
    // A file of accelerate beside the script.
    const File fsdp("fsdp.yaml",
                    "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 2\n"
                    "fsdp_config: {fsdp_sharding_strategy: SHARD_GRAD_OP}\n");
    const File script("finetune.sh", fmt::format("accelerate launch --config_file {} --num_processes 2 train.py "
                                                 "--model_name_or_path Qwen/Qwen2.5-7B --use_peft --lora_r 16\n",
                                                 fsdp.path()));
    const Imported out = import_file("finetune", ImportInput(script.path(), {}).with(data()));
    check_says(out.text, {"gpus: 2", "zero: 2", "precision: bf16", "adapters: {rank: 16, modules: \"query,value\"}"});
}
