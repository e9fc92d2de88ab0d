#include "workloads/serving/cluster/autoscaler.hpp"

#include "sim/base/error.hpp"
#include "workloads/outside/connection.hpp"
#include "workloads/outside/policies.hpp"
#include "workloads/outside/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace orrery::serving {

Autoscaler::Autoscaler(const ServiceSpec& spec, Fleet& fleet, Routing& routing, Starter& starter,
                       const Frontend& frontend, ServiceResult& result)
    : FleetPart(spec, fleet, result),
      routing_(routing),
      starter_(starter),
      frontend_(frontend),
      policy_(spec.policies != nullptr ? spec.policies->autoscaler() : nullptr),
      since_(fleet.size()) {
    std::uint32_t first = 0;
    for (const PoolSpec& pool : spec.pools) {
        pools_.push_back({&pool, static_cast<std::uint32_t>(pools_.size()), first, SimTime()});
        if (pool.scaling.target > 0) {
            for (std::uint32_t i = pool.scaling.least; i < pool.replicas; ++i) {
                fleet[first + i].power = Power::off;
            }
        }
        first += pool.replicas;
    }
    ORRERY_ASSERT(first == fleet.size());
    routing.update();
}

void Autoscaler::begin(Dispatcher& dispatcher) {
    Part::begin(dispatcher);
    for (std::uint32_t i = 0; i < pools_.size(); ++i) {
        const ScalingSpec& scaling = pools_[i].spec->scaling;
        if (scaling.target > 0) {
            dispatcher.delay(SimTime::from_seconds(scaling.interval_s), 0, i, Phase::scheduler);
        }
    }
}

void Autoscaler::wanted(std::uint32_t index) {
    Replica& replica = fleet_[index];
    if (replica.power == Power::draining && replica.pool.scaling.least == 0) {
        replica.power = Power::on;
        routing_.update();
    } else if (replica.power == Power::off) {
        start(index);
        routing_.update();
    }
}

void Autoscaler::started(std::uint32_t index) {
    ORRERY_ASSERT(fleet_[index].power == Power::starting);
    fleet_[index].power = Power::on;
    fleet_[index].idle_since = now();
    routing_.update();
    fleet_.wake(index);
}

std::uint32_t Autoscaler::wanted_by_load(const Pool& pool, std::uint64_t outstanding, std::uint64_t arrived) const {
    const ScalingSpec& scaling = pool.spec->scaling;
    const double load = scaling.rule == ScalingRule::queue ? static_cast<double>(outstanding)
                                                           : static_cast<double>(arrived) / scaling.interval_s;
    return static_cast<std::uint32_t>(std::clamp(std::ceil(load / scaling.target), static_cast<double>(scaling.least),
                                                 static_cast<double>(pool.spec->replicas)));
}

// What the user's own policy says.
std::uint32_t Autoscaler::asked(const policy::Pool& pool) {
    const std::uint32_t wanted = [&] {
        const outside::Decision counted;
        return policy_->scale(pool);
    }();
    if (wanted < pool.least || wanted > pool.most) {
        outside::policy_failed(spec_.policies->service().autoscaler.from,
                               fmt::format("it wants {} replicas of pool {}, which has {} to {} ({} s)", wanted,
                                           pool.number, pool.least, pool.most, pool.now));
    }
    if (outside::session().records) {
        outside::session().record += outside::recorded_scale(pool.number, pool.now, wanted);
    }
    return wanted;
}

// Whether a replica is kept although the load does not want it.
bool Autoscaler::stays(const Pool& pool, const Replica& replica) const {
    const double keep = pool.spec->scaling.keep_alive_s;
    return keep > 0 && !(replica.idle() && (now() - replica.idle_since).seconds() >= keep);
}

void Autoscaler::look(std::uint32_t index) {
    Pool& pool = pools_[index];
    const ScalingSpec& scaling = pool.spec->scaling;
    std::uint64_t outstanding = 0;
    std::uint64_t arrived = 0;  // since the last look
    std::uint32_t running = 0;  // or starting
    std::uint32_t on = 0;
    for (std::uint32_t i = pool.first; i < pool.first + pool.spec->replicas; ++i) {
        Replica& replica = fleet_[i];
        outstanding += replica.state.all_outstanding();
        arrived += std::exchange(replica.arrived, 0);
        if (replica.power == Power::draining && replica.idle() && replica.up) {
            stop(i);
        }
        running += replica.power == Power::on || replica.power == Power::starting ? 1 : 0;
        on += replica.power == Power::on ? 1 : 0;
    }
    if (frontend_.all_settled()) {
        return;
    }
    ORRERY_ASSERT(on <= running && running <= pool.spec->replicas);
    const std::uint32_t wanted =
        policy_ == nullptr
            ? wanted_by_load(pool, outstanding, arrived)
            : asked({pool.number, now().seconds(), scaling.interval_s, outstanding, arrived, on, running - on,
                     scaling.least, static_cast<std::uint32_t>(pool.spec->replicas), scaling.target});
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
    const bool cool = (now() - pool.last_start).seconds() >= scaling.cooldown_s;
    // Replicas that still start serve nobody: of those that do, the least number goes on.
    for (std::uint32_t i = pool.first + pool.spec->replicas;
         cool && running > wanted && on > scaling.least && i-- > pool.first;) {
        if (fleet_[i].power == Power::on && !stays(pool, fleet_[i])) {
            fleet_[i].power = Power::draining;
            --running;
            --on;
        }
    }
    routing_.update();
    dispatcher_->delay(SimTime::from_seconds(scaling.interval_s), 0, index, Phase::scheduler);
}

void Autoscaler::start(std::uint32_t index) {
    Replica& replica = fleet_[index];
    ORRERY_ASSERT(replica.power == Power::off);
    replica.power = Power::starting;
    since_[index] = now();
    ++result_.starts;
    for (Pool& pool : pools_) {
        if (pool.spec == &replica.pool) {
            pool.last_start = now();
        }
    }
    starter_.start(index, Machine::fresh, [this](std::uint32_t one) { started(one); });
}

void Autoscaler::stop(std::uint32_t index) {
    Replica& replica = fleet_[index];
    ORRERY_ASSERT(replica.power == Power::draining && since_[index] <= now());
    replica.power = Power::off;
    replica.state.reset();
    gpu_s_ += (now() - since_[index]).seconds() * replica.pool.gpus;
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
