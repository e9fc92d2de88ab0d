#include "workloads/faults/methods/method.hpp"

namespace orrery::faults {

namespace {

// Training stands still until everything is in the store.
class Blocking final : public CheckpointMethod {
  public:
    using Parameters = NoParameters;
    explicit Blocking(const Parameters&) {}
    CheckpointCost cost(const CheckpointSetting& setting) const override {
        CheckpointCost out;
        // Copies to the host and writes overlap: the slower binds.
        out.stall_s = std::max(setting.to_host_s(), setting.save_s());
        out.load_s = setting.load_s();
        return out;
    }
};

}  // namespace

extern const PolicyRow<CheckpointMethod> kBlockingCheckpoint =
    policy_row<CheckpointMethod, Blocking>("blocking", "training stands still until all is in the store");

}  // namespace orrery::faults
