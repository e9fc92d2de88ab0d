#include "workloads/faults/codes/code.hpp"

namespace orrery::faults {

namespace {

// Most of a worker's parts are its own, in `window` - 1 tasks of rounds that follow each other, which it repeats in the next `burst`
// rounds where it was late; who was not computes in those rounds parts that gradient coding shares among all.
// Source: Krishnan et al., ICLR 2023, section 3.3: load (lambda + 1)(W - 1 + B) / (n (B + (W - 1)(lambda + 1))), and
// (W - 1 + B) / (n (W - 1)) where all may be late; delay W - 2 + B.
class Multiplexed final : public GradientCode {
  public:
    using Parameters = BurstPattern;
    explicit Multiplexed(const Parameters& parameters) : pattern_(parameters) {}
    double load(std::int64_t workers) const override {
        const auto own = static_cast<double>(pattern_.window - 1);
        const auto shared = static_cast<double>(pattern_.burst);
        const auto copies = static_cast<double>(pattern_.workers + 1);
        const double of_one =
            pattern_.workers == workers ? (own + shared) / own : copies * (own + shared) / (shared + own * copies);
        return of_one / static_cast<double>(workers);
    }
    std::int64_t delay() const override { return pattern_.window - 2 + pattern_.burst; }
    std::int64_t results() const override { return pattern_.window - 1 + pattern_.burst; }
    std::int64_t memory() const override { return pattern_.window - 1; }
    bool bears(const LateWorkers& late, const std::deque<LateWorkers>& past) const override {
        return pattern_.bears(late, past);
    }
    std::string problem(std::int64_t workers) const override { return pattern_.problem(workers); }

  private:
    BurstPattern pattern_;
};

}  // namespace

extern const PolicyRow<GradientCode> kMultiplexedCode =
    policy_row<GradientCode, Multiplexed>("multiplexed", "own parts repeated over rounds, shared parts coded (M-SGC)");

}  // namespace orrery::faults
