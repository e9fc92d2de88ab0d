// Groups that begin as others did before, and are held as soon as those were steady.

#include "sim/base/error.hpp"
#include "sim/network/packet/steady.hpp"

#include <algorithm>
#include <map>

namespace orrery::network::packet {

// Flows were posted at this instant: those that share ports with none but each other are a group.
void Steady::begin() {
    const std::vector<std::uint32_t> fresh = std::move(fresh_);
    fresh_.clear();
    sharing_.part();
    for (const std::uint32_t id : fresh) {
        sharing_.join(tracks_[id].ways);
    }
    std::map<std::uint32_t, std::vector<std::uint32_t>> found;
    for (const std::uint32_t id : fresh) {
        found[sharing_.group_of(tracks_[id].ways.there.front())].push_back(id);
    }
    for (auto& [bundle, flows] : found) {
        if (alone(flows)) {
            begin_group(std::move(flows));
        }
    }
}

// Whether no other flow uses the ports of these.
bool Steady::alone(const std::vector<std::uint32_t>& flows) const {
    std::map<std::uint32_t, std::uint32_t> users;
    for (const std::uint32_t id : flows) {
        for (const std::vector<std::uint32_t>* way : {&tracks_[id].ways.there, &tracks_[id].ways.back}) {
            for (const std::uint32_t bundle : *way) {
                ++users[bundle];
            }
        }
    }
    return std::all_of(users.begin(), users.end(), [&](const auto& one) { return users_[one.first] == one.second; });
}

void Steady::begin_group(std::vector<std::uint32_t> flows) {
    std::sort(flows.begin(), flows.end(),
              [&](std::uint32_t a, std::uint32_t b) { return tracks_[a].number < tracks_[b].number; });
    Plan plan;
    std::vector<Phases::Begun> begun;
    for (const std::uint32_t id : flows) {
        begun.push_back({&tracks_[id].ways, flows_[id].rate_limit});
        plan.numbers.push_back(tracks_[id].number);
    }
    plan.key = phases_.key_of(begun, sharing_);
    for (const std::uint32_t id : flows) {
        Track& track = tracks_[id];
        track.key = plan.key;
        track.of = static_cast<std::uint32_t>(flows.size());
        track.begun = clock_.now;
        for (const std::vector<std::uint32_t>* way : {&track.ways.there, &track.ways.back}) {
            for (const std::uint32_t bundle : *way) {
                for (std::uint32_t i = 0; i < sharing_.width(bundle); ++i) {
                    since_[bundle + i] = ports_.sent(bundle + i);
                }
            }
        }
    }
    if (const Phases::Known* known = phases_.find(plan.key); known != nullptr) {
        plan.flows = std::move(flows);
        clock_.schedule(Timer::steady, kPlans + plans_.take(std::move(plan)), clock_.now + known->after);
    }
}

// A group is as old as one like it was when it became steady.
void Steady::recall(std::uint32_t slot) {
    const Plan plan = std::move(plans_[slot]);
    plans_.give(slot);
    ORRERY_ASSERT(phases_.find(plan.key) != nullptr);
    const Phases::Known& known = *phases_.find(plan.key);
    ORRERY_ASSERT(known.rates.size() == plan.flows.size());
    Group group;
    for (std::size_t i = 0; i < plan.flows.size(); ++i) {
        const Track& track = tracks_[plan.flows[i]];
        if (!track.tracked || track.number != plan.numbers[i] || track.group != kNone ||
            !goes_well(flows_[plan.flows[i]])) {
            return;
        }
        group.bundles.insert(group.bundles.end(), track.ways.there.begin(), track.ways.there.end());
        group.bundles.insert(group.bundles.end(), track.ways.back.begin(), track.ways.back.end());
    }
    if (!alone(plan.flows)) {
        return;
    }
    double length = static_cast<double>(Wheel::kNever / 2);
    for (std::size_t i = 0; i < plan.flows.size(); ++i) {
        Track& track = tracks_[plan.flows[i]];
        const Phases::Rate& rate = known.rates[i];
        track.rate = rate.rate;
        track.spread = rate.spread;
        track.trend = rate.trend;
        track.doubt = rate.doubt;
        length = std::min(length, time_left(plan.flows[i]));
        const double spare = tolerance_ - rate.spread / 2 - rate.doubt / 2;
        if (rate.trend != 0 || spare <= 0) {
            length = std::min(length, spare <= 0 ? 0 : spare / std::abs(rate.trend));
        }
    }
    if (length < static_cast<double>(window_)) {
        return;
    }
    std::sort(group.bundles.begin(), group.bundles.end());
    group.bundles.erase(std::unique(group.bundles.begin(), group.bundles.end()), group.bundles.end());
    group.flows = plan.flows;
    group.answers = known.answers;
    group.until = clock_.now + static_cast<std::int64_t>(length);
    std::vector<Group> one;
    one.push_back(std::move(group));
    hold(std::move(one));
}

// A steady group is all of one that began alone.
void Steady::learn(const Group& group) {
    const Track& first = tracks_[group.flows.front()];
    const bool whole =
        first.key != 0 && !first.together && first.of == group.flows.size() &&
        std::all_of(group.flows.begin(), group.flows.end(), [&](std::uint32_t id) {
            return tracks_[id].key == first.key && tracks_[id].begun == first.begun && tracks_[id].lag == 0;
        });
    if (!whole) {
        return;
    }
    std::vector<std::uint32_t> flows = group.flows;
    std::sort(flows.begin(), flows.end(),
              [&](std::uint32_t a, std::uint32_t b) { return tracks_[a].number < tracks_[b].number; });
    Phases::Known known;
    double since = 0;
    for (const std::uint32_t id : flows) {
        since = std::max(since, tracks_[id].steady_since);
        known.rates.push_back({tracks_[id].rate, tracks_[id].spread, tracks_[id].trend, tracks_[id].doubt});
    }
    known.answers = group.answers;
    known.after = static_cast<std::int64_t>(since) - first.begun;
    if (known.after > 0) {
        phases_.keep(first.key, std::move(known));
    }
}

}  // namespace orrery::network::packet
