#include "workloads/serving/cluster/pipelines.hpp"

#include "sim/base/error.hpp"

#include <algorithm>

namespace orrery::serving {

Pipelines::Pipelines(const ServiceSpec& spec, const ServiceHooks& hooks, Fleet& fleet, Transfers& transfers,
                     ExpertLoads* experts, Generation& generation, RequestTimeline& timeline, ServiceResult& result)
    : FleetPart(spec, fleet, result),
      hooks_(hooks),
      kv_transfers_(transfers.kv),
      swap_ins_(transfers.swap_ins),
      fetches_(transfers.fetches),
      experts_(experts),
      generation_(generation),
      timeline_(timeline) {
    fleet.when_woken([this](std::uint32_t replica) { woken(replica); });
    if (experts != nullptr) {
        experts->when_done([this](std::uint32_t replica, std::uint32_t batch) { leave(replica, batch); });
    }
}

void Pipelines::on_done(std::uint64_t packed, Dispatcher&) {
    const auto what = static_cast<What>(packed >> 56U);
    const auto id = static_cast<std::uint32_t>((packed >> 32U) & 0xFFFFFFU);
    const auto index = static_cast<std::uint32_t>(packed);
    if (what == What::background) {
        return;
    }
    Replica& replica = fleet_[index];
    InFlightBatch& entry = replica.in_flight[id];
    if (entry.lost) {
        if (what != What::swap || --entry.loads == 0) {
            entry.lost = false;
            replica.free_in_flight.push_back(id);
        }
        return;
    }
    switch (what) {
        case What::swap:
            ORRERY_ASSERT(entry.loads > 0);
            if (--entry.loads == 0) {
                result_.swap_stall_s += (now() - entry.planned).seconds();
                enter(index, id);
            }
            return;
        case What::activation:
            ORRERY_ASSERT(entry.stage + 1 < replica.stages.size());
            if (PipelineStage& stage = replica.stages[++entry.stage]; stage.busy) {
                stage.queue.push_back(id);
            } else {
                stage.busy = true;
                enter(index, id);
            }
            return;
        default:
            leave(index, id);
    }
}

void Pipelines::woken(std::uint32_t index) {
    while (fleet_[index].can_plan() && launch(index)) {
    }
}

bool Pipelines::measured() const {
    const double at = now().seconds();
    return at >= spec_.measure.from && (spec_.measure.to <= 0 || at < spec_.measure.to);
}

void Pipelines::stop(std::uint32_t index) {
    Replica& replica = fleet_[index];
    std::vector<bool> pending(replica.in_flight.size(), true);  // some event of theirs will come
    for (const std::uint32_t id : replica.free_in_flight) {
        pending[id] = false;
    }
    for (PipelineStage& stage : replica.stages) {
        for (const std::uint32_t id : stage.queue) {
            pending[id] = false;
            replica.free_in_flight.push_back(id);
        }
        stage = PipelineStage();
    }
    for (std::uint32_t id = 0; id < replica.in_flight.size(); ++id) {
        replica.in_flight[id].lost = pending[id];
    }
    if (replica.under_way > 0) {
        result_.in_flight_s += (now() - replica.busy_since).seconds();
    }
    replica.under_way = 0;
}

// What waits first and has part of its prompt in lower tiers has it brought once there is room, as an engine looks for it when it comes
// to the request; when the request came there may have been none.
void Pipelines::fetch_waiting(std::uint32_t index) {
    EngineState& state = fleet_[index].state;
    while (fetches_.possible(state) && !state.waiting.empty() && state.has_place()) {
        const std::uint32_t first = state.waiting.front();
        const Sequence& sequence = state.sequence(first);
        if (sequence.blocks > 0 || sequence.generated > 0 || !fetches_.start(index, first)) {
            return;
        }
    }
}

// A sequence that gave up its own blocks leaves an empty batch: the next one can use them.
void Pipelines::plan(Replica& replica, Batch& batch) {
    std::uint64_t before = 0;
    do {
        before = replica.state.preemptions;
        replica.scheduler->plan(replica.state, batch);
    } while (batch.empty() && replica.state.preemptions > before);
}

// Plans one batch and puts it on the first stage; false when there is nothing to run.
bool Pipelines::launch(std::uint32_t index) {
    Replica& replica = fleet_[index];
    if (replica.free_in_flight.empty()) {
        replica.free_in_flight.push_back(static_cast<std::uint32_t>(replica.in_flight.size()));
        replica.in_flight.emplace_back();
    }
    const std::uint32_t id = replica.free_in_flight.back();
    InFlightBatch& entry = replica.in_flight[id];
    entry.batch.clear();
    fetch_waiting(index);
    const std::vector<std::uint32_t> newcomers =
        replica.pool.plans_ahead ? replica.state.hold_newcomers() : std::vector<std::uint32_t>();
    plan(replica, entry.batch);
    if (!newcomers.empty()) {
        replica.state.let_in(newcomers);
        if (entry.batch.empty()) {
            plan(replica, entry.batch);  // an engine without work looks into its queue until something comes
        }
    }
    if (replica.state.limits().swaps_in_behind) {
        swap_ins_.start(index);
    }
    if (entry.batch.empty()) {
        if (entry.batch.swap_out > 0) {
            // Who takes the place of what went comes back beside the iterations.
            result_.swap_out_bytes += entry.batch.swap_out;
            if (replica.to_host.valid()) {
                dispatcher_->share(replica.to_host, entry.batch.swap_out, SimTime(), index + 1,
                                   token(What::background, index));
            }
        }
        // Blocks that batches under way or KV transfers hold come back when those end.
        // Who decides from outside may wait for what comes next.
        if (replica.state.used_blocks() > 0 || replica.under_way > 0 || replica.scheduler->needs().outside) {
            return false;
        }
        throw InternalError("a scheduler runs nothing although " + std::to_string(replica.state.outstanding()) +
                            " sequences wait");
    }
    if (replica.under_way++ == 0) {
        replica.busy_since = now();
    }
    replica.free_in_flight.pop_back();
    if (hooks_.iteration) {
        hooks_.iteration(index, entry.batch, replica.state);
    }
    kv_transfers_.batch_starts(index, entry.batch);
    timeline_.batch_starts(index, replica.state, entry.batch, now());
    if (replica.stages.size() > 1) {
        replica.state.depart(entry.batch);
    }
    ++result_.iterations;
    result_.most_blocks = std::max(result_.most_blocks, replica.state.used_blocks());
    entry.stage = 0;
    entry.planned = now();
    replica.stages.front().busy = true;
    entry.loads = 0;
    swap(index, id);
    spill(index);
    if (entry.loads == 0) {
        enter(index, id);
    }
    return true;
}

// What a batch waits for: blocks that go to host memory and come from there.
void Pipelines::swap(std::uint32_t index, std::uint32_t id) {
    Replica& replica = fleet_[index];
    InFlightBatch& entry = replica.in_flight[id];
    const std::uint64_t done = token(What::swap, index, id);
    const SimTime call = SimTime::from_seconds(replica.pool.swap.call_s);
    result_.swap_in_bytes += entry.batch.swap_in;
    result_.swap_out_bytes += entry.batch.swap_out;
    for (const auto& [bytes, link] :
         {std::pair{entry.batch.swap_in, replica.from_host}, {entry.batch.swap_out, replica.to_host}}) {
        if (bytes > 0 && link.valid()) {
            ++entry.loads;
            dispatcher_->share(link, bytes, call, index + 1, done);
        }
    }
    // One thread starts the copies of both ways.
    const SimTime calls = replica.calls_time(entry.batch.copies_out, entry.batch.swap_out) +
                          replica.calls_time(entry.batch.copies_in, entry.batch.swap_in);
    if (calls > SimTime()) {
        ++entry.loads;
        dispatcher_->delay(calls, index + 1, done);
    }
}

// Blocks that the prefix cache moved to lower tiers go there behind the batches.
void Pipelines::spill(std::uint32_t index) {
    Replica& replica = fleet_[index];
    const TierCache* cache = replica.state.prefix_cache();
    if (cache == nullptr) {
        return;
    }
    const auto send = [&](std::uint64_t total, std::uint64_t& sent, ClassId link) {
        if (total > sent && link.valid()) {
            dispatcher_->share(link, static_cast<double>(total - sent) * replica.state.limits().block_bytes, SimTime(),
                               index + 1, token(What::background, index));
        }
        sent = total;
    };
    send(cache->moved(kInHostMemory), replica.spilled, replica.to_host);
    send(cache->moved(kOnNvme), replica.sunk, replica.to_nvme);
}

// That pass the layers.
static std::uint64_t tokens_of(const Batch& batch) {
    std::uint64_t tokens = std::uint64_t{batch.padded} + batch.drafted;
    for (const BatchItem& item : batch.items) {
        tokens += item.tokens;
    }
    return tokens;
}

// A slow device slows its stage: the others wait for its kernels.
StepWork Pipelines::impaired_work(const Replica& replica, const InFlightBatch& entry) const {
    const Replica::Impairment& has = replica.impaired[entry.stage];
    StepCost& cost = has.clock < 1 || has.nic < 1 ? spec_.impaired(replica.pool_number, entry.stage, has.clock, has.nic)
                                                  : *replica.pool.cost[entry.stage];
    StepWork work = cost.work(entry.batch);
    const double more = work.kernels * (1 / has.speed - 1);
    work.kernels += more;
    work.seconds += more;
    return work;
}

void Pipelines::enter(std::uint32_t index, std::uint32_t id) {
    Replica& replica = fleet_[index];
    InFlightBatch& entry = replica.in_flight[id];
    const StepWork work =
        replica.impaired.empty() ? replica.pool.cost[entry.stage]->work(entry.batch) : impaired_work(replica, entry);
    double seconds = work.seconds + std::max(0.0, (replica.stalled_until - now()).seconds());
    if (entry.batch.drafted > 0 && entry.stage + 1 == replica.stages.size()) {
        seconds += spec_.speculation.tokens * spec_.speculation.step_s;
    }
    entry.started = now();
    if (measured()) {
        const auto devices = static_cast<double>(replica.pool.gpus) / static_cast<double>(replica.stages.size());
        PoolWork& pool = result_.pools[replica.pool_number];
        pool.kernel_s += devices * work.kernels;
        pool.flops += devices * work.done;
        pool.bytes += devices * work.bytes;
    }
    const std::uint64_t done = token(What::stage, index, id);
    if (replica.devices.empty()) {
        result_.busy_s += seconds / static_cast<double>(replica.stages.size());
        if (replica.pool.experts) {
            experts_->start(index, id, tokens_of(entry.batch), seconds);
            return;
        }
        dispatcher_->delay(SimTime::from_seconds(seconds), index + 1, done);
        return;
    }
    const DeviceActivity activity =
        replica.devices[entry.stage]->work(seconds, work.flops, work.bytes, replica.pool.units);
    entry.activity = dispatcher_->resources().hold(activity.demands, activity.bound);
    dispatcher_->share(entry.activity, activity.amount, SimTime(), index + 1, done);
}

void Pipelines::leave(std::uint32_t index, std::uint32_t id) {
    Replica& replica = fleet_[index];
    const std::uint32_t at = replica.in_flight[id].stage;
    PipelineStage& stage = replica.stages[at];
    ORRERY_ASSERT(stage.busy);
    if (InFlightBatch& entry = replica.in_flight[id]; entry.activity.valid()) {
        result_.busy_s += (now() - entry.started).seconds() / static_cast<double>(replica.stages.size());
        dispatcher_->resources().release(entry.activity);
        entry.activity = ClassId();
    }
    std::uint32_t tokens = 0;
    if (spec_.timeline || replica.stages.size() > 1) {
        const InFlightBatch& entry = replica.in_flight[id];
        for (const BatchItem& item : entry.batch.items) {
            tokens += item.tokens;
        }
        if (spec_.timeline && result_.timeline.size() == kMostIterationRecords) {
            result_.cut = true;
        } else if (spec_.timeline) {
            result_.timeline.push_back({index, at, entry.started, now(),
                                        static_cast<std::uint32_t>(entry.batch.items.size()), tokens,
                                        replica.state.used_blocks()});
        }
    }
    const bool last = at + 1 == replica.stages.size();
    if (!last) {
        const std::uint32_t gpus = replica.pool.gpus / static_cast<std::uint32_t>(replica.stages.size());
        const std::uint32_t first = replica.first_gpu + at * gpus;
        const Fleet::Path& next = fleet_.path({first, gpus}, {first + gpus, gpus});
        dispatcher_->share(next.resources, tokens * spec_.hidden_bytes, SimTime::from_seconds(next.latency), index + 1,
                           token(What::activation, index, id));
    }
    stage.busy = false;
    if (!stage.queue.empty()) {
        const std::uint32_t next = stage.queue.front();
        stage.queue.pop_front();
        stage.busy = true;
        enter(index, next);
    }
    if (last) {
        end(index, id);
    }
    if (last || at == 0) {
        fleet_.wake(index);
    }
}

void Pipelines::end(std::uint32_t index, std::uint32_t id) {
    Replica& replica = fleet_[index];
    if (hooks_.ran) {
        const InFlightBatch& entry = replica.in_flight[id];
        hooks_.ran(index, entry.batch, replica.state, entry.planned, now());
    }
    if (replica.stages.size() > 1) {
        replica.state.land(replica.in_flight[id].batch);
    }
    generation_.batch_ends(index, replica.in_flight[id].batch, now());
    replica.free_in_flight.push_back(id);
    ORRERY_ASSERT(replica.under_way > 0);
    if (--replica.under_way == 0) {
        result_.in_flight_s += (now() - replica.busy_since).seconds();
        replica.idle_since = now();
    }
}

}  // namespace orrery::serving
