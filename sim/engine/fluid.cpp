#include "sim/engine/fluid.hpp"

#include "sim/base/random.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace orrery::inline engine {

namespace {

// A rate that moved by less than this (relative) counts as unchanged: it is the noise of summing in another order.
constexpr double kSameRate = 1e-14;
constexpr std::uint32_t kMaxRepairBackoff = 256;

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
    return ResourceId(resources_.size() - 1);
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
    ++capacity_changes_;
    new_capacities_.push_back(resource.value());
}

std::uint32_t FluidModel::allocate_slots(std::span<const Demand> demands) {
    std::uint32_t first = 0;
    if (demands.size() < free_slots_.size() && !free_slots_[demands.size()].empty()) {
        first = free_slots_[demands.size()].back();
        free_slots_[demands.size()].pop_back();
    } else {
        first = static_cast<std::uint32_t>(slots_.size());
        slots_.resize(slots_.size() + demands.size());
    }
    for (std::size_t i = 0; i < demands.size(); ++i) {
        ORRERY_ASSERT(demands[i].resource.value() < resources_.size() && demands[i].weight > 0);
        slots_[first + i] = Slot{demands[i].resource.value(), 0, demands[i].weight};
    }
    return first;
}

ClassId FluidModel::hold(std::span<const Demand> demands, double rate_bound) {
    ORRERY_ASSERT(!demands.empty() || std::isfinite(rate_bound));
    const std::uint64_t hash = hash_demands(demands, rate_bound);
    const auto [bucket, inserted] = by_hash_.try_emplace(hash, kNone);
    for (std::uint32_t id = bucket->second; id != kNone; id = classes_[id].next_same_hash) {
        Class& c = classes_[id];
        if (c.rate_bound == rate_bound &&
            std::equal(demands.begin(), demands.end(), slots_.begin() + c.first_slot,
                       slots_.begin() + c.first_slot + c.slot_count, [](const Demand& demand, const Slot& slot) {
                           return demand.resource.value() == slot.resource && demand.weight == slot.weight;
                       })) {
            ++c.holds;
            return ClassId(id);
        }
    }
    std::uint32_t id = 0;
    if (free_classes_.empty()) {
        id = static_cast<std::uint32_t>(classes_.size());
        classes_.emplace_back();
    } else {
        id = free_classes_.back();
        free_classes_.pop_back();
    }
    Class& c = classes_[id];
    c.first_slot = allocate_slots(demands);
    c.slot_count = static_cast<std::uint32_t>(demands.size());
    c.rate_bound = rate_bound;
    c.solo_rate = solo_rate(c);
    c.capacities = capacity_changes_;
    c.hash = hash;
    c.next_same_hash = bucket->second;
    bucket->second = id;
    c.holds = 1;
    return ClassId(id);
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
    const auto bucket = by_hash_.find(c.hash);
    std::uint32_t* link = &bucket->second;
    while (*link != id) {
        link = &classes_[*link].next_same_hash;
    }
    *link = c.next_same_hash;
    if (bucket->second == kNone) {
        by_hash_.erase(bucket);
    }
    if (free_slots_.size() <= c.slot_count) {
        free_slots_.resize(c.slot_count + 1);
    }
    free_slots_[c.slot_count].push_back(c.first_slot);
    std::vector<Member> members = std::move(c.members);
    members.clear();
    c = Class{};
    c.members = std::move(members);
    free_classes_.push_back(id);
}

void FluidModel::attach(std::uint32_t id) {
    Class& c = classes_[id];
    c.attached = true;
    ++attached_count_;
    if (c.capacities != capacity_changes_) {
        c.solo_rate = solo_rate(c);
        c.capacities = capacity_changes_;
    }
    for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
        Resource& resource = resources_[slots_[s].resource];
        slots_[s].position = static_cast<std::uint32_t>(resource.users.size());
        resource.users.push_back(User{id, s, slots_[s].weight});
    }
}

void FluidModel::detach(std::uint32_t id) {
    Class& c = classes_[id];
    c.attached = false;
    --attached_count_;
    for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
        Resource& resource = resources_[slots_[s].resource];
        resource.carried += c.total * slots_[s].weight;
        const std::uint32_t position = slots_[s].position;
        resource.users[position] = resource.users.back();
        slots_[resource.users[position].slot].position = position;
        resource.users.pop_back();
        if (resource.users.empty()) {
            resource.potential = 0;  // sheds the rounding of many additions and subtractions
        }
    }
    c.served = 0;
    c.total = 0;
    c.rate = 0;
    set_bottleneck(c, kNone);
}

void FluidModel::touch(std::uint32_t id) {
    if (!classes_[id].touched) {
        classes_[id].touched = true;
        touched_.push_back(id);
    }
}

void FluidModel::advance(Class& c) {
    const std::int64_t now = engine_.now().ps();
    if (c.served_at != now) {
        const double service = c.rate * (static_cast<double>(now - c.served_at) * 1e-12);
        c.served += service;
        c.total += service * static_cast<double>(c.members.size());
        c.served_at = now;
    }
}

void FluidModel::start(ClassId id, double amount, ListenerId listener, std::uint64_t token) {
    ORRERY_ASSERT(amount >= 0 && std::isfinite(amount));
    Class& c = classes_[id.value()];
    ++started_;
    advance(c);
    c.members.push_back(Member{c.served + amount, token, listener});
    std::push_heap(c.members.begin(), c.members.end(), HigherThreshold{});
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
        finished_.push_back(heap_[0].id);
        heap_remove(heap_[0].id);
    }
    for (std::size_t i = 0; i < finished_.size(); ++i) {
        const std::uint32_t id = finished_[i];
        advance(classes_[id]);
        touch(id);
        // Half a picosecond of service, or the rounding of the sums, is nothing left. The listener may start
        // activities in this very class, so the class is looked up anew each time.
        for (;;) {
            Class& c = classes_[id];
            if (c.members.empty()) {
                break;
            }
            const double left = c.members.front().threshold - c.served;
            if (left > std::max(c.rate * 0.51e-12, std::abs(c.served) * 4e-16)) {
                break;
            }
            const Member done = c.members.front();
            std::pop_heap(c.members.begin(), c.members.end(), HigherThreshold{});
            c.members.pop_back();
            ++ended_;
            tell(done.listener, done.token);
        }
    }
}

double FluidModel::withdraw(const ActivityHandle& activity) {
    Class& c = classes_[activity.of.value()];
    const auto member = std::find_if(c.members.begin(), c.members.end(), [&](const Member& one) {
        return one.token == activity.token && one.listener == activity.listener;
    });
    ORRERY_ASSERT(member != c.members.end());
    advance(c);
    const double left = std::max(0.0, member->threshold - c.served);
    *member = c.members.back();
    c.members.pop_back();
    std::make_heap(c.members.begin(), c.members.end(), HigherThreshold{});
    ++ended_;
    last_end_ = engine_.now();
    touch(activity.of.value());
    return left;
}

void FluidModel::update_completion(std::uint32_t id) {
    Class& c = classes_[id];
    if (c.members.empty() || c.rate <= 0) {
        heap_remove(id);
        return;
    }
    const double left = std::max(0.0, c.members.front().threshold - c.served) / c.rate;
    const SimTime at = SimTime::from_ps(c.served_at) + SimTime::from_seconds(left);
    heap_update(id, std::max(at.ps(), engine_.now().ps()));
}

void FluidModel::settle() {
    if (touched_.empty() && new_capacities_.empty()) {
        return;
    }
    seeds_.clear();
    if (!new_capacities_.empty()) {
        apply_capacities();
    }
    for (const std::uint32_t id : touched_) {
        Class& c = classes_[id];
        c.touched = false;
        const auto count = static_cast<double>(c.members.size());
        c.count = count;
        if (count == c.solved_count) {
            if (count > 0) {
                advance(c);
                update_completion(id);
            } else if (c.holds == 0) {
                free_class(id);
            }
            continue;
        }
        advance(c);
        if (!c.attached) {
            attach(id);
        }
        const double change = count - c.solved_count;
        for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
            resources_[slots_[s].resource].potential += change * slots_[s].weight * c.solo_rate;
        }
        seeds_.push_back(id);
    }
    touched_.clear();
    if (!seeds_.empty() || !reshaped_.empty()) {
        solve();
    }
    schedule_wake();
}

// What a class could reach alone changes with its resources, and with that what others have to share with it.
void FluidModel::apply_capacities() {
    reshaped_.clear();
    for (const std::uint32_t index : new_capacities_) {
        reshaped_.push_back(index);
        for (const User& user : resources_[index].users) {
            Class& c = classes_[user.owner];
            if (c.capacities == capacity_changes_) {
                continue;
            }
            c.capacities = capacity_changes_;
            const double before = c.solo_rate;
            c.solo_rate = solo_rate(c);
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
    // Who has left holds nobody back, and where nobody else was held back its share is wanted by nobody.
    for (const std::uint32_t id : seeds_) {
        if (classes_[id].count == 0) {
            set_bottleneck(classes_[id], kNone);
        }
    }
    // Local repair first; where it keeps failing (dense traffic), only now and then.
    bool repaired = false;
    if (!reshaped_.empty()) {
        fill_after_capacities();
        repaired = true;
    } else if (repair_pause_ == 0) {
        repaired = repair();
        repair_backoff_ = repaired ? 1 : std::min(2 * repair_backoff_, kMaxRepairBackoff);
        repair_pause_ = repaired ? 0 : repair_backoff_;
    } else {
        --repair_pause_;
    }
    if (!repaired) {
        fill_from_level();
    }
    classes_filled_ += affected_classes_.size();
    for (const std::uint32_t id : affected_classes_) {
        Class& c = classes_[id];
        set_bottleneck(c, c.new_bottleneck);
        if (std::abs(c.new_rate - c.rate) > kSameRate * c.rate) {
            advance(c);
            c.rate = c.new_rate;
            update_completion(id);
        }
    }
    for (const std::uint32_t id : seeds_) {
        Class& c = classes_[id];
        c.solved_count = c.count;
        if (c.solved_count == 0) {
            heap_remove(id);
            detach(id);
            if (c.holds == 0) {
                free_class(id);
            }
        } else {
            update_completion(id);
        }
    }
}

void FluidModel::set_bottleneck(Class& c, std::uint32_t resource) {
    if (c.bottleneck != kNone) {
        --resources_[c.bottleneck].held_back;
    }
    if (resource != kNone) {
        ++resources_[resource].held_back;
    }
    c.bottleneck = resource;
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

double FluidModel::load(ResourceId resource) const {
    double sum = 0;
    for (const User& user : resources_[resource.value()].users) {
        const Class& c = classes_[user.owner];
        sum += user.weight * c.rate * static_cast<double>(c.members.size());
    }
    return sum;
}

ResourceReport FluidModel::report(std::size_t links) const {
    ResourceReport out;
    out.solves = solves_;
    for (std::uint32_t i = 0; i < std::min(links, resources_.size()); ++i) {
        double could = resources_[i].capacity * last_end_.seconds();
        if (const auto entry = changed_.find(i); entry != changed_.end()) {
            // Beyond the last end nothing is counted, but for a change that came after it.
            const SimTime since = SimTime::from_ps(entry->second.since);
            could = entry->second.area + resources_[i].capacity * std::max(0.0, (last_end_ - since).seconds());
        }
        if (could > 0) {
            out.max_link_utilisation = std::max(out.max_link_utilisation, carried(ResourceId(i)) / could);
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
    for (const User& user : resources_[resource.value()].users) {
        const Class& c = classes_[user.owner];
        const double since = static_cast<double>(engine_.now().ps() - c.served_at) * 1e-12;
        sum += user.weight * (c.total + c.rate * since * static_cast<double>(c.members.size()));
    }
    return sum;
}

void FluidModel::place_at(std::uint32_t position, const Completion& entry) {
    heap_[position] = entry;
    classes_[entry.id].heap_position = position;
}

void FluidModel::heap_update(std::uint32_t id, std::int64_t key) {
    const std::uint32_t position = classes_[id].heap_position;
    if (position == kNone) {
        heap_.push_back({key, id});
        sift_up(static_cast<std::uint32_t>(heap_.size() - 1));
    } else if (key != heap_[position].at) {
        heap_[position].at = key;
        sift_up(position);
        sift_down(classes_[id].heap_position);
    }
}

void FluidModel::heap_remove(std::uint32_t id) {
    const std::uint32_t position = classes_[id].heap_position;
    if (position == kNone) {
        return;
    }
    classes_[id].heap_position = kNone;
    const Completion last = heap_.back();
    heap_.pop_back();
    if (last.id != id) {
        place_at(position, last);
        sift_up(position);
        sift_down(classes_[last.id].heap_position);
    }
}

void FluidModel::sift_up(std::uint32_t position) {
    const Completion entry = heap_[position];
    while (position > 0) {
        const std::uint32_t parent = (position - 1) / 2;
        if (!(entry < heap_[parent])) {
            break;
        }
        place_at(position, heap_[parent]);
        position = parent;
    }
    place_at(position, entry);
}

void FluidModel::sift_down(std::uint32_t position) {
    const Completion entry = heap_[position];
    for (;;) {
        std::uint32_t child = 2 * position + 1;
        if (child >= heap_.size()) {
            break;
        }
        if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) {
            ++child;
        }
        if (!(heap_[child] < entry)) {
            break;
        }
        place_at(position, heap_[child]);
        position = child;
    }
    place_at(position, entry);
}

}  // namespace orrery::inline engine
