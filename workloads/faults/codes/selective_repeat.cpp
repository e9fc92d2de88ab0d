#include "workloads/faults/codes/code.hpp"

#include <fmt/format.h>

namespace orrery::faults {

namespace {

// Gradient coding of fewer late workers; where more of them were late than it bears, those do that round's task again `burst` rounds
// later in place of that round's own, of which they then are the late ones.
// Source: Krishnan et al., ICLR 2023, section 3.2: s = ceil(B lambda / (W - 1 + B)), delay B, where B divides W - 1.
class SelectiveRepeat final : public GradientCode {
  public:
    using Parameters = BurstPattern;
    explicit SelectiveRepeat(const Parameters& parameters) : pattern_(parameters) {}
    double load(std::int64_t workers) const override {
        const std::int64_t rounds = pattern_.window - 1 + pattern_.burst;
        const std::int64_t late = (pattern_.burst * pattern_.workers + rounds - 1) / rounds;
        return static_cast<double>(late + 1) / static_cast<double>(workers);
    }
    std::int64_t delay() const override { return pattern_.burst; }
    std::int64_t memory() const override { return pattern_.window - 1; }
    bool bears(const LateWorkers& late, const std::deque<LateWorkers>& past) const override {
        return pattern_.bears(late, past);
    }
    std::string problem(std::int64_t workers) const override {
        if ((pattern_.window - 1) % pattern_.burst != 0) {
            return fmt::format("'burst' has to divide 'window' - 1: {} does not divide {}", pattern_.burst,
                               pattern_.window - 1);
        }
        return pattern_.problem(workers);
    }

  private:
    BurstPattern pattern_;
};

}  // namespace

extern const PolicyRow<GradientCode> kSelectiveRepeatCode = policy_row<GradientCode, SelectiveRepeat>(
    "selective-repeat", "gradient coding, and unfinished tasks again in a later round (SR-SGC)");

}  // namespace orrery::faults
