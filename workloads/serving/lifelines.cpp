#include "workloads/serving/lifelines.hpp"

namespace orrery {

void Lifelines::keep(std::uint64_t request, const Life& life) {
    if (life.until <= life.start) {
        return;
    }
    if (result_.lives.size() == kMostLifeRecords) {
        result_.cut = true;
        return;
    }
    result_.lives.push_back({request, life.replica, life.phase, life.start, life.until});
}

void Lifelines::batch_starts(std::uint32_t replica, const Batch& batch, SimTime now) {
    for (const BatchItem& item : batch.items) {
        const Sequence& sequence = fleet_[replica].state.sequence(item.sequence);
        const auto [found, fresh] =
            lives_.try_emplace(sequence.id, Life{replica, LifePhase::waiting, sequence.arrival, sequence.arrival});
        Life& life = found->second;
        const LifePhase phase = sequence.decoding() ? LifePhase::decode : LifePhase::prefill;
        if (!fresh && life.phase == phase && life.until == now && life.replica == replica) {
            continue;
        }
        keep(sequence.id, life);
        keep(sequence.id, Life{replica, LifePhase::waiting, life.until, now});
        life = Life{replica, phase, now, now};
    }
}

void Lifelines::batch_ends(std::uint32_t replica, const Batch& batch, SimTime now) {
    for (const BatchItem& item : batch.items) {
        if (const auto found = lives_.find(fleet_[replica].state.sequence(item.sequence).id); found != lives_.end()) {
            found->second.until = now;
        }
    }
}

void Lifelines::end(std::uint64_t request) {
    if (const auto found = lives_.find(request); found != lives_.end()) {
        keep(request, found->second);
        lives_.erase(found);
    }
}

}  // namespace orrery
