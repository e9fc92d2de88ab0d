// The `host_checkpoints` section of a plan: layers that are computed again keep their inputs in the memory of the host.
//
// Claims: under full recomputation a layer keeps its input alone for its backward pass. The inputs of `layers` layers of each part of the
// model leave the device behind the layers' forward passes, and each comes back behind the backward pass of the layer above it,
// over the device's link to its host. A pass ends when the copy beside it has ended, too. The device has room for one input on its way
// out and one on its way in.
// Limits: the devices of a node do not slow each other's copies; the host's memory is large enough and as fast as the links.
// Sources: DeepSpeed's `cpu_checkpointing` (deepspeed/runtime/activation_checkpointing/config.py); Rajbhandari et al.,
// "ZeRO-Infinity", SC21, section 5.1.2.
// Validated by tests/workloads/host_checkpoints_test.cpp (closed forms).

#include "sim/base/error.hpp"
#include "workloads/training/plan/feature.hpp"
#include "workloads/training/plan/spec.hpp"
#include "workloads/training/programs/pass_program.hpp"

#include <algorithm>

namespace orrery::training {

namespace {

class HostCheckpoints final : public FeatureOf<HostCheckpoints> {
  public:
    void describe(Fields& fields) override {
        fields.integer(
            {"layers", "layers of each part of the model whose inputs go to the host; 0: all", false, 0, 100'000},
            layers_);
    }

    void check(const ModelSpec&, const PlanSpec& plan, PlanProblems& out) const override {
        out.refuse(plan.recompute != Recompute::full,
                   "host_checkpoints needs recompute: full, under which layers keep their inputs alone");
    }

    void keep(const PlanSpec& plan, KeptActivations& use) const override {
        const double part = use.layers / static_cast<double>(plan.chunks);
        const double away = share(plan, part) * use.inputs * use.input;
        use.kept -= std::max(0.0, away - 2 * use.input);
    }

    void pass(const LayerPass& at, PassProgram& program) const override {
        if (at.work == PassWork::weight_gradient || at.plan.recompute != Recompute::full) {
            return;
        }
        if (at.host_link <= 0) {
            throw InfeasibleError(
                "plan.host_checkpoints needs a node whose devices have a link to the host: "
                "node.pcie_bandwidth, or node.host with pcie");
        }
        const double moved = share(at.plan, at.layers);
        const bool out = at.work == PassWork::forward;
        program.add({out ? "copy checkpoint to host" : "copy checkpoint from host",
                     Category::other,
                     PassStream::copy,
                     moved * at.input / at.host_link,
                     moved,
                     {PassProgram::kNone, PassProgram::kNone},
                     0,
                     std::min(1.0, at.host_link / at.memory_rate)});
    }

  private:
    // Of the layers of a part; those that are not computed again keep more than their inputs, and on the device.
    [[nodiscard]] double share(const PlanSpec& plan, double part) const {
        const double asked = layers_ > 0 && part > 0 ? std::min(1.0, static_cast<double>(layers_) / part) : 1;
        return std::min(asked, plan.recomputed(part));
    }

    std::int64_t layers_ = 0;
};

}  // namespace

extern const FeatureRow kHostCheckpoints;
const FeatureRow kHostCheckpoints = {"host_checkpoints",
                                     "inputs of layers that are computed again, kept in the memory of the host",
                                     make_feature<HostCheckpoints>};

}  // namespace orrery::training
