#pragma once
// Links that fail or slow down at given instants of a run.
//
// Claims: from its instant on, and until it ends, a fault leaves a share of the capacity of the links it is on, both directions; of
// several on a link the worst holds. A NIC's fault is on its link to the leaf, a leaf's on all its NICs', a spine's on all of its own
// links. Flows under way go on with what is left (fluid, analytic), packets are lost and sent again or take another way (packet).
// Limits: links between switches are bundles below packet fidelity, which have no single link to fail.
// Validated by tests/tools/given_faults_test.cpp.

#include "sim/engine/task_source.hpp"
#include "sim/network/fabric.hpp"
#include "workloads/faults/spec.hpp"

namespace orrery::faults {

/// Links that a fault takes a share of; none: it is on no link.
[[nodiscard]] std::vector<ResourceId> links_of(const Fault& fault, const Fabric& fabric);
/// The share that it leaves.
[[nodiscard]] double left_of(const Fault& fault);

class LinkFaults final : public TaskSource {
  public:
    /// `fabric` outlives this.
    LinkFaults(const Fabric& fabric, std::vector<TimedFault> faults);
    [[nodiscard]] bool any() const { return !faults_.empty(); }
    void begin(Dispatcher& dispatcher) override;
    void on_done(std::uint64_t token, Dispatcher& dispatcher) override;

  private:
    void apply(std::size_t index, Dispatcher& dispatcher) const;

    const Fabric& fabric_;
    std::vector<TimedFault> faults_;
    std::vector<bool> active_;
};

}  // namespace orrery::faults
