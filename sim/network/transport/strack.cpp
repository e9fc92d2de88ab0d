#include "sim/base/error.hpp"
#include "sim/network/transport/transport.hpp"

namespace orrery::network::packet {

namespace {

/// STrack: Le et al., "STrack: a reliable multipath transport for AI/ML clusters", arXiv:2407.15266: one window over many paths,
/// moved by the round trips of acknowledgements, beside paths that are taken in turn but for those that were marked (`paths: bitmap`).
/// Below the target the window rises in proportion to what is left to it; above, it falls by 0.8 of the excess, by half at
/// most, once a round trip; at more than twice the target it becomes what arrived in the last unloaded round trip, so that an
/// incast's queue goes within one. Those settings are the public simulator's (htsim, sim/strack.cpp), which marks them as guesses.
/// Assumed: the target, one and a half unloaded round trips; the rise, a quarter of what is acknowledged of a full window where nothing waits; and
/// that a loss without such a delay halves the window once.
class STrack final : public Transport {
  public:
    struct Parameters {
        double target = 0;  ///< s
        double alpha = 0.25;
        void describe(Fields& fields) {
            fields.quantity({"strack_target", "round trip aimed at; 0 s: 1.5 unloaded ones", false, 0, 1},
                            Dimension::time, target);
            fields.number(
                {"strack_alpha", "increase of the window, as a share of the bytes acknowledged without queueing", false,
                 1e-6, 1},
                alpha);
        }
    };
    explicit STrack(const Parameters& own) : own_(own) {}

    [[nodiscard]] TransportNeeds needs() const override { return {.eager = true}; }
    void start(CongestionState& flow) const override {
        flow.begin<State>();
        flow.window = run_.max_window;
    }
    void on_ack(CongestionState& flow, const Acknowledged& ack) const override {
        auto& state = flow.as<State>();
        // What arrived in an unloaded round trip.
        state.arriving += ack.bytes;
        if (static_cast<double>(ack.now - state.since) >= run_.base_rtt) {
            const double trips = static_cast<double>(ack.now - state.since) / run_.base_rtt;
            state.achieved = state.since > 0 ? state.arriving / trips : 0;
            state.arriving = 0;
            state.since = ack.now;
        }
        ORRERY_ASSERT(ack.now >= state.since && state.arriving >= 0);
        state.delay = ack.delay;
        const double goal = own_.target > 0 ? own_.target * 1e12 : 1.5 * run_.base_rtt;
        const auto late = static_cast<double>(ack.delay);
        if (late < goal) {
            const double room = std::min(1.0, (goal - late) / std::max(1.0, goal - run_.base_rtt));
            const double product = run_.line_rate * run_.base_rtt * 1e-12;
            flow.window += own_.alpha * room * ack.bytes * product / std::max(run_.packet, flow.window);
        } else if (ack.now - state.last_decrease >= ack.delay) {
            flow.window = late > 2 * goal && state.achieved > 0
                              ? state.achieved
                              : flow.window * std::max(1 - kBeta * (late - goal) / late, 1 - kMostDecrease);
            state.last_decrease = ack.now;
        }
        flow.window = clamp_window(flow.window);
    }
    void on_loss(CongestionState& flow, const Lost& lost) const override {
        auto& state = flow.as<State>();
        if (lost.now - state.last_decrease >= std::max(state.delay, static_cast<std::int64_t>(run_.base_rtt))) {
            flow.window = clamp_window(flow.window * (1 - kMostDecrease));
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
        by.move(state.since);
    }

  private:
    static constexpr double kBeta = 0.8;
    static constexpr double kMostDecrease = 0.5;
    struct State {
        double arriving = 0;     ///< bytes since `since`
        double achieved = 0;     ///< bytes in an unloaded round trip
        std::int64_t since = 0;  ///< ps
        std::int64_t last_decrease = 0;
        std::int64_t delay = 0;
    };
    Parameters own_;
};

}  // namespace

extern const PolicyRow<Transport> kStrack = policy_row<Transport, STrack>(
    "strack", "STrack: one window over many paths, by round-trip times and, in an incast, by the achieved rate");

}  // namespace orrery::network::packet
