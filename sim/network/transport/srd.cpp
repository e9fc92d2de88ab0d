#include "sim/base/error.hpp"
#include "sim/network/transport/transport.hpp"

namespace orrery::network::packet {

namespace {

/// SRD, the transport of AWS's Elastic Fabric Adapter: Shalev et al., "A cloud-optimized transport protocol for elastic and scalable
/// HPC", IEEE Micro 40(6), 2020. Published: packets over many paths without order; a rate limit of each connection from an
/// estimate of what arrives, by the times of acknowledgements, beside a limit of what is in flight; congestion shows in longer round
/// trips or an estimate below the rate sent at. The rules and their settings are not published, and are assumed here:
/// once a round trip the estimate is what arrived in it; with round trips of more than a quarter above the least one seen (and a
/// packet, for a flow that sends less than half of one in that time), or less arriving than nine tenths of the rate, the rate becomes nine
/// tenths of the estimate, else it rises by a quarter (gains of 0.9 and 1.25 in the manner of BBR, which the paper names as kin); in
/// flight are two least round trips of the rate at most.
/// A loss counts as congestion. Paths are `oblivious` or `bitmap`: that SRD avoids loaded ones is published, how is not.
class Srd final : public Transport {
  public:
    struct Parameters {
        double delay = 0.25;
        void describe(Fields& fields) {
            fields.number(
                {"srd_delay", "multiple of the least round trip beyond which a round trip counts as congested", false,
                 0, 100},
                delay);
        }
    };
    explicit Srd(const Parameters& own) : own_(own) {}

    [[nodiscard]] TransportNeeds needs() const override { return {.eager = true}; }
    void start(CongestionState& flow) const override {
        auto& state = flow.begin<State>();
        state.least = run_.base_rtt;
        set(flow, run_.line_rate);
    }
    void on_ack(CongestionState& flow, const Acknowledged& ack) const override {
        auto& state = flow.as<State>();
        const auto delay = static_cast<double>(ack.delay);
        state.least = std::min(state.least, delay);
        state.delays += delay * ack.bytes;
        state.arrived += ack.bytes;
        ORRERY_ASSERT(ack.now >= state.since);
        const auto elapsed = static_cast<double>(ack.now - state.since);
        if (state.since == 0) {  // the first one of a period counts from here
            state.since = ack.now;
            state.arrived = state.delays = 0;
            return;
        }
        if (elapsed < std::max(state.least, delay)) {
            return;
        }
        const double estimate = state.arrived / elapsed * 1e12;
        // Far below a packet a round trip, single packets of others make it longer, whatever the rate.
        const bool sparse = flow.rate * state.least * 1e-12 < run_.packet / 2;
        const double others = sparse ? run_.packet / run_.line_rate * 1e12 : 0;
        const bool late = state.delays / state.arrived > (1 + own_.delay) * state.least + others;
        // What arrives now was sent a round trip ago; only a flow that its limits hold back shows what the network carries.
        const bool held = ack.in_flight + run_.packet > kInFlight * state.least * flow.rate * 1e-12;
        const bool slow = held && estimate < kDown * std::min(state.before, flow.rate);
        state.before = flow.rate;
        set(flow, late || slow || state.lost ? std::min(flow.rate, kDown * estimate) : kUp * flow.rate);
        state.since = ack.now;
        state.arrived = state.delays = 0;
        state.lost = false;
    }
    void on_loss(CongestionState& flow, const Lost&) const override { flow.as<State>().lost = true; }
    void on_timeout(CongestionState& flow, const Lost& lost) const override {
        auto& state = flow.as<State>();
        // Not below a packet a round trip, which waiting for timeouts is slow enough beside.
        set(flow, std::max(flow.rate / 2, std::min(flow.rate, run_.packet / state.least * 1e12)));
        state.since = lost.now;
        state.arrived = state.delays = 0;
    }
    void shift(CongestionState& flow, const Shift& by) const override {
        auto& state = flow.as<State>();
        state.since += state.since == 0 ? 0 : by.time;
    }

  private:
    static constexpr double kUp = 1.25;
    static constexpr double kDown = 0.9;
    static constexpr double kInFlight = 2;  // least round trips of the rate
    struct State {
        double least = 0;        ///< ps, round trip
        double delays = 0;       ///< ps * bytes, of the present period
        double arrived = 0;      ///< bytes in it
        double before = 0;       ///< B/s, the rate of the period before
        std::int64_t since = 0;  ///< ps, when it began; 0: none yet
        bool lost = false;       ///< something was, in it
    };
    // Never less than a packet in so many round trips and never more than the NIC sends.
    void set(CongestionState& flow, double rate) const {
        const auto& state = flow.as<State>();
        ORRERY_ASSERT(state.least > 0);
        flow.rate = std::clamp(rate, run_.packet / state.least * 1e12 / kSlowest, run_.line_rate);
        flow.window = clamp_window(kInFlight * flow.rate * state.least * 1e-12 + run_.packet);
    }
    static constexpr double kSlowest = 1000;  // round trips a packet, assumed

    Parameters own_;
};

}  // namespace

extern const PolicyRow<Transport> kSrd = policy_row<Transport, Srd>(
    "srd", "SRD: rates over many paths by achieved rate and round-trip times; its rules are assumed");

}  // namespace orrery::network::packet
