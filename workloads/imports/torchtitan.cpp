// A torchtitan configuration (TOML) as a training scenario: model, plan and software.
//
// Source: pytorch/torchtitan, torchtitan/config/job_config.py of 2024 to 2026. What torchtitan always does: FSDP2 with communication
// in the background, sequence parallelism with tensor parallelism, gradients reduced in 32 bits.

#include "workloads/imports/config_text.hpp"
#include "workloads/imports/toml_text.hpp"

#include "sim/base/error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery::imports {

namespace {

// Presets of the flavours that torchtitan names.
struct Flavour {
    const char* model;
    const char* flavour;
    const char* preset;
};
constexpr Flavour kFlavours[] = {
    {"llama3", "8B", "llama-3.1-8b"},
    {"llama3", "70B", "llama-3.1-70b"},
    {"llama3", "405B", "llama-3.1-405b"},
    {"llama2", "7B", "llama-2-7b"},
    {"llama2", "13B", "llama-2-13b"},
    {"llama2", "70B", "llama-2-70b"},
    {"llama4", "17bx16e", "llama-4-scout"},
    {"llama4", "17bx128e", "llama-4-maverick"},
    {"deepseek_v3", "16B", "deepseek-v2-lite"},
    {"deepseek_v3", "236B", "deepseek-v2"},
    {"deepseek_v3", "671B", "deepseek-v3"},
    {"qwen3", "0.6B", "qwen3-0.6b"},
    {"qwen3", "1.7B", "qwen3-1.7b"},
    {"qwen3", "4B", "qwen3-4b"},
    {"qwen3", "8B", "qwen3-8b"},
    {"qwen3", "14B", "qwen3-14b"},
    {"qwen3", "32B", "qwen3-32b"},
    {"qwen3", "30B-A3B", "qwen3-30b-a3b"},
    {"qwen3", "235B-A22B", "qwen3-235b-a22b"},
    {"gpt_oss", "20b", "gpt-oss-20b"},
    {"gpt_oss", "120b", "gpt-oss-120b"},
};

const std::vector<FlagGroup>& groups() {
    static const std::vector<FlagGroup> kGroups = {
        {true, "files, logging and checks",
         "job. profiling. metrics. checkpoint. comm. debug. experimental.custom_import experimental.custom_args_module "
         "validation. model.tokenizer_path model.hf_assets_path model.print_after_conversion model.norm_type"},
        {true, "constants of the optimizer and its schedule",
         "lr_scheduler. optimizer.lr optimizer.eps optimizer.beta1 optimizer.beta2 optimizer.weight_decay "
         "optimizer.implementation training.max_norm training.warmup_steps"},
        {true, "data and length of the run",
         "training.dataset training.dataset_path training.steps training.seed training.deterministic training.gc_freq "
         "training.gc_debug training.data_parallel_degree training.dataset_name"},
        {true, "set with other keys",
         "compile.components compile.precompile_float8_dynamic_scale_for_fsdp compile.backend "
         "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns activation_checkpoint.preserve_rng_state "
         "activation_checkpoint.determinism_check activation_checkpoint.debug activation_checkpoint.early_stop "
         "float8.filter_fqns float8.force_recompute_fp8_weight_in_bwd float8.precompute_float8_dynamic_scale_for_fsdp "
         "quantize.linear.float8.filter_fqns quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp "
         "quantize.linear.mx.filter_fqns mx.filter_fqns parallelism.expert_parallel_comm_backend "
         "parallelism.module_fqns_per_model_part parallelism.pipeline_parallel_expert_parallel_overlap"},
        {false, "an optimizer other than AdamW with 32-bit states", "optimizer."},
        {false, "losses in parallel: logits are always cut over tensor ranks here",
         "parallelism.disable_loss_parallel"},
        {false, "fault tolerance and outer steps; see plan.outer", "fault_tolerance."},
        {false, "memory of activations under a budget",
         "activation_checkpoint.memory_budget activation_checkpoint.visualize_memory_budget_pareto"},
        {false, "experts in 8 bits", "quantize.grouped_mm. float8.moe_fqns_prototype float8.moe_fqns mx.moe_fqns"},
        {false, "states on the host", "training.enable_cpu_offload"},
        {false, "what the simple FSDP of a compiler does", "experimental."},
    };
    return kGroups;
}

std::string preset_of(ConfigText& config, const ImportInput& input) {
    if (!input.option("model").empty()) {
        return input.option("model");
    }
    const std::string name = config.text({"model.name"});
    const std::string flavour = config.text({"model.flavor"});
    const auto lower = [](std::string text) {
        std::transform(text.begin(), text.end(), text.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        return text;
    };
    std::vector<std::string> known;
    for (const Flavour& row : kFlavours) {
        // Variants such as llama4's "17bx16e_irope" and llama3_ft are the same size.
        const bool model = name == row.model || name.rfind(std::string(row.model) + "_", 0) == 0;
        if (model && (lower(flavour) == lower(row.flavour) || lower(flavour).rfind(lower(row.flavour) + "_", 0) == 0)) {
            return row.preset;
        }
        if (model) {
            known.emplace_back(row.flavour);
        }
    }
    if (name.empty() && flavour.empty()) {
        throw ConfigError(
            {config.error({}, "expected [model] with name and flavor, as torchtitan's files have, or --model NAME")});
    }
    throw ConfigError({config.error(
        {"model.flavor", "model.name"},
        fmt::format("model '{}' of flavor '{}' has no preset{}; --model NAME takes one of 'orrery list models'", name,
                    flavour, known.empty() ? "" : fmt::format(" (there are {})", fmt::join(known, ", "))))});
}

// Recomputation: full, nothing, or every second product of a layer, which the 'op' option does.
std::string recompute_of(ConfigText& config, ImportNotes& notes) {
    const std::string mode = config.text({"activation_checkpoint.mode"});
    const std::string option = config.text({"activation_checkpoint.selective_ac_option"});
    if (mode == "selective" && !option.empty() && option != "op" && option != "1") {
        notes.assumed(
            fmt::format("every second product of all layers is recomputed, in place of every {} layers", option));
    }
    return mode == "full" || (mode == "selective" && option == "1") ? "full" : mode == "none" ? "" : "half";
}

struct Mesh {
    std::int64_t replicate, shard, tensor, pipeline, context;
    [[nodiscard]] std::int64_t data() const { return replicate * shard; }
    [[nodiscard]] std::int64_t gpus() const { return data() * tensor * pipeline * context; }
};

Mesh mesh_of(ConfigText& config, std::int64_t asked, ImportNotes& notes) {
    const auto degree = [&](const std::vector<std::string>& keys) { return config.whole(keys, 65536).value_or(1); };
    Mesh mesh = {
        degree({"parallelism.data_parallel_replicate_degree", "training.data_parallel_replicate_degree"}),
        config.whole({"parallelism.data_parallel_shard_degree", "training.data_parallel_shard_degree"}, 65536, 1, "-1")
            .value_or(0),
        degree({"parallelism.tensor_parallel_degree", "training.tensor_parallel_degree"}),
        degree({"parallelism.pipeline_parallel_degree", "experimental.pipeline_parallel_degree"}),
        degree({"parallelism.context_parallel_degree", "experimental.context_parallel_degree"})};
    const bool rest = mesh.shard == 0;
    mesh.shard = rest ? 1 : mesh.shard;
    std::int64_t gpus = asked > 0 ? asked : mesh.gpus();
    if (asked == 0 && rest) {
        gpus = (mesh.gpus() + 7) / 8 * 8;
        notes.assumed(
            fmt::format("{} GPUs: the file leaves data_parallel_shard_degree to what there is (--gpus N)", gpus));
    }
    if (gpus % mesh.gpus() != 0 || (!rest && gpus != mesh.gpus())) {
        throw ConfigError({config.error(
            {"parallelism.tensor_parallel_degree", "parallelism.data_parallel_shard_degree",
             "parallelism.data_parallel_replicate_degree"},
            fmt::format("the degrees make {} GPUs, {} {}", mesh.gpus(), rest ? "which do not divide" : "not", gpus))});
    }
    mesh.shard *= gpus / mesh.gpus();
    return mesh;
}

// The name of a schedule here, and its model chunks per stage.
std::pair<std::string, std::int64_t> schedule_of(ConfigText& config, const Mesh& mesh) {
    const std::string name =
        config.text({"parallelism.pipeline_parallel_schedule", "experimental.pipeline_parallel_schedule"});
    if (mesh.pipeline == 1) {
        return {"", 1};
    }
    if (name.empty() || name == "1F1B") {
        return {"1f1b", 1};
    }
    if (name == "GPipe") {
        return {"gpipe", 1};
    }
    if (name == "Interleaved1F1B" || name == "InterleavedZeroBubble") {
        return {"interleaved", 2};
    }
    if (name == "LoopedBFS") {
        return {"breadth-first", 2};
    }
    if (name == "ZBVZeroBubble") {
        return {"zb-v", 2};
    }
    if (name == "DualPipeV") {
        return {"dualpipev", 2};
    }
    throw ConfigError(
        {config.error({"parallelism.pipeline_parallel_schedule", "experimental.pipeline_parallel_schedule"},
                      fmt::format("unknown schedule '{}'; there are 1F1B, GPipe, Interleaved1F1B, LoopedBFS, "
                                  "ZBVZeroBubble and DualPipeV",
                                  name))});
}

struct Eight {
    std::string scaling;  ///< empty: products in 16 bits
    bool gathers = false;
};

Eight eight_bits_of(ConfigText& config) {
    const std::string converters = config.text({"model.converters"});
    const auto has = [&](const char* part) { return converters.find(part) != std::string::npos; };
    const std::string recipe = config.text({"quantize.linear.float8.recipe_name", "float8.recipe_name"});
    const bool gathers = config.is_true(
        {"quantize.linear.float8.enable_fsdp_float8_all_gather", "float8.enable_fsdp_float8_all_gather"});
    if (has("mx")) {
        (void)config.text({"quantize.linear.mx.recipe_name", "mx.recipe_name"});
        return {"block", false};
    }
    if (has("float8") || config.is_true({"float8.enable_float8_linear"})) {
        return {recipe.rfind("rowwise", 0) == 0 ? "row" : "current", gathers};
    }
    return {};
}

Imported read_torchtitan(const ImportInput& input) {
    ConfigText config(parse_toml(input.bytes(), input.path()));
    Imported out;
    const std::string preset = preset_of(config, input);
    (void)config.text({"model.name"});
    (void)config.text({"model.flavor"});
    const Mesh mesh = mesh_of(config, input.whole_option("gpus"), out.notes);
    const auto [schedule, chunks] = schedule_of(config, mesh);
    const std::int64_t local = config.whole({"training.local_batch_size", "training.batch_size"}, 1e6).value_or(8);
    const std::int64_t global =
        config.whole({"training.global_batch_size"}, 1e9, 1, "-1").value_or(local * mesh.data());
    const std::int64_t micro = mesh.pipeline > 1 ? config
                                                       .whole({"parallelism.pipeline_parallel_microbatch_size",
                                                               "experimental.pipeline_parallel_microbatch_size"},
                                                              1e6)
                                                       .value_or(1)
                                                 : local;
    const std::string reshard = config.text({"parallelism.fsdp_reshard_after_forward"});
    const bool keeps = reshard == "never" || (reshard != "always" && mesh.pipeline > 1);
    const bool sharded = mesh.shard * mesh.context > 1;
    const Eight eight = eight_bits_of(config);
    const bool compiled = config.is_true({"compile.enable", "training.compile"});
    const std::int64_t expert = config.whole({"parallelism.expert_parallel_degree"}, 65536).value_or(1);
    const std::int64_t expert_tensor =
        config.whole({"parallelism.expert_tensor_parallel_degree"}, 65536).value_or(mesh.tensor);
    const std::string exchange =
        config.text({"parallelism.context_parallel_rotate_method", "experimental.context_parallel_rotate_method"});
    const std::string parameters = config.text({"training.mixed_precision_param", "training.dtype"});
    const std::string sums = config.text({"training.mixed_precision_reduce"});
    const std::int64_t sequence = config.whole({"training.seq_len"}, 1e8).value_or(2048);
    const std::string optimizer = config.text({"optimizer.name"});
    if (!optimizer.empty() && optimizer != "AdamW" && optimizer != "Adam") {
        out.notes.left_out(
            fmt::format("not modelled (an optimizer other than AdamW with 32-bit states): {}", optimizer));
    }
    std::vector<std::string> overlap;
    if (mesh.data() * mesh.context > 1) {
        overlap.emplace_back("data: true");
    }
    if (config.is_true({"parallelism.enable_async_tensor_parallel", "experimental.enable_async_tensor_parallel"}) &&
        mesh.tensor > 1) {
        overlap.emplace_back("tensor: full");
    }
    const std::string layers_per_stage = config.text({"parallelism.pipeline_parallel_layers_per_stage"});
    if (!layers_per_stage.empty() || config.has("parallelism.pipeline_parallel_split_points")) {
        out.notes.left_out(
            "not modelled (layers of stages: write 'plan.stages'): pipeline_parallel_layers_per_stage, split_points");
    }
    std::string node = input.option("node");
    if (node.empty()) {
        node = "dgx-h100";
        out.notes.assumed("nodes of dgx-h100 (--node NAME; orrery list nodes)");
    }
    const std::int64_t gpus = mesh.gpus();
    const std::int64_t in_node = std::min<std::int64_t>(gpus, 8);
    const bool experts = expert > 1 || expert_tensor != mesh.tensor;
    out.text =
        "# How long is one step of this torchtitan run? Written by 'orrery import torchtitan'.\norrery: 1\nkind: "
        "training\n" +
        yaml_section("cluster",
                     {{"nodes", std::to_string((gpus + in_node - 1) / in_node)},
                      {"node", in_node == 8 ? node : fmt::format("{{preset: {}, gpus: {}}}", node, in_node)}}) +
        fmt::format("model: {{preset: {}, sequence: {}}}\n", preset, sequence) +
        yaml_section(
            "plan",
            {{"tensor", mesh.tensor > 1 ? std::to_string(mesh.tensor) : ""},
             {"pipeline", mesh.pipeline > 1 ? std::to_string(mesh.pipeline) : ""},
             {"context", mesh.context > 1 ? std::to_string(mesh.context) : ""},
             {"context_exchange", mesh.context > 1 ? (exchange == "alltoall" ? "ring" : "gathered-ring") : ""},
             {"data", std::to_string(mesh.data())},
             {"expert", experts ? std::to_string(expert) : ""},
             {"expert_tensor", experts ? std::to_string(expert_tensor) : ""},
             {"micro_batch", std::to_string(micro)},
             {"global_batch", std::to_string(global)},
             {"schedule", schedule},
             {"chunks", chunks > 1 && schedule != "zb-v" && schedule != "dualpipev" ? std::to_string(chunks) : ""},
             {"recompute", recompute_of(config, out.notes)},
             {"sequence_parallel", mesh.tensor > 1 ? "true" : ""},
             {"zero", sharded ? (keeps ? "2" : "3") : ""},
             {"shard", sharded && !keeps && mesh.replicate > 1 ? std::to_string(mesh.shard * mesh.context) : ""},
             {"sharding", eight.gathers && sharded && !keeps ? "{weight_bits: 8}" : ""},
             {"precision", !eight.scaling.empty()    ? "fp8"
                           : parameters == "float32" ? "fp32"
                                                     : "bf16"},
             {"fp8_scaling", eight.scaling},
             {"gradient_precision", sums == "bfloat16" ? "bf16" : "fp32"},
             {"fusion", compiled ? "fused" : "eager"},
             {"loss", compiled ? "online" : "separate"},
             {"overlap", overlap.empty() ? "" : fmt::format("{{{}}}", fmt::join(overlap, ", "))}}) +
        "software: pytorch-fsdp2\n";
    out.scenario = true;
    out.use = "'orrery run' as it is";
    config.count(out.notes, groups());
    out.facts.push_back({"GPUs", std::to_string(gpus)});
    out.facts.push_back({"model", preset});
    return out;
}

}  // namespace

extern const Importer kTorchtitanImporter = {"torchtitan",
                                             "a torchtitan configuration (TOML), as a training scenario",
                                             {{"gpus", "N", "GPUs of the run, where the text does not say it"},
                                              {"node", "NAME", "type of the nodes (orrery list nodes)"},
                                              {"model", "NAME", "model of the run, where the text does not say it"}},
                                             read_torchtitan,
                                             "yaml"};

}  // namespace orrery::imports
