#pragma once
// The messages between nodes of a training iteration, one by one.
//
// A collective is a message from each GPU to its successor on another node, as large as all that the collective sends there; a send
// between stages is one. Packet by packet each has an end of its own; at other fidelities those of a collective end together. A message
// starts when the library has it sent, so what the library adds before that is no part of its time, the path's latency is.
// Validated by tests/tools/training_flows_test.cpp.

#include "sim/network/packet/statistics.hpp"
#include "tools/driver/run.hpp"
#include "tools/driver/scenario.hpp"
#include "workloads/training/simulation/simulate.hpp"

namespace orrery::driver {

/// Those that one job of a packet run sent, in the order of sending, of which none was cancelled.
/// `owner`: the number of its listener; `start`: of the job, s of the run.
[[nodiscard]] MessageRecord messages_of(const std::vector<FlowTime>& times, std::uint32_t owner, double start);
/// Those of an iteration whose transfers keep their flows and are shared by the fluid or the analytic model, in the order of their
/// starts. Nothing where there are more than `most`.
[[nodiscard]] std::optional<MessageRecord> messages_of(const TrainingInput& input, const TrainingRun& run,
                                                       std::size_t most);

}  // namespace orrery::driver
