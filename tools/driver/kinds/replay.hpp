#pragma once
// kind: replay. A recorded program, as it was or changed.

#include "tools/driver/kind.hpp"
#include "workloads/replay/replay.hpp"

namespace orrery::driver {

class RecordKind final : public KindOf<RecordKind> {
  public:
    ReplaySpec replay;
    FaultsSpec faults;

    static const KindRow kRow;
    void describe(Fields& fields, const Scenario& whole) override;
    [[nodiscard]] RunCost cost(const Scenario& whole) const override;
    [[nodiscard]] std::unique_ptr<ScenarioRun> prepare(const RunContext& context) const override;
    [[nodiscard]] bool needs_nodes() const override { return true; }
    [[nodiscard]] FaultsSpec* cluster_faults() override { return &faults; }
    [[nodiscard]] std::vector<std::string*> own_files() override { return {&replay.trace, &faults.trace}; }
};

}  // namespace orrery::driver
