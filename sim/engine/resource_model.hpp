#pragma once
// How activities share resources: the interface of every resource model (fluid, analytic, packet).
//
// An activity moves or computes an amount (bytes, FLOPs) and demands several resources at once. At rate x it uses
// `weight * x` of each resource's capacity: a plain flow has weight 1 on each link of its path, a ring all-reduce is
// one activity with the weight that its traffic puts on each link of the ring.
//
// Resources and activities can change at any instant: capacities rise and fall, an activity is suspended, resumed,
// given another bound, or cancelled. Whoever starts an activity is told when it has finished, and only he: several jobs
// share one model without knowing of each other.

#include "sim/base/error.hpp"
#include "sim/base/id.hpp"
#include "sim/base/time.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace orrery::engine {

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
    enum class Part : std::uint8_t { none, collective, send };
    Part part = Part::none;  ///< of what it is one, for networks that tell them apart
    std::uint8_t traffic_class = 0;
};

/// Told when its activities finish. `token` is what was given to ResourceModel::start.
class ActivityListener {
  public:
    virtual ~ActivityListener() = default;
    virtual void on_activity_done(std::uint64_t token) = 0;
};

/// A listener of one model, as ResourceModel::add_listener numbers them.
using ListenerId = Id<struct ListenerTag>;

/// Activities with equal demands form a class and always progress at equal rates.
using ClassId = Id<struct ClassTag>;

/// Names an activity until it has finished or was cancelled. Unique if its listener gives no token twice in a class.
struct ActivityHandle {
    ClassId of;
    ListenerId listener;
    std::uint64_t token = 0;
    friend auto operator<=>(const ActivityHandle& a, const ActivityHandle& b) = default;
};

/// What a model can say of a run, whatever its kind. What a model does not know stays at its default.
struct ResourceReport {
    std::uint64_t events = 0;         ///< beside those of the engine
    std::uint64_t solves = 0;         ///< allocations computed
    double max_link_utilisation = 0;  ///< amount over capacity x time of the busiest resource of the fabric
};

class ResourceModel {
  public:
    ResourceModel() = default;
    ResourceModel(const ResourceModel&) = delete;
    ResourceModel& operator=(const ResourceModel&) = delete;
    virtual ~ResourceModel() = default;

    /// Adds a resource with a capacity in units per second (bytes/s, FLOP/s). Zero means that nothing passes.
    virtual ResourceId add_resource(double capacity) = 0;
    /// Adds at least one, one after the other, and returns the first.
    virtual ResourceId add_resources(std::span<const double> capacities);
    [[nodiscard]] virtual double capacity(ResourceId resource) const = 0;
    /// From this instant on. Activities under way keep what they have been served.
    virtual void set_capacity(ResourceId resource, double capacity) = 0;

    /// The class of activities with these demands and this bound on the rate of each. Held until `release`.
    /// Precondition: at least one demand, or a finite bound.
    virtual ClassId hold(std::span<const Demand> demands, double rate_bound = kUnbounded) = 0;
    /// The class lives on until the last activity in it has finished, but nobody may start another.
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

    /// The listener outlives the run of the engine.
    ListenerId add_listener(ActivityListener& listener) {
        listeners_.push_back(&listener);
        return ListenerId(listeners_.size() - 1);
    }

    /// Starts an activity now. It finishes when `amount` units have been served; its listener is told then.
    virtual void start(ClassId id, double amount, ListenerId listener, std::uint64_t token) = 0;

    /// Ends an activity now; its listener hears no more of it. Returns the units that had not been served.
    /// Precondition: the activity has started and its listener has not been told that it finished.
    double cancel(const ActivityHandle& activity);
    /// Stops an activity's progress: it uses nothing until it is resumed. Precondition as of `cancel`, not suspended.
    void suspend(const ActivityHandle& activity);
    /// Precondition: suspended.
    void resume(const ActivityHandle& activity);
    [[nodiscard]] bool suspended(const ActivityHandle& activity) const { return suspended_.count(activity) > 0; }
    /// Bounds the rate of one activity from now on, in units per second; it has a class of its own from then on.
    /// Precondition: under way and not suspended. Returns its new name.
    ActivityHandle set_bound(const ActivityHandle& activity, double rate_bound);

    /// Reports the share of `total` units between nodes that has arrived, where the model counts them.
    virtual void set_progress(double total, const std::function<void(double)>& progress) {
        (void)total;
        (void)progress;
    }
    /// `links`: the first so many resources are those of the fabric.
    [[nodiscard]] virtual ResourceReport report(std::size_t links) const {
        (void)links;
        return {};
    }

    /// Called when nothing is pending any more. Throws InfeasibleError that names what can never finish.
    virtual void require_finished() const {}
    /// What must hold once every activity has finished: nothing is under way, and what was sent has arrived. Throws
    /// InternalError.
    virtual void require_conserved() const;

    static constexpr double kUnbounded = std::numeric_limits<double>::infinity();

  protected:
    /// Holds a class once more.
    virtual void hold_again(ClassId id) = 0;
    /// Takes an activity out of its class; returns what had not been served.
    virtual double withdraw(const ActivityHandle& activity) = 0;
    /// The class of activities like those of `id` but for their bound. Held.
    virtual ClassId hold_bounded(ClassId id, double rate_bound) = 0;

    void tell(ListenerId listener, std::uint64_t token) { listeners_[listener.value()]->on_activity_done(token); }

    // Counted for require_conserved.
    std::uint64_t started_ = 0;
    std::uint64_t ended_ = 0;  ///< finished or withdrawn
    SimTime last_end_;         ///< of the last activity that ended: what utilisation is measured over

  private:
    std::vector<ActivityListener*> listeners_;
    std::map<ActivityHandle, double> suspended_;  ///< with what is left of each
};

}  // namespace orrery::engine
