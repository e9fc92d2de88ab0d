#include "workloads/serving/transfer/shared_cache.hpp"

#include "workloads/serving/cost/step_cost.hpp"

#include <algorithm>
#include <utility>

namespace orrery::serving {

namespace {
constexpr std::uint32_t kFlush = 0, kWrite = 1;  // what a token tells of
}

SharedCache::SharedCache(const ServiceSpec& spec, Fleet& fleet, ServiceResult& result)
    : FleetPart(spec, fleet, result), store_({}, spec.shared.eviction), waiting_(fleet.size()), sent_(fleet.size()) {
    if (!spec.shared.given) {
        return;
    }
    block_bytes_ = fleet[0].state.limits().block_bytes;
    room_ = static_cast<std::uint64_t>(spec.shared.capacity / block_bytes_);
    const CacheChange written = spec.shared.write == StoreWrite::through ? CacheChange::stored : CacheChange::evicted;
    for (std::uint32_t i = 0; room_ > 0 && i < fleet.size(); ++i) {
        fleet[i].state.watch_cache([this, i, written](CacheChange change, std::uint64_t key) {
            if (change == written) {
                wanted(i, key);
            } else if (change == CacheChange::cleared) {
                lose(i);
            }
        });
    }
}

void SharedCache::begin(Dispatcher& dispatcher) {
    Part::begin(dispatcher);
    if (spec_.shared.bandwidth > 0 && room_ > 0) {
        const auto pipe = [&] {
            const Demand whole{dispatcher.resources().add_resource(spec_.shared.bandwidth), 1};
            return dispatcher.keep(std::span(&whole, 1));
        };
        in_ = pipe();
        out_ = pipe();
    }
}

void SharedCache::put(std::uint64_t key) {
    coming_.erase(key);
    if (const std::uint32_t item = store_.publish(key); item != TierCache::kNone) {
        (void)store_.drop(item);
    }
    const std::uint64_t before = store_.idle();
    store_.trim(room_);
    result_.store_dropped_bytes += static_cast<double>(before - store_.idle()) * block_bytes_;
}

void SharedCache::wanted(std::uint32_t replica, std::uint64_t key) {
    if (stored(key) || !coming_.insert(key).second) {
        return;
    }
    if (waiting_[replica].empty() && spec_.shared.write == StoreWrite::back) {
        dispatcher_->delay(SimTime(), replica + 1, pair_token(kFlush, replica), Phase::scheduler);
    }
    waiting_[replica].push_back(key);
}

void SharedCache::batch_ends(std::uint32_t replica) {
    if (spec_.shared.write == StoreWrite::through && !waiting_[replica].empty()) {
        write(replica);
    }
}

// It failed: what it had not written is gone.
void SharedCache::lose(std::uint32_t replica) {
    for (const std::uint64_t key : waiting_[replica]) {
        coming_.erase(key);
    }
    waiting_[replica].clear();
}

const Fleet::Path* SharedCache::path(std::uint32_t replica, bool to_store) {
    if (spec_.shared.node < 0) {
        return nullptr;
    }
    const Fleet::GpuRange node = {static_cast<std::uint32_t>(spec_.shared.node) * spec_.gpus_per_node,
                                  spec_.gpus_per_node};
    const Fleet::GpuRange here = {fleet_[replica].first_gpu, fleet_[replica].pool.gpus};
    if (here.first >= node.first && here.first + here.count <= node.first + node.count) {
        return nullptr;
    }
    return to_store ? &fleet_.path(here, node) : &fleet_.path(node, here);
}

void SharedCache::write(std::uint32_t replica) {
    const std::uint32_t id = writes_.take({std::exchange(waiting_[replica], {}), 0});
    const double bytes = static_cast<double>(writes_[id].keys.size()) * block_bytes_;
    result_.store_written_bytes += bytes;
    const std::uint64_t token = pair_token(kWrite, id);
    const SimTime latency = SimTime::from_seconds(spec_.shared.latency);
    if (in_.valid()) {
        ++writes_[id].pending;
        dispatcher_->share(in_, bytes, latency, replica + 1, token);
    }
    if (const Fleet::Path* way = path(replica, true); way != nullptr) {
        ++writes_[id].pending;
        dispatcher_->share(way->resources, bytes, latency + SimTime::from_seconds(way->latency), replica + 1, token);
    }
    if (writes_[id].pending == 0) {
        ++writes_[id].pending;
        dispatcher_->delay(latency, replica + 1, token);
    }
}

void SharedCache::on_done(std::uint64_t token, Dispatcher&) {
    const std::uint32_t id = low_of(token);
    if (high_of(token) == kFlush) {
        if (!waiting_[id].empty()) {
            write(id);
        }
        return;
    }
    if (--writes_[id].pending == 0) {
        for (const std::uint64_t key : writes_[id].keys) {
            put(key);
        }
        writes_[id].keys.clear();
        writes_.give(id);
    }
}

std::uint32_t SharedCache::blocks_here(std::uint32_t replica, const Sequence& sequence) const {
    const EngineState& state = fleet_[replica].state;
    return state.cached_prefix(sequence.content, sequence.needed()) / state.limits().block;
}

SharedCache::Source SharedCache::find(std::uint32_t replica, const Sequence& sequence) {
    const SharedCacheSpec& shared = spec_.shared;
    if (!shared.given || shared.pull == PullRule::never) {
        return {};
    }
    const std::uint32_t block = fleet_[replica].state.limits().block;
    const std::uint32_t most = (sequence.needed() - 1) / block;
    const std::uint32_t here = blocks_here(replica, sequence);
    Source best;
    for (std::uint32_t i = here; i < most; ++i) {
        const std::uint64_t key = sequence.content.key(i, block);
        if (key == 0 || !stored(key)) {
            break;
        }
        ++best.blocks;
    }
    for (std::uint32_t i = 0; shared.peers && i < fleet_.size(); ++i) {
        const Replica& peer = fleet_[i];
        if (i == replica || !peer.up || (peer.power != Power::on && peer.power != Power::draining)) {
            continue;
        }
        const std::uint32_t there = blocks_here(i, sequence);
        const std::uint32_t more = there > here ? there - here : 0;
        if (more > best.blocks || (more > 0 && more == best.blocks && best.peer && sent_[i] < sent_[*best.peer])) {
            best = {more, i};
        }
    }
    if (best.blocks == 0 || (shared.pull == PullRule::faster && !pays(replica, sequence, here, best))) {
        return {};
    }
    return best;
}

double SharedCache::prompt_seconds(std::uint32_t replica, std::uint32_t from, std::uint32_t to) const {
    const Replica& on = fleet_[replica];
    const std::uint32_t budget = std::max(1U, on.state.limits().token_budget);
    double seconds = 0;
    Batch batch;
    for (std::uint32_t at = from; at < to;) {
        const std::uint32_t tokens = std::min(budget, to - at);
        at += tokens;
        batch.clear();
        batch.items.push_back({0, tokens, at});
        for (StepCost* stage : on.pool.cost) {
            seconds += stage->seconds(batch);
        }
    }
    return seconds;
}

bool SharedCache::pays(std::uint32_t replica, const Sequence& sequence, std::uint32_t here, const Source& source) {
    const std::uint32_t block = fleet_[replica].state.limits().block;
    const double saved = prompt_seconds(replica, here * block, sequence.needed()) -
                         prompt_seconds(replica, (here + source.blocks) * block, sequence.needed());
    const double bytes = source.blocks * block_bytes_;
    double takes = 0;
    const auto over = [&](const Fleet::Path& way) {
        takes = std::max(takes, way.latency + (way.rate > 0 ? bytes / way.rate : 0));
    };
    if (source.peer) {
        const Replica& peer = fleet_[*source.peer];
        over(fleet_.path({peer.first_gpu, peer.pool.gpus}, {fleet_[replica].first_gpu, fleet_[replica].pool.gpus}));
    } else {
        takes = out_.valid() ? bytes / spec_.shared.bandwidth : 0;
        if (const Fleet::Path* way = path(replica, false); way != nullptr) {
            over(*way);
        }
    }
    return spec_.shared.latency + takes < saved;
}

std::vector<SharedCache::Way> SharedCache::bring(std::uint32_t replica, const Sequence& sequence,
                                                 const Source& source) {
    const double bytes = source.blocks * block_bytes_;
    const double latency = spec_.shared.latency;
    if (source.peer) {
        result_.fetched_peer_bytes += bytes;
        ++sent_[*source.peer];
        const Replica& peer = fleet_[*source.peer];
        const Replica& here = fleet_[replica];
        const Fleet::Path& way = fleet_.path({peer.first_gpu, peer.pool.gpus}, {here.first_gpu, here.pool.gpus});
        return {{way.resources, latency + way.latency}};
    }
    result_.fetched_store_bytes += bytes;
    const std::uint32_t block = fleet_[replica].state.limits().block;
    const std::uint32_t here = blocks_here(replica, sequence);
    for (std::uint32_t i = here + source.blocks; i-- > here;) {
        // As in a replica: the start of a prompt is of use to more than its end.
        const std::uint32_t item = store_.find(sequence.content.key(i, block));
        (void)store_.claim(item);
        (void)store_.drop(item);
    }
    std::vector<Way> ways;
    if (out_.valid()) {
        ways.push_back({out_, latency});
    }
    if (const Fleet::Path* way = path(replica, false); way != nullptr) {
        ways.push_back({way->resources, latency + way->latency});
    }
    if (ways.empty()) {
        ways.push_back({ClassId(), latency});
    }
    return ways;
}

}  // namespace orrery::serving
