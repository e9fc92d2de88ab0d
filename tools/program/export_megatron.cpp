#include "tools/program/export_megatron.hpp"

#include "sim/base/error.hpp"
#include "sim/config/yaml_tree.hpp"
#include "tools/check/inputs.hpp"
#include "tools/driver/kinds/training.hpp"
#include "workloads/imports/importer.hpp"
#include "workloads/training/plan/name_list.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace orrery::program {

namespace {

// Arguments in lines of what belongs together.
class Arguments {
  public:
    void line() { lines_.emplace_back(); }
    void flag(const std::string& name) { add(name); }
    template <class Value>
    void value(const std::string& name, const Value& given) {
        add(fmt::format("{} {}", name, given));
    }
    template <class Value>
    void above(const std::string& name, Value given, Value least) {
        if (given > least) {
            value(name, given);
        }
    }
    void flag_if(bool given, const std::string& name) {
        if (given) {
            add(name);
        }
    }
    /// One line of the script each, but for those that came out empty.
    [[nodiscard]] std::string text() const {
        std::string out;
        for (const std::vector<std::string>& line : lines_) {
            if (!line.empty()) {
                out += fmt::format(" \\\n    {}", fmt::join(line, " "));
            }
        }
        return out;
    }

  private:
    void add(const std::string& word) {
        ORRERY_ASSERT(!lines_.empty());
        lines_.back().push_back(word);
    }
    std::vector<std::vector<std::string>> lines_;
};

void add_experts(const ModelSpec& model, Arguments& out) {
    const ExpertsSpec& experts = model.experts;
    if (experts.count == 0) {
        return;
    }
    out.line();
    out.value("--num-experts", experts.count);
    out.value("--moe-router-topk", experts.topk);
    out.value("--moe-ffn-hidden-size", experts.ffn);
    out.above<std::int64_t>("--moe-shared-expert-intermediate-size", experts.shared, 0);
    out.above<std::int64_t>("--moe-router-num-groups", experts.groups, 1);
    out.above<std::int64_t>("--moe-router-group-topk", experts.group_topk, 0);
    if (experts.dense_layers > 0 || experts.every > 1) {
        std::string layers;
        for (std::int64_t layer = 0; layer < model.layers; ++layer) {
            const bool has = model.kind_of(layer).experts;
            layers += fmt::format("{}{}", layers.empty() ? "" : ",", has ? 1 : 0);
        }
        out.value("--moe-layer-freq", "'[" + layers + "]'");
    }
    out.flag_if(experts.gate == Precision::fp32, "--moe-router-dtype fp32");
}

void add_model(const ModelSpec& model, Arguments& out) {
    const bool latent = model.latent.kv_rank > 0;
    out.line();
    out.value("--num-layers", model.layers);
    out.value("--hidden-size", model.hidden);
    out.value("--ffn-hidden-size", model.ffn);
    out.value("--num-attention-heads", model.heads);
    if (latent) {
        out.flag("--multi-latent-attention");
        out.above<std::int64_t>("--q-lora-rank", model.latent.q_rank, 0);
        out.value("--kv-lora-rank", model.latent.kv_rank);
        out.value("--qk-head-dim", model.head_dim);
        out.value("--qk-pos-emb-head-dim", model.latent.rotary);
        out.value("--v-head-dim", model.latent.value_dim);
    } else {
        if (model.kv_heads != model.heads) {
            out.flag("--group-query-attention");
            out.value("--num-query-groups", model.kv_heads);
        }
        if (model.head_dim * model.heads != model.hidden) {
            out.value("--kv-channels", model.head_dim);
        }
    }
    out.line();
    out.value("--seq-length", model.sequence);
    out.value("--max-position-embeddings", model.sequence);
    out.flag("--tokenizer-type NullTokenizer");  // has one token more than its size says
    out.value("--vocab-size", model.vocabulary - 1);
    out.flag("--make-vocab-size-divisible-by 1");
    out.flag_if(!model.tied_embeddings, "--untie-embeddings-and-output-weights");
    out.flag_if(model.rotary, "--position-embedding-type rope");
    out.flag_if(model.gated, "--swiglu");
    out.flag_if(!model.biases, "--disable-bias-linear");
    const char* drops = model.dropout ? "0.1" : "0";
    out.value("--hidden-dropout", drops);
    out.value("--attention-dropout", drops);
    out.flag_if(model.query_key_norm != QueryKeyNorm::none, "--qk-layernorm");
    if (model.window > 0) {
        out.value("--window-size", fmt::format("{},0", model.window));
        out.above<std::int64_t>("--window-attn-skip-freq", model.full_every, 0);
    }
    if (model.hybrid()) {
        const StateSpaceSpec& space = model.state_space;
        out.line();
        out.value("--hybrid-override-pattern", "'" + model.pattern + "'");
        out.value("--mamba-num-heads", space.heads);
        out.value("--mamba-head-dim", space.head_dim);
        out.value("--mamba-state-dim", space.state);
        out.value("--mamba-num-groups", space.groups);
    }
    add_experts(model, out);
}

void add_degrees(const ModelSpec& model, const PlanSpec& plan, Arguments& out) {
    out.line();
    out.value("--tensor-model-parallel-size", plan.tensor);
    out.value("--pipeline-model-parallel-size", plan.pipeline);
    out.flag_if(plan.sequence_parallel, "--sequence-parallel");
    if (plan.context > 1) {
        static const std::map<ContextExchange, const char*> kTypes = {{ContextExchange::ring, "p2p"},
                                                                      {ContextExchange::all_gather, "all_gather"},
                                                                      {ContextExchange::all_to_all, "a2a"},
                                                                      {ContextExchange::hierarchical, "a2a+p2p"}};
        out.value("--context-parallel-size", plan.context);
        if (const auto type = kTypes.find(plan.context_exchange); type != kTypes.end()) {
            out.value("--cp-comm-type", type->second);
        }
        if (plan.context_exchange == ContextExchange::hierarchical) {
            out.value(
                "--hierarchical-context-parallel-sizes",
                fmt::format("{} {}", plan.context_inner, plan.context / std::max<std::int64_t>(1, plan.context_inner)));
        }
    }
    if (plan.pipeline > 1 && !plan.stages.empty()) {
        std::vector<std::string> parts;
        for (const std::int64_t layers : plan.stages) {
            parts.emplace_back(static_cast<std::size_t>(layers), 't');
        }
        out.value("--pipeline-model-parallel-layout", fmt::format("'E{}L'", fmt::join(parts, "|")));
    } else if (plan.chunks > 1) {
        out.value("--num-virtual-stages-per-pipeline-rank", plan.chunks);
    }
    out.flag_if(plan.chunks > 1 && !plan.overlap_pipeline, "--no-overlap-p2p-communication");
    out.flag_if(plan.spread == Spread::replicas, "--use-tp-pp-dp-mapping");
    if (model.experts.count > 0) {
        out.line();
        out.value("--expert-model-parallel-size", plan.experts.expert);
        out.value("--expert-tensor-parallel-size", plan.expert_tensor());
        out.value("--moe-token-dispatcher-type", plan.experts.dispatch == TokenDispatch::all_to_all     ? "alltoall"
                                                 : plan.experts.dispatch == TokenDispatch::hierarchical ? "flex"
                                                                                                        : "allgather");
        out.flag_if(plan.experts.dispatch == TokenDispatch::hierarchical, "--moe-enable-deepep");
        out.flag("--moe-grouped-gemm");
        out.above("--moe-expert-capacity-factor", plan.experts.capacity, 0.0);
        out.flag_if(plan.experts.pad, "--moe-pad-expert-input-to-capacity");
        out.flag_if(plan.experts.overlap == ExpertOverlap::shared, "--moe-shared-expert-overlap");
        out.flag_if(plan.experts.overlap == ExpertOverlap::batches, "--overlap-moe-expert-parallel-comm");
    }
}

void add_recompute(const PlanSpec& plan, Arguments& out) {
    switch (plan.recompute) {
        case Recompute::none:
        case Recompute::half:
            return;
        case Recompute::selective:
            return out.flag("--recompute-granularity selective");
        case Recompute::experts:
            return out.flag("--recompute-granularity selective --recompute-modules moe");
        case Recompute::full:
            out.flag("--recompute-granularity full");
            out.value("--recompute-method", plan.recompute_layers > 0 ? "block" : "uniform");
            return out.value("--recompute-num-layers", std::max<std::int64_t>(1, plan.recompute_layers));
        case Recompute::modules:
            break;
    }
    static const std::map<std::string, const char*> kModules = {
        {"attention", "core_attn"}, {"activation", "moe_act"}, {"norm", "layernorm"}, {"ffn", "mlp"}};
    out.flag("--recompute-granularity selective --recompute-modules");
    for (const std::string& part : names_in(plan.recompute_modules)) {
        out.flag(kModules.at(part));
    }
}

void add_numbers(const PlanSpec& plan, const SoftwareSpec& software, Arguments& out) {
    out.line();
    const bool narrow = plan.precision == Precision::fp8 || plan.precision == Precision::fp4;
    out.flag_if(plan.precision == Precision::bf16 || narrow, "--bf16");
    out.flag_if(plan.precision == Precision::fp16, "--fp16");
    if (plan.precision == Precision::fp8) {
        out.flag("--fp8-format hybrid");
        out.flag_if(plan.fp8_scaling == Fp8Scaling::current, "--fp8-recipe tensorwise");
        out.flag_if(plan.fp8_scaling == Fp8Scaling::block, "--fp8-recipe blockwise");
    }
    out.flag_if(plan.precision == Precision::fp4, "--fp4-format e2m1");
    out.flag_if(plan.gradient_precision == Precision::bf16, "--grad-reduce-in-bf16");
    out.flag_if(plan.precision == Precision::fp16 && plan.gradient_precision == Precision::fp32,
                "--accumulate-allreduce-grads-in-fp32");
    out.flag_if(plan.asked_attention == AttentionKernel::flash, "--attention-backend flash");
    out.flag_if(plan.asked_attention == AttentionKernel::unfused, "--attention-backend unfused");
    const LossKernels loss = loss_kernels(plan, software);
    out.flag_if(loss == LossKernels::compiled, "--cross-entropy-loss-fusion");
    out.flag_if(loss == LossKernels::fused, "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te");
    out.flag_if(software.graphs == CudaGraphs::layers, "--cuda-graph-impl transformer_engine");
    out.flag_if(software.graphs == CudaGraphs::iteration, "--cuda-graph-impl local --cuda-graph-scope full_iteration");
    out.flag_if(!software.fused_gradient_accumulation, "--no-gradient-accumulation-fusion");
    out.line();
    add_recompute(plan, out);
}

void add_batch(const PlanSpec& plan, Arguments& out) {
    out.line();
    out.value("--micro-batch-size", plan.micro_batch);
    out.value("--global-batch-size", plan.global_batch);
    out.flag_if(plan.zero == 1, "--use-distributed-optimizer");
    out.flag_if(plan.zero == 2, "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads");
    out.flag_if(plan.zero == 3, "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params");
    out.flag_if(plan.overlap_data, "--overlap-grad-reduce");
    out.flag_if(plan.overlap_parameters, "--overlap-param-gather");
    out.flag_if(plan.overlap_tensor == TensorOverlap::full, "--tp-comm-overlap");
    out.line();
    out.flag("--optimizer adam --lr 1e-4 --train-iters 50 --mock-data");
}

// What the script does not say of model and plan: the scenario that it is read as differs there.
std::vector<std::string> not_said(const Scenario& scenario, const std::string& script, const DataDirectory& data) {
    const imports::Imported read =
        imports::import_file("megatron-args", imports::ImportInput::of_bytes("megatron.sh", script).with(data));
    const Scenario back = read_scenario(parse_yaml(read.text, "megatron.sh"), "megatron.sh", data);
    const auto& training = scenario.as<TrainingKind>();
    // Arguments name the loss's kernels, which a scenario may leave to its software.
    const bool same_loss = back.as<TrainingKind>().plan.loss == loss_kernels(training.plan, training.software);
    std::vector<std::string> out;
    for (const check::ChangedInput& change :
         check::changes_between(check::inputs_of(scenario, data), check::inputs_of(back, data))) {
        const bool compared = change.path.rfind("model.", 0) == 0 || change.path.rfind("plan.", 0) == 0;
        if (compared && !(same_loss && change.path == "plan.loss")) {
            out.push_back(fmt::format("{}: {} here, {} as read back", change.path,
                                      change.before.empty() ? "not given" : check::pretty_input(change.before),
                                      change.after.empty() ? "not given" : check::pretty_input(change.after)));
        }
    }
    return out;
}

}  // namespace

std::string megatron_script(const Scenario& scenario, const DataDirectory& data) {
    const auto* training = scenario.find<TrainingKind>();
    if (training == nullptr) {
        throw ConfigError(
            fmt::format("Megatron-LM's arguments are of scenarios of kind training, not {}", scenario.kind().name),
            ErrorCode::command_line);
    }
    const ModelSpec& model = training->model;
    const PlanSpec& plan = training->plan;
    Arguments arguments;
    add_degrees(model, plan, arguments);
    add_batch(plan, arguments);
    add_numbers(plan, training->software, arguments);
    add_model(model, arguments);
    const std::int64_t gpus = plan.ranks();
    const std::int64_t in_node = std::min<std::int64_t>(gpus, scenario.cluster.node.gpus);
    const std::string command =
        fmt::format("torchrun --nnodes {} --nproc_per_node {} {}{}\n", (gpus + in_node - 1) / in_node, in_node,
                    model.hybrid() ? "pretrain_mamba.py" : "pretrain_gpt.py", arguments.text());
    std::string head = fmt::format(
        "#!/usr/bin/env bash\n# '{}' as a run of Megatron-LM. Written by 'orrery export megatron'.\n", scenario.name);
    const std::vector<std::string> missing = not_said(scenario, command, data);
    head += missing.empty() ? "" : "# What these arguments do not say:\n";
    for (const std::string& line : missing) {
        head += "#   " + line + "\n";
    }
    return head + command;
}

}  // namespace orrery::program
