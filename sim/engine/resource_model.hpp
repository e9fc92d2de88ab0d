#pragma once
// How activities share resources: the interface of every sharing model.
//
// An activity moves or computes an amount (bytes, FLOPs) and demands several resources at once. At rate x it uses
// `weight * x` of each resource's capacity: a plain flow has weight 1 on each link of its path, a ring all-reduce is
// one activity with the weight that its traffic puts on each link of the ring.

#include "sim/base/id.hpp"

#include <cstdint>
#include <limits>
#include <span>

namespace orrery {

/// Use of one resource per unit of an activity's rate. Weights are positive.
struct Demand {
    ResourceId resource;
    double weight = 1;
    friend bool operator==(const Demand&, const Demand&) = default;
};

/// A flow between GPUs of different nodes that is part of an activity: what demands say in resources, said in endpoints.
struct RoutedFlow {
    GpuId from;
    GpuId to;
    double weight = 1;      ///< bytes per unit of the activity's amount
    double rate_limit = 0;  ///< B/s; 0: none
    /// Not empty: no flow from one to another, but an all-reduce of all these in the switches, along tree number `tree`.
    std::vector<GpuId> members = {};
    std::uint32_t tree = 0;
};

/// Told when activities finish. `cookie` is what was given to ResourceModel::start.
class ActivityListener {
  public:
    virtual ~ActivityListener() = default;
    virtual void on_activity_done(std::uint64_t cookie) = 0;
};

/// Activities with equal demands form a class and always progress at equal rates.
using ClassId = Id<struct ClassTag>;

class ResourceModel {
  public:
    virtual ~ResourceModel() = default;

    /// Adds a resource with a capacity in units per second (bytes/s, FLOP/s). Zero means that nothing passes.
    virtual ResourceId add_resource(double capacity) = 0;
    [[nodiscard]] virtual double capacity(ResourceId resource) const = 0;

    /// The class of activities with these demands and this bound on the rate of each. Held until `release`.
    /// Precondition: at least one demand, or a finite bound.
    virtual ClassId hold(std::span<const Demand> demands, double rate_bound = kUnbounded) = 0;
    virtual void release(ClassId id) = 0;
    /// The same for activities whose traffic between nodes is known flow by flow. Models that route flows themselves take
    /// `flows`, and of `demands` only what lies inside the nodes; the others take `demands`.
    virtual ClassId hold_flows(std::span<const RoutedFlow> flows, std::span<const Demand> demands,
                               double rate_bound = kUnbounded) {
        (void)flows;
        return hold(demands, rate_bound);
    }
    /// True when flows bring the latency of their path themselves.
    [[nodiscard]] virtual bool routes_flows() const { return false; }
    /// Called when nothing is pending any more. Throws InfeasibleError that names what can never finish.
    virtual void require_finished() const {}

    /// Starts an activity now. It finishes when `amount` units have been served; the listener is told then.
    virtual void start(ClassId id, double amount, std::uint64_t cookie) = 0;

    virtual void set_listener(ActivityListener& listener) = 0;

    static constexpr double kUnbounded = std::numeric_limits<double>::infinity();
};

}  // namespace orrery
