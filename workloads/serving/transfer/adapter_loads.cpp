#include "workloads/serving/transfer/adapter_loads.hpp"

#include "sim/base/error.hpp"

namespace orrery::serving {

void AdapterLoads::enter(std::uint32_t replica, std::uint32_t sequence) {
    if (ready(replica, sequence)) {
        go_on(replica, sequence);
    } else {
        timeline_.adapter_wanted(replica, fleet_[replica].state.sequence(sequence), now());
    }
}

void AdapterLoads::go_on(std::uint32_t replica, std::uint32_t sequence) {
    timeline_.adapter_here(fleet_[replica].state.sequence(sequence), now());
    if (!fetches_.start(replica, sequence)) {
        fleet_.wake(replica);
    }
}

bool AdapterLoads::ready(std::uint32_t replica, std::uint32_t index) {
    EngineState& state = fleet_[replica].state;
    const std::uint32_t adapter = state.sequence(index).adapter;
    if (adapter == 0) {
        return true;
    }
    ++result_.adapter_requests;
    const AdapterSlots::Answer answer = state.pin_adapter(index);
    if (answer == AdapterSlots::Answer::here) {
        ++result_.adapter_hits;
        return true;
    }
    state.set_aside(index);
    Queue& queue = queues_[replica];
    std::vector<Waiter>& waiters = queue.waiters[adapter];
    if (answer == AdapterSlots::Answer::taken) {
        bring(replica, adapter);
    } else if (answer == AdapterSlots::Answer::full && waiters.empty()) {
        queue.without_slot.push_back(adapter);
    }
    waiters.push_back({index, now()});
    return false;
}

void AdapterLoads::bring(std::uint32_t index, std::uint32_t adapter) {
    ++result_.adapter_loads;
    ++queues_[index].coming;
    note(index);
    const std::uint32_t id = loads_.take({index, adapter, false, true});
    const Replica& replica = fleet_[index];
    if (replica.from_host.valid() && replica.state.limits().adapter_bytes > 0) {
        dispatcher_->share(replica.from_host, replica.state.limits().adapter_bytes, SimTime(), index + 1, id);
    } else {
        dispatcher_->delay(SimTime(), index + 1, id);
    }
}

void AdapterLoads::fill(std::uint32_t index) {
    if (queues_[index].without_slot.empty()) {
        return;
    }
    EngineState& state = fleet_[index].state;
    Queue& queue = queues_[index];
    while (!queue.without_slot.empty() && state.has_adapter_slot()) {
        const std::uint32_t adapter = queue.without_slot.front();
        queue.without_slot.pop_front();
        std::vector<Waiter>& waiters = queue.waiters[adapter];
        // Those whose clients have gone need none.
        std::erase_if(waiters, [&](const Waiter& waiter) {
            const bool gone = state.sequence(waiter.sequence).abandoned;
            if (gone) {
                state.drop_aside(waiter.sequence);
            }
            return gone;
        });
        for (const Waiter& waiter : waiters) {
            (void)state.pin_adapter(waiter.sequence);
        }
        if (waiters.empty()) {
            queue.waiters.erase(adapter);
        } else {
            bring(index, adapter);
        }
    }
}

void AdapterLoads::on_done(std::uint64_t token, Dispatcher&) {
    const auto id = static_cast<std::uint32_t>(token);
    Load& load = loads_[id];
    ORRERY_ASSERT(load.under_way);
    load.under_way = false;
    loads_.give(id);
    if (load.lost) {
        return;
    }
    const std::uint32_t index = load.replica;
    const std::uint32_t adapter = load.adapter;
    EngineState& state = fleet_[index].state;
    state.adapter_loaded(adapter);
    ORRERY_ASSERT(queues_[index].coming > 0);
    --queues_[index].coming;
    note(index);
    const std::vector<Waiter> waiters = std::move(queues_[index].waiters[adapter]);
    queues_[index].waiters.erase(adapter);
    for (const Waiter& waiter : waiters) {
        result_.adapter_wait_s += (now() - waiter.since).seconds();
        if (state.sequence(waiter.sequence).abandoned) {
            state.drop_aside(waiter.sequence);
        } else {
            state.join(waiter.sequence);
            go_on(index, waiter.sequence);
        }
    }
    fill(index);
}

void AdapterLoads::fail(std::uint32_t replica) {
    for (Load& load : loads_) {
        load.lost = load.lost || (load.under_way && load.replica == replica);
    }
    queues_[replica] = Queue();
}

// For a timeline: how many adapters a replica has now.
void AdapterLoads::note(std::uint32_t replica) {
    if (!spec_.timeline) {
        return;
    }
    if (result_.adapters.size() == kMostIterationRecords) {
        result_.cut = true;
        return;
    }
    const std::uint32_t coming = queues_[replica].coming;
    const auto slots = static_cast<std::uint32_t>(fleet_[replica].state.adapters_held());
    ORRERY_ASSERT(coming <= slots);
    result_.adapters.push_back({replica, now(), slots - coming, coming});
}

}  // namespace orrery::serving
