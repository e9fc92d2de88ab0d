#include "tools/driver/kinds/serving_timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery::driver {

namespace {

// A value of each replica that changes over time, as counters.
void add_counters(Timeline& timeline, const char* name,
                  const std::map<std::uint32_t, std::map<double, double>>& changes) {
    for (const auto& [replica, by] : changes) {
        double now = 0;
        for (const auto& [at, change] : by) {
            now += change;
            ORRERY_ASSERT(now > -1e-3);  // what ends had begun
            // Sums of rates end at a rounding of zero.
            timeline.counters.push_back(CounterPoint{name, replica, at, std::max(0.0, std::round(now * 1e6) / 1e6)});
        }
    }
}

// Requests that wait for their first iteration, or again after a preemption, or for an adapter.
void add_waiting(Timeline& timeline, const ServiceResult& result) {
    std::map<std::uint32_t, std::map<double, double>> changes;
    for (const LifeRecord& part : result.lives) {
        if (part.phase == LifePhase::waiting || part.phase == LifePhase::adapter) {
            changes[part.replica][static_cast<double>(part.start.ps()) * 1e-6] += 1;
            changes[part.replica][static_cast<double>(part.end.ps()) * 1e-6] -= 1;
        }
    }
    add_counters(timeline, "requests waiting", changes);
}

// Caches that go over the fabric, as lifelines, and the mean rates at which they do.
void add_transfers(Timeline& timeline, const ServiceResult& result) {
    std::map<std::uint32_t, std::map<double, double>> sent;
    std::map<std::uint32_t, std::map<double, double>> received;
    for (std::size_t i = 0; i < result.transfers.size(); ++i) {
        const TransferRecord& one = result.transfers[i];
        const double start = static_cast<double>(one.start.ps()) * 1e-6;
        const double end = static_cast<double>(one.end.ps()) * 1e-6;
        ORRERY_ASSERT(one.start <= one.end && one.bytes >= 0);
        timeline.lifelines.push_back(
            Lifeline{"KV transfers", fmt::format("to replica {}", one.to), i, one.from, start, end - start});
        if (end > start) {
            const double rate = one.bytes * 8e-9 / ((end - start) * 1e-6);
            for (auto* changes : {&sent[one.from], &received[one.to]}) {
                (*changes)[start] += rate;
                (*changes)[end] -= rate;
            }
        }
    }
    add_counters(timeline, "KV sent, Gb/s", sent);
    add_counters(timeline, "KV received, Gb/s", received);
}

}  // namespace

Timeline draw(const ServiceResult& result) {
    Timeline timeline;
    const auto us = [](SimTime time) { return static_cast<double>(time.ps()) * 1e-6; };
    std::uint32_t replicas = 0;
    std::uint32_t stages = 0;
    for (const IterationRecord& record : result.timeline) {
        replicas = std::max(replicas, record.replica + 1);
        stages = std::max(stages, record.stage + 1);
        ORRERY_ASSERT(record.start <= record.end && record.sequences >= 1);
        const char* phase = record.tokens > record.sequences ? "prefill" : "decode";
        timeline.spans.push_back(Span{phase,
                                      phase,
                                      record.replica,
                                      record.stage,
                                      us(record.start),
                                      us(record.end - record.start),
                                      {{"sequences", static_cast<double>(record.sequences)},
                                       {"tokens", static_cast<double>(record.tokens)},
                                       {"cache blocks", static_cast<double>(record.blocks)}}});
        timeline.counters.push_back(
            CounterPoint{"cache blocks", record.replica, us(record.end), static_cast<double>(record.blocks)});
        if (record.stage == 0) {
            timeline.counters.push_back(CounterPoint{"sequences in the batch", record.replica, us(record.start),
                                                     static_cast<double>(record.sequences)});
        }
    }
    for (const LifeRecord& part : result.lives) {
        static constexpr const char* kPhases[] = {"waiting", "adapter", "prefill", "decode"};
        ORRERY_ASSERT(static_cast<std::size_t>(part.phase) < std::size(kPhases) && part.start <= part.end);
        const std::string phase = kPhases[static_cast<std::size_t>(part.phase)];
        timeline.lifelines.push_back(
            Lifeline{"requests", part.phase == LifePhase::adapter ? fmt::format("{} {}", phase, part.adapter) : phase,
                     part.request, part.replica, us(part.start), us(part.end - part.start)});
    }
    for (const AdapterRecord& record : result.adapters) {
        timeline.counters.push_back(
            CounterPoint{"adapters here", record.replica, us(record.at), static_cast<double>(record.here)});
        timeline.counters.push_back(
            CounterPoint{"adapters coming", record.replica, us(record.at), static_cast<double>(record.coming)});
    }
    add_waiting(timeline, result);
    add_transfers(timeline, result);
    for (const DownRecord& one : result.downs) {
        replicas = std::max(replicas, one.replica + 1);
        ORRERY_ASSERT(one.start <= one.end);
        timeline.spans.push_back(
            Span{"down", "fault", one.replica, stages, us(one.start), us(one.end - one.start), {}});
    }
    if (!result.downs.empty()) {
        timeline.threads.emplace_back(stages, "faults");
    }
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
        timeline.threads.emplace_back(stage, stages == 1 ? "iterations" : fmt::format("stage {}", stage));
    }
    for (std::uint32_t replica = 0; replica < replicas; ++replica) {
        timeline.processes.emplace_back(replica, fmt::format("replica {}", replica));
    }
    return timeline;
}

}  // namespace orrery::driver
