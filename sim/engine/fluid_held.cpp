// Virtual time of FluidModel: which of the classes that a resource holds back finishes next.
//
// All of them are served at the resource's level, so one integral of it stands for all: a class that joins at virtual time v
// with an amount a left finishes at virtual time v + a, whatever the level does until then.

#include "sim/engine/fluid.hpp"
#include "sim/engine/heap.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::engine {

namespace {

// A rate that moved by less than this (relative) counts as unchanged: it is the noise of summing in another order.
constexpr double kSameRate = 1e-14;
// A virtual time starts anew this often, so that its rounding stays far below a picosecond of service.
constexpr std::int64_t kRestart = 100'000'000'000'000;
constexpr double kSecondsPerTick = 1e-12;

}  // namespace

double FluidModel::virtual_now(std::uint32_t resource) const {
    const VirtualTime& time = times_[resource];
    const std::int64_t since = engine_.now().ps() - time.at;
    return time.served + rooms_[resource].level * (static_cast<double>(since) * kSecondsPerTick);
}

// What each member has been served since the class was last empty.
double FluidModel::served_now(const Class& c) const {
    const std::int64_t since = engine_.now().ps() - c.served_at;
    return c.served + (c.bottleneck == kNone ? c.rate * (static_cast<double>(since) * kSecondsPerTick)
                                             : virtual_now(c.bottleneck) - c.joined);
}

void FluidModel::advance(Class& c) {
    const std::int64_t now = engine_.now().ps();
    if (c.served_at != now) {
        const double served = served_now(c);
        c.total += (served - c.served) * static_cast<double>(c.members.size);
        c.served = served;
        c.served_at = now;
        if (c.bottleneck != kNone) {
            c.joined = virtual_now(c.bottleneck);
        }
    }
}

void FluidModel::advance_resource(std::uint32_t index) {
    VirtualTime& time = times_[index];
    const std::int64_t now = engine_.now().ps();
    if (time.at == now) {
        return;
    }
    time.served = virtual_now(index);
    time.at = now;
    const ListPool<Held>::List& all = resources_[index].held;
    if (all.empty()) {
        time.served = 0;
        time.since = now;
    } else if (now - time.since > kRestart) {
        for (Held& held : held_.of(all)) {
            Class& c = classes_[held.owner];
            advance(c);
            c.joined = 0;
            held.finish -= time.served;
        }
        time.served = 0;
        time.since = now;
    }
}

// Precondition: the class has been served up to now and is held back by nothing.
void FluidModel::join(std::uint32_t id, std::uint32_t resource) {
    advance_resource(resource);
    Class& c = classes_[id];
    Resource& r = resources_[resource];
    c.bottleneck = resource;
    c.joined = times_[resource].served;
    Held held{c.joined + std::max(0.0, members_.at(c.members, 0).threshold - c.served), 0, id, true, true, {}};
    note_near(c, held);
    held_.push(r.held, held);
    r.held_use += use_of(c, resource);
    sift(held_.of(r.held), r.held.size - 1, [&](const Held& one, std::uint32_t at) { classes_[one.owner].place = at; });
    set_bottleneck_of_users(c);
    mark_stale(resource);
}

void FluidModel::note_near(const Class& c, Held& held) const {
    held.near.fill(kNone);
    held.plain = true;
    const std::span<const Slot> slots(slots_.data() + c.first_slot, c.slot_count);
    std::size_t near = 0;
    std::uint32_t own = 0;
    for (const Slot& slot : slots) {
        held.plain = held.plain && slot.weight == slots[0].weight;
        if (slot.resource == c.bottleneck) {
            held.bounded = c.solo_rate < resources_[slot.resource].capacity / slot.weight;
            ++own;
        } else if (slot.passed != 0) {
            continue;
        } else if (near < Held::kNear) {
            held.near[near++] = slot.resource;
        } else {
            held.plain = false;
        }
    }
    held.plain = held.plain && own == 1;
    held.use = slots[0].weight * c.count;
}

void FluidModel::leave(std::uint32_t id) {
    Class& c = classes_[id];
    advance(c);
    ListPool<Held>::List& held = resources_[c.bottleneck].held;
    take_out(held_.of(held), c.place, [&](const Held& one, std::uint32_t at) { classes_[one.owner].place = at; });
    ListPool<Held>::pop(held);
    double& use = resources_[c.bottleneck].held_use;
    use = held.empty() ? 0 : use - use_of(c, c.bottleneck);
    mark_stale(c.bottleneck);
    c.place = kNone;
    c.bottleneck = kNone;
}

void FluidModel::set_bottleneck_of_users(const Class& c) {
    for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
        users_.at(resources_[slots_[s].resource].users, slots_[s].position).bottleneck = c.bottleneck;
    }
}

double FluidModel::use_of(const Class& c, std::uint32_t resource) const {
    double use = 0;
    for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
        use += slots_[s].resource == resource ? users_.at(resources_[resource].users, slots_[s].position).use : 0;
    }
    return use;
}

void FluidModel::set_level(std::uint32_t index, double level) {
    advance_resource(index);
    Room& room = rooms_[index];
    if (std::abs(level - room.level) > kSameRate * room.level) {
        room.level = level;
        mark_stale(index);
    }
}

void FluidModel::mark_stale(std::uint32_t index) {
    if (!resources_[index].stale) {
        resources_[index].stale = true;
        stale_.push_back(index);
    }
}

// The classes that are done now, of those that a resource holds back, to `finished_`. Half a picosecond of service, or the
// rounding of the sums, is nothing left.
void FluidModel::collect_finished(std::uint32_t index) {
    advance_resource(index);
    mark_stale(index);
    const Resource& r = resources_[index];
    const std::span<const Held> held = held_.of(r.held);
    const double served = times_[index].served;
    const double until = served + std::max(rooms_[index].level * 0.51e-12, std::abs(served) * 4e-16);
    due_.assign(1, 0);
    while (!due_.empty()) {
        const std::uint32_t at = due_.back();
        due_.pop_back();
        if (at < held.size() && held[at].finish <= until) {
            finished_.push_back(held[at].owner);
            due_.push_back(2 * at + 1);
            due_.push_back(2 * at + 2);
        }
    }
}

// Precondition: the class has been served up to now.
void FluidModel::update_completion(std::uint32_t id) {
    const Class& c = classes_[id];
    const double left = std::max(0.0, members_.at(c.members, 0).threshold - c.served);
    if (c.bottleneck != kNone) {
        const std::span<Held> held = held_.of(resources_[c.bottleneck].held);
        held[c.place].finish = c.joined + left;
        sift(held, c.place, [&](const Held& one, std::uint32_t at) { classes_[one.owner].place = at; });
        mark_stale(c.bottleneck);
    } else if (c.rate <= 0) {
        heap_remove(id);
    } else {
        heap_update(id, (engine_.now() + SimTime::from_seconds(left / c.rate)).ps());
    }
}

void FluidModel::update_stale() {
    for (const std::uint32_t index : stale_) {
        Resource& r = resources_[index];
        r.stale = false;
        const double level = rooms_[index].level;
        if (r.held.empty() || level <= 0) {
            heap_remove(index | kOfResource);
            continue;
        }
        const double left = std::max(0.0, held_.at(r.held, 0).finish - times_[index].served) / level;
        const SimTime at = SimTime::from_ps(times_[index].at) + SimTime::from_seconds(left);
        heap_update(index | kOfResource, std::max(at.ps(), engine_.now().ps()));
    }
    stale_.clear();
}

void FluidModel::schedule_wake() {
    if (heap_.empty()) {
        return;
    }
    const std::int64_t next = heap_[0].at;
    if (wake_at_ >= 0 && next == wake_at_) {
        return;
    }
    if (wake_at_ >= 0 && window_.ps() > 0 && next >= wake_at_ - window_.ps() && next <= wake_at_) {
        return;  // the wake already planned is within this completion's window
    }
    ++wake_generation_;
    wake_at_ = (SimTime::from_ps(next) + window_).ps();
    engine_.schedule(SimTime::from_ps(wake_at_), event_order(Phase::network, 0, wake_generation_), handler_,
                     wake_generation_);
}

std::uint32_t& FluidModel::heap_position(std::uint32_t id) {
    return (id & kOfResource) != 0 ? times_[id & ~kOfResource].heap_position : classes_[id].heap_position;
}

void FluidModel::heap_update(std::uint32_t id, std::int64_t key) {
    const std::uint32_t position = heap_position(id);
    const auto place = [&](const Completion& one, std::uint32_t at) { heap_position(one.id) = at; };
    if (position == kNone) {
        heap_.push_back({key, id});
        sift(std::span(heap_), heap_.size() - 1, place);
    } else if (key != heap_[position].at) {
        heap_[position].at = key;
        sift(std::span(heap_), position, place);
    }
}

void FluidModel::heap_remove(std::uint32_t id) {
    const std::uint32_t position = heap_position(id);
    if (position != kNone) {
        heap_position(id) = kNone;
        take_out(std::span(heap_), position,
                 [&](const Completion& one, std::uint32_t at) { heap_position(one.id) = at; });
        heap_.pop_back();
    }
}

}  // namespace orrery::engine
