#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "workloads/training/plan/encoder.hpp"
#include "workloads/training/plan/name_list.hpp"
#include "workloads/training/plan/spec.hpp"
#include "workloads/training/plan/state_space.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery::training {

namespace {

// Of an iteration: lists of more would fill the memory before the tasks made of them are counted.
constexpr double kMostPasses = 1e8;

/// All that is wrong with a plan: what can never be right, and what does not divide.
struct Problems {
    std::vector<Diagnostic> errors;
    std::vector<std::string> unfit;
    const Mark& mark;

    void refuse(bool wrong, const std::string& text) {
        if (wrong) {
            errors.push_back(mark.error(text));
        }
    }
    void require(bool fits, const std::string& text) {
        if (!fits) {
            unfit.push_back(text);
        }
    }
    void raise() const {
        if (!errors.empty()) {
            throw ConfigError(errors);
        }
        if (!unfit.empty()) {
            throw InfeasibleError(fmt::format("the plan does not divide: {}", fmt::join(unfit, "; ")),
                                  ErrorCode::does_not_divide);
        }
    }
};

void check_experts(const ModelSpec& model, const PlanSpec& plan, Problems& problems) {
    const ExpertsSpec& experts = model.experts;
    const ExpertPlan& own = plan.experts;
    if (experts.count == 0) {
        problems.refuse(own.spread() || plan.recompute == Recompute::experts,
                        "the plan says how experts are spread, and this model has none");
        return;
    }
    problems.refuse(
        experts.topk < 1 || experts.topk > experts.count || experts.ffn < 1,
        fmt::format("a token goes to {} of {} experts of width {}: 1 to all of them, and a width, are needed",
                    experts.topk, experts.count, experts.ffn));
    problems.refuse(model.expert_layers() < 1,
                    fmt::format("dense_layers {} and every {} leave none of the {} layers for experts",
                                experts.dense_layers, experts.every, model.layers));
    problems.refuse(experts.group_topk > experts.groups,
                    fmt::format("group_topk {} is more than the {} groups", experts.group_topk, experts.groups));
    problems.refuse(experts.groups > 0 && experts.count % experts.groups != 0,
                    fmt::format("groups {} must divide the {} experts", experts.groups, experts.count));
    problems.refuse(model.parallel_block, "parallel_block with experts is not modelled");
    problems.refuse(plan.tensor > 1 && !plan.sequence_parallel,
                    "experts with tensor above 1 need sequence_parallel: true: ranks route tokens of their own");
    problems.refuse(own.pad && own.capacity <= 0, "pad needs a capacity");
    problems.refuse(own.exponent > 0 && !own.loads.empty(), "router_exponent and router_loads say the same: give one");
    problems.refuse(!own.loads.empty() && own.loads.size() != static_cast<std::size_t>(experts.count),
                    fmt::format("router_loads has {} entries for {} experts", own.loads.size(), experts.count));
    problems.refuse(
        !own.loads.empty() && std::all_of(own.loads.begin(), own.loads.end(), [](double load) { return load <= 0; }),
        "router_loads: some expert must be chosen");
    problems.refuse(own.shadowed > experts.count,
                    fmt::format("shadowed {} is more than the {} experts", own.shadowed, experts.count));
    problems.refuse(
        own.shadowed > 0 && (own.pad || own.dispatch == TokenDispatch::all_gather || own.expert < 2),
        "shadowed experts need expert of at least 2, and a dispatch of tokens by their choices: all-to-all or "
        "hierarchical, without pad");
    problems.refuse((own.shadowed > 0 || own.pieces > 1) && own.overlap == ExpertOverlap::batches,
                    "overlap.experts: batches hides all exchanges already: without shadowed and expert_pieces");
    problems.refuse(own.overlap == ExpertOverlap::shared && experts.shared == 0,
                    "overlap.experts: shared needs shared experts");
    problems.refuse(plan.shard > 0, "shard with experts is not modelled: use zero: 3 over all ranks");
    problems.require(experts.count % own.expert == 0,
                     fmt::format("expert {} must divide the {} experts", own.expert, experts.count));
    const std::int64_t spread = own.expert * plan.expert_tensor();
    problems.require(
        plan.stage_ranks() % spread == 0,
        fmt::format("expert {} x expert_tensor {} must divide the {} ranks of a stage (tensor x context x data)",
                    own.expert, plan.expert_tensor(), plan.stage_ranks()));
    problems.require(
        experts.ffn % plan.expert_tensor() == 0,
        fmt::format("expert_tensor {} must divide the width {} of an expert", plan.expert_tensor(), experts.ffn));
    problems.require(
        experts.shared % plan.tensor == 0,
        fmt::format("tensor {} must divide the width {} of the shared experts", plan.tensor, experts.shared));
}

void check_recomputation(const PlanSpec& plan, Problems& problems) {
    problems.refuse(plan.recompute_layers > 0 && plan.recompute != Recompute::full,
                    "recompute_layers needs recompute: full");
    problems.refuse(plan.recompute_layers > 0 && !plan.stages.empty(),
                    "recompute_layers with stages of given lengths is not modelled");
    const std::vector<std::string> given = names_in(plan.recompute_modules);
    problems.refuse(given.empty() != (plan.recompute != Recompute::modules),
                    "recompute: modules and recompute_modules belong together");
    for (const std::string& name : given) {
        const auto& names = recompute_module_names();
        const std::string nearest = nearest_name(name, names);
        problems.refuse(std::find(names.begin(), names.end(), name) == names.end(),
                        fmt::format("recompute_modules names '{}'; there are {}{}", name, fmt::join(names, ", "),
                                    nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest)));
    }
    problems.refuse(plan.modules().ffn && plan.modules().activation,
                    "recompute_modules: ffn holds the activation function already");
}

void check_pipeline(const ModelSpec& model, const PlanSpec& plan, Problems& problems) {
    if (plan.zero == 3 && plan.pipeline > 1) {
        problems.refuse(plan.copies() > 1,
                        fmt::format("zero: 3 with schedule: {} is not modelled", plan.schedule->name));
        problems.refuse(plan.vocabulary != VocabularyParallel::none,
                        "zero: 3 with vocabulary_parallel is not modelled");
    }
    const auto parts = static_cast<std::size_t>(plan.parts());
    if (!plan.stages.empty()) {
        std::int64_t layers = 0;
        for (std::size_t i = 0; i < plan.stages.size(); ++i) {
            layers += plan.stages[i];
            problems.refuse(plan.stages[i] == 0 && i > 0 && i + 1 < plan.stages.size(),
                            fmt::format("stages: part {} has no layer, which only the first and the last may", i));
        }
        problems.refuse(plan.stages.size() != parts,
                        fmt::format("stages lists {} parts, and {} on {} stages makes {} of the model",
                                    plan.stages.size(), plan.schedule->name, plan.pipeline, parts));
        problems.refuse(layers != model.layers,
                        fmt::format("stages hold {} layers in all, and the model has {}", layers, model.layers));
    }
    if (plan.vocabulary != VocabularyParallel::none) {
        std::vector<std::string> able;
        for (const PipelineSchedule* row : schedule_table()) {
            if (row->cuts_vocabulary) {
                able.emplace_back(row->name);
            }
        }
        problems.refuse(!plan.schedule->cuts_vocabulary,
                        fmt::format("vocabulary_parallel needs schedule: {}", fmt::join(able, " or ")));
        problems.refuse(plan.pipeline < 2,
                        "vocabulary_parallel cuts the vocabulary over stages: pipeline of at least 2");
        problems.refuse(plan.sequence_parallel && plan.tensor > 1,
                        "vocabulary_parallel with sequence_parallel is not modelled");
    }
}

void check_context(const ModelSpec& model, const PlanSpec& plan, Problems& problems) {
    const std::int64_t c = plan.context;
    problems.require(model.sequence % c == 0, fmt::format("context {} must divide the sequence {}", c, model.sequence));
    problems.refuse(model.latent.kv_rank > 0 && (plan.attention == AttentionKernel::unfused || c > 1),
                    "latent attention is trained with attention: flash, and without context parallelism");
    // Unfused attention computes all scores, and the kernels of a ring see no window.
    const bool other = model.attention.name() != "standard";
    const bool ringed = !other || model.attention.name() == "gemma";  // a ring takes heads of any width
    problems.refuse(other && (plan.attention == AttentionKernel::unfused || (!ringed && c > 1)),
                    fmt::format("model.attention: {} is trained with a fused kernel (plan.attention other than "
                                "unfused), and without context parallelism",
                                model.attention.name()));
    const bool ring = plan.context_exchange == ContextExchange::ring;
    if (c == 1) {
        problems.refuse(!ring || plan.context_inner > 0, "context_exchange and context_inner need context above 1");
        problems.refuse(!plan.overlap_context, "overlap.context: false needs context above 1");
        return;
    }
    const bool whole =
        plan.context_exchange == ContextExchange::all_gather || plan.context_exchange == ContextExchange::all_to_all;
    const bool hierarchical = plan.context_exchange == ContextExchange::hierarchical;
    problems.refuse(!plan.overlap_context && whole,
                    "overlap.context: false needs a ring, whose pieces exchanges hide behind: context_exchange: ring, "
                    "gathered-ring, two-way or hierarchical");
    problems.refuse(plan.attention == AttentionKernel::unfused && !whole,
                    "attention: unfused over several context ranks needs context_exchange: all-gather or all-to-all");
    problems.refuse(plan.context_inner > 0 && !hierarchical, "context_inner needs context_exchange: hierarchical");
    problems.refuse(hierarchical && plan.context_inner < 2,
                    "context_exchange: hierarchical needs context_inner of at least 2");
    const std::int64_t inner = plan.head_ranks();
    problems.require(inner < 1 || c % inner == 0, fmt::format("context_inner {} must divide context {}", inner, c));
    problems.require(
        inner < 1 || model.kv_heads % (plan.tensor * inner) == 0,
        fmt::format("tensor {} x {} ranks that exchange tokens for heads must divide the {} heads of keys and values",
                    plan.tensor, inner, model.kv_heads));
}

}  // namespace

void check_spec(const ModelSpec& model, const PlanSpec& plan, std::uint32_t gpus, const Mark& mark) {
    Problems problems{{}, {}, mark};
    const auto require = [&](bool fits, const std::string& text) { problems.require(fits, text); };
    problems.refuse(model.heads % model.kv_heads != 0,
                    fmt::format("kv_heads ({}) must divide heads ({})", model.kv_heads, model.heads));
    check_context(model, plan, problems);
    check_experts(model, plan, problems);
    require(plan.ranks() == gpus,
            fmt::format("tensor {} x pipeline {} x data {} x context {} = {} ranks, but the cluster "
                        "has {} GPUs",
                        plan.tensor, plan.pipeline, plan.data, plan.context, plan.ranks(), gpus));
    require(model.layers_with(LayerPart::attention) == 0 || model.heads % plan.tensor == 0,
            fmt::format("tensor {} must divide the {} heads", plan.tensor, model.heads));
    require(model.layers_with(LayerPart::feed_forward) == 0 || model.ffn % plan.tensor == 0,
            fmt::format("tensor {} must divide the feed-forward width {}", plan.tensor, model.ffn));
    require(plan.global_batch * plan.sharers() % (plan.micro_batch * plan.data) == 0,
            fmt::format("micro_batch {} x data {} must divide global_batch {}", plan.micro_batch, plan.data,
                        plan.global_batch));
    const std::int64_t chunks = plan.schedule->chunked ? plan.chunks : 1;
    require((plan.copies() == 1 ? plan.pipeline * chunks : plan.pipeline) <= model.layers + 2,
            fmt::format("pipeline {} x chunks {} is more than the {} layers", plan.pipeline, chunks, model.layers));
    check_pipeline(model, plan, problems);
    check_recomputation(plan, problems);
    problems.refuse(
        plan.gather_precision &&
            (!plan.sequence_parallel ||
             (bytes_of(*plan.gather_precision) < 2 && bytes_of(plan.precision) > bytes_of(*plan.gather_precision))),
        "gather_precision needs sequence_parallel: true, and products that take what is gathered: precision: fp8");
    problems.refuse(plan.near_memory_sums && plan.overlap_tensor != TensorOverlap::tiles,
                    "overlap.near_memory needs overlap.tensor: tiles, whose reductions it sums");
    problems.refuse(plan.shard > 0 && plan.zero != 3, "shard needs zero: 3: only there weights are cut over ranks");
    if (plan.chunks != chunks) {
        std::vector<std::string> chunked;
        for (const PipelineSchedule* row : schedule_table()) {
            if (row->chunked) {
                chunked.emplace_back(row->name);
            }
        }
        problems.refuse(true, fmt::format("'chunks' above 1 needs schedule: {}", fmt::join(chunked, " or ")));
    } else if (problems.errors.empty() && plan.micro_batches() > 0) {
        const std::string problem = plan.schedule->problem(plan.shape());
        require(problem.empty(), problem);
    }
    for (const std::string& problem : combination_problems(model, plan)) {
        problems.refuse(true, problem);
    }
    for (const PlanProblems& found :
         {feature_problems(model, plan), state_space_problems(model, plan), encoder_problems(model, plan)}) {
        for (const std::string& text : found.refused) {
            problems.refuse(true, text);
        }
        for (const std::string& text : found.unfit) {
            require(false, text);
        }
    }
    const std::int64_t alike = plan.data * plan.context / plan.islands();
    const std::int64_t shard = plan.shard > 0 ? plan.shard : std::max<std::int64_t>(1, alike);
    require(alike % shard == 0, fmt::format("shard {} must divide data x context {}{}", shard, alike,
                                            plan.islands() > 1 ? " of a worker" : ""));
    problems.raise();
    const double passes = 2.0 * static_cast<double>(plan.micro_batches()) * static_cast<double>(plan.pipeline) *
                          static_cast<double>(plan.chunks);
    if (passes > kMostPasses) {
        throw InfeasibleError(
            fmt::format("{} micro-batches through {} stages are {:.3g} passes, and at most {:.3g} are simulated: raise "
                        "micro_batch or "
                        "data, or lower global_batch",
                        plan.micro_batches(), plan.pipeline, passes, kMostPasses));
    }
}

}  // namespace orrery::training
