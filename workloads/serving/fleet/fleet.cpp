#include "workloads/serving/fleet/fleet.hpp"

#include "sim/base/error.hpp"
#include "sim/base/random.hpp"

#include <algorithm>
#include <tuple>

namespace orrery::serving {

Replica::Replica(const PoolSpec& its_pool, std::size_t number, std::uint32_t gpu)
    : pool(its_pool),
      pool_number(number),
      state(its_pool.limits),
      scheduler(its_pool.scheduler.policy.make()),
      first_gpu(gpu),
      stages(its_pool.cost.size()) {}

std::uint64_t Replica::room_of(const Sequence& sequence) const {
    // Policies that set the whole output aside do so before the cache comes.
    const bool whole = scheduler->takes_whole_outputs();
    const std::uint32_t next = std::max(1U, sequence.generated) + state.limits().draft_tokens;
    return std::uint64_t{sequence.prompt} + (whole ? sequence.output : std::min(next, sequence.output));
}

Fleet::Fleet(const ServiceSpec& spec, const ServiceHooks& hooks, FleetListener& listener, ServiceResult& result)
    : spec_(spec), hooks_(hooks), listener_(listener), result_(result) {
    result.pools.resize(spec.pools.size());
    for (std::size_t number = 0; number < spec.pools.size(); ++number) {
        const PoolSpec& pool = spec.pools[number];
        ORRERY_ASSERT(!pool.cost.empty() && (pool.cost.size() == 1 || spec.fabric != nullptr));
        for (std::uint32_t i = 0; i < pool.replicas; ++i) {
            replicas_.push_back(std::make_unique<Replica>(pool, number, pool.first_gpu + i * pool.gpus));
        }
    }
    ORRERY_ASSERT(!spec.same_devices || (spec.pools.size() == 2 && spec.pools[0].replicas == spec.pools[1].replicas));
    for (std::uint32_t i = 0; spec.same_devices && i < size() / 2; ++i) {
        replicas_[partner(i)]->state.share_blocks_with(replicas_[i]->state);
    }
}

void Fleet::begin(Dispatcher& dispatcher) {
    dispatcher_ = &dispatcher;
    swap_ins_.begin(dispatcher);
    const auto link = [&](double bandwidth) {
        const Demand whole{dispatcher.resources().add_resource(bandwidth), 1};
        return dispatcher.keep(std::span(&whole, 1));
    };
    for (std::uint32_t i = 0; spec_.same_devices && i < size() / 2; ++i) {
        // The ranks of a stage do the same at the same time: one device stands for all of them.
        for (std::size_t stage = 0; stage < replicas_[i]->stages.size(); ++stage) {
            shared_.push_back(std::make_unique<Device>(dispatcher.resources(), *replicas_[i]->pool.device));
            replicas_[i]->devices.push_back(shared_.back().get());
            replicas_[partner(i)]->devices.push_back(shared_.back().get());
        }
    }
    if (spec_.host != nullptr) {
        experts_ = std::make_unique<ExpertLoads>(spec_, dispatcher, result_);
        for (const auto& replica : replicas_) {
            std::vector<GpuId> gpus;
            for (std::uint32_t rank = 0; rank < replica->pool.gpus; ++rank) {
                gpus.push_back(gpu(replica->first_gpu + rank));
            }
            experts_->add(replica->pool, gpus);
        }
    }
    std::map<std::uint32_t, std::pair<ClassId, ClassId>> nvme;  // by node
    for (const auto& replica : replicas_) {
        if (replica->pool.host_bandwidth > 0) {
            replica->from_host = link(replica->pool.host_bandwidth);
            replica->to_host = link(replica->pool.host_bandwidth);
        }
        if (spec_.nvme_bandwidth > 0) {
            const auto [entry, fresh] = nvme.try_emplace(replica->first_gpu / spec_.gpus_per_node);
            if (fresh) {
                entry->second = {link(spec_.nvme_bandwidth), link(spec_.nvme_bandwidth)};
            }
            std::tie(replica->from_nvme, replica->to_nvme) = entry->second;
        }
    }
}

bool Fleet::measured() const {
    const double now = dispatcher_->now().seconds();
    return now >= spec_.measure_from && (spec_.measure_to <= 0 || now < spec_.measure_to);
}

void Fleet::finish() {
    for (std::uint32_t i = 0; experts_ && i < size(); ++i) {
        if (const ExpertCache* cache = experts_->cache(i); cache != nullptr) {
            result_.experts_used += cache->used();
            result_.expert_hits += cache->hits();
            result_.experts_predicted += cache->predicted();
            result_.experts_in_vain += cache->in_vain();
        }
    }
}

void Fleet::on_task(const Token& token) {
    if (token.task == ServiceTask::swap_in) {
        return swap_ins_.on_task(token.index);
    }
    Replica& replica = *replicas_[token.index];
    if (token.task == ServiceTask::expert) {
        if (const std::optional<std::uint32_t> over = experts_->on_task(token.index, token.entry); over) {
            leave(token.index, *over);
        }
        return;
    }
    if (token.task == ServiceTask::plan) {
        replica.plans = false;
        while (can_plan(replica) && launch(token.index)) {
        }
        return;
    }
    if (InFlightBatch& entry = replica.in_flight[token.entry]; entry.lost) {
        if (token.task != ServiceTask::swap || --entry.loads == 0) {
            entry.lost = false;
            replica.free_in_flight.push_back(token.entry);
        }
        return;
    }
    switch (token.task) {
        case ServiceTask::swap:
            if (InFlightBatch& entry = replica.in_flight[token.entry]; --entry.loads == 0) {
                result_.swap_stall_s += (dispatcher_->now() - entry.planned).seconds();
                enter(token.index, token.entry);
            }
            return;
        case ServiceTask::activation: {
            InFlightBatch& entry = replica.in_flight[token.entry];
            PipelineStage& stage = replica.stages[++entry.stage];
            if (stage.busy) {
                stage.queue.push_back(token.entry);
            } else {
                stage.busy = true;
                enter(token.index, token.entry);
            }
            return;
        }
        default:
            leave(token.index, token.entry);
    }
}

void Fleet::wake(std::uint32_t index) {
    Replica& replica = *replicas_[index];
    if (!replica.plans && can_plan(replica)) {
        replica.plans = true;
        dispatcher_->delay(SimTime(), index + 1, Token{ServiceTask::plan, index, 0}.pack(), Phase::scheduler);
    }
}

void Fleet::stop(std::uint32_t index) {
    Replica& replica = *replicas_[index];
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
        result_.in_flight_s += (dispatcher_->now() - replica.busy_since).seconds();
    }
    replica.under_way = 0;
}

void Fleet::clear(std::uint32_t index) {
    Replica& replica = *replicas_[index];
    swap_ins_.fail(index);
    replica.without_room.clear();
    replica.state.reset();
}

// A sequence that gave up its own blocks leaves an empty batch: the next one can use them.
void Fleet::plan(Replica& replica, Batch& batch) {
    std::uint64_t before = 0;
    do {
        before = replica.state.preemptions;
        replica.scheduler->plan(replica.state, batch);
    } while (batch.empty() && replica.state.preemptions > before);
}

// Plans one batch and puts it on the first stage; false when there is nothing to run.
bool Fleet::launch(std::uint32_t index) {
    Replica& replica = *replicas_[index];
    if (replica.free_in_flight.empty()) {
        replica.free_in_flight.push_back(static_cast<std::uint32_t>(replica.in_flight.size()));
        replica.in_flight.emplace_back();
    }
    const std::uint32_t id = replica.free_in_flight.back();
    InFlightBatch& entry = replica.in_flight[id];
    entry.batch.clear();
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
                                   Token{ServiceTask::background, index, 0}.pack());
            }
        }
        // Blocks that batches under way or KV transfers hold come back when those end.
        if (replica.state.used_blocks() > 0 || replica.under_way > 0) {
            return false;
        }
        throw InternalError("a scheduler runs nothing although " + std::to_string(replica.state.outstanding()) +
                            " sequences wait");
    }
    if (replica.under_way++ == 0) {
        replica.busy_since = dispatcher_->now();
    }
    replica.free_in_flight.pop_back();
    if (hooks_.iteration) {
        hooks_.iteration(index, entry.batch, replica.state);
    }
    listener_.batch_starts(index, entry.batch);
    if (replica.stages.size() > 1) {
        replica.state.depart(entry.batch);
    }
    ++result_.iterations;
    result_.most_blocks = std::max(result_.most_blocks, replica.state.used_blocks());
    entry.stage = 0;
    entry.planned = dispatcher_->now();
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
void Fleet::swap(std::uint32_t index, std::uint32_t id) {
    Replica& replica = *replicas_[index];
    InFlightBatch& entry = replica.in_flight[id];
    const std::uint64_t token = Token{ServiceTask::swap, index, id}.pack();
    const SimTime call = SimTime::from_seconds(replica.pool.swap.call_s);
    result_.swap_in_bytes += entry.batch.swap_in;
    result_.swap_out_bytes += entry.batch.swap_out;
    for (const auto& [bytes, link] :
         {std::pair{entry.batch.swap_in, replica.from_host}, {entry.batch.swap_out, replica.to_host}}) {
        if (bytes > 0 && link.valid()) {
            ++entry.loads;
            dispatcher_->share(link, bytes, call, index + 1, token);
        }
    }
    // One thread starts the copies of both ways.
    const SimTime calls = calls_time(replica, entry.batch.copies_out, entry.batch.swap_out) +
                          calls_time(replica, entry.batch.copies_in, entry.batch.swap_in);
    if (calls > SimTime()) {
        ++entry.loads;
        dispatcher_->delay(calls, index + 1, token);
    }
}

// Blocks that the prefix cache moved to lower tiers go there behind the batches.
void Fleet::spill(std::uint32_t index) {
    Replica& replica = *replicas_[index];
    const TierCache* cache = replica.state.prefix_cache();
    if (cache == nullptr) {
        return;
    }
    const auto send = [&](std::uint64_t total, std::uint64_t& sent, ClassId link) {
        if (total > sent && link.valid()) {
            dispatcher_->share(link, static_cast<double>(total - sent) * replica.state.limits().block_bytes, SimTime(),
                               index + 1, Token{ServiceTask::background, index, 0}.pack());
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
StepWork Fleet::impaired_work(const Replica& replica, const InFlightBatch& entry) const {
    const Replica::Impairment& has = replica.impaired[entry.stage];
    StepCost& cost = has.clock < 1 || has.nic < 1 ? spec_.impaired(replica.pool_number, entry.stage, has.clock, has.nic)
                                                  : *replica.pool.cost[entry.stage];
    StepWork work = cost.work(entry.batch);
    const double more = work.kernels * (1 / has.speed - 1);
    work.kernels += more;
    work.seconds += more;
    return work;
}

void Fleet::enter(std::uint32_t index, std::uint32_t id) {
    Replica& replica = *replicas_[index];
    InFlightBatch& entry = replica.in_flight[id];
    const StepWork work =
        replica.impaired.empty() ? replica.pool.cost[entry.stage]->work(entry.batch) : impaired_work(replica, entry);
    double seconds = work.seconds + std::max(0.0, (replica.stalled_until - dispatcher_->now()).seconds());
    if (entry.batch.drafted > 0 && entry.stage + 1 == replica.stages.size()) {
        seconds += replica.pool.speculation.tokens * replica.pool.speculation.step_s;
    }
    entry.started = dispatcher_->now();
    if (measured()) {
        const auto devices = static_cast<double>(replica.pool.gpus) / static_cast<double>(replica.stages.size());
        PoolWork& pool = result_.pools[replica.pool_number];
        pool.kernel_s += devices * work.kernels;
        pool.flops += devices * work.done;
        pool.bytes += devices * work.bytes;
    }
    const std::uint64_t token = Token{ServiceTask::stage, index, id}.pack();
    if (replica.devices.empty()) {
        result_.busy_s += seconds / static_cast<double>(replica.stages.size());
        if (replica.pool.experts) {
            experts_->start(index, id, tokens_of(entry.batch), seconds);
            return;
        }
        dispatcher_->delay(SimTime::from_seconds(seconds), index + 1, token);
        return;
    }
    const DeviceActivity activity =
        replica.devices[entry.stage]->work(seconds, work.flops, work.bytes, replica.pool.units);
    entry.activity = dispatcher_->resources().hold(activity.demands, activity.bound);
    dispatcher_->share(entry.activity, activity.amount, SimTime(), index + 1, token);
}

void Fleet::leave(std::uint32_t index, std::uint32_t id) {
    Replica& replica = *replicas_[index];
    const std::uint32_t at = replica.in_flight[id].stage;
    PipelineStage& stage = replica.stages[at];
    if (InFlightBatch& entry = replica.in_flight[id]; entry.activity.valid()) {
        result_.busy_s += (dispatcher_->now() - entry.started).seconds() / static_cast<double>(replica.stages.size());
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
            result_.timeline.push_back({index, at, entry.started, dispatcher_->now(),
                                        static_cast<std::uint32_t>(entry.batch.items.size()), tokens,
                                        replica.state.used_blocks()});
        }
    }
    const bool last = at + 1 == replica.stages.size();
    if (!last) {
        const std::uint32_t gpus = replica.pool.gpus / static_cast<std::uint32_t>(replica.stages.size());
        const std::uint32_t first = replica.first_gpu + at * gpus;
        const Path& next = path({first, gpus}, {first + gpus, gpus});
        dispatcher_->share(next.resources, tokens * spec_.hidden_bytes, SimTime::from_seconds(next.latency), index + 1,
                           Token{ServiceTask::activation, index, id}.pack());
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
        wake(index);
    }
}

void Fleet::end(std::uint32_t index, std::uint32_t id) {
    Replica& replica = *replicas_[index];
    if (hooks_.ran) {
        const InFlightBatch& entry = replica.in_flight[id];
        hooks_.ran(index, entry.batch, replica.state, entry.planned, dispatcher_->now());
    }
    if (replica.stages.size() > 1) {
        replica.state.land(replica.in_flight[id].batch);
    }
    listener_.batch_ends(index, replica.in_flight[id].batch);
    replica.free_in_flight.push_back(id);
    if (--replica.under_way == 0) {
        result_.in_flight_s += (dispatcher_->now() - replica.busy_since).seconds();
        replica.idle_since = dispatcher_->now();
    }
}

const Fleet::Path& Fleet::path(GpuRange from, GpuRange to) {
    const auto [entry, fresh] = paths_.try_emplace({from, to});
    Path& path = entry->second;
    if (!fresh) {
        return path;
    }
    const std::uint32_t flows = std::max(from.count, to.count);
    std::map<std::uint32_t, double> weights;
    std::vector<RoutedFlow> routed;
    for (std::uint32_t i = 0; i < flows; ++i) {
        const GpuId a = gpu(from.first + i * from.count / flows);
        const GpuId b = gpu(to.first + i * to.count / flows);
        const Route route = spec_.fabric->route(a, b, spec_.paths, mix64(i + (std::uint64_t{to.first} << 20U)));
        const std::span<const ResourceId> links = route.resources();
        for (std::size_t k = 0; k < links.size(); ++k) {
            weights[links[k].value()] += route.share(k) / flows;
        }
        const bool crosses = spec_.fabric->domain_of(a) != spec_.fabric->domain_of(b);
        if (crosses) {
            routed.push_back(RoutedFlow{a, b, 1.0 / flows});
            routed.back().part = RoutedFlow::Part::send;
        }
        // Packets take the time of their path themselves.
        if (!crosses || !dispatcher_->resources().routes_flows()) {
            path.latency = std::max(path.latency, route.latency);
        }
    }
    std::vector<Demand> demands;
    for (const auto& [resource, weight] : weights) {
        demands.push_back(Demand{ResourceId(resource), weight});
    }
    path.resources = dispatcher_->keep_flows(routed, demands);
    return path;
}

}  // namespace orrery::serving
