#pragma once
// An iteration as a timeline: passes and transfers of some ranks, what the layers of a pass exchange, memory and links over time.
//
// Claims: what the layers of a pass exchange with tensor-, context- and expert-parallel neighbours is drawn where it stands in
// their programs, stretched to what the pass took. Activations that a rank holds follow its passes, and reach at their most what
// memory.hpp says. A transfer is drawn at its mean rate.
// The kernels of layers have a lane of their own.
// Limits: neighbours do the same at the same time, so what is inside passes is drawn of the first rank of each stage alone, and of as
// many of its passes as kMostExchanges allows; kernels of the first micro-batch alone, whose passes are like all others.
// Validated by tests/workloads/training_timeline_test.cpp.

#include "sim/engine/executor.hpp"
#include "sim/record/summary.hpp"
#include "workloads/training/lowering/lower.hpp"

namespace orrery::training {

/// Exchanges and kernels inside passes that are drawn, over all stages.
inline constexpr std::size_t kMostExchanges = 200'000;

/// Category of kernels inside passes: pictures of whole ranks leave them out.
inline constexpr const char* kKernelCategory = "kernel";

/// After the run. `memory`: by stage; `ranks`: at most so many are drawn, and one of each stage at least.
[[nodiscard]] Timeline draw_iteration(const TrainingInput& input, const TrainingGraph& lowered,
                                      const Executor& executor, const std::vector<MemoryUse>& memory,
                                      std::uint32_t ranks);

}  // namespace orrery::training
