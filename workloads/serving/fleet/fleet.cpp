#include "workloads/serving/fleet/fleet.hpp"

#include "sim/base/error.hpp"
#include "sim/base/random.hpp"

#include <algorithm>
#include <tuple>

namespace orrery::serving {

Fleet::Fleet(const ServiceSpec& spec, ServiceResult& result) : spec_(spec) {
    result.pools.resize(spec.pools.size());
    for (std::size_t number = 0; number < spec.pools.size(); ++number) {
        const PoolSpec& pool = spec.pools[number];
        ORRERY_ASSERT(!pool.cost.empty() && (pool.cost.size() == 1 || spec.fabric != nullptr));
        for (std::uint32_t i = 0; i < pool.replicas; ++i) {
            replicas_.push_back(std::make_unique<Replica>(pool, number, pool.first_gpu + i * pool.gpus));
            engines_.push_back(&replicas_.back()->state);
        }
    }
    ORRERY_ASSERT(!spec.same_devices || (spec.pools.size() == 2 && spec.pools[0].replicas == spec.pools[1].replicas));
    for (std::uint32_t i = 0; spec.same_devices && i < size() / 2; ++i) {
        replicas_[partner(i)]->state.share_blocks_with(replicas_[i]->state);
    }
}

void Fleet::begin(Dispatcher& dispatcher) {
    Part::begin(dispatcher);
    for (std::uint32_t i = 0; spec_.policies != nullptr && i < size(); ++i) {
        replicas_[i]->scheduler->attach({*spec_.policies, i, [this] { return now(); }});
    }
    const auto link = [&](double bandwidth) {
        const Demand whole{dispatcher.resources().add_resource(bandwidth), 1};
        return dispatcher.keep(std::span(&whole, 1));
    };
    for (std::uint32_t i = 0; spec_.same_devices && i < size() / 2; ++i) {
        // The ranks of a stage do the same at the same time: one device stands for all of them.
        for (std::size_t stage = 0; stage < replicas_[i]->stages.size(); ++stage) {
            shared_.push_back(std::make_unique<Device>(dispatcher.resources(), *replicas_[i]->pool.device));
            replicas_[i]->devices.push_back(shared_.back().get());
            replicas_[partner(i)]->devices.push_back(shared_.back().get());
        }
    }
    std::map<std::uint32_t, std::pair<ClassId, ClassId>> nvme;  // by node
    for (const auto& replica : replicas_) {
        if (replica->pool.host_bandwidth > 0) {
            replica->from_host = link(replica->pool.host_bandwidth);
            replica->to_host = link(replica->pool.host_bandwidth);
        }
        if (spec_.nvme_bandwidth > 0) {
            const auto [entry, fresh] = nvme.try_emplace(replica->first_gpu / spec_.gpus_per_node);
            if (fresh) {
                entry->second = {link(spec_.nvme_bandwidth), link(spec_.nvme_bandwidth)};
            }
            std::tie(replica->from_nvme, replica->to_nvme) = entry->second;
        }
    }
}

void Fleet::wake(std::uint32_t index) {
    Replica& replica = *replicas_[index];
    if (!replica.plans && replica.can_plan()) {
        replica.plans = true;
        dispatcher_->delay(SimTime(), index + 1, index, Phase::scheduler);
    }
}

void Fleet::on_done(std::uint64_t replica, Dispatcher&) {
    const auto index = static_cast<std::uint32_t>(replica);
    replicas_[index]->plans = false;
    plan_(index);
}

void Fleet::end(Dispatcher&) {
    for (const auto& replica : replicas_) {
        replica->scheduler->ended(replica->state);
    }
}

const Fleet::Path& Fleet::path(GpuRange from, GpuRange to) {
    const auto [entry, fresh] = paths_.try_emplace({from, to});
    Path& path = entry->second;
    if (!fresh) {
        return path;
    }
    const std::uint32_t flows = std::max(from.count, to.count);
    std::map<std::uint32_t, double> weights;
    std::vector<RoutedFlow> routed;
    for (std::uint32_t i = 0; i < flows; ++i) {
        const GpuId a = gpu(from.first + i * from.count / flows);
        const GpuId b = gpu(to.first + i * to.count / flows);
        if (a == b) {
            continue;  // one end of a range that the other overlaps
        }
        const Route route = spec_.fabric->route(a, b, spec_.paths, mix64(i + (std::uint64_t{to.first} << 20U)));
        const std::span<const ResourceId> links = route.resources();
        for (std::size_t k = 0; k < links.size(); ++k) {
            weights[links[k].value()] += route.share(k) / flows;
        }
        const bool crosses = spec_.fabric->domain_of(a) != spec_.fabric->domain_of(b);
        if (crosses) {
            routed.push_back(RoutedFlow{a, b, 1.0 / flows});
            routed.back().part = RoutedFlow::Part::send;
        }
        // Packets take the time of their path themselves.
        if (!crosses || !dispatcher_->resources().routes_flows()) {
            path.latency = std::max(path.latency, route.latency);
        }
    }
    std::vector<Demand> demands;
    for (const auto& [resource, weight] : weights) {
        demands.push_back(Demand{ResourceId(resource), weight});
        const double rate = spec_.fabric->capacity(ResourceId(resource)) / weight;
        path.rate = path.rate > 0 ? std::min(path.rate, rate) : rate;
    }
    if (!routed.empty() || !demands.empty()) {
        path.resources = dispatcher_->keep_flows(routed, demands);
    }
    return path;
}

}  // namespace orrery::serving
