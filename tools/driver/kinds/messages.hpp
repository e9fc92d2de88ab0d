#pragma once
// kind: collective and kind: network. Messages on a fabric, of a collective or as traffic.

#include "tools/driver/kind.hpp"
#include "workloads/collective/message_run.hpp"

namespace orrery::driver {

class CollectiveKind final : public KindOf<CollectiveKind> {
  public:
    CollectiveSpec collective;
    FaultsSpec faults;

    static const KindRow kRow;
    void describe(Fields& fields, const Scenario& whole) override;
    void check(const YamlNode& root, const DataDirectory& data, Scenario& whole,
               std::vector<Diagnostic>& errors) override;
    [[nodiscard]] RunCost cost(const Scenario& whole) const override;
    [[nodiscard]] std::unique_ptr<ScenarioRun> prepare(const RunContext& context) const override;
    [[nodiscard]] bool sums_in_switches() const override;
    void run_on_simgrid(const Scenario& whole, const RunOptions& options, const Fabric& fabric,
                        RunOutput& out) const override;
    [[nodiscard]] std::int64_t ranks_taken() const override { return collective.ranks; }
    [[nodiscard]] FaultsSpec* cluster_faults() override { return &faults; }
    [[nodiscard]] std::vector<std::string*> own_files() override { return {&collective.program, &faults.trace}; }
    /// The collective, whose file is found from the scenario's.
    [[nodiscard]] CollectiveSpec collective_of(const Scenario& whole) const;
};

class NetworkKind final : public KindOf<NetworkKind> {
  public:
    TrafficSpec traffic;
    FaultsSpec faults;

    static const KindRow kRow;
    void describe(Fields& fields, const Scenario& whole) override;
    void check(const YamlNode& root, const DataDirectory& data, Scenario& whole,
               std::vector<Diagnostic>& errors) override;
    [[nodiscard]] RunCost cost(const Scenario& whole) const override;
    [[nodiscard]] std::unique_ptr<ScenarioRun> prepare(const RunContext& context) const override;
    void run_on_simgrid(const Scenario& whole, const RunOptions& options, const Fabric& fabric,
                        RunOutput& out) const override;
    [[nodiscard]] bool sums_in_switches() const override { return false; }
    [[nodiscard]] bool has_ranks() const override { return false; }
    [[nodiscard]] FaultsSpec* cluster_faults() override { return &faults; }
    [[nodiscard]] std::vector<std::string*> own_files() override { return {&traffic.flows, &faults.trace}; }
};

/// How a scenario's messages are simulated.
[[nodiscard]] MessageRunOptions message_options(const Scenario& scenario);

}  // namespace orrery::driver
