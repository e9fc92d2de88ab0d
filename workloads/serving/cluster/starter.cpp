#include "workloads/serving/cluster/starter.hpp"

#include "sim/base/error.hpp"

namespace orrery::serving {

void Starter::begin(Dispatcher& dispatcher) {
    Part::begin(dispatcher);
    for (const PoolSpec& pool : spec_.pools) {
        Links links;
        const auto link = [&](double rate, ResourceId& resource) {
            resource = dispatcher.resources().add_resource(rate);
            const Demand whole{resource, 1};
            return dispatcher.keep(std::span(&whole, 1));
        };
        if (pool.start.storage > 0 && pool.starts) {
            links.storage = link(pool.start.storage, links.storage_link);
        }
        if (pool.start.registry > 0 && pool.starts) {
            ResourceId unused;
            links.registry = link(pool.start.registry, unused);
        }
        links_.push_back(links);
    }
}

void Starter::start(std::uint32_t replica, Machine machine, std::function<void(std::uint32_t)> started) {
    starts_[replica] = {machine, now(), 0, false, std::move(started)};
    ++result_.cold_starts;
    run(replica, StartPart::provision);
}

bool Starter::has(std::uint32_t replica, StartPart part) const {
    const StartSpec& spec = fleet_[replica].pool.start;
    const bool fresh = starts_[replica].machine == Machine::fresh;
    switch (part) {
        case StartPart::provision:
            return fresh && spec.provision_s > 0;
        case StartPart::image:
            return fresh && spec.image > 0 && links_[fleet_[replica].pool_number].registry.valid();
        case StartPart::initialise:
            return spec.initialise_s > 0;
        case StartPart::weights:
            return spec.weight_bytes > 0;
        case StartPart::warm_up:
            break;
    }
    return true;  // the last one always comes, so that no replica starts within the call
}

void Starter::run(std::uint32_t replica, StartPart part) {
    while (!has(replica, part)) {
        part = static_cast<StartPart>(static_cast<std::uint32_t>(part) + 1);
    }
    starts_[replica].since = now();
    const PoolSpec& pool = fleet_[replica].pool;
    const std::uint64_t token = pair_token(static_cast<std::uint32_t>(part), replica);
    const auto wait = [&](double seconds) { dispatcher_->delay(SimTime::from_seconds(seconds), replica + 1, token); };
    switch (part) {
        case StartPart::provision:
            return wait(pool.start.provision_s);
        case StartPart::image: {
            const std::uint32_t machines = (pool.gpus + spec_.gpus_per_node - 1) / spec_.gpus_per_node;
            return dispatcher_->share(links_[fleet_[replica].pool_number].registry, pool.start.image * machines,
                                      SimTime(), replica + 1, token);
        }
        case StartPart::initialise:
            return wait(pool.start.initialise_s);
        case StartPart::weights:
            return load(replica);
        case StartPart::warm_up:
            return wait(pool.start.warm_up_s);
    }
}

std::optional<std::uint32_t> Starter::find_peer(std::uint32_t replica) const {
    std::optional<std::uint32_t> best;
    for (std::uint32_t i = 0; i < fleet_.size(); ++i) {
        const bool runs = fleet_[i].up && (fleet_[i].power == Power::on || fleet_[i].power == Power::draining);
        if (i != replica && runs && fleet_[i].pool_number == fleet_[replica].pool_number &&
            (!best || sending_[i] < sending_[*best])) {
            best = i;
        }
    }
    return best;
}

void Starter::load(std::uint32_t replica) {
    const Replica& to = fleet_[replica];
    const StartSpec& spec = to.pool.start;
    Start& start = starts_[replica];
    const std::uint64_t token = pair_token(static_cast<std::uint32_t>(StartPart::weights), replica);
    if (spec.weights == WeightsFrom::peer) {
        if (const std::optional<std::uint32_t> peer = find_peer(replica); peer) {
            const Replica& from = fleet_[*peer];
            const Fleet::Path& path = fleet_.path({from.first_gpu, from.pool.gpus}, {to.first_gpu, to.pool.gpus});
            ++sending_[*peer];
            start.peer = *peer;
            start.from_peer = true;
            return dispatcher_->share(path.resources, spec.weight_bytes, SimTime::from_seconds(path.latency),
                                      replica + 1, token);
        }
    }
    const bool host = spec.weights == WeightsFrom::host && start.machine == Machine::same;
    const ClassId link = host ? to.from_host : links_[to.pool_number].storage;
    if (link.valid()) {
        return dispatcher_->share(link, spec.weight_bytes, SimTime(), replica + 1, token);
    }
    dispatcher_->delay(SimTime(), replica + 1, token);
}

void Starter::on_done(std::uint64_t token, Dispatcher&) {
    const std::uint32_t replica = low_of(token);
    Start& start = starts_[replica];
    const auto part = static_cast<StartPart>(high_of(token));
    result_.start_s.at(high_of(token)) += (now() - start.since).seconds();
    if (part == StartPart::weights && start.from_peer) {
        ORRERY_ASSERT(sending_[start.peer] > 0);
        --sending_[start.peer];
        start.from_peer = false;
    }
    if (part == StartPart::warm_up) {
        return start.started(replica);
    }
    run(replica, static_cast<StartPart>(high_of(token) + 1));
}

void Starter::set_storage(double factor) {
    for (std::size_t i = 0; i < links_.size(); ++i) {
        if (links_[i].storage.valid()) {
            dispatcher_->resources().set_capacity(links_[i].storage_link, factor * spec_.pools[i].start.storage);
        }
    }
}

}  // namespace orrery::serving
