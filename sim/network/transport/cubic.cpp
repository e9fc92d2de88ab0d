#include "sim/base/error.hpp"
#include "sim/base/math.hpp"
#include "sim/network/transport/transport.hpp"

namespace orrery::network::packet {

namespace {

/// CUBIC: RFC 9438.
class Cubic final : public Transport {
  public:
    struct Parameters {
        double c = 0.4;  ///< segments per cubic second
        double beta = 0.7;
        double initial_window = 10;  ///< packets, RFC 6928
        void describe(Fields& fields) {
            fields.number({"cubic_c", "segments a cubic second", false, 1e-3, 1e3}, c);
            fields.number({"cubic_beta", "share of the window that is left after a loss", false, 0.1, 0.99}, beta);
            fields.number({"initial_window", "initial window of dctcp and cubic, in packets", false, 1, 1e6},
                          initial_window);
        }
    };
    explicit Cubic(const Parameters& own) : own_(own) {}

    [[nodiscard]] TransportNeeds needs() const override { return {.fills_queues = true}; }
    void start(CongestionState& flow) const override {
        flow.begin<State>();
        flow.window = clamp_window(own_.initial_window * run_.packet);
    }
    void on_ack(CongestionState& flow, const Acknowledged& ack) const override {
        auto& state = flow.as<State>();
        if (flow.window < state.threshold) {
            flow.window = clamp_window(flow.window + ack.bytes);
            return;
        }
        const double segments = flow.window / run_.packet;
        if (state.epoch < 0) {
            state.epoch = ack.now;
            state.friendly = segments;
            state.last_max = std::max(state.last_max, segments);
            state.k = pow_pinned((state.last_max - segments) / own_.c, 1.0 / 3);
        }
        ORRERY_ASSERT(ack.now >= state.epoch);
        const double arrived = ack.bytes / run_.packet;
        // RFC 9438, 4.2 and 4.3: where the cubic will be a round trip from now, and at least what Reno would have.
        const double t = static_cast<double>(ack.now - state.epoch + ack.delay) * 1e-12 - state.k;
        const double goal = std::clamp(own_.c * t * t * t + state.last_max, segments, 1.5 * segments);
        const double alpha = 3 * (1 - own_.beta) / (1 + own_.beta);
        state.friendly += alpha * arrived / segments;
        const double next = segments + arrived * (goal - segments) / segments;
        flow.window = clamp_window(std::max(next, state.friendly) * run_.packet);
    }
    void on_loss(CongestionState& flow, const Lost& lost) const override {
        auto& state = flow.as<State>();
        if (lost.cumulative >= state.recover) {
            decrease(flow);
            flow.window = clamp_window(state.threshold);
            state.recover = lost.next;
        }
    }
    void on_timeout(CongestionState& flow, const Lost&) const override {
        decrease(flow);
        flow.window = run_.packet;
    }
    void renumber(CongestionState& flow) const override { flow.as<State>().recover = 0; }
    void shift(CongestionState& flow, const Shift& by) const override {
        auto& state = flow.as<State>();
        state.epoch += state.epoch < 0 ? 0 : by.time;
        by.move(state.recover);
    }

  private:
    struct State {
        double threshold = kNoLimit;  ///< bytes: slow start below
        double last_max = 0;          ///< packets
        double friendly = 0;          ///< packets: what Reno would have
        double k = 0;                 ///< s
        std::int64_t epoch = -1;
        std::uint32_t recover = 0;
    };
    void decrease(CongestionState& flow) const {
        auto& state = flow.as<State>();
        const double segments = flow.window / run_.packet;
        // Fast convergence, RFC 9438, 4.7.
        state.last_max = segments < state.last_max ? segments * (1 + own_.beta) / 2 : segments;
        state.threshold = std::max(flow.window * own_.beta, 2 * run_.packet);
        state.epoch = -1;
    }

    Parameters own_;
};

}  // namespace

extern const PolicyRow<Transport> kCubic =
    policy_row<Transport, Cubic>("cubic", "TCP whose window follows a cubic of time");

}  // namespace orrery::network::packet
