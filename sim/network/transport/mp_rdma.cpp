#include "sim/base/error.hpp"
#include "sim/network/transport/transport.hpp"

namespace orrery::network::packet {

namespace {

/// MP-RDMA: Lu et al., "Multi-path transport for RDMA in datacenters", NSDI 2018, section 4: one window over all paths, which
/// every acknowledgement moves by itself: an unmarked one by a packet a window, a marked one by half a packet less. So where a
/// share p of packets is marked the window settles at 2 (1 - p) / p packets. Its paths are `clocked`: each acknowledgement
/// lets packets go on its own path, and one in a hundred takes a fresh one. An acknowledgement of a packet more than 32 behind the
/// highest acknowledged one (half the bitmap, assumed) takes a packet off the window and lets none go on its path. No packet is sent
/// beyond the receiver's bitmap of 64 packets, so no more than that many go in a round trip of the slowest path.
/// Operations that synchronise (mp_rdma_operation): the last packet of each must be written after all packets before it. Its sender
/// holds it back, and all behind it, for the time that alpha x 32 packets take at its rate, a window a round trip, and a receiver
/// that gets it too early throws it away and says so: then it is sent again after as long a time. That changes no window. The
/// interval is that of public simulators too (MpRdmaHw over ns-3: alpha 1, 32 packets).
/// Limits: in the paper applications say which operations synchronise; here it is every one, of a set number of packets, and the
/// message's last packet ends one. Over other paths than `clocked` the rules of windows and bitmap remain, and those of paths do not.
/// After a loss, which its recovery finds in the receiver's bitmap, it goes on with half the window (assumed: the paper does not
/// say), and after a timeout with a packet.
class MpRdma final : public Transport {
  public:
    struct Parameters {
        double initial = 0;  ///< packets
        std::int64_t bitmap = 64;
        std::int64_t late = 32;
        std::int64_t operation = 0;
        double alpha = 1;
        void describe(Fields& fields) {
            fields.number({"mp_rdma_window", "initial window in packets; 0: a bandwidth-delay product, as in the paper",
                           false, 0, 1e6},
                          initial);
            fields.integer(
                {"mp_rdma_bitmap", "reordering bitmap of the receiver: packets tracked beyond the first missing one",
                 false, 1, 65536},
                bitmap);
            fields.integer(
                {"mp_rdma_late", "packets behind the highest acknowledged one beyond which one cuts the window", false,
                 1, 65536},
                late);
            fields.integer(
                {"mp_rdma_operation",
                 "packets per operation, whose last one is written after all earlier ones; 0: none", false, 0, 1e9},
                operation);
            fields.number({"mp_rdma_alpha",
                           "share of the time of mp_rdma_late packets for which one that synchronises is held back",
                           false, 0, 1e3},
                          alpha);
        }
    };
    explicit MpRdma(const Parameters& own) : own_(own) {}

    [[nodiscard]] TransportNeeds needs() const override {
        return {.eager = true,
                .ahead = static_cast<std::uint32_t>(own_.bitmap),
                .late = static_cast<std::uint32_t>(own_.late),
                .operation = static_cast<std::uint32_t>(own_.operation),
                .operation_wait = own_.alpha * static_cast<double>(own_.late)};
    }
    void start(CongestionState& flow) const override {
        flow.begin<State>();
        const double product = run_.line_rate * run_.base_rtt * 1e-12;
        flow.window = clamp_window(own_.initial > 0 ? own_.initial * run_.packet : product);
    }
    void on_ack(CongestionState& flow, const Acknowledged& ack) const override {
        ORRERY_ASSERT(flow.window >= run_.packet);
        flow.window += ack.marked ? -ack.bytes / 2 : run_.packet * ack.bytes / flow.window;
        flow.window -= ack.late ? run_.packet : 0;
        flow.window = clamp_window(flow.window);
    }
    void on_loss(CongestionState& flow, const Lost& lost) const override {
        auto& state = flow.as<State>();
        ORRERY_ASSERT(lost.cumulative <= lost.next);
        if (lost.cumulative >= state.recover) {
            flow.window = clamp_window(flow.window / 2);
            state.recover = lost.next;
        }
    }
    void on_timeout(CongestionState& flow, const Lost&) const override { flow.window = run_.packet; }
    void renumber(CongestionState& flow) const override { flow.as<State>().recover = 0; }
    void shift(CongestionState& flow, const Shift& by) const override { by.move(flow.as<State>().recover); }

  private:
    struct State {
        std::uint32_t recover = 0;  ///< packets before this were under way when the window was last halved
    };
    Parameters own_;
};

}  // namespace

extern const PolicyRow<Transport> kMpRdma = policy_row<Transport, MpRdma>(
    "mp-rdma", "MP-RDMA: one window over many paths, adjusted by the ECN mark of each acknowledgement");

}  // namespace orrery::network::packet
