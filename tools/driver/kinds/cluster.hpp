#pragma once
// kind: cluster. Several jobs of any kinds on one cluster, each on nodes of its own, with one network between all of them.

#include "tools/driver/job.hpp"

namespace orrery::driver {

class ClusterKind final : public KindOf<ClusterKind> {
  public:
    std::vector<JobSpec> jobs;
    FaultsSpec faults;

    static const KindRow kRow;
    void describe(Fields& fields, const Scenario& whole) override;
    void tidy(YamlNode& root, std::vector<Diagnostic>& errors) const override { refuse_shared_of_jobs(root, errors); }
    void check(const YamlNode& root, const DataDirectory& data, Scenario& whole,
               std::vector<Diagnostic>& errors) override;
    [[nodiscard]] RunCost cost(const Scenario& whole) const override;
    [[nodiscard]] std::unique_ptr<ScenarioRun> prepare(const RunContext& context) const override;
    [[nodiscard]] bool prices_kernels() const override { return true; }
    [[nodiscard]] bool changes_links() const override;
    [[nodiscard]] FaultsSpec* cluster_faults() override { return &faults; }
    [[nodiscard]] std::vector<std::string*> own_files() override { return {&faults.trace}; }
    [[nodiscard]] bool holds_jobs() const override { return true; }
    [[nodiscard]] std::vector<JobSpec*> own_jobs() override { return pointers_to(jobs); }
};

/// What all jobs of a scenario will take together.
[[nodiscard]] RunCost cost_of_jobs(const std::vector<const JobSpec*>& jobs);

}  // namespace orrery::driver
