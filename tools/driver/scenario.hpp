#pragma once
// A scenario: from YAML to a resolved specification, and from there to a summary.
//
// The one library that the program, the tests and the validation link. It knows every kind of scenario and nothing of
// command lines.

#include "sim/record/expectation.hpp"
#include "sim/run/network_spec.hpp"
#include "tools/driver/request_table.hpp"
#include "topologies/cluster_spec.hpp"
#include "workloads/collective/message_run.hpp"
#include "workloads/faults/spec.hpp"
#include "workloads/replay/replay.hpp"
#include "workloads/rl/spec.hpp"
#include "workloads/serving/cluster/service.hpp"
#include "workloads/serving/spec.hpp"
#include "workloads/training/simulate.hpp"

#include <functional>
#include <map>
#include <memory>
#include <optional>

namespace orrery::inline driver {

/// In the order of the table of kinds (tools/driver/kind.hpp).
enum class ScenarioKind { training, collective, network, replay, serving, cluster, rl };
[[nodiscard]] const std::vector<std::string>& scenario_kind_names();

enum class ComputeKind { calibrated, roofline };
struct JobSpec;

/// A scenario as read, with every preset expanded. Plain data: can be copied and changed before a run.
struct Scenario {
    std::string name;
    std::string text_hash;
    std::string directory;  ///< of the scenario's file: what it names is looked for there
    ScenarioKind kind = ScenarioKind::training;
    std::int64_t seed = 1;
    std::vector<std::string>
        without_effect;  ///< what it says that nothing of it reads and that may stay: notes of its runs
    Origins origins;  ///< where each given value stands, for explanations
    Mark cluster_mark;
    Mark plan_mark;
    Mark network_mark;
    Mark engine_mark;
    Mark requests_mark;
    ClusterSpec cluster;
    ModelSpec model;
    PlanSpec plan;
    SoftwareSpec software;
    FaultsSpec faults;
    CollectiveSpec collective;
    TrafficSpec traffic;
    ReplaySpec replay;
    EngineSpec engine;
    RequestsSpec requests;
    SloSpec slo;
    MeasureSpec measure;
    ComputeKind compute = ComputeKind::calibrated;
    NetworkSpec network;
    RlSpec rl;
    std::vector<JobSpec> jobs;        ///< of kind cluster, and the parts of kind rl
    std::vector<Expectation> expect;  ///< of metrics of the run; no part of the scenario's hash

    /// A file named in the scenario, looked for beside it.
    [[nodiscard]] std::string file(const std::string& path) const;
};

/// One of several scenarios on one cluster.
struct JobSpec {
    std::string name;
    PartRole role = PartRole::generator;  ///< of kind rl
    bool offload = false;                 ///< of kind rl: in host memory while others run
    std::string file;                     ///< as written; empty: the scenario stands in the job itself
    std::string nodes;                    ///< as written: a count, or numbers and ranges
    double start = 0;                     ///< s
    std::vector<std::uint32_t> placed;    ///< the nodes that it has
    Scenario scenario;                    ///< its cluster and network are those of the whole
};

/// The files that a scenario names, those of its jobs too, where they are looked for.
[[nodiscard]] std::vector<std::string> files_of(const Scenario& scenario);

/// The same scenario for a file in another directory: what it names relative to its own is named relative to that one.
[[nodiscard]] Scenario seen_from(const std::string& directory, Scenario scenario);

/// Names every field of a scenario of its kind.
void describe(Fields& fields, Scenario& scenario);

/// Reads a scenario tree. Throws ConfigError with every error found.
[[nodiscard]] Scenario read_scenario(const YamlNode& root, const std::string& name, const DataDirectory& data);
/// Loads a file ("-": standard input) and applies `key.path=value` overrides.
[[nodiscard]] Scenario load_scenario(const std::string& path, const std::vector<std::string>& overrides,
                                     const DataDirectory& data);
/// The resolved scenario as JSON, without what is as by default or has no effect: reads back to the same scenario.
[[nodiscard]] std::string resolved_json(Scenario scenario);
/// The same with every default.
[[nodiscard]] std::string complete_json(Scenario scenario);
/// JSON Schema of a scenario of one kind, with the names of the presets and tables in `data`.
[[nodiscard]] std::string scenario_schema(ScenarioKind kind, const DataDirectory& data);

/// Sees a serving run from inside, for explanations.
struct ServingObserver {
    /// Every pipeline stage of every pool, in order, before the run; what it refers to lasts as long as the run.
    std::function<void(std::size_t pool, const ServingModel&)> stage;
    ServiceHooks hooks;
};

/// A campaign of training under other faults, recovery or checkpoints. Its states of the cluster are priced together with those of
/// the scenario's own.
struct CampaignVariant {
    std::string name;
    FaultsSpec faults;
    double interval = 1;  ///< factor on the interval between checkpoints
};
struct CampaignOutcome {
    std::vector<double> goodput;  ///< fraction, by seed
    double interval_s = 0;        ///< between checkpoints
};

/// Messages that a run keeps one by one.
inline constexpr std::uint64_t kMostListed = 2'000'000;

struct RunOptions {
    bool timeline = false;
    bool check_memory = true;  ///< refuse what does not fit
    bool messages = false;     ///< keep when each message went, of a kind that has them and up to kMostListed
    bool requests = false;     ///< keep what became of each request of a serving scenario, at 64 B each
    SteadySpec steady;         ///< when a serving run without an end of its own has said enough
    const ServingObserver* serving = nullptr;  ///< sees a serving run from inside
    std::vector<CampaignVariant> campaigns;    ///< of training with a campaign: run beside its own
    std::function<void(double)> progress;
};

/// The messages of a run and when each went; times are as in MessageRunResult.
struct MessageRecord {
    Schedule schedule;
    std::vector<double> starts;
    std::vector<double> completions;
};

struct RunOutput {
    Summary summary;
    double seconds = 0;  ///< until the last of it was done, from its start on
    Timeline timeline;
    std::optional<TrainingResult> training;
    Timeline campaign;                       ///< of training under faults: where the time of its first run went
    std::vector<CampaignOutcome> campaigns;  ///< of the variants asked for
    PacketReport packets;                    ///< of packet fidelity, else empty
    std::optional<MessageRecord> messages;
    std::vector<RequestRow> requests;
    std::vector<ReplayBlame> replay_path;  ///< what the end of a replay waited for
    std::vector<RunOutput> jobs;           ///< of kinds cluster and rl, in the order of their jobs
};

/// Models built for scenarios, kept between runs: reading kernel tables costs more than simulating.
class ModelCache {
  public:
    /// Puts another cost model around a device's own, for asking what if.
    using DeviceWrap = std::function<std::unique_ptr<CostModel>(std::unique_ptr<CostModel>, const DeviceSpec&)>;
    explicit ModelCache(DataDirectory data, DeviceWrap wrap = {}) : data_(std::move(data)), wrap_(std::move(wrap)) {}
    [[nodiscard]] const DataDirectory& data() const { return data_; }
    /// `kernels`: set of kernels that the software runs where the device has one of this name.
    [[nodiscard]] const CostModel& device(const DeviceSpec& device, ComputeKind kind, const KernelSets& kernels = {});
    [[nodiscard]] const CollectiveModel& collectives(const NodeSpec& node, LibraryKind kind);

  private:
    DataDirectory data_;
    DeviceWrap wrap_;
    std::map<std::string, std::unique_ptr<CostModel>> devices_;
    std::map<std::string, std::unique_ptr<CollectiveModel>> libraries_;
};

/// What its nodes are priced by: one, or that of each group of a cluster of groups. Refers to the scenario.
[[nodiscard]] std::vector<GroupDevice> node_devices(const Scenario& scenario, ModelCache& models);

/// What a training scenario simulates; refers to its arguments, which must outlive it. Throws ConfigError or
/// InfeasibleError when the plan does not fit the model and the cluster.
[[nodiscard]] TrainingInput training_input(const Scenario& scenario, ModelCache& models, const Fabric& fabric,
                                           const Placement& placement);
/// The same with devices that are known already, for many plans of one scenario.
[[nodiscard]] TrainingInput training_input(const Scenario& scenario, const std::vector<GroupDevice>& devices,
                                           const Fabric& fabric, const Placement& placement);

/// What the run of a scenario is built from. Reads its file of link events.
[[nodiscard]] RunSettings run_settings(const Scenario& scenario);
/// The scenario's fabric, whose hashes go by its seed. Throws as shape_of does.
[[nodiscard]] Fabric fabric_of(const Scenario& scenario);
/// How a scenario's messages are simulated.
[[nodiscard]] MessageRunOptions message_options(const Scenario& scenario);

/// Names the `compute` section of kinds that price kernels.
void describe_compute(Fields& fields, Scenario& scenario);
/// Adds what a packet run counts.
void add_packet_metrics(const std::optional<PacketStatistics>& packets, Summary& out);

/// Runs a scenario. Throws ConfigError or InfeasibleError.
[[nodiscard]] RunOutput run(const Scenario& scenario, ModelCache& models, const RunOptions& options);

/// The data directory of this installation: beside the program (../share/orrery), else the source tree it was built in.
[[nodiscard]] DataDirectory find_data_directory(const std::string& program);

}  // namespace orrery::inline driver
