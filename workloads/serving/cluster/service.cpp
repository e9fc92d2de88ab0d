#include "workloads/serving/cluster/service.hpp"

#include "sim/base/error.hpp"
#include "workloads/serving/cluster/autoscaler.hpp"
#include "workloads/serving/cluster/client_timeouts.hpp"
#include "workloads/serving/cluster/mixing.hpp"
#include "workloads/serving/front_end/frontend.hpp"
#include "workloads/serving/metrics/metrics.hpp"
#include "workloads/serving/metrics/request_timeline.hpp"
#include "workloads/serving/metrics/steady_state.hpp"
#include "workloads/serving/transfer/adapter_loads.hpp"
#include "workloads/serving/transfer/fetch.hpp"
#include "workloads/serving/transfer/kv_restores.hpp"

#include <algorithm>

namespace orrery::serving {

class ServiceRun::Service final : public TaskSource,
                                  public FrontendListener,
                                  public ClientTimeoutListener,
                                  public FleetListener,
                                  public KvTransferListener,
                                  public LifecycleListener,
                                  public StarterListener,
                                  public AdapterListener {
  public:
    Service(const ServiceSpec& spec, RequestSource& requests, const ServiceHooks& hooks)
        : spec_(spec),
          hooks_(hooks),
          frontend_(spec, requests, hooks, *this, result_),
          steady_(spec.steady.wanted
                      ? std::make_optional<SteadyState>(spec, requests.clients() > 0, hooks.progress, result_)
                      : std::nullopt),
          metrics_(spec, hooks, steady_ ? &*steady_ : nullptr, result_) {
        bool hands_over = false;
        for (std::uint32_t i = 0; i < fleet_.size(); ++i) {
            (fleet_[i].pool.role == Role::decode ? decoders_ : entries_).add(i);
            hands_over = hands_over || fleet_[i].pool.role == Role::prefill;
        }
        ORRERY_ASSERT(!entries_.empty() && hands_over == !decoders_.empty());
        ORRERY_ASSERT(!hands_over || spec.fabric != nullptr);
    }

    void begin(Dispatcher& dispatcher) override {
        dispatcher_ = &dispatcher;
        fleet_.begin(dispatcher);
        kv_transfers_.begin(dispatcher);
        fetches_.begin(dispatcher);
        adapters_.begin(dispatcher);
        restores_.begin(dispatcher);
        starter_.begin(dispatcher);
        lifecycle_.begin(dispatcher);
        autoscaler_.begin(dispatcher);
        timeouts_.begin(dispatcher);
        routes_change();
        frontend_.begin(dispatcher);
    }

    void on_done(std::uint64_t packed, Dispatcher&) override {
        const Token token = Token::unpack(packed);
        switch (token.task) {
            case ServiceTask::arrival:
                return frontend_.on_arrival();
            case ServiceTask::follow_up:
                return frontend_.on_follow_up(token.index);
            case ServiceTask::front_end:
                return frontend_.on_host(token.index);
            case ServiceTask::delivery: {
                const FrontEndHost::Delivery done = frontend_.host()->delivered(token.index);
                return answered(done.replica, done.sequence);
            }
            case ServiceTask::adapter:
                return adapters_.on_task(token);
            case ServiceTask::background:
                return;
            case ServiceTask::fetch:
                return fetches_.on_task(token);
            case ServiceTask::kv_transfer:
                return kv_transfers_.on_transfer(token.index, token.entry);
            case ServiceTask::timeout:
                return timeouts_.on_deadline();
            case ServiceTask::fault:
                return lifecycle_.on_task(token);
            case ServiceTask::start:
                return starter_.on_task(token);
            case ServiceTask::restore:
                return restores_.on_task(token);
            case ServiceTask::scale:
                return autoscaler_.on_task(token);
            default:
                return fleet_.on_task(token);
        }
    }

    void request_arrives(const Request& request, std::uint64_t id) override {
        ++come_;
        if (steady_) {
            steady_->arrived(request.arrival, dispatcher_->now());
            stop_if_enough();
        }
        const std::uint32_t first = entries_.choose(request.session, request.content, request.prompt);
        const std::uint32_t chosen = mixing_.for_prompt(first, request);
        result_.mixed_prompts += chosen != first ? 1 : 0;
        Replica& replica = fleet_[chosen];
        Request here = request;
        if (replica.pool.role == Role::prefill) {
            here.output = 1;
        }
        if (replica.state.accepts(here) && (replica.pool.role != Role::prefill || can_decode(request))) {
            const std::uint32_t index = replica.state.add(here, id);
            replica.state.sequence(index).then = request.output - here.output;
            if (replica.pool.role == Role::decode) {
                replica.state.mark_foreign(index);
            }
            timeouts_.start(id);
            autoscaler_.count(chosen);
            enter(chosen, index);
        } else {
            ++result_.refused;
            if (hooks_.ended) {
                hooks_.ended(sequence_of(request, id), Ending::refused, dispatcher_->now());
            }
            leave_unserved(id, request.arrival, request.turn);
        }
    }

    void client_leaves(std::uint32_t replica, std::uint32_t id) override {
        const Sequence& sequence = fleet_[replica].state.sequence(id);
        const SimTime arrival = sequence.arrival;
        const std::uint32_t turn = sequence.turn;
        const std::uint64_t request = sequence.id;
        end(replica, sequence, Ending::timed_out);
        give_up(replica, id);
        ++result_.timed_out;
        leave_unserved(request, arrival, turn);
    }

    void batch_starts(std::uint32_t replica, const Batch& batch) override {
        kv_transfers_.batch_starts(replica, batch);
        if (spec_.timeline) {
            request_timeline_.batch_starts(replica, batch, dispatcher_->now());
        }
    }

    void batch_ends(std::uint32_t index, const Batch& batch) override {
        Replica& replica = fleet_[index];
        EngineState& state = replica.state;
        if (spec_.timeline) {
            request_timeline_.batch_ends(index, batch, dispatcher_->now());
        }
        // Clients have their tokens now, or when a core of the front end has sent them.
        FrontEndHost* const host = frontend_.host();
        const SimTime now = dispatcher_->now();
        for (const BatchItem& item : batch.items) {
            Sequence& sequence = state.sequence(item.sequence);
            const std::uint32_t drafted = state.drafts(sequence);
            sequence.cached = item.context;
            if (sequence.cached == sequence.needed() && !sequence.abandoned) {
                metrics_.token(sequence, host == nullptr ? now : host->stream());
                for (std::uint32_t more = accept(replica.pool.speculation, drafted, sequence); more > 0; --more) {
                    ++sequence.cached;
                    metrics_.token(sequence, host == nullptr ? now : host->stream());
                }
            }
            state.name_blocks(item.sequence);
        }
        replica.scheduler->after(state, batch);
        retire(index);
        kv_transfers_.make_room(index);
        adapters_.fill(index);
    }

    void adapter_ready(std::uint32_t replica, std::uint32_t sequence) override {
        if (spec_.timeline) {
            request_timeline_.adapter_here(fleet_[replica].state.sequence(sequence), dispatcher_->now());
        }
        if (!fetches_.start(replica, sequence)) {
            fleet_.wake(replica);
        }
    }

    void kv_arrived(std::uint32_t to, std::uint32_t sequence) override {
        EngineState& state = fleet_[to].state;
        if (state.sequence(sequence).abandoned) {
            state.finish(sequence);
            kv_transfers_.make_room(to);
        } else {
            state.arrived(sequence);
            autoscaler_.count(to);
            follow(to, sequence);
        }
    }

    void replica_fails(std::uint32_t index, bool unnoticed) override {
        fleet_[index].up = false;
        fleet_.stop(index);
        if (unnoticed) {
            // Who sends to it, or was to get something from it, sees the connection break.
            fetches_.fail(index);
            restores_.fail(index);
            for (const Sequence& sequence : kv_transfers_.fail(index)) {
                if (!sequence.abandoned) {
                    retry(sequence);
                }
            }
        }
    }

    void replica_lost(std::uint32_t index) override {
        std::vector<Sequence> lost = kv_transfers_.fail(index);
        fetches_.fail(index);
        adapters_.fail(index);
        restores_.fail(index);
        Replica& replica = fleet_[index];
        for (const std::uint32_t i : replica.state.all()) {
            lost.push_back(replica.state.sequence(i));
        }
        replica.listed = false;
        fleet_.clear(index);
        routes_change();
        for (const Sequence& sequence : lost) {
            if (!sequence.abandoned) {
                retry(sequence);
            }
        }
        // What others held for it may let them go on.
        for (std::uint32_t i = 0; i < fleet_.size(); ++i) {
            kv_transfers_.make_room(i);
            fleet_.wake(i);
        }
    }

    void replica_drains(std::uint32_t index) override {
        fleet_[index].listed = false;
        routes_change();
    }

    void replica_started(std::uint32_t index) override {
        if (lifecycle_.down(index)) {
            lifecycle_.started(index);
        } else {
            autoscaler_.started(index);
        }
    }

    void replica_returns(std::uint32_t index) override {
        fleet_[index].up = true;
        fleet_[index].listed = true;
        routes_change();
        fleet_.wake(index);
    }

    void routes_change() override {
        entries_.update();
        decoders_.update();
    }

    [[nodiscard]] bool all_served() const override { return frontend_.all_settled(); }

    void end(Dispatcher&) override {
        fleet_.finish();
        for (std::uint32_t i = 0; i < fleet_.size(); ++i) {
            const EngineState& state = fleet_[i].state;
            result_.preemptions += state.preemptions;
            result_.lone_prompts += state.lone_prompts;
            result_.prompt_tokens += state.prompt_tokens();
            result_.prefix_tokens += state.prefix_tokens();
            result_.swap_reused_bytes += static_cast<double>(state.reused_blocks()) * state.limits().block_bytes;
            ORRERY_ASSERT(state.outstanding() == 0 && state.used_blocks() == 0 && state.used_host_blocks() == 0);
        }
        ORRERY_ASSERT(frontend_.all_settled());
        result_.end_s = frontend_.last().seconds();
        result_.gpu_s = autoscaler_.gpu_seconds(frontend_.last());
        const double to = spec_.measure_to > 0 ? std::min(spec_.measure_to, result_.end_s) : result_.end_s;
        result_.window_s = std::max(0.0, to - spec_.measure_from);
        std::stable_sort(result_.requests.begin(), result_.requests.end(),
                         [](const RequestOutcome& a, const RequestOutcome& b) { return a.arrival < b.arrival; });
        if (steady_) {
            steady_->finish();
        }
        const double from = result_.steady ? result_.steady->warm_up_s : spec_.measure_from;
        lifecycle_.finish(SimTime::from_seconds(from), SimTime::from_seconds(from + result_.window_s));
    }

    ServiceResult result() { return std::move(result_); }

  private:
    // Decode replicas are equal within a pool; one that accepts is enough.
    [[nodiscard]] bool can_decode(const Request& request) const {
        const auto& decoders = decoders_.replicas();
        return std::any_of(decoders.begin(), decoders.end(),
                           [&](std::uint32_t i) { return fleet_[i].state.accepts(request); });
    }

    void enter(std::uint32_t replica, std::uint32_t sequence) {
        follow(replica, sequence);
        autoscaler_.wanted(replica);
        if (adapters_.ready(replica, sequence)) {
            adapter_ready(replica, sequence);
        } else if (spec_.timeline) {
            request_timeline_.adapter_wanted(replica, fleet_[replica].state.sequence(sequence), dispatcher_->now());
        }
    }

    void leave_unserved(std::uint64_t id, SimTime arrival, std::uint32_t turn) {
        metrics_.unserved(arrival);
        settle(id, turn, false);
    }

    void settle(std::uint64_t id, std::uint32_t turn, bool served) {
        if (steady_) {
            steady_->settled(id);
            stop_if_enough();
        }
        frontend_.settle(turn, served);
    }

    void stop_if_enough() {
        if (steady_->over()) {
            frontend_.close();
        }
    }

    // A request on a replica is accounted for: the timeline and whoever looks on are told.
    void end(std::uint32_t replica, const Sequence& sequence, Ending how) {
        if (spec_.timeline) {
            request_timeline_.end(replica, sequence, dispatcher_->now());
        }
        if (hooks_.ended) {
            hooks_.ended(sequence, how, dispatcher_->now());
        }
    }

    // What is known of a request that no replica takes.
    [[nodiscard]] static Sequence sequence_of(const Request& request, std::uint64_t id) {
        Sequence sequence;
        sequence.id = id;
        sequence.arrival = request.arrival;
        sequence.prompt = request.prompt;
        sequence.output = request.output;
        sequence.adapter = request.adapter;
        sequence.session = request.session;
        return sequence;
    }

    void record(std::uint32_t replica, const Sequence& sequence) {
        result_.wrong += lifecycle_.corrupt(replica) ? 1 : 0;
        timeouts_.end(sequence.id);
        if (sequence.last_token > dispatcher_->now()) {
            frontend_.host()->deliver(replica, sequence);
        } else {
            answered(replica, sequence);
        }
    }

    void answered(std::uint32_t replica, const Sequence& sequence) {
        end(replica, sequence, Ending::finished);
        metrics_.answered(sequence, dispatcher_->now());
        settle(sequence.id, sequence.turn, true);
    }

    void follow(std::uint32_t replica, std::uint32_t sequence) {
        timeouts_.follow(fleet_[replica].state.sequence(sequence).id, replica, sequence);
    }

    // Tokens of a draft that the model agrees with: those before the first that it does not.
    std::uint32_t accept(const SpeculationSpec& spec, std::uint32_t drafted, Sequence& sequence) {
        if (drafted == 0) {
            return 0;
        }
        ++result_.decode_steps;
        std::uint32_t accepted = 0;
        if (spec.sampled) {
            while (accepted < drafted && drafts_.uniform() < spec.acceptance) {
                ++accepted;
            }
        } else {
            double chance = 1;
            for (std::uint32_t i = 0; i < drafted; ++i) {
                chance *= spec.acceptance;
                sequence.credit += chance;
            }
            accepted = std::min(drafted, static_cast<std::uint32_t>(sequence.credit));
            sequence.credit -= accepted;
        }
        result_.accepted += accepted;
        return accepted;
    }

    // Takes from the running sequences those that have given all their tokens, or whose clients have gone.
    void retire(std::uint32_t index) {
        EngineState& state = fleet_[index].state;
        std::size_t kept = 0;
        for (const std::uint32_t id : state.running) {
            const Sequence& sequence = state.sequence(id);
            if (sequence.abandoned && !kv_transfers_.under_way(index, id)) {
                state.finish(id);
            } else if (sequence.generated < sequence.output && !sequence.abandoned) {
                state.running[kept++] = id;
            } else if (sequence.then > 0) {
                if (mixing_.keeps(index, id)) {
                    state.running[kept++] = id;
                    ++result_.mixed_outputs;
                } else {
                    kv_transfers_.prompt_done(index, id);
                }
            } else {
                record(index, sequence);
                state.finish(id);
            }
        }
        state.running.resize(kept);
    }

    // Whether all requests together may start anew once more.
    [[nodiscard]] bool within_budget() const {
        const std::optional<double>& budget = spec_.faults.retry_budget;
        return !budget || static_cast<double>(result_.retried + 1) <= *budget * static_cast<double>(come_);
    }

    // A lost sequence goes to the replica of a new request, which computes its prompt and what it had given anew; where its cache
    // is restored, to one that can go on with it. It fails when that happened too often, to it or to all, or when it has outgrown the
    // cache of the replicas that compute prompts.
    void retry(Sequence sequence) {
        const std::uint32_t total = sequence.output + sequence.then;
        const bool copied = spec_.faults.restores && sequence.cached > 0;
        Routes& routes = copied && sequence.decoding() && !decoders_.empty() ? decoders_ : entries_;
        const std::uint32_t chosen = routes.choose(sequence.session, sequence.content, sequence.needed());
        Replica& replica = fleet_[chosen];
        const bool restored = copied && replica.up && replica.power == Power::on;
        sequence.output = replica.pool.role == Role::prefill ? std::min(total, sequence.generated + 1) : total;
        sequence.then = total - sequence.output;
        Request again;
        again.prompt = sequence.prompt;
        again.output = sequence.output;
        const bool spent = !within_budget();
        if (sequence.retries >= spec_.faults.retries || spent || !replica.state.accepts(again)) {
            ++result_.failed;
            result_.over_budget += spent ? 1 : 0;
            timeouts_.end(sequence.id);
            end(chosen, sequence, Ending::failed);
            leave_unserved(sequence.id, sequence.arrival, sequence.turn);
            return;
        }
        ++sequence.retries;
        ++result_.retried;
        if (restored) {
            if (const std::optional<std::uint32_t> here = restores_.start(chosen, sequence); here) {
                follow(chosen, *here);
                autoscaler_.wanted(chosen);
                return;
            }
        }
        result_.lost_tokens += sequence.cached;
        if (&routes != &entries_) {
            // No room for the copy: its prompt is computed anew where prompts are.
            const std::uint32_t anew = entries_.choose(sequence.session, sequence.content, sequence.needed());
            sequence.output = fleet_[anew].pool.role == Role::prefill ? std::min(total, sequence.generated + 1) : total;
            sequence.then = total - sequence.output;
            enter(anew, fleet_[anew].state.readmit(sequence));
            return;
        }
        enter(chosen, replica.state.readmit(sequence));
    }

    // What computes or travels is freed when that ends, everything else at once.
    void give_up(std::uint32_t index, std::uint32_t id) {
        Replica& replica = fleet_[index];
        Sequence& sequence = replica.state.sequence(id);
        sequence.abandoned = true;
        const bool waits = sequence.stage == Stage::waiting || sequence.stage == Stage::swapped ||
                           (sequence.stage == Stage::running && replica.under_way == 0 && !sequence.in_flight);
        if (waits) {
            replica.state.withdraw(id);
            kv_transfers_.make_room(index);
            adapters_.fill(index);
            fleet_.wake(index);
        }
    }

    const ServiceSpec& spec_;
    const ServiceHooks& hooks_;
    ServiceResult result_;
    Fleet fleet_{spec_, hooks_, *this, result_};
    Routes entries_{fleet_, spec_.router};   ///< replicas that take requests
    Routes decoders_{fleet_, spec_.router};  ///< replicas that take KV transfers
    KvTransfers kv_transfers_{spec_, fleet_, decoders_, *this, result_};
    Mixing mixing_{spec_.mixing, fleet_, decoders_, kv_transfers_};
    Fetches fetches_{fleet_, result_};
    AdapterLoads adapters_{fleet_, *this, spec_.timeline, result_};
    Frontend frontend_;
    ClientTimeouts timeouts_{spec_.timeout, *this};
    std::optional<SteadyState> steady_;
    ServingMetrics metrics_;
    RequestTimeline request_timeline_{fleet_, result_};
    KvRestores restores_{spec_, fleet_, result_};
    Starter starter_{spec_, fleet_, *this, result_};
    Lifecycle lifecycle_{spec_, fleet_, starter_, *this, result_};
    Autoscaler autoscaler_{spec_, fleet_, starter_, *this, result_};
    std::uint64_t come_ = 0;  ///< requests
    RandomStream drafts_{spec_.seed, "serving/drafts"};
    Dispatcher* dispatcher_ = nullptr;
};

ServiceRun::ServiceRun(const ServiceSpec& spec, RequestSource& requests, const ServiceHooks& hooks,
                       Simulation& simulation, SimTime start)
    : service_(std::make_unique<Service>(spec, requests, hooks)) {
    (void)simulation.add(*service_, start);
}

ServiceRun::~ServiceRun() = default;

ServiceResult ServiceRun::result() {
    return service_->result();
}

ServiceResult serve(const ServiceSpec& spec, RequestSource& requests, const ServiceHooks& hooks) {
    const std::unique_ptr<Simulation> simulation = spec.fabric != nullptr
                                                       ? std::make_unique<Simulation>(*spec.fabric, RunSettings())
                                                       : std::make_unique<Simulation>();
    ServiceRun run(spec, requests, hooks, *simulation);
    simulation->run();
    ServiceResult result = run.result();
    result.events = simulation->events();
    return result;
}

}  // namespace orrery::serving
