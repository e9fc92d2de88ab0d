#include "sim/base/error.hpp"
#include "sim/network/path/path.hpp"
#include "sim/network/transport/transport.hpp"

#include <array>

namespace orrery::network::packet {

namespace {

/// Falcon: Singhvi et al., "Falcon: a reliable, low latency hardware transport", SIGCOMM 2025; rules and settings of its fabric
/// window as in the project's public simulator (falcon-transport/isekai, rue/algorithm/swift.cc, DefaultConfiguration).
/// Swift's rule over the delay of each acknowledgement: below the target the window rises by a packet a round trip, above it falls
/// by 0.8 of the excess, by half at most, once a round trip. Small windows have a later target, by up to 100 us at a tenth of a
/// packet. Windows go below a packet: then packets are paced, a window a round trip. Reports of loss alone change no
/// window; a timeout halves it, and the third in a row leaves the smallest.
/// Several paths are `windowed`: each has a window and a target of its own, and a packet takes the one with the most of its window
/// open, of equals the one before. Under load a path is changed for another (PLB: Qureshi et al., "PLB: congestion signals are
/// simple and effective for network load balancing", SIGCOMM 2022; settings of the simulator): after five windows of it in a
/// row of which half the packets or more were acknowledged later than 1.01 times the target.
/// Tail loss probe: without news for two round trips, and 50 us at least, the first packet not acknowledged is sent again, once,
/// before the timeout takes all for lost; its answer shows what was lost before it. The simulator has settings for both, and both
/// off.
/// The NIC's window bounds what all paths have under way: each acknowledgement that finds the receiver's buffer less full than 15 of
/// 32 parts raises it by a packet, a fuller one cuts it by 0.8 of the excess's share of the level, by half at most, once a round trip,
/// and so does a packet that has no room, by half (rules and settings of the simulator's newest generation, swift.h, the only one with
/// several paths). The delay that moves the fabric windows is without the time in the receiver's NIC. The buffer is `nic.buffer`,
/// emptied at `nic.write_rate`; without them it never fills, and this window never binds.
/// A path that has nothing under way may change sooner (falcon_plb_idle): PLB has 3 windows under load for that, and the simulator
/// no such rule.
/// Limits: fractions of a packet that several paths have open count together; a timeout halves the windows of all paths.
/// `subflows` cuts messages into connections beforehand. The level is of one buffer, and as it is when the acknowledgement leaves;
/// Falcon's is a moving mean of the fullest of several pools.
class Falcon final : public Transport {
  public:
    struct Parameters {
        double target = 0;        ///< s
        double scaling = 100e-6;  ///< s
        double probe = 50e-6;     ///< s
        std::int64_t plb = 5;
        std::int64_t idle = 0;
        void describe(Fields& fields) {
            fields.quantity(
                {"falcon_target", "round trip aimed at; 0 s: 25 us, and 1.5 unloaded ones where those are longer",
                 false, 0, 1},
                Dimension::time, target);
            fields.quantity({"falcon_flow_scaling", "largest addition to the target at small windows", false, 0, 1},
                            Dimension::time, scaling);
            fields.quantity({"falcon_probe", "least time without news until a tail loss probe; 0 s: none", false, 0, 1},
                            Dimension::time, probe);
            fields.integer({"falcon_plb",
                            "consecutive windows under load after which a path changes; 0: paths never change (needs "
                            "network.paths: windowed)",
                            false, 0, 255},
                           plb);
            fields.integer(
                {"falcon_plb_idle", "consecutive windows under load after which an idle path changes; 0: as falcon_plb",
                 false, 0, 255},
                idle);
        }
    };
    explicit Falcon(const Parameters& own) : own_(own) {}

    [[nodiscard]] TransportNeeds needs() const override {
        return {.eager = true, .path_windows = true, .probe = own_.probe, .hears_buffers = true};
    }
    void start(CongestionState& flow) const override {
        auto& state = flow.begin<State>();
        ORRERY_ASSERT(paths() <= kMostPaths);
        for (std::uint32_t i = 0; i < paths(); ++i) {
            state.window[i] = run_.max_window / run_.packet / paths();
        }
        state.nic_window = most();
        set(flow, {});
    }
    void on_ack(CongestionState& flow, const Acknowledged& ack) const override {
        auto& state = flow.as<State>();
        const std::uint32_t path = ack.path % paths();
        double& window = state.window[path];
        state.delay = ack.delay;
        state.timeouts = 0;
        const double before = window;
        const double goal = target(window);
        const auto late = static_cast<double>(ack.delay - ack.held);
        const double acked = ack.bytes / run_.packet;
        if (late < goal) {
            window += window >= 1 ? acked / window : acked;
        } else if (ack.now - state.last_decrease[path] >= ack.delay) {
            window *= std::max(1 - kBeta * (late - goal) / late, 1 - kMostDecrease);
            state.last_decrease[path] = ack.now;
        }
        if (run_.paths > 0 && own_.plb > 0) {
            balance(state, path, std::min(before, state.nic_window), acked, late > kLoaded * goal);
        }
        if (ack.filled < kBufferTarget) {
            state.nic_window += 1;
        } else {
            const double excess = (ack.filled - kBufferTarget) / static_cast<double>(ack.filled);
            cut_nic_window(state, kBeta * excess, ack.now, ack.delay);
        }
        set(flow, ack.under_way);
    }
    void on_loss(CongestionState& flow, const Lost& lost) const override {
        if (lost.no_room) {
            auto& state = flow.as<State>();
            cut_nic_window(state, kMostDecrease, lost.now, state.delay);
            flow.window = std::min(flow.window, state.nic_window * run_.packet);
        }
    }
    void on_timeout(CongestionState& flow, const Lost& lost) const override {
        auto& state = flow.as<State>();
        ++state.timeouts;
        for (std::uint32_t i = 0; i < paths(); ++i) {
            state.window[i] = state.timeouts >= kTimeouts ? kLeast : state.window[i] * (1 - kMostDecrease);
            state.last_decrease[i] = lost.now;
        }
        set(flow, {});
    }
    [[nodiscard]] std::uint32_t choose_path(CongestionState& flow,
                                            std::span<const std::uint32_t> under_way) const override {
        auto& state = flow.as<State>();
        ORRERY_ASSERT(under_way.size() >= paths() && state.last < paths());
        const auto open = [&](std::uint32_t path) { return state.window[path] - under_way[path]; };
        for (std::uint32_t i = 0; i < paths(); ++i) {
            state.last = open(i) > open(state.last) ? static_cast<std::uint8_t>(i) : state.last;
        }
        if (own_.idle > 0 && under_way[state.last] == 0 && state.rounds[state.last] >= own_.idle) {
            ++state.changes[state.last];
            state.rounds[state.last] = 0;
        }
        return state.last + kMostPaths * state.changes[state.last];
    }
    void shift(CongestionState& flow, const Shift& by) const override {
        for (std::uint32_t i = 0; i < paths(); ++i) {
            by.move(flow.as<State>().last_decrease[i]);
        }
        by.move(flow.as<State>().nic_decrease);
    }

  private:
    static constexpr double kBeta = 0.8;
    static constexpr double kMostDecrease = 0.5;
    static constexpr double kBaseDelay = 25e6;   // ps
    static constexpr double kLeast = 0.01;       // packets
    static constexpr double kMost = 256;         // packets, at which the target is the base alone
    static constexpr double kLeastScaled = 0.1;  // packets, at which it is latest
    static constexpr std::uint32_t kTimeouts = 3;
    static constexpr double kLoaded = 1.01;             // targets, beyond which a packet was under load
    static constexpr double kLoadedShare = 0.5;         // of a window, from which it was
    static constexpr std::uint32_t kBufferTarget = 15;  // 32nds of the receiver's buffer
    struct State {
        std::array<double, kMostPaths> window{};  ///< packets, which may be a part of one
        double nic_window = 0;                    ///< packets, one at least
        std::int64_t nic_decrease = 0;            ///< ps, when that was last cut
        std::array<std::int64_t, kMostPaths> last_decrease{};
        std::int64_t delay = 0;
        std::array<std::uint16_t, kMostPaths> acked{};    ///< packets of the present window,
        std::array<std::uint16_t, kMostPaths> loaded{};   ///< and of them under load
        std::array<std::uint16_t, kMostPaths> changes{};  ///< of the path for another
        std::array<std::uint8_t, kMostPaths> rounds{};    ///< windows under load in a row
        std::uint8_t last = 0;                            ///< path that was taken
        std::uint8_t timeouts = 0;                        ///< in a row
    };
    [[nodiscard]] std::uint32_t paths() const { return std::max(1U, run_.paths); }
    // Packets at which the NIC's window does not bind.
    [[nodiscard]] double most() const { return std::max(kMost, paths() * run_.max_window / run_.packet); }
    static void cut_nic_window(State& state, double share, std::int64_t now, std::int64_t trip) {
        if (now - state.nic_decrease >= trip) {
            state.nic_window = std::max(1.0, state.nic_window * (1 - std::min(share, kMostDecrease)));
            state.nic_decrease = now;
        }
    }
    // PLB: what an acknowledgement, of a path with this window, says of its load.
    void balance(State& state, std::uint32_t path, double window, double acked, bool under_load) const {
        const auto packets = static_cast<std::uint16_t>(std::ceil(acked));
        state.acked[path] = static_cast<std::uint16_t>(state.acked[path] + packets);
        state.loaded[path] = static_cast<std::uint16_t>(state.loaded[path] + (under_load ? packets : 0));
        if (state.acked[path] < window) {
            return;
        }
        ORRERY_ASSERT(state.loaded[path] <= state.acked[path]);
        const bool loaded = state.loaded[path] >= kLoadedShare * state.acked[path];
        state.rounds[path] = static_cast<std::uint8_t>(loaded ? state.rounds[path] + 1 : 0);
        if (state.rounds[path] >= own_.plb) {
            ++state.changes[path];
            state.rounds[path] = 0;
        }
        state.acked[path] = state.loaded[path] = 0;
    }
    [[nodiscard]] double target(double window) const {  // ps
        const double base = own_.target > 0 ? own_.target * 1e12 : std::max(kBaseDelay, 1.5 * run_.base_rtt);
        const double end = 1 / std::sqrt(kMost);
        const double share = (1 / std::sqrt(window) - end) / (1 / std::sqrt(kLeastScaled) - end);
        return base + own_.scaling * 1e12 * std::clamp(share, 0.0, 1.0);
    }
    // In all a flow may have as much under way as its paths have, and have open.
    void set(CongestionState& flow, std::span<const std::uint32_t> under_way) const {
        auto& state = flow.as<State>();
        double sum = 0;
        double all = 0;
        for (std::uint32_t i = 0; i < paths(); ++i) {
            double& window = state.window[i];
            window = std::clamp(window, kLeast, run_.max_window / run_.packet);
            sum += window;
            all += under_way.empty() ? window : std::max(window, static_cast<double>(under_way[i]));
        }
        state.nic_window = std::min(state.nic_window, most());
        flow.window = std::max(state.nic_window < most() ? std::min(all, state.nic_window) : all, 1.0) * run_.packet;
        const double trip = std::max(run_.base_rtt, static_cast<double>(state.delay)) * 1e-12;
        flow.rate = sum < 1 ? sum * run_.packet / trip : 0;
    }

    Parameters own_;
};

}  // namespace

extern const PolicyRow<Transport> kFalcon = policy_row<Transport, Falcon>(
    "falcon", "Falcon: windows by delay as in Swift, one for each path, paced below a packet");

}  // namespace orrery::network::packet
