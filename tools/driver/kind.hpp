#pragma once
// Kinds of scenarios, one file each under tools/driver/kinds and one row each in the table (kinds.cpp).
//
// A kind owns its sections of the YAML, what must hold between them, what a run of them takes of this machine, and how they
// become work of a simulation and that again a summary. Nobody else asks which kind a scenario is to build or run it.

#include "tools/driver/run_cost.hpp"
#include "tools/driver/run_output.hpp"
#include "tools/driver/scenario_spec.hpp"
#include "workloads/faults/spec.hpp"
#include "workloads/model/model_spec.hpp"

#include <span>

namespace orrery::driver {

/// A scenario as work of a simulation, from before its run to its summary.
class ScenarioRun {
  public:
    virtual ~ScenarioRun() = default;
    /// After the run: metrics, breakdown, notes and whatever else of `out` the kind has. What belongs to the whole run (events,
    /// links, packets) is the caller's.
    virtual void summarise(RunOutput& out) = 0;
};

/// Where a scenario runs. All references outlive its ScenarioRun.
struct RunContext {
    const Scenario& scenario;
    ModelCache& models;
    const RunOptions& options;
    const Fabric& fabric;
    const Placement& placement;
    Simulation& simulation;
    SimTime start;
    const std::vector<TimedFault>* faults = nullptr;  ///< given ones of the whole cluster; null: none
};

/// One of several scenarios on one cluster.
struct JobSpec {
    JobSpec();
    std::string name;
    std::string file;                   ///< as written; empty: the scenario stands in the job itself
    std::string nodes;                  ///< as written: a count, or numbers and ranges
    double start = 0;                   ///< s
    std::vector<std::uint32_t> placed;  ///< the nodes that it has
    Scenario scenario;                  ///< its cluster and network are those of the whole
};

/// What faults of a cluster would hit.
struct FaultReach {
    bool links;
    bool processors;
    std::int64_t gpus;  ///< of a node
};

/// What a scenario of one kind has beyond what all have.
class KindSpec {
  public:
    virtual ~KindSpec() = default;
    [[nodiscard]] virtual const KindRow& row() const = 0;
    [[nodiscard]] virtual std::unique_ptr<KindSpec> copy() const = 0;
    /// Names its sections.
    virtual void describe(Fields& fields, const Scenario& whole) = 0;
    /// Before reading: takes out what would only confuse.
    virtual void tidy(YamlNode& /*root*/, std::vector<Diagnostic>& /*errors*/) const {}
    /// After reading, of a scenario or of a job: keeps where its sections stand.
    virtual void keep_marks(const YamlNode& /*root*/) {}
    /// What single fields cannot see, and what is read beside the scenario's own file.
    virtual void check(const YamlNode& /*root*/, const DataDirectory& /*data*/, Scenario& /*whole*/,
                       std::vector<Diagnostic>& /*errors*/) {}
    /// What a run will take of this machine.
    [[nodiscard]] virtual RunCost cost(const Scenario& whole) const = 0;
    /// Throws ConfigError or InfeasibleError.
    [[nodiscard]] virtual std::unique_ptr<ScenarioRun> prepare(const RunContext& context) const = 0;

    /// Runs on SimGrid, in a process of its own. Precondition: the row says that it can.
    virtual void run_on_simgrid(const Scenario& whole, const RunOptions& options, const Fabric& fabric,
                                RunOutput& out) const;

    // What others ask of a scenario of any kind. The answers here are those of a kind that has nothing of the sort.
    [[nodiscard]] virtual bool needs_nodes() const { return false; }     ///< with GPUs, and not bare hosts
    [[nodiscard]] virtual bool prices_kernels() const { return false; }  ///< so that rates and limits of devices matter
    [[nodiscard]] virtual bool changes_links() const { return false; }   ///< by faults of its own
    [[nodiscard]] virtual bool sums_in_switches() const { return true; }  ///< where an all-reduce may
    [[nodiscard]] virtual bool holds_jobs() const { return false; }
    [[nodiscard]] virtual bool has_ranks() const { return true; }         ///< which may die
    [[nodiscard]] virtual std::int64_t ranks_taken() const { return 0; }  ///< the first of the cluster's; 0: all
    /// Why a job of this kind cannot honour faults of the cluster: clauses after its name.
    [[nodiscard]] virtual std::vector<std::string> refusals(const FaultReach& /*faults*/) const { return {}; }
    [[nodiscard]] virtual ModelSpec* own_model() { return nullptr; }
    [[nodiscard]] virtual FaultsSpec* cluster_faults() { return nullptr; }
    [[nodiscard]] virtual std::vector<DeviceSpec*> own_devices() { return {}; }  ///< in place of those of the nodes
    [[nodiscard]] virtual std::vector<std::string*> own_files() {
        return {};
    }  ///< every member that is the path of one
    [[nodiscard]] virtual std::vector<JobSpec*> own_jobs() { return {}; }
};

/// What every kind answers alike.
template <class Own>
class KindOf : public KindSpec {
  public:
    [[nodiscard]] const KindRow& row() const final { return Own::kRow; }
    [[nodiscard]] std::unique_ptr<KindSpec> copy() const final {
        return std::make_unique<Own>(static_cast<const Own&>(*this));
    }
};

/// The faults of a scenario's cluster; without any where its kind has none.
[[nodiscard]] const FaultsSpec& faults_of(const Scenario& scenario);
/// What a run will take of this machine.
[[nodiscard]] RunCost expected_cost(const Scenario& scenario);
/// The scenarios that one of several jobs or parts holds.
[[nodiscard]] std::vector<const JobSpec*> jobs_of(const Scenario& scenario);

/// What a report draws of the timeline of a run: nothing, a row per rank, a row per stream, or that where there are few.
enum class TimelineDrawing { none, ranks, streams, few_streams };

struct KindRow {
    const char* name;
    const char* headline;                ///< metric that a run of this kind is first judged by
    std::span<const char* const> cards;  ///< metrics that a report shows at its top, in this order
    TimelineDrawing drawing;
    NetworkUse network;
    std::unique_ptr<KindSpec> (*make)();  ///< with its defaults
};

template <class Kind>
std::unique_ptr<KindSpec> make_kind() {
    return std::make_unique<Kind>();
}

/// In the order that people see.
[[nodiscard]] const std::vector<const KindRow*>& scenario_kinds();
[[nodiscard]] const std::vector<std::string>& scenario_kind_names();
/// Null: there is none of this name.
[[nodiscard]] const KindRow* find_kind(const std::string& name);

/// Names the key `kind`; a scenario of another kind than it says becomes one, with defaults.
void describe_kind(Fields& fields, const Field& field, OwnSpec& own);

}  // namespace orrery::driver
