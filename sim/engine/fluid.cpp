#include "sim/engine/fluid.hpp"

#include "sim/base/random.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace orrery::engine {

namespace {

struct HigherThreshold {
    template <class Member>
    bool operator()(const Member& a, const Member& b) const {
        return a.threshold > b.threshold ||
               (a.threshold == b.threshold && (a.listener != b.listener ? a.listener > b.listener : a.token > b.token));
    }
};

std::uint64_t hash_demands(std::span<const Demand> demands, double rate_bound) {
    std::uint64_t hash = mix64(std::bit_cast<std::uint64_t>(rate_bound));
    for (const Demand& demand : demands) {
        hash = mix64(hash ^ demand.resource.value()) + std::bit_cast<std::uint64_t>(demand.weight);
    }
    return mix64(hash);
}

}  // namespace

FluidModel::FluidModel(Engine& engine, SimTime window)
    : engine_(engine), handler_(engine.add_handler(*this, true)), window_(window) {}

ResourceId FluidModel::add_resource(double capacity) {
    ORRERY_ASSERT(capacity >= 0 && std::isfinite(capacity));
    resources_.emplace_back().capacity = capacity;
    times_.emplace_back();
    return ResourceId(resources_.size() - 1);
}

ResourceId FluidModel::add_resources(std::span<const double> capacities) {
    const std::size_t first = resources_.size();
    resources_.resize(first + capacities.size());
    times_.resize(resources_.size());
    for (std::size_t i = 0; i < capacities.size(); ++i) {
        ORRERY_ASSERT(capacities[i] >= 0 && std::isfinite(capacities[i]));
        resources_[first + i].capacity = capacities[i];
    }
    return ResourceId(first);
}

double FluidModel::capacity(ResourceId resource) const {
    return resources_[resource.value()].capacity;
}

void FluidModel::set_capacity(ResourceId resource, double capacity) {
    ORRERY_ASSERT(capacity >= 0 && std::isfinite(capacity));
    Resource& changed = resources_[resource.value()];
    if (changed.capacity == capacity) {
        return;
    }
    Changed& history = changed_[resource.value()];
    const std::int64_t now = engine_.now().ps();
    history.area += changed.capacity * (static_cast<double>(now - history.since) * 1e-12);
    history.since = now;
    changed.capacity = capacity;
    no_longer_within(resource.value());
    for (std::uint32_t other = 0; changed.bounds && other < resources_.size(); ++other) {
        if (resources_[other].within == resource.value()) {
            no_longer_within(other);
        }
    }
    changed.bounds = false;
    ++capacity_changes_;
    new_capacities_.push_back(resource.value());
}

// A resource is within another if the other is no wider and each class that uses the one puts as much on the other: what it carries is
// then no more than what the other does. Of equally wide ones the first is the narrower, so that none is within itself.
void FluidModel::note_narrower(std::span<const Demand> demands) {
    constexpr std::size_t kPath = 12;  // longer lists are not of one message
    for (std::size_t i = 0; i < demands.size(); ++i) {
        const Demand& own = demands[i];
        Resource& resource = resources_[own.resource.value()];
        if (resource.within == kNone) {
            continue;
        }
        std::uint32_t narrower = kNone;
        for (const std::size_t beside : {i + 1, i - 1}) {
            if (beside >= demands.size() || demands.size() > kPath || demands[beside].weight != own.weight) {
                continue;
            }
            const std::uint32_t other = demands[beside].resource.value();
            const bool less = resources_[other].capacity < resource.capacity ||
                              (resources_[other].capacity == resource.capacity && other < own.resource.value());
            if (less && (resource.within == kUndecided || resource.within == other)) {
                narrower = other;
            }
        }
        const auto same = [&](const Demand& demand) { return demand.resource == own.resource; };
        if (narrower == kNone || std::count_if(demands.begin(), demands.end(), same) > 1) {
            no_longer_within(own.resource.value());
            resource.within = kNone;
        } else {
            resource.within = narrower;
            resources_[narrower].bounds = true;
        }
    }
}

// From now on fills look at a resource that they have passed over.
void FluidModel::no_longer_within(std::uint32_t index) {
    Resource& resource = resources_[index];
    if (!is_within(resource)) {
        return;
    }
    resource.within = kNone;
    for (const User& user : users_.of(resource.users)) {
        slots_[user.slot].passed = 0;
        const Class& c = classes_[owners_[user.slot]];
        if (c.bottleneck != kNone) {
            note_near(c, held_.at(resources_[c.bottleneck].held, c.place));
        }
    }
    if (!resource.users.empty()) {
        sum_load(index);
    }
}

std::uint32_t FluidModel::allocate_slots(std::span<const Demand> demands, std::uint32_t owner) {
    auto first = static_cast<std::uint32_t>(slots_.size());
    const bool used = demands.size() < free_slots_.size() && !free_slots_[demands.size()].empty();
    if (used) {
        first = free_slots_[demands.size()].back();
        free_slots_[demands.size()].pop_back();
    }
    for (std::size_t i = 0; i < demands.size(); ++i) {
        ORRERY_ASSERT(demands[i].resource.value() < resources_.size() && demands[i].weight > 0);
        const Slot slot{demands[i].resource.value(), 0, 0, demands[i].weight};
        if (used) {
            slots_[first + i] = slot;
            owners_[first + i] = owner;
        } else {
            slots_.push_back(slot);
            owners_.push_back(owner);
        }
    }
    return first;
}

ClassId FluidModel::hold(std::span<const Demand> demands, double rate_bound) {
    ORRERY_ASSERT(!demands.empty() || std::isfinite(rate_bound));
    const auto hash = static_cast<std::uint32_t>(hash_demands(demands, rate_bound));
    std::uint32_t id = table_.empty() ? kNone : table_[hash & (table_.size() - 1)];
    for (; id != kNone; id = classes_[id].next_same_hash) {
        Class& c = classes_[id];
        if (c.hash == hash && c.rate_bound == rate_bound && c.slot_count == demands.size() &&
            std::equal(demands.begin(), demands.end(), slots_.begin() + c.first_slot,
                       slots_.begin() + c.first_slot + c.slot_count, [](const Demand& demand, const Slot& slot) {
                           return demand.resource.value() == slot.resource && demand.weight == slot.weight;
                       })) {
            ++c.holds;
            return ClassId(id);
        }
    }
    if (free_classes_.empty()) {
        id = static_cast<std::uint32_t>(classes_.size());
        classes_.emplace_back();
    } else {
        id = free_classes_.back();
        free_classes_.pop_back();
    }
    note_narrower(demands);
    Class& c = classes_[id];
    c.first_slot = allocate_slots(demands, id);
    c.slot_count = static_cast<std::uint32_t>(demands.size());
    c.rate_bound = rate_bound;
    c.solo_rate = solo_rate(c);
    c.capacities = capacity_changes_;
    c.hash = hash;
    c.holds = 1;
    enter_into_table(id);
    return ClassId(id);
}

void FluidModel::enter_into_table(std::uint32_t id) {
    const auto link = [&](std::uint32_t one) {
        std::uint32_t& bucket = table_[classes_[one].hash & (table_.size() - 1)];
        classes_[one].next_same_hash = bucket;
        bucket = one;
    };
    if (table_entries_ == table_.size()) {
        const HugeVector<std::uint32_t> before = std::move(table_);
        table_.assign(std::max<std::size_t>(16, 2 * before.size()), kNone);
        for (std::uint32_t one : before) {
            while (one != kNone) {
                const std::uint32_t next = classes_[one].next_same_hash;
                link(one);
                one = next;
            }
        }
    }
    ++table_entries_;
    link(id);
}

void FluidModel::remove_from_table(std::uint32_t id) {
    std::uint32_t* link = &table_[classes_[id].hash & (table_.size() - 1)];
    while (*link != id) {
        link = &classes_[*link].next_same_hash;
    }
    *link = classes_[id].next_same_hash;
    --table_entries_;
}

double FluidModel::solo_rate(const Class& c) const {
    double rate = c.rate_bound;
    for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
        rate = std::min(rate, resources_[slots_[s].resource].capacity / slots_[s].weight);
    }
    return rate;
}

ClassId FluidModel::hold_bounded(ClassId id, double rate_bound) {
    const Class& c = classes_[id.value()];
    std::vector<Demand> demands;
    for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
        demands.push_back({ResourceId(slots_[s].resource), slots_[s].weight});
    }
    return hold(demands, rate_bound);
}

void FluidModel::release(ClassId id) {
    Class& c = classes_[id.value()];
    ORRERY_ASSERT(c.holds > 0);
    if (--c.holds == 0 && c.members.empty()) {
        touch(id.value());  // freed when the instant settles, unless it is wanted again before
    }
}

void FluidModel::free_class(std::uint32_t id) {
    Class& c = classes_[id];
    remove_from_table(id);
    if (free_slots_.size() <= c.slot_count) {
        free_slots_.resize(c.slot_count + 1);
    }
    free_slots_[c.slot_count].push_back(c.first_slot);
    const ListPool<Member>::List members = c.members;
    c = Class{};
    c.members = members;
    free_classes_.push_back(id);
}

void FluidModel::attach(std::uint32_t id) {
    Class& c = classes_[id];
    c.attached = true;
    if (c.capacities != capacity_changes_) {
        c.solo_rate = solo_rate(c);
        c.capacities = capacity_changes_;
    }
    for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
        Resource& resource = resources_[slots_[s].resource];
        slots_[s].position = resource.users.size & 0x7FFFFFFFU;
        slots_[s].passed = is_within(resource) ? 1 : 0;
        users_.push(resource.users, User{s, kNone, 0});
    }
}

void FluidModel::detach(std::uint32_t id) {
    Class& c = classes_[id];
    c.attached = false;
    for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
        Resource& resource = resources_[slots_[s].resource];
        resource.carried += c.total * slots_[s].weight;
        const std::uint32_t position = slots_[s].position;
        const std::span<User> users = users_.of(resource.users);
        users[position] = users.back();
        slots_[users[position].slot].position = position & 0x7FFFFFFFU;
        ListPool<User>::pop(resource.users);
        if (resource.users.empty()) {
            resource.potential = 0;  // sheds the rounding of many additions and subtractions
            rooms_[slots_[s].resource].load = 0;
        }
    }
    c.served = 0;
    c.total = 0;
    c.rate = 0;
}

void FluidModel::touch(std::uint32_t id) {
    if (!classes_[id].touched) {
        classes_[id].touched = true;
        touched_.push_back(id);
    }
}

void FluidModel::start(ClassId id, double amount, ListenerId listener, std::uint64_t token) {
    ORRERY_ASSERT(amount >= 0 && std::isfinite(amount));
    Class& c = classes_[id.value()];
    ++started_;
    advance(c);
    members_.push(c.members, Member{c.served + amount, token, listener});
    const std::span<Member> members = members_.of(c.members);
    std::push_heap(members.begin(), members.end(), HigherThreshold{});
    touch(id.value());
}

void FluidModel::on_event(std::uint32_t datum) {
    if (datum != wake_generation_) {
        return;  // a later solve moved the next completion
    }
    wake_at_ = -1;
    const std::int64_t now = engine_.now().ps();
    last_end_ = engine_.now();
    finished_.clear();
    while (!heap_.empty() && heap_[0].at <= now) {
        const std::uint32_t id = heap_[0].id;
        heap_remove(id);
        if ((id & kOfResource) != 0) {
            collect_finished(id & ~kOfResource);
        } else {
            finished_.push_back(id);
        }
    }
    std::sort(finished_.begin(), finished_.end());
    for (std::size_t i = 0; i < finished_.size(); ++i) {
        finish_members(finished_[i]);
    }
}

// Half a picosecond of service, or the rounding of the sums, is nothing left. The listener may start activities in this
// very class, so the class is looked up anew each time.
void FluidModel::finish_members(std::uint32_t id) {
    advance(classes_[id]);
    touch(id);
    for (;;) {
        Class& c = classes_[id];
        if (c.members.empty()) {
            break;
        }
        const std::span<Member> members = members_.of(c.members);
        const double left = members.front().threshold - c.served;
        if (left > std::max(rate_of(c) * 0.51e-12, std::max(std::abs(c.served), std::abs(c.joined)) * 4e-16)) {
            break;
        }
        const Member done = members.front();
        std::pop_heap(members.begin(), members.end(), HigherThreshold{});
        ListPool<Member>::pop(c.members);
        ++ended_;
        tell(done.listener, done.token);
    }
}

double FluidModel::withdraw(const ActivityHandle& activity) {
    Class& c = classes_[activity.of.value()];
    const std::span<Member> members = members_.of(c.members);
    const auto member = std::find_if(members.begin(), members.end(), [&](const Member& one) {
        return one.token == activity.token && one.listener == activity.listener;
    });
    ORRERY_ASSERT(member != members.end());
    advance(c);
    const double left = std::max(0.0, member->threshold - c.served);
    *member = members.back();
    ListPool<Member>::pop(c.members);
    std::make_heap(members.begin(), members.end() - 1, HigherThreshold{});
    ++ended_;
    last_end_ = engine_.now();
    touch(activity.of.value());
    return left;
}

void FluidModel::settle() {
    if (touched_.empty() && new_capacities_.empty()) {
        return;
    }
    reaches_.resize(resources_.size());
    queued_.resize(resources_.size(), kNone);
    const std::size_t known = rooms_.size();
    rooms_.resize(resources_.size());
    std::for_each(rooms_.begin() + static_cast<std::ptrdiff_t>(known), rooms_.end(),
                  [](Room& room) { room.key = kUnbounded; });
    seeds_.clear();
    if (!new_capacities_.empty()) {
        apply_capacities();
    }
    for (const std::uint32_t id : touched_) {
        Class& c = classes_[id];
        c.touched = false;
        const auto count = static_cast<double>(c.members.size);
        if (count == c.solved_count && !c.reshaped) {
            if (count > 0) {
                advance(c);
                update_completion(id);
            } else if (c.holds == 0) {
                free_class(id);
            }
            continue;
        }
        advance(c);
        c.reshaped = false;
        c.count = count;
        const double before = rate_of(c);
        if (!c.attached) {
            attach(id);
        } else if (c.bottleneck != kNone) {
            leave(id);
        }
        const double change = count - c.solved_count;
        for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
            Resource& resource = resources_[slots_[s].resource];
            resource.potential += change * slots_[s].weight * c.solo_rate;
            User& user = users_.at(resource.users, slots_[s].position);
            const double use_before = user.use;
            user.use = slots_[s].weight * count;
            user.bottleneck = kNone;
            if (slots_[s].passed != 0) {
                continue;
            }
            Room& room = rooms_[slots_[s].resource];
            room.load -= use_before * before;
            room.weight += user.use;
            room.rising += count > 0 ? 1 : 0;
        }
        c.rate = 0;
        c.rising = count > 0;
        seeds_.push_back(id);
    }
    touched_.clear();
    if (!seeds_.empty() || !reshaped_.empty()) {
        solve();
    }
    update_stale();
    schedule_wake();
}

// What a class could reach alone changes with its resources, and with that what others have to share with it.
void FluidModel::apply_capacities() {
    reshaped_.clear();
    for (const std::uint32_t index : new_capacities_) {
        reshaped_.push_back(index);
        for (const User& user : users_.of(resources_[index].users)) {
            Class& c = classes_[owners_[user.slot]];
            if (c.capacities == capacity_changes_) {
                continue;
            }
            c.capacities = capacity_changes_;
            const double before = c.solo_rate;
            c.solo_rate = solo_rate(c);
            if (c.bottleneck == kNone && c.solved_count > 0) {
                c.reshaped = true;  // its bound may have been this resource, though it coupled nobody
                touch(owners_[user.slot]);
            } else if (c.bottleneck != kNone) {
                held_.at(resources_[c.bottleneck].held, c.place).bounded = true;
            }
            for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
                Resource& resource = resources_[slots_[s].resource];
                resource.potential += c.solved_count * slots_[s].weight * (c.solo_rate - before);
                reshaped_.push_back(slots_[s].resource);
            }
        }
    }
    new_capacities_.clear();
}

void FluidModel::solve() {
    ++solves_;
    fill();
    for (const std::uint32_t id : bounded_) {
        update_completion(id);
    }
    for (const std::uint32_t id : seeds_) {
        Class& c = classes_[id];
        ORRERY_ASSERT(!c.rising);
        c.solved_count = c.count;
        if (c.solved_count == 0) {
            heap_remove(id);
            detach(id);
            if (c.holds == 0) {
                free_class(id);
            }
        }
    }
}

// Sums anew what is otherwise kept by differences.
void FluidModel::sum_load(std::uint32_t index) {
    Room& room = rooms_[index];
    room.unread = 0;
    room.load = 0;
    for (const User& user : users_.of(resources_[index].users)) {
        const double rate = reach(user);
        room.load += rate == kUnbounded ? 0 : user.use * rate;
    }
}

double FluidModel::load(ResourceId resource) const {
    double sum = 0;
    for (const User& user : users_.of(resources_[resource.value()].users)) {
        const Class& c = classes_[owners_[user.slot]];
        sum += slots_[user.slot].weight * rate_of(c) * static_cast<double>(c.members.size);
    }
    return sum;
}

ResourceReport FluidModel::report(std::size_t links) const {
    ResourceReport out;
    out.solves = solves_;
    const double seconds = last_end_.seconds();
    for (std::uint32_t i = 0; i < std::min(links, resources_.size()); ++i) {
        const Resource& resource = resources_[i];
        const double passed = resource.users.empty() ? resource.carried : carried(ResourceId(i));
        if (passed == 0) {
            continue;
        }
        double could = resource.capacity * seconds;
        if (!changed_.empty()) {
            if (const auto entry = changed_.find(i); entry != changed_.end()) {
                // Beyond the last end nothing is counted, but for a change that came after it.
                const SimTime since = SimTime::from_ps(entry->second.since);
                could = entry->second.area + resource.capacity * std::max(0.0, (last_end_ - since).seconds());
            }
        }
        if (could > 0) {
            out.max_link_utilisation = std::max(out.max_link_utilisation, passed / could);
        }
    }
    return out;
}

void FluidModel::require_conserved() const {
    ResourceModel::require_conserved();
    for (const Class& c : classes_) {
        if (!c.members.empty() || c.holds > 0) {
            throw InternalError("a class of activities was not released");
        }
    }
}

double FluidModel::carried(ResourceId resource) const {
    double sum = resources_[resource.value()].carried;
    for (const User& user : users_.of(resources_[resource.value()].users)) {
        const Class& c = classes_[owners_[user.slot]];
        sum += slots_[user.slot].weight * (c.total + (served_now(c) - c.served) * static_cast<double>(c.members.size));
    }
    return sum;
}

}  // namespace orrery::engine
