#pragma once
// Flows and changes of links from files.
//
// Flow files, by their ending:
//   .cm   connection matrix of htsim: `Nodes n`, `Connections n`, then `0->1 id 1 start 0 size 2000000` (ps, bytes), with
//         `trigger t` instead of a start, `send_done_trigger t` or `recv_done_trigger t`, and `trigger id t oneshot|multishot|barrier`, a barrier with
//         `count n` of what it waits for
//   else  CSV with the header src,dst,bytes,start or src,dst,bytes,start,after: hosts from 0, seconds, and the row (from 1)
//         that must have arrived before, or several (`1;3`): earlier ones. A last column class names a class of traffic; empty:
//         the first
// Link events: CSV with the header time_s,link,event,factor. A link is `nic N` (to its leaf), `leaf N spine N` (the spine of
// the leaf's pod) or `spine N core N`; an event is down, up, rate (factor: of the normal rate), errors (factor: the bit
// error rate from then on); and, of a NIC, pause (it pauses its switch without end) or resume.
// Limits: a send_done trigger fires when the last byte has arrived, like recv_done; failures of
// switches, which the file can name, are not read.
// Validated by tests/tools/packet_scenarios_test.cpp.

#include "workloads/collective/message_run.hpp"

namespace orrery::trace {

/// Throws ConfigError with every bad line of the file. `classes`: names of those that its column class may name.
[[nodiscard]] Schedule read_flows(const std::string& path, std::uint32_t hosts,
                                  const std::vector<std::string>& classes = {});
/// Throws ConfigError with every bad line of the file, and every link that the fabric lacks. `pauses`: its ports heed pauses.
[[nodiscard]] std::vector<TimedFault> read_link_events(const std::string& path, const Fabric& fabric, bool pauses);

}  // namespace orrery::trace
