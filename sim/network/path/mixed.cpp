#include "sim/network/path/bitmap.hpp"

#include <deque>

namespace orrery::network::packet {

namespace {

/// Entropies that came back unmarked once more, oldest first and without limit; with none at hand as Bitmap. The default of
/// the Ultra Ethernet Consortium's public simulator.
class Mixed final : public Bitmap {
  public:
    using Bitmap::Bitmap;

    void start(std::uint32_t flow) override {
        Bitmap::start(flow);
        if (flow >= unmarked_.size()) {
            unmarked_.resize(std::size_t{flow} + 1);
        }
        unmarked_[flow].clear();
    }
    [[nodiscard]] std::uint32_t pick(std::uint32_t flow, FlowPath& path, std::int64_t now) override {
        std::deque<std::uint32_t>& unmarked = unmarked_[flow];
        if (unmarked.empty()) {
            return Bitmap::pick(flow, path, now);
        }
        const std::uint32_t entropy = unmarked.front();
        unmarked.pop_front();
        return entropy;
    }
    void heard(std::uint32_t flow, std::uint32_t entropy, PathNews news, std::int64_t now) override {
        Bitmap::heard(flow, entropy, news, now);
        if (news == PathNews::good || news == PathNews::trimmed_last) {
            unmarked_[flow].push_back(entropy);
        }
    }

  private:
    std::vector<std::deque<std::uint32_t>> unmarked_;  ///< by flow
};

}  // namespace

extern const PolicyRow<PathChooser> kMixed =
    policy_row<PathChooser, Mixed>("mixed", "reused paths that came back unmarked; bitmap otherwise");

}  // namespace orrery::network::packet
