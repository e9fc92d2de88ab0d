#pragma once
// Analytic sharing: alpha plus the largest bytes/capacity over the links, with reservation in order of start.
//
// Claims: a transfer alone takes exactly what the fluid model gives it. Transfers that overlap on a resource are served
// one after another in the order they started, so no resource ever carries more than its capacity.
// Limits: service is first come, first served and whole-message, so a short transfer behind a long one waits; mean
// completion under contention differs from fair sharing. No rate changes once a transfer is placed.
// Validated by tests/sim/network/analytic_test.cpp (equal to fluid without contention; capacity never exceeded).

#include "sim/engine/engine.hpp"
#include "sim/engine/resource_model.hpp"

#include <vector>

namespace orrery {

class AnalyticModel final : public ResourceModel, public EventHandler {
  public:
    explicit AnalyticModel(Engine& engine) : engine_(engine), handler_(engine.add_handler(*this)) {}

    ResourceId add_resource(double capacity) override;
    [[nodiscard]] double capacity(ResourceId resource) const override { return resources_[resource.value()].capacity; }
    ClassId hold(std::span<const Demand> demands, double rate_bound = kUnbounded) override;
    void release(ClassId id) override;
    void start(ClassId id, double amount, std::uint64_t cookie) override;
    void set_listener(ActivityListener& listener) override { listener_ = &listener; }
    void on_event(std::uint32_t datum) override;

  private:
    struct Resource {
        double capacity;
        SimTime free_at;  ///< reserved until then
    };
    struct Class {
        std::vector<Demand> demands;
        double rate_bound;
    };
    Engine& engine_;
    std::uint32_t handler_;
    ActivityListener* listener_ = nullptr;
    std::vector<Resource> resources_;
    std::vector<Class> classes_;
    std::vector<std::uint32_t> free_classes_;
    std::vector<std::uint64_t> cookies_;  ///< by event datum
    std::vector<std::uint32_t> free_cookies_;
};

}  // namespace orrery
