#include "sim/engine/task_source.hpp"

namespace orrery::engine {

Dispatcher::Dispatcher(Engine& engine, ResourceModel& resources, TaskSource& source, JobPlace place, Dispatcher* lead)
    : engine_(engine),
      resources_(resources),
      source_(source),
      place_(place),
      handler_(engine.add_handler(*this)),
      listener_(resources.add_listener(*this)),
      lead_(lead != nullptr ? lead : this) {}

void Dispatcher::end() {
    source_.end(*this);
    ORRERY_ASSERT(free_.size() == pending_.size());
    for (const ClassId id : kept_) {
        resources_.release(id);
    }
    kept_.clear();
}

ClassId Dispatcher::keep(std::span<const Demand> demands) {
    kept_.push_back(resources_.hold(demands));
    return kept_.back();
}

ClassId Dispatcher::keep_flows(std::span<const RoutedFlow> flows, std::span<const Demand> demands, double rate_bound) {
    kept_.push_back(resources_.hold_flows(flows, demands, rate_bound));
    return kept_.back();
}

void Dispatcher::schedule(SimTime after, Phase phase, std::uint32_t entity, const Pending& pending) {
    std::uint32_t slot = 0;
    if (free_.empty()) {
        slot = static_cast<std::uint32_t>(pending_.size());
        pending_.push_back(pending);
    } else {
        slot = free_.back();
        free_.pop_back();
        pending_[slot] = pending;
    }
    ORRERY_ASSERT(entity < JobPlace::kEntitiesPerJob);
    engine_.schedule(engine_.now() + after, event_order(phase, place_.entities + entity, lead_->sequence_++), handler_,
                     slot);
}

void Dispatcher::delay(SimTime duration, std::uint32_t entity, std::uint64_t token, Phase phase) {
    schedule(duration, phase, entity, Pending{ClassId(), 0, token});
}

void Dispatcher::share(ClassId resources, double amount, SimTime latency, std::uint32_t entity, std::uint64_t token) {
    if (latency > SimTime()) {
        schedule(latency, Phase::device, entity, Pending{resources, amount, token});
    } else {
        resources_.start(resources, amount, listener_, token);
    }
}

void Dispatcher::on_event(std::uint32_t datum) {
    const Pending pending = pending_[datum];
    free_.push_back(datum);
    if (pending.resources.valid()) {
        resources_.start(pending.resources, pending.amount, listener_, pending.token);
    } else {
        source_.on_done(pending.token, *this);
    }
}

SourceParts::SourceParts(Engine& engine, ResourceModel& resources, std::span<TaskSource* const> sources,
                         JobPlace place) {
    for (TaskSource* source : sources) {
        Dispatcher* const lead = parts_.empty() ? nullptr : parts_.front().get();
        parts_.push_back(std::make_unique<Dispatcher>(engine, resources, *source, place, lead));
    }
}

void SourceParts::begin() {
    for (const auto& part : parts_) {
        part->begin();
    }
}

void SourceParts::end() {
    for (const auto& part : parts_) {
        part->end();
    }
}

}  // namespace orrery::engine
