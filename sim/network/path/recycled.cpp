#include "sim/network/path/oblivious.hpp"

namespace orrery::network::packet {

namespace {

/// Entropies that came back unmarked are used again, oldest first; without any, as Oblivious. In the manner of Bonato et al.,
/// "REPS: recycled entropy packet spraying for adaptive load balancing and failure mitigation", arXiv:2407.21625.
class RecycledEntropies final : public Oblivious {
  public:
    using Oblivious::Oblivious;

    [[nodiscard]] PathNeeds needs() const override { return {.learns = true, .each = true}; }
    void start(std::uint32_t flow) override {
        if (flow >= rings_.size()) {
            rings_.resize(std::size_t{flow} + 1);
        }
        rings_[flow] = {};
    }
    [[nodiscard]] std::uint32_t pick(std::uint32_t flow, FlowPath& path, std::int64_t now) override {
        Ring& ring = rings_[flow];
        if (ring.count == 0) {
            return Oblivious::pick(flow, path, now);
        }
        const std::uint32_t entropy = ring.values[ring.first];
        ring.first = (ring.first + 1) % 8;
        --ring.count;
        return entropy;
    }
    void heard(std::uint32_t flow, std::uint32_t entropy, PathNews news, std::int64_t) override {
        if (news != PathNews::good) {
            return;
        }
        Ring& ring = rings_[flow];
        ring.values[(ring.first + ring.count) % 8] = entropy;
        if (ring.count < 8) {
            ++ring.count;
        } else {
            ring.first = (ring.first + 1) % 8;
        }
    }

  private:
    struct Ring {
        std::uint32_t values[8] = {};
        std::uint8_t first = 0;
        std::uint8_t count = 0;
    };
    std::vector<Ring> rings_;  ///< by flow
};

}  // namespace

extern const PolicyRow<PathChooser> kRecycled = policy_row<PathChooser, RecycledEntropies>(
    "recycled", "reused paths whose packets came back unmarked; oblivious otherwise");

}  // namespace orrery::network::packet
