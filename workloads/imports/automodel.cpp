// A recipe of NeMo Automodel (YAML) as a training scenario: a Hugging Face model under FSDP2.
//
// Source: NVIDIA-NeMo/Automodel, examples/llm_finetune and nemo_automodel/components/distributed of 2025 and 2026.

#include "workloads/imports/config_text.hpp"

#include "sim/base/error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery::imports {

namespace {

const std::vector<FlagGroup>& automodel_groups() {
    static const std::vector<FlagGroup> kGroups = {
        {true, "files, logging, checks and names",
         "checkpoint. wandb. mlflow. comet. logger. dist_env. rng. recipe seed benchmark. profiling. model._target_ "
         "model.torch_dtype "
         "distributed._target_ distributed.strategy distributed.backend peft._target_ model.trust_remote_code "
         "model.config. tokenizer. "
         "model.is_meta_device model.name loss_fn._target_ ci. clip_grad_norm. nvtx"},
        {true, "data, length of the run and evaluation",
         "dataset. dataloader. validation_dataset. validation_dataloader. step_scheduler. packed_sequence. "
         "validation_datasets."},
        {true, "constants of the optimizer and its schedule",
         "optimizer. lr_scheduler. peft.alpha peft.dropout peft.lora_A_init"},
        {false, "kernels of the model's own back end",
         "model.backend. model.use_liger_kernel model.use_sdpa_patching loss_fn."},
        {false, "how communication and states are arranged",
         "distributed.mp_policy. distributed.offload_policy. distributed.defer_fsdp_grad_sync distributed.tp_plan "
         "distributed.pipeline. autopipeline. distributed.moe_mesh distributed.moe. parallelizer."},
        {false, "quantised base weights", "quantization. qat."},
        {true, "set with other keys", "compile. fp8. peft."},
    };
    return kGroups;
}

Imported read_automodel(const ImportInput& input) {
    ConfigText config(expected_yaml(input.bytes(), input.path(),
                                    "'model.pretrained_model_name_or_path' of a recipe of NeMo Automodel"));
    Imported out;
    std::string model = input.option("model");
    if (const std::string named =
            config.text({"model.pretrained_model_name_or_path", "model.config.pretrained_model_name_or_path"});
        model.empty()) {
        model = named;
    }
    if (model.empty()) {
        throw ConfigError({config.error({"model._target_"},
                                        "expected 'model.pretrained_model_name_or_path', as Automodel's recipes have, "
                                        "or --model NAME (orrery list models)")});
    }
    const auto degree = [&](const std::vector<std::string>& keys) {
        return config.whole(keys, 65536, 1, "none").value_or(1);
    };
    const std::int64_t tensor = degree({"distributed.tp_size"});
    const std::int64_t context = degree({"distributed.cp_size"});
    const std::int64_t pipeline = degree({"distributed.pp_size"});
    const std::int64_t expert = degree({"distributed.ep_size"});
    const std::int64_t replicas = degree({"distributed.dp_replicate_size"});
    const auto shards = config.whole({"distributed.dp_size"}, 1e6, 1, "none");
    const std::int64_t product = tensor * context * pipeline;
    std::int64_t gpus = input.whole_option("gpus");
    if (gpus == 0) {
        gpus = shards ? *shards * product : (std::max(product, expert) + 7) / 8 * 8;
        if (!shards) {
            out.notes.assumed(fmt::format("{} GPUs: the recipe leaves dp_size to what there is (--gpus N)", gpus));
        }
    }
    if (gpus % product != 0) {
        throw ConfigError({config.error({"distributed.tp_size", "distributed.cp_size", "distributed.pp_size"},
                                        fmt::format("tensor {} x context {} x pipeline {} does not divide {} GPUs",
                                                    tensor, context, pipeline, gpus))});
    }
    const std::int64_t data = gpus / product;
    const std::int64_t micro =
        config.whole({"step_scheduler.local_batch_size", "dataloader.batch_size"}, 1e6).value_or(1);
    const std::int64_t global = config.whole({"step_scheduler.global_batch_size"}, 1e9).value_or(micro * data);
    const auto sequence = config.whole(
        {"packed_sequence.packed_sequence_size", "dataset.seq_length", "dataset.seq_len", "dataset.sequence_length"},
        1e8, 0);
    if (!sequence || *sequence == 0) {
        out.notes.assumed("sequences of 4,096 tokens: the recipe does not say (model.sequence)");
    }
    const bool checkpoints =
        config.is_true({"distributed.activation_checkpointing", "distributed.moe.activation_checkpointing"});
    const bool sequences = config.is_true({"distributed.sequence_parallel"});
    const bool compiled = config.is_true({"compile.enabled"});
    const bool eight = config.is_true({"fp8.enabled"});
    const std::string recipe = config.text({"fp8.recipe_name"});
    const auto rank = config.whole({"peft.dim"}, 1e5);
    const std::string strategy = config.text({"distributed._target_", "distributed.strategy"});
    const bool whole_weights = strategy.find("DDP") != std::string::npos || strategy == "ddp";
    const std::string attention = config.text({"model.attn_implementation", "model.backend.attn"});
    std::string node = input.option("node");
    if (node.empty()) {
        node = "dgx-h100";
        out.notes.assumed("nodes of dgx-h100 (--node NAME; orrery list nodes)");
    }
    const std::int64_t in_node = std::min<std::int64_t>(gpus, 8);
    out.text =
        "# How long is one step of this Automodel recipe? Written by 'orrery import automodel'.\norrery: 1\nkind: "
        "training\n" +
        yaml_section("cluster",
                     {{"nodes", std::to_string((gpus + in_node - 1) / in_node)},
                      {"node", in_node == 8 ? node : fmt::format("{{preset: {}, gpus: {}}}", node, in_node)}}) +
        fmt::format("model: {{preset: {}, sequence: {}}}\n", model, sequence && *sequence > 0 ? *sequence : 4096) +
        yaml_section("plan", {{"tensor", tensor > 1 ? std::to_string(tensor) : ""},
                              {"pipeline", pipeline > 1 ? std::to_string(pipeline) : ""},
                              {"context", context > 1 ? std::to_string(context) : ""},
                              {"context_exchange", context > 1 ? "gathered-ring" : ""},
                              {"data", std::to_string(data)},
                              {"expert", expert > 1 ? std::to_string(expert) : ""},
                              {"dispatch", expert > 1 ? "hierarchical" : ""},
                              {"micro_batch", std::to_string(micro)},
                              {"global_batch", std::to_string(global)},
                              {"recompute", checkpoints ? "full" : ""},
                              {"sequence_parallel", tensor > 1 && (sequences || expert > 1) ? "true" : ""},
                              {"zero", whole_weights || gpus == 1 ? ""
                                       : pipeline > 1             ? "2"
                                                                  : "3"},
                              {"shard", replicas > 1 && pipeline == 1 ? std::to_string(data * context / replicas) : ""},
                              {"precision", eight ? "fp8" : "bf16"},
                              {"fp8_scaling", !eight                        ? ""
                                              : recipe.rfind("row", 0) == 0 ? "row"
                                                                            : "current"},
                              {"attention", attention == "flash_attention_2" ? "flash2"
                                            : attention == "eager"           ? "unfused"
                                                                             : ""},
                              {"fusion", compiled ? "fused" : "eager"},
                              {"adapters", rank ? fmt::format("{{rank: {}}}", *rank) : ""},
                              {"overlap", data * context > 1 ? "{data: true}" : ""}}) +
        "software: pytorch-fsdp2\n";
    out.scenario = true;
    out.use = "'orrery run' as it is";
    config.count(out.notes, automodel_groups());
    out.facts.push_back({"GPUs", std::to_string(gpus)});
    out.facts.push_back({"model", model});
    return out;
}

}  // namespace

extern const Importer kAutomodelImporter = {"automodel",
                                            "a recipe of NeMo Automodel (YAML), as a training scenario",
                                            {{"gpus", "N", "GPUs of the run, where the text does not say it"},
                                             {"node", "NAME", "type of the nodes (orrery list nodes)"},
                                             {"model", "NAME", "model of the run, where the text does not say it"}},
                                            read_automodel,
                                            "yaml"};

}  // namespace orrery::imports
