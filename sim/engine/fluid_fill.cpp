// The fills of FluidModel: which rates follow from a change.

#include "sim/engine/fluid.hpp"

#include <algorithm>

namespace orrery::inline engine {

namespace {

// Rates closer than kTie (relative) count as equal, a resource filled to 1 - kSaturated as full: above the rounding of
// sums, far below anything that shows in a completion time.
constexpr double kTie = 1e-12;
constexpr double kSaturated = 1e-11;
constexpr int kMaxRepairRounds = 24;

struct HigherLevel {
    template <class Level>
    bool operator()(const Level& a, const Level& b) const {
        return a.level > b.level || (a.level == b.level && a.index > b.index);
    }
};

}  // namespace

bool FluidModel::binding(const Resource& resource) const {
    return resource.potential > resource.capacity * (1 + 1e-13);
}

// A level below which no rate changes when activities arrive at this resource.
//
// Let x solve: sum over old users of weight * min(rate, x) + (weights of arrivals) * x = capacity. While filling up to
// the least such x over all resources, the arrivals fit beside the old allocation, so each resource saturates at the
// level where it did before, and all rates below x are as they were. Newton's iteration from x = 0 rises to the root
// from below, so stopping early is safe. Departures only make room; they are counted as if still there.
double FluidModel::lower_bound_level(const Resource& resource) const {
    double level = 0;
    for (int pass = 0; pass < 4; ++pass) {
        double used = 0;
        double weight = 0;
        for (const User& user : resource.users) {
            const Class& c = classes_[user.owner];
            const double now = c.count;
            const double before = c.solved_count;
            const double w = user.weight;
            if (before > 0 && c.rate < level) {
                used += w * before * c.rate;
                weight += w * std::max(0.0, now - before);
            } else {
                weight += w * std::max(now, before);
            }
        }
        const double next = weight > 0 ? (resource.capacity - used) / weight : level;
        if (!(next > level * (1 + 1e-9))) {
            break;
        }
        level = next;
    }
    return level;
}

void FluidModel::start_set() {
    ++set_epoch_;
    affected_resources_.clear();
    affected_classes_.clear();
}

void FluidModel::include_resource(std::uint32_t index) {
    Resource& resource = resources_[index];
    if (resource.in_set != set_epoch_) {
        resource.in_set = set_epoch_;
        affected_resources_.push_back(index);
    }
}

void FluidModel::include_class(std::uint32_t id) {
    Class& c = classes_[id];
    if (c.in_set == set_epoch_) {
        return;
    }
    c.in_set = set_epoch_;
    affected_classes_.push_back(id);
    for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
        if (binding(resources_[slots_[s].resource])) {
            include_resource(slots_[s].resource);
        }
    }
}

// Starts from the changed classes and those that were held back by what they use, fills them with all others fixed, and
// takes in every class that the result leaves without a bottleneck, until there is none: an allocation is max-min fair
// exactly when each class has a saturated resource on which no rate is higher, or meets its own bound.
bool FluidModel::repair() {
    start_set();
    for (const std::uint32_t id : seeds_) {
        const Class& c = classes_[id];
        for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
            // Only where something is held back or could be overrun is there anything to repair.
            const Resource& resource = resources_[slots_[s].resource];
            if (c.count < c.solved_count ? resource.held_back > 0 : binding(resource)) {
                include_resource(slots_[s].resource);
            }
        }
    }
    const std::size_t changed = affected_resources_.size();
    for (std::size_t i = 0; i < changed; ++i) {
        const std::uint32_t index = affected_resources_[i];
        if (resources_[index].held_back == 0) {
            continue;
        }
        for (std::size_t u = 0; u < resources_[index].users.size(); ++u) {
            const std::uint32_t owner = resources_[index].users[u].owner;
            if (classes_[owner].bottleneck == index && classes_[owner].count > 0) {
                include_class(owner);
            }
        }
    }
    for (const std::uint32_t id : seeds_) {
        if (classes_[id].count > 0) {
            include_class(id);
        }
    }
    const std::size_t limit = std::max<std::size_t>(64, attached_count_ / 3);
    for (int round = 0; round < kMaxRepairRounds; ++round) {
        if (affected_classes_.size() > limit) {
            return false;
        }
        fill();
        if (!include_violators()) {
            return true;
        }
    }
    return false;
}

bool FluidModel::include_violators() {
    const std::size_t before = affected_classes_.size();
    const std::size_t resources = affected_resources_.size();
    for (std::size_t i = 0; i < resources; ++i) {
        const std::uint32_t index = affected_resources_[i];
        const Resource& resource = resources_[index];
        if (resource.level < 0 && resource.held_back == 0) {
            continue;  // it saturates neither now nor did before
        }
        double used = 0;
        double highest = 0;
        for (const User& user : resource.users) {
            const Class& c = classes_[user.owner];
            if (c.count > 0) {
                const double rate = c.in_set == set_epoch_ ? c.new_rate : c.rate;
                used += user.weight * c.count * rate;
                highest = std::max(highest, rate);
            }
        }
        const bool saturated = used >= resource.capacity * (1 - kSaturated);
        for (const User& user : resource.users) {
            const Class& c = classes_[user.owner];
            if (c.in_set == set_epoch_ || c.count == 0) {
                continue;
            }
            const bool above = resource.level >= 0 && c.rate > resource.level * (1 + kTie);
            const bool freed = c.bottleneck == index && (!saturated || c.rate < highest * (1 - kTie));
            if (above || freed) {
                include_class(user.owner);
            }
        }
    }
    return affected_classes_.size() > before;
}

// The classes at or above the least level where something changes, connected to the changed ones through binding
// resources: a superset of what can change, found without trial.
void FluidModel::fill_from_level() {
    start_set();
    double level = kUnbounded;
    for (const std::uint32_t id : seeds_) {
        const Class& c = classes_[id];
        for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
            Resource& resource = resources_[slots_[s].resource];
            // What a leaving class shared has to be filled again where it held somebody back, even if nothing binds any more.
            const bool arrives = c.count > c.solved_count && binding(resource);
            const bool frees = c.count < c.solved_count && resource.held_back > 0;
            if (frees) {
                level = std::min(level, c.rate);
            }
            if (arrives && resource.in_set != set_epoch_) {
                level = std::min(level, lower_bound_level(resource));
            }
            if (arrives || frees) {
                include_resource(slots_[s].resource);
            }
        }
    }
    for (const std::uint32_t id : seeds_) {
        if (classes_[id].count > 0) {
            include_class(id);
        }
    }
    level *= 1 - 1e-9;
    for (std::size_t i = 0; i < affected_resources_.size(); ++i) {
        // By index: including a class may grow the list.
        const std::uint32_t index = affected_resources_[i];
        for (std::size_t u = 0; u < resources_[index].users.size(); ++u) {
            const std::uint32_t owner = resources_[index].users[u].owner;
            if (classes_[owner].rate >= level && classes_[owner].count > 0) {
                include_class(owner);
            }
        }
    }
    fill();
}

// After capacities have changed: everything on the resources concerned, and all that is connected to it through binding
// resources. A resource that stopped binding counts as well, because it held its users back until now.
void FluidModel::fill_after_capacities() {
    start_set();
    for (const std::uint32_t index : reshaped_) {
        include_resource(index);
    }
    reshaped_.clear();
    for (const std::uint32_t id : seeds_) {
        const Class& c = classes_[id];
        for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
            include_resource(slots_[s].resource);
        }
    }
    for (std::size_t i = 0; i < affected_resources_.size(); ++i) {
        // By index: including a class may grow the list.
        const std::uint32_t index = affected_resources_[i];
        for (std::size_t u = 0; u < resources_[index].users.size(); ++u) {
            const std::uint32_t owner = resources_[index].users[u].owner;
            if (classes_[owner].count > 0) {
                include_class(owner);
            }
        }
    }
    for (const std::uint32_t id : seeds_) {
        if (classes_[id].count > 0) {
            include_class(id);  // without resources it is on no list
        }
    }
    fill();
}

void FluidModel::freeze(std::uint32_t id, double level, std::uint32_t bottleneck) {
    Class& c = classes_[id];
    c.unfrozen = false;
    --rising_;
    c.new_rate = level;
    c.new_bottleneck = bottleneck;
    const auto count = c.count;
    for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
        Resource& resource = resources_[slots_[s].resource];
        if (resource.in_set == set_epoch_ && slots_[s].resource != bottleneck) {
            const double weight = slots_[s].weight * count;
            resource.free -= level * weight;
            resource.weight -= weight;
            --resource.unfrozen;
        }
    }
}

// Progressive filling of the classes in the set, all others fixed at their rates.
void FluidModel::fill() {
    levels_.clear();
    for (const std::uint32_t id : affected_classes_) {
        Class& c = classes_[id];
        c.unfrozen = true;
        double bound = c.rate_bound;
        for (std::uint32_t s = c.first_slot; s < c.first_slot + c.slot_count; ++s) {
            const Resource& resource = resources_[slots_[s].resource];
            if (resource.in_set != set_epoch_) {
                bound = std::min(bound, resource.capacity / slots_[s].weight);
            }
        }
        if (bound != kUnbounded) {
            levels_.push_back(Level{bound, id, true});
        }
    }
    for (const std::uint32_t index : affected_resources_) {
        Resource& resource = resources_[index];
        resource.free = resource.capacity;
        resource.weight = 0;
        resource.unfrozen = 0;
        resource.level = -1;
        for (const User& user : resource.users) {
            const Class& c = classes_[user.owner];
            if (c.count == 0) {
                continue;
            }
            const double weight = user.weight * c.count;
            if (c.in_set == set_epoch_) {
                resource.weight += weight;
                ++resource.unfrozen;
            } else {
                resource.free -= weight * c.rate;
            }
        }
        if (resource.unfrozen > 0) {
            levels_.push_back(Level{std::max(0.0, resource.free / resource.weight), index, false});
        }
    }
    // First levels in a sorted list, levels that rose since in a heap: most entries are never moved again.
    std::sort(levels_.begin(), levels_.end(), [](const Level& x, const Level& y) { return HigherLevel{}(y, x); });
    raised_.clear();
    std::size_t next = 0;
    double floor = 0;
    rising_ = affected_classes_.size();
    while (rising_ > 0) {
        const bool from_heap =
            next == levels_.size() || (!raised_.empty() && HigherLevel{}(levels_[next], raised_.front()));
        if (from_heap) {
            std::pop_heap(raised_.begin(), raised_.end(), HigherLevel{});
        }
        Level top = from_heap ? raised_.back() : levels_[next];
        if (from_heap) {
            raised_.pop_back();
        } else {
            ++next;
        }
        if (top.is_class) {
            if (classes_[top.index].unfrozen) {
                floor = std::max(floor, top.level);
                freeze(top.index, floor, kNone);
            }
            continue;
        }
        Resource& resource = resources_[top.index];
        if (resource.unfrozen == 0) {
            continue;
        }
        const double level = std::max(0.0, resource.free / resource.weight);
        const bool later = (next < levels_.size() && level > levels_[next].level) ||
                           (!raised_.empty() && level > raised_.front().level);
        if (level > top.level && later) {
            top.level = level;  // others froze below: it saturates later than was thought
            raised_.push_back(top);
            std::push_heap(raised_.begin(), raised_.end(), HigherLevel{});
            continue;
        }
        floor = std::max(floor, level);
        resource.unfrozen = 0;
        resource.level = floor;
        for (const User& user : resource.users) {
            const Class& c = classes_[user.owner];
            if (c.in_set == set_epoch_ && c.unfrozen) {
                freeze(user.owner, floor, top.index);
            }
        }
    }
}

}  // namespace orrery::inline engine
