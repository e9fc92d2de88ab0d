// The fill of FluidModel: which rates follow from a change, in one pass over rising levels.
//
// An allocation is max-min fair exactly when each class has a saturated resource on which no rate is higher, or meets its
// own bound. Changed classes begin to rise from zero, all others are fixed at their rates. The pass raises one level for
// all that rise, and stops where that condition could break:
//   * a resource saturates at level x. Fixed users with higher rates must fall to it: their bottlenecks are opened, that
//     is, all that they hold back rises from x on. What rose on the resource is frozen at x.
//   * the level reaches that of a resource which holds fixed classes back. If what rose on it was frozen at the rates that
//     it had, nothing has changed; else it is opened and its classes rise on.
//   * a class that rises meets its own bound.
// Whatever is opened had its level at or above that of the pass, and so has all that its classes use; so nothing that the pass
// has left behind changes again, and one pass suffices. A resource is read only once something on it has changed.

#include "sim/engine/fluid.hpp"

#include <algorithm>

namespace orrery::inline engine {

namespace {

// Rates closer than kTie (relative) count as equal, a resource filled to 1 - kSaturated as full: above the rounding of
// sums, far below anything that shows in a completion time.
constexpr double kTie = 1e-12;
constexpr double kSaturated = 1e-11;
// A level that rises by less than this does not rise: the noise of one sum.
constexpr double kSameLevel = 1e-14;

}  // namespace

// A resource couples its users if they could demand more than it has, or if it holds somebody back.
bool FluidModel::couples(const Resource& resource) const {
    return !resource.held.empty() || resource.potential > resource.capacity * (1 + 1e-13);
}

bool FluidModel::rises(const Class& c) const {
    return c.bottleneck == kNone ? c.rising : shares_[c.bottleneck].filling == Filling::rising;
}

// The rate at which a user is fixed; without bound while it rises.
double FluidModel::reach(const User& user) const {
    if (user.bottleneck != kNone) {
        return reaches_[user.bottleneck];
    }
    const Class& c = classes_[owners_[user.slot]];
    return c.rising ? kUnbounded : c.rate;
}

void FluidModel::fill() {
    ++set_epoch_;
    included_.clear();
    bounded_.clear();
    levels_.clear();
    for (const std::uint32_t id : seeds_) {
        const Class& c = classes_[id];
        for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
            // Who leaves wakes nobody where nobody was held back.
            const Resource& resource = resources_[slots_[s].resource];
            if (c.count > 0 ? couples(resource) : !resource.held.empty()) {
                include(slots_[s].resource, 0);
            }
        }
    }
    for (const std::uint32_t index : reshaped_) {
        include(index, 0);
    }
    reshaped_.clear();
    for (const std::uint32_t index : included_) {
        queue(index, 0);
    }
    for (const std::uint32_t id : seeds_) {
        if (classes_[id].count > 0) {
            ++classes_filled_;
            queue_bound(id);
        }
    }
    double floor = 0;
    while (!levels_.empty()) {
        std::pop_heap(levels_.begin(), levels_.end());
        const Level top = levels_.back();
        levels_.pop_back();
        if (top.is_class) {
            if (rises(classes_[top.index])) {
                floor = std::max(floor, top.level);
                freeze(top.index, floor, kNone);
            }
            continue;
        }
        Room& room = rooms_[top.index];
        if (!room.queued || room.key != top.level) {
            continue;  // another entry of it came earlier
        }
        room.queued = false;
        const double level = next_look(top.index, floor);
        if (level > top.level && !levels_.empty() && level > levels_.front().level) {
            queue(top.index, floor);  // others froze below: it saturates later than was thought
        } else if (level != kUnbounded) {
            floor = std::max(floor, fill_from(top.index, level));
        }
    }
    for (const std::uint32_t index : included_) {
        ORRERY_ASSERT(shares_[index].filling != Filling::rising || resources_[index].held.empty());
        shares_[index].filling = Filling::fixed;
        reaches_[index] = shares_[index].level;
    }
}

// A resource whose users have changed, or will: what its fixed users leave to those that rise.
void FluidModel::include(std::uint32_t index, double floor) {
    Room& room = rooms_[index];
    if (room.in_set == set_epoch_) {
        return;
    }
    room.in_set = set_epoch_;
    included_.push_back(index);
    room.rising = 0;
    room.queued = false;
    room.cut = floor * (1 + kTie);
    double free = resources_[index].capacity;
    double weight = 0;
    double low_free = free;
    double low_weight = 0;
    for (const User& user : users_.of(resources_[index].users)) {
        const double rate = reach(user);
        const bool rising = rate == kUnbounded;
        const bool above = rate > room.cut;
        const double used = rising ? 0 : user.use * rate;
        room.rising += rising ? 1 : 0;
        weight += rising ? user.use : 0;
        low_weight += above ? user.use : 0;
        free -= used;
        low_free -= above ? 0 : used;
    }
    room.free = free;
    room.weight = weight;
    room.low_free = low_free;
    room.low_weight = low_weight;
}

// The least level at which something may have to be done about a resource.
double FluidModel::next_look(std::uint32_t index, double floor) const {
    const Room& room = rooms_[index];
    const Share& share = shares_[index];
    double level = kUnbounded;
    if (share.filling == Filling::settled) {
        return level;
    }
    if (room.rising > 0 || room.free < -kSaturated * resources_[index].capacity) {
        level = room.low_weight > 0 ? std::max(floor, room.low_free / room.low_weight) : floor;
    }
    if (share.filling == Filling::fixed && !resources_[index].held.empty()) {
        level = std::min(level, std::max(floor, share.level));
    }
    return level;
}

void FluidModel::queue(std::uint32_t index, double floor) {
    Room& room = rooms_[index];
    const double key = next_look(index, floor);
    if (key != kUnbounded && (!room.queued || key < room.key)) {
        room.key = key;
        room.queued = true;
        levels_.push_back(Level{key, index, false});
        std::push_heap(levels_.begin(), levels_.end());
    }
}

// A class may meet its own bound, or what it gets alone on resources that couple nothing, before any other saturates.
void FluidModel::queue_bound(std::uint32_t id) {
    const Class& c = classes_[id];
    double bound = c.rate_bound;
    double others = kUnbounded;
    for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
        const std::uint32_t index = slots_[s].resource;
        double& least = rooms_[index].in_set == set_epoch_ ? others : bound;
        least = std::min(least, resources_[index].capacity / slots_[s].weight);
    }
    if (bound < others) {
        levels_.push_back(Level{bound, id, true});
        std::push_heap(levels_.begin(), levels_.end());
    }
}

// The level has come to where something happens at a resource. Returns the level of the pass afterwards.
double FluidModel::fill_from(std::uint32_t index, double level) {
    const Resource& resource = resources_[index];
    const Room& room = rooms_[index];
    const Share& share = shares_[index];
    const bool at_own = share.filling == Filling::fixed && !resource.held.empty() && level >= share.level * (1 - kTie);
    if (at_own) {
        const double full = kSaturated * resource.capacity;
        if (room.rising > 0 ? room.free / room.weight > share.level * (1 + kTie) : room.free > full) {
            open(index, level);
            queue(index, level);
            return level;
        }
        if (room.rising == 0 && room.free >= -full) {
            return level;  // as it was
        }
    }
    double saturates = level;
    // No further than where something else may happen: on another resource, or to those that this one holds back.
    double next = kUnbounded;
    if (!at_own) {
        next = levels_.empty() ? kUnbounded : levels_.front().level;
        next = share.filling == Filling::fixed && !resource.held.empty() ? std::min(next, share.level) : next;
    }
    const bool above = find_saturation(index, saturates, next);
    if (saturates > next && saturates > level * (1 + kSameLevel)) {
        queue(index, level);
        return level;
    }
    if (above) {
        open_above(index, saturates);
    }
    if (room.rising > 0) {
        saturate(index, saturates);
    }
    return saturates;
}

// Raises `level` to where a resource saturates if users with higher rates fall to that level; returns whether there are such.
// Newton's iteration rises to it from below, and stops early above `limit`.
bool FluidModel::find_saturation(std::uint32_t index, double& level, double limit) {
    const Resource& resource = resources_[index];
    Room& room = rooms_[index];
    for (;;) {
        const double cut = level * (1 + kTie);
        double left = resource.capacity;
        double weight = 0;
        std::uint32_t count = 0;
        for (const User& user : users_.of(resource.users)) {
            const double rate = reach(user);
            const bool above = rate > cut;
            count += above ? 1 : 0;
            weight += above ? user.use : 0;
            left -= above ? 0 : user.use * rate;
        }
        room.low_free = left;
        room.low_weight = weight;
        room.cut = cut;
        const double next = weight > 0 ? left / weight : level;
        if (count == room.rising || !(next > level * (1 + 1e-13))) {
            level = std::max(level, next);
            return count > room.rising;
        }
        level = next;
        if (level > limit) {
            return true;
        }
    }
}

// What a resource holds back rises from here on, and with it comes all that its classes use.
void FluidModel::open(std::uint32_t index, double floor) {
    advance_resource(index);
    const double rate = shares_[index].level;
    for (const Held& held : held_.of(resources_[index].held)) {
        if (!held.plain) {
            raise(held.owner, rate);
            continue;
        }
        for (const std::uint32_t used : held.near) {
            if (used != kNone) {
                raise_on(held.owner, used, held.use, rate);
            }
        }
    }
    classes_filled_ += resources_[index].held.size;
    shares_[index].filling = Filling::rising;
    reaches_[index] = kUnbounded;
    include_raised(floor);
    for (const Held& held : held_.of(resources_[index].held)) {
        if (held.bounded) {
            queue_bound(held.owner);
        }
    }
    freeze_tied();
}

void FluidModel::open_class(std::uint32_t id, double floor) {
    Class& c = classes_[id];
    advance(c);
    raise(id, c.rate);
    ++classes_filled_;
    c.rising = true;
    include_raised(floor);
    queue_bound(id);
    freeze_tied();
}

void FluidModel::raise(std::uint32_t id, double rate) {
    const Class& c = classes_[id];
    for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
        raise_on(id, slots_[s].resource, slots_[s].weight * c.count, rate);
    }
}

void FluidModel::raise_on(std::uint32_t id, std::uint32_t index, double use, double rate) {
    Room& room = rooms_[index];
    if (room.in_set == set_epoch_) {
        if (shares_[index].filling == Filling::settled) {
            tied_.emplace_back(id, index);
            return;
        }
        room.free += use * rate;
        room.weight += use;
        if (++room.rising > 1 && rate > room.cut) {
            return;  // it is looked at no earlier for that
        }
        if (rate <= room.cut) {
            room.low_free += use * rate;
            room.low_weight += use;
        }
    } else if (room.raised || !couples(resources_[index])) {
        return;
    }
    if (!room.raised) {
        room.raised = true;
        raised_.push_back(index);
    }
}

void FluidModel::include_raised(double floor) {
    for (const std::uint32_t index : raised_) {
        rooms_[index].raised = false;
        include(index, floor);
        queue(index, floor);
    }
    raised_.clear();
}

// A class that uses a resource which has saturated at the very level of the pass stays there.
void FluidModel::freeze_tied() {
    for (const auto& [id, index] : tied_) {
        if (rises(classes_[id])) {
            freeze(id, shares_[index].level, index);
        }
    }
    tied_.clear();
}

void FluidModel::open_above(std::uint32_t index, double level) {
    // Each is looked up when its turn comes: opening one bottleneck may free or freeze other users.
    for (const User& user : users_.of(resources_[index].users)) {
        const double rate = reach(user);
        if (rate != kUnbounded && rate > level * (1 + kTie)) {
            if (user.bottleneck == kNone) {
                open_class(owners_[user.slot], level);
            } else {
                open(user.bottleneck, level);
            }
        }
    }
}

void FluidModel::saturate(std::uint32_t index, double level) {
    const Resource& resource = resources_[index];
    Share& share = shares_[index];
    if (share.filling == Filling::rising) {
        set_level(index, level);
        for (const Held& held : held_.of(resource.held)) {
            if (!held.plain) {
                subtract(classes_[held.owner], level, index);
                continue;
            }
            for (const std::uint32_t used : held.near) {
                if (used != kNone && used != index) {
                    subtract_on(used, held.use, level);
                }
            }
        }
    } else if (resource.held.empty()) {
        set_level(index, level);
    } else {
        level = share.level;  // what it holds back has stayed where it was
    }
    share.filling = Filling::settled;
    reaches_[index] = share.level;
    for (const User& user : users_.of(resource.users)) {
        if (reach(user) == kUnbounded) {
            freeze(owners_[user.slot], level, index);
        }
    }
}

void FluidModel::freeze(std::uint32_t id, double level, std::uint32_t bottleneck) {
    Class& c = classes_[id];
    if (c.bottleneck != kNone) {
        leave(id);
    }
    c.rising = false;
    c.rate = level;
    if (bottleneck != kNone) {
        heap_remove(id);
        join(id, bottleneck);
    } else {
        set_bottleneck_of_users(c);
        bounded_.push_back(id);
    }
    subtract(c, level, bottleneck);
}

// A class no longer rises: what it takes is taken from those that do.
void FluidModel::subtract(const Class& c, double level, std::uint32_t except) {
    for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
        if (slots_[s].resource != except) {
            subtract_on(slots_[s].resource, slots_[s].weight * c.count, level);
        }
    }
}

void FluidModel::subtract_on(std::uint32_t index, double use, double level) {
    Room& room = rooms_[index];
    if (room.in_set == set_epoch_ && shares_[index].filling != Filling::settled) {
        room.free -= use * level;
        room.weight -= use;
        room.low_free -= use * level;
        room.low_weight -= use;
        --room.rising;
    }
}

}  // namespace orrery::inline engine
