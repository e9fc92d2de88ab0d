#pragma once
// A scenario: from YAML to a resolved specification, and from there to a summary.
//
// The one library that the program, the tests and the validation link. It knows every kind of scenario and nothing of
// command lines.

#include "tools/driver/request_table.hpp"
#include "topologies/cluster_spec.hpp"
#include "workloads/collective/message_run.hpp"
#include "workloads/replay/replay.hpp"
#include "workloads/serving/spec.hpp"
#include "workloads/training/simulate.hpp"

#include <functional>
#include <map>
#include <memory>
#include <optional>

namespace orrery {

enum class ScenarioKind { training, collective, network, replay, serving };
[[nodiscard]] const std::vector<std::string>& scenario_kind_names();

enum class ComputeKind { calibrated, roofline };
/// Libraries of collectives: as measured, with an engine's own all-reduce, or links without any cost of a library.
enum class LibraryKind { nccl, vllm, sglang, trtllm, ideal };
[[nodiscard]] const std::vector<std::string>& library_names();

struct NetworkSpec {
    Fidelity fidelity = Fidelity::fluid;
    LibraryKind collectives = LibraryKind::nccl;
    double batch = 0;  ///< s, window in which completions are grouped
    bool fold = true;
    bool path_details = false;    ///< `paths` was given with its parameters
    bool packet_details = false;  ///< a field of `packets` was given
    PacketSpec packets;           ///< its `path_kind` is the field `paths`, of all levels

    /// Paths as levels without packets know them: spread evenly, or one hashed path a flow.
    [[nodiscard]] PathChoice path_choice() const;
};

/// A scenario as read, with every preset expanded. Plain data: can be copied and changed before a run.
struct Scenario {
    std::string name;
    std::string text_hash;
    std::string directory;  ///< of the scenario's file: what it names is looked for there
    ScenarioKind kind = ScenarioKind::training;
    std::int64_t seed = 1;
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
    CollectiveSpec collective;
    TrafficSpec traffic;
    ReplaySpec replay;
    EngineSpec engine;
    RequestsSpec requests;
    SloSpec slo;
    MeasureSpec measure;
    ComputeKind compute = ComputeKind::calibrated;
    NetworkSpec network;

    /// A file named in the scenario, looked for beside it.
    [[nodiscard]] std::string file(const std::string& path) const;
};

/// The same scenario for a file in another directory: what it names relative to its own is named relative to that one.
[[nodiscard]] Scenario seen_from(const std::string& directory, Scenario scenario);

/// Names every field of a scenario of its kind.
void describe(Fields& fields, Scenario& scenario);

/// Reads a scenario tree. Throws ConfigError with every error found.
[[nodiscard]] Scenario read_scenario(const YamlNode& root, const std::string& name, const DataDirectory& data);
/// Loads a file ("-": standard input) and applies `key.path=value` overrides.
[[nodiscard]] Scenario load_scenario(const std::string& path, const std::vector<std::string>& overrides,
                                     const DataDirectory& data);
/// The resolved scenario as JSON: reads back to the same scenario.
[[nodiscard]] std::string resolved_json(Scenario scenario);
/// JSON Schema of a scenario of one kind.
[[nodiscard]] std::string scenario_schema(ScenarioKind kind);

struct ServingObserver;

struct RunOptions {
    bool timeline = false;
    bool check_memory = true;  ///< refuse what does not fit
    bool messages = false;     ///< keep when each message of a collective or network scenario went, up to 2 million
    bool requests = false;     ///< keep what became of each request of a serving scenario, at 64 B each
    const ServingObserver* serving = nullptr;  ///< sees a serving run from inside
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
    Timeline timeline;
    std::optional<TrainingResult> training;
    PacketReport packets;  ///< of packet fidelity, else empty
    std::optional<MessageRecord> messages;
    std::vector<RequestRow> requests;
    std::vector<ReplayBlame> replay_path;  ///< what the end of a replay waited for
};

/// Models built for scenarios, kept between runs: reading kernel tables costs more than simulating.
class ModelCache {
  public:
    /// Puts another cost model around a device's own, for asking what if.
    using DeviceWrap = std::function<std::unique_ptr<CostModel>(std::unique_ptr<CostModel>, const DeviceSpec&)>;
    explicit ModelCache(DataDirectory data, DeviceWrap wrap = {}) : data_(std::move(data)), wrap_(std::move(wrap)) {}
    [[nodiscard]] const DataDirectory& data() const { return data_; }
    /// `kernels`: set of kernels that the software runs where the device has one of this name.
    [[nodiscard]] const CostModel& device(const DeviceSpec& device, ComputeKind kind, const std::string& kernels = "");
    [[nodiscard]] const CollectiveModel& collectives(const std::string& generation, LibraryKind kind);

  private:
    DataDirectory data_;
    DeviceWrap wrap_;
    std::map<std::string, std::unique_ptr<CostModel>> devices_;
    std::map<std::string, std::unique_ptr<CollectiveModel>> libraries_;
};

/// What a training scenario simulates; refers to its arguments, which must outlive it. Throws ConfigError or
/// InfeasibleError when the plan does not fit the model and the cluster.
[[nodiscard]] TrainingInput training_input(const Scenario& scenario, ModelCache& models, const Fabric& fabric);

/// How a scenario's messages are simulated; refers to the scenario, which must outlive it.
[[nodiscard]] MessageRunOptions message_options(const Scenario& scenario);

/// Runs a scenario. Throws ConfigError or InfeasibleError.
[[nodiscard]] RunOutput run(const Scenario& scenario, ModelCache& models, const RunOptions& options);

/// The data directory of this installation: beside the program (../share/orrery), else the source tree it was built in.
[[nodiscard]] DataDirectory find_data_directory(const std::string& program);

}  // namespace orrery
