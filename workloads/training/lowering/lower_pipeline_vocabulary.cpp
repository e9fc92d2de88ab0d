#include "sim/base/error.hpp"
#include "workloads/training/lowering/lowering_pipeline.hpp"

namespace orrery::training {

void PipelineLowering::add_meetings() {
    const bool one_barrier = in_.plan.vocabulary == VocabularyParallel::one_barrier;
    const double hidden = cost().hidden_bytes();
    for (std::uint32_t member = 0; member < per_stage(); ++member) {
        std::vector<std::uint32_t> ranks;
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            ranks.push_back(stage * per_stage() + member);
        }
        const Group group = across_stages(std::move(ranks));
        // A sum that one rank wants moves what a broadcast does.
        const Meeting spread{out_.graph.name("spread input"), plan_meeting(CollectiveOp::broadcast, group, hidden)};
        const Meeting sum{out_.graph.name("sum over vocabulary"), spread.planned};
        const Meeting agree{out_.graph.name("largest score and sum"),
                            plan_meeting(CollectiveOp::all_reduce, group, 2 * cost().token_bytes())};
        const auto all = [&](std::size_t kind, std::uint32_t m) {
            std::vector<TaskId> out;
            for (const std::uint32_t rank : group.members) {
                out.push_back(vocabulary_[kind][std::size_t{rank} * micro_batches_ + m]);
            }
            return out;
        };
        const std::uint32_t ahead = 2 * stages_;
        for (std::uint32_t m = 0; m < micro_batches_; ++m) {
            TaskLabel of;
            of.micro_batch = static_cast<std::int32_t>(m);
            label(of);
            const auto pass = [&](bool backward, std::uint32_t stage) {
                return pass_starts_[backward ? 1 : 0][slot(member, {stage, 0}, m)];
            };
            std::vector<TaskId> begun;
            if (m >= ahead) {
                begun = all(0, m - ahead);
            } else {
                for (const std::uint32_t rank : group.members) {
                    begun.push_back(out_.compute[rank].front());
                }
            }
            meet(group, sum, begun, {pass(false, 0)});
            meet(group, spread, {end_of(group.members.back(), PassWork::forward, m)}, all(0, m));
            const TaskId agreed = meet(group, agree, all(0, m), all(1, m));
            meet(group, sum, one_barrier ? std::vector<TaskId>{agreed} : all(1, m), {pass(true, stages_ - 1)});
            const TaskId back = meet(group, spread, {end_of(group.members.front(), PassWork::backward, m)}, {});
            for (const std::uint32_t rank : group.members) {
                reduced_[rank].push_back(back);
            }
        }
    }
    label({});
}

std::pair<std::uint32_t, GroupTransfer> PipelineLowering::plan_meeting(CollectiveOp op, const Group& group,
                                                                       double bytes) {
    const GroupTransfer planned = plan_transfer(op, group, bytes);
    return {demands_of(op, group, bytes, planned), planned};
}

TaskId PipelineLowering::meet(const Group& group, const Meeting& meeting, const std::vector<TaskId>& after,
                              const std::vector<TaskId>& before) {
    const GroupTransfer& planned = meeting.planned.second;
    const TaskId id =
        transfer(group.members[0], kVocabularyStream, meeting.name, Category::pipeline_communication,
                 planned.latency_before(in_.routes_flows).value(), meeting.planned.first, planned.bytes.value());
    for (const TaskId task : after) {
        out_.graph.add_edge(task, id);
    }
    for (const TaskId task : before) {
        out_.graph.add_edge(id, task);
    }
    return id;
}

TaskId PipelineLowering::end_of(std::uint32_t rank, PassWork work, std::uint32_t micro_batch) {
    const std::vector<Pass>& passes = schedules_[rank / per_stage()];
    std::size_t& at = searched_[{rank, work}];  // micro-batches come in order
    while (passes[at].work != work || passes[at].micro_batch != micro_batch) {
        ORRERY_ASSERT(at + 1 < passes.size());
        ++at;
    }
    return ends_[rank][at];
}

}  // namespace orrery::training
