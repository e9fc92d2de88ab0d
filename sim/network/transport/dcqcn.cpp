#include "sim/base/error.hpp"
#include "sim/network/transport/transport.hpp"

namespace orrery::network::packet {

namespace {

/// RDMA over Ethernet: go-back-N, and rates by DCQCN's reaction point, equations 1 to 4 of Zhu et al., "Congestion control
/// for large-scale RDMA deployments", SIGCOMM 2015. Preset 40g, the default: its section 5 and table 14.
/// Preset 400g: what NICs of today are delivered with: NVIDIA, "DCQCN CC parameters", DOCA 3.4 (ConnectX-4 and later): notifications
/// 4 us apart, alpha decays each microsecond by 5/1024, rates rise after 300 us or 32,767 bytes, one step of fast recovery, and
/// the rate that a flow recovers to falls with the first notification after a rise alone.
class Dcqcn final : public Transport {
  public:
    enum class Preset { for_40g, for_400g };
    struct Parameters {
        bool on = true;
        Preset preset = Preset::for_40g;
        double g = 1.0 / 256;
        double alpha_timer = 55e-6;  ///< s
        double rate_timer = 55e-6;   ///< s
        double byte_counter = 10e6;  ///< bytes
        std::int64_t recovery = 5;   ///< steps of fast recovery
        double increase = 5e6;       ///< B/s, R_AI: 40 Mb/s
        double hyper = 50e6;         ///< B/s, R_HAI: assumed ten times R_AI, the paper does not give it
        double min_rate = 1.25e6;    ///< B/s, assumed
        bool clamp = true;           ///< each notification lowers the target, and not the first after an increase alone
        double notification = 50e-6;  ///< s, at most one notification per flow in this time
        void take(Preset wanted) {
            Parameters fresh;
            fresh.on = on;
            fresh.preset = wanted;
            *this = fresh;
            if (wanted == Preset::for_40g) {
                return;
            }
            g = 5.0 / 1024;
            alpha_timer = 1e-6;
            rate_timer = 300e-6;
            byte_counter = 32767;
            recovery = 1;
            increase = 5e6 / 8;
            hyper = 50e6 / 8;
            min_rate = 1e6 / 8;
            clamp = false;
            notification = 4e-6;
        }
        void describe(Fields& fields) {
            fields.boolean({"dcqcn", "roce: rates follow DCQCN; else line rate"}, on);
            const Preset before = preset;
            fields.enumeration({"dcqcn_preset", "defaults of the fields below: those of 2015, or of NICs of 400 Gb/s"},
                               {"40g", "400g"}, preset);
            if (preset != before) {
                take(preset);
            }
            fields.number({"dcqcn_g", "gain of the moving average alpha (g)", false, 1e-6, 1}, g);
            fields.quantity(
                {"dcqcn_alpha_timer", "time without a notification after which alpha decays", false, 1e-7, 1},
                Dimension::time, alpha_timer);
            fields.quantity({"dcqcn_rate_timer", "time between rate increases", false, 1e-7, 1}, Dimension::time,
                            rate_timer);
            fields.quantity({"dcqcn_byte_counter", "bytes between rate increases", false, 1, 1e15}, Dimension::bytes,
                            byte_counter);
            fields.integer({"dcqcn_recovery", "steps of fast recovery", false, 1, 1000}, recovery);
            fields.quantity({"dcqcn_increase", "rate that an additive increase adds", false, 0, 1e13}, Dimension::rate,
                            increase);
            fields.quantity({"dcqcn_hyper", "rate that a hyper increase adds", false, 0, 1e13}, Dimension::rate, hyper);
            fields.quantity({"dcqcn_min_rate", "lowest rate of a flow", false, 1, 1e13}, Dimension::rate, min_rate);
            fields.boolean(
                {"dcqcn_clamp",
                 "reset DCQCN's target rate at each notification; otherwise only at the first after an increase"},
                clamp);
            fields.quantity({"dcqcn_notification", "least time between notifications of a flow", false, 0, 1},
                            Dimension::time, notification);
        }
    };
    explicit Dcqcn(const Parameters& own) : own_(own) {}

    [[nodiscard]] TransportNeeds needs() const override {
        TransportNeeds out;
        out.go_back_n = true;
        out.window = false;
        if (own_.on) {
            out.counts_bytes = true;
            out.notification_gap = own_.notification;
        }
        return out;
    }
    void start(CongestionState& flow) const override {
        if (own_.on) {
            flow.rate = flow.begin<State>().target = run_.line_rate;
        }
    }
    void on_sent(CongestionState& flow, double bytes) const override {
        if (flow.timer == kNoTimer) {
            return;  // never notified: at line rate
        }
        auto& state = flow.as<State>();
        state.byte_count += bytes;
        if (state.byte_count >= own_.byte_counter) {
            state.byte_count -= own_.byte_counter;
            ++state.byte_steps;
            increase(flow);
        }
    }
    void on_notification(CongestionState& flow, std::int64_t now) const override {
        auto& state = flow.as<State>();
        decay(state, now - 1);  // a notification comes before a timer of its instant
        ORRERY_ASSERT(state.alpha >= 0 && state.alpha <= 1);
        if (own_.clamp || state.raised) {
            state.target = flow.rate;
            state.raised = false;
        }
        flow.rate = std::max(flow.rate * (1 - state.alpha / 2), own_.min_rate);
        state.alpha = (1 - own_.g) * state.alpha + own_.g;
        state.byte_steps = state.timer_steps = 0;
        state.byte_count = 0;
        state.alpha_due = now + to_ps(own_.alpha_timer);
        state.rate_due = now + to_ps(own_.rate_timer);
        flow.timer = state.rate_due;
    }
    void on_timer(CongestionState& flow, std::int64_t now) const override {
        auto& state = flow.as<State>();
        ORRERY_ASSERT(flow.timer == state.rate_due);
        while (state.rate_due <= now) {
            ++state.timer_steps;
            state.rate_due += to_ps(own_.rate_timer);
            increase(flow);
        }
        flow.timer = state.rate_due;
    }
    void shift(CongestionState& flow, const Shift& by) const override {
        if (flow.timer != kNoTimer) {  // or it was never notified, and keeps no times
            auto& state = flow.as<State>();
            by.move(state.alpha_due);
            by.move(state.rate_due);
        }
    }
    [[nodiscard]] std::int64_t period() const override { return own_.on ? to_ps(own_.rate_timer) : 0; }

  private:
    struct State {
        double target = 0;  ///< B/s
        double alpha = 1;
        double byte_count = 0;
        std::int64_t alpha_due = kNoTimer;
        std::int64_t rate_due = kNoTimer;
        std::uint32_t byte_steps = 0;
        std::uint32_t timer_steps = 0;
        bool raised = true;  ///< since the last notification
    };
    // Alpha matters to the next notification alone, so that its timer needs no event.
    void decay(State& state, std::int64_t now) const {
        while (state.alpha_due <= now) {
            state.alpha *= 1 - own_.g;
            state.alpha_due += to_ps(own_.alpha_timer);
        }
    }
    void increase(CongestionState& flow) const {
        auto& state = flow.as<State>();
        const std::uint32_t most = std::max(state.byte_steps, state.timer_steps);
        const std::uint32_t least = std::min(state.byte_steps, state.timer_steps);
        const auto recovery = static_cast<std::uint32_t>(own_.recovery);
        if (least > recovery) {
            state.target += own_.hyper * (least - recovery);
        } else if (most > recovery) {
            state.target += own_.increase;
        }
        state.raised = true;
        state.target = std::min(state.target, run_.line_rate);
        flow.rate = std::min((state.target + flow.rate) / 2, run_.line_rate);
    }

    Parameters own_;
};

}  // namespace

extern const PolicyRow<Transport> kRoce =
    policy_row<Transport, Dcqcn>("roce", "RDMA over Ethernet: go-back-N, rates by DCQCN");

}  // namespace orrery::network::packet
