#include "sim/network/path/path.hpp"

#include <limits>

namespace orrery::network::packet {

namespace {

/// Leaves send a packet to the spine whose port is free first; among equals the next in turn, so that idle ports share.
class Adaptive final : public PathChooser {
  public:
    using Parameters = NoParameters;
    explicit Adaptive(const Parameters&) {}

    [[nodiscard]] PathNeeds needs() const override { return {.leaves_choose = true}; }
    void begin(const PathSet& paths) override {
        PathChooser::begin(paths);
        turn_.assign(paths.leaves, 0);
    }
    [[nodiscard]] std::uint32_t choose_lane(std::uint32_t leaf, const LeafPorts& ports) override {
        const std::uint32_t first = turn_[leaf]++ % paths_.spines;
        std::uint32_t lane = first;
        std::int64_t best = std::numeric_limits<std::int64_t>::max();
        for (std::uint32_t i = 0; i < paths_.spines; ++i) {
            const std::uint32_t candidate = first + i < paths_.spines ? first + i : first + i - paths_.spines;
            if (const std::int64_t free_at = ports.free_at(candidate); free_at < best) {
                best = free_at;
                lane = candidate;
            }
        }
        return lane;
    }

  private:
    std::vector<std::uint32_t> turn_;  ///< by leaf
};

}  // namespace

extern const PolicyRow<PathChooser> kAdaptive =
    policy_row<PathChooser, Adaptive>("adaptive", "leaves send to the spine whose port is free first");

}  // namespace orrery::network::packet
