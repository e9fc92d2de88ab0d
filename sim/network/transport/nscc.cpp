#include "sim/base/error.hpp"
#include "sim/network/transport/transport.hpp"

namespace orrery::network::packet {

namespace {

/// Ultra Ethernet's network-signalled congestion control: Ultra Ethernet Consortium, "Ultra Ethernet Specification" v1.0, 2025,
/// with the rules and settings of the consortium's public simulator (uec.cpp).
/// Four cases by mark and queueing delay: unmarked and early: proportional increase, and fast increase while nothing waits;
/// unmarked and late: fair increase; marked and late: multiplicative decrease, once a round trip; marked and early: none, the
/// path is changed. Increases come into force in batches. What is trimmed or lost is taken off the window. Where less than an
/// eighth of the largest window arrived in a round trip of loss or long delay, Quick Adapt sets the window to what did arrive.
/// A flow's round trip without load is the network's, or the least that it has seen.
class Nscc final : public Transport {
  public:
    struct Parameters {
        double target =
            0;  ///< s of queueing; 0: with trimming three quarters of the unloaded round trip, else all of it
        bool quick_adapt = true;
        void describe(Fields& fields) {
            fields.quantity(
                {"nscc_target", "queueing aimed at; 0 s: 3/4 of the unloaded round trip, without trimming all", false,
                 0, 1},
                Dimension::time, target);
            fields.boolean({"nscc_quick_adapt", "nscc: after losses the window is what arrived in a round trip"},
                           quick_adapt);
        }
    };
    explicit Nscc(const Parameters& own) : own_(own) {}

    [[nodiscard]] TransportNeeds needs() const override {
        TransportNeeds out;
        out.rare_news = true;
        out.asks_early = false;  // as the public simulator: with the packet that fills the window
        out.eager = true;
        return out;
    }
    void start(CongestionState& flow) const override {
        auto& state = flow.begin<State>();
        state.base = run_.base_rtt;
        flow.window = largest(state);
    }
    void on_ack(CongestionState& flow, const Acknowledged& ack) const override {
        auto& state = flow.as<State>();
        state.achieved += ack.bytes;
        state.received += ack.bytes;
        state.ignored += ack.bytes;
        const auto rtt = static_cast<double>(ack.delay);
        state.base = std::min(state.base, rtt);
        const double delay = rtt - state.base;
        average(state, delay, ack.marked);
        if (adapts(flow, ack.now, ack.marked, delay, false, ack.in_flight)) {
            return;
        }
        if (!ack.marked && delay >= target()) {
            state.increase += 5 * packet() * scale() * ack.bytes;
        } else if (!ack.marked) {
            increase_early(flow, delay, ack.bytes);
        } else if (delay >= target()) {
            decrease(flow, ack.now);
        }
        bound(flow);
        ORRERY_ASSERT(ack.now >= state.adjusted && state.received >= 0);
        const auto since = static_cast<double>(ack.now - state.adjusted);
        if (state.received > 8 * run_.packet || since > run_.base_rtt) {
            flow.window += state.increase / flow.window;
            if (since >= run_.base_rtt) {
                flow.window += 0.15 * packet() * scale();
                state.adjusted = ack.now;
            }
            state.increase = state.received = 0;
        }
        bound(flow);
    }
    void on_loss(CongestionState& flow, const Lost& lost) const override {
        auto& state = flow.as<State>();
        if (lost.trimmed > 0) {
            state.ignored += lost.bytes;
            state.base = std::min(state.base, static_cast<double>(lost.trimmed));
            average(state, run_.base_rtt, true);  // a full queue
            state.adapt = true;
            if (adapts(flow, lost.now, true, 0, true, lost.in_flight)) {
                return;
            }
        }
        flow.window -= lost.bytes;
        bound(flow);
    }
    void on_timeout(CongestionState& flow, const Lost& lost) const override { on_loss(flow, lost); }
    void shift(CongestionState& flow, const Shift& by) const override {
        auto& state = flow.as<State>();
        state.ends += state.ends == 0 ? 0 : by.time;
        by.move(state.adjusted);
        by.move(state.decreased);
    }

  private:
    struct State {
        double base = 0;             ///< ps, round trip without load
        double mean_delay = 0;       ///< ps of queueing, smoothed
        double increase = 0;         ///< bytes^2, of the window, that the next batch brings
        double received = 0;         ///< bytes since the last batch
        double early = 0;            ///< bytes in a row that did not wait
        double achieved = 0;         ///< bytes in the present period of Quick Adapt
        double to_ignore = 0;        ///< bytes in flight when Quick Adapt set the window: their marks are old news
        double ignored = 0;          ///< bytes heard of since then
        std::int64_t ends = 0;       ///< ps, of the present period; 0: none yet
        std::int64_t adjusted = 0;   ///< ps, when a round trip's last batch came
        std::int64_t decreased = 0;  ///< ps
        bool adapt = false;          ///< something was trimmed in this period
        bool fast = false;           ///< increases fast, batch or not
    };
    // The settings are for 100 Gb/s and 12 us, and scale with the bandwidth-delay product.
    static constexpr double kReferenceRtt = 12e6;                // ps
    static constexpr double kReferenceProduct = 12.5e9 * 12e-6;  // bytes
    static constexpr double kNothingWaits = 1e6;                 // ps
    [[nodiscard]] double scale() const { return run_.line_rate * run_.base_rtt * 1e-12 / kReferenceProduct; }
    [[nodiscard]] double packet() const { return run_.payload; }
    [[nodiscard]] double target() const {  // ps
        return own_.target > 0 ? own_.target * 1e12 : (run_.trims ? 0.75 : 1) * run_.base_rtt;
    }
    // One and a half bandwidth-delay products of the flow's own path, and never less than fills it.
    [[nodiscard]] double largest(const State& state) const {
        return std::max(run_.max_window * state.base / run_.base_rtt, run_.line_rate * state.base * 1e-12 + run_.told);
    }
    void bound(CongestionState& flow) const {
        flow.window = std::clamp(flow.window, run_.packet, std::max(run_.packet, largest(flow.as<State>())));
    }
    void average(State& state, double delay, bool marked) const {
        const double sample = !marked && delay > target() ? state.base / 4 : delay;
        state.mean_delay += (sample - state.mean_delay) / 80;
    }
    void increase_early(CongestionState& flow, double delay, double bytes) const {
        auto& state = flow.as<State>();
        if (delay < kNothingWaits) {
            state.early += bytes;
            if (state.early > flow.window || state.fast) {
                flow.window += 0.25 * scale() * bytes;
                state.fast = true;
                return;
            }
        } else {
            state.early = 0;
        }
        state.fast = false;
        state.increase += 4 * packet() * scale() / kReferenceRtt * bytes * (target() - delay);
    }
    void decrease(CongestionState& flow, std::int64_t now) const {
        auto& state = flow.as<State>();
        state.fast = false;
        state.early = 0;
        ORRERY_ASSERT(now >= state.decreased);
        if (state.mean_delay > target() && static_cast<double>(now - state.decreased) > state.base) {
            flow.window *= std::max(1 - 0.8 * (state.mean_delay - target()) / state.mean_delay, 0.5);
            state.decreased = now;
        }
    }
    // Quick Adapt: true when it has set the window, or marks of what was in flight then still come.
    [[nodiscard]] bool adapts(CongestionState& flow, std::int64_t now, bool marked, double delay, bool lost,
                              double in_flight) const {
        auto& state = flow.as<State>();
        bool out = false;
        if (!own_.quick_adapt) {
            return false;
        }
        if (state.ignored < state.to_ignore && marked) {
            out = true;
        } else if (now > state.ends) {
            if (state.ends != 0 && (state.adapt || lost || delay > 4 * target()) &&
                state.achieved < largest(state) / 8) {
                flow.window = std::max(state.achieved, run_.packet);
                state.to_ignore = in_flight;
                state.ignored = 0;
                state.adapt = false;
                out = true;
            }
            state.achieved = 0;
            state.ends = now + std::llround(state.base + target());
        }
        if (out) {
            state.increase = state.received = 0;
        }
        return out;
    }

    Parameters own_;
};

}  // namespace

extern const PolicyRow<Transport> kNscc =
    policy_row<Transport, Nscc>("nscc", "NSCC: Ultra Ethernet's windows by delay and ECN marks, with Quick Adapt");

}  // namespace orrery::network::packet
