#pragma once
// The `faults` section of a serving scenario: what fails, what becomes of the requests, and how replicas come back.
//
// Faults are those of workloads/faults: the same processes, events and traces as of training.

#include "workloads/faults/spec.hpp"

namespace orrery::inline serving {

/// From a fault to taking requests again.
struct ServiceRecovery {
    double detection_s = 0;      ///< until the router knows that a replica is gone,
    double timeout_s = 60;       ///< or hangs
    double notice_s = 0;         ///< before a preemption: nothing new comes, and what is there goes on
    double repair_s = 0;         ///< of a machine, mean
    bool exponential = false;    ///< repairs; otherwise as long as that
    std::int64_t spares = 0;     ///< machines that take the place of broken ones
    bool finds = false;          ///< `corruption` was given
    double corruption_s = 3600;  ///< until silent data corruption is found
};

struct ServiceFaults {
    bool given = false;
    bool detailed = false;  ///< as a map
    std::vector<ProcessSpec> processes;
    std::vector<EventSpec> events;
    std::string trace;
    std::int64_t retries = 3;  ///< times that a request starts anew when its replica fails
    bool budgeted = false;     ///< `retry_budget` was given
    double retry_budget = 1;   ///< retries of all requests over the requests that have come
    bool restores = false;     ///< caches come back from a copy
    bool kv_detailed = false;
    double restore_rate = 25e9;  ///< B/s at which a replica reads copies
    ServiceRecovery recovery;

    // What a run makes of it.
    JobShape shape;                 ///< of the GPUs that the pools number
    std::vector<TimedFault> timed;  ///< given ones and those of the trace

    [[nodiscard]] bool any() const { return !processes.empty() || !events.empty() || !trace.empty(); }
};

/// Names the section: `none`, or a map.
void describe(Fields& fields, ServiceFaults& faults);
/// What single fields cannot see. `node`: the section, for positions.
void check(const YamlNode& node, const ServiceFaults& faults, const JobShape& shape, std::vector<Diagnostic>& errors);

}  // namespace orrery::inline serving
