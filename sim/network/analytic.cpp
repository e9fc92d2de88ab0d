#include "sim/network/analytic.hpp"

#include <algorithm>

namespace orrery {

ResourceId AnalyticModel::add_resource(double capacity) {
    resources_.push_back(Resource{capacity, SimTime()});
    return ResourceId(resources_.size() - 1);
}

ClassId AnalyticModel::hold(std::span<const Demand> demands, double rate_bound) {
    ORRERY_ASSERT(!demands.empty() || rate_bound < kUnbounded);
    Class c{{demands.begin(), demands.end()}, rate_bound};
    if (free_classes_.empty()) {
        classes_.push_back(std::move(c));
        return ClassId(classes_.size() - 1);
    }
    const std::uint32_t id = free_classes_.back();
    free_classes_.pop_back();
    classes_[id] = std::move(c);
    return ClassId(id);
}

void AnalyticModel::release(ClassId id) {
    free_classes_.push_back(id.value());
}

void AnalyticModel::start(ClassId id, double amount, std::uint64_t cookie) {
    const Class& c = classes_[id.value()];
    SimTime begin = engine_.now();
    double rate = c.rate_bound;
    for (const Demand& demand : c.demands) {
        const Resource& resource = resources_[demand.resource.value()];
        begin = std::max(begin, resource.free_at);
        rate = std::min(rate, resource.capacity / demand.weight);
    }
    if (rate <= 0) {
        return;  // never finishes; the executor reports it
    }
    for (const Demand& demand : c.demands) {
        Resource& resource = resources_[demand.resource.value()];
        resource.free_at = begin + SimTime::from_seconds(amount * demand.weight / resource.capacity);
    }
    std::uint32_t slot = 0;
    if (free_cookies_.empty()) {
        slot = static_cast<std::uint32_t>(cookies_.size());
        cookies_.push_back(cookie);
    } else {
        slot = free_cookies_.back();
        free_cookies_.pop_back();
        cookies_[slot] = cookie;
    }
    engine_.schedule(begin + SimTime::from_seconds(amount / rate), event_order(Phase::network, 1, slot), handler_,
                     slot);
}

void AnalyticModel::on_event(std::uint32_t datum) {
    free_cookies_.push_back(datum);
    listener_->on_activity_done(cookies_[datum]);
}

}  // namespace orrery
