#include "sim/network/path/path.hpp"

namespace orrery::network::packet {

namespace {

/// Leaves send packets to their spines in turn.
class RoundRobin final : public PathChooser {
  public:
    using Parameters = NoParameters;
    explicit RoundRobin(const Parameters&) {}

    [[nodiscard]] PathNeeds needs() const override { return {.leaves_choose = true}; }
    void begin(const PathSet& paths) override {
        PathChooser::begin(paths);
        turn_.assign(paths.leaves, 0);
    }
    [[nodiscard]] std::uint32_t choose_lane(std::uint32_t leaf, const LeafPorts&) override {
        return turn_[leaf]++ % paths_.spines;
    }

  private:
    std::vector<std::uint32_t> turn_;  ///< by leaf
};

}  // namespace

extern const PolicyRow<PathChooser> kRoundRobin =
    policy_row<PathChooser, RoundRobin>("round-robin", "leaf switches rotate over their spines");

}  // namespace orrery::network::packet
