#include "workloads/faults/intervals/interval.hpp"

#include <cmath>

namespace orrery::faults {

namespace {

// J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974.
class Young final : public CheckpointInterval {
  public:
    using Parameters = NoParameters;
    explicit Young(const Parameters&) {}
    double seconds(double cost_s, double mtbf_s) const override { return std::sqrt(2 * cost_s * mtbf_s); }
};

}  // namespace

extern const PolicyRow<CheckpointInterval> kYoungInterval =
    policy_row<CheckpointInterval, Young>("young", "the first-order optimum for the job's MTBF and the stall");

}  // namespace orrery::faults
