#pragma once
// Operations of a recorded program that move bytes of a node's memories (`memory` of work.hpp), as activities, and those on small cores
// beside memory banks (`dpu`), which take their time.
// Internal to workloads/replay.

#include "workloads/replay/replay.hpp"

namespace orrery::replay {

/// The node's memories for a program that moves some of their bytes, else nothing. Throws InfeasibleError where a node has none, and
/// ConfigError for a tier that it does not have or whose rows nobody can read.
[[nodiscard]] std::unique_ptr<NodeMemory> memory_of(const ReplayTrace& trace, const ReplaySpec& spec,
                                                    const NodeHost* host, Simulation& simulation);

struct MemoryMove {
    NodeMemory::Hop hop;
    double bytes;
};
/// Of a work that memory_of has checked.
[[nodiscard]] MemoryMove move_of(const NodeMemory& memory, GpuId gpu, const std::string& work);

/// s of each work that runs on small cores; -1 of others.
[[nodiscard]] std::vector<double> core_seconds(const ReplayTrace& trace, const ReplayDevices& devices);

}  // namespace orrery::replay
