// A DeepSpeed configuration (JSON), with the line of Hugging Face's TrainingArguments beside it, as a training scenario.
//
// The file is the configuration, or the command line that names one by --deepspeed; --line gives the line beside a
// configuration. Sources: deepspeed/runtime/config.py and zero/config.py of 0.10 to 0.18; transformers' TrainingArguments, whose
// values stand where the configuration says "auto"; LLaMA-Factory's names of the same.

#include "workloads/imports/config_text.hpp"

#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

namespace orrery::imports {

namespace {

const std::vector<FlagGroup>& deepspeed_groups() {
    static const std::vector<FlagGroup> kGroups = {
        {true, "constants of the optimizer and its schedule",
         "optimizer.params. scheduler. gradient_clipping fp16.loss_scale fp16.loss_scale_window "
         "fp16.initial_scale_power "
         "fp16.hysteresis fp16.min_loss_scale fp16.consecutive_hysteresis fp16.auto_cast "
         "fp16.fp16_master_weights_and_grads "
         "prescale_gradients gradient_predivide_factor sparse_gradients optimizer.type zero_allow_untested_optimizer "
         "zero_force_ds_cpu_optimizer amp. seed bf16.check_grad_overflow bf16.immediate_grad_update"},
        {true, "logging, checks and files",
         "steps_per_print wall_clock_breakdown dump_state flops_profiler. tensorboard. wandb. csv_monitor. comet. "
         "comms_logger. "
         "memory_breakdown monitor_config. checkpoint. load_universal_checkpoint use_node_local_storage elasticity. "
         "autotuning. zero_optimization.stage3_gather_16bit_weights_on_model_save zero_optimization.elastic_checkpoint "
         "zero_optimization.load_from_fp32_weights zero_optimization.ignore_unused_parameters disable_allgather "
         "zero_optimization.stage3_gather_fp16_weights_on_model_save dataloader_drop_last data_types. timers. "
         "graph_harvesting"},
        {false, "sizes of buckets and of what is kept gathered; see software.gradient_bucket",
         "zero_optimization.allgather_bucket_size "
         "zero_optimization.allgather_partitions "
         "zero_optimization.reduce_scatter zero_optimization.contiguous_gradients zero_optimization.sub_group_size "
         "zero_optimization.stage3_prefetch_bucket_size zero_optimization.stage3_param_persistence_threshold "
         "zero_optimization.stage3_max_live_parameters zero_optimization.stage3_max_reuse_distance "
         "zero_optimization.stage3_model_persistence_threshold zero_optimization.round_robin_gradients "
         "zero_optimization.memory_efficient_linear zero_optimization.use_multi_rank_bucket_allreduce "
         "zero_optimization.stage3_module_granularity_threshold "
         "zero_optimization.stage3_use_all_reduce_for_fetch_params "
         "zero_optimization.legacy_stage1 zero_optimization.overlap_comm_streams"},
        {true, "how the host's memory is used; 'cluster.node.host' describes it",
         "zero_optimization.offload_optimizer. zero_optimization.offload_param. aio. "
         "zero_optimization.cpu_offload_use_pin_memory"},
        {false, "activations that are cut or kept on the host", "activation_checkpointing."},
        {false, "attention, compression and parallelism of another kind",
         "sparse_attention. compression_training. data_efficiency. curriculum_learning. progressive_layer_drop. "
         "eigenvalue. "
         "quantize_training. compile. pipeline. tensor_parallel. sequence_parallel_size hybrid_engine. "
         "zero_optimization.log_trace_cache_warnings zero_optimization.pipeline_loading_checkpoint"},
    };
    return kGroups;
}

const std::vector<FlagGroup>& argument_groups() {
    static const std::vector<FlagGroup> kGroups = {
        {true, "set with other flags",
         "per-device-train-batch-size gradient-accumulation-steps model-name-or-path model max-seq-length "
         "model-max-length "
         "cutoff-len max-length block-size gradient-checkpointing bf16 fp16 deepspeed deepspeed-config torch-compile "
         "attn-implementation flash-attn lora-rank lora-r lora-target finetuning-type use-lora use-peft "
         "quantization-bit "
         "load-in-4bit nnodes nproc-per-node num-nodes num-gpus num-processes num-machines optim"},
        {true, "launcher",
         "master-addr master-port node-rank rdzv-id rdzv-backend rdzv-endpoint hostfile include exclude launcher "
         "machine-rank "
         "main-process-ip main-process-port config-file mixed-precision dynamo-backend use-deepspeed module local-rank "
         "ddp-timeout ddp-backend"},
        {true, "data, files, logging and length of the run",
         "data-path dataset dataset-dir dataset-name template output-dir overwrite-output-dir overwrite-cache "
         "num-train-epochs "
         "max-steps max-samples eval-strategy evaluation-strategy save-strategy save-steps save-total-limit "
         "save-only-model "
         "eval-steps logging-steps logging-dir report-to run-name do-train do-eval stage preprocessing-num-workers "
         "dataloader-num-workers seed data-seed plot-loss val-size resume-from-checkpoint trust-remote-code "
         "use-fast-tokenizer "
         "tokenizer-name cache-dir lazy-preprocess conv-mode per-device-eval-batch-size remove-unused-columns "
         "include-num-input-tokens-seen log-level dataloader-pin-memory push-to-hub token hf-token"},
        {true, "constants of the optimizer and its schedule",
         "learning-rate lr-scheduler-type lr-scheduler-kwargs warmup-ratio warmup-steps weight-decay adam-beta1 "
         "adam-beta2 adam-epsilon max-grad-norm "
         "neftune-noise-alpha label-smoothing-factor lora-alpha lora-dropout tf32"},
        {false, "sequences of other lengths; see plan.documents",
         "packing neat-packing group-by-length pad-to-max-length"},
        {false, "kernels of other libraries", "use-liger-kernel enable-liger-kernel use-unsloth shift-attn"},
    };
    return kGroups;
}

// The DRAM and drives that offloading needs, as changes to a node.
std::string host_of(bool drives) {
    return fmt::format(
        ", host: {{tiers: [{{name: dram, medium: dram, capacity: 1 TB, read: {{value: 300 GB/s, how: assumed, source: "
        "\"eight channels "
        "of DDR5-4800\"}}, latency: 100 ns}}{}]}}",
        drives ? ", {name: nvme, medium: nvme, units: 8, capacity: 3.84 TB, read: {value: 6 GB/s, how: assumed, "
                 "source: \"drives on PCIe "
                 "4.0\"}, latency: 90 us}"
               : "");
}

bool is_number(const std::string& text) {
    return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
}

class DeepSpeed {
  public:
    DeepSpeed(ConfigText config, std::optional<CommandText> arguments, const ImportInput& input)
        : config_(std::move(config)), arguments_(std::move(arguments)), input_(input) {}

    Imported run() {
        const std::string model = model_name();
        const std::int64_t gpus = gpus_of();
        const auto [micro, global] = batches(gpus);
        const std::int64_t stage = config_.whole({"zero_optimization.stage"}, 3, 0).value_or(0);
        const std::string precision = precision_of();
        const std::string tiers = offload_of(stage, gpus);
        const std::string sequence =
            written({"cutoff-len", "max-seq-length", "model-max-length", "max-length", "block-size"});
        if (sequence.empty()) {
            out_.notes.assumed("sequences of 2,048 tokens: neither file says (model.sequence)");
        }
        const bool compiled = says("torch-compile");
        const bool recompute = says("gradient-checkpointing");
        const std::string attention = written({"attn-implementation", "flash-attn"});
        const std::int64_t secondary = config_.whole({"zero_optimization.zero_hpz_partition_size"}, 65536).value_or(1);
        const bool quantised = config_.is_true({"zero_optimization.zero_quantized_weights"});
        const bool few = config_.is_true({"zero_optimization.zero_quantized_gradients"});
        std::vector<std::string> sharding;
        if (stage == 3 && secondary > 1) {
            sharding.push_back(fmt::format("secondary: {}", secondary));
        }
        if (stage == 3 && quantised) {
            sharding.emplace_back("weight_bits: 8");
        }
        if (stage == 3 && few) {
            sharding.emplace_back("gradient_bits: 4");
        }
        const std::int64_t shard = config_.whole({"zero_optimization.mics_shard_size"}, 1e6, 1, "-1").value_or(0);
        const std::string sums = config_.text({"communication_data_type", "data_types.grad_accum_dtype"});
        std::string node = input_.option("node");
        if (node.empty()) {
            node = "dgx-h100";
            out_.notes.assumed("nodes of dgx-h100 (--node NAME; orrery list nodes)");
        }
        const std::int64_t in_node = std::min<std::int64_t>(gpus, per_node_);
        const std::string changes = (in_node == 8 ? "" : fmt::format(", gpus: {}", in_node)) +
                                    (tiers.empty() ? "" : host_of(tiers.find("nvme") != std::string::npos));
        out_.text =
            "# How long is one step of this DeepSpeed run? Written by 'orrery import deepspeed'.\norrery: 1\nkind: "
            "training\n" +
            yaml_section("cluster",
                         {{"nodes", std::to_string((gpus + in_node - 1) / in_node)},
                          {"node", changes.empty() ? node : fmt::format("{{preset: {}{}}}", node, changes)}}) +
            fmt::format("model: {{preset: {}, sequence: {}}}\n", model, sequence.empty() ? "2048" : sequence) +
            yaml_section(
                "plan",
                {{"data", std::to_string(gpus)},
                 {"micro_batch", std::to_string(micro)},
                 {"global_batch", std::to_string(global)},
                 {"recompute", recompute ? "full" : ""},
                 {"zero", stage > 0 ? std::to_string(stage) : ""},
                 {"shard", stage == 3 && shard > 0 ? std::to_string(shard) : ""},
                 {"sharding", sharding.empty() ? "" : fmt::format("{{{}}}", fmt::join(sharding, ", "))},
                 {"precision", precision},
                 {"gradient_precision", sums == "fp32" ? "fp32" : precision},
                 {"attention", attention == "flash_attention_2" || attention == "fa2" ? "flash2"
                               : attention == "eager" || attention == "disabled"      ? "unfused"
                                                                                      : ""},
                 {"fusion", compiled ? "fused" : "eager"},
                 {"offload", tiers},
                 {"adapters", adapters_of()},
                 {"overlap",
                  config_.text({"zero_optimization.overlap_comm"}) != "false" && gpus > 1 ? "{data: true}" : ""}}) +
            software();
        out_.scenario = true;
        out_.use = "'orrery run' as it is";
        config_.count(out_.notes, deepspeed_groups());
        if (arguments_) {
            const std::string optimizer = written({"optim"});
            if (!optimizer.empty() && optimizer.rfind("adamw", 0) != 0) {
                out_.notes.left_out(fmt::format("not modelled (an optimizer other than AdamW): --optim {}", optimizer));
            }
            (void)written({"deepspeed", "deepspeed-config"});
            arguments_->count(out_.notes, argument_groups());
        }
        out_.facts.push_back({"GPUs", std::to_string(gpus)});
        out_.facts.push_back({"model", model});
        return std::move(out_);
    }

  private:
    std::string written(const std::vector<std::string>& flags) { return arguments_ ? arguments_->text(flags) : ""; }
    bool says(const std::string& flag) {
        const std::string value = written({flag});
        return arguments_ && arguments_->has(flag) && value != "False" && value != "false" && value != "0";
    }
    std::optional<std::int64_t> argument(const std::vector<std::string>& flags) {
        return arguments_ ? arguments_->whole(flags, 1e9) : std::nullopt;
    }
    // A value of the configuration, or of the line where that says "auto".
    std::optional<std::int64_t> either(const std::string& key, const std::string& flag) {
        const auto value = config_.whole({key}, 1e9, 1, "auto");
        return value || flag.empty() ? value : argument({flag});
    }

    std::string model_name() {
        std::string name = input_.option("model");
        name = name.empty() ? written({"model-name-or-path", "model"}) : name;
        if (name.empty()) {
            throw ConfigError(
                {config_.error({},
                               "a DeepSpeed configuration names no model: --model NAME (orrery list models), or "
                               "--line FILE with --model_name_or_path")});
        }
        return name;
    }

    std::int64_t gpus_of() {
        std::int64_t gpus = input_.whole_option("gpus");
        const std::string per_node = written({"nproc-per-node", "num-gpus"});
        const std::string nodes = written({"nnodes", "num-nodes", "num-machines"});
        const std::string processes = written({"num-processes"});
        per_node_ = is_number(per_node) ? std::clamp<std::int64_t>(std::stoll(per_node), 1, 1024) : 8;
        if (gpus == 0 && is_number(processes)) {
            gpus = std::max(1LL, std::stoll(processes));
        }
        if (gpus == 0 && (is_number(per_node) || is_number(nodes))) {
            gpus = per_node_ * (is_number(nodes) ? std::max(1LL, std::stoll(nodes)) : 1);
        }
        const auto all = config_.whole({"train_batch_size"}, 1e9, 1, "auto");
        const auto each = config_.whole({"train_micro_batch_size_per_gpu"}, 1e9, 1, "auto");
        const auto steps = config_.whole({"gradient_accumulation_steps"}, 1e9, 1, "auto");
        if (gpus == 0 && all && each && steps && *all % (*each * *steps) == 0) {
            gpus = *all / (*each * *steps);
        }
        if (gpus == 0) {
            gpus = 8;
            out_.notes.assumed("8 GPUs: neither file says how many (--gpus N)");
        }
        if (gpus > (1 << 20)) {
            throw ConfigError(
                {config_.error({"train_batch_size"}, fmt::format("{} GPUs are more than {}", gpus, 1 << 20))});
        }
        return gpus;
    }

    std::pair<std::int64_t, std::int64_t> batches(std::int64_t gpus) {
        auto micro = either("train_micro_batch_size_per_gpu", "per-device-train-batch-size");
        auto steps = either("gradient_accumulation_steps", "gradient-accumulation-steps");
        const auto all = config_.whole({"train_batch_size"}, 1e9, 1, "auto");
        if (all && micro && !steps && *all % (*micro * gpus) == 0) {
            steps = *all / (*micro * gpus);
        }
        if (all && !micro && *all % (steps.value_or(1) * gpus) == 0) {
            micro = *all / (steps.value_or(1) * gpus);
        }
        if (!micro) {
            out_.notes.assumed("a micro-batch of 8, as TrainingArguments has without --per_device_train_batch_size");
        }
        const std::int64_t global = micro.value_or(8) * steps.value_or(1) * gpus;
        if (all && *all != global) {
            throw ConfigError({config_.error(
                {"train_batch_size"},
                fmt::format("train_batch_size {} is not micro-batch {} x {} accumulation steps x {} GPUs", *all,
                            micro.value_or(8), steps.value_or(1), gpus))});
        }
        return {micro.value_or(8), global};
    }

    std::string precision_of() {
        const std::string half = config_.text({"fp16.enabled"});
        const std::string bfloat = config_.text({"bf16.enabled", "bfloat16.enabled"});
        const auto on = [&](const std::string& value, const char* flag) {
            return value == "true" || ((value == "auto" || value.empty()) && says(flag));
        };
        if (on(bfloat, "bf16")) {
            return "bf16";
        }
        if (on(half, "fp16")) {
            return "fp16";
        }
        if (half == "auto" || bfloat == "auto") {
            out_.notes.assumed("bf16: the configuration leaves it to --bf16 or --fp16, and no line gives one");
            return "bf16";
        }
        out_.notes.assumed("training in 32 bits, as neither fp16 nor bf16 is enabled");
        return "fp32";
    }

    // What the host keeps, as one YAML value.
    std::string offload_of(std::int64_t stage, std::int64_t gpus) {
        const auto tier = [&](const char* what) -> std::string {
            const std::string device = config_.text({fmt::format("zero_optimization.{}.device", what)});
            return device == "cpu" ? "dram" : device == "nvme" ? "nvme" : "";
        };
        std::string optimizer = tier("offload_optimizer");
        if (config_.is_true({"zero_optimization.cpu_offload"})) {
            optimizer = "dram";
        }
        const std::string parameters = tier("offload_param");
        if (optimizer.empty() && parameters.empty()) {
            return "";
        }
        if (gpus > 1 && stage < 2) {
            out_.notes.left_out(
                "not modelled (offloading under ZeRO-1; memory of GPUs is overstated): "
                "zero_optimization.offload_optimizer");
            return "";
        }
        std::vector<std::string> parts;
        if (!optimizer.empty()) {
            parts.push_back(fmt::format("optimizer: {{tier: {}}}", optimizer));
            parts.emplace_back("gradients: {tier: dram}");
        }
        if (!parameters.empty() && stage == 3) {
            parts.push_back(fmt::format("parameters: {{tier: {}}}", parameters));
        }
        out_.notes.assumed(
            "1 TB of DRAM at 300 GB/s and, where they are used, eight drives of 6 GB/s in a node "
            "(cluster.node.host.tiers)");
        return parts.empty() ? "" : fmt::format("{{{}}}", fmt::join(parts, ", "));
    }

    // Low-rank adapters, as one YAML value.
    // A bucket of a size that the file says, in elements; "auto" is left to whoever fills it in.
    std::string software() {
        const std::string bucket = config_.text({"zero_optimization.reduce_bucket_size"});
        double elements = 0;
        if (bucket.empty() || bucket == "auto") {
            return "software: deepspeed\n";
        }
        if (!parse_number(bucket, elements) || elements < 1 || elements > 1e12) {
            throw ConfigError(
                {config_.error({"zero_optimization.reduce_bucket_size"},
                               fmt::format("expected 'zero_optimization.reduce_bucket_size' to be a number "
                                           "of elements or \"auto\", and found '{}'",
                                           printable(bucket, 60)))});
        }
        return fmt::format(
            "software: {{preset: deepspeed, gradient_bucket: {{value: {:.0f}, how: spec, source: "
            "reduce_bucket_size}}}}\n",
            elements);
    }

    std::string adapters_of() {
        const bool lora = written({"finetuning-type"}) == "lora" || says("use-lora") || says("use-peft");
        const auto rank = argument({"lora-rank", "lora-r"});
        if (!lora && !rank) {
            return "";
        }
        const bool four = written({"quantization-bit"}) == "4" || says("load-in-4bit");
        const std::string target = written({"lora-target"});
        const bool all = target.empty() || target == "all" || target == "all-linear";
        std::string modules;
        const std::pair<const char*, const char*> names[] = {
            {"q_proj", "query"},   {"k_proj", "key"}, {"v_proj", "value"},  {"o_proj", "output"},
            {"gate_proj", "gate"}, {"up_proj", "up"}, {"down_proj", "down"}};
        for (const auto& [theirs, ours] : names) {
            if (all || target.find(theirs) != std::string::npos) {
                modules += (modules.empty() ? "" : ",") + std::string(ours);
            }
        }
        return fmt::format("{{rank: {}{}{}}}", rank.value_or(8),
                           modules.empty() ? "" : fmt::format(", modules: \"{}\"", modules), four ? ", base: nf4" : "");
    }

    ConfigText config_;
    std::optional<CommandText> arguments_;
    const ImportInput& input_;
    Imported out_;
    std::int64_t per_node_ = 8;
};

// Whether a text is JSON or YAML of a configuration, and no command line.
bool is_json(const std::string& text) {
    const std::size_t first = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
    return first != std::string::npos && text[first] == '{';
}

ConfigText read_json(const std::string& text, const std::string& name) {
    try {
        return ConfigText(parse_yaml(text, name));  // JSON is YAML, and this way knows its lines
    } catch (const ConfigError& error) {
        std::vector<Diagnostic> problems = error.diagnostics();
        problems.front().text = "expected a DeepSpeed configuration in JSON: " + problems.front().text;
        throw ConfigError(problems);
    }
}

Imported read_deepspeed(const ImportInput& input) {
    const std::string text = input.bytes();
    if (text.find_first_not_of(" \t\r\n\xEF\xBB\xBF") == std::string::npos) {
        throw ConfigError(
            {Diagnostic{input.path(), 1, 1,
                        "expected a DeepSpeed configuration in JSON, or a command line that names one with "
                        "--deepspeed, and the file is empty",
                        ErrorCode::malformed_trace}});
    }
    if (is_json(text)) {
        const std::string line = input.option("line");
        std::optional<CommandText> arguments;
        if (!line.empty()) {
            const bool file = std::filesystem::is_regular_file(line);
            arguments = CommandText::of_script(file ? read_input(line) : line, file ? line : "--line");
            arguments->complete(argument_groups());
        }
        ConfigText config = read_json(text, input.path());
        const std::vector<std::string> keys = config.keys();
        const char* known[] = {"zero_optimization",
                               "fp16",
                               "bf16",
                               "train_batch_size",
                               "train_micro_batch_size_per_gpu",
                               "gradient_accumulation_steps",
                               "optimizer",
                               "bfloat16",
                               "zero_allow_untested_optimizer"};
        if (std::none_of(keys.begin(), keys.end(), [&](const std::string& key) {
                return std::any_of(std::begin(known), std::end(known),
                                   [&](const char* name) { return key.rfind(name, 0) == 0; });
            })) {
            throw ConfigError({config.error(keys,
                                            "expected keys of DeepSpeed such as zero_optimization, bf16 or "
                                            "train_micro_batch_size_per_gpu, and found none")});
        }
        return DeepSpeed(std::move(config), std::move(arguments), input).run();
    }
    CommandText arguments = CommandText::of_script(text, input.path());
    arguments.complete(argument_groups());
    const std::string named = arguments.text({"deepspeed", "deepspeed-config"});
    if (named.empty()) {
        throw ConfigError({arguments.error(
            {}, "expected a DeepSpeed configuration (JSON), or a command line with --deepspeed FILE")});
    }
    const std::filesystem::path beside = std::filesystem::path(input.path()).parent_path() / named;
    const std::string path = std::filesystem::exists(named) ? named : beside.string();
    if (!std::filesystem::is_regular_file(path)) {
        throw ConfigError(
            {arguments.error({"deepspeed", "deepspeed-config"},
                             fmt::format("names '{}', and there is no such file here or beside this one", named))});
    }
    return DeepSpeed(read_json(read_input(path), path), std::move(arguments), input).run();
}

}  // namespace

extern const Importer kDeepSpeedImporter = {
    "deepspeed",
    "a DeepSpeed configuration (JSON), or a command line that names one, as a training scenario",
    {{"gpus", "N", "GPUs of the run, where the text does not say it"},
     {"node", "NAME", "type of the nodes (orrery list nodes)"},
     {"model", "NAME", "model of the run, where the text does not say it"},
     {"line", "LINE", "command line beside the configuration (Hugging Face TrainingArguments), or a file with it"}},
    read_deepspeed,
    "yaml"};

}  // namespace orrery::imports
