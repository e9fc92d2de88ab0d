#include "sim/network/transport/transport.hpp"

namespace orrery::inline network::packet {

namespace {

/// Falcon: Singhvi et al., "Falcon: a reliable, low latency hardware transport", SIGCOMM 2025; rules and settings of its fabric
/// window as in the project's public simulator (falcon-transport/isekai, rue/algorithm/swift.cc, DefaultConfiguration).
/// Swift's rule over the delay of each acknowledgement: below the target the window rises by a packet a round trip, above it falls
/// by 0.8 of the excess, by half at most, once a round trip. Small windows have a later target, by up to 100 us at a tenth of a
/// packet. Windows go below a packet: then packets are paced, a window a round trip. Reports of loss alone change no
/// window; a timeout halves it, and the third in a row leaves the smallest.
/// A connection of several paths is `subflows: 4` of paths `ecmp`, each with its own window, as in Falcon.
/// Limits: packets are cut over the paths beforehand, where Falcon gives each to the path with the most open window; paths are not
/// changed under load (PLB); there is no tail loss probe. Receivers take packets at the line rate, so the NIC's own
/// window, which its buffer moves, never binds and is left out.
class Falcon final : public Transport {
  public:
    struct Parameters {
        double target = 0;        ///< s
        double scaling = 100e-6;  ///< s
        void describe(Fields& fields) {
            fields.quantity(
                {"falcon_target", "round trip aimed at; 0 s: 25 us, and 1.5 unloaded ones where those are longer",
                 false, 0, 1},
                Dimension::time, target);
            fields.quantity({"falcon_flow_scaling", "largest addition to the target at small windows", false, 0, 1},
                            Dimension::time, scaling);
        }
    };
    explicit Falcon(const Parameters& own) : own_(own) {}

    [[nodiscard]] TransportNeeds needs() const override {
        TransportNeeds out;
        out.eager = true;
        return out;
    }
    void start(CongestionState& flow) const override {
        auto& state = flow.begin<State>();
        state.window = run_.max_window / run_.packet;
        set(flow);
    }
    void on_ack(CongestionState& flow, const Acknowledged& ack) const override {
        auto& state = flow.as<State>();
        state.delay = ack.delay;
        state.timeouts = 0;
        const double goal = target(state.window);
        const auto late = static_cast<double>(ack.delay);
        const double acked = ack.bytes / run_.packet;
        if (late < goal) {
            state.window += state.window >= 1 ? acked / state.window : acked;
        } else if (ack.now - state.last_decrease >= ack.delay) {
            state.window *= std::max(1 - kBeta * (late - goal) / late, 1 - kMostDecrease);
            state.last_decrease = ack.now;
        }
        set(flow);
    }
    void on_timeout(CongestionState& flow, const Lost& lost) const override {
        auto& state = flow.as<State>();
        state.window = ++state.timeouts >= kTimeouts ? kLeast : state.window * (1 - kMostDecrease);
        state.last_decrease = lost.now;
        set(flow);
    }
    void shift(CongestionState& flow, const Shift& by) const override { by.move(flow.as<State>().last_decrease); }

  private:
    static constexpr double kBeta = 0.8;
    static constexpr double kMostDecrease = 0.5;
    static constexpr double kBaseDelay = 25e6;   // ps
    static constexpr double kLeast = 0.01;       // packets
    static constexpr double kMost = 256;         // packets, at which the target is the base alone
    static constexpr double kLeastScaled = 0.1;  // packets, at which it is latest
    static constexpr std::uint32_t kTimeouts = 3;
    struct State {
        double window = 0;  ///< packets, which may be a part of one
        std::int64_t last_decrease = 0;
        std::int64_t delay = 0;
        std::uint32_t timeouts = 0;  ///< in a row
    };
    [[nodiscard]] double target(double window) const {  // ps
        const double base = own_.target > 0 ? own_.target * 1e12 : std::max(kBaseDelay, 1.5 * run_.base_rtt);
        const double end = 1 / std::sqrt(kMost);
        const double share = (1 / std::sqrt(window) - end) / (1 / std::sqrt(kLeastScaled) - end);
        return base + own_.scaling * 1e12 * std::clamp(share, 0.0, 1.0);
    }
    void set(CongestionState& flow) const {
        auto& state = flow.as<State>();
        state.window = std::clamp(state.window, kLeast, run_.max_window / run_.packet);
        flow.window = std::max(state.window, 1.0) * run_.packet;
        const double trip = std::max(run_.base_rtt, static_cast<double>(state.delay)) * 1e-12;
        flow.rate = state.window < 1 ? state.window * run_.packet / trip : 0;
    }

    Parameters own_;
};

}  // namespace

extern const PolicyRow<Transport> kFalcon =
    policy_row<Transport, Falcon>("falcon", "Falcon: windows by delay as in Swift, paced below a packet");

}  // namespace orrery::inline network::packet
