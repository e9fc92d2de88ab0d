#include "sim/base/error.hpp"
#include "sim/network/transport/transport.hpp"

namespace orrery::network::packet {

namespace {

/// HPCC: windows from what the links of the path say of themselves. Li et al., "HPCC: high precision congestion control",
/// SIGCOMM 2019, algorithm 1 with its settings of section 5.1: eta 95 %, maxStage 5, and W_AI = W_init (1 - eta) / N for as many
/// flows N on a link as keep its queue empty. T is the network's longest round trip without load. As a NIC's, it goes back N
/// unless the scenario says otherwise.
/// Closed forms: a flow alone holds W = eta B T + W_AI; N flows on a link hold W_AI N + eta B T together and no queue as long as
/// that is below B T.
class Hpcc final : public Transport {
  public:
    struct Parameters {
        double eta = 0.95;
        std::int64_t stages = 5;
        double increase = 0;  ///< bytes; 0: from `flows`
        std::int64_t flows = 100;
        void describe(Fields& fields) {
            fields.number({"hpcc_eta", "utilisation aimed at", false, 0.1, 1}, eta);
            fields.integer({"hpcc_stages", "additive increases in a row before one by ratio", false, 0, 1000}, stages);
            fields.quantity(
                {"hpcc_increase", "increase of the window each round trip; 0 B: W_init (1 - eta) / hpcc_flows", false,
                 0, 1e9},
                Dimension::bytes, increase);
            fields.integer({"hpcc_flows", "number of flows per link that additive increases allow for", false, 1, 1e6},
                           flows);
        }
    };
    explicit Hpcc(const Parameters& own) : own_(own) {}

    [[nodiscard]] TransportNeeds needs() const override {
        return {.window = false, .go_back_n = true, .telemetry = true};
    }
    void start(CongestionState& flow) const override {
        auto& state = flow.begin<State>();
        state.reference = initial();
        set(flow, initial());
    }
    void on_ack(CongestionState& flow, const Acknowledged& ack) const override {
        auto& state = flow.as<State>();
        if (ack.links.empty()) {
            return;
        }
        measure(state, ack.links);
        const bool once = ack.cumulative > state.update_after;  // a round trip since the reference was set
        const bool by_ratio = state.utilisation >= own_.eta || state.stage >= own_.stages;
        const double window = (by_ratio ? state.reference * own_.eta / state.utilisation : state.reference) + added();
        if (once) {
            state.stage = by_ratio ? 0 : state.stage + 1;
            state.reference = bounded(window);
            state.update_after = ack.next;
        }
        set(flow, window);
    }
    void renumber(CongestionState& flow) const override { flow.as<State>().update_after = 0; }
    void shift(CongestionState& flow, const Shift& by) const override {
        auto& state = flow.as<State>();
        by.move(state.update_after);
    }

  private:
    struct State {
        double reference = 0;    ///< bytes, W^c
        double utilisation = 1;  ///< U, smoothed over a round trip; at first as in the authors' simulator
        std::int64_t stage = 0;
        std::uint32_t update_after = 0;
    };
    [[nodiscard]] double initial() const { return run_.line_rate * run_.base_rtt * 1e-12; }
    [[nodiscard]] double added() const {
        return own_.increase > 0 ? own_.increase : initial() * (1 - own_.eta) / static_cast<double>(own_.flows);
    }
    [[nodiscard]] double bounded(double window) const { return std::clamp(window, added(), initial()); }
    // Function MeasureInflight: the busiest link, in bandwidth-delay products.
    void measure(State& state, std::span<const LinkLoad> links) const {
        double most = 0;
        double over = 0;
        for (const LinkLoad& link : links) {
            ORRERY_ASSERT(link.elapsed > 0 && link.capacity > 0);
            const double sending = link.sent / (link.elapsed * 1e-12) / link.capacity;
            const double load = link.waiting / (link.capacity * run_.base_rtt * 1e-12) + sending;
            if (load > most) {
                most = load;
                over = link.elapsed;
            }
        }
        const double weight = std::min(over, run_.base_rtt) / run_.base_rtt;
        state.utilisation = std::max((1 - weight) * state.utilisation + weight * most, 1e-9);
    }
    // The pace is W / T. In whole packets a window may be one short of W: another packet keeps it from holding the pace back.
    void set(CongestionState& flow, double window) const {
        const double held = bounded(window);
        flow.rate = held / (run_.base_rtt * 1e-12);
        flow.window = held + run_.packet;
    }

    Parameters own_;
};

}  // namespace

extern const PolicyRow<Transport> kHpcc =
    policy_row<Transport, Hpcc>("hpcc", "RDMA over Ethernet whose windows follow the load that links report");

}  // namespace orrery::network::packet
