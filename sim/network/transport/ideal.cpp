#include "sim/network/transport/transport.hpp"

namespace orrery::network::packet {

namespace {

/// No window, no acknowledgements: what closed forms and max-min fair rates are about.
class Ideal final : public Transport {
  public:
    using Parameters = NoParameters;
    explicit Ideal(const Parameters&) {}

    [[nodiscard]] TransportNeeds needs() const override { return {.window = false, .acknowledged = false}; }
    void shift(CongestionState&, const Shift&) const override {}
};

}  // namespace

extern const PolicyRow<Transport> kIdeal =
    policy_row<Transport, Ideal>("ideal", "ideal flows at max-min fair rates, without acknowledgements");

}  // namespace orrery::network::packet
