#pragma once
// What a message takes where it has its path to itself: what slowdowns are measured against.
//
// Claims: the latency of its path and its bytes at the narrowest link, as the analytic and the fluid model have it; packet by packet
// with their headers, each stored and forwarded at every hop, from a sender that keeps its link full. That is the usual yardstick
// of flow completion times, and says of every transport the same: what one loses to its own ramps is slowdown.
// Scope: every fidelity and fabric, paths that are spread or not, what NICs and hosts add before the first packet.
// Limits: paths of packets are taken to be as long as a hashed shortest one. What switches sum is priced as bytes over the links of
// its tree. Links that change have the rates that they begin with.
// Source: the ideal completion time of Li et al., "HPCC: high precision congestion control", SIGCOMM 2019, section 5.1, with the
// forwarding of the last packet beside it.
// Validated by tests/workloads/lone_message_test.cpp, against runs of single messages.

#include "workloads/collective/message_path.hpp"
#include "workloads/collective/message_run.hpp"

#include <algorithm>

namespace orrery::collective {

class LoneMessages {
  public:
    /// What is referred to outlives this.
    LoneMessages(const Fabric& fabric, const Placement& placement, const Schedule& schedule,
                 const MessageRunOptions& options)
        : fabric_(fabric), placement_(placement), schedule_(schedule), options_(options) {}
    /// s, from the start of sharing, that is from when it may start and its delay is over.
    [[nodiscard]] double seconds(const Message& message);

  private:
    [[nodiscard]] double of_group(const Message& message) const;
    [[nodiscard]] double by_packet(const Message& message, GpuId from, GpuId to, const Route& route) const;

    const Fabric& fabric_;
    const Placement& placement_;
    const Schedule& schedule_;
    const MessageRunOptions& options_;
    MessagePath path_;
};

/// How much longer a message took than alone; 1 where it takes no time.
[[nodiscard]] inline double slowdown_of(double seconds, double alone) {
    return alone > 0 ? std::max(1.0, seconds / alone) : 1;
}
/// By message. `ends`, `starts`: as of MessageRunResult.
[[nodiscard]] std::vector<double> slowdowns(LoneMessages& alone, const Schedule& schedule,
                                            const std::vector<double>& starts, const std::vector<double>& ends);

}  // namespace orrery::collective
