// A plan in words, and as assignments that make a scenario run it.

#include "sim/base/error.hpp"
#include "tools/plan/expert_space.hpp"
#include "tools/plan/offload_space.hpp"
#include "tools/plan/plan_space.hpp"
#include "tools/plan/search.hpp"
#include "workloads/training/features/documents.hpp"
#include "workloads/training/features/offload.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace orrery::plan {

static bool is_placed(const PlanSpec& plan) {
    return !plan.groups.empty() || plan.spread != Spread::stages;
}

static std::string schedule_text(const PlanSpec& plan) {
    const SearchPlan& search = plan.search;
    return plan.schedule->search == nullptr || search == SearchPlan()
               ? plan.schedule->name
               : fmt::format("{{kind: {}, held: {}, activations: {} B, tries: {}}}", plan.schedule->name, search.held,
                             search.activations, search.tries);
}

std::string describe_plan(const PlanSpec& plan) {
    static const char* const kRecompute[] = {"no", "selective", "half", "full", "experts'", "some"};
    std::string out = fmt::format("tensor {}, pipeline {}, data {}", plan.tensor, plan.pipeline, plan.data);
    if (plan.context > 1) {
        out += fmt::format(", context {}", plan.context);
        if (plan.context_exchange != ContextExchange::ring) {
            out += fmt::format(" ({})", context_exchange_names()[static_cast<std::size_t>(plan.context_exchange)]);
        }
    }
    out += fmt::format(", micro-batch {}", plan.micro_batch);
    // 1F1B, interleaved where it has chunks, needs no name.
    if (!plan.schedule->searched || plan.schedule->splits || plan.schedule->map != StageMap::round_robin) {
        out += fmt::format(", {}", plan.schedule->name);
    }
    if (plan.schedule->search != nullptr && plan.search.held > 0) {
        out += fmt::format(" of {} micro-batches", plan.search.held);
    }
    if (plan.chunks > 1) {
        out += fmt::format(", {} chunks", plan.chunks);
    }
    if (!plan.stages.empty()) {
        out += fmt::format(", layers {}", fmt::join(plan.stages, "+"));
    }
    ORRERY_ASSERT(static_cast<std::size_t>(plan.recompute) < std::size(kRecompute));
    out += fmt::format(", {} recomputation", kRecompute[static_cast<std::size_t>(plan.recompute)]);
    if (plan.zero > 0) {
        out += fmt::format(", ZeRO {}", plan.zero);
    }
    if (is_placed(plan)) {
        out += fmt::format(", {} after another{}{}", plan.spread == Spread::stages ? "stage" : "replica",
                           plan.groups.empty() ? "" : " on ", plan.groups);
    }
    if (plan.feature<DocumentsPlan>().balanced || plan.feature<DocumentsPlan>().dynamic) {
        out += plan.feature<DocumentsPlan>().balanced ? ", balanced documents" : ", groups for documents";
    }
    return out + (plan.sequence_parallel ? ", sequence parallel" : "") + describe_experts(plan) +
           describe_offload(plan.feature<OffloadPlan>());
}

std::vector<std::string> assignments_of(const RankedPlan& ranked) {
    const PlanSpec& plan = ranked.plan;
    static const char* const kRecompute[] = {"none", "selective", "half", "full", "experts", "modules"};
    ORRERY_ASSERT(static_cast<std::size_t>(plan.recompute) < std::size(kRecompute));
    std::vector<std::string> out = {
        fmt::format("plan.tensor={}", plan.tensor),
        fmt::format("plan.pipeline={}", plan.pipeline),
        fmt::format("plan.data={}", plan.data),
        fmt::format("plan.context={}", plan.context),
        fmt::format("plan.context_exchange={}",
                    context_exchange_names()[static_cast<std::size_t>(plan.context_exchange)]),
        fmt::format("plan.context_inner={}", plan.context_inner),
        fmt::format("plan.overlap.context={}", plan.overlap_context),
        fmt::format("plan.micro_batch={}", plan.micro_batch),
        fmt::format("plan.schedule={}", schedule_text(plan)),
        fmt::format("plan.chunks={}", plan.chunks),
        fmt::format("plan.recompute={}", kRecompute[static_cast<std::size_t>(plan.recompute)]),
        fmt::format("plan.sequence_parallel={}", plan.sequence_parallel),
        fmt::format("plan.zero={}", plan.zero),
        fmt::format("plan.shard={}", plan.shard)};
    if (!plan.stages.empty()) {
        std::vector<std::string> stages;
        for (const std::int64_t layers : plan.stages) {
            stages.push_back(fmt::format("{{layers: {}}}", layers));
        }
        out.push_back(fmt::format("plan.stages=[{}]", fmt::join(stages, ", ")));
    }
    assign_experts(plan, out);
    if (plan.has<DocumentsPlan>()) {
        out.push_back(fmt::format("plan.documents.balance={}", plan.feature<DocumentsPlan>().balanced));
        out.push_back(fmt::format("plan.documents.dynamic_groups={}", plan.feature<DocumentsPlan>().dynamic));
    }
    assign_offload(plan.feature<OffloadPlan>(), out);
    if (ranked.sized) {
        out.insert(out.begin(), fmt::format("cluster.nodes={}", ranked.nodes));
    }
    if (is_placed(plan)) {
        out.push_back(fmt::format("plan.spread={}", plan.spread == Spread::stages ? "stages" : "replicas"));
        if (!plan.groups.empty()) {
            out.push_back(fmt::format("plan.groups={}", plan.groups));
        }
    }
    return out;
}

}  // namespace orrery::plan
