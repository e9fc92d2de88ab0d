#include "workloads/serving/cluster/autoscaler.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::inline serving {

Autoscaler::Autoscaler(const ServiceSpec& spec, Fleet& fleet, LifecycleListener& listener, ServiceResult& result)
    : fleet_(fleet), listener_(listener), result_(result), since_(fleet.size()) {
    std::uint32_t first = 0;
    for (const PoolSpec& pool : spec.pools) {
        pools_.push_back({&pool, first, SimTime()});
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
        storage_.emplace_back();
        if (scaling.target > 0) {
            if (scaling.storage > 0) {
                const Demand whole{dispatcher.resources().add_resource(scaling.storage), 1};
                storage_.back() = dispatcher.keep(std::span(&whole, 1));
            }
            dispatcher.delay(SimTime::from_seconds(scaling.interval_s), 0, Token{ServiceTask::scale, i, tick}.pack(),
                             Phase::scheduler);
        }
    }
}

void Autoscaler::on_task(const Token& token) {
    if (token.entry == tick) {
        look(token.index);
        return;
    }
    // Its pool: the last that begins at or before it.
    std::size_t pool = pools_.size() - 1;
    while (pools_[pool].first > token.index) {
        --pool;
    }
    const ScalingSpec& scaling = pools_[pool].spec->scaling;
    const auto next = [&](Step step) { return Token{ServiceTask::scale, token.index, step}.pack(); };
    if (token.entry == provisioned && storage_[pool].valid() && scaling.weight_bytes > 0) {
        dispatcher_->share(storage_[pool], scaling.weight_bytes, SimTime(), token.index + 1, next(loaded));
    } else if (token.entry != warm) {
        dispatcher_->delay(SimTime::from_seconds(scaling.warm_up_s), token.index + 1, next(warm));
    } else {
        fleet_[token.index].power = Power::on;
        listener_.routes_change();
    }
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
        if (replica.power == Power::draining && replica.idle()) {
            stop(i);
        }
        running += replica.power == Power::on || replica.power == Power::starting ? 1 : 0;
        on += replica.power == Power::on ? 1 : 0;
    }
    if (listener_.all_served()) {
        return;
    }
    const double enough = std::ceil(static_cast<double>(outstanding) / scaling.target);
    const auto wanted = static_cast<std::uint32_t>(
        std::clamp(enough, static_cast<double>(scaling.least), static_cast<double>(pool.spec->replicas)));
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
        if (fleet_[i].power == Power::on) {
            fleet_[i].power = Power::draining;
            --running;
            --on;
        }
    }
    listener_.routes_change();
    dispatcher_->delay(SimTime::from_seconds(scaling.interval_s), 0, Token{ServiceTask::scale, index, tick}.pack(),
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
    dispatcher_->delay(SimTime::from_seconds(replica.pool.scaling.provision_s), index + 1,
                       Token{ServiceTask::scale, index, provisioned}.pack());
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

}  // namespace orrery::inline serving
