#include "sim/base/error.hpp"
#include "sim/network/transport/transport.hpp"

namespace orrery::network::packet {

namespace {

/// TIMELY: rates from the gradient of the round trip. Mittal et al., "TIMELY: RTT-based congestion control for the
/// datacenter", SIGCOMM 2015, algorithm 1 with its hyperactive increase (section 4.4).
/// Where the paper leaves settings open they are those of Zhu et al., "ECN or delay: lessons learnt from analysis of DCQCN
/// and TIMELY", CoNEXT 2016, table 2; no update takes more than half of the rate, as in the authors' published code.
/// Limits: losses do not change the rate, as the paper's fabric has none.
class Timely final : public Transport {
  public:
    struct Parameters {
        double low = 50e-6;        ///< s, T_low
        double high = 500e-6;      ///< s, T_high
        double increase = 1.25e6;  ///< B/s, delta: 10 Mb/s
        double beta = 0.8;         ///< of multiplicative decrease
        double alpha = 0.875;      ///< weight of the newest difference (CoNEXT 2016)
        double min_rtt = 0;        ///< s that a gradient of one stands for; 0: the unloaded round trip
        std::int64_t hyper = 5;    ///< N, and how many falling completions in a row bring it
        double segment = 16e3;     ///< bytes per completion (CoNEXT 2016; 16 to 64 KB in the paper)
        double min_rate = 1.25e6;  ///< B/s, assumed: one step of increase
        void describe(Fields& fields) {
            fields.quantity({"timely_low", "round trip below which rates rise in any case", false, 0, 1},
                            Dimension::time, low);
            fields.quantity({"timely_high", "round trip above which rates fall in any case", false, 1e-9, 1},
                            Dimension::time, high);
            fields.quantity({"timely_increase", "additive increase per completion", false, 0, 1e13}, Dimension::rate,
                            increase);
            fields.number({"timely_beta", "multiplicative decrease", false, 0, 1}, beta);
            fields.number({"timely_alpha", "weight of the newest difference of round trips", false, 1e-6, 1}, alpha);
            fields.quantity({"timely_min_rtt",
                             "round trip that a gradient of one stands for; 0 s: the unloaded round trip", false, 0, 1},
                            Dimension::time, min_rtt);
            fields.integer({"timely_hyper", "number of increases at once after as many completions with falling delay",
                            false, 1, 1000},
                           hyper);
            fields.quantity({"timely_segment", "bytes per completion", false, 1, 1e9}, Dimension::bytes, segment);
            fields.quantity({"timely_min_rate", "lowest rate of a flow", false, 1, 1e13}, Dimension::rate, min_rate);
        }
    };
    explicit Timely(const Parameters& own) : own_(own) {}

    [[nodiscard]] TransportNeeds needs() const override { return {.window = false}; }
    void start(CongestionState& flow) const override {
        flow.begin<State>();
        flow.rate = run_.line_rate;
    }
    void on_ack(CongestionState& flow, const Acknowledged& ack) const override {
        auto& state = flow.as<State>();
        state.acked += ack.bytes;
        if (state.acked < own_.segment) {
            return;
        }
        state.acked = 0;
        // Section 3.1: without the time that the segment takes to leave the NIC.
        const double rtt = static_cast<double>(ack.delay) - run_.packet / run_.line_rate * 1e12;
        if (state.previous > 0) {
            complete(flow, rtt);
        }
        state.previous = rtt;
    }
    void shift(CongestionState&, const Shift&) const override {}

  private:
    struct State {
        double acked = 0;       ///< bytes of the present segment
        double previous = 0;    ///< ps, round trip of the last completion
        double difference = 0;  ///< ps, smoothed
        std::int64_t falling = 0;
    };
    void complete(CongestionState& flow, double rtt) const {
        auto& state = flow.as<State>();
        ORRERY_ASSERT(state.previous > 0 && flow.rate > 0 && flow.rate <= run_.line_rate);
        state.difference = (1 - own_.alpha) * state.difference + own_.alpha * (rtt - state.previous);
        const double gradient = state.difference / (own_.min_rtt > 0 ? own_.min_rtt * 1e12 : run_.base_rtt);
        state.falling = gradient < 0 ? state.falling + 1 : 0;
        double rate = flow.rate;
        if (rtt < own_.low * 1e12) {
            rate += own_.increase;
        } else if (rtt > own_.high * 1e12) {
            rate *= 1 - own_.beta * (1 - own_.high * 1e12 / rtt);
        } else if (gradient <= 0) {
            rate += own_.increase * static_cast<double>(state.falling >= own_.hyper ? own_.hyper : 1);
        } else {
            rate *= 1 - own_.beta * gradient;
        }
        rate = std::max({rate, flow.rate / 2, own_.min_rate});
        flow.rate = std::min(rate, run_.line_rate);
    }

    Parameters own_;
};

}  // namespace

extern const PolicyRow<Transport> kTimely =
    policy_row<Transport, Timely>("timely", "TIMELY: rates follow the gradient of the round-trip time");

}  // namespace orrery::network::packet
