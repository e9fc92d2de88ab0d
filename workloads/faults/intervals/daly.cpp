#include "workloads/faults/intervals/interval.hpp"

#include <cmath>

namespace orrery::faults {

namespace {

// J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3), 2006, equation 37.
class Daly final : public CheckpointInterval {
  public:
    using Parameters = NoParameters;
    explicit Daly(const Parameters&) {}
    double seconds(double cost_s, double mtbf_s) const override {
        if (cost_s >= 2 * mtbf_s) {
            return mtbf_s;
        }
        const double ratio = cost_s / (2 * mtbf_s);
        return std::sqrt(2 * cost_s * mtbf_s) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - cost_s;
    }
};

}  // namespace

extern const PolicyRow<CheckpointInterval> kDalyInterval =
    policy_row<CheckpointInterval, Daly>("daly", "the higher-order optimum for the job's MTBF and the stall");

}  // namespace orrery::faults
