#pragma once
// Messages of a run as files of flows that this and other simulators read.
//
// Claims: what is written and read again by read_flows() is the same schedule: same ends, bytes, delays and waits.
// Limits: a connection matrix of htsim has whole bytes and picoseconds, and a flow there fires two triggers at most.

#include "workloads/collective/message_run.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::trace {

/// The messages in an order in which each comes after those that it waits for, and what it waits for as rows from 0.
struct OrderedFlows {
    std::vector<std::uint32_t> order;
    std::vector<std::vector<std::uint32_t>> after;  ///< by row
};
/// Throws InfeasibleError for what no list of flows says: sums inside switches, parts of bytes, several classes of traffic.
[[nodiscard]] OrderedFlows ordered_flows(const Schedule& schedule);

/// CSV with the columns src,dst,bytes,start,after; in an order in which flows wait for earlier ones. Throws InfeasibleError for sums
/// inside switches, which no flow stands for.
[[nodiscard]] std::string flows_csv(const Schedule& schedule);
/// htsim's connection matrix over so many hosts. Throws InfeasibleError also for what it cannot say.
[[nodiscard]] std::string htsim_matrix(const Schedule& schedule, std::uint32_t hosts);

}  // namespace orrery::trace
