#include "workloads/serving/transfer/kv_transfers.hpp"

#include <algorithm>

namespace orrery {

void Handovers::batch_starts(std::uint32_t replica, const Batch& batch) {
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

std::uint32_t Handovers::open(std::uint32_t from, std::uint32_t source, std::uint32_t cached) {
    std::uint32_t id = static_cast<std::uint32_t>(handovers_.size());
    if (free_.empty()) {
        handovers_.emplace_back();
    } else {
        id = free_.back();
        free_.pop_back();
    }
    const Sequence& sequence = fleet_[from].state.sequence(source);
    Handover& handover = handovers_[id];
    handover = Handover();
    handover.from = from;
    handover.to = decoders_.choose(sequence.session, sequence.content, sequence.prompt);
    handover.source = source;
    Replica& target = fleet_[handover.to];
    Sequence there = sequence;
    there.output = sequence.output + sequence.then;
    there.then = 0;
    there.cached = cached;
    there.level = 0;
    there.service = 0;
    handover.target = target.state.adopt(there);
    by_source_[{from, source}] = id;
    handover.has_room = target.state.reserve(handover.target, target.room_of(there));
    if (handover.has_room && spec_.transfer == Transfer::layers && spec_.layers > 1) {
        send(id, 1 - 1.0 / spec_.layers);
    } else if (!handover.has_room) {
        target.without_room.push_back(id);
    }
    return id;
}

bool Handovers::decoders_are_full() const {
    const auto& all = decoders_.replicas();
    return spec_.mixing.cache > 0 && std::all_of(all.begin(), all.end(), [&](std::uint32_t i) {
               const Replica& replica = fleet_[i];
               const double used = static_cast<double>(replica.state.used_blocks());
               return !replica.up || used > spec_.mixing.cache * static_cast<double>(replica.state.limits().blocks);
           });
}

void Handovers::pass_on(std::uint32_t from, std::uint32_t source) {
    const std::uint32_t to = fleet_.partner(from);
    EngineState& there = fleet_[to].state;
    const std::uint32_t target = there.take_over(fleet_[from].state, source);
    Sequence& sequence = there.sequence(target);
    sequence.output += sequence.then;
    sequence.then = 0;
    sequence.level = 0;
    sequence.service = 0;
    ++result_.handovers;
    listener_.handed_over(to, target);
    fleet_.wake(to);
}

void Handovers::prompt_done(std::uint32_t from, std::uint32_t source) {
    if (spec_.same_devices) {
        return pass_on(from, source);
    }
    const auto found = by_source_.find({from, source});
    Sequence& done = fleet_[from].state.sequence(source);
    const std::uint32_t id = found != by_source_.end() ? found->second : open(from, source, done.cached);
    Handover& handover = handovers_[id];
    done.stage = Stage::leaving;
    Sequence& there = fleet_[handover.to].state.sequence(handover.target);
    there.generated = done.generated;
    there.first_token = done.first_token;
    there.last_token = done.last_token;
    there.late = done.late;
    handover.prompt_done = true;
    handover.ready = dispatcher_->now();
    if (handover.has_room) {
        send_rest(id);
    }
}

void Handovers::send_rest(std::uint32_t id) {
    const bool begun = spec_.transfer == Transfer::layers && spec_.layers > 1 && !handovers_[id].sent_whole;
    send(id, begun ? 1.0 / spec_.layers : 1.0);
}

void Handovers::send(std::uint32_t id, double share) {
    Handover& handover = handovers_[id];
    ++handover.transfers;
    const Replica& from = fleet_[handover.from];
    const Replica& to = fleet_[handover.to];
    const Sequence& sequence = to.state.sequence(handover.target);
    const Fleet::Path& path = fleet_.path({from.first_gpu, from.pool.gpus}, {to.first_gpu, to.pool.gpus});
    dispatcher_->share(path.resources, share * sequence.cached * spec_.cache_token_bytes,
                       SimTime::from_seconds(path.latency), handover.to + 1,
                       Token{ServiceTask::handover, id, 0}.pack());
}

void Handovers::on_transfer(std::uint32_t id) {
    Handover& handover = handovers_[id];
    --handover.transfers;
    if (handover.lost && handover.transfers == 0) {
        free_.push_back(id);
    }
    if (handover.lost || handover.transfers > 0 || !handover.prompt_done) {
        return;
    }
    ++result_.handovers;
    result_.handover_s += (dispatcher_->now() - handover.ready).seconds();
    const std::uint32_t from = handover.from;
    const std::uint32_t to = handover.to;
    const std::uint32_t target = handover.target;
    fleet_[to].state.sequence(target).abandoned = fleet_[from].state.sequence(handover.source).abandoned;
    fleet_[from].state.finish(handover.source);
    by_source_.erase({from, handover.source});
    free_.push_back(id);
    listener_.handed_over(to, target);
    fleet_.wake(to);
    fleet_.wake(from);
}

std::vector<Sequence> Handovers::fail(std::uint32_t replica) {
    std::vector<Sequence> lost;
    for (auto entry = by_source_.begin(); entry != by_source_.end();) {
        const std::uint32_t id = entry->second;
        Handover& handover = handovers_[id];
        if (handover.from != replica && handover.to != replica) {
            ++entry;
            continue;
        }
        entry = by_source_.erase(entry);
        std::erase(fleet_[handover.to].without_room, id);
        fleet_[handover.to].state.finish(handover.target);
        if (handover.to == replica && handover.from != replica && handover.prompt_done) {
            EngineState& source = fleet_[handover.from].state;
            lost.push_back(source.sequence(handover.source));
            source.finish(handover.source);
        }
        handover.lost = true;
        if (handover.transfers == 0) {
            free_.push_back(id);
        }
    }
    return lost;
}

void Handovers::make_room(std::uint32_t index) {
    if (spec_.same_devices) {
        fleet_.wake(fleet_.partner(index));
    }
    Replica& replica = fleet_[index];
    while (!replica.without_room.empty()) {
        const std::uint32_t id = replica.without_room.front();
        Handover& handover = handovers_[id];
        const Sequence& sequence = replica.state.sequence(handover.target);
        if (!replica.state.reserve(handover.target, replica.room_of(sequence))) {
            return;
        }
        replica.without_room.pop_front();
        handover.has_room = true;
        handover.sent_whole = true;  // it came too late to send layer by layer
        if (handover.prompt_done) {
            send_rest(id);
        }
    }
}

}  // namespace orrery
