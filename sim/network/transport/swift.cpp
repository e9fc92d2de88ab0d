#include "sim/base/error.hpp"
#include "sim/network/transport/transport.hpp"

namespace orrery::network::packet {

namespace {

/// Swift: Kumar et al., "Swift: delay is simple and effective", SIGCOMM 2020, algorithm 1. The paper keeps its settings to
/// itself: these are assumed.
class Swift final : public Transport {
  public:
    struct Parameters {
        double target = 0;    ///< s beyond the unloaded round trip; 0: half of that
        double increase = 1;  ///< packets per round trip
        double beta = 0.8;
        double max_decrease = 0.5;
        double flow_scaling = 0;  ///< s, largest addition to the target when windows are small
        void describe(Fields& fields) {
            fields.quantity({"swift_target", "queueing delay aimed at; 0 s: half the unloaded round trip", false, 0, 1},
                            Dimension::time, target);
            fields.number(
                {"swift_increase", "additive increase of the window, in packets per round trip", false, 0, 1e6},
                increase);
            fields.number({"swift_beta", "decrease by the excess delay", false, 0, 1}, beta);
            fields.number({"swift_max_decrease", "largest decrease a round trip", false, 0, 1}, max_decrease);
            fields.quantity({"swift_flow_scaling", "largest addition to the target at small windows", false, 0, 1},
                            Dimension::time, flow_scaling);
        }
    };
    explicit Swift(const Parameters& own) : own_(own) {}

    void start(CongestionState& flow) const override {
        flow.begin<State>();
        flow.window = run_.max_window;
    }
    void on_ack(CongestionState& flow, const Acknowledged& ack) const override {
        auto& state = flow.as<State>();
        state.delay = ack.delay;
        const double goal = target(flow.window);
        const auto late = static_cast<double>(ack.delay);
        if (late < goal) {
            flow.window += own_.increase * run_.packet * ack.bytes / std::max(flow.window, run_.packet);
        } else if (ack.now - state.last_decrease >= ack.delay) {
            flow.window *= std::max(1 - own_.beta * (late - goal) / late, 1 - own_.max_decrease);
            state.last_decrease = ack.now;
        }
        flow.window = clamp_window(flow.window);
    }
    void on_loss(CongestionState& flow, const Lost& lost) const override {
        auto& state = flow.as<State>();
        if (lost.now - state.last_decrease >= std::max(state.delay, static_cast<std::int64_t>(run_.base_rtt))) {
            flow.window = clamp_window(flow.window * (1 - own_.max_decrease));
            state.last_decrease = lost.now;
        }
    }
    void on_timeout(CongestionState& flow, const Lost& lost) const override {
        flow.window = run_.packet;
        ORRERY_ASSERT(lost.now >= flow.as<State>().last_decrease);
        flow.as<State>().last_decrease = lost.now;
    }
    void shift(CongestionState& flow, const Shift& by) const override {
        auto& state = flow.as<State>();
        by.move(state.last_decrease);
    }

  private:
    struct State {
        std::int64_t last_decrease = 0;
        std::int64_t delay = 0;
    };
    [[nodiscard]] double target(double window) const {  // ps
        const double base = run_.base_rtt + (own_.target > 0 ? own_.target * 1e12 : run_.base_rtt / 2);
        // Flow scaling: many flows on a link have small windows and are granted more queue, down from its full range at a
        // window of one packet to nothing at a hundred.
        const double scaled = 1 / std::sqrt(std::max(1.0, window / run_.packet));
        return base + own_.flow_scaling * 1e12 * std::max(0.0, (scaled - 0.1) / 0.9);
    }

    Parameters own_;
};

}  // namespace

extern const PolicyRow<Transport> kSwift =
    policy_row<Transport, Swift>("swift", "Swift: delay-based windows with additive increase below a target");

}  // namespace orrery::network::packet
