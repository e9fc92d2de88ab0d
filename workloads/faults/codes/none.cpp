#include "workloads/faults/codes/code.hpp"

namespace orrery::faults {

namespace {

// Every worker has its own share of the batch, and all are waited for.
class NoCode final : public GradientCode {
  public:
    using Parameters = NoParameters;
    explicit NoCode(const Parameters&) {}
    double load(std::int64_t workers) const override { return 1.0 / static_cast<double>(workers); }
    bool bears(const LateWorkers&, const std::deque<LateWorkers>&) const override { return false; }
};

}  // namespace

extern const PolicyRow<GradientCode> kNoCode =
    policy_row<GradientCode, NoCode>("none", "every part of a batch is on one worker, and all are waited for");

}  // namespace orrery::faults
