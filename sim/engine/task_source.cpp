#include "sim/engine/task_source.hpp"

namespace orrery {

Dispatcher::Dispatcher(Engine& engine, ResourceModel& sharing, TaskSource& source)
    : engine_(engine), sharing_(sharing), source_(source), handler_(engine.add_handler(*this)) {
    sharing_.set_listener(*this);
}

SimTime Dispatcher::run() {
    source_.begin(*this);
    engine_.run();
    return engine_.now();
}

void Dispatcher::schedule(SimTime after, std::uint32_t entity, const Pending& pending) {
    std::uint32_t slot = 0;
    if (free_.empty()) {
        slot = static_cast<std::uint32_t>(pending_.size());
        pending_.push_back(pending);
    } else {
        slot = free_.back();
        free_.pop_back();
        pending_[slot] = pending;
    }
    engine_.schedule(engine_.now() + after, event_order(Phase::device, entity, sequence_++), handler_, slot);
}

void Dispatcher::delay(SimTime duration, std::uint32_t entity, std::uint64_t token) {
    schedule(duration, entity, Pending{ClassId(), 0, token});
}

void Dispatcher::share(ClassId resources, double amount, SimTime latency, std::uint32_t entity, std::uint64_t token) {
    if (latency > SimTime()) {
        schedule(latency, entity, Pending{resources, amount, token});
    } else {
        sharing_.start(resources, amount, token);
    }
}

void Dispatcher::on_event(std::uint32_t datum) {
    const Pending pending = pending_[datum];
    free_.push_back(datum);
    if (pending.resources.valid()) {
        sharing_.start(pending.resources, pending.amount, pending.token);
    } else {
        source_.on_done(pending.token, *this);
    }
}

}  // namespace orrery
