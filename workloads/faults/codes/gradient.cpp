#include "workloads/faults/codes/code.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::faults {

namespace {

// Each part of the batch is on one worker more than may be late; a worker sends one combination of its parts' gradients.
// Source: Tandon et al., ICML 2017, theorem 1 (the load cannot be less).
class PerRound final : public GradientCode {
  public:
    struct Parameters {
        std::int64_t late = 1;
        void describe(Fields& fields) {
            fields.integer({"late", "workers that may be late in a round (s)", false, 0, 1 << 22}, late);
        }
    };
    explicit PerRound(const Parameters& parameters) : late_(parameters.late) {}
    double load(std::int64_t workers) const override {
        return static_cast<double>(late_ + 1) / static_cast<double>(workers);
    }
    bool bears(const LateWorkers& late, const std::deque<LateWorkers>&) const override {
        return std::count(late.begin(), late.end(), true) <= late_;
    }
    std::string problem(std::int64_t workers) const override {
        return late_ < workers ? ""
                               : fmt::format("'late' must be less than the {} workers: one has to answer", workers);
    }

  private:
    std::int64_t late_;
};

}  // namespace

extern const PolicyRow<GradientCode> kGradientCode =
    policy_row<GradientCode, PerRound>("gradient", "some workers may be late in each round");

}  // namespace orrery::faults
