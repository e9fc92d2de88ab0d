// A run of verl or NeMo-RL as steps of reinforcement learning: their Hydra overrides on a command line, or the same keys in YAML.
//
// Claims: the model, the batch of a step, the ranks of generation and training, what shares GPUs, and limits of lengths. Mean lengths of
// prompts and answers are of the data and not in the text: half of the limits, which is noted. Rules judge samples.
// Sources: volcengine/verl, verl/trainer/config/ppo_trainer.yaml; NVIDIA-NeMo/RL, examples/configs/grpo_math_1B.yaml.

#include "workloads/imports/config_text.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/yaml_tree.hpp"
#include "workloads/model/model_names.hpp"
#include "workloads/model/model_spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

namespace orrery::imports {

namespace {

const std::vector<FlagGroup>& rl_groups() {
    static const std::vector<FlagGroup> kGroups = {
        {true, "files, logging, checks and names",
         "trainer.logger trainer.project_name trainer.experiment_name trainer.default_local_dir trainer.save_freq "
         "trainer.test_freq trainer.val_before_train trainer.resume_mode trainer.log_val_generations "
         "trainer.default_hdfs_dir trainer.max_actor_ckpt_to_keep trainer.max_critic_ckpt_to_keep trainer.device "
         "trainer.critic_warmup trainer.total_epochs trainer.total_training_steps trainer.rollout_data_dir "
         "trainer.validation_data_dir trainer.use_legacy_worker_impl trainer.balance_batch "
         "trainer.remove_previous_ckpt_in_save "
         "actor_rollout_ref.actor.checkpoint. actor_rollout_ref.actor.profiler. critic.checkpoint. "
         "actor_rollout_ref.actor.megatron.use_dist_checkpointing "
         "actor_rollout_ref.actor.megatron.dist_checkpointing_path "
         "actor_rollout_ref.ref.megatron. actor_rollout_ref.model.trust_remote_code actor_rollout_ref.model.use_shm "
         "actor_rollout_ref.rollout.load_format actor_rollout_ref.rollout.disable_log_stats  ray_init. ray_kwargs. "
         "logger. checkpointing. "
         "global_profiler. custom_reward_function. env. defaults hydra. "
         "grpo.max_num_steps grpo.max_num_epochs grpo.val_ grpo.seed grpo.val_period grpo.val_batch_size "
         "grpo.max_val_samples grpo.val_at_start grpo.max_rollout_turns"},
        {true, "data",
         "data.train_files data.val_files data.shuffle data.filter_overlong_prompts data.truncation "
         "data.prompt_key data.reward_fn_key data.image_key data.return_raw_chat data.val_batch_size "
         "data.trust_remote_code data.tokenizer data.dataset_name data.train. data.validation. "
         "data.default. data.num_workers data.prompt_file data.system_prompt_file policy.tokenizer."},
        {true, "constants of the optimizer and of the loss",
         "actor_rollout_ref.actor.optim. actor_rollout_ref.actor.kl_loss_coef actor_rollout_ref.actor.kl_loss_type "
         "actor_rollout_ref.actor.entropy_coeff actor_rollout_ref.actor.clip_ratio "
         "actor_rollout_ref.actor.clip_ratio_low actor_rollout_ref.actor.clip_ratio_high "
         "actor_rollout_ref.actor.clip_ratio_c actor_rollout_ref.actor.grad_clip "
         "actor_rollout_ref.actor.loss_agg_mode actor_rollout_ref.actor.policy_loss. critic.optim. "
         "critic.cliprange_value "
         "algorithm.use_kl_in_reward algorithm.kl_ctrl. algorithm.gamma algorithm.lam "
         "algorithm.norm_adv_by_std_in_grpo "
         "algorithm.filter_groups. algorithm.rollout_is. policy.optimizer. policy.scheduler. policy.max_grad_norm "
         "loss_fn. grpo.normalize_rewards grpo.use_leave_one_out_baseline grpo.overlong_filtering"},
        {true, "how answers are drawn",
         "actor_rollout_ref.rollout.temperature actor_rollout_ref.rollout.top_k actor_rollout_ref.rollout.top_p "
         "actor_rollout_ref.rollout.val_kwargs. policy.generation.temperature policy.generation.top_k "
         "policy.generation.top_p policy.generation.stop_token_ids policy.generation.stop_strings"},
        {false, "batches of forward passes and of answers' probabilities",
         "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu "
         "actor_rollout_ref.rollout.log_prob_micro_batch_size actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu "
         "actor_rollout_ref.ref.log_prob_micro_batch_size policy.logprob_batch_size "
         "actor_rollout_ref.actor.use_dynamic_bsz actor_rollout_ref.actor.ppo_max_token_len_per_gpu "
         "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu "
         "actor_rollout_ref.ref.log_prob_use_dynamic_bsz actor_rollout_ref.ref.log_prob_max_token_len_per_gpu "
         "policy.dynamic_batching. policy.sequence_packing."},
        {true, "set with other keys",
         "actor_rollout_ref.actor.strategy actor_rollout_ref.ref.strategy critic.strategy "
         "actor_rollout_ref.hybrid_engine "
         "policy.dtensor_cfg.enabled policy.megatron_cfg.enabled policy.precision policy.dtensor_cfg.sequence_parallel "
         "policy.megatron_cfg.sequence_parallel policy.generation.vllm_cfg.precision "
         "actor_rollout_ref.actor.megatron.sequence_parallel actor_rollout_ref.rollout.dtype "
         "actor_rollout_ref.rollout.mode actor_rollout_ref.actor.ulysses_sequence_parallel_size "
         "policy.generation.colocated. actor_rollout_ref.actor.megatron.use_mbridge"},
        {true, "the kernels are the same size",
         "actor_rollout_ref.model.use_fused_kernels actor_rollout_ref.actor.use_torch_compile "
         "actor_rollout_ref.actor.megatron.override_transformer_config. actor_rollout_ref.model.use_liger"},
        {false, "limits of the generator's batches",
         "actor_rollout_ref.rollout.max_num_batched_tokens actor_rollout_ref.rollout.max_num_seqs "
         "actor_rollout_ref.rollout.enforce_eager actor_rollout_ref.rollout.enable_chunked_prefill "
         "actor_rollout_ref.rollout.max_model_len policy.generation.vllm_cfg.max_model_len "
         "policy.generation.vllm_cfg.enforce_eager actor_rollout_ref.rollout.expert_parallel_size "
         "actor_rollout_ref.rollout.data_parallel_size"},
        {false, "turns and tools of agents", "actor_rollout_ref.rollout.multi_turn. actor_rollout_ref.rollout.agent."},
        {false, "low-rank adapters (plan.adapter)",
         "actor_rollout_ref.model.lora_rank actor_rollout_ref.model.lora_alpha actor_rollout_ref.model.target_modules"},
        {false, "where states lie while others work",
         "actor_rollout_ref.actor.megatron.param_offload actor_rollout_ref.actor.megatron.grad_offload "
         "actor_rollout_ref.actor.megatron.optimizer_offload "
         "actor_rollout_ref.actor.fsdp_config. actor_rollout_ref.ref.fsdp_config. critic.model.fsdp_config. "
         "actor_rollout_ref.rollout.free_cache_engine policy.dtensor_cfg.cpu_offload"},
    };
    return kGroups;
}

class RlConfig {
  public:
    RlConfig(const ImportInput& input, ConfigText config) : input_(input), config_(std::move(config)) {}

    Imported run() {
        verl_ = config_.has("actor_rollout_ref.model.path");
        const std::string model = config_.text({"actor_rollout_ref.model.path", "policy.model_name"});
        if (model.empty()) {
            throw ConfigError({config_.error({},
                                             "expected 'actor_rollout_ref.model.path' of verl or "
                                             "'policy.model_name' of NeMo-RL, and found neither")});
        }
        check_name(model, {"actor_rollout_ref.model.path", "policy.model_name"});
        const std::string algorithm = algorithm_of();
        const std::int64_t nodes = whole({"trainer.nnodes", "cluster.num_nodes"}, 1, 65536);
        const std::int64_t in_node = whole({"trainer.n_gpus_per_node", "cluster.gpus_per_node"}, 8, 64);
        const std::int64_t gpus = nodes * in_node;
        const std::int64_t prompts = whole({"data.train_batch_size", "grpo.num_prompts_per_step"}, verl_ ? 1024 : 32);
        const std::int64_t samples =
            whole({"actor_rollout_ref.rollout.n", "grpo.num_generations_per_prompt"}, verl_ ? 1 : 16, 1 << 16);
        set_lengths();
        std::string node = input_.option("node");
        if (node.empty()) {
            node = "dgx-h100";
            out_.notes.assumed("nodes of dgx-h100 (--node NAME; orrery list nodes)");
        }
        out_.text = fmt::format(
            "# How long is a step of this {} run? Written by 'orrery import rl-config'.\norrery: 1\nkind: "
            "rl\ncluster: {{nodes: {}, node: {}}}\nalgorithm: {}\nbatch: {{prompts: {}, samples: {}}}\n"
            "rewards: {{time: 20 ms, workers: 64}}\n{}jobs:\n",
            verl_ ? "verl" : "NeMo-RL", nodes,
            in_node == 8 ? node : fmt::format("{{preset: {}, gpus: {}}}", node, in_node), algorithm, prompts, samples,
            synchronisation(in_node));
        out_.notes.assumed("rules that judge a sample in 20 ms, 64 at a time (rewards)");
        const std::string places = nodes == 1 ? "0-0" : fmt::format("0-{}", nodes - 1);
        add_generator(model, places, gpus);
        if (has_reference()) {
            add_training("reference", model, places, gpus, 1, false);
        }
        const std::int64_t mini = verl_ ? whole({"actor_rollout_ref.actor.ppo_mini_batch_size"}, 256) * samples
                                        : whole({"policy.train_global_batch_size"}, 512);
        if (algorithm == "ppo") {
            const std::string critic = config_.text({"critic.model.path"});
            check_name(critic, {"critic.model.path"});
            add_training("critic", critic.empty() ? model : critic, places, gpus, mini, true);
        }
        add_training("actor", model, places, gpus, mini, true);
        out_.scenario = true;
        out_.use = "'orrery run' as it is";
        config_.count(out_.notes, rl_groups());
        out_.facts.push_back({"model", model});
        out_.facts.push_back({"GPUs", std::to_string(gpus)});
        return std::move(out_);
    }

  private:
    std::int64_t whole(const std::vector<std::string>& keys, std::int64_t otherwise, double most = 1e9) {
        return config_.whole(keys, most, 1, "null").value_or(otherwise);
    }

    void check_name(const std::string& model, const std::vector<std::string>& keys) const {
        if (!std::all_of(model.begin(), model.end(), [](unsigned char c) {
                return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_' || c == '/';
            })) {
            throw ConfigError(
                {config_.error(keys, fmt::format("'{}' is no name of a model, as Qwen/Qwen3-8B is (orrery list models)",
                                                 printable(model, 100)))});
        }
    }

    std::string algorithm_of() {
        const std::string said = config_.text({"algorithm.adv_estimator"});
        if (said.empty()) {
            return verl_ ? "ppo" : "grpo";
        }
        if (said == "gae") {
            return "ppo";
        }
        if (said.rfind("rloo", 0) == 0) {
            return "rloo";
        }
        if (said == "remax") {
            return "remax";
        }
        if (said != "grpo") {
            out_.notes.assumed(
                fmt::format("the parts of grpo for the estimator '{}', which has no critic either", said));
        }
        return "grpo";
    }

    bool has_reference() {
        return verl_ ? config_.is_true({"actor_rollout_ref.actor.use_kl_loss"}) ||
                           config_.is_true({"algorithm.use_kl_in_reward"})
                     : config_.text({"loss_fn.reference_policy_kl_penalty"}) != "0";
    }

    void set_lengths() {
        const std::int64_t total = verl_ ? 0 : whole({"policy.max_total_sequence_length"}, 512);
        prompt_ = verl_ ? whole({"data.max_prompt_length"}, 512) : whole({"data.max_input_seq_length"}, total / 2);
        answer_ = verl_ ? whole({"data.max_response_length"}, 512) : whole({"policy.generation.max_new_tokens"}, total);
        sequence_ = verl_ ? prompt_ + answer_ : total;
        answer_ = verl_ ? answer_ : std::min(answer_, std::max<std::int64_t>(2, total - prompt_ / 2));
        out_.notes.assumed(
            fmt::format("prompts of {} and answers of {} tokens on average, half of what the limits "
                        "allow (requests.prompt, requests.output)",
                        std::max<std::int64_t>(1, prompt_ / 2), std::max<std::int64_t>(1, answer_ / 2)));
    }

    void add_generator(const std::string& model, const std::string& places, std::int64_t gpus) {
        const std::vector<std::string> keys = {"actor_rollout_ref.rollout.tensor_model_parallel_size",
                                               "policy.generation.vllm_cfg.tensor_parallel_size"};
        const std::int64_t tensor = whole(keys, 1, 1024);
        if (gpus % tensor != 0) {
            throw ConfigError(
                {config_.error(keys, fmt::format("{} ranks of generation do not divide {} GPUs", tensor, gpus))});
        }
        const std::string engine = config_.text({"actor_rollout_ref.rollout.name", "policy.generation.backend"});
        const std::string memory = config_.text(
            {"actor_rollout_ref.rollout.gpu_memory_utilization", "policy.generation.vllm_cfg.gpu_memory_utilization"});
        out_.text += fmt::format(
            "  - role: generator\n    nodes: {}\n    scenario:\n      kind: serving\n      model: {}\n      engine: "
            "{{replicas: {}, tensor: {}, software: {}, router: session, kv: {{memory: {}, prefix: {{}}}}}}\n      "
            "requests: {{prompt: {{mean: {}}}, output: {{kind: lognormal, mean: {}, spread: 0.8, most: {}}}}}\n",
            places, model, gpus / tensor, tensor, engine == "sglang" ? "sglang-0.5" : "vllm-0.11",
            memory.empty() ? "0.5" : memory, std::max<std::int64_t>(1, prompt_ / 2),
            std::max<std::int64_t>(1, answer_ / 2), answer_);
    }

    // Which rank has which experts is not known where weights go over the fabric.
    std::string synchronisation(std::int64_t in_node) {
        const std::int64_t expert = whole({"actor_rollout_ref.actor.megatron.expert_model_parallel_size",
                                           "policy.megatron_cfg.expert_model_parallel_size"},
                                          1, 1024);
        if (expert <= 1) {
            return "";
        }
        out_.notes.assumed(
            "weights with experts on ranks of their own go to the generator by way of a server at 50 GB/s "
            "per GPU of a node (synchronisation)");
        return fmt::format("synchronisation: {{through: server, bandwidth: {} GB/s}}\n", 50 * in_node);
    }

    // Training starts from weights in 16 bits: of a quantised checkpoint it takes the preset.
    std::string trained(const std::string& model) {
        const auto checkpoint = find_checkpoint(model, input_.data());
        if (!checkpoint || !checkpoint->quantised()) {
            return model;
        }
        out_.notes.assumed(fmt::format("training of {} in 16 bits, whose checkpoint has fewer", checkpoint->preset));
        return checkpoint->preset;
    }

    // Whether a model is a mixture of experts; also where no preset describes it, which a scenario says.
    [[nodiscard]] bool has_experts(const std::string& model) const {
        const auto checkpoint = find_checkpoint(model, input_.data());
        return !checkpoint || input_.data().preset(kModelPresets, checkpoint->preset)->find("experts") != nullptr;
    }

    // Sequences of a pass. Without padding those have the mean length, and a limit on tokens holds as many of them as fit.
    std::int64_t sequences_of_pass(std::int64_t given) {
        const std::int64_t mean = std::max<std::int64_t>(1, (prompt_ + answer_) / 2);
        const bool packed = config_.is_true({"actor_rollout_ref.model.use_remove_padding"});
        if (config_.is_true({"actor_rollout_ref.actor.use_dynamic_bsz"})) {
            const std::int64_t tokens = whole({"actor_rollout_ref.actor.ppo_max_token_len_per_gpu"}, 16384);
            const std::int64_t passes = std::max<std::int64_t>(1, tokens / sequence_);
            out_.notes.assumed(
                fmt::format("passes of {} sequences of {} tokens, what {} tokens hold", passes, sequence_, tokens));
            return passes;
        }
        if (!packed || given <= 1) {
            return given;
        }
        const std::int64_t passes = std::max<std::int64_t>(1, given * mean / sequence_);
        out_.notes.assumed(
            fmt::format("passes of {} sequences of {} tokens for {} without padding, of half as many on "
                        "average",
                        passes, sequence_, given));
        return passes;
    }

    void add_training(const char* role, const std::string& name, const std::string& places, std::int64_t gpus,
                      std::int64_t batch, bool updates) {
        const std::string model = trained(name);
        const std::string actor = "actor_rollout_ref.actor.";
        const bool megatron =
            config_.text({actor + "strategy"}) == "megatron" ||
            !config_
                 .text({actor + "megatron.tensor_model_parallel_size", actor + "megatron.pipeline_model_parallel_size",
                        actor + "megatron.expert_model_parallel_size"})
                 .empty() ||
            config_.is_true({"policy.megatron_cfg.enabled"});
        const auto degree = [&](const char* verl, const char* nemo) {
            const std::string own = std::string_view(role) == "critic" ? "critic." : actor;  // its own go first
            return whole({own + verl, actor + verl,
                          std::string(megatron ? "policy.megatron_cfg." : "policy.dtensor_cfg.") + nemo},
                         1, 1024);
        };
        const std::int64_t tensor = degree("megatron.tensor_model_parallel_size",
                                           megatron ? "tensor_model_parallel_size" : "tensor_parallel_size");
        const std::int64_t pipeline =
            megatron ? degree("megatron.pipeline_model_parallel_size", "pipeline_model_parallel_size") : 1;
        const std::int64_t context =
            megatron ? degree("megatron.context_parallel_size", "context_parallel_size")
                     : whole({actor + "ulysses_sequence_parallel_size", "policy.dtensor_cfg.context_parallel_size"}, 1,
                             1024);
        const std::int64_t product = tensor * pipeline * context;
        if (gpus % product != 0) {
            throw ConfigError({config_.error(
                {actor + "megatron.tensor_model_parallel_size", actor + "ulysses_sequence_parallel_size",
                 "policy.dtensor_cfg.tensor_parallel_size", "policy.megatron_cfg.tensor_model_parallel_size"},
                fmt::format("tensor {} x pipeline {} x context {} does not divide {} GPUs", tensor, pipeline, context,
                            gpus))});
        }
        const std::int64_t data = gpus / product;
        const std::int64_t micro =
            updates ? sequences_of_pass(
                          whole({actor + "ppo_micro_batch_size_per_gpu", "policy.train_micro_batch_size"}, 1, 1e6))
                    : 1;
        const std::int64_t expert = megatron && has_experts(model)
                                        ? degree("megatron.expert_model_parallel_size", "expert_model_parallel_size")
                                        : 1;
        const std::int64_t expert_tensor =
            megatron ? degree("megatron.expert_tensor_parallel_size", "expert_tensor_parallel_size") : 1;
        const std::int64_t step = data * micro;
        const std::int64_t global = updates ? std::max(step, batch / step * step) : step;
        if (updates && global != batch) {
            out_.notes.assumed(
                fmt::format("updates of {} samples for the {} of a mini-batch, which {} ranks of {} "
                            "samples do not divide",
                            global, batch, data, micro));
        }
        // The default of verl's models on FSDP.
        const bool critic = std::string_view(role) == "critic";
        const std::string checkpointing = critic ? "critic.model.enable_gradient_checkpointing"
                                                 : "actor_rollout_ref.model.enable_gradient_checkpointing";
        const bool checkpoints = (verl_ && !megatron && config_.text({checkpointing}).empty()) ||
                                 config_.is_true({checkpointing, "policy.dtensor_cfg.activation_checkpointing",
                                                  "policy.megatron_cfg.activation_checkpointing"});
        if (critic && !megatron && data > 1) {
            out_.notes.left_out("weights of the critic that are cut over its ranks (zero: 2 in place of 3)");
        }
        out_.text += fmt::format(
            "  - role: {}\n    nodes: {}\n    offload: true\n    scenario:\n      kind: training\n      model: "
            "{{preset: {}, sequence: {}}}\n      plan: {{tensor: {}, pipeline: {}{}{}, data: {}, micro_batch: {}, "
            "global_batch: {}, precision: bf16{}{}{}}}\n",
            role, places, model, sequence_, tensor, pipeline,
            context > 1 ? fmt::format(", context: {}, context_exchange: {}", context, megatron ? "ring" : "all-to-all")
                        : "",
            expert > 1 ? fmt::format(", expert: {}, expert_tensor: {}", expert, expert_tensor) : "", data, micro,
            global,
            updates && data > 1 ? fmt::format(", zero: {}", megatron ? 1
                                                            : critic ? 2
                                                                     : 3)
                                : "",
            updates && checkpoints ? ", recompute: full" : "", tensor > 1 ? ", sequence_parallel: true" : "");
    }

    const ImportInput& input_;
    ConfigText config_;
    bool verl_ = false;
    std::int64_t prompt_ = 0, answer_ = 0, sequence_ = 0;
    Imported out_;
};

Imported read_rl(const ImportInput& input) {
    const std::string text = input.bytes();
    std::optional<YamlNode> overrides;
    for (const char* key : {"actor_rollout_ref.", "policy.", "grpo."}) {
        if (!overrides && text.find(key) != std::string::npos) {
            overrides = read_overrides(text, input.path());
        }
    }
    const bool named = overrides && text.find("--config") != std::string::npos;
    Imported out =
        RlConfig(
            input,
            ConfigText(overrides
                           ? std::move(*overrides)
                           : expected_yaml(text, input.path(),
                                           "'actor_rollout_ref.model.path' of verl or 'policy.model_name' of NeMo-RL")))
            .run();
    if (named) {
        out.notes.assumed("defaults for what the file behind --config says and the command line does not");
    }
    return out;
}

}  // namespace

extern const Importer kRlImporter = {"rl-config",
                                     "overrides or configuration (YAML) of verl or NeMo-RL, as steps of reinforcement "
                                     "learning",
                                     {{"node", "NAME", "type of the nodes (orrery list nodes)"}},
                                     read_rl,
                                     "yaml"};

}  // namespace orrery::imports
