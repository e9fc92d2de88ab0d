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
// has left behind changes again, and one pass suffices.
//
// What each resource carries is kept by differences, so that only those are read, user by user, that may saturate below what
// they held before or above what they were thought to. Each waits in a heap for the least level at which it may saturate.

#include "sim/engine/fluid.hpp"
#include "sim/engine/heap.hpp"

#include <algorithm>

namespace orrery::engine {

namespace {

// Rates closer than kTie (relative) count as equal, a resource filled to 1 - kSaturated as full: above the rounding of
// sums, far below anything that shows in a completion time.
constexpr double kTie = 1e-12;
constexpr double kSaturated = 1e-11;
// A level that rises by less than this does not rise: the noise of one sum.
constexpr double kSameLevel = 1e-14;
// Loads are kept by differences for so many fills at most.
constexpr std::uint8_t kReadAgain = 64;
// What may happen only so many times above the level of the pass waits outside the heap: mostly it does not happen.
constexpr double kFar = 1.25;

}  // namespace

// A resource couples its users if they could demand more than it has, or if it holds somebody back.
bool FluidModel::couples(const Resource& resource) const {
    return !resource.held.empty() || (resource.potential > resource.capacity * (1 + 1e-13) && !is_within(resource));
}

bool FluidModel::rises(const Class& c) const {
    return c.bottleneck == kNone ? c.rising : rooms_[c.bottleneck].filling == Filling::rising;
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
    start_fill();
    double floor = 0;
    for (;;) {
        while (far_first()) {
            come_near(floor);
        }
        if (levels_.empty()) {
            break;
        }
        Level& top = levels_.front();
        const std::uint32_t index = top.index;
        if (top.is_class) {
            floor = rises(classes_[index]) ? std::max(floor, top.level) : floor;
            drop_top();
            if (rises(classes_[index])) {
                freeze(index, floor, kNone);
                subtract(classes_[index], floor, kNone);
            }
            continue;
        }
        Room& room = rooms_[index];
        const double level = next_look(index, floor);
        room.key = level;
        if (level > top.level && level != kUnbounded) {
            top.level = level;  // others froze below: it saturates later than was thought
            sift_level(0);
            if (levels_.front().index != index || levels_.front().is_class || far_first()) {
                continue;
            }
        }
        drop_top();
        room.key = kUnbounded;
        if (level != kUnbounded) {
            floor = std::max(floor, fill_from(index, level));
        }
    }
    for (const std::uint32_t index : included_) {
        Room& room = rooms_[index];
        ORRERY_ASSERT(room.rising == 0);
        room.seen = Seen::none;
        room.filling = Filling::fixed;
        room.key = kUnbounded;
        reaches_[index] = room.level;
    }
}

// The resources on which a change may have to be repaired, and the classes that rise from zero.
void FluidModel::start_fill() {
    included_.clear();
    bounded_.clear();
    levels_.clear();
    far_.clear();
    far_from_ = kUnbounded;
    for (const std::uint32_t index : reshaped_) {
        if (is_within(resources_[index])) {
            continue;
        }
        if (rooms_[index].seen == Seen::none) {
            // What is rounding beside one capacity may be much beside another: the load is summed now and next time.
            sum_load(index);
            rooms_[index].unread = kReadAgain - 2;
        }
        include(index);
    }
    reshaped_.clear();
    for (const std::uint32_t id : seeds_) {
        const Class& c = classes_[id];
        for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
            // Who leaves wakes nobody where nobody was held back.
            const Resource& resource = resources_[slots_[s].resource];
            if (c.count > 0 ? couples(resource) : !resource.held.empty()) {
                include(slots_[s].resource);
            }
        }
    }
    for (const std::uint32_t index : included_) {
        queue(index, 0);
    }
    far_from_ = levels_.empty() ? 0 : levels_.front().level * kFar;
    for (const std::uint32_t id : seeds_) {
        if (classes_[id].count > 0) {
            ++classes_filled_;
            queue_bound(id);
        }
    }
}

// Of the far resources those that come next, to the heap. On most of them nothing rises any more by then.
void FluidModel::come_near(double floor) {
    double least = kUnbounded;
    std::erase_if(far_, [&](std::uint32_t index) {
        if (queued_[index] != kIsFar) {
            return true;  // it came near before
        }
        Room& room = rooms_[index];
        room.key = next_look(index, floor);
        queued_[index] = room.key == kUnbounded ? kNone : kIsFar;
        least = std::min(least, room.key);
        return room.key == kUnbounded;
    });
    far_from_ = least * kFar;
    for (const std::uint32_t index : far_) {
        if (queued_[index] == kIsFar && rooms_[index].key <= far_from_) {
            push_level(index);
        }
    }
    std::erase_if(far_, [&](std::uint32_t index) { return queued_[index] != kIsFar; });
}

// A resource whose users have changed, or will.
void FluidModel::include(std::uint32_t index) {
    Room& room = rooms_[index];
    if (room.seen == Seen::included) {
        return;
    }
    const Resource& resource = resources_[index];
    room.seen = Seen::included;
    included_.push_back(index);
    if (++room.unread == kReadAgain) {
        sum_load(index);
    }
    room.key = kUnbounded;
    room.alone = false;
    room.low_free = resource.capacity - room.load;
    room.low_weight = room.weight;
    room.cut = kUnbounded;
    if (room.filling == Filling::fixed && !resource.held.empty()) {
        // Should it saturate below its level, what it holds back falls. The ratio may not come out too high by rounding.
        room.low_free += resource.held_use * room.level * (1 - kSameLevel);
        room.low_weight += resource.held_use;
        room.cut = room.level * (1 + kTie);
    }
}

// The least level at which something may have to be done about a resource.
double FluidModel::next_look(std::uint32_t index, double floor) const {
    const Room& room = rooms_[index];
    const Resource& resource = resources_[index];
    double level = kUnbounded;
    if (room.filling == Filling::settled) {
        return level;
    }
    if (room.rising > 0 || room.load > resource.capacity * (1 + kSaturated)) {
        level = room.low_weight > 0 ? std::max(floor, room.low_free / room.low_weight) : floor;
    }
    if (room.filling == Filling::fixed && !resource.held.empty()) {
        level = std::min(level, std::max(floor, room.level));
    }
    return level;
}

void FluidModel::queue(std::uint32_t index, double floor) {
    Room& room = rooms_[index];
    const double key = next_look(index, floor);
    if (key < room.key) {
        room.key = key;
        std::uint32_t& at = queued_[index];
        if (at < kIsFar) {
            levels_[at].level = key;
            sift_level(at);
        } else if (key <= far_from_) {
            push_level(index);
        } else if (at == kNone) {
            at = kIsFar;
            far_.push_back(index);
        }
    }
}

void FluidModel::push_level(std::uint32_t index) {
    queued_[index] = static_cast<std::uint32_t>(levels_.size());
    levels_.push_back(Level{rooms_[index].key, index, false});
    sift_level(levels_.size() - 1);
}

void FluidModel::sift_level(std::size_t position) {
    sift(std::span(levels_), position, [&](const Level& one, std::uint32_t at) {
        if (!one.is_class) {
            queued_[one.index] = at;
        }
    });
}

void FluidModel::drop_top() {
    if (!levels_.front().is_class) {
        queued_[levels_.front().index] = kNone;
    }
    levels_.front() = levels_.back();
    levels_.pop_back();
    if (!levels_.empty()) {
        sift_level(0);
    }
}

// A class may meet its own bound, or what it gets alone on resources that couple nothing, before any other saturates.
void FluidModel::queue_bound(std::uint32_t id) {
    const Class& c = classes_[id];
    double bound = c.rate_bound;
    double others = kUnbounded;
    for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
        const std::uint32_t index = slots_[s].resource;
        double& least = rooms_[index].seen == Seen::included ? others : bound;
        least = std::min(least, resources_[index].capacity / slots_[s].weight);
    }
    if (others == kUnbounded) {
        freeze(id, bound, kNone);
        subtract(c, bound, kNone);
    } else if (bound < others) {
        levels_.push_back(Level{bound, id, true});
        sift_level(levels_.size() - 1);
    }
}

// The level has come to where something happens at a resource. Returns the level of the pass afterwards.
double FluidModel::fill_from(std::uint32_t index, double level) {
    const Resource& resource = resources_[index];
    const Room& room = rooms_[index];
    const bool holds = room.filling == Filling::fixed && !resource.held.empty();
    const bool at_own = holds && level >= room.level * (1 - kTie);
    if (at_own) {
        const double free = resource.capacity - room.load;
        const double full = kSaturated * resource.capacity;
        if (room.rising > 0 ? free > room.weight * room.level * (1 + kTie) : free > full) {
            Room& opened = rooms_[index];
            opened.alone = true;
            opened.cut = kUnbounded;
            open(index, level);
            queue(index, level);
            return level;
        }
        if (room.rising == 0 && free >= -full) {
            return level;  // as it was
        }
    }
    double saturates = level;
    // No further than where something else may happen: on another resource, or to those that this one holds back.
    double next = kUnbounded;
    if (!at_own) {
        next = std::min(levels_.empty() ? kUnbounded : levels_.front().level, far_.empty() ? kUnbounded : far_from_);
        next = holds ? std::min(next, room.level) : next;
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
    if (room.alone) {
        level = std::max(level, room.low_free / room.low_weight);
        return false;
    }
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
    Room& room = rooms_[index];
    if (room.cut >= room.level) {
        room.low_free = resources_[index].capacity - room.load;
        room.low_weight = room.weight;
        room.cut = kUnbounded;
    }
    room.filling = Filling::rising;
    reaches_[index] = kUnbounded;
    const std::span<const Held> all = held_.of(resources_[index].held);
    double use = 0;
    std::uint32_t count = 0;
    bool bounded = false;
    for (const Held& held : all) {
        bounded = bounded || held.bounded;
        if (!held.plain) {
            raise(held.owner, room.level);
            continue;
        }
        use += held.use;
        ++count;
        for (std::size_t i = 0; i < Held::kNear && held.near[i] != kNone; ++i) {
            raise_on(held.owner, held.near[i], held.use, room.level);
        }
    }
    raise_on(kNone, index, use, room.level, count);
    classes_filled_ += all.size();
    include_raised(floor);
    for (std::size_t i = 0; bounded && i < all.size(); ++i) {
        if (all[i].bounded) {
            queue_bound(all[i].owner);
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
        if (slots_[s].passed == 0) {
            raise_on(id, slots_[s].resource, slots_[s].weight * c.count, rate);
        }
    }
}

inline void FluidModel::raise_on(std::uint32_t id, std::uint32_t index, double use, double rate, std::uint32_t count) {
    Room& room = rooms_[index];
    room.load -= use * rate;
    room.weight += use;
    room.rising += count;
    if (rate <= room.cut) {
        room.low_free += use * rate;
        room.low_weight += use;
    }
    // Usually it is seen to already, and saturates no earlier for this.
    if (room.key == kUnbounded || room.low_free < room.key * room.low_weight) {
        note_raised(id, index);
    }
}

// A class rises on a resource that is not queued, or not early enough, or has saturated.
void FluidModel::note_raised(std::uint32_t id, std::uint32_t index) {
    Room& room = rooms_[index];
    if (room.filling == Filling::settled) {
        tied_.emplace_back(id, index);
    } else if (!room.raised && room.seen != Seen::slack) {
        room.raised = true;
        raised_.push_back(index);
    }
}

void FluidModel::include_raised(double floor) {
    for (const std::uint32_t index : raised_) {
        Room& room = rooms_[index];
        room.raised = false;
        if (room.seen == Seen::none && !couples(resources_[index])) {
            room.seen = Seen::slack;
            included_.push_back(index);
        } else {
            include(index);
            queue(index, floor);
        }
    }
    raised_.clear();
}

// A class that uses a resource which has saturated at the very level of the pass stays there.
void FluidModel::freeze_tied() {
    for (const auto& [id, index] : tied_) {
        if (rises(classes_[id])) {
            const double level = rooms_[index].level;
            freeze(id, level, index);
            subtract(classes_[id], level, kNone);
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
    Room& room = rooms_[index];
    const bool rose = room.filling == Filling::rising;
    if (rose || resource.held.empty()) {
        set_level(index, level);  // else what it holds back has stayed where it was
    }
    level = room.level;
    for (const Held& held : held_.of(resource.held)) {
        if (!rose) {
            break;
        }
        if (!held.plain) {
            subtract(classes_[held.owner], level, index);
            continue;
        }
        for (std::size_t i = 0; i < Held::kNear && held.near[i] != kNone; ++i) {
            subtract_on(held.near[i], held.use, level);
        }
    }
    room.filling = Filling::settled;
    room.key = kUnbounded;  // whoever is found to rise on it from now on is tied
    reaches_[index] = level;
    // Nobody fixed is above the cut any more, and those that rise stop here.
    room.load = resource.capacity - room.low_free + room.low_weight * level;
    room.weight = 0;
    const bool others = room.rising > (rose ? resource.held.size : 0);
    room.rising = 0;
    if (!others) {
        return;
    }
    for (const User& user : users_.of(resource.users)) {
        if (reach(user) == kUnbounded) {
            const std::uint32_t id = owners_[user.slot];
            freeze(id, level, index);
            subtract(classes_[id], level, index);
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
}

// A class no longer rises: it takes its share of all that it uses, save `except`.
void FluidModel::subtract(const Class& c, double level, std::uint32_t except) {
    for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
        if (slots_[s].resource != except && slots_[s].passed == 0) {
            subtract_on(slots_[s].resource, slots_[s].weight * c.count, level);
        }
    }
}

void FluidModel::subtract_on(std::uint32_t index, double use, double level) {
    Room& room = rooms_[index];
    room.load += use * level;
    room.weight -= use;
    room.low_free -= use * level;
    room.low_weight -= use;
    if (--room.rising == 0) {
        room.weight = 0;  // sheds the rounding of many additions and subtractions
    }
}

}  // namespace orrery::engine
