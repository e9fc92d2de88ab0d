#pragma once
// Messages of a run as files of flows that this and other simulators read.
//
// Claims: what is written and read again by read_flows() is the same schedule: same ends, bytes, delays and waits.
// Limits: a connection matrix of htsim has whole bytes and picoseconds, and a flow there fires two triggers at most.

#include "workloads/collective/message_run.hpp"

#include <string>

namespace orrery::trace {

/// CSV with the columns src,dst,bytes,start,after; in an order in which flows wait for earlier ones. Throws InfeasibleError for sums
/// inside switches, which no flow stands for.
[[nodiscard]] std::string flows_csv(const Schedule& schedule);
/// htsim's connection matrix over so many hosts. Throws InfeasibleError also for what it cannot say.
[[nodiscard]] std::string htsim_matrix(const Schedule& schedule, std::uint32_t hosts);

}  // namespace orrery::trace
