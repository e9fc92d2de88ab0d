#include "sim/base/error.hpp"
#include "sim/network/transport/transport.hpp"

namespace orrery::network::packet {

namespace {

/// DCTCP: RFC 8257.
class Dctcp final : public Transport {
  public:
    struct Parameters {
        double g = 1.0 / 16;
        double initial_window = 10;  ///< packets, RFC 6928
        void describe(Fields& fields) {
            fields.number({"dctcp_g", "gain of alpha", false, 1e-6, 1}, g);
            fields.number({"initial_window", "initial window of dctcp and cubic, in packets", false, 1, 1e6},
                          initial_window);
        }
    };
    explicit Dctcp(const Parameters& own) : own_(own) {}

    [[nodiscard]] TransportNeeds needs() const override { return {.fills_queues = true}; }
    void start(CongestionState& flow) const override {
        flow.begin<State>();
        flow.window = clamp_window(own_.initial_window * run_.packet);
    }
    void on_ack(CongestionState& flow, const Acknowledged& ack) const override {
        auto& state = flow.as<State>();
        state.acked += ack.bytes;
        state.marked += ack.marked ? ack.bytes : 0;
        if (flow.window < state.threshold && !ack.marked) {
            flow.window += ack.bytes;
        } else {
            state.threshold = std::min(state.threshold, flow.window);
            flow.window += run_.packet * ack.bytes / flow.window;
        }
        if (ack.cumulative >= state.window_end && state.acked > 0) {
            ORRERY_ASSERT(state.marked <= state.acked && ack.cumulative <= ack.next);
            state.alpha = (1 - own_.g) * state.alpha + own_.g * state.marked / state.acked;
            if (state.marked > 0) {
                flow.window *= 1 - state.alpha / 2;
                state.threshold = flow.window;
            }
            state.acked = state.marked = 0;
            state.window_end = ack.next;
        }
        flow.window = clamp_window(flow.window);
    }
    void on_loss(CongestionState& flow, const Lost& lost) const override {
        auto& state = flow.as<State>();
        if (lost.cumulative >= state.recover) {
            flow.window = state.threshold = clamp_window(flow.window / 2);
            state.recover = lost.next;
        }
    }
    void on_timeout(CongestionState& flow, const Lost&) const override {
        flow.as<State>().threshold = std::max(flow.window / 2, 2 * run_.packet);
        flow.window = run_.packet;
    }
    void renumber(CongestionState& flow) const override { flow.as<State>().window_end = flow.as<State>().recover = 0; }
    void shift(CongestionState& flow, const Shift& by) const override {
        auto& state = flow.as<State>();
        by.move(state.window_end);
        by.move(state.recover);
    }

  private:
    struct State {
        double threshold = kNoLimit;  ///< bytes: slow start below
        double alpha = 1;
        double acked = 0;
        double marked = 0;
        std::uint32_t window_end = 0;
        std::uint32_t recover = 0;
    };
    Parameters own_;
};

}  // namespace

extern const PolicyRow<Transport> kDctcp =
    policy_row<Transport, Dctcp>("dctcp", "TCP whose window shrinks by the share of marked bytes");

}  // namespace orrery::network::packet
