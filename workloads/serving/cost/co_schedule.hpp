#pragma once
// Nano-batches: the operations of one iteration, a part of its tokens each, beside each other on one device.
//
// Claims: a batch is cut into parts of equally many tokens. Those of a part run in order, layer after layer; each lane (products, memory-bound
// attention, collectives) runs one operation at a time, the one that has waited longest. Operations of different lanes run beside
// each other and share the compute units and the memory's rate by what each keeps busy alone, as in sim/device/device.hpp: kernels
// that compute little, collectives too, take at least a fifth of the units. Every part reads all weights: parts cost what smaller
// batches cost. The layers after the fourth take as long as the third and fourth.
// Limits: no interference beyond the shares; shares are as they come, not set; parts are equal; prompts are cut evenly.
// Source: Zhu et al., "NanoFlow", OSDI 2025, arXiv:2408.12757 (nano-batches, operations by their bottleneck).
// Validated by tests/workloads/serving_nano_test.cpp (closed forms of two lanes).

#include "sim/base/namespaces.hpp"

#include <cstddef>
#include <vector>

namespace orrery::serving {

enum class KernelLane { products, attention, network };
inline constexpr std::size_t kLanes = 3;

struct LaneOperation {
    KernelLane lane = KernelLane::products;
    double seconds = 0;  ///< alone
    double units = 0;    ///< share of the compute units that it keeps busy alone,
    double memory = 0;   ///< and of the memory's rate
};

/// Time in s of `parts` equal parts, each of which runs `layer` so many times.
[[nodiscard]] double co_schedule(const std::vector<LaneOperation>& layer, std::size_t parts, std::size_t layers);

}  // namespace orrery::serving
