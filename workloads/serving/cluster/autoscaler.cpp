#include "workloads/serving/cluster/autoscaler.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::serving {

Autoscaler::Autoscaler(const ServiceSpec& spec, Fleet& fleet, Starter& starter, LifecycleListener& listener,
                       ServiceResult& result)
    : fleet_(fleet), starter_(starter), listener_(listener), result_(result), since_(fleet.size()) {
    std::uint32_t first = 0;
    for (const PoolSpec& pool : spec.pools) {
        pools_.push_back({&pool, first, SimTime(), 0});
        if (pool.scaling.target > 0) {
            for (std::uint32_t i = pool.scaling.least; i < pool.replicas; ++i) {
                fleet[first + i].power = Power::off;
            }
        }
        first += pool.replicas;
    }
}

void Autoscaler::begin(Dispatcher& dispatcher) {
    dispatcher_ = &dispatcher;
    for (std::uint32_t i = 0; i < pools_.size(); ++i) {
        const ScalingSpec& scaling = pools_[i].spec->scaling;
        if (scaling.target > 0) {
            dispatcher.delay(SimTime::from_seconds(scaling.interval_s), 0, Token{ServiceTask::scale, i, 0}.pack(),
                             Phase::scheduler);
        }
    }
}

void Autoscaler::wanted(std::uint32_t index) {
    Replica& replica = fleet_[index];
    if (replica.power == Power::draining && replica.pool.scaling.least == 0) {
        replica.power = Power::on;
        listener_.routes_change();
    } else if (replica.power == Power::off) {
        start(index);
        listener_.routes_change();
    }
}

void Autoscaler::started(std::uint32_t index) {
    fleet_[index].power = Power::on;
    fleet_[index].idle_since = dispatcher_->now();
    listener_.routes_change();
    fleet_.wake(index);
}

std::uint32_t Autoscaler::wanted_by_load(const Pool& pool, std::uint64_t outstanding) const {
    const ScalingSpec& scaling = pool.spec->scaling;
    const double load = scaling.rule == ScalingRule::queue ? static_cast<double>(outstanding)
                                                           : static_cast<double>(pool.arrived) / scaling.interval_s;
    return static_cast<std::uint32_t>(std::clamp(std::ceil(load / scaling.target), static_cast<double>(scaling.least),
                                                 static_cast<double>(pool.spec->replicas)));
}

// Whether a replica is kept although the load does not want it.
bool Autoscaler::stays(const Pool& pool, const Replica& replica) const {
    const double keep = pool.spec->scaling.keep_alive_s;
    return keep > 0 && !(replica.idle() && (dispatcher_->now() - replica.idle_since).seconds() >= keep);
}

void Autoscaler::look(std::uint32_t index) {
    Pool& pool = pools_[index];
    const ScalingSpec& scaling = pool.spec->scaling;
    std::uint64_t outstanding = 0;
    std::uint32_t running = 0;  // or starting
    std::uint32_t on = 0;
    for (std::uint32_t i = pool.first; i < pool.first + pool.spec->replicas; ++i) {
        Replica& replica = fleet_[i];
        outstanding += replica.state.outstanding() + replica.state.aside() + replica.without_room.size();
        if (replica.power == Power::draining && replica.idle() && replica.up) {
            stop(i);
        }
        running += replica.power == Power::on || replica.power == Power::starting ? 1 : 0;
        on += replica.power == Power::on ? 1 : 0;
    }
    if (listener_.all_served()) {
        return;
    }
    const std::uint32_t wanted = wanted_by_load(pool, outstanding);
    pool.arrived = 0;
    const auto each = [&](Power power, auto change) {
        for (std::uint32_t i = pool.first; i < pool.first + pool.spec->replicas && running < wanted; ++i) {
            if (fleet_[i].power == power) {
                change(i);
                ++running;
                on += fleet_[i].power == Power::on ? 1 : 0;
            }
        }
    };
    // Who has not stopped yet is the quickest help.
    each(Power::draining, [&](std::uint32_t i) { fleet_[i].power = Power::on; });
    each(Power::off, [&](std::uint32_t i) { start(i); });
    const bool cool = (dispatcher_->now() - pool.last_start).seconds() >= scaling.cooldown_s;
    // Replicas that still start serve nobody: of those that do, the least number goes on.
    for (std::uint32_t i = pool.first + pool.spec->replicas;
         cool && running > wanted && on > scaling.least && i-- > pool.first;) {
        if (fleet_[i].power == Power::on && !stays(pool, fleet_[i])) {
            fleet_[i].power = Power::draining;
            --running;
            --on;
        }
    }
    listener_.routes_change();
    dispatcher_->delay(SimTime::from_seconds(scaling.interval_s), 0, Token{ServiceTask::scale, index, 0}.pack(),
                       Phase::scheduler);
}

void Autoscaler::start(std::uint32_t index) {
    Replica& replica = fleet_[index];
    replica.power = Power::starting;
    since_[index] = dispatcher_->now();
    ++result_.starts;
    for (Pool& pool : pools_) {
        if (pool.spec == &replica.pool) {
            pool.last_start = dispatcher_->now();
        }
    }
    starter_.start(index, Machine::fresh);
}

void Autoscaler::stop(std::uint32_t index) {
    Replica& replica = fleet_[index];
    replica.power = Power::off;
    replica.state.reset();
    gpu_s_ += (dispatcher_->now() - since_[index]).seconds() * replica.pool.gpus;
}

double Autoscaler::gpu_seconds(SimTime end) const {
    double seconds = gpu_s_;
    for (std::uint32_t i = 0; i < fleet_.size(); ++i) {
        if (fleet_[i].power != Power::off && end > since_[i]) {
            seconds += (end - since_[i]).seconds() * fleet_[i].pool.gpus;
        }
    }
    return seconds;
}

}  // namespace orrery::serving
