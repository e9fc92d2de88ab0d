#include "workloads/serving/metrics/request_timeline.hpp"

#include "sim/base/error.hpp"

namespace orrery::serving {

void RequestTimeline::keep(std::uint64_t request, const Life& life) {
    if (life.until <= life.start) {
        return;
    }
    if (result_.lives.size() == kMostLifeRecords) {
        result_.cut = true;
        return;
    }
    result_.lives.push_back({request, life.replica, life.adapter, life.phase, life.start, life.until});
}

void RequestTimeline::change(std::uint32_t replica, const Sequence& sequence, LifePhase phase, SimTime now) {
    const auto [found, fresh] = lives_.try_emplace(
        sequence.id, Life{replica, sequence.adapter, LifePhase::waiting, sequence.arrival, sequence.arrival});
    Life& life = found->second;
    ORRERY_ASSERT(life.until <= now);
    if (!fresh && life.phase == phase && life.until == now && life.replica == replica) {
        life.goes_on = true;
        return;
    }
    keep(sequence.id, life);
    keep(sequence.id, Life{replica, sequence.adapter, LifePhase::waiting, life.until, now});
    life = Life{replica, sequence.adapter, phase, now, now, true};
}

void RequestTimeline::adapter_wanted(std::uint32_t replica, const Sequence& sequence, SimTime now) {
    if (wanted_) {
        change(replica, sequence, LifePhase::adapter, now);
    }
}

void RequestTimeline::adapter_here(const Sequence& sequence, SimTime now) {
    if (const auto found = lives_.find(sequence.id);
        found != lives_.end() && found->second.phase == LifePhase::adapter) {
        found->second.until = now;
        found->second.goes_on = false;
    }
}

void RequestTimeline::batch_starts(std::uint32_t replica, const EngineState& engine, const Batch& batch, SimTime now) {
    if (!wanted_) {
        return;
    }
    for (const BatchItem& item : batch.items) {
        const Sequence& sequence = engine.sequence(item.sequence);
        if (!sequence.abandoned) {
            change(replica, sequence, sequence.decoding() ? LifePhase::decode : LifePhase::prefill, now);
        }
    }
}

void RequestTimeline::batch_ends(const EngineState& engine, const Batch& batch, SimTime now) {
    if (!wanted_) {
        return;
    }
    for (const BatchItem& item : batch.items) {
        if (const auto found = lives_.find(engine.sequence(item.sequence).id); found != lives_.end()) {
            found->second.until = now;
            found->second.goes_on = false;
        }
    }
}

void RequestTimeline::end(std::uint32_t replica, const Sequence& sequence, SimTime now) {
    if (!wanted_) {
        return;
    }
    if (const auto found = lives_.find(sequence.id); found != lives_.end() && found->second.goes_on) {
        found->second.until = now;
    }
    change(replica, sequence, LifePhase::waiting, now);
    lives_.erase(sequence.id);
}

}  // namespace orrery::serving
