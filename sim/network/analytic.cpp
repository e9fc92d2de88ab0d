#include "sim/network/analytic.hpp"

#include <algorithm>

namespace orrery::network {

ResourceId AnalyticModel::add_resource(double capacity) {
    resources_.push_back(Resource{capacity, SimTime()});
    return ResourceId(resources_.size() - 1);
}

void AnalyticModel::set_ample(ResourceId resource) {
    resources_[resource.value()].ample_from = resources_[resource.value()].capacity;
}

void AnalyticModel::set_capacity(ResourceId resource, double capacity) {
    ORRERY_ASSERT(capacity >= 0);
    if (resources_[resource.value()].capacity != capacity) {
        resources_[resource.value()].capacity = capacity;
        place_all(resource);
    }
}

ClassId AnalyticModel::hold(std::span<const Demand> demands, double rate_bound) {
    ORRERY_ASSERT(!demands.empty() || rate_bound < kUnbounded);
    return ClassId(classes_.take({{demands.begin(), demands.end()}, rate_bound, 1}));
}

ClassId AnalyticModel::hold_bounded(ClassId id, double rate_bound) {
    const std::vector<Demand> demands = classes_[id.value()].demands;
    return hold(demands, rate_bound);
}

void AnalyticModel::release(ClassId id) {
    drop(id);
}

void AnalyticModel::drop(ClassId id) {
    ORRERY_ASSERT(classes_[id.value()].users > 0);
    if (--classes_[id.value()].users == 0) {
        classes_.give(id.value());
    }
}

void AnalyticModel::start(ClassId id, double amount, ListenerId listener, std::uint64_t token) {
    ++started_;
    ++classes_[id.value()].users;
    place(transfers_.take({id, listener, token, order_++, amount, {}, {}, 0, true}));
}

double AnalyticModel::rate_of(const Class& c) const {
    double rate = c.rate_bound;
    for (const Demand& demand : c.demands) {
        rate = std::min(rate, resources_[demand.resource.value()].capacity / demand.weight);
    }
    return std::max(0.0, rate);
}

// Puts a transfer behind all that each of its resources has to serve; the last of them to serve it says when it ends.
void AnalyticModel::place(std::uint32_t slot) {
    Transfer& transfer = transfers_[slot];
    transfer.rate = rate_of(classes_[transfer.of.value()]);
    if (transfer.rate <= 0) {
        transfer.begin = engine_.now();
        transfer.end = SimTime::max();
        return;  // until a capacity changes
    }
    const SimTime alone = SimTime::from_seconds(transfer.amount / transfer.rate);
    transfer.end = std::max(reserve(transfer, transfer.amount), engine_.now() + alone);
    transfer.begin = transfer.end - alone;
    engine_.schedule(transfer.end, event_order(Phase::network, 1, slot), handler_, slot);
}

// When the last of the resources of a transfer will have served so much of it, behind what each has to serve already.
SimTime AnalyticModel::reserve(const Transfer& transfer, double amount) {
    SimTime end = engine_.now();
    for (const Demand& demand : classes_[transfer.of.value()].demands) {
        Resource& resource = resources_[demand.resource.value()];
        resource.free_at = std::max(resource.free_at, engine_.now()) +
                           SimTime::from_seconds(amount * demand.weight / resource.capacity);
        end = resource.ample() ? end : std::max(end, resource.free_at);
    }
    return end;
}

double AnalyticModel::left(const Transfer& transfer) const {
    const double served = std::max(0.0, (engine_.now() - transfer.begin).seconds()) * transfer.rate;
    return std::max(0.0, transfer.amount - served);
}

void AnalyticModel::book(const Transfer& transfer, double amount) {
    for (const Demand& demand : classes_[transfer.of.value()].demands) {
        resources_[demand.resource.value()].carried += amount * demand.weight;
    }
}

// What is under way goes on as it is, but for what uses the changed resource: that begins anew with what is left of it, in the order
// of starts with what waits, so that nothing carries more than it can.
void AnalyticModel::place_all(ResourceId changed) {
    std::vector<std::uint32_t> slots;
    for (Resource& resource : resources_) {
        resource.free_at = SimTime();
    }
    for (std::uint32_t slot = 0; slot < transfers_.size(); ++slot) {
        Transfer& transfer = transfers_[slot];
        if (!transfer.live) {
            continue;
        }
        const std::vector<Demand>& demands = classes_[transfer.of.value()].demands;
        const bool affected = std::any_of(demands.begin(), demands.end(),
                                          [&](const Demand& demand) { return demand.resource == changed; });
        const bool under_way = transfer.rate > 0 && transfer.begin <= engine_.now();
        const double rest = left(transfer);
        if (under_way && !affected) {
            (void)reserve(transfer, rest);
            continue;
        }
        book(transfer, transfer.amount - rest);
        transfer.amount = rest;
        slots.push_back(slot);
    }
    std::sort(slots.begin(), slots.end(),
              [&](std::uint32_t a, std::uint32_t b) { return transfers_[a].order < transfers_[b].order; });
    for (const std::uint32_t slot : slots) {
        place(slot);
    }
}

double AnalyticModel::withdraw(const ActivityHandle& activity) {
    const auto found = std::find_if(transfers_.begin(), transfers_.end(), [&](const Transfer& one) {
        return one.live && one.of == activity.of && one.listener == activity.listener && one.token == activity.token;
    });
    ORRERY_ASSERT(found != transfers_.end());
    const double rest = left(*found);
    book(*found, found->amount - rest);
    found->live = false;
    drop(found->of);
    transfers_.give(static_cast<std::uint32_t>(found - transfers_.begin()));
    ++ended_;
    last_end_ = engine_.now();
    place_all(ResourceId());
    return rest;
}

void AnalyticModel::on_event(std::uint32_t datum) {
    Transfer& transfer = transfers_[datum];
    if (!transfer.live || transfer.end != engine_.now()) {
        return;  // it was placed anew, or cancelled
    }
    transfer.live = false;
    book(transfer, transfer.amount);
    drop(transfer.of);
    transfers_.give(datum);
    ++ended_;
    last_end_ = engine_.now();
    tell(transfer.listener, transfer.token);
}

ResourceReport AnalyticModel::report(std::size_t links) const {
    ResourceReport out;
    const double seconds = last_end_.seconds();
    for (std::size_t i = 0; i < std::min(links, resources_.size()); ++i) {
        if (resources_[i].capacity > 0 && seconds > 0) {
            out.max_link_utilisation =
                std::max(out.max_link_utilisation, resources_[i].carried / (resources_[i].capacity * seconds));
        }
    }
    return out;
}

}  // namespace orrery::network
