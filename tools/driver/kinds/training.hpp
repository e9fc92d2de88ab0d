#pragma once
// kind: training. One iteration of a model under a plan.

#include "tools/driver/kind.hpp"
#include "workloads/training/features/documents.hpp"
#include "workloads/training/plan/spec.hpp"

namespace orrery::driver {

class TrainingKind final : public KindOf<TrainingKind> {
  public:
    ModelSpec model;
    PlanSpec plan;
    Mark plan_mark;
    SoftwareSpec software;
    FaultsSpec faults;
    ComputeKind compute = ComputeKind::calibrated;

    static const KindRow kRow;
    void describe(Fields& fields, const Scenario& whole) override;
    void keep_marks(const YamlNode& root) override;
    void check(const YamlNode& root, const DataDirectory& data, Scenario& whole,
               std::vector<Diagnostic>& errors) override;
    [[nodiscard]] RunCost cost(const Scenario& whole) const override;
    [[nodiscard]] std::unique_ptr<ScenarioRun> prepare(const RunContext& context) const override;
    [[nodiscard]] bool needs_nodes() const override { return true; }
    [[nodiscard]] bool prices_kernels() const override { return true; }
    [[nodiscard]] std::vector<std::string> refusals(const FaultReach& reach) const override;
    [[nodiscard]] ModelSpec* own_model() override { return &model; }
    [[nodiscard]] FaultsSpec* cluster_faults() override { return &faults; }
    [[nodiscard]] std::vector<std::string*> own_files() override {
        return {&faults.trace, &plan.feature<DocumentsPlan>().trace};
    }
};

}  // namespace orrery::driver
