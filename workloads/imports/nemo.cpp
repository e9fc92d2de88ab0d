// Configurations of NeMo and Megatron-Bridge (YAML) as training scenarios: their keys are Megatron-Core's arguments under other
// names, and become these (megatron_args.cpp).
//
// Sources: NVIDIA/NeMo 1.x, examples/nlp/language_modeling/conf/megatron_gpt_config.yaml; NVIDIA-NeMo/Megatron-Bridge,
// src/megatron/bridge/training/config.py (ConfigContainer as it is written out).

#include "workloads/imports/bridge_recipe.hpp"
#include "workloads/imports/config_text.hpp"
#include "workloads/imports/megatron_flags.hpp"

#include "sim/base/error.hpp"
#include "sim/config/yaml_tree.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>

namespace orrery::imports {

namespace {

// A key, without its section, and the flag that it is. A value that is a word stays one; `true` gives the flag alone.
struct Renamed {
    const char* key;
    const char* flag;
};
constexpr Renamed kRenamed[] = {
    {"trainer.num_nodes", "nnodes"},
    {"trainer.devices", "nproc-per-node"},
    {"model.virtual_pipeline_model_parallel_size", "num-virtual-stages-per-pipeline-rank"},
    {"model.encoder_seq_length", "seq-length"},
    {"model.data.seq_length", "seq-length"},
    {"dataset.sequence_length", "seq-length"},
    {"dataset.seq_length", "seq-length"},
    {"model.activations_checkpoint_granularity", "recompute-granularity"},
    {"model.activations_checkpoint_method", "recompute-method"},
    {"model.activations_checkpoint_num_layers", "recompute-num-layers"},
    {"model.ub_tp_comm_overlap", "tp-comm-overlap"},
    {"comm_overlap.tp_comm_overlap", "tp-comm-overlap"},
    {"comm_overlap.overlap_grad_reduce", "overlap-grad-reduce"},
    {"comm_overlap.overlap_param_gather", "overlap-param-gather"},
    {"comm_overlap.overlap_moe_expert_parallel_comm", "overlap-moe-expert-parallel-comm"},
    {"comm_overlap.delay_wgrad_compute", "delay-wgrad-compute"},
    {"model.optim.overlap_grad_sync", "overlap-grad-reduce"},
    {"model.optim.overlap_param_sync", "overlap-param-gather"},
    {"model.num_moe_experts", "num-experts"},
    {"model.moe_router_topk", "moe-router-topk"},
    {"model.vocab_size", "vocab-size"},
    {"tokenizer.vocab_size", "vocab-size"},
    {"model.num_layers_in_first_pipeline_stage", "decoder-first-pipeline-num-layers"},
    {"model.num_layers_in_last_pipeline_stage", "decoder-last-pipeline-num-layers"},
    {"model.pipeline_model_parallel_layout", "pipeline-model-parallel-layout"},
    {"model.qk_pos_emb_head_dim", "qk-pos-emb-head-dim"},
    {"model.cross_entropy_loss_fusion", "cross-entropy-loss-fusion"},
    {"model.cross_entropy_fusion_impl", "cross-entropy-fusion-impl"},
    {"model.use_distributed_optimizer", "use-distributed-optimizer"},
    {"model.enable_cuda_graph", "enable-cuda-graph"},
    {"model.hybrid_override_pattern", "hybrid-override-pattern"},
    {"model.fp8_recipe", "fp8-recipe"},
    {"mixed_precision.fp8_recipe", "fp8-recipe"},
    {"mixed_precision.fp8", "fp8-format"},
    {"model.fp8", "fp8-format"},
};

// What leaves time and memory as they are, by the start of a key.
const std::vector<FlagGroup>& nemo_groups() {
    static const std::vector<FlagGroup> kGroups = {
        {true, "files, logging, checks and names",
         "recipe. name model._target_ hydra. exp_manager. run. logger. checkpoint. tokenizer. model.tokenizer. "
         "profiling. rng. "
         "rerun_state_machine. straggler. "
         "nvrx_straggler. ft. inprocess_restart. tensor_inspect. _target_ trainer.logger trainer.enable_checkpointing "
         "trainer.log_every_n_steps trainer.enable_progress_bar model.nsys_profile. model.restore_from_path "
         "model.resume_from_checkpoint model.wandb. restore_from_path defaults. model.activation_func "
         "model.apply_residual_connection_post_layernorm model.hf_model_id model.autocast_dtype model.params_dtype "
         "model.timers model.init_method model.output_layer_init_method model.generation_config results. peft. dist. "
         "model.gc_interval model.memory_profile. model.get_attention_mask_from_fusion model.grad_scale_func "
         "model.no_sync_func model.grad_sync_func model.param_sync_func model.finalize_model_grads_func "
         "model.deallocate_pipeline_outputs"},
        {true, "data, length of the run and evaluation",
         "model.data. dataset. validation. train. trainer.max_steps trainer.max_epochs trainer.max_time "
         "trainer.val_check_interval "
         "trainer.limit_val_batches trainer.limit_test_batches trainer.limit_train_batches "
         "trainer.accumulate_grad_batches "
         "trainer.accelerator trainer.use_distributed_sampler trainer.benchmark trainer.replace_sampler_ddp "
         "trainer.num_sanity_val_steps model.seed seed model.pre_process model.post_process "
         "model.apex_transformer_log_level"},
        {true, "constants of the optimizer and its schedule",
         "optimizer. scheduler. model.optim. trainer.gradient_clip_val optimizer_config_override_provider."},
        {true, "initial values, positions and constants of layers",
         "model.init_method_std model.use_scaled_init_method model.hidden_dropout_ model.layernorm_epsilon "
         "model.rotary_percentage "
         "model.seq_len_interpolation_factor model.rotary_base model.rope_scaling model.rope_scaling_factor "
         "model.headscale "
         "model.openai_gelu model.onnx_safe model.fp32_residual_connection model.fp16_lm_cross_entropy "
         "model.native_amp_init_scale "
         "model.native_amp_growth_interval model.hysteresis model.megatron_amp_O2 model.mcore_gpt "
         "model.use_cpu_initialization "
         "model.apply_query_key_layer_scaling model.transformer_engine model.normalize_attention_scores "
         "model.gradient_as_bucket_view "
         "model.gc_interval model.barrier_with_L1_time model.fp16 model.bf16 model.pipeline_dtype "
         "model.perform_initialization "
         "model.grad_allreduce_chunk_size_mb model.grad_div_ar_fusion model.sync_batch_comm model.batch_p2p_comm "
         "model.attention_softmax_in_fp32 model.masked_softmax_fusion model.persist_layer_norm model.reduce_amax "
         "model.use_emha model.ub_tp_comm_overlap_cfg model.fp8_interval model.fp8_margin model.fp8_amax_history_len "
         "model.fp8_amax_compute_algo model.fp8_wgrad model.fp8_e4m3 model.fp8_hybrid mixed_precision."},
        {false, "how gradients and communication are arranged", "ddp. comm_overlap. trainer."},
        {false, "a part of the model", "model."},
    };
    return kGroups;
}

struct Leaf {
    std::string key;
    const YamlNode* node;
    Mark mark;
};

void leaves_of(const YamlNode& node, const std::string& path, const Mark& mark, std::vector<Leaf>& out) {
    if (node.kind == YamlNode::Kind::map) {
        for (const YamlNode::Entry& entry : node.entries) {
            leaves_of(entry.value, path.empty() ? entry.key : path + "." + entry.key, entry.key_mark, out);
        }
    } else {
        out.push_back({path, &node, mark});
    }
}

std::vector<std::string> values_of(const YamlNode& node) {
    std::vector<std::string> out;
    for (const YamlNode& item : node.items) {
        out.push_back(item.scalar);
    }
    return node.kind == YamlNode::Kind::sequence ? out : std::vector<std::string>{node.scalar};
}

// The value that ${...} means: another key, from the root or beside this one (one dot); else as it is.
std::string resolved(const std::string& value, const std::string& key, const std::vector<Leaf>& leaves) {
    if (value == "True" || value == "False") {  // as Python writes them, and its YAML reads them
        return value == "True" ? "true" : "false";
    }
    const bool refers = value.rfind("${", 0) == 0 && value.back() == '}' && value.find(':') == std::string::npos;
    if (!refers) {
        return value;
    }
    std::string wanted = value.substr(2, value.size() - 3);
    if (!wanted.empty() && wanted[0] == '.') {
        wanted = key.substr(0, key.rfind('.') + 1) + wanted.substr(1);
    }
    const auto found = std::find_if(leaves.begin(), leaves.end(), [&](const Leaf& leaf) { return leaf.key == wanted; });
    return found != leaves.end() && found->node->scalar.rfind("${", 0) != 0
               ? resolved(found->node->scalar, found->key, leaves)
               : value;
}

std::size_t offset_of(const std::string& text, const Mark& mark) {
    std::size_t at = 0;
    for (int line = 1; line < mark.line && at < text.size(); ++line) {
        at = std::min(text.find('\n', at), text.size() - 1) + 1;
    }
    return std::min(at + static_cast<std::size_t>(std::max(0, mark.column - 1)), text.size());
}

bool is_known(const std::string& flag) {
    for (const FlagGroup& group : megatron_flag_groups()) {
        if ((" " + std::string(group.flags) + " ").find(" " + flag + " ") != std::string::npos) {
            return true;
        }
    }
    return false;
}

class Nemo {
  public:
    Nemo(const ImportInput& input, const std::string& text, YamlNode tree)
        : input_(input), text_(text), tree_(std::move(tree)) {
        leaves_of(tree_, "", tree_.mark, leaves_);
        add_recipe();
    }

    Imported run() {
        if (find("model.num_layers") == nullptr) {
            const YamlNode* model = tree_.find("model");
            throw ConfigError(
                {(model != nullptr ? model->mark : Mark{tree_.mark.file, 1, 1})
                     .error("expected 'model.num_layers', as NeMo's and Megatron-Bridge's files have, and found none",
                            ErrorCode::malformed_trace)});
        }
        for (const Leaf& leaf : leaves_) {
            take(leaf);
        }
        settle();
        CommandText flags = CommandText::of_flags(flags_, text_, input_.path());
        Imported out = megatron_scenario(
            flags, input_,
            "# How long is one step of this NeMo or Megatron-Bridge run? Written by 'orrery import nemo'.");
        name_left_out(out.notes, nemo_groups(), left_);
        if (!recipe_.empty()) {
            out.notes.assumed(
                fmt::format("what Megatron-Bridge's recipe {} starts from, where the text says nothing else", recipe_));
        }
        return out;
    }

  private:
    // A recipe of Megatron-Bridge that the file names, and what it starts from where the file says nothing else. Overrides stand in the
    // root, under ConfigContainer, or as arguments of the recipe.
    void add_recipe() {
        constexpr std::string_view kContainer = "ConfigContainer.";
        std::string name;
        Mark mark;
        for (Leaf& leaf : leaves_) {
            if (leaf.key.rfind(kContainer, 0) == 0) {
                leaf.key.erase(0, kContainer.size());
            }
            if (leaf.key == "recipe" || leaf.key == "recipe._target_" || leaf.key == "_target_" ||
                leaf.key == "recipe.name") {
                const std::string found = bridge_recipe(leaf.node->scalar);
                name = found.empty() ? name : found;
                mark = found.empty() ? mark : leaf.mark;
                leaf.key = found.empty() ? leaf.key : "recipe._target_";
            }
        }
        if (name.empty() || find("model.num_layers") != nullptr) {
            return;
        }
        constexpr std::string_view kArgument = "recipe.";
        for (Leaf& leaf : leaves_) {
            if (leaf.key.rfind(kArgument, 0) == 0 && leaf.key != "recipe._target_") {
                const std::string key = leaf.key.substr(kArgument.size());
                leaf.key = key == "global_batch_size" || key == "micro_batch_size" ? "train." + key
                           : key == "precision_config"                             ? "mixed_precision"
                           : key == "dir" || key == "name"                         ? "name"
                                                                                   : "model." + key;
            }
        }
        try {
            defaults_ = parse_yaml(bridge_defaults(name, input_.data()), "the recipe");
        } catch (const ConfigError& error) {
            throw ConfigError({mark.error(error.diagnostics().empty() ? error.what() : error.diagnostics()[0].text,
                                          ErrorCode::unknown_name)});
        }
        std::vector<Leaf> added;
        leaves_of(defaults_, "", mark, added);
        for (Leaf& leaf : added) {
            const std::string section = leaf.key + ".";
            const bool said = std::any_of(leaves_.begin(), leaves_.end(), [&](const Leaf& own) {
                return own.key == leaf.key || own.key.rfind(section, 0) == 0;
            });
            if (!said) {
                leaf.mark = mark;
                leaves_.push_back(leaf);
            }
        }
        recipe_ = name;
    }

    const Leaf* find(const std::string& key) const {
        const auto found =
            std::find_if(leaves_.begin(), leaves_.end(), [&](const Leaf& leaf) { return leaf.key == key; });
        return found == leaves_.end() ? nullptr : &*found;
    }
    std::string word(const std::string& key) const {
        const Leaf* leaf = find(key);
        return leaf == nullptr ? "" : resolved(leaf->node->scalar, key, leaves_);
    }
    bool given(const std::string& flag) const {
        return std::any_of(flags_.begin(), flags_.end(),
                           [&](const CommandText::Flag& one) { return one.name == flag; });
    }
    void add(const std::string& flag, std::vector<std::string> values, const Mark& mark) {
        if (!given(flag)) {
            flags_.push_back({flag, std::move(values), offset_of(text_, mark)});
        }
    }

    void leave(const std::string& key) {
        const std::vector<FlagGroup>& groups = nemo_groups();
        std::size_t group = 0;
        for (std::size_t i = 0; i < groups.size() && group == 0; ++i) {
            const std::string names = " " + std::string(groups[i].flags) + " ";
            bool named = names.find(" " + key + " ") != std::string::npos;
            for (std::size_t dot = key.find('.'); dot != std::string::npos && !named; dot = key.find('.', dot + 1)) {
                named = names.find(" " + key.substr(0, dot + 1) + " ") != std::string::npos;
            }
            group = named ? i + 1 : 0;
        }
        // Of the model itself nothing is known unless it is named.
        const bool named = group > 0 && std::string_view(groups[group - 1].flags) != "model.";
        left_[named ? group : 0].push_back(key);
    }

    void take(const Leaf& leaf) {
        static const char* kSettled[] = {"trainer.precision",
                                         "model.activation",
                                         "model.bias",
                                         "model.add_bias_linear",
                                         "model.gated_linear_unit",
                                         "model.share_embeddings_and_output_weights",
                                         "model.optim.name",
                                         "model.optim.grad_sync_dtype",
                                         "mixed_precision",
                                         "mixed_precision.grad_reduce_in_fp32",
                                         "mixed_precision.bf16",
                                         "mixed_precision.fp16",
                                         "ddp.grad_reduce_in_fp32",
                                         "model.gradient_accumulation_fusion",
                                         "model.normalization",
                                         "model.make_vocab_size_divisible_by",
                                         "model.overlap_p2p_comm",
                                         "model.qk_layernorm"};
        std::vector<std::string> values = values_of(*leaf.node);
        for (std::string& value : values) {
            value = resolved(value, leaf.key, leaves_);
        }
        const bool null = leaf.node->kind == YamlNode::Kind::null ||
                          (values.size() == 1 && (values[0] == "null" || values[0] == "None"));
        for (const Renamed& row : kRenamed) {
            if (leaf.key == row.key) {
                if (!null && values != std::vector<std::string>{"false"}) {
                    add(row.flag, values == std::vector<std::string>{"true"} ? std::vector<std::string>() : values,
                        leaf.mark);
                }
                return;
            }
        }
        if (std::find(std::begin(kSettled), std::end(kSettled), leaf.key) != std::end(kSettled)) {
            return;
        }
        const std::string section = leaf.key.substr(0, leaf.key.find('.'));
        const bool layers = leaf.key.ends_with("_freq") && leaf.node->kind == YamlNode::Kind::sequence;
        if (layers) {  // one entry a layer is one value
            values = {fmt::format("[{}]", fmt::join(values, ","))};
        }
        std::string flag = leaf.key.substr(leaf.key.rfind('.') + 1);
        std::replace(flag.begin(), flag.end(), '_', '-');
        const bool direct = std::count(leaf.key.begin(), leaf.key.end(), '.') == 1;
        const bool core = section == "model" || section == "train" || section == "ddp" || section == "optimizer";
        if (direct && core && is_known(flag)) {
            if (!null && values != std::vector<std::string>{"false"}) {
                add(flag, values == std::vector<std::string>{"true"} ? std::vector<std::string>() : values, leaf.mark);
            }
            return;
        }
        if (!null && values != std::vector<std::string>{"false"}) {
            leave(leaf.key);
        }
    }

    // What both tools say in other ways than flags.
    void settle() {
        const Mark start = find("model.num_layers")->mark;
        const std::string precision = word("trainer.precision") + word("mixed_precision");
        if (precision.find("bf16") != std::string::npos || word("mixed_precision.bf16") == "true" ||
            precision.empty()) {
            add("bf16", {}, start);
        } else if (precision.find("16") != std::string::npos || word("mixed_precision.fp16") == "true") {
            add("fp16", {}, start);
        }
        if (precision.find("fp8") != std::string::npos || word("model.fp8_hybrid") == "true" ||
            word("model.fp8_e4m3") == "true") {
            if (word("model.fp8") != "false") {
                add("fp8-format", {"hybrid"}, start);
            }
            const char* recipe =
                precision.find("mxfp8") != std::string::npos             ? "mxfp8"
                : precision.find("current_scaling") != std::string::npos ? "tensorwise"
                : precision.find("subchannel") != std::string::npos || precision.find("blockwise") != std::string::npos
                    ? "blockwise"
                    : "delayed";
            add("fp8-recipe", {recipe}, start);
        }
        const std::string activation = word("model.activation");
        if (activation.find("swiglu") != std::string::npos || activation.find("geglu") != std::string::npos ||
            activation.find("reglu") != std::string::npos || word("model.gated_linear_unit") == "true") {
            add("swiglu", {}, start);
        }
        if (word("model.bias") == "false" || word("model.add_bias_linear") == "false") {
            add("disable-bias-linear", {}, start);
        }
        if (word("model.share_embeddings_and_output_weights") == "false") {
            add("untie-embeddings-and-output-weights", {}, start);
        }
        if (word("model.optim.name") == "distributed_fused_adam" ||
            word("model.optim.name") == "mcore_distributed_optim") {
            add("use-distributed-optimizer", {}, start);
        }
        if (word("ddp.grad_reduce_in_fp32") == "false" || word("mixed_precision.grad_reduce_in_fp32") == "false" ||
            word("model.optim.grad_sync_dtype") == "bf16") {
            add("grad-reduce-in-bf16", {}, start);
        }
        if (word("model.gradient_accumulation_fusion") == "false") {
            add("no-gradient-accumulation-fusion", {}, start);
        }
        if (word("model.overlap_p2p_comm") == "false") {
            add("no-overlap-p2p-communication", {}, start);
        }
        if (word("model.qk_layernorm") == "true") {
            add("qk-layernorm", {}, start);
        }
        // NeMo fuses the loss, and takes the number of query groups without a switch beside it.
        add("cross-entropy-loss-fusion", {}, start);
        add("group-query-attention", {}, start);
        if (const std::string multiple = word("model.make_vocab_size_divisible_by"); !multiple.empty()) {
            add("make-vocab-size-divisible-by", {multiple}, start);
        }
        for (const char* key : {"hidden-dropout", "attention-dropout"}) {
            add(key, {"0"}, start);  // both tools' default is none
        }
        // ${multiply:4, ${.hidden_size}} and the like are the default.
        std::erase_if(flags_, [](const CommandText::Flag& flag) {
            return !flag.values.empty() && flag.values[0].rfind("${", 0) == 0;
        });
    }

    const ImportInput& input_;
    const std::string& text_;
    YamlNode tree_;
    YamlNode defaults_;  ///< of a recipe
    std::string recipe_;
    std::vector<Leaf> leaves_;
    std::vector<CommandText::Flag> flags_;
    std::map<std::size_t, std::vector<std::string>> left_;
};

// A command line of overrides, as Hydra takes them: "python pretrain.py model.num_layers=32 +train.micro_batch_size=2". Nothing
// where the text has none.
std::optional<YamlNode> overrides_of(const std::string& text, const std::string& name) {
    if (text.find("model.") == std::string::npos || text.find("\nmodel:") != std::string::npos ||
        text.rfind("model:", 0) == 0) {
        return std::nullopt;
    }
    return read_overrides(text, name);
}

Imported read_nemo(const ImportInput& input) {
    const std::string text = input.bytes();
    std::optional<YamlNode> overrides = overrides_of(text, input.path());
    constexpr std::string_view kFlag = "--recipe";
    if (const std::size_t flag = text.find(kFlag); flag != std::string::npos) {  // run_recipe.py --recipe NAME
        const std::size_t start = text.find_first_not_of(" =\"'", flag + kFlag.size());
        const std::size_t end = start == std::string::npos ? start : text.find_first_of(" \t\r\n\"'\\", start);
        if (start != std::string::npos) {
            const auto name = std::make_shared<const std::string>(input.path());
            const Mark mark{
                name,
                1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(start), '\n')),
                static_cast<int>(start - (text.rfind('\n', start) + 1)) + 1};
            overrides = overrides ? std::move(overrides) : read_overrides(text, input.path());
            overrides = overrides ? std::move(overrides) : std::optional<YamlNode>(YamlNode{});
            overrides->kind = YamlNode::Kind::map;
            YamlNode value;
            value.kind = YamlNode::Kind::scalar;
            value.scalar = text.substr(start, end == std::string::npos ? end : end - start);
            value.mark = mark;
            overrides->entries.push_back({"recipe", mark, std::move(value)});
        }
    }
    return Nemo(input, text,
                overrides ? std::move(*overrides)
                          : expected_yaml(text, input.path(),
                                          "'model' and 'trainer' of NeMo or 'model' and 'train' of Megatron-Bridge"))
        .run();
}

}  // namespace

extern const Importer kNemoImporter = {"nemo",
                                       "a configuration of NeMo or Megatron-Bridge (YAML), as a training scenario",
                                       {{"gpus", "N", "GPUs of the run, where the text does not say it"},
                                        {"node", "NAME", "type of the nodes (orrery list nodes)"}},
                                       read_nemo,
                                       "yaml"};

}  // namespace orrery::imports
