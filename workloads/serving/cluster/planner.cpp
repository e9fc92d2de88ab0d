#include "workloads/serving/cluster/planner.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery::serving {

Planner::Planner(const ServiceSpec& spec, Fleet& fleet, Routing& routing, const Frontend& frontend,
                 ServiceResult& result)
    : FleetPart(spec, fleet, result), routing_(routing), frontend_(frontend) {
    if (!spec.planner.given) {
        return;
    }
    ORRERY_ASSERT(spec.pools.size() == 2 && spec.pools[0].replicas == spec.pools[1].replicas);
    places_.resize(static_cast<std::size_t>(spec.pools[0].replicas));
    for (std::uint32_t i = 0; i < places_.size(); ++i) {
        places_[i].prompts = i < spec.prefill_first;
        fleet[replica(i, !places_[i].prompts)].power = Power::off;
    }
    routing.update();
}

void Planner::begin(Dispatcher& dispatcher) {
    Part::begin(dispatcher);
    if (spec_.planner.given) {
        dispatcher.delay(SimTime::from_seconds(spec_.planner.interval_s), 0, kLook, Phase::scheduler);
    }
}

void Planner::on_done(std::uint64_t event, Dispatcher& dispatcher) {
    if (event != kLook) {
        const auto index = static_cast<std::uint32_t>(event);
        ORRERY_ASSERT(fleet_[index].power == Power::starting);
        fleet_[index].power = Power::on;
        Place& place = places_[index % places_.size()];
        count();
        place.prompts = !place.prompts;
        place.moving = false;
        routing_.update();
        fleet_.wake(index);
        return;
    }
    if (!frontend_.all_settled()) {
        look();
        dispatcher.delay(SimTime::from_seconds(spec_.planner.interval_s), 0, kLook, Phase::scheduler);
    }
}

void Planner::count() {
    const auto prompts = std::count_if(places_.begin(), places_.end(), [](const Place& one) { return one.prompts; });
    prefill_s_ += static_cast<double>(prompts) * (now() - counted_).seconds();
    counted_ = now();
}

double Planner::mean_prefill(SimTime end) const {
    const auto prompts = std::count_if(places_.begin(), places_.end(), [](const Place& one) { return one.prompts; });
    const double rest = static_cast<double>(prompts) * (end - counted_).seconds();
    return end > SimTime() ? (prefill_s_ + rest) / end.seconds() : static_cast<double>(prompts);
}

// Places whose last request has left begin to change.
void Planner::end_roles() {
    for (std::uint32_t i = 0; i < places_.size(); ++i) {
        Replica& old = fleet_[replica(i, places_[i].prompts)];
        if (old.power == Power::draining && old.idle()) {
            old.power = Power::off;
            old.state.reset();
            const std::uint32_t next = replica(i, !places_[i].prompts);
            fleet_[next].power = Power::starting;
            dispatcher_->delay(SimTime::from_seconds(spec_.planner.switch_s), 0, next, Phase::scheduler);
        }
    }
}

void Planner::look() {
    end_roles();
    // Of places that move the new role counts.
    std::int64_t prompts =
        std::count_if(places_.begin(), places_.end(), [](const Place& one) { return one.prompts != one.moving; });
    const std::int64_t target = spec_.planner.by_load() ? wanted_by_load(prompts) : wanted();
    for (; target > prompts; ++prompts) {
        move(true);
    }
    for (; target >= 0 && target < prompts; --prompts) {
        move(false);
    }
    end_roles();
    routing_.update();
}

// By the schedule.
std::int64_t Planner::wanted() const {
    std::int64_t out = spec_.prefill_first;
    for (const RoleMove& move : spec_.planner.moves) {
        out = SimTime::from_seconds(move.at_s) <= now() ? move.prefill : out;
    }
    return out;
}

std::int64_t Planner::wanted_by_load(std::int64_t prompts) const {
    double requests = 0;
    double used = 0;
    double decoders = 0;
    for (std::uint32_t i = 0; i < places_.size(); ++i) {
        if (places_[i].moving) {
            return prompts;
        }
        const EngineState& state = fleet_[replica(i, places_[i].prompts)].state;
        if (places_[i].prompts) {
            requests += static_cast<double>(state.all_outstanding());
        } else {
            used += static_cast<double>(state.used_blocks()) / static_cast<double>(state.limits().blocks);
            ++decoders;
        }
    }
    const bool more_prompts =
        spec_.planner.prompts > 0 && requests > spec_.planner.prompts * static_cast<double>(prompts);
    const bool more_decoding = spec_.planner.cache > 0 && used > spec_.planner.cache * decoders;
    if (more_prompts && !more_decoding && decoders > 1) {
        return prompts + 1;
    }
    return more_decoding && !more_prompts && prompts > 1 ? prompts - 1 : prompts;
}

void Planner::move(bool to_prompts) {
    const auto load = [&](std::uint32_t i) { return fleet_[replica(i, places_[i].prompts)].state.all_outstanding(); };
    std::uint32_t best = static_cast<std::uint32_t>(places_.size());
    for (std::uint32_t i = 0; i < places_.size(); ++i) {
        if (!places_[i].moving && places_[i].prompts != to_prompts &&
            (best == places_.size() || load(i) <= load(best))) {
            best = i;
        }
    }
    if (best == places_.size()) {
        return;  // all of that role move already
    }
    places_[best].moving = true;
    fleet_[replica(best, places_[best].prompts)].power = Power::draining;
    ++result_.role_moves;
}

}  // namespace orrery::serving
