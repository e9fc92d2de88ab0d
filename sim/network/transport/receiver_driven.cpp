#include "sim/network/transport/transport.hpp"

namespace orrery::network::packet {

namespace {

/// Beyond its first window a flow sends one packet for each credit, which receivers grant at the pace of their links: Handley
/// et al., "Re-architecting datacenter networks and stacks for low latency and high performance", SIGCOMM 2017.
class ReceiverDriven final : public Transport {
  public:
    using Parameters = NoParameters;
    explicit ReceiverDriven(const Parameters&) {}

    [[nodiscard]] TransportNeeds needs() const override { return {.credits = true}; }
    void shift(CongestionState&, const Shift&) const override {}
};

}  // namespace

extern const PolicyRow<Transport> kReceiverDriven = policy_row<Transport, ReceiverDriven>(
    "receiver-driven", "receivers grant a credit for each packet after the first window");

}  // namespace orrery::network::packet
