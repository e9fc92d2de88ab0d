#pragma once
// Kinds of scenarios, one file each under tools/driver/kinds and one row each in the table.
//
// A kind owns its sections of the YAML, what must hold between them, and how it becomes work of a simulation and that again a
// summary. Nobody else asks which kind a scenario is to build or run it.

#include "tools/driver/run_cost.hpp"
#include "tools/driver/scenario.hpp"

#include <span>

namespace orrery::inline driver {

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

/// What a report draws of the timeline of a run: nothing, a row per rank, a row per stream, or that where there are few.
enum class TimelineDrawing { none, ranks, streams, few_streams };

struct KindRow {
    const char* name;
    const char* headline;                ///< metric that a run of this kind is first judged by
    std::span<const char* const> cards;  ///< metrics that a report shows at its top, in this order
    bool nodes;                          ///< needs nodes with GPUs, not bare hosts
    bool messages;                       ///< runs on SimGrid too
    bool kernels;                        ///< prices kernels: the rates of a device matter
    bool requests;                       ///< serves requests, which can be listed one by one
    bool plans = false;                  ///< has a parallel plan, which can be searched
    bool jobs = false;                   ///< holds scenarios of other kinds
    TimelineDrawing drawing;
    NetworkUse network;
    RunCost (*cost)(const Scenario& scenario);  ///< what a run will take of this machine
    void (*describe)(Fields& fields, Scenario& scenario);
    /// What single fields cannot see, and what is read beside the scenario's own file.
    void (*check)(const YamlNode& root, const DataDirectory& data, Scenario& scenario, std::vector<Diagnostic>& errors);
    /// Throws ConfigError or InfeasibleError.
    std::unique_ptr<ScenarioRun> (*prepare)(const RunContext& context);
    /// Before reading: takes out what would only confuse. Null: nothing to do.
    void (*tidy)(YamlNode& root, std::vector<Diagnostic>& errors) = nullptr;
};

/// The row of a kind; the table is in the order of ScenarioKind.
[[nodiscard]] const KindRow& row_of(ScenarioKind kind);

// One in each file of tools/driver/kinds.
extern const KindRow kTrainingKind;
extern const KindRow kCollectiveKind;
extern const KindRow kNetworkKind;
extern const KindRow kReplayKind;
extern const KindRow kServingKind;
extern const KindRow kClusterKind;
extern const KindRow kRlKind;

/// Runs messages on SimGrid, in a process of its own. Precondition: a kind that has messages.
void run_on_simgrid(const Scenario& scenario, const RunOptions& options, const Fabric& fabric, RunOutput& out);

// For kinds that hold scenarios of other kinds.

/// Names the sections that a scenario has as a job of a cluster: `kind` and what belongs to it.
void describe_job(Fields& fields, Scenario& scenario);
/// Takes sections that only a whole scenario has out of a job, with an error for each.
void refuse_shared_sections(YamlNode& job, std::vector<Diagnostic>& errors);
/// The same for every job of a scenario that stands in it.
void refuse_shared_of_jobs(YamlNode& root, std::vector<Diagnostic>& errors);
/// Reads a job from a file's tree. `scenario` has the cluster and the network of the whole already.
void read_job(const YamlNode& node, const DataDirectory& data, Scenario& scenario, std::vector<Diagnostic>& errors);
/// What reading a scenario does after its fields.
void complete_job(const YamlNode& node, const DataDirectory& data, Scenario& scenario, std::vector<Diagnostic>& errors);
/// Names what a job is: a file or a scenario in place.
void describe_job_source(Fields& fields, JobSpec& job);
/// Reads and checks the scenario of a job of `whole`, in place or from its file. False: it cannot be looked at further.
bool read_job_source(const YamlNode& item, const DataDirectory& data, const Scenario& whole, JobSpec& job,
                     std::vector<Diagnostic>& errors);
/// The nodes that a text names: "0-3,8". False: it is no such text.
bool parse_nodes(const std::string& text, std::vector<std::uint32_t>& out);

}  // namespace orrery::inline driver
