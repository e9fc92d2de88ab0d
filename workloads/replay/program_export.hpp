#pragma once
// Programs as files of other simulators: GOAL of LogGOPSim, and Chakra's execution traces, which ASTRA-sim runs.
//
// Claims: what is written and imported again is the same program: same operations, sizes, waits and times.
// Limits: GOAL has whole nanoseconds and bytes and no collectives; Chakra has whole microseconds and bytes. What a format cannot say is
// refused, not rounded. What a kernel computes (its work) is not written, its time is.
// Validated by tests/tools/export_test.cpp: programs that are written, imported and run take as long as before, within 1e-9.

#include "workloads/collective/message_run.hpp"
#include "workloads/replay/replay_trace.hpp"

#include <string>
#include <vector>

namespace orrery::replay {

/// A schedule of messages as a program of sends and receives: a send waits for what has come to its rank, and for sends of its rank.
/// Throws InfeasibleError for sums inside switches, and for a message that waits for one which its sender does not see.
[[nodiscard]] ReplayTrace program_of(const Schedule& schedule, std::uint32_t ranks);

/// Both throw InfeasibleError for what the format cannot say, with the operation.
[[nodiscard]] std::string goal_text(const ReplayTrace& trace);
/// The bytes of each rank's file (NAME.RANK.et), and JSON of its groups (NAME.json), empty where no collective has one.
struct ChakraFiles {
    std::vector<std::string> ranks;
    std::string groups;
};
[[nodiscard]] ChakraFiles chakra_files(const ReplayTrace& trace);

}  // namespace orrery::replay
