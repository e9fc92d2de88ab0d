#pragma once
// The fabric as a Boost.Graph, for checks that arithmetic cannot make about itself: reachability and shortest paths.

#include "sim/network/fabric.hpp"

#include <cstdint>
#include <vector>

namespace orrery::topologies {

struct GraphReport {
    std::size_t vertices = 0;
    std::size_t links = 0;
    std::uint32_t reachable_gpus = 0;       ///< from GPU 0, itself included
    std::uint32_t diameter_from_first = 0;  ///< links of the longest shortest path from GPU 0 to a GPU
};

/// Walks the graph of links from GPU 0.
[[nodiscard]] GraphReport inspect(const Fabric& fabric);
/// Number of links of the shortest path from one GPU to every vertex; UINT32_MAX where there is none.
/// GPUs do not forward.
[[nodiscard]] std::vector<std::uint32_t> distances_from(const Fabric& fabric, GpuId from);

}  // namespace orrery::topologies
