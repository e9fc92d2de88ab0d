#include "sim/base/error.hpp"
#include "sim/network/path/path.hpp"

namespace orrery::network::packet {

namespace {

/// All paths in turn, so that each carries the same whatever the flow's length.
class Spray final : public PathChooser {
  public:
    using Parameters = NoParameters;
    explicit Spray(const Parameters&) {}

    [[nodiscard]] PathNeeds needs() const override { return {.even = true}; }
    void begin(const PathSet& paths) override {
        for (std::uint32_t i = 0; i < paths.spines * paths.cores; ++i) {
            entropies_.push_back(paths.entropy(i % paths.spines, i / paths.spines));
            ORRERY_ASSERT(paths.lane(entropies_.back()) == i % paths.spines);
        }
    }
    [[nodiscard]] std::uint32_t pick(std::uint32_t, FlowPath& path, std::int64_t) override {
        return entropies_[path.sprayed++ % entropies_.size()];
    }

  private:
    std::vector<std::uint32_t> entropies_;  ///< one per path between leaves
};

}  // namespace

extern const PolicyRow<PathChooser> kSpray =
    policy_row<PathChooser, Spray>("spray", "packet spraying: packets spread evenly over all parallel paths");

}  // namespace orrery::network::packet
