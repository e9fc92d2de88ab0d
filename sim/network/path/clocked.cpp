#include "sim/network/path/path.hpp"

#include <algorithm>
#include <deque>

namespace orrery::network::packet {

namespace {

/// Each acknowledgement lets the next packets go on its own path: Lu et al., "Multi-path transport for RDMA in datacenters", NSDI
/// 2018, sections 4.1 and 4.3. As many go as the window has room for after it, two at most, and none where its packet
/// was late. Each of them takes a fresh path instead with a small probability; packets that no acknowledgement let go, those of the
/// first window among them, take paths at random.
class Clocked final : public PathChooser {
  public:
    struct Parameters {
        double probe = 0.01;
        void describe(Fields& fields) {
            fields.number({"clocked_probe", "share of packets that take a fresh path", false, 0, 1}, probe);
        }
    };
    explicit Clocked(const Parameters& own) : probe_(own.probe) {}

    [[nodiscard]] PathNeeds needs() const override { return {.learns = true, .each = true, .clocked = true}; }
    void start(std::uint32_t flow) override {
        if (flow >= flows_.size()) {
            flows_.resize(std::size_t{flow} + 1);
        }
        flows_[flow] = {};
    }
    [[nodiscard]] std::uint32_t pick(std::uint32_t flow, FlowPath& path, std::int64_t) override {
        std::deque<std::uint32_t>& waiting = flows_[flow].waiting;
        const std::uint64_t drawn = mix64(path.hash + path.sprayed++);
        const auto fresh = static_cast<std::uint32_t>(drawn >> 32);
        if (waiting.empty()) {
            return fresh;
        }
        const std::uint32_t entropy = waiting.front();
        waiting.pop_front();
        return static_cast<double>(drawn & 0xFFFFFFFFU) < probe_ * 4294967296.0 ? fresh : entropy;
    }
    void clock(std::uint32_t flow, std::uint32_t entropy, std::int64_t packets, std::int64_t room) override {
        State& state = flows_[flow];
        state.owed = std::max<std::int64_t>(0, state.owed + packets - 1);
        const std::int64_t more = room - state.owed - static_cast<std::int64_t>(state.waiting.size());
        state.waiting.insert(state.waiting.end(), static_cast<std::size_t>(std::clamp<std::int64_t>(more, 0, kBurst)),
                             entropy);
    }

  private:
    static constexpr std::int64_t kBurst = 2;
    struct State {
        std::deque<std::uint32_t> waiting;  ///< paths of packets that may be sent
        std::int64_t owed =
            0;  ///< packets told of by others than the acknowledgements that are to let some go for them
    };
    double probe_;
    std::vector<State> flows_;
};

}  // namespace

extern const PolicyRow<PathChooser> kClocked =
    policy_row<PathChooser, Clocked>("clocked", "ack-clocked: each acknowledgement sends the next packets on its path");

}  // namespace orrery::network::packet
