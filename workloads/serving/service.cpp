#include "workloads/serving/service.hpp"

#include "sim/base/error.hpp"
#include "sim/base/math.hpp"
#include "sim/base/random.hpp"
#include "sim/engine/fluid.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery {

namespace {

constexpr std::uint64_t kArrival = ~0ULL;
constexpr std::uint64_t kHandover = 1ULL << 32U;  ///< tokens from here on name handovers, those below replicas
constexpr std::uint64_t kProgressEvery = 4096;
constexpr double kLeast = 1e-6;
constexpr double kRatio = 1.01;

class Service final : public TaskSource {
  public:
    Service(const ServiceSpec& spec, RequestSource& requests, const ServiceHooks& hooks)
        : spec_(spec), requests_(requests), hooks_(hooks) {
        for (const PoolSpec& pool : spec.pools) {
            std::vector<std::uint32_t>& routes = pool.role == Role::decode ? decoders_ : entries_;
            for (std::uint32_t i = 0; i < pool.replicas; ++i) {
                routes.push_back(static_cast<std::uint32_t>(replicas_.size()));
                replicas_.push_back(std::make_unique<Replica>(pool, pool.first_gpu + i * pool.gpus));
            }
        }
        const bool hands_over = std::any_of(spec.pools.begin(), spec.pools.end(),
                                            [](const PoolSpec& pool) { return pool.role == Role::prefill; });
        ORRERY_ASSERT(!entries_.empty() && hands_over == !decoders_.empty());
        ORRERY_ASSERT(!hands_over || spec.fabric != nullptr);
    }

    void begin(Dispatcher& dispatcher) override { await_next(dispatcher); }

    void on_done(std::uint64_t token, Dispatcher& dispatcher) override {
        if (token == kArrival) {
            arrive(dispatcher);
        } else if (token >= kHandover) {
            end_transfer(static_cast<std::uint32_t>(token - kHandover), dispatcher);
        } else {
            end_iteration(static_cast<std::uint32_t>(token), dispatcher);
        }
    }

    ServiceResult finish(double end_s) {
        for (const auto& replica : replicas_) {
            result_.preemptions += replica->state.preemptions;
            ORRERY_ASSERT(replica->state.outstanding() == 0 && replica->state.used_blocks() == 0);
        }
        result_.end_s = end_s;
        std::stable_sort(result_.requests.begin(), result_.requests.end(),
                         [](const RequestOutcome& a, const RequestOutcome& b) { return a.arrival < b.arrival; });
        return std::move(result_);
    }

  private:
    struct Replica {
        Replica(const PoolSpec& its_pool, std::uint32_t gpu)
            : pool(its_pool), state(its_pool.limits), scheduler(make_scheduler(its_pool.scheduler)), first_gpu(gpu) {}
        const PoolSpec& pool;
        EngineState state;
        std::unique_ptr<Scheduler> scheduler;
        std::uint32_t first_gpu;
        Batch batch;
        bool busy = false;
        SimTime started;
        std::deque<std::uint32_t> without_room;  ///< handovers that wait for blocks here
    };
    struct Handover {
        std::uint32_t from = 0, to = 0;        ///< replicas
        std::uint32_t source = 0, target = 0;  ///< sequences there
        std::uint32_t transfers = 0;           ///< under way
        bool prompt_done = false;
        bool has_room = false;
        bool sent_whole = false;  ///< nothing went before the prompt was done
        SimTime ready;            ///< when the prompt was done
    };

    // Reads the next request and waits for its time: the source is never held in memory.
    void await_next(Dispatcher& dispatcher) {
        if (requests_.next(pending_)) {
            dispatcher.delay(std::max(SimTime(), pending_.arrival - dispatcher.now()), 0, kArrival);
        }
    }

    void arrive(Dispatcher& dispatcher) {
        const std::uint32_t chosen = route(entries_, pending_.session);
        Replica& replica = *replicas_[chosen];
        Request here = pending_;
        const bool prefill = replica.pool.role == Role::prefill;
        if (prefill) {
            here.output = 1;
        }
        // Decode replicas are equal within a pool; one that accepts is enough.
        const bool can_end = !prefill || std::any_of(decoders_.begin(), decoders_.end(), [&](std::uint32_t i) {
            return replicas_[i]->state.accepts(pending_);
        });
        if (replica.state.accepts(here) && can_end) {
            const std::uint32_t index = replica.state.add(here, arrived_);
            replica.state.sequence(index).then = pending_.output - here.output;
            start_iteration(chosen, dispatcher);
        } else {
            ++result_.refused;
        }
        ++arrived_;
        if (hooks_.progress && arrived_ % kProgressEvery == 0) {
            hooks_.progress(requests_.progress());
        }
        await_next(dispatcher);
    }

    std::uint32_t route(const std::vector<std::uint32_t>& among, std::uint32_t session) {
        const auto least = [&](auto measure) {
            std::uint32_t best = among.front();
            for (const std::uint32_t i : among) {
                if (measure(*replicas_[i]) < measure(*replicas_[best])) {
                    best = i;
                }
            }
            return best;
        };
        switch (spec_.router) {
            case Router::round_robin:
                break;
            case Router::least_requests:
                return least([](const Replica& r) { return r.state.outstanding() + r.without_room.size(); });
            case Router::least_cache:
                return least([](const Replica& r) { return r.state.used_blocks(); });
            case Router::session:
                return among[mix64(session) % among.size()];
        }
        std::uint64_t& turn = &among == &entries_ ? entry_turn_ : decode_turn_;
        return among[turn++ % among.size()];
    }

    void start_iteration(std::uint32_t index, Dispatcher& dispatcher) {
        Replica& replica = *replicas_[index];
        if (replica.busy || replica.state.outstanding() == 0) {
            return;
        }
        replica.batch.clear();
        // A sequence that gave up its own blocks leaves an empty batch: the next one can use them.
        std::uint64_t before = 0;
        do {
            before = replica.state.preemptions;
            replica.scheduler->plan(replica.state, replica.batch);
        } while (replica.batch.empty() && replica.state.preemptions > before);
        if (replica.batch.empty()) {
            // Blocks that handovers hold come back when their transfers end.
            if (replica.state.used_blocks() > 0) {
                return;
            }
            throw InternalError("a scheduler runs nothing although " + std::to_string(replica.state.outstanding()) +
                                " sequences wait");
        }
        if (hooks_.iteration) {
            hooks_.iteration(index, replica.batch, replica.state);
        }
        if (replica.pool.role == Role::prefill && spec_.transfer == Transfer::layers) {
            for (const BatchItem& item : replica.batch.items) {
                const Sequence& sequence = replica.state.sequence(item.sequence);
                if (item.context == sequence.needed() && sequence.then > 0) {
                    begin_handover(index, item.sequence, dispatcher);
                }
            }
        }
        const double seconds = replica.pool.cost->seconds(replica.batch);
        replica.busy = true;
        replica.started = dispatcher.now();
        result_.busy_s += seconds;
        ++result_.iterations;
        result_.most_blocks = std::max(result_.most_blocks, replica.state.used_blocks());
        dispatcher.delay(SimTime::from_seconds(seconds), index + 1, index);
    }

    void end_iteration(std::uint32_t index, Dispatcher& dispatcher) {
        Replica& replica = *replicas_[index];
        EngineState& state = replica.state;
        const SimTime now = dispatcher.now();
        std::uint32_t tokens = 0;
        for (const BatchItem& item : replica.batch.items) {
            Sequence& sequence = state.sequence(item.sequence);
            tokens += item.tokens;
            sequence.cached = item.context;
            if (sequence.cached == sequence.needed()) {
                give_token(sequence, now);
            }
        }
        if (spec_.timeline) {
            result_.timeline.push_back({index, replica.started, now,
                                        static_cast<std::uint32_t>(replica.batch.items.size()), tokens,
                                        state.used_blocks()});
        }
        replica.scheduler->after(state, replica.batch);
        retire(index, dispatcher);
        make_room(index, dispatcher);
        replica.busy = false;
        start_iteration(index, dispatcher);
    }

    void give_token(Sequence& sequence, SimTime now) {
        if (sequence.generated == 0) {
            sequence.first_token = now;
        } else {
            const double gap = (now - sequence.last_token).seconds();
            result_.tbt.add(gap);
            sequence.late = sequence.late || (spec_.tbt_limit > 0 && gap > spec_.tbt_limit);
        }
        ++sequence.generated;
        sequence.last_token = now;
        ++result_.output_tokens;
    }

    void retire(std::uint32_t index, Dispatcher& dispatcher) {
        EngineState& state = replicas_[index]->state;
        std::size_t kept = 0;
        for (std::size_t place = 0; place < state.running.size(); ++place) {
            const std::uint32_t id = state.running[place];
            const Sequence& sequence = state.sequence(id);
            if (sequence.generated < sequence.output) {
                state.running[kept++] = id;
            } else if (sequence.then > 0) {
                prompt_done(index, id, dispatcher);
            } else {
                record(sequence, dispatcher.now());
                state.finish(id);
            }
        }
        state.running.resize(kept);
    }

    void record(const Sequence& sequence, SimTime now) {
        RequestOutcome outcome;
        outcome.arrival = sequence.arrival;
        const double ttft = (sequence.first_token - sequence.arrival).seconds();
        const double tpot = sequence.generated > 1
                                ? (now - sequence.first_token).seconds() / static_cast<double>(sequence.generated - 1)
                                : 0;
        outcome.ttft = static_cast<float>(ttft);
        outcome.tpot = static_cast<float>(tpot);
        outcome.e2e = static_cast<float>((now - sequence.arrival).seconds());
        outcome.in_time = !sequence.late && (spec_.ttft_limit <= 0 || ttft <= spec_.ttft_limit) &&
                          (spec_.tpot_limit <= 0 || tpot <= spec_.tpot_limit);
        result_.requests.push_back(outcome);
    }

    // Handovers: chosen and, by layer, under way before the prompt is done; the source keeps its blocks until the end.

    // Policies that set the whole output aside do so before a cache comes.
    [[nodiscard]] static std::uint64_t room_of(const Replica& replica, const Sequence& sequence) {
        const SchedulerKind kind = replica.pool.scheduler.kind;
        const bool whole = kind == SchedulerKind::static_batch || kind == SchedulerKind::orca;
        return std::uint64_t{sequence.prompt} + (whole ? sequence.output : 1);
    }

    std::uint32_t begin_handover(std::uint32_t from, std::uint32_t source, Dispatcher& dispatcher) {
        std::uint32_t id = static_cast<std::uint32_t>(handovers_.size());
        if (free_handovers_.empty()) {
            handovers_.emplace_back();
        } else {
            id = free_handovers_.back();
            free_handovers_.pop_back();
        }
        const Sequence& sequence = replicas_[from]->state.sequence(source);
        Handover& handover = handovers_[id];
        handover = Handover();
        handover.from = from;
        handover.to = route(decoders_, sequence.session);
        handover.source = source;
        EngineState& target = replicas_[handover.to]->state;
        Sequence there = sequence;
        there.output = sequence.output + sequence.then;
        there.then = 0;
        there.cached = sequence.prompt;
        there.level = 0;
        there.service = 0;
        handover.target = target.adopt(there);
        handover_of_[{from, source}] = id;
        handover.has_room = target.reserve(handover.target, room_of(*replicas_[handover.to], there));
        if (handover.has_room && spec_.transfer == Transfer::layers && spec_.layers > 1) {
            send(id, 1 - 1.0 / spec_.layers, dispatcher);
        } else if (!handover.has_room) {
            replicas_[handover.to]->without_room.push_back(id);
        }
        return id;
    }

    void prompt_done(std::uint32_t from, std::uint32_t source, Dispatcher& dispatcher) {
        const auto found = handover_of_.find({from, source});
        const std::uint32_t id = found != handover_of_.end() ? found->second : begin_handover(from, source, dispatcher);
        Handover& handover = handovers_[id];
        const Sequence& done = replicas_[from]->state.sequence(source);
        Sequence& there = replicas_[handover.to]->state.sequence(handover.target);
        there.generated = done.generated;
        there.first_token = done.first_token;
        there.last_token = done.last_token;
        there.late = done.late;
        handover.prompt_done = true;
        handover.ready = dispatcher.now();
        if (handover.has_room) {
            send_rest(id, dispatcher);
        }
    }

    void send_rest(std::uint32_t id, Dispatcher& dispatcher) {
        const bool begun = spec_.transfer == Transfer::layers && spec_.layers > 1 && !handovers_[id].sent_whole;
        send(id, begun ? 1.0 / spec_.layers : 1.0, dispatcher);
    }

    void send(std::uint32_t id, double share, Dispatcher& dispatcher) {
        Handover& handover = handovers_[id];
        ++handover.transfers;
        const Sequence& sequence = replicas_[handover.to]->state.sequence(handover.target);
        const Path& path = path_between(handover.from, handover.to, dispatcher);
        dispatcher.share(path.resources, share * sequence.prompt * spec_.cache_token_bytes,
                         SimTime::from_seconds(path.latency), handover.to + 1, kHandover + id);
    }

    void end_transfer(std::uint32_t id, Dispatcher& dispatcher) {
        Handover& handover = handovers_[id];
        if (--handover.transfers > 0 || !handover.prompt_done) {
            return;
        }
        ++result_.handovers;
        result_.handover_s += (dispatcher.now() - handover.ready).seconds();
        const std::uint32_t from = handover.from;
        const std::uint32_t to = handover.to;
        replicas_[from]->state.finish(handover.source);
        replicas_[to]->state.arrived(handover.target);
        handover_of_.erase({from, handover.source});
        free_handovers_.push_back(id);
        start_iteration(to, dispatcher);
        start_iteration(from, dispatcher);
    }

    // Sequences that have left gave blocks back: the handovers that wait longest get them.
    void make_room(std::uint32_t index, Dispatcher& dispatcher) {
        Replica& replica = *replicas_[index];
        while (!replica.without_room.empty()) {
            Handover& handover = handovers_[replica.without_room.front()];
            const Sequence& sequence = replica.state.sequence(handover.target);
            if (!replica.state.reserve(handover.target, room_of(replica, sequence))) {
                return;
            }
            const std::uint32_t id = replica.without_room.front();
            replica.without_room.pop_front();
            handover.has_room = true;
            handover.sent_whole = true;  // it came too late to send layer by layer
            if (handover.prompt_done) {
                send_rest(id, dispatcher);
            }
        }
    }

    struct Path {
        ClassId resources;
        double latency = 0;
    };

    // Every rank sends its part of the cache: as many flows as the wider of both replicas has ranks, as one activity.
    const Path& path_between(std::uint32_t from, std::uint32_t to, Dispatcher& dispatcher) {
        const auto [entry, fresh] = paths_.try_emplace({from, to});
        Path& path = entry->second;
        if (!fresh) {
            return path;
        }
        const Replica& source = *replicas_[from];
        const Replica& target = *replicas_[to];
        const std::uint32_t flows = std::max(source.pool.gpus, target.pool.gpus);
        std::map<std::uint32_t, double> weights;
        for (std::uint32_t i = 0; i < flows; ++i) {
            const GpuId a(source.first_gpu + i * source.pool.gpus / flows);
            const GpuId b(target.first_gpu + i * target.pool.gpus / flows);
            const Route route = spec_.fabric->route(a, b, spec_.paths, mix64(i + (std::uint64_t{to} << 20U)));
            for (const ResourceId resource : route.resources()) {
                weights[resource.value()] += 1.0 / flows;
            }
            path.latency = std::max(path.latency, route.latency);
        }
        std::vector<Demand> demands;
        for (const auto& [resource, weight] : weights) {
            demands.push_back(Demand{ResourceId(resource), weight});
        }
        path.resources = dispatcher.sharing().hold(demands);
        return path;
    }

    const ServiceSpec& spec_;
    RequestSource& requests_;
    const ServiceHooks& hooks_;
    std::vector<std::unique_ptr<Replica>> replicas_;
    std::vector<std::uint32_t> entries_;   ///< replicas that take requests
    std::vector<std::uint32_t> decoders_;  ///< replicas that take handovers
    Request pending_;
    std::uint64_t arrived_ = 0;
    std::uint64_t entry_turn_ = 0;
    std::uint64_t decode_turn_ = 0;
    std::vector<Handover> handovers_;
    std::vector<std::uint32_t> free_handovers_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> handover_of_;  ///< by replica and sequence
    std::map<std::pair<std::uint32_t, std::uint32_t>, Path> paths_;
    ServiceResult result_;
};

}  // namespace

void LogHistogram::add(double seconds, std::uint64_t count) {
    static const double kScale = 1 / log_pinned(kRatio);
    const double place = seconds > kLeast ? log_pinned(seconds / kLeast) * kScale : 0;
    const auto bin = static_cast<std::size_t>(std::min(place, 3000.0));
    if (bins_.size() <= bin) {
        bins_.resize(bin + 1);
    }
    bins_[bin] += count;
    total_ += count;
    sum_ += seconds * static_cast<double>(count);
    max_ = std::max(max_, seconds);
}

double LogHistogram::quantile(double q) const {
    const auto wanted = static_cast<std::uint64_t>(q * static_cast<double>(total_));
    std::uint64_t seen = 0;
    for (std::size_t bin = 0; bin < bins_.size(); ++bin) {
        seen += bins_[bin];
        if (seen > wanted) {
            // The middle of the bin on the logarithmic scale.
            return std::min(max_, kLeast * exp_pinned((static_cast<double>(bin) + 0.5) * log_pinned(kRatio)));
        }
    }
    return max_;
}

ServiceResult serve(const ServiceSpec& spec, RequestSource& requests, const ServiceHooks& hooks) {
    Engine engine;
    FluidSharing sharing(engine);
    if (spec.fabric != nullptr) {
        spec.fabric->add_to(sharing);
    }
    Service service(spec, requests, hooks);
    Dispatcher dispatcher(engine, sharing, service);
    const SimTime end = dispatcher.run();
    ServiceResult result = service.finish(end.seconds());
    result.events = engine.events();
    return result;
}

}  // namespace orrery
