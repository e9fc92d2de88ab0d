#include "workloads/serving/transfer/adapter_loads.hpp"

namespace orrery::serving {

void AdapterLoads::begin(Dispatcher& dispatcher) {
    dispatcher_ = &dispatcher;
    queues_.resize(fleet_.size());
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
    waiters.push_back({index, dispatcher_->now()});
    return false;
}

void AdapterLoads::bring(std::uint32_t index, std::uint32_t adapter) {
    ++result_.adapter_loads;
    ++queues_[index].coming;
    note(index);
    if (free_.empty()) {
        free_.push_back(static_cast<std::uint32_t>(loads_.size()));
        loads_.emplace_back();
    }
    const std::uint32_t id = free_.back();
    free_.pop_back();
    loads_[id] = {index, adapter, false, true};
    const Replica& replica = fleet_[index];
    const std::uint64_t token = Token{ServiceTask::adapter, id, 0}.pack();
    if (replica.from_host.valid() && replica.state.limits().adapter_bytes > 0) {
        dispatcher_->share(replica.from_host, replica.state.limits().adapter_bytes, SimTime(), index + 1, token);
    } else {
        dispatcher_->delay(SimTime(), index + 1, token);
    }
}

void AdapterLoads::fill(std::uint32_t index) {
    if (queues_.empty() || queues_[index].without_slot.empty()) {
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

void AdapterLoads::on_task(const Token& token) {
    Load& load = loads_[token.index];
    load.under_way = false;
    free_.push_back(token.index);
    if (load.lost) {
        return;
    }
    const std::uint32_t index = load.replica;
    const std::uint32_t adapter = load.adapter;
    EngineState& state = fleet_[index].state;
    state.adapter_loaded(adapter);
    --queues_[index].coming;
    note(index);
    const std::vector<Waiter> waiters = std::move(queues_[index].waiters[adapter]);
    queues_[index].waiters.erase(adapter);
    for (const Waiter& waiter : waiters) {
        result_.adapter_wait_s += (dispatcher_->now() - waiter.since).seconds();
        if (state.sequence(waiter.sequence).abandoned) {
            state.drop_aside(waiter.sequence);
        } else {
            state.join(waiter.sequence);
            listener_.adapter_ready(index, waiter.sequence);
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
    if (!timeline_) {
        return;
    }
    if (result_.adapters.size() == kMostIterationRecords) {
        result_.cut = true;
        return;
    }
    const std::uint32_t coming = queues_[replica].coming;
    const auto slots = static_cast<std::uint32_t>(fleet_[replica].state.adapters_held());
    result_.adapters.push_back({replica, dispatcher_->now(), slots - coming, coming});
}

}  // namespace orrery::serving
