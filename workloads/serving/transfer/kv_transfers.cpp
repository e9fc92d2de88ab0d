#include "workloads/serving/transfer/kv_transfers.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery::serving {

void KvTransfers::batch_starts(std::uint32_t replica, const Batch& batch) {
    if (fleet_[replica].pool.role != Role::prefill || spec_.transfer != Transfer::layers || spec_.same_devices ||
        decoders_are_full()) {
        return;
    }
    for (const BatchItem& item : batch.items) {
        const Sequence& sequence = fleet_[replica].state.sequence(item.sequence);
        if (item.context == sequence.needed() && sequence.then > 0) {
            (void)open(replica, item.sequence, item.context);
        }
    }
}

std::uint32_t KvTransfers::open(std::uint32_t from, std::uint32_t source, std::uint32_t cached) {
    const std::uint32_t id = kv_transfers_.take({});
    const Sequence& sequence = fleet_[from].state.sequence(source);
    KvTransfer& kv_transfer = kv_transfers_[id];
    kv_transfer.from = from;
    kv_transfer.to = decoders_.choose(sequence.id, sequence.session, sequence.content, sequence.prompt);
    kv_transfer.source = source;
    Replica& target = fleet_[kv_transfer.to];
    Sequence there = sequence;
    there.output = sequence.output + sequence.then;
    there.then = 0;
    there.cached = cached;
    there.level = 0;
    there.service = 0;
    kv_transfer.target = target.state.adopt(there);
    ORRERY_ASSERT(!by_source_.contains({from, source}));
    by_source_[{from, source}] = id;
    kv_transfer.has_room = target.state.reserve(kv_transfer.target, target.room_of(there));
    if (kv_transfer.has_room && spec_.transfer == Transfer::layers && spec_.layers > 1) {
        send(id, 1 - 1.0 / spec_.layers);
    } else if (!kv_transfer.has_room) {
        target.state.without_room.push_back(id);
    }
    return id;
}

bool KvTransfers::decoders_are_full() const {
    const auto& all = decoders_.replicas();
    return spec_.mixing.cache > 0 && std::all_of(all.begin(), all.end(), [&](std::uint32_t i) {
               const Replica& replica = fleet_[i];
               const double used = static_cast<double>(replica.state.used_blocks());
               return !replica.up || used > spec_.mixing.cache * static_cast<double>(replica.state.limits().blocks);
           });
}

void KvTransfers::pass_on(std::uint32_t from, std::uint32_t source) {
    const std::uint32_t to = fleet_.partner(from);
    EngineState& there = fleet_[to].state;
    const std::uint32_t target = there.take_over(fleet_[from].state, source);
    Sequence& sequence = there.sequence(target);
    sequence.output += sequence.then;
    sequence.then = 0;
    sequence.level = 0;
    sequence.service = 0;
    ++result_.kv_transfers;
    arrived(to, target);
    fleet_.wake(to);
}

void KvTransfers::prompt_done(std::uint32_t from, std::uint32_t source) {
    if (spec_.same_devices) {
        return pass_on(from, source);
    }
    const auto found = by_source_.find({from, source});
    Sequence& done = fleet_[from].state.sequence(source);
    const std::uint32_t id = found != by_source_.end() ? found->second : open(from, source, done.cached);
    KvTransfer& kv_transfer = kv_transfers_[id];
    done.stage = Stage::leaving;
    Sequence& there = fleet_[kv_transfer.to].state.sequence(kv_transfer.target);
    there.generated = done.generated;
    there.first_token = done.first_token;
    there.last_token = done.last_token;
    there.late = done.late;
    there.held = spec_.first_token == FirstToken::decode;
    ORRERY_ASSERT(!kv_transfer.prompt_done && kv_transfer.from == from && kv_transfer.source == source);
    kv_transfer.prompt_done = true;
    kv_transfer.ready = now();
    if (kv_transfer.has_room) {
        send_rest(id);
    }
}

void KvTransfers::send_rest(std::uint32_t id) {
    const bool begun = spec_.transfer == Transfer::layers && spec_.layers > 1 && !kv_transfers_[id].sent_whole;
    send(id, begun ? 1.0 / spec_.layers : 1.0, spec_.handover);
}

void KvTransfers::send(std::uint32_t id, double share, double wait) {
    KvTransfer& kv_transfer = kv_transfers_[id];
    ++kv_transfer.transfers;
    const Replica& from = fleet_[kv_transfer.from];
    const Replica& to = fleet_[kv_transfer.to];
    const Sequence& sequence = to.state.sequence(kv_transfer.target);
    const Fleet::Path& path = fleet_.path({from.first_gpu, from.pool.gpus}, {to.first_gpu, to.pool.gpus});
    const double bytes = share * sequence.cached * spec_.cache_token_bytes;
    const std::uint32_t part = kv_transfer.parts++;
    kv_transfer.started.at(part) = now();
    kv_transfer.bytes.at(part) = bytes;
    dispatcher_->share(path.resources, bytes, SimTime::from_seconds(wait + path.latency), kv_transfer.to + 1,
                       pair_token(part, id));
}

void KvTransfers::record(const KvTransfer& kv_transfer, std::uint32_t part) {
    if (result_.transfers.size() == kMostTransferRecords) {
        result_.cut = true;
        return;
    }
    result_.transfers.push_back(
        {kv_transfer.from, kv_transfer.to, kv_transfer.started.at(part), now(), kv_transfer.bytes.at(part)});
}

void KvTransfers::on_done(std::uint64_t token, Dispatcher&) {
    const std::uint32_t part = high_of(token);
    const std::uint32_t id = low_of(token);
    KvTransfer& kv_transfer = kv_transfers_[id];
    ORRERY_ASSERT(kv_transfer.transfers > 0);
    --kv_transfer.transfers;
    if (spec_.timeline) {
        record(kv_transfer, part);
    }
    if (kv_transfer.lost && kv_transfer.transfers == 0) {
        kv_transfers_.give(id);
    }
    if (kv_transfer.lost || kv_transfer.transfers > 0 || !kv_transfer.prompt_done) {
        return;
    }
    ++result_.kv_transfers;
    result_.kv_transfer_s += (now() - kv_transfer.ready).seconds();
    const std::uint32_t from = kv_transfer.from;
    const std::uint32_t to = kv_transfer.to;
    const std::uint32_t target = kv_transfer.target;
    fleet_[to].state.sequence(target).abandoned = fleet_[from].state.sequence(kv_transfer.source).abandoned;
    fleet_[from].state.finish(kv_transfer.source);
    by_source_.erase({from, kv_transfer.source});
    kv_transfers_.give(id);
    arrived(to, target);
    fleet_.wake(to);
    fleet_.wake(from);
}

void KvTransfers::arrived(std::uint32_t to, std::uint32_t sequence) {
    EngineState& state = fleet_[to].state;
    if (state.sequence(sequence).abandoned) {
        state.finish(sequence);
        make_room(to);
        return;
    }
    state.arrived(sequence);
    ++fleet_[to].arrived;
    places_.follow(state.sequence(sequence).id, to, sequence);
}

std::vector<Sequence> KvTransfers::fail(std::uint32_t replica) {
    std::vector<Sequence> lost;
    for (auto entry = by_source_.begin(); entry != by_source_.end();) {
        const std::uint32_t id = entry->second;
        KvTransfer& kv_transfer = kv_transfers_[id];
        if (kv_transfer.from != replica && kv_transfer.to != replica) {
            ++entry;
            continue;
        }
        entry = by_source_.erase(entry);
        std::erase(fleet_[kv_transfer.to].state.without_room, id);
        fleet_[kv_transfer.to].state.finish(kv_transfer.target);
        if (kv_transfer.to == replica && kv_transfer.from != replica && kv_transfer.prompt_done) {
            EngineState& source = fleet_[kv_transfer.from].state;
            lost.push_back(source.sequence(kv_transfer.source));
            source.finish(kv_transfer.source);
        }
        kv_transfer.lost = true;
        if (kv_transfer.transfers == 0) {
            kv_transfers_.give(id);
        }
    }
    return lost;
}

void KvTransfers::make_room(std::uint32_t index) {
    if (spec_.same_devices) {
        fleet_.wake(fleet_.partner(index));
    }
    Replica& replica = fleet_[index];
    while (!replica.state.without_room.empty()) {
        const std::uint32_t id = replica.state.without_room.front();
        KvTransfer& kv_transfer = kv_transfers_[id];
        const Sequence& sequence = replica.state.sequence(kv_transfer.target);
        if (!replica.state.reserve(kv_transfer.target, replica.room_of(sequence))) {
            return;
        }
        replica.state.without_room.pop_front();
        kv_transfer.has_room = true;
        kv_transfer.sent_whole = true;  // it came too late to send layer by layer
        if (kv_transfer.prompt_done) {
            send_rest(id);
        }
    }
}

}  // namespace orrery::serving
