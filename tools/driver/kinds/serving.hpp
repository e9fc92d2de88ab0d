#pragma once
// kind: serving. Requests served by engine replicas.

#include "tools/driver/kind.hpp"
#include "workloads/outside/policies.hpp"
#include "workloads/serving/spec.hpp"

namespace orrery::driver {

class ServingKind final : public KindOf<ServingKind> {
  public:
    ModelSpec model;
    EngineSpec engine;
    Mark engine_mark;
    RequestsSpec requests;
    Mark requests_mark;
    SloSpec slo;
    MeasureSpec measure;
    outside::ServicePolicies policies;
    ComputeKind compute = ComputeKind::calibrated;
    RequestSource* source = nullptr;  ///< of requests, in place of `requests`; not part of the YAML

    static const KindRow kRow;
    void describe(Fields& fields, const Scenario& whole) override;
    void keep_marks(const YamlNode& root) override;
    void check(const YamlNode& root, const DataDirectory& data, Scenario& whole,
               std::vector<Diagnostic>& errors) override;
    [[nodiscard]] RunCost cost(const Scenario& whole) const override;
    [[nodiscard]] std::unique_ptr<ScenarioRun> prepare(const RunContext& context) const override;
    [[nodiscard]] bool needs_nodes() const override { return true; }
    [[nodiscard]] bool prices_kernels() const override { return true; }
    [[nodiscard]] bool changes_links() const override { return engine.faults.given; }
    [[nodiscard]] std::vector<std::string> refusals(const FaultReach& reach) const override;
    [[nodiscard]] ModelSpec* own_model() override { return &model; }
    [[nodiscard]] std::vector<DeviceSpec*> own_devices() override;
    [[nodiscard]] std::vector<std::string*> own_files() override;
};

}  // namespace orrery::driver
