#include "tools/plan/plan_software.hpp"

#include "sim/base/error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery::plan {

namespace {

template <typename T>
bool has(const std::vector<T>& list, const T& one) {
    return std::find(list.begin(), list.end(), one) != list.end();
}

}  // namespace

const std::vector<PlanSoftware>& plan_software_table() {
    using Exchange = ContextExchange;
    using Kept = Recompute;
    static const std::vector<PlanSoftware> kTable = {
        // Megatron-Core 0.14: pipeline_parallel/schedules.py (1F1B and interleaved); distributed optimizer (ZeRO 1), Megatron-FSDP
        // without a pipeline (optim_grads, optim_grads_params: ZeRO 2 and 3); --cp-comm-type p2p, all_gather, a2a, a2a+p2p.
        {"megatron",
         "Megatron-Core: 1F1B and interleaved pipelines, the distributed optimizer, Megatron-FSDP without a pipeline",
         {"1f1b", "interleaved"},
         {Exchange::ring, Exchange::all_gather, Exchange::all_to_all, Exchange::hierarchical},
         {Kept::none, Kept::selective, Kept::full},
         true,
         true,
         false,
         [](const PlanSpec& plan) { return plan.zero <= (plan.pipeline > 1 ? 1 : 3); }},
        // torchtitan of 2025 and 2026 (docs/fsdp.md, config of [parallelism]): torch.distributed.pipelining; fully_shard, which with a
        // pipeline keeps weights gathered over a step (ZeRO 2) by default and without one frees them (3); DDP beside neither tensor
        // nor pipeline groups; rings of keys by all-to-all or gathered; tensor groups with sequence parallelism.
        {"torchtitan",
         "torchtitan: pipelines of torch.distributed.pipelining, FSDP2, tensor groups with sequence parallelism",
         {"1f1b", "gpipe", "interleaved", "breadth-first", "zb-v", "dualpipev"},
         {Exchange::ring, Exchange::gathered_ring, Exchange::all_gather},
         {Kept::none, Kept::selective, Kept::full},
         true,
         true,
         true,
         [](const PlanSpec& plan) {
             return plan.data * plan.context == 1 ? plan.zero == 0
                    : plan.zero == 0              ? plan.pipeline == 1 && plan.tensor == 1
                    : plan.pipeline > 1           ? plan.zero == 2
                                                  : plan.zero >= 2;
         }},
        // Megatron-DeepSpeed: runtime/pipe/schedule.py (TrainSchedule, 1F1B); runtime/pipe/engine.py refuses ZeRO 2 and 3 in a pipeline;
        // sequence parallelism by Ulysses; activation checkpoints of whole layers.
        {"deepspeed",
         "Megatron-DeepSpeed: 1F1B pipelines with ZeRO up to 1, ZeRO up to 3 without one, Ulysses",
         {"1f1b"},
         {Exchange::all_to_all},
         {Kept::none, Kept::full},
         true,
         true,
         false,
         [](const PlanSpec& plan) { return plan.zero <= (plan.pipeline > 1 ? 1 : 3); }},
        // PyTorch FSDP as Hugging Face Accelerate and llm-foundry use it: NO_SHARD, SHARD_GRAD_OP, FULL_SHARD.
        {"fsdp",
         "PyTorch FSDP alone: data parallelism that shards nothing, gradients and moments, or weights too",
         {},
         {},
         {Kept::none, Kept::full},
         false,
         false,
         false,
         [](const PlanSpec& plan) { return plan.zero != 1; }}};
    return kTable;
}

bool PlanSoftware::divides(const PlanSpec& plan) const {
    return (tensor || plan.tensor == 1) && (experts || !plan.experts.spread()) &&
           (plan.pipeline == 1 || !schedules.empty()) && (plan.context == 1 || has(exchanges, plan.context_exchange)) &&
           has(recompute, plan.recompute) && (!sequence_always || plan.tensor == 1 || plan.sequence_parallel);
}

bool PlanSoftware::orders(const PlanSpec& plan) const {
    return (plan.pipeline == 1 || has(schedules, std::string_view(plan.schedule->name))) && shards(plan) &&
           plan.vocabulary == VocabularyParallel::none;
}

const PlanSoftware& plan_software(const std::string& name) {
    std::vector<std::string> names;
    for (const PlanSoftware& one : plan_software_table()) {
        if (name == one.name) {
            return one;
        }
        names.emplace_back(one.name);
    }
    const std::string near = nearest_name(name, names);
    throw ConfigError(
        fmt::format("--engine cannot be '{}'{}; for training it is one of {}", name,
                    near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near), fmt::join(names, ", ")),
        ErrorCode::command_line);
}

}  // namespace orrery::plan
