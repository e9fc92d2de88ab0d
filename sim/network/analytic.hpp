#pragma once
// The analytic model: alpha plus the largest backlog over the links, each of which serves transfers in the order they started.
//
// Claims: a transfer alone takes exactly what the fluid model gives it. Each resource works off what it was given without a pause, in
// order, and a transfer ends when the last of its resources has served it: transfers that start together end when the most loaded
// resource is done, and no resource serves more than its capacity. Nobody waits for a resource that
// cannot be full before others on every path through it are (`set_ample`): those are waited for. When a capacity
// changes, what is under way on it is placed anew with what is left of it, in its order; all else that is under way goes on.
// Limits: service is first come, first served and whole-message, so a short transfer behind a long one waits; mean
// completion under contention differs from fair sharing. A resource serves a transfer when its own turn comes, not when the resources
// before it on the path are done with it, as if switches had buffers without end. A change costs time in proportion to the transfers
// under way.
// Validated by tests/sim/engine/resource_model_test.cpp (equal to fluid without contention; capacity never exceeded).

#include "sim/engine/engine.hpp"
#include "sim/engine/resource_model.hpp"
#include "sim/network/slots.hpp"

#include <vector>

namespace orrery::network {

class AnalyticModel final : public ResourceModel, public EventHandler {
  public:
    explicit AnalyticModel(Engine& engine) : engine_(engine), handler_(engine.add_handler(*this)) {}

    ResourceId add_resource(double capacity) override;
    /// What else its transfers use is full before this one is, so long as it has no less than now: nobody waits for it.
    void set_ample(ResourceId resource);
    [[nodiscard]] double capacity(ResourceId resource) const override { return resources_[resource.value()].capacity; }
    void set_capacity(ResourceId resource, double capacity) override;
    ClassId hold(std::span<const Demand> demands, double rate_bound = kUnbounded) override;
    void release(ClassId id) override;
    void start(ClassId id, double amount, ListenerId listener, std::uint64_t token) override;
    [[nodiscard]] ResourceReport report(std::size_t links) const override;
    void on_event(std::uint32_t datum) override;

  private:
    struct Resource {
        double capacity;
        SimTime free_at;                 ///< when it has served all that it was given
        double carried = 0;              ///< units of transfers that have ended
        double ample_from = kUnbounded;  ///< units per second from which on nobody waits for it
        [[nodiscard]] bool ample() const { return capacity >= ample_from; }
    };
    struct Class {
        std::vector<Demand> demands;
        double rate_bound = 0;
        std::uint32_t users = 0;  ///< holds, and transfers under way
    };
    struct Transfer {
        ClassId of;
        ListenerId listener;
        std::uint64_t token = 0;
        std::uint64_t order = 0;  ///< of its start
        double amount = 0;        ///< left at `begin`
        SimTime begin;            ///< as if it had had its full rate until its end
        SimTime end;              ///< events at other times are of earlier placements
        double rate = 0;          ///< 0: it waits for a capacity
        bool live = false;
    };
    void hold_again(ClassId id) override { ++classes_[id.value()].users; }
    double withdraw(const ActivityHandle& activity) override;
    ClassId hold_bounded(ClassId id, double rate_bound) override;
    void place(std::uint32_t slot);
    SimTime reserve(const Transfer& transfer, double amount);
    [[nodiscard]] double rate_of(const Class& c) const;
    void place_all(ResourceId changed);
    [[nodiscard]] double left(const Transfer& transfer) const;
    void drop(ClassId id);
    void book(const Transfer& transfer, double amount);

    Engine& engine_;
    std::uint32_t handler_;
    std::vector<Resource> resources_;
    Slots<Class> classes_;
    Slots<Transfer> transfers_;
    std::uint64_t order_ = 0;
};

}  // namespace orrery::network
