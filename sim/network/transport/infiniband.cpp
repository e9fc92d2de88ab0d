#include "sim/base/error.hpp"
#include "sim/network/transport/transport.hpp"

#include <fmt/format.h>

namespace orrery::network::packet {

namespace {

/// InfiniBand's reliable connection with its congestion control: InfiniBand Architecture Specification, volume 1, 9.7 and annex
/// A10; Gran et al., "First experiences with congestion control in InfiniBand hardware", IPDPS 2010. Packets in order, go-back-N,
/// one acknowledgement for several packets. Switches mark (FECN) above a threshold, which is `queues.ecn`, and where links have
/// credits a port marks only what it has credits for: the root of congestion, not its victims. A marked packet is acknowledged at
/// once, and each marked acknowledgement (BECN) raises the connection's index into the congestion control table, CCTI, by
/// CCTI_Increase, to CCTI_Limit at most; a timer lowers it by one, to CCTI_Min at least. Between two packets it waits for CCT[CCTI]
/// times that of sending one, so its rate is that of its link over 1 + CCT[CCTI].
/// Defaults: CCTI_Increase and CCTI_Min as in Mellanox's congestion control manager (MLNX_OFED manual, rev. 2.3); that one computes
/// table and timer from the number of nodes, by no published rule. CCTI_Limit is that of a table of 128 entries, two blocks of
/// management data; the timer, 150 times that of sending a packet (some 150 us where a packet takes 1 us, as links of 16 Gb/s do
/// with 2 KiB), and the linear table, CCT[i] = i, are assumed. The quadratic one, CCT[i] = floor(7 (i / 95)^2 / 0.218), stands for
/// the manager's in LLNL's study of settings (opensm-cc-optimizer, P. Huang).
/// Limits: control is of a connection, not of a service level; its marks come in acknowledgements, never in packets of their own
/// (CNP), so that go-back-N loses those of packets that it throws away; Marking_Rate and Packet_Size are 0, so each packet above
/// the threshold is marked; no credit starvation. A connection has no window, its credits hold it. Links with credits
/// lose nothing here: only without them does go-back-N act.
/// Validated by tests/sim/network/packet_infiniband_test.cpp.
class Infiniband final : public Transport {
  public:
    enum class Table { linear, quadratic };
    struct Parameters {
        bool on = true;
        std::int64_t increase = 1;
        std::int64_t limit = 127;
        std::int64_t least = 0;
        double timer = 0;  ///< s
        Table table = Table::linear;
        void describe(Fields& fields) {
            fields.boolean({"infiniband_control", "rates follow the table; else line rate"}, on);
            fields.integer(
                {"ccti_increase", "increase of the index into the table by each marked acknowledgement", false, 1, 255},
                increase);
            fields.integer({"ccti_limit", "largest index into the table", false, 1, 16383}, limit);
            fields.integer({"ccti_min", "least index into the table", false, 0, 255}, least);
            fields.quantity(
                {"ccti_timer", "time after which the index falls by one; 0 s: 150 times the time to send a packet",
                 false, 0, 0.0672},
                Dimension::time, timer);
            fields.enumeration(
                {"cct", "delay between packets, in times of sending one: the index, or 0.0036 times its square"},
                {"linear", "quadratic"}, table);
        }
    };
    explicit Infiniband(const Parameters& own) : own_(own) {}

    [[nodiscard]] TransportNeeds needs() const override {
        return {.window = false, .go_back_n = true, .rare_news = true, .timed = own_.on, .credit_links = true};
    }
    [[nodiscard]] std::string problem() const override {
        return own_.least > own_.limit ? fmt::format("ccti_min {} is above ccti_limit {}, the last index of the table",
                                                     own_.least, own_.limit)
                                       : "";
    }
    void start(CongestionState& flow) const override {
        flow.begin<State>().ccti = least();
        set(flow);
    }
    void on_ack(CongestionState& flow, const Acknowledged& ack) const override {
        if (!own_.on || !ack.marked) {
            return;
        }
        auto& state = flow.as<State>();
        state.ccti = std::min(state.ccti + own_.increase, own_.limit);
        if (flow.timer == kNoTimer && state.ccti > least()) {
            flow.timer = ack.now + timer();
        }
        set(flow);
    }
    void on_timer(CongestionState& flow, std::int64_t now) const override {
        auto& state = flow.as<State>();
        ORRERY_ASSERT(state.ccti >= least() && state.ccti <= std::max(own_.limit, least()));
        for (; flow.timer <= now && state.ccti > least(); flow.timer += timer()) {
            --state.ccti;
        }
        if (state.ccti == least()) {
            flow.timer = kNoTimer;
        }
        set(flow);
    }
    void shift(CongestionState&, const Shift&) const override {}
    [[nodiscard]] std::int64_t period() const override { return own_.on ? timer() : 0; }

  private:
    struct State {
        std::int64_t ccti = 0;
    };
    static constexpr double kTimer = 150;  // times of sending a packet
    [[nodiscard]] std::int64_t timer() const {
        return to_ps(own_.timer > 0 ? own_.timer : kTimer * run_.packet / run_.line_rate);
    }
    [[nodiscard]] std::int64_t least() const { return own_.on ? own_.least : 0; }
    void set(CongestionState& flow) const {
        const auto index = static_cast<double>(flow.as<State>().ccti);
        const double delay = own_.table == Table::linear ? index : std::floor(7 * (index / 95) * (index / 95) / 0.218);
        flow.rate = delay > 0 ? run_.line_rate / (1 + delay) : 0;
    }

    Parameters own_;
};

}  // namespace

extern const PolicyRow<Transport> kInfiniband = policy_row<Transport, Infiniband>(
    "infiniband", "InfiniBand: go-back-N, delays between packets by its congestion control table");

}  // namespace orrery::network::packet
