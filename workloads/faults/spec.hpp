#pragma once
// The `faults` section of a scenario: what fails, how it is noticed and repaired, what is saved, and for how long. Immutable once
// read.

#include "workloads/faults/fault.hpp"
#include "workloads/faults/intervals/interval.hpp"
#include "workloads/faults/methods/method.hpp"
#include "workloads/faults/processes/process.hpp"
#include "workloads/faults/stragglers.hpp"

namespace orrery::faults {

/// Faults that are drawn.
struct ProcessSpec {
    Component component = Component::gpu;
    FaultKind kind = FaultKind::fail_stop;
    FaultProcessChoice law{fault_process_table(), "exponential"};
    double mtbf_s = 0;           ///< of one component
    double factor = 1;           ///< share of speed or rate that is left
    double lasts_s = 0;          ///< mean, exponential; 0: until repaired or replaced
    double bad_share = 0;        ///< of machines
    double bad_factor = 1;       ///< times the rate of the others
    bool while_running = false;  ///< strikes only while the job trains
};

/// A fault that is given.
struct EventSpec {
    double at_s = 0;
    FaultKind kind = FaultKind::fail_stop;
    std::string where;
    double factor = 1;
    double lasts_s = 0;
};

/// A way to repair a machine.
struct RepairStage {
    double mean_s = 0;
    double fails = 0;  ///< chance that the machine comes back as it was
};

/// Machines beside those in use, and how broken ones become whole.
struct SpareSpec {
    std::int64_t standbys = 0;
    std::int64_t pool = 0;
    double join_s = 180;
    std::int64_t spares = 0;  ///< of other jobs
    double borrow_s = 1200;
    RepairStage automatic{7200, 0};
    RepairStage manual{172800, 0};
    double to_manual = 0;
    bool exponential_repair = true;
    std::int64_t retire_after = 0;  ///< failures; 0: never
    double retire_window_s = 604800;
};

struct RecoverySpec : SpareSpec {
    double heartbeat_s = 30;
    double heartbeat_misses = 0;
    double timeout_s = 600;  ///< of a collective: finds what nothing else has
    bool watches = false;    ///< `anomaly` was given
    double anomaly_s = 60;
    double anomaly_misses = 0;
    double corruption_s = 3600;
    double retry_limit_s = 30;  ///< of a connection
    double diagnosis_s = 300;
    double bisection_s = 0;  ///< of one run of the search for a bad machine
    double restart_s = 120;
    double queue_s = 0;
    bool shrinks = false;
};

struct CheckpointSpec {
    CheckpointMethodChoice method{checkpoint_method_table(), "blocking"};
    CheckpointIntervalChoice interval{checkpoint_interval_table(), "daly"};
    double size = 0;  ///< B; 0: what model and plan need
    StorageSpec storage;
};

struct FaultsSpec {
    bool campaign = false;
    bool given = false;  ///< in place of a campaign: events of a run that is simulated once
    double duration_s = 30 * 86400.0;
    double work_s = 0;  ///< of training without faults, after which the job is done; 0: it trains on
    std::int64_t runs = 1;
    std::vector<ProcessSpec> processes;
    std::vector<EventSpec> events;
    std::string trace;
    StragglerSpec stragglers;
    CodingSpec coding;
    RecoverySpec recovery;
    CheckpointSpec checkpoint;
};

/// Names the lists that training and serving share: faults that are drawn, and faults that are given.
void describe_faults(Fields& fields, std::vector<ProcessSpec>& processes, std::vector<EventSpec>& events,
                     std::string& trace);
/// What single fields of those lists cannot see. `node`: of the section, for positions.
void check_faults(const YamlNode& node, const std::vector<ProcessSpec>& processes, const std::vector<EventSpec>& events,
                  const JobShape& shape, std::vector<Diagnostic>& errors);

/// Names the section: `none`, or a map.
void describe(Fields& fields, FaultsSpec& faults);
/// Names the section of kinds that are simulated once, from their first instant on: `none`, or a map of given faults.
void describe_given(Fields& fields, FaultsSpec& faults);
/// Names what the map holds.
void describe_campaign(Fields& fields, FaultsSpec& faults);

/// What single fields cannot see. `node`: the section, for positions.
void check_spec(const YamlNode& node, const FaultsSpec& faults, const JobShape& shape, std::vector<Diagnostic>& errors);

/// Interruptions of the whole job per second that processes bring: those that stop it, not those that slow it.
[[nodiscard]] double interruption_rate(const FaultsSpec& faults, const JobShape& shape);

/// The events of a section, in their order. Their places are those of `shape`.
[[nodiscard]] std::vector<TimedFault> timed_faults(const std::vector<EventSpec>& events, const JobShape& shape);
/// Reads a file of faults, or of machines that come and go, in a format of workloads/faults/traces: which it is, its first line tells.
/// Throws ConfigError with every bad line.
[[nodiscard]] std::vector<TimedFault> read_fault_trace(const std::string& path, const JobShape& shape);

}  // namespace orrery::faults
