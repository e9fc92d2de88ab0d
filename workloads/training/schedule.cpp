#include "workloads/training/schedule.hpp"

#include <algorithm>

namespace orrery {

namespace {

// Forward passes go through groups of `stages` micro-batches chunk by chunk; backward passes the same, last chunk
// first.
Pass interleaved_pass(bool backward, std::uint32_t index, std::uint32_t stages, std::uint32_t chunks) {
    const std::uint32_t group = index / (stages * chunks);
    const std::uint32_t within = index % (stages * chunks);
    const std::uint32_t chunk = within / stages;
    return Pass{backward, backward ? chunks - 1 - chunk : chunk, group * stages + within % stages};
}

}  // namespace

std::vector<Pass> schedule_of(ScheduleKind kind, std::uint32_t stages, std::uint32_t chunks,
                              std::uint32_t micro_batches, std::uint32_t stage) {
    const std::uint32_t total = micro_batches * chunks;
    std::uint32_t warmup = 0;
    switch (kind) {
        case ScheduleKind::gpipe:
            warmup = total;
            break;
        case ScheduleKind::one_f_one_b:
            warmup = stages - stage - 1;
            break;
        case ScheduleKind::interleaved:
            warmup = chunks == 1 ? stages - stage - 1 : (stages - stage - 1) * 2 + (chunks - 1) * stages;
            break;
    }
    warmup = std::min(warmup, total);
    const auto pass = [&](bool backward, std::uint32_t index) {
        return chunks == 1 ? Pass{backward, 0, index} : interleaved_pass(backward, index, stages, chunks);
    };
    std::vector<Pass> passes;
    passes.reserve(2UL * total);
    std::uint32_t forward = 0;
    std::uint32_t backward = 0;
    while (forward < warmup) {
        passes.push_back(pass(false, forward++));
    }
    while (forward < total) {
        passes.push_back(pass(false, forward++));
        passes.push_back(pass(true, backward++));
    }
    while (backward < total) {
        passes.push_back(pass(true, backward++));
    }
    return passes;
}

std::uint32_t peak_in_flight(const std::vector<Pass>& passes) {
    std::uint32_t now = 0;
    std::uint32_t peak = 0;
    for (const Pass& pass : passes) {
        now = pass.backward ? now - 1 : now + 1;
        peak = std::max(peak, now);
    }
    return peak;
}

}  // namespace orrery
