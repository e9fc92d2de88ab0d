#pragma once
// A job: work that one engine runs beside that of others. Static task graphs and task sources are jobs.

#include "sim/engine/engine.hpp"
#include "sim/engine/resource_model.hpp"

namespace orrery::engine {

/// Where a job stands among those of a run. The default is the place of a job alone.
struct JobPlace {
    SimTime start;               ///< the job's own times count from here
    std::uint32_t entities = 0;  ///< added to its entities, so that the events of two jobs never tie
    static constexpr std::uint32_t kEntitiesPerJob = 1U << 24;
};

class Job {
  public:
    virtual ~Job() = default;
    /// Starts what waits for nothing. Called once, at the job's start.
    virtual void begin() = 0;
    /// Called when nothing is pending any more: gives back what the job held. Throws InfeasibleError that names what can
    /// never finish, InternalError when work is left for no reason.
    virtual void end() = 0;
};

}  // namespace orrery::engine
