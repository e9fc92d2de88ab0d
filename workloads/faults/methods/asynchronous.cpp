#include "workloads/faults/methods/method.hpp"

#include <algorithm>

namespace orrery::faults {

namespace {

// Stages: device to host, which stalls training but for what hides behind the passes, as the state is constant until the optimizer;
// then host to store in the background.
// Sources: Maurya et al., DataStates-LLM, HPDC 2024 (arXiv:2406.10707): copies behind forward and backward passes; Wan et al.,
// ByteCheckpoint, NSDI 2025: staged asynchronous saves.
class Asynchronous final : public CheckpointMethod {
  public:
    struct Parameters {
        double hidden = 0;
        bool fabric = false;
        void describe(Fields& fields) {
            fields.quantity({"hidden", "share of the copy to the host that hides behind passes", false, 0, 1},
                            Dimension::fraction, hidden);
            fields.boolean({"over_fabric", "checkpoints cross the NICs that training uses, and slow it"}, fabric);
        }
    };
    explicit Asynchronous(const Parameters& parameters) : own_(parameters) {}
    CheckpointCost cost(const CheckpointSetting& setting) const override {
        CheckpointCost out;
        out.stall_s = (1 - own_.hidden) * setting.to_host_s();
        out.background_s = setting.save_s();
        if (own_.fabric && setting.nic > 0 && out.background_s > 0) {
            constexpr double kMost = 0.95;  // training keeps a little
            out.nic_share = std::min(kMost, setting.bytes_per_node() / out.background_s / setting.nic);
        }
        out.load_s = setting.load_s();
        return out;
    }

  private:
    Parameters own_;
};

}  // namespace

extern const PolicyRow<CheckpointMethod> kAsynchronousCheckpoint =
    policy_row<CheckpointMethod, Asynchronous>("asynchronous", "to the host at once, to the store in the background");

}  // namespace orrery::faults
