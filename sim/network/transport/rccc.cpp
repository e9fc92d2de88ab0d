#include "sim/network/transport/transport.hpp"

namespace orrery::network::packet {

namespace {

/// Ultra Ethernet's receiver-credit congestion control: Ultra Ethernet Consortium, "Ultra Ethernet Specification" v1.0, 2025, with
/// the rules of the consortium's public simulator (uec.cpp). A sender begins on speculative credit, which ends with the first word
/// of its receiver. Every packet tells how much credit in all its sender could use: its backlog, at most a window ahead. The
/// receiver gives one packet's credit in the time of one on its link, to all that could use some in turn, and one for each
/// packet that comes trimmed; a sender without credit that learns of a loss asks for it.
/// Not modelled: fewer credits asked for where a NIC sends to several receivers; credits that an idle receiver gives ahead.
class Rccc final : public Transport {
  public:
    struct Parameters {
        double speculative = 0;  ///< bytes; 0: a window
        void describe(Fields& fields) {
            fields.quantity(
                {"rccc_speculative", "bytes that a flow sends before its receiver grants credit; 0 B: a window", false,
                 0, 1e12},
                Dimension::bytes, speculative);
        }
    };
    explicit Rccc(const Parameters& own) : own_(own) {}

    [[nodiscard]] TransportNeeds needs() const override {
        return {.credits = true, .backlog = true, .speculative = own_.speculative};
    }
    void shift(CongestionState&, const Shift&) const override {}

  private:
    Parameters own_;
};

}  // namespace

extern const PolicyRow<Transport> kRccc =
    policy_row<Transport, Rccc>("rccc", "RCCC: Ultra Ethernet's receiver credits, paced and granted for backlog only");

}  // namespace orrery::network::packet
