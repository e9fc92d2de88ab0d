#pragma once
// The `faults` section of a serving scenario: what fails, what becomes of the requests, and how replicas come back.
//
// Faults are those of workloads/faults: the same processes, events and traces as of training.

#include "workloads/faults/spec.hpp"

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>

namespace orrery::serving {

/// From a fault to taking requests again.
struct ServiceRecovery {
    double detection_s = 0;              ///< until the router knows that a replica is gone,
    double timeout_s = 60;               ///< or hangs
    double notice_s = 0;                 ///< before a preemption: nothing new comes, and what is there goes on
    double repair_s = 0;                 ///< of a machine, mean
    bool exponential = false;            ///< repairs; otherwise as long as that
    std::int64_t spares = 0;             ///< machines that take the place of broken ones
    std::optional<double> corruption_s;  ///< until silent data corruption is found; without it an hour

    /// Machines beside those of the replicas. One that is repaired can be used at once.
    [[nodiscard]] SpareSpec pool() const {
        return {.pool = spares, .join_s = 0, .automatic = {repair_s, 0}, .exponential_repair = exponential};
    }
};

struct ServiceFaults {
    bool given = false;
    std::vector<ProcessSpec> processes;
    std::vector<EventSpec> events;
    std::string trace;
    std::int64_t retries = 3;            ///< times that a request starts anew when its replica fails
    std::optional<double> retry_budget;  ///< retries of all requests over the requests that have come; none: no limit
    bool restores = false;               ///< caches come back from a copy
    double restore_rate = 25e9;          ///< B/s at which a replica reads copies
    ServiceRecovery recovery;

    // What a run makes of it.
    JobShape shape;                 ///< of the GPUs that the pools number
    std::vector<TimedFault> timed;  ///< given ones and those of the trace

    /// Whether one that `is` such a fault may come; any may be in a trace.
    [[nodiscard]] bool meets(const std::function<bool(FaultKind, const std::string& where, Component)>& is) const;
    [[nodiscard]] bool meets(std::initializer_list<FaultKind> kinds) const;
    [[nodiscard]] bool any() const { return !processes.empty() || !events.empty() || !trace.empty(); }
};

/// Whether faults stop replicas, which then start again.
[[nodiscard]] bool stops_replicas(const ServiceFaults& faults);

/// Names the section: `none`, or a map.
void describe(Fields& fields, ServiceFaults& faults);
/// What single fields cannot see. `node`: the section, for positions.
void check_spec(const YamlNode& node, const ServiceFaults& faults, const JobShape& shape,
                std::vector<Diagnostic>& errors);

}  // namespace orrery::serving
