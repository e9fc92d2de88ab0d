#pragma once
// What became of the packets of each message, for tables: apart from flows and packets, so that runs without a table do not pay.
//
// Claims: a message's counts add up over its flows, and all messages' to those of the run, but for what switches send to sum. A path
// is the links that a data packet has passed from NIC to NIC, whole or trimmed; paths are told apart by a hash of 64 bits that packets
// carry, so every way to choose them counts alike, detours too.
// Limits: packets that bring nothing new after the message is over, and those of skipped stretches, tell of no further paths.
// Validated by tests/sim/network/packet_flow_log_test.cpp.

#include "sim/base/random.hpp"
#include "sim/network/packet/statistics.hpp"

#include <vector>

namespace orrery::network::packet {

class FlowLog {
  public:
    /// A flow of the message with this number takes the slot.
    void begin(std::uint32_t flow, std::uint32_t message);
    /// The flow in this slot is no more.
    void end(std::uint32_t flow);
    [[nodiscard]] FlowCounts& of(std::uint32_t flow) { return messages_[message_of_[flow]]; }
    [[nodiscard]] const FlowCounts& of(std::uint32_t flow) const { return messages_[message_of_[flow]]; }

    /// What a packet carries of its way when it has passed one more port.
    [[nodiscard]] static std::uint64_t further(std::uint64_t way, std::uint32_t port) { return mix64(way + port); }
    /// A data packet of a flow has come to its receiver this way.
    void arrived(std::uint32_t flow, std::uint64_t way, bool marked);

    /// By message, in the order in which they were sent.
    [[nodiscard]] const std::vector<FlowCounts>& messages() const { return messages_; }
    [[nodiscard]] std::size_t memory() const;

  private:
    std::vector<std::uint32_t> message_of_;  ///< by flow
    std::vector<FlowCounts> messages_;
    std::vector<std::vector<std::uint64_t>> ways_;  ///< by message that is not over, in ascending order
    std::vector<std::uint32_t> flows_;              ///< by message: those that are
};

}  // namespace orrery::network::packet
