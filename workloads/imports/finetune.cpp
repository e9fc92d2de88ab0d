// Recipes of torchtune, axolotl and LLaMA-Factory (YAML), and command lines of Hugging Face's Trainer and TRL, as
// training scenarios.
//
// Claims: model, batch, length of sequences, sharding, recomputation and adapters that the recipe says, under the
// software that runs it: torchtune's modules under FSDP2 with all states in 16 bits where `dtype` is bf16; Hugging
// Face's Trainer alone, under FSDP or under DeepSpeed. Of a DeepSpeed file that is not beside the recipe the stage is
// taken from its name, and that is said. Sources: torchtune 0.6 (recipes/full_finetune_distributed.py,
// lora_finetune_distributed.py), axolotl 0.12 (docs/config-reference), LLaMA-Factory 0.9 (src/llamafactory/hparams),
// transformers' TrainingArguments and accelerate's files of FSDP. Limits: steps of supervised training and of
// pre-training; preference and reward training have other passes and are refused.

#include "workloads/imports/config_text.hpp"

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/text.hpp"
#include "workloads/model/model_names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

namespace orrery::imports {

namespace {

const std::vector<FlagGroup>& finetune_groups() {
    static const std::vector<FlagGroup> kGroups = {
        {true, "data, files, logging and length of the run",
         "datasets. dataset. dataset_dir template output_dir tokenizer. checkpointer. metric_logger. profiler. "
         "log_every_n_steps log_peak_memory_stats log_level device seed shuffle epochs max_steps_per_epoch "
         "resume_from_checkpoint save_adapter_weights_only run_val_every_n_steps dataset_val. batch_size_val "
         "dataset_prepared_path val_set_size num_epochs wandb_project wandb_entity wandb_watch wandb_name "
         "wandb_log_model evals_per_epoch saves_per_epoch eval_steps save_steps logging_steps debug special_tokens. "
         "tokenizer_type model_type strict chat_template hub_model_id push_dataset_to_hub early_stopping_patience "
         "local_rank "
         "save_first_step auto_resume_from_checkpoints train_on_inputs group_by_length do_train do_eval "
         "overwrite_cache overwrite_output_dir preprocessing_num_workers dataloader_num_workers max_samples plot_loss "
         "save_only_model report_to ddp_timeout val_size per_device_eval_batch_size eval_strategy num_train_epochs "
         "max_steps trust_remote_code eval_dataset run_name save_strategy save_total_limit dataset_name "
         "dataset_text_field clip_grad_norm train_dataset. "
         "save_safetensors eval_batch_size max_seq_length_ eval_sample_packing eval_table_size stage "
         "skip_prepare_dataset remove_unused_columns chat_template_jinja data_path dataset_num_proc"},
        {true, "constants of the optimizer and its schedule",
         "optimizer. optimizer optim lr_scheduler. lr_scheduler learning_rate lr_scheduler_type warmup_ratio "
         "warmup_steps weight_decay max_grad_norm adam_beta1 adam_beta2 adam_epsilon loss. lora_alpha lora_dropout "
         "cosine_min_lr_ratio model.lora_alpha model.lora_dropout loraplus_lr_ratio use_rslora tf32 "
         "optimizer_in_bwd neftune_noise_alpha"},
        {true, "set with other keys",
         "num_processes load_in_8bit adapter lora_target_linear bf16 fp16 flash_attention sdp_attention fsdp fsdp. "
         "fsdp_config. "
         "fsdp_version model.apply_lora_to_mlp model.apply_lora_to_output custom_sharded_layers use_lora use_peft "
         "gradient_checkpointing_kwargs. lora_target_modules lora_modules_to_save pure_bf16"},
        {false, "sequences of other lengths; see plan.documents",
         "sample_packing pad_to_sequence_len dataset.packed packing neat_packing group_by_length "
         "multipack_real_batches"},
        {false, "kernels of other libraries",
         "plugins liger_rope liger_rms_norm liger_swiglu liger_glu_activation liger_layer_norm "
         "liger_fused_linear_cross_entropy liger_cross_entropy enable_liger_kernel use_unsloth lora_mlp_kernel "
         "lora_qkv_kernel lora_o_kernel cut_cross_entropy unsloth_cross_entropy_loss use_liger_kernel"},
        {false, "activations on the host", "enable_activation_offloading activation_offloading"},
    };
    return kGroups;
}

/// What a recipe says, whoever wrote it.
struct Recipe {
    std::string tool;
    std::string model;
    std::int64_t gpus = 0;
    std::int64_t micro = 1, accumulation = 1, sequence = 0;
    std::int64_t tensor = 1, context = 1;
    std::int64_t zero = 0, shard = 0;
    std::int64_t rank = 0;
    std::string modules, base;  ///< of adapters
    std::string precision = "bf16", states, attention, software, offload;
    bool recompute = false, compiled = false, chunked_loss = false;
};

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

// Products with an adapter, by the names of Llama's modules; empty: all.
std::string modules_of(const std::string& target) {
    const std::pair<const char*, const char*> names[] = {
        {"q_proj", "query"},       {"k_proj", "key"},     {"v_proj", "value"}, {"o_proj", "output"},
        {"output_proj", "output"}, {"gate_proj", "gate"}, {"up_proj", "up"},   {"down_proj", "down"}};
    std::vector<std::string> out;
    for (const auto& [theirs, ours] : names) {
        if (target.find(theirs) != std::string::npos && std::find(out.begin(), out.end(), ours) == out.end()) {
            out.emplace_back(ours);
        }
    }
    return fmt::format("{}", fmt::join(out, ","));
}

// The number behind a word of the text, such as --nproc_per_node 8 in a comment; 0: none.
std::int64_t number_behind(const std::string& text, const std::vector<const char*>& words) {
    for (const char* word : words) {
        const std::size_t at = text.find(word);
        const std::size_t digit =
            at == std::string::npos ? at : text.find_first_not_of(" =\t", at + std::string_view(word).size());
        if (digit != std::string::npos && std::isdigit(static_cast<unsigned char>(text[digit])) != 0) {
            return std::clamp<std::int64_t>(std::atoll(text.substr(digit, 6).c_str()), 1, 65536);
        }
    }
    return 0;
}

class Finetune {
  public:
    Finetune(ConfigText config, std::string text, const ImportInput& input)
        : config_(std::move(config)), text_(std::move(text)), input_(input) {}

    Imported run() {
        const std::string component = config_.text({"model._component_"});
        const std::string base = config_.text({"base_model"});
        const std::string named = config_.text({"model_name_or_path"});
        recipe_.gpus = input_.whole_option("gpus");
        if (!component.empty()) {
            torchtune(component);
        } else if (!base.empty()) {
            recipe_.tool = "axolotl";
            recipe_.model = base;
            trainer();
        } else if (!named.empty()) {
            recipe_.tool = config_.has("finetuning_type") || config_.has("cutoff_len") ? "LLaMA-Factory" : "Trainer";
            recipe_.model = named;
            trainer();
        } else {
            throw ConfigError({config_.error(config_.keys(),
                                             "expected 'model._component_' of torchtune, 'base_model' of axolotl or "
                                             "'model_name_or_path' of LLaMA-Factory and TRL, and found none of them")});
        }
        return written();
    }

  private:
    std::int64_t count(const std::vector<std::string>& keys, std::int64_t otherwise) {
        return config_.whole(keys, 1e9, 1, "auto").value_or(otherwise);
    }
    [[nodiscard]] bool on(const std::string& key) {
        const std::string value = lower(config_.text({key}));
        return value == "true" || value == "auto" || value == "yes" || value == "1";
    }

    // torchtune.models.llama3_1.lora_llama3_1_8b: the last part is the model, with what is trained of it.
    void torchtune(const std::string& component) {
        recipe_.tool = "torchtune";
        std::string name = component.substr(component.rfind('.') + 1);
        const bool low_rank = name.rfind("lora_", 0) == 0 || name.rfind("qlora_", 0) == 0;
        const bool narrow = name.rfind("qlora_", 0) == 0 || config_.is_true({"model.quantize_base"});
        name = low_rank ? name.substr(name.find('_') + 1) : name;
        recipe_.model = model_of_builder(name);
        if (recipe_.model.empty()) {
            throw ConfigError(
                {config_.error({"model._component_"},
                               fmt::format("no preset describes '{}': --model NAME takes one of 'orrery list models'",
                                           printable(component, 100)))});
        }
        if (low_rank) {
            recipe_.rank = count({"model.lora_rank"}, 8);
            recipe_.modules = modules_of(config_.text({"model.lora_attn_modules"}));
            if (!recipe_.modules.empty() && config_.text({"model.apply_lora_to_mlp"}) != "false" &&
                (config_.is_true({"model.apply_lora_to_mlp"}))) {
                recipe_.modules += ",gate,up,down";
            }
            recipe_.base = narrow ? "nf4" : "";
        }
        if (recipe_.gpus == 0) {
            recipe_.gpus = number_behind(text_, {"nproc_per_node", "nproc-per-node"});
            recipe_.gpus = recipe_.gpus == 0 && text_.find("single_device") != std::string::npos ? 1 : recipe_.gpus;
        }
        recipe_.micro = count({"batch_size"}, 1);
        recipe_.accumulation = count({"gradient_accumulation_steps"}, 1);
        recipe_.sequence = config_.whole({"tokenizer.max_seq_len", "dataset.max_seq_len"}, 1e8).value_or(0);
        recipe_.tensor = count({"tensor_parallel_dim"}, 1);
        recipe_.context = count({"context_parallel_dim"}, 1);
        recipe_.recompute = config_.is_true({"enable_activation_checkpointing"});
        recipe_.compiled = config_.is_true({"compile"});
        const std::string type = config_.text({"dtype"});
        recipe_.precision = type == "fp32" ? "fp32" : "bf16";
        recipe_.states = type == "fp32" ? "32-bit" : "16-bit";
        const std::string loss = config_.text({"loss._component_"});
        recipe_.chunked_loss = loss.find("Chunked") != std::string::npos || loss.find("Linear") != std::string::npos;
        if (config_.is_true({"fsdp_cpu_offload"})) {
            recipe_.offload = "{optimizer: {tier: dram}, parameters: {tier: dram}}";
        }
        recipe_.zero = 3;
        recipe_.software = "pytorch-fsdp2";
        const std::string optimizer = config_.text({"optimizer._component_"});
        note_optimizer(optimizer.substr(optimizer.rfind('.') + 1));
    }

    // llama3_1_8b, qwen2_5_7b_instruct, gemma2_9b, phi4_14b, mistral_7b: the name of a preset once the underscores are
    // dots and dashes.
    std::string model_of_builder(const std::string& name) {
        if (const std::string given = input_.option("model"); !given.empty()) {
            return given;
        }
        std::string text = name;
        for (const char* ending : {"_instruct", "_base", "_reward", "_classifier"}) {
            if (text.ends_with(ending)) {
                text.erase(text.size() - std::string_view(ending).size());
            }
        }
        const std::pair<const char*, const char*> families[] = {{"llama2_", "llama-2-"},
                                                                {"llama3_1_", "llama-3.1-"},
                                                                {"llama3_2_", "llama-3.2-"},
                                                                {"llama3_3_", "llama-3.1-"},
                                                                {"llama3_", "llama-3-"},
                                                                {"code_llama2_", "codellama-"},
                                                                {"qwen2_5_", "qwen2.5-"},
                                                                {"qwen2_", "qwen2.5-"},
                                                                {"qwen3_", "qwen3-"},
                                                                {"gemma2_", "gemma-2-"},
                                                                {"phi4_14b", "phi-4"},
                                                                {"phi4_mini", "phi-4-mini"},
                                                                {"phi3_mini", "phi-3-mini"},
                                                                {"mistral_", "mistral-"},
                                                                {"llama4_scout_17b_16e", "llama-4-scout"},
                                                                {"llama4_maverick_17b_128e", "llama-4-maverick"}};
        for (const auto& [theirs, ours] : families) {
            if (text.rfind(theirs, 0) == 0) {
                std::string size = text.substr(std::string_view(theirs).size());
                std::replace(size.begin(), size.end(), '_', '.');
                const std::string preset = ours + size;
                return find_checkpoint(preset, input_.data()) ? preset : "";
            }
        }
        return "";
    }

    // axolotl's, LLaMA-Factory's and TRL's keys: all run Hugging Face's Trainer.
    void trainer() {
        const std::string stage = lower(config_.text({"stage", "rl"}));
        for (const char* other : {"dpo", "kto", "orpo", "simpo", "ppo", "rm", "grpo", "ipo"}) {
            if (stage == other) {
                throw ConfigError(
                    {config_.error({"stage", "rl"}, fmt::format("'{}' has passes of its own, which are not modelled: "
                                                                "expected supervised training or pre-training",
                                                                stage))});
            }
        }
        if (recipe_.gpus == 0) {
            recipe_.gpus = number_behind(
                text_, {"nproc_per_node", "nproc-per-node", "num_processes", "num-processes", "num_gpus", "num-gpus"});
        }
        const bool axolotl = recipe_.tool == "axolotl";
        recipe_.micro = count({"micro_batch_size", "per_device_train_batch_size"}, axolotl ? 1 : 8);
        recipe_.accumulation = count({"gradient_accumulation_steps"}, 1);
        recipe_.sequence =
            config_.whole({"sequence_len", "cutoff_len", "max_length", "max_seq_length", "model_max_length"}, 1e8)
                .value_or(axolotl                           ? 512
                          : recipe_.tool == "LLaMA-Factory" ? 2048
                                                            : 1024);
        recipe_.context = count({"sequence_parallel_degree", "context_parallel_size"}, 1);
        recipe_.tensor = count({"tensor_parallel_size"}, 1);
        recipe_.recompute = config_.is_true({"gradient_checkpointing"}) || recipe_.tool == "LLaMA-Factory" ||
                            lower(config_.text({"gradient_checkpointing"})) == "offload";
        if (config_.is_true({"disable_gradient_checkpointing"})) {
            recipe_.recompute = false;
        }
        recipe_.compiled = config_.is_true({"torch_compile"});
        const bool half = on("fp16");
        recipe_.precision = on("bf16") || on("pure_bf16") ? "bf16" : half ? "fp16" : "fp32";
        if (recipe_.precision == "fp32") {
            out_.notes.assumed("training in 32 bits: neither bf16 nor fp16 is set");
        }
        const std::string kernel = lower(config_.text({"flash_attn", "attn_implementation"}));
        recipe_.attention = on("flash_attention") || kernel == "fa2" || kernel == "flash_attention_2" ? "flash2"
                            : kernel == "disabled" || kernel == "eager"                               ? "unfused"
                                                                                                      : "";
        recipe_.software = "hf-trainer";
        adapters();
        sharding();
        note_optimizer(config_.text({"optimizer", "optim"}));
    }

    void adapters() {
        const std::string type = lower(config_.text({"adapter", "finetuning_type"}));
        const bool low_rank =
            type == "lora" || type == "qlora" || config_.is_true({"use_peft"}) || config_.is_true({"use_lora"});
        if (!low_rank) {
            if (!type.empty() && type != "full") {
                throw ConfigError({config_.error(
                    {"adapter", "finetuning_type"},
                    fmt::format("'{}' is not modelled: expected full, lora or qlora", printable(type, 60)))});
            }
            return;
        }
        recipe_.rank = count({"lora_r", "lora_rank"}, 8);
        // LLaMA-Factory takes all products where nothing is said, and PEFT those of queries and values.
        const std::string target = config_.text({"lora_target_modules", "lora_target"});
        const bool all = config_.is_true({"lora_target_linear"}) || target.rfind("all", 0) == 0 ||
                         (target.empty() && recipe_.tool == "LLaMA-Factory");
        recipe_.modules = all              ? "query,key,value,output,gate,up,down"
                          : target.empty() ? "query,value"
                                           : modules_of(target);
        const bool four =
            config_.is_true({"load_in_4bit"}) || type == "qlora" || config_.text({"quantization_bit"}) == "4";
        recipe_.base = four ? "nf4" : "";
        if (!four && (config_.is_true({"load_in_8bit"}) || config_.text({"quantization_bit"}) == "8")) {
            out_.notes.left_out("frozen weights in 8 bits, which are not modelled: they count with 16");
        }
    }

    // The file of DeepSpeed that a recipe names, or its FSDP.
    void sharding() {
        const std::string file = config_.text({"deepspeed"});
        if (!file.empty()) {
            recipe_.software = "deepspeed";
            const std::filesystem::path beside = std::filesystem::path(input_.path()).parent_path() / file;
            if (!input_.in_memory() && std::filesystem::is_regular_file(beside)) {
                ConfigText deepspeed(parse_yaml(read_input(beside.string()), beside.string()));
                recipe_.zero = deepspeed.whole({"zero_optimization.stage"}, 3, 0).value_or(0);
                set_offload(deepspeed.text({"zero_optimization.offload_optimizer.device"}) == "cpu",
                            deepspeed.text({"zero_optimization.offload_param.device"}) == "cpu");
                return;
            }
            const std::string name = lower(std::filesystem::path(file).filename().string());
            for (const char stage : {'1', '2', '3'}) {
                for (const char* before : {"z", "zero", "zero_", "zero-", "stage", "stage_"}) {
                    recipe_.zero =
                        name.find(before + std::string(1, stage)) != std::string::npos ? stage - '0' : recipe_.zero;
                }
            }
            if (recipe_.zero == 0 && name.find("z0") == std::string::npos) {
                throw ConfigError({config_.error(
                    {"deepspeed"}, fmt::format("'{}' is not beside this file, and its name says no stage of ZeRO: put "
                                               "it there",
                                               printable(file, 100)))});
            }
            const bool offloads = name.find("offload") != std::string::npos || name.find("cpu") != std::string::npos;
            set_offload(offloads, offloads && recipe_.zero == 3 && name.find("optimizer") == std::string::npos);
            out_.notes.assumed(fmt::format("ZeRO-{}{}, as the name '{}' says: the file is not beside this one",
                                           recipe_.zero, recipe_.offload.empty() ? "" : " with offloading", name));
            return;
        }
        const std::vector<std::string> keys = config_.keys();
        const bool fsdp = std::any_of(keys.begin(), keys.end(), [](const std::string& key) {
            return key == "fsdp" || key.rfind("fsdp.", 0) == 0 || key.rfind("fsdp_config.", 0) == 0;
        });
        if (!fsdp) {
            return;
        }
        const std::string how =
            lower(config_.text({"fsdp"}) + " " +
                  config_.text({"fsdp_config.fsdp_sharding_strategy", "fsdp_config.sharding_strategy"}));
        recipe_.zero = how.find("no_shard") != std::string::npos ? 0 : how.find("grad_op") != std::string::npos ? 2 : 3;
        if (config_.text({"fsdp_config.reshard_after_forward", "fsdp_config.fsdp_reshard_after_forward"}) == "false") {
            recipe_.zero = 2;
        }
        recipe_.shard = how.find("hybrid") != std::string::npos ? 8 : 0;
        recipe_.software = count({"fsdp_version", "fsdp_config.fsdp_version"}, 1) == 2 ? "pytorch-fsdp2" : "hf-trainer";
        set_offload(config_.is_true({"fsdp_config.fsdp_offload_params", "fsdp_config.offload_params"}) ||
                        how.find("offload") != std::string::npos,
                    true);
    }

    void set_offload(bool states, bool weights) {
        recipe_.offload = !states ? ""
                          : weights && recipe_.zero == 3
                              ? "{optimizer: {tier: dram}, gradients: {tier: dram}, parameters: {tier: dram}}"
                              : "{optimizer: {tier: dram}, gradients: {tier: dram}}";
    }

    void note_optimizer(const std::string& name) {
        std::string small = lower(name);
        for (const char* before : {"paged", "_"}) {  // states in pages of the host's memory
            small.erase(0, small.rfind(before, 0) == 0 ? std::string_view(before).size() : 0);
        }
        if (!small.empty() && small.rfind("adam", 0) != 0) {
            out_.notes.left_out(
                fmt::format("the optimizer {}, which is not modelled: AdamW is taken", printable(name, 60)));
        } else if (small.find("8bit") != std::string::npos || small.find("4bit") != std::string::npos) {
            out_.notes.left_out(fmt::format("states of {} in few bits, which are not modelled: they count with 32",
                                            printable(name, 60)));
        }
    }

    Imported written() {
        if (const std::string given = input_.option("model"); !given.empty()) {
            recipe_.model = given;
        }
        if (recipe_.gpus == 0) {
            recipe_.gpus = 8;
            out_.notes.assumed("8 GPUs: the recipe does not say how many (--gpus N)");
        }
        if (recipe_.sequence == 0) {
            recipe_.sequence = 2048;
            out_.notes.assumed("sequences of 2,048 tokens: the recipe does not say (model.sequence)");
        }
        const std::int64_t product = recipe_.tensor * recipe_.context;
        if (recipe_.gpus % product != 0) {
            throw ConfigError({config_.error(
                {"tensor_parallel_dim", "context_parallel_dim", "tensor_parallel_size", "sequence_parallel_degree"},
                fmt::format("tensor {} x context {} does not divide {} GPUs", recipe_.tensor, recipe_.context,
                            recipe_.gpus))});
        }
        const std::int64_t data = recipe_.gpus / product;
        std::string node = input_.option("node");
        if (node.empty()) {
            node = "dgx-h100";
            out_.notes.assumed("nodes of dgx-h100 (--node NAME; orrery list nodes)");
        }
        const std::int64_t in_node = std::min<std::int64_t>(recipe_.gpus, 8);
        std::string changes = in_node == 8 ? "" : fmt::format(", gpus: {}", in_node);
        if (!recipe_.offload.empty()) {
            changes +=
                ", host: {tiers: [{name: dram, medium: dram, capacity: 1 TB, read: {value: 300 GB/s, how: assumed, "
                "source: \"eight channels of DDR5-4800\"}, latency: 100 ns}]}";
            out_.notes.assumed("1 TB of DRAM at 300 GB/s in a node (cluster.node.host.tiers)");
        }
        const auto more = [](std::int64_t value) { return value > 1 ? std::to_string(value) : std::string(); };
        const bool sharded = recipe_.gpus > 1 && recipe_.zero > 0;
        std::string adapters;
        if (recipe_.rank > 0) {
            adapters = fmt::format("{{rank: {}{}{}}}", recipe_.rank,
                                   recipe_.modules.empty() ? "" : fmt::format(", modules: \"{}\"", recipe_.modules),
                                   recipe_.base.empty() ? "" : ", base: " + recipe_.base);
        }
        out_.text = fmt::format(
                        "# How long is one step of this {} run? Written by 'orrery import finetune'.\norrery: 1\nkind: "
                        "training\n",
                        recipe_.tool) +
                    yaml_section("cluster",
                                 {{"nodes", std::to_string((recipe_.gpus + in_node - 1) / in_node)},
                                  {"node", changes.empty() ? node : fmt::format("{{preset: {}{}}}", node, changes)}}) +
                    fmt::format("model: {{preset: {}, sequence: {}}}\n", recipe_.model, recipe_.sequence) +
                    yaml_section("plan", {{"tensor", more(recipe_.tensor)},
                                          {"context", more(recipe_.context)},
                                          {"data", std::to_string(data)},
                                          {"micro_batch", std::to_string(recipe_.micro)},
                                          {"global_batch", std::to_string(recipe_.micro * recipe_.accumulation * data)},
                                          {"recompute", recipe_.recompute ? "full" : ""},
                                          {"zero", sharded ? std::to_string(recipe_.zero) : ""},
                                          {"shard", sharded && recipe_.zero == 3 ? more(recipe_.shard) : ""},
                                          {"states", recipe_.states},
                                          {"precision", recipe_.precision},
                                          {"attention", recipe_.attention},
                                          {"fusion", recipe_.compiled ? "fused" : "eager"},
                                          {"loss", recipe_.chunked_loss ? "chunked" : ""},
                                          {"offload", recipe_.offload},
                                          {"adapters", adapters},
                                          {"overlap", data > 1 ? "{data: true}" : ""}}) +
                    fmt::format("software: {}\n", recipe_.software);
        out_.scenario = true;
        out_.use = "'orrery run' as it is";
        config_.count(out_.notes, finetune_groups());
        out_.facts.push_back({"recipe", recipe_.tool});
        out_.facts.push_back({"GPUs", std::to_string(recipe_.gpus)});
        out_.facts.push_back({"model", recipe_.model});
        return std::move(out_);
    }

    ConfigText config_;
    std::string text_;
    const ImportInput& input_;
    Recipe recipe_;
    Imported out_;
};

// The flags of a command as the keys of a recipe, with those of the file of accelerate that it names.
ConfigText command_as_recipe(const std::string& text, const ImportInput& input) {
    CommandText command = CommandText::of_script(text, input.path());
    YamlNode root;
    root.kind = YamlNode::Kind::map;
    const auto add = [&](const std::string& key, const std::string& value) {
        YamlNode node;
        node.kind = YamlNode::Kind::scalar;
        node.scalar = value;
        const Diagnostic at = command.error({key}, "");
        node.mark = Mark{std::make_shared<const std::string>(at.file), at.line, at.column};
        root.entries.push_back({key, node.mark, node});
    };
    for (const char* key : {"model_name_or_path",
                            "per_device_train_batch_size",
                            "gradient_accumulation_steps",
                            "max_seq_length",
                            "max_length",
                            "model_max_length",
                            "cutoff_len",
                            "gradient_checkpointing",
                            "bf16",
                            "fp16",
                            "fsdp",
                            "lora_r",
                            "lora_rank",
                            "lora_target_modules",
                            "use_peft",
                            "use_lora",
                            "load_in_4bit",
                            "load_in_8bit",
                            "torch_compile",
                            "attn_implementation",
                            "optim",
                            "deepspeed",
                            "finetuning_type",
                            "stage"}) {
        const std::string value = command.text({key});
        if (!value.empty() || command.has(key)) {
            add(key, value.empty() ? "true" : value);
        }
    }
    const std::string file = command.text({"config_file"});
    const std::filesystem::path beside = std::filesystem::path(input.path()).parent_path() / file;
    if (!file.empty() && !input.in_memory() && std::filesystem::is_regular_file(beside)) {
        const YamlNode accelerate = parse_yaml(read_input(beside.string()), beside.string());
        for (const char* key : {"fsdp_config", "num_processes"}) {
            if (const YamlNode* value = accelerate.find(key); value != nullptr) {
                root.entries.push_back({key, value->mark, *value});
            }
        }
        const YamlNode* precision = accelerate.find("mixed_precision");
        if (precision != nullptr && (precision->scalar == "bf16" || precision->scalar == "fp16") &&
            !command.has(precision->scalar)) {
            add(precision->scalar, "true");
        }
    }
    if (root.entries.empty() || root.find("model_name_or_path") == nullptr) {
        throw ConfigError({command.error({},
                                         "expected a recipe of torchtune, axolotl or LLaMA-Factory (YAML), or a "
                                         "command line with --model_name_or_path")});
    }
    return ConfigText(root);
}

Imported read_finetune(const ImportInput& input) {
    const std::string text = input.bytes();
    std::optional<ConfigText> config;
    const bool command = text.find("--model_name_or_path") != std::string::npos ||
                         text.find("--model-name-or-path") != std::string::npos;
    config = command ? command_as_recipe(text, input)
                     : ConfigText(expected_yaml(text, input.path(),
                                                "a recipe of torchtune ('model._component_'), axolotl ('base_model') "
                                                "or LLaMA-Factory ('model_name_or_path')"));
    return Finetune(std::move(*config), text, input).run();
}

}  // namespace

extern const Importer kFinetuneImporter = {"finetune",
                                           "a recipe of torchtune, axolotl or LLaMA-Factory (YAML), or a command line "
                                           "of Hugging Face's Trainer, as a training "
                                           "scenario",
                                           {{"gpus", "N", "GPUs of the run, where the text does not say it"},
                                            {"node", "NAME", "type of the nodes (orrery list nodes)"},
                                            {"model", "NAME", "model of the run, where the text does not say it"}},
                                           read_finetune,
                                           "yaml"};

}  // namespace orrery::imports
