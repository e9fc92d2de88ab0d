#include "workloads/serving/transfer/expert_loads.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery::serving {

void ExpertLoads::begin(Dispatcher& dispatcher) {
    Part::begin(dispatcher);
    memory_.emplace(*spec_.host, *spec_.fabric, spec_.device_link, dispatcher.resources());
    for (std::uint32_t i = 0; i < fleet_.size(); ++i) {
        std::vector<GpuId> gpus;
        for (std::uint32_t rank = 0; rank < fleet_[i].pool.gpus; ++rank) {
            gpus.push_back(fleet_.gpu(fleet_[i].first_gpu + rank));
        }
        add(fleet_[i].pool, gpus);
    }
}

ExpertLoads::Way ExpertLoads::way(std::size_t tier, const std::vector<GpuId>& gpus, double bytes) {
    const NodeMemory::Hop hop = memory_->stream(gpus, tier);
    return {dispatcher_->keep(hop.demands), SimTime::from_seconds(hop.latency),
            memory_->host().tiers[tier].whole(bytes)};
}

void ExpertLoads::add(const PoolSpec& pool, const std::vector<GpuId>& gpus) {
    auto play = std::make_unique<Play>();
    if (pool.experts) {
        const ExpertPool& experts = *pool.experts;
        play->cache.emplace(experts.spec, experts.shape, spec_.seed,
                            "experts of replica " + std::to_string(plays_.size()));
        play->ahead = experts.spec.prefetches ? static_cast<std::uint32_t>(experts.spec.ahead) : 0;
        play->from_home = way(memory_->host().find(experts.spec.tier), gpus, experts.rank_bytes);
        if (experts.shape.host_experts > 0) {
            play->from_dram = way(memory_->host().dram(), gpus, experts.rank_bytes);
        }
    }
    plays_.push_back(std::move(play));
}

void ExpertLoads::start(std::uint32_t replica, std::uint32_t entry, std::uint64_t tokens, double seconds) {
    Play& play = *plays_[replica];
    play.loads = &play.cache->step(tokens);
    play.entry = entry;
    play.whole_s = seconds;
    play.layer_s = seconds / static_cast<double>(play.loads->size());
    play.layer = play.known = 0;
    ORRERY_ASSERT(play.queue.empty() && play.transfers == 0 && play.missing == 0 && !play.waits);
    begin_layer(replica);
}

std::uint32_t ExpertLoads::bring(std::uint32_t replica, const LayerLoads::From& from, What what) {
    Play& play = *plays_[replica];
    std::uint32_t transfers = 0;
    for (const auto& [count, way] : {std::pair{from.dram, &play.from_dram}, {from.home, &play.from_home}}) {
        if (count > 0) {
            ++transfers;
            result_.expert_bytes += count * way->bytes;
            dispatcher_->share(way->links, count * way->bytes, way->latency, replica + 1, pair_token(what, replica));
        }
    }
    return transfers;
}

void ExpertLoads::bring_next(std::uint32_t replica) {
    Play& play = *plays_[replica];
    if (play.transfers == 0 && !play.queue.empty()) {
        play.transfers = bring(replica, (*play.loads)[play.queue.front()].predicted, predicted);
    }
}

void ExpertLoads::begin_layer(std::uint32_t replica) {
    Play& play = *plays_[replica];
    const std::vector<LayerLoads>& loads = *play.loads;
    ORRERY_ASSERT(play.layer < loads.size());
    for (; play.known < loads.size() && play.known <= play.layer + play.ahead; ++play.known) {
        if (loads[play.known].predicted.all() > 0) {
            play.queue.push_back(play.known);
        }
    }
    bring_next(replica);
    play.missing = bring(replica, loads[play.layer].demanded, demanded);
    play.waits = true;
    play.since = now();
    go_on_if_ready(replica);
}

// The layers that wait for nothing and tell of nothing are one task.
void ExpertLoads::go_on_if_ready(std::uint32_t replica) {
    Play& play = *plays_[replica];
    const bool coming = !play.queue.empty() && play.queue.front() <= play.layer;
    if (!play.waits || play.missing > 0 || coming) {
        return;
    }
    play.waits = false;
    result_.expert_wait_s += (now() - play.since).seconds();
    const std::vector<LayerLoads>& loads = *play.loads;
    std::uint32_t next = play.layer + 1;
    const auto matters = [&](std::uint32_t layer) {
        const std::uint32_t told = layer + play.ahead;  // the layer whose predictions are known there
        return loads[layer].demanded.all() > 0 || loads[layer].predicted.all() > 0 ||
               (told >= play.known && told < loads.size() && loads[told].predicted.all() > 0);
    };
    while (next < loads.size() && !matters(next)) {
        ++next;
    }
    const bool whole = play.layer == 0 && next == loads.size();
    const double seconds = whole ? play.whole_s : (next - play.layer) * play.layer_s;
    play.layer = next;
    dispatcher_->delay(SimTime::from_seconds(seconds), replica + 1, pair_token(layers_done, replica));
}

void ExpertLoads::on_done(std::uint64_t token, Dispatcher&) {
    const std::uint32_t replica = low_of(token);
    Play& play = *plays_[replica];
    switch (static_cast<What>(high_of(token))) {
        case layers_done:
            if (play.layer == play.loads->size()) {
                return done_(replica, play.entry);
            }
            return begin_layer(replica);
        case demanded:
            ORRERY_ASSERT(play.missing > 0);
            --play.missing;
            return go_on_if_ready(replica);
        case predicted:
            ORRERY_ASSERT(play.transfers > 0 && !play.queue.empty());
            if (--play.transfers == 0) {
                play.queue.pop_front();
                bring_next(replica);
                go_on_if_ready(replica);
            }
    }
}

void ExpertLoads::finish() {
    for (const auto& play : plays_) {
        if (play->cache) {
            result_.experts_used += play->cache->used();
            result_.expert_hits += play->cache->hits();
            result_.experts_predicted += play->cache->predicted();
            result_.experts_in_vain += play->cache->in_vain();
        }
    }
}

}  // namespace orrery::serving
