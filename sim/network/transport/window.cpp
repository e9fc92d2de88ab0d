#include "sim/network/transport/transport.hpp"

namespace orrery::network::packet {

namespace {

/// A constant number of bytes in flight.
class Window final : public Transport {
  public:
    using Parameters = NoParameters;
    explicit Window(const Parameters&) {}

    void start(CongestionState& flow) const override { flow.window = run_.max_window; }
    void shift(CongestionState&, const Shift&) const override {}
};

}  // namespace

extern const PolicyRow<Transport> kWindow =
    policy_row<Transport, Window>("window", "a constant number of bytes in flight");

}  // namespace orrery::network::packet
