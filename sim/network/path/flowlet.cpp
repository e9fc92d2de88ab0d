#include "sim/network/path/path.hpp"

namespace orrery::network::packet {

namespace {

/// One path per burst: after a pause that is longer than the paths differ, packets stay in order on another. Sinha et al.,
/// "Harnessing TCP's burstiness with flowlet switching", HotNets 2004.
class Flowlet final : public PathChooser {
  public:
    struct Parameters {
        double gap = 10e-6;  ///< s
        void describe(Fields& fields) {
            fields.quantity({"flowlet_gap", "silence after which a flow may move", false, 0, 1}, Dimension::time, gap);
        }
    };
    explicit Flowlet(const Parameters& own) : gap_(SimTime::from_seconds(own.gap).ps()) {}

    [[nodiscard]] PathNeeds needs() const override { return {.hashed = true}; }
    [[nodiscard]] std::uint32_t pick(std::uint32_t, FlowPath& path, std::int64_t now) override {
        if (now - path.last_sent > gap_) {
            path.entropy = static_cast<std::uint32_t>(mix64(path.hash + ++path.sprayed) >> 32);
        }
        path.last_sent = now;
        return path.entropy;
    }

  private:
    std::int64_t gap_;  ///< ps
};

}  // namespace

extern const PolicyRow<PathChooser> kFlowlet =
    policy_row<PathChooser, Flowlet>("flowlet", "a hash picks one path per burst of a flow");

}  // namespace orrery::network::packet
