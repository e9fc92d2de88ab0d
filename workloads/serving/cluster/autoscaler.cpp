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

namespace {
constexpr std::uint64_t kScrape = std::uint64_t{1} << 32;  ///< and the pool: a measurement is due
}

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
        pools_.push_back({&pool, static_cast<std::uint32_t>(pools_.size()), first, SimTime(), {}});
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
            if (scaling.scrape_s > 0) {
                dispatcher.delay(SimTime::from_seconds(scaling.scrape_s), 0, kScrape + i, Phase::scheduler);
            }
            dispatcher.delay(SimTime::from_seconds(scaling.interval_s), 0, i, Phase::scheduler);
        }
    }
}

void Autoscaler::on_done(std::uint64_t event, Dispatcher& dispatcher) {
    if (event < kScrape) {
        return look(static_cast<std::uint32_t>(event));
    }
    Pool& pool = pools_[event - kScrape];
    if (!frontend_.all_settled()) {
        measure(pool, pool.spec->scaling.scrape_s);
        dispatcher.delay(SimTime::from_seconds(pool.spec->scaling.scrape_s), 0, event, Phase::scheduler);
    }
}

// The load over the last `since_s`.
void Autoscaler::measure(Pool& pool, double since_s) {
    std::uint64_t outstanding = 0;
    std::uint64_t arrived = 0;
    for (std::uint32_t i = pool.first; i < pool.first + pool.spec->replicas; ++i) {
        outstanding += fleet_[i].state.all_outstanding();
        arrived += std::exchange(fleet_[i].arrived, 0);
    }
    pool.measured.push_back({now(), outstanding, arrived, since_s});
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

// Null, where no measurement can be seen yet.
const Autoscaler::Measurement* Autoscaler::latest_seen(Pool& pool, SimTime now) {
    const SimTime delay = SimTime::from_seconds(pool.spec->scaling.delay_s);
    const auto seen = [&](const Measurement& one) { return one.at + delay <= now; };
    while (pool.measured.size() > 1 && seen(pool.measured[1])) {
        pool.measured.pop_front();
    }
    return pool.measured.empty() || !seen(pool.measured.front()) ? nullptr : &pool.measured.front();
}

std::uint32_t Autoscaler::wanted_by_load(const Pool& pool, const Measurement& load) {
    const ScalingSpec& scaling = pool.spec->scaling;
    const double measured = scaling.rule == ScalingRule::queue ? static_cast<double>(load.outstanding)
                                                               : static_cast<double>(load.arrived) / load.since_s;
    return static_cast<std::uint32_t>(std::clamp(std::ceil(measured / scaling.target),
                                                 static_cast<double>(scaling.least),
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
    if (scaling.scrape_s <= 0) {
        measure(pool, scaling.interval_s);
    }
    std::uint32_t running = 0;  // or starting
    std::uint32_t on = 0;
    for (std::uint32_t i = pool.first; i < pool.first + pool.spec->replicas; ++i) {
        Replica& replica = fleet_[i];
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
    const Measurement* load = latest_seen(pool, now());
    const std::uint32_t wanted =
        load == nullptr ? running
        : policy_ == nullptr
            ? wanted_by_load(pool, *load)
            : asked({pool.number, now().seconds(), load->since_s, load->outstanding, load->arrived, on, running - on,
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
