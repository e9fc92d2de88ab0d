#include "workloads/faults/intervals/interval.hpp"

namespace orrery::faults {

namespace {

class Fixed final : public CheckpointInterval {
  public:
    struct Parameters {
        double every = 1800;
        void describe(Fields& fields) {
            fields.quantity({"every", "training time between checkpoints without faults, rounded to whole iterations",
                             false, 1e-3, 1e9},
                            Dimension::time, every);
        }
    };
    explicit Fixed(const Parameters& parameters) : every_(parameters.every) {}
    double seconds(double, double) const override { return every_; }
    bool needs_mtbf() const override { return false; }

  private:
    double every_;
};

}  // namespace

extern const PolicyRow<CheckpointInterval> kFixedInterval = policy_row<CheckpointInterval, Fixed>("fixed", "as given");

}  // namespace orrery::faults
