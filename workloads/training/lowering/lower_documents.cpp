// What documents of unlike lengths change in an iteration: prices by rank and micro-batch, and ranks that wait for each other.

#include "sim/base/error.hpp"
#include "workloads/training/features/documents.hpp"
#include "workloads/training/lowering/lowering.hpp"

namespace orrery::training {

std::uint32_t Lowering::kind_on(std::uint32_t rank) const {
    const std::int32_t micro_batch = out_.labels[label_].micro_batch;
    if (in_.documents == nullptr || micro_batch < 0) {
        return rank_kind_[rank];
    }
    const std::uint32_t place = rank % per_stage() / tensor_;  // among context ranks of replicas
    const std::uint32_t column = in_.plan.feature<DocumentsPlan>().dynamic ? place : place / context_;
    ORRERY_ASSERT(column < in_.documents->columns);
    return in_.documents
        ->of[std::size_t{column} * in_.documents->micro_batches + static_cast<std::uint32_t>(micro_batch)];
}

double Lowering::mean_flops(std::uint32_t price) const {
    if (in_.documents == nullptr) {
        return out_.prices[price].flops;
    }
    double sum = 0;
    for (const std::uint32_t load : in_.documents->of) {
        sum += out_.prices[price + load].flops;
    }
    return sum / static_cast<double>(in_.documents->of.size());
}

void Lowering::join_rings() {
    if (in_.documents == nullptr) {
        return;
    }
    const std::uint16_t name = out_.graph.name("ranks of a document");
    for (const DocumentRing& ring : in_.documents->rings) {
        const auto micro_batch = static_cast<std::int32_t>(ring.micro_batch);
        const std::uint32_t first = ring.column * tensor_;
        const std::uint32_t end = first + ring.ranks * tensor_;
        ORRERY_ASSERT(end <= out_.compute.size());
        const auto of_ring = [&](std::size_t i) {
            const TaskLabel& of = out_.labels[out_.graph.task(out_.compute[first][i]).label];
            return of.pass && of.micro_batch == micro_batch;
        };
        // All ranks run the same passes in the same order: a barrier before each pass of the micro-batch.
        for (std::size_t i = 1; i < out_.compute[first].size(); ++i) {
            if (!of_ring(i)) {
                continue;
            }
            Task barrier;
            barrier.name = name;
            barrier.category = Category::other;
            barrier.rank = out_.ranks[first];
            const TaskId all = out_.graph.add(barrier);
            out_.price_at.resize(out_.graph.size(), TrainingGraph::kNoPrice);
            for (std::uint32_t rank = first; rank < end; ++rank) {
                out_.graph.add_edge(out_.compute[rank][i - 1], all);
                out_.graph.add_edge(all, out_.compute[rank][i]);
            }
        }
    }
}

}  // namespace orrery::training
