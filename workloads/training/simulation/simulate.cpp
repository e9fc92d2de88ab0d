#include "workloads/training/simulation/simulate.hpp"

#include "sim/base/error.hpp"
#include "workloads/training/features/compression.hpp"
#include "workloads/training/features/offload.hpp"
#include "workloads/training/features/outer.hpp"
#include "workloads/training/lowering/lowering.hpp"
#include "workloads/training/lowering/tiers.hpp"
#include "workloads/training/simulation/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace orrery::training {

namespace {

bool is_communication(Category category) {
    return category == Category::tensor_communication || category == Category::pipeline_communication ||
           category == Category::data_communication || category == Category::context_communication ||
           category == Category::expert_communication;
}

bool offloads(const Task& task) {
    return task.stream >= kFetchStream && task.stream < kStreamCount;
}

// Books a wait for copies between memories and for updates by the host, back in time from `to`; returns what is left of it, with the
// task that it then waited for in `cause`.
SimTime book_offload(const TrainingGraph& lowered, const Executor& executor, TaskId& cause, SimTime from, SimTime to,
                     TrainingResult& result) {
    const auto barrier = [&](TaskId id) {
        return lowered.graph.task(id).category == Category::other && executor.end_of(id) == executor.start_of(id);
    };
    while (cause.valid() && to > from && (offloads(lowered.graph.task(cause)) || barrier(cause))) {
        const SimTime begun = std::clamp(executor.start_of(cause), from, to);
        const bool update = lowered.graph.task(cause).stream == kUpdateStream;
        (update ? result.exposed_update_s : result.exposed_copies_s) += (to - begun).seconds();
        to = begun;
        cause = executor.released_by(cause);
    }
    return to;
}

// Books a gap of the compute stream before `id` (from `from` to `to`): while the transfer it waited for was under way
// it is exposed communication, before that the rank had nothing to do.
void book_gap(const TrainingGraph& lowered, const Executor& executor, TaskId id, SimTime from, SimTime to,
              TrainingResult& result) {
    TaskId cause = executor.released_by(id);
    if (cause.valid() && offloads(lowered.graph.task(cause))) {
        to = book_offload(lowered, executor, cause, from, to, result);
    }
    SimTime active = to;
    Category kind = Category::other;
    if (cause.valid()) {
        kind = lowered.graph.task(cause).category;
        if (is_communication(kind) || kind == Category::overhead) {
            active = std::max(from, executor.start_of(cause));
        }
    }
    if (kind == Category::other && cause.valid()) {
        // Behind a barrier: the last reduction to finish is what was waited for.
        const TaskId before = executor.released_by(cause);
        if (before.valid() && is_communication(lowered.graph.task(before).category)) {
            kind = lowered.graph.task(before).category;
            active = std::max(from, executor.start_of(before));
        }
    }
    SimTime idle = active;
    if (cause.valid() && is_communication(kind) && active > from) {
        // A gather may itself have waited for copies.
        TaskId before = executor.released_by(cause);
        if (before.valid() && offloads(lowered.graph.task(before))) {
            idle = book_offload(lowered, executor, before, from, active, result);
        }
    }
    result.bubble_s += (idle - from).seconds();
    if (is_communication(kind) || kind == Category::overhead) {
        result.booked[static_cast<std::size_t>(kind)] += (to - active).seconds();
    } else {
        result.bubble_s += (to - active).seconds();
    }
}

// `slows`: kernels of some ranks take longer than their price for a while.
void book(const TrainingGraph& lowered, const Executor& executor, SimTime end, bool slows, TrainingResult& result) {
    // What a rank waits for after its own last task: the gather of weights, or the optimizers of fuller stages.
    bool gathers = false;
    for (std::uint32_t i = 0; i < lowered.graph.size(); ++i) {
        gathers =
            gathers || (executor.end_of(TaskId(i)) == end && is_communication(lowered.graph.task(TaskId(i)).category));
    }
    for (std::size_t rank = 0; rank < lowered.ranks.size(); ++rank) {
        const std::vector<TaskId> stream = lowered.stream(rank);
        SimTime at;
        for (const TaskId id : stream) {
            ORRERY_ASSERT(executor.start_of(id) >= at);
            if (executor.start_of(id) > at) {
                book_gap(lowered, executor, id, at, executor.start_of(id), result);
            }
            const Price& price = lowered.prices[lowered.price_of(id)];
            for (std::size_t i = 0; i < price.seconds.size(); ++i) {
                result.booked[i] += price.seconds[i];
            }
            at = executor.end_of(id);
            if (slows) {
                const SimTime took = at - executor.start_of(id);
                const Task task = lowered.graph.task(id);
                result.booked[static_cast<std::size_t>(task.category)] += (took - task.duration).seconds();
            }
        }
        ORRERY_ASSERT(end >= at);
        (gathers ? result.booked[static_cast<std::size_t>(Category::data_communication)] : result.bubble_s) +=
            (end - at).seconds();
    }
    const auto ranks = static_cast<double>(lowered.ranks.size());
    for (double& seconds : result.booked) {
        seconds /= ranks;
    }
    result.bubble_s /= ranks;
    result.exposed_copies_s /= ranks;
    result.exposed_update_s /= ranks;
    const double idle = result.bubble_s + result.exposed_copies_s + result.exposed_update_s;
    const double all = std::accumulate(result.booked.begin(), result.booked.end(), idle);
    ORRERY_ASSERT(all <= end.seconds() * (1 + 1e-6) + 1e-9);  // no moment of a rank is booked twice
    for (int i = 0; i < kCategoryCount; ++i) {
        if (is_communication(static_cast<Category>(i))) {
            result.exposed_communication_s += result.booked[static_cast<std::size_t>(i)];
        }
    }
}

// Seconds from one iteration to the next where no barrier stands between them: the longest that a rank takes from its first pass on.
double period(const TrainingGraph& lowered, const Executor& executor) {
    SimTime longest;
    SimTime last;
    for (std::size_t rank = 0; rank < lowered.ranks.size(); ++rank) {
        const std::vector<TaskId> tasks = lowered.stream(rank);
        // The first task is the start of the step; what comes before the second is the pipeline filling.
        ORRERY_ASSERT(tasks.size() > 1);
        const SimTime filling = executor.start_of(tasks[1]) - executor.end_of(tasks[0]);
        longest = std::max(longest, executor.end_of(tasks.back()) - filling);
        last = std::max(last, executor.end_of(tasks.back()));
    }
    return (longest + (executor.finished_at() - last)).seconds();
}

// Bytes that the ranks of each stage have: the least of any device that holds some of them.
std::vector<double> capacities(const TrainingInput& input, double capacity) {
    std::vector<double> out(static_cast<std::size_t>(input.plan.pipeline), capacity);
    for (std::int64_t stage = 0; std::isfinite(capacity) && !input.groups.empty() && stage < input.plan.pipeline;
         ++stage) {
        out[static_cast<std::size_t>(stage)] = input.memory_of_stage(stage);
    }
    return out;
}

// Of the fullest node, by tier.
void add_tiers(const std::vector<HostUse>& hosts, TrainingResult& result) {
    for (const HostUse& of : hosts) {
        for (const TierUse& use : of.tiers) {
            const std::string& name = of.host->tiers[use.tier].name;
            const auto known = std::find_if(result.tier_bytes.begin(), result.tier_bytes.end(),
                                            [&](const auto& tier) { return tier.first == name; });
            if (known == result.tier_bytes.end()) {
                result.tier_bytes.emplace_back(name, use.total());
            } else {
                known->second = std::max(known->second, use.total());
            }
        }
    }
}

// The mean step of a round of outer steps in place of the inner step.
void add_outer(const TrainingInput& input, const TrainingGraph& lowered, TrainingResult& result) {
    const OuterTimes times = outer_times(input, lowered, result.iteration_s);
    result.iteration_s = times.step;
    result.exposed_communication_s += times.wait;
    result.booked[static_cast<std::size_t>(Category::data_communication)] += times.wait;
    result.booked[static_cast<std::size_t>(Category::optimizer)] += times.kernels;
    result.outer = times;
}

// With sequences as long as they are in the fullest micro-batch.
ModelSpec model_in_memory(const TrainingInput& input) {
    ModelSpec model = input.model;
    if (input.documents != nullptr) {
        const double rows = input.documents->longest_rows * static_cast<double>(input.plan.context);
        model.sequence = static_cast<std::int64_t>(std::ceil(rows / static_cast<double>(input.plan.micro_batch)));
    }
    return model;
}

// What a step makes of its documents. Ranks differ by the kernels of their passes.
DocumentUse document_use(const TrainingInput& input, const TrainingGraph& lowered) {
    const DocumentLayout& layout = *input.documents;
    DocumentUse out{layout.tokens, 1 - layout.tokens / layout.rows, 1, 0};
    for (const DocumentLength& one : layout.documents) {
        out.flops += one.share * document_flops(input.model, input.plan, static_cast<double>(one.tokens));
    }
    double most = 0;
    double sum = 0;
    for (std::size_t rank = 0; rank < lowered.ranks.size(); ++rank) {
        const std::vector<TaskId> stream = lowered.stream(rank);
        double busy = 0;
        for (const TaskId id : stream) {
            busy +=
                lowered.labels[lowered.graph.task(id).label].pass ? lowered.prices[lowered.price_of(id)].total() : 0;
        }
        most = std::max(most, busy);
        sum += busy;
    }
    out.imbalance = most * static_cast<double>(lowered.ranks.size()) / sum;
    return out;
}

// Payload of a rank of the fullest stage.
double gradient_bytes(const TrainingInput& input, const TrainingGraph& lowered) {
    double most = 0;
    for (const RankWeights& weights : lowered.weights) {
        const CompressedBytes sent = compressed_bytes(input.plan, weights.total(), 1);
        most = std::max(most, sent.dense + sent.sparse);
    }
    return most;
}

}  // namespace

namespace {

// Passes of ranks that are slow for a while: of a tensor- and context-parallel group all, as each waits for the slowest.
class PassClock final : public TaskClock {
  public:
    PassClock(const TrainingInput& input, const TrainingGraph& lowered)
        : lowered_(lowered), group_(RankMap(input.plan).per_replica()) {
        for (const SlowSpell& one : input.spells) {
            spells_[one.rank / group_].push_back(one);
        }
    }
    SimTime duration(TaskId id, const Task& task, SimTime start) const override {
        const auto found = spells_.find(task.rank / group_);
        if (found == spells_.end() || task.stream != kComputeStream ||
            lowered_.price_of(id) == TrainingGraph::kNoPrice) {
            return task.duration;
        }
        const Price& price = lowered_.prices[lowered_.price_of(id)];
        double kernels = 0;
        for (const Category one : {Category::forward, Category::backward, Category::recompute, Category::optimizer}) {
            kernels += price[one];
        }
        const double share = price.total() > 0 ? kernels / price.total() : 0;
        return SimTime::from_seconds(slowed(found->second, task.duration.seconds(), share, start.seconds()));
    }

  private:
    const TrainingGraph& lowered_;
    std::uint32_t group_;
    std::map<std::uint32_t, std::vector<SlowSpell>> spells_;  ///< by group
};

}  // namespace

TrainingRun::TrainingRun(const TrainingInput& input, double memory_capacity, Simulation& simulation, SimTime start)
    : input_(input),
      memory_([&] {
          std::vector<MemoryUse> memory = memory_by_stage(model_in_memory(input), input.plan, input.software);
          const std::vector<double> limits = capacities(input, memory_capacity);
          require_fits(memory, limits, input.model, input.plan, input.software);
          for (std::size_t stage = 0; stage < memory.size(); ++stage) {
              memory_odds_ = std::max(memory_odds_, odds_of_running_out(memory[stage], limits[stage], input.software));
          }
          if (input.plan.has<OffloadPlan>() && std::isfinite(memory_capacity)) {
              require_tiers(host_uses(input));
          }
          return memory;
      }()),
      tiers_(input.plan.has<OffloadPlan>() ? std::make_unique<NodeMemories>(input, simulation.resources()) : nullptr),
      lowered_(lower(input, tiers_.get())),
      executor_(simulation.add(lowered_.graph, start)) {
    if (!lowered_.held.empty()) {  // the order holds no more than it may
        memory_ = memory_by_stage(model_in_memory(input), input.plan, input.software, lowered_.held);
    }
    if (!input.spells.empty()) {
        clock_ = std::make_unique<PassClock>(input, lowered_);
        executor_.set_clock(*clock_);
    }
}

TrainingResult TrainingRun::result(std::uint32_t timeline_ranks) const {
    TrainingResult result;
    result.memory = memory_;
    result.memory_odds = memory_odds_;
    for (const MemoryUse& stage : memory_) {
        result.memory_bytes = std::max(result.memory_bytes, stage.total());
    }
    if (tiers_ != nullptr) {
        add_tiers(host_uses(input_), result);
    }
    const SimTime end = executor_.finished_at();
    result.iteration_s = end.seconds();
    book(lowered_, executor_, end, !input_.spells.empty(), result);
    if (input_.plan.schedule->staggers && lowered_.stages > 1) {
        // Stages begin the next iteration as they end this one, one after another: what all have waited for by then is not lost.
        const double hidden = result.iteration_s - period(lowered_, executor_);
        result.iteration_s -= hidden;
        result.bubble_s -= hidden;
    }
    if (input_.plan.has<OuterPlan>()) {
        add_outer(input_, lowered_, result);
    }
    if (input_.plan.has<CompressionPlan>()) {
        result.gradient_bytes = gradient_bytes(input_, lowered_);
    }
    const double tokens = static_cast<double>(input_.plan.global_batch) * static_cast<double>(input_.model.sequence);
    if (input_.documents != nullptr) {
        result.documents = document_use(input_, lowered_);
    }
    // Of a forward and a backward pass, which takes twice as many; of two forward passes.
    double passes = 1;  // of a forward and a backward pass
    input_.plan.features.each([&](const PlanFeature& one) { passes *= one.passes_share(); });
    result.model_flops =
        passes * (result.documents ? result.documents->flops : tokens * flops_per_token(input_.model, input_.plan));
    result.hardware_flops = lowered_.hardware_flops * static_cast<double>(input_.plan.ranks());
    result.tasks = lowered_.graph.size();
    result.simulated_ranks = static_cast<std::uint32_t>(lowered_.ranks.size());
    result.folded_into_one = lowered_.folded_into_one;
    if (timeline_ranks > 0) {
        result.timeline = draw_iteration(input_, lowered_, executor_, memory_, timeline_ranks);
    }
    return result;
}

}  // namespace orrery::training
