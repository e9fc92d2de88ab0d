#include "workloads/serving/cluster/live_feed.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery::serving {

void LiveFeed::begin(Dispatcher& dispatcher) {
    Part::begin(dispatcher);
    if (live_ != nullptr) {
        step();
    }
}

void LiveFeed::on_done(std::uint64_t, Dispatcher&) {
    step();
}

// Goes before whatever else happens in its instant, so that a request may come in it.
void LiveFeed::step() {
    report();
    const SimTime until = live_->await(now(), frontend_.idle());
    ORRERY_ASSERT(until > now());
    for (const std::uint64_t request : live_->take_left()) {
        timeouts_.cancel(request);
    }
    frontend_.resume();
    if (!live_->closed()) {
        dispatcher_->delay(until - now(), 0, 0, Phase::network);
    }
}

void LiveFeed::report() {
    LiveLoad load;
    load.at = now();
    for (std::uint32_t i = 0; i < fleet_.size(); ++i) {
        const EngineState& state = fleet_[i].state;
        ORRERY_ASSERT(state.all_outstanding() >= state.running.size() + state.in_flight());
        load.running += state.running.size() + state.in_flight();
        load.waiting += state.all_outstanding() - state.running.size() - state.in_flight();
        load.used_blocks += state.used_blocks();
        load.blocks += state.limits().blocks;
        load.preemptions += state.preemptions;
        load.prefix_queries += state.prompt_tokens();
        load.prefix_hits += state.prefix_tokens();
        if (fleet_[i].pool.role != Role::prefill) {
            const EngineLimits& limits = state.limits();
            const std::uint64_t room = limits.blocks * limits.block;
            const std::uint64_t longest =
                limits.max_context > 0 ? std::min<std::uint64_t>(limits.max_context, room) : room;
            load.context = load.context > 0 ? std::min(load.context, longest) : longest;
        }
        load.block = state.limits().block;
        load.prefix_cache = load.prefix_cache || state.limits().prefix_cache;
        load.replicas_up += fleet_[i].up && fleet_[i].power == Power::on ? 1 : 0;
    }
    live_->set_load(load);
}

}  // namespace orrery::serving
