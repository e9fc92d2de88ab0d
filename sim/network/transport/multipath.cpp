#include "sim/base/error.hpp"
#include "sim/network/transport/transport.hpp"

namespace orrery::network::packet {

namespace {

/// A window over many paths, driven by delay and marks: four quadrants in the manner of Ultra Ethernet's network-signalled
/// control. All settings are assumed.
class Multipath final : public Transport {
  public:
    struct Parameters {
        double target = 0;      ///< s of queueing; 0: three quarters of the unloaded round trip
        double increase = 4;    ///< packets per round trip on an empty path
        double fair = 0.5;      ///< packets per round trip when late but not marked
        double decrease = 0.8;  ///< of the excess delay, once a round trip
        bool credits = false;   ///< what was under way first stays under way; more goes at the receiver's pace
        void describe(Fields& fields) {
            fields.quantity(
                {"multipath_target", "queueing aimed at; 0 s: three quarters of the unloaded round trip", false, 0, 1},
                Dimension::time, target);
            fields.number(
                {"multipath_increase", "additive increase on an empty path, in packets per round trip", false, 0, 1e6},
                increase);
            fields.number({"multipath_fair", "additive increase when late but not marked, in packets per round trip",
                           false, 0, 1e6},
                          fair);
            fields.number({"multipath_decrease",
                           "share of the excess delay by which the window decreases once a round trip", false, 0, 1},
                          decrease);
            fields.boolean(
                {"receiver_credits", "multipath: beyond its first window a flow sends what its receiver grants"},
                credits);
        }
    };
    explicit Multipath(const Parameters& own) : own_(own) {}

    [[nodiscard]] TransportNeeds needs() const override { return {.credits = own_.credits, .rare_news = true}; }
    void start(CongestionState& flow) const override {
        flow.begin<State>();
        flow.window = run_.max_window;
    }
    void on_ack(CongestionState& flow, const Acknowledged& ack) const override {
        auto& state = flow.as<State>();
        const double goal = own_.target > 0 ? own_.target * 1e12 : 0.75 * run_.base_rtt;
        const double queueing = std::max(0.0, static_cast<double>(ack.delay) - run_.base_rtt);
        state.mean_delay += (queueing - state.mean_delay) / 16;
        ORRERY_ASSERT(flow.window >= run_.packet && ack.now >= state.last_decrease);
        const double share = run_.packet * ack.bytes / flow.window;
        if (!ack.marked) {
            flow.window += queueing < goal ? own_.increase * share * (goal - queueing) / goal : own_.fair * share;
        } else if (queueing >= goal && state.mean_delay > goal &&
                   static_cast<double>(ack.now - state.last_decrease) >= run_.base_rtt) {
            flow.window *= std::max(0.5, 1 - own_.decrease * (state.mean_delay - goal) / state.mean_delay);
            state.last_decrease = ack.now;
        }
        flow.window = clamp_window(flow.window);
    }
    void on_loss(CongestionState& flow, const Lost& lost) const override {
        // A loss means that some port was full: halve, once for what was under way.
        auto& state = flow.as<State>();
        if (lost.cumulative >= state.recover ||
            static_cast<double>(lost.now - state.last_decrease) >= 2 * run_.base_rtt) {
            flow.window = clamp_window(flow.window / 2);
            state.recover = lost.next;
            state.last_decrease = lost.now;
        }
    }
    void on_timeout(CongestionState& flow, const Lost& lost) const override {
        flow.window = clamp_window(flow.window / 4);
        flow.as<State>().last_decrease = lost.now;
    }
    void renumber(CongestionState& flow) const override { flow.as<State>().recover = 0; }
    void shift(CongestionState& flow, const Shift& by) const override {
        auto& state = flow.as<State>();
        by.move(state.last_decrease);
        by.move(state.recover);
    }

  private:
    struct State {
        double mean_delay = 0;  ///< ps of queueing, smoothed
        std::int64_t last_decrease = 0;
        std::uint32_t recover = 0;
    };
    Parameters own_;
};

}  // namespace

extern const PolicyRow<Transport> kMultipath = policy_row<Transport, Multipath>(
    "multipath", "multipath window: one window over many paths, by delay and ECN marks");

}  // namespace orrery::network::packet
