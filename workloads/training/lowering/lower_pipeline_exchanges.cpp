#include "sim/base/error.hpp"
#include "workloads/training/features/compression.hpp"
#include "workloads/training/lowering/lowering_pipeline.hpp"

#include <algorithm>
#include <array>

namespace orrery::training {

void PipelineLowering::move_units() {
    TaskLists inputs(rank_count());
    TaskLists scattered(rank_count());
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
        const std::uint32_t first = stage * per_stage();
        const std::vector<UnitStep>& steps = unit_steps_[stage];
        ORRERY_ASSERT(unit_tasks_[first].size() == steps.size());
        for (std::size_t k = 0; k < steps.size(); ++k) {
            const UnitStep& step = steps[k];
            const auto done = [&](std::size_t back) {
                return [&, back](const Group& group) {
                    std::vector<TaskId> out;
                    for (const std::uint32_t member : group.members) {
                        if (k >= back) {
                            out.push_back(unit_tasks_[member][k - back]);
                        }
                    }
                    return out;
                };
            };
            const bool backward = step.work != PassWork::forward;
            label(step.label);
            for (std::uint32_t rank = first; rank < first + per_stage(); ++rank) {
                inputs[rank] = in_.plan.overlap_data ? std::vector<TaskId>() : scattered[rank];
            }
            if (needs_weights(step.work)) {
                gather(stage, *step.unit, backward, step.first, done(ahead()), inputs);
            }
            for (std::uint32_t rank = first; rank < first + per_stage(); ++rank) {
                for (const TaskId input : inputs[rank]) {
                    out_.graph.add_edge(input, begin_of(unit_tasks_[rank][k]));
                }
            }
            if (makes_gradients(step.work)) {
                reduce(stage, *step.unit, step.last, done(0), scattered);
            }
        }
    }
    label({});
}

Price PipelineLowering::traffic(double bytes) const {
    Price price;
    price[Category::data_communication] = in_.software.kernel_slowdown.value * cost().memory_traffic(bytes);
    return price;
}

void PipelineLowering::add_up_gradients() {
    const std::uint16_t name = out_.graph.name("add up gradients");
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
        const std::uint32_t price =
            add_prices([&] { return traffic(decompress_traffic(in_.plan, stage_parameters(stage).total(), width())); });
        for (std::uint32_t rank = stage * per_stage(); rank < (stage + 1) * per_stage(); ++rank) {
            const TaskId id = compute(rank, name, Category::data_communication, price);
            for (const TaskId exchanged : reduced_[rank]) {
                out_.graph.add_edge(exchanged, id);
            }
        }
    }
}

Alone PipelineLowering::bucket_alone(std::uint32_t stage, const RankWeights& weights, bool backward) const {
    const CollectiveOp op = !backward            ? CollectiveOp::all_gather
                            : in_.plan.zero >= 1 ? CollectiveOp::reduce_scatter
                                                 : CollectiveOp::all_reduce;
    const double bytes = backward ? bytes_of(in_.plan.gradient_precision) : 2;
    const auto of = [&](const std::vector<Group>& alike, double held) {
        return alike.empty() || held <= 0 ? Alone() : alone(op, alike[0], bytes * held);
    };
    return of(holders_of(stage).groups, weights.dense) + of(holders_of(stage).experts, weights.experts);
}

void PipelineLowering::gather_early() {
    const std::uint16_t name = out_.graph.name("gather weights");
    gathered_.assign(rank_count(), std::vector<std::vector<Gathered>>(chunks_));
    for (const Holders& holders : holders_) {
        for (auto part = holders.parts.rbegin(); part != holders.parts.rend(); ++part) {
            const std::uint32_t stage = holders.stages[0];
            const std::vector<Bucket>& buckets = buckets_[0][chunk_of(*part, stage) * stages_ + stage];
            for (std::uint32_t i = 0; i < buckets.size(); ++i) {
                label(without_pass(buckets[i].label));
                for_groups(holders, buckets[i].weights, [&](const Group& group, double weights) {
                    const TaskId id = collective(group, kGatherStream, name, CollectiveOp::all_gather, 2 * weights, {});
                    for (const std::uint32_t member : group.members) {
                        gathered_[member][chunk_of(*part, member / per_stage())].push_back({i, id});
                    }
                });
            }
        }
    }
    label({});
}

TaskLabel PipelineLowering::without_pass(const TaskLabel& of) {
    TaskLabel out;
    out.chunk = of.chunk;
    out.layer = of.layer;
    out.layers = of.layers;
    return out;
}

void PipelineLowering::gather_late() {
    const std::uint16_t name = out_.graph.name("gather weights");
    for (const Holders& holders : holders_) {
        for_groups(holders, stage_parameters(holders.stages[0]), [&](const Group& group, double weights) {
            std::vector<TaskId> after;
            after.reserve(group.members.size());
            for (const std::uint32_t member : group.members) {
                after.push_back(out_.compute[member].back());
            }
            collective(group, kGatherStream, name, CollectiveOp::all_gather, 2 * weights, after);
        });
    }
}

void PipelineLowering::add_sends() {
    const std::uint16_t names[2] = {out_.graph.name("send activations"), out_.graph.name("send gradients")};
    // Where the next part is in either direction, by place; itself at the ends of the model.
    std::array<std::vector<ChunkPlace>, 2> next;
    for (std::uint32_t place = 0; place < places_; ++place) {
        const ChunkPlace here{place % stages_, place / stages_};
        const std::uint32_t part = part_of(place);
        next[0].push_back(part + 1 < parts_ ? place_of_part(map_, shape_, part + 1, here.chunk) : here);
        next[1].push_back(part > 0 ? place_of_part(map_, shape_, part - 1, here.chunk) : here);
    }
    for (std::uint32_t rank = 0; stages_ > 1 && rank < rank_count(); ++rank) {
        const std::uint32_t stage = rank / per_stage();
        const std::uint32_t member = rank % per_stage();
        const auto free = sends_freely(stage);
        for (std::size_t i = 0; i < schedules_[stage].size(); ++i) {
            const Pass& pass = schedules_[stage][i];
            const std::size_t way = pass.work == PassWork::forward ? 0 : 1;
            const ChunkPlace to = next[way][pass.chunk * stages_ + stage];
            if (to.stage == stage || (way == 1 && !pass.gives_gradient())) {
                continue;  // it is there, or there is nothing to send
            }
            const std::uint32_t place = pass.chunk * stages_ + stage;
            TaskLabel sent = transfer_label(place, {});
            sent.micro_batch = static_cast<std::int32_t>(pass.micro_batch);
            label(sent);
            const TaskId id = send(rank, to.stage * per_stage() + member, names[way]);
            const std::size_t end = pass.joined ? i + 1 : i;
            ORRERY_ASSERT(end < ends_[rank].size());
            out_.graph.add_edge(ends_[rank][end], id);
            out_.graph.add_edge(id, pass_starts_[way][slot(member, to, pass.micro_batch)]);
            if ((i < free.first || i >= free.second) && end + 1 < starts_[rank].size()) {
                out_.graph.add_edge(id, starts_[rank][end + 1]);
            }
        }
    }
    label({});
}

std::pair<std::size_t, std::size_t> PipelineLowering::sends_freely(std::uint32_t stage) const {
    const std::vector<Pass>& passes = schedules_[stage];
    if (!in_.plan.overlap_pipeline) {
        return {0, 0};
    }
    if (!in_.software.waits_at_ends) {
        return {0, passes.size()};
    }
    const auto forward = [](const Pass& pass) { return pass.work == PassWork::forward; };
    const auto first_backward =
        static_cast<std::size_t>(std::find_if_not(passes.begin(), passes.end(), forward) - passes.begin());
    const auto after_forward =
        static_cast<std::size_t>(passes.rend() - std::find_if(passes.rbegin(), passes.rend(), forward));
    return {std::max<std::size_t>(first_backward, 1) - 1, after_forward + 1};
}

TaskId PipelineLowering::send(std::uint32_t from, std::uint32_t to, std::uint16_t name) {
    auto [entry, fresh] = sends_.try_emplace({from, to});
    auto& [set, planned] = entry->second;
    if (fresh) {
        planned = planned_send(from, to);
        set = demands_of_send(from, to, planned);
    }
    return transfer(from, kSendStream, name, Category::pipeline_communication,
                    planned.latency_before(in_.routes_flows).value(), set, planned.bytes.value());
}

void PipelineLowering::reduce_gradients() {
    const std::uint16_t name = out_.graph.name("reduce gradients");
    const CollectiveOp op = in_.plan.zero >= 1 ? CollectiveOp::reduce_scatter : CollectiveOp::all_reduce;
    const double bytes = bytes_of(in_.plan.gradient_precision);
    const auto reduce = [&](const Group& group, const std::uint32_t* part, std::size_t bucket, double weights) {
        std::vector<TaskId> after;
        after.reserve(group.members.size());
        for (const std::uint32_t member : group.members) {
            const std::uint32_t stage = member / per_stage();
            after.push_back(final_[member][part == nullptr ? last_chunk(stage) : chunk_of(*part, stage)][bucket]);
        }
        const auto exchange = [&](CollectiveOp with, double payload) {
            if (payload <= 0) {
                return;
            }
            const TaskId id = collective(group, kReduceStream, name, with, payload, after);
            for (const std::uint32_t member : group.members) {
                reduced_[member].push_back(id);
            }
        };
        if (!in_.plan.has<CompressionPlan>()) {
            exchange(op, bytes * weights);
            return;
        }
        const CompressedBytes sent = compressed_bytes(in_.plan, weights, static_cast<double>(group.gpus.size()));
        exchange(CollectiveOp::all_reduce, sent.dense);
        exchange(CollectiveOp::all_gather, sent.sparse);
    };
    for (const Holders& holders : holders_) {
        const std::uint32_t stage = holders.stages[0];
        if (!in_.plan.overlap_data) {
            for_groups(holders, stage_parameters(stage),
                       [&](const Group& group, double weights) { reduce(group, nullptr, 0, weights); });
            continue;
        }
        for (const std::uint32_t& part : holders.parts) {
            const std::vector<Bucket>& buckets = buckets_[1][chunk_of(part, stage) * stages_ + stage];
            for (std::size_t i = 0; i < buckets.size(); ++i) {
                label(without_pass(buckets[i].label));
                for_groups(holders, buckets[i].weights,
                           [&](const Group& group, double weights) { reduce(group, &part, i, weights); });
            }
        }
    }
    label({});
}

std::uint32_t PipelineLowering::last_chunk(std::uint32_t stage) const {
    const std::vector<Pass>& passes = schedules_[stage];
    ORRERY_ASSERT(
        std::any_of(passes.rbegin(), passes.rend(), [](const Pass& pass) { return pass.ends_micro_batch(); }));
    return std::find_if(passes.rbegin(), passes.rend(), [](const Pass& pass) { return pass.ends_micro_batch(); })
        ->chunk;
}

void PipelineLowering::reduce_embeddings() {
    const std::uint16_t name = out_.graph.name("reduce embedding gradients");
    const double shared = by_unit() ? static_cast<double>(degrees_of(in_.plan).gradients) : 1;
    const double bytes = bytes_of(in_.plan.gradient_precision) * in_.model.embedding_parameters() / tensor_ / shared;
    for (std::uint32_t first = 0; first < per_stage(); ++first) {
        const std::uint32_t last = (stages_ - 1) * per_stage() + first;
        const Group group = across_stages({first, last});
        std::vector<TaskId> after = {out_.compute[first].back(), out_.compute[last].back()};
        for (const std::uint32_t rank : group.members) {
            after.insert(after.end(), reduced_[rank].begin(), reduced_[rank].end());
        }
        const TaskId id = collective(group, kReduceStream, name, CollectiveOp::all_reduce, bytes, after);
        reduced_[first].push_back(id);
        reduced_[last].push_back(id);
    }
}

}  // namespace orrery::training
