#pragma once
// kind: rl. Steps of reinforcement-learning post-training, whose parts are scenarios of serving and training.

#include "tools/driver/job.hpp"
#include "workloads/rl/spec.hpp"

namespace orrery::driver {

/// One of the models of a step.
struct RlPart : JobSpec {
    PartRole role = PartRole::generator;
    bool offload = false;  ///< in host memory while others run
};

class RlKind final : public KindOf<RlKind> {
  public:
    RlSpec rl;
    std::vector<RlPart> jobs;

    static const KindRow kRow;
    void describe(Fields& fields, const Scenario& whole) override;
    void tidy(YamlNode& root, std::vector<Diagnostic>& errors) const override { refuse_shared_of_jobs(root, errors); }
    void check(const YamlNode& root, const DataDirectory& data, Scenario& whole,
               std::vector<Diagnostic>& errors) override;
    [[nodiscard]] RunCost cost(const Scenario& whole) const override;
    [[nodiscard]] std::unique_ptr<ScenarioRun> prepare(const RunContext& context) const override;
    [[nodiscard]] bool needs_nodes() const override { return true; }
    [[nodiscard]] bool prices_kernels() const override { return true; }
    [[nodiscard]] bool holds_jobs() const override { return true; }
    [[nodiscard]] std::vector<JobSpec*> own_jobs() override { return pointers_to(jobs); }
};

}  // namespace orrery::driver
