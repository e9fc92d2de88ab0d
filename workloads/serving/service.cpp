#include "workloads/serving/service.hpp"

#include "sim/base/error.hpp"
#include "sim/engine/fluid.hpp"
#include "workloads/serving/adapter_loads.hpp"
#include "workloads/serving/autoscaler.hpp"
#include "workloads/serving/fetch.hpp"
#include "workloads/serving/handover.hpp"
#include "workloads/serving/lifelines.hpp"

#include <algorithm>
#include <unordered_map>

namespace orrery {

namespace {

constexpr std::uint64_t kProgressEvery = 4096;

class Service final : public TaskSource,
                      public FleetListener,
                      public HandoverListener,
                      public LifecycleListener,
                      public AdapterListener {
  public:
    Service(const ServiceSpec& spec, RequestSource& requests, const ServiceHooks& hooks)
        : spec_(spec), requests_(requests), hooks_(hooks) {
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
        handovers_.begin(dispatcher);
        fetches_.begin(dispatcher);
        adapters_.begin(dispatcher);
        lifecycle_.begin(dispatcher, fleet_.size());
        autoscaler_.begin(dispatcher);
        routes_change();
        await_next();
    }

    void on_done(std::uint64_t packed, Dispatcher&) override {
        const Token token = Token::unpack(packed);
        switch (token.task) {
            case Task::arrival:
                return arrive_next();
            case Task::follow_up:
                return arrive_again(token.index);
            case Task::adapter:
                return adapters_.on_task(token);
            case Task::background:
                return;
            case Task::fetch:
                return fetches_.on_task(token);
            case Task::handover:
                return handovers_.on_transfer(token.index);
            case Task::timeout:
                return lose_patience();
            case Task::failure:
            case Task::repair:
                return lifecycle_.on_task(token);
            case Task::scale:
                return autoscaler_.on_task(token);
            default:
                return fleet_.on_task(token);
        }
    }

    void batch_starts(std::uint32_t replica, const Batch& batch) override {
        handovers_.batch_starts(replica, batch);
        if (spec_.timeline) {
            lifelines_.batch_starts(replica, batch, dispatcher_->now());
        }
    }

    void batch_ends(std::uint32_t index, const Batch& batch) override {
        Replica& replica = fleet_[index];
        EngineState& state = replica.state;
        if (spec_.timeline) {
            lifelines_.batch_ends(index, batch, dispatcher_->now());
        }
        for (const BatchItem& item : batch.items) {
            Sequence& sequence = state.sequence(item.sequence);
            const std::uint32_t drafted = state.drafts(sequence);
            sequence.cached = item.context;
            if (sequence.cached == sequence.needed() && !sequence.abandoned) {
                give_token(sequence);
                for (std::uint32_t more = accept(replica.pool.speculation, drafted, sequence); more > 0; --more) {
                    ++sequence.cached;
                    give_token(sequence);
                }
            }
            state.name_blocks(item.sequence);
        }
        replica.scheduler->after(state, batch);
        retire(index);
        handovers_.make_room(index);
        adapters_.fill(index);
    }

    void adapter_ready(std::uint32_t replica, std::uint32_t sequence) override {
        if (!fetches_.start(replica, sequence)) {
            fleet_.wake(replica);
        }
    }

    void handed_over(std::uint32_t to, std::uint32_t sequence) override {
        EngineState& state = fleet_[to].state;
        if (state.sequence(sequence).abandoned) {
            state.finish(sequence);
            handovers_.make_room(to);
        } else {
            state.arrived(sequence);
            follow(to, sequence);
        }
    }

    void replica_fails(std::uint32_t index) override {
        ++result_.failures;
        std::vector<Sequence> lost = handovers_.fail(index);
        fetches_.fail(index);
        adapters_.fail(index);
        Replica& replica = fleet_[index];
        for (const std::uint32_t i : replica.state.all()) {
            lost.push_back(replica.state.sequence(i));
        }
        replica.up = false;
        fleet_.fail(index);
        routes_change();
        for (const Sequence& sequence : lost) {
            if (!sequence.abandoned) {
                retry(sequence);
            }
        }
        // What others held for it may let them go on.
        for (std::uint32_t i = 0; i < fleet_.size(); ++i) {
            handovers_.make_room(i);
            fleet_.wake(i);
        }
    }

    void replica_returns(std::uint32_t index) override {
        fleet_[index].up = true;
        routes_change();
        fleet_.wake(index);
    }

    void routes_change() override {
        entries_.update();
        decoders_.update();
    }

    [[nodiscard]] bool all_served() const override {
        return all_sent_ && coming_.empty() && returning_.size() == free_returning_.size() && settled_ == arrived_;
    }

    ServiceResult finish() {
        for (std::uint32_t i = 0; i < fleet_.size(); ++i) {
            const EngineState& state = fleet_[i].state;
            result_.preemptions += state.preemptions;
            result_.prompt_tokens += state.prompt_tokens();
            result_.prefix_tokens += state.prefix_tokens();
            ORRERY_ASSERT(state.outstanding() == 0 && state.used_blocks() == 0);
        }
        ORRERY_ASSERT(settled_ == arrived_);
        result_.end_s = last_.seconds();
        result_.gpu_s = autoscaler_.gpu_seconds(last_);
        const double to = spec_.measure_to > 0 ? std::min(spec_.measure_to, result_.end_s) : result_.end_s;
        result_.window_s = std::max(0.0, to - spec_.measure_from);
        std::stable_sort(result_.requests.begin(), result_.requests.end(),
                         [](const RequestOutcome& a, const RequestOutcome& b) { return a.arrival < b.arrival; });
        return std::move(result_);
    }

  private:
    // Reads the next request and waits for its time: the source is never held in memory. Clients of a closed loop send one
    // whenever they have none under way.
    void await_next() {
        const SimTime way = SimTime::from_seconds(spec_.request_overhead);
        const SimTime work = SimTime::from_seconds(spec_.frontend);
        const std::uint64_t clients = requests_.clients();
        while (clients == 0 ? coming_.empty() : arrived_ + coming_.size() - settled_ < clients) {
            Request request;
            if (!requests_.next(request)) {
                all_sent_ = true;
                return;
            }
            if (clients > 0) {
                request.arrival = dispatcher_->now();
            }
            frontend_free_ = std::max(frontend_free_, request.arrival) + work;
            dispatcher_->delay(std::max(SimTime(), frontend_free_ + way - dispatcher_->now()), 0, Token{}.pack());
            coming_.push_back(std::move(request));
        }
    }

    void arrive_next() {
        const Request pending = std::move(coming_.front());
        coming_.pop_front();
        arrive(pending);
        await_next();
    }

    void arrive_again(std::uint32_t slot) {
        const Request pending = std::move(returning_[slot]);
        free_returning_.push_back(slot);
        arrive(pending);
    }

    void arrive(const Request& pending) {
        std::uint32_t chosen = entries_.choose(pending.session, pending.content, pending.prompt);
        if (const std::uint32_t other = helper(chosen, pending); other != chosen) {
            chosen = other;
            ++result_.mixed_prompts;
        }
        Replica& replica = fleet_[chosen];
        Request here = pending;
        if (replica.pool.role == Role::prefill) {
            here.output = 1;
        }
        const std::uint64_t id = arrived_++;
        if (replica.state.accepts(here) && (replica.pool.role != Role::prefill || can_decode(pending))) {
            const std::uint32_t index = replica.state.add(here, id);
            replica.state.sequence(index).then = pending.output - here.output;
            if (replica.pool.role == Role::decode) {
                replica.state.mark_foreign(index);
            }
            be_patient(id);
            enter(chosen, index);
        } else {
            ++result_.refused;
            leave_unserved(pending.arrival, pending.turn);
        }
        if (hooks_.progress && arrived_ % kProgressEvery == 0) {
            hooks_.progress(requests_.progress());
        }
    }

    // With long queues a decode replica that computes prompts already, else the one with the most room, takes a prompt.
    [[nodiscard]] std::uint32_t helper(std::uint32_t chosen, const Request& request) const {
        const std::uint64_t most = spec_.mixing.prompt_tokens;
        if (most == 0 || fleet_[chosen].pool.role != Role::prefill ||
            !prompts_exceed(fleet_[chosen], most, request.prompt)) {
            return chosen;
        }
        std::uint32_t best = chosen;
        for (const std::uint32_t i : decoders_.replicas()) {
            const Replica& replica = fleet_[i];
            if (!replica.up || !replica.state.accepts(request) || prompts_exceed(replica, most, request.prompt)) {
                continue;
            }
            const auto rank = [&](const Replica& one) {
                return std::pair{one.state.foreign() == 0, one.state.used_blocks()};
            };
            if (best == chosen || rank(replica) < rank(fleet_[best])) {
                best = i;
            }
        }
        return best;
    }

    // Whether a prompt joins a queue in which others wait, and all together are more than so many tokens.
    [[nodiscard]] static bool prompts_exceed(const Replica& replica, std::uint64_t most, std::uint64_t tokens) {
        const EngineState& state = replica.state;
        if (state.waiting.empty()) {
            return false;
        }
        for (const std::uint32_t index : state.waiting) {
            tokens += state.sequence(index).left_to_prefill();
            if (tokens > most) {
                return true;
            }
        }
        return false;
    }

    // Decode replicas are equal within a pool; one that accepts is enough.
    [[nodiscard]] bool can_decode(const Request& request) const {
        const auto& decoders = decoders_.replicas();
        return std::any_of(decoders.begin(), decoders.end(),
                           [&](std::uint32_t i) { return fleet_[i].state.accepts(request); });
    }

    void enter(std::uint32_t replica, std::uint32_t sequence) {
        follow(replica, sequence);
        if (adapters_.ready(replica, sequence)) {
            adapter_ready(replica, sequence);
        }
    }

    // Every request is accounted for once: finished, refused, timed out or failed.
    void settle(std::uint32_t turn, bool served) {
        ++settled_;
        last_ = dispatcher_->now();
        if (Request next; turn > 0 && requests_.follow_up(turn, last_, served, next)) {
            expect(std::move(next));
        }
        if (requests_.clients() > 0) {
            await_next();
        }
    }

    // What a client asks next does not queue at the front end: its time there is known only when it comes.
    void expect(Request request) {
        if (free_returning_.empty()) {
            free_returning_.push_back(static_cast<std::uint32_t>(returning_.size()));
            returning_.emplace_back();
        }
        const std::uint32_t slot = free_returning_.back();
        free_returning_.pop_back();
        const SimTime way = SimTime::from_seconds(spec_.request_overhead + spec_.frontend);
        dispatcher_->delay(request.arrival + way - dispatcher_->now(), 0, Token{Task::follow_up, slot, 0}.pack());
        returning_[slot] = std::move(request);
    }

    void leave_unserved(SimTime arrival, std::uint32_t turn) {
        result_.unserved += measured(arrival) ? 1 : 0;
        settle(turn, false);
    }

    [[nodiscard]] bool measured(SimTime at) const {
        const double seconds = at.seconds();
        return seconds >= spec_.measure_from && (spec_.measure_to <= 0 || seconds < spec_.measure_to);
    }

    void give_token(Sequence& sequence) {
        const SimTime now = dispatcher_->now();
        const bool counts = measured(now);
        if (sequence.generated < spec_.stream_interval) {
            sequence.first_token = now;  // as the client sees it
        }
        if (sequence.generated > 0) {
            const double gap = (now - sequence.last_token).seconds();
            if (counts) {
                result_.tbt.add(gap);
            }
            sequence.late = sequence.late || (spec_.tbt_limit > 0 && gap > spec_.tbt_limit);
        }
        ++sequence.generated;
        sequence.last_token = now;
        result_.output_tokens += counts ? 1 : 0;
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
            if (sequence.abandoned && !handovers_.under_way(index, id)) {
                state.finish(id);
            } else if (sequence.generated < sequence.output && !sequence.abandoned) {
                state.running[kept++] = id;
            } else if (sequence.then > 0) {
                if (stays(index, id)) {
                    state.running[kept++] = id;
                } else {
                    handovers_.prompt_done(index, id);
                }
            } else {
                record(sequence);
                state.finish(id);
            }
        }
        state.running.resize(kept);
    }

    // A prefill replica keeps a sequence that no decode replica has room for, when it has room for all of it.
    bool stays(std::uint32_t index, std::uint32_t id) {
        EngineState& state = fleet_[index].state;
        Sequence& sequence = state.sequence(id);
        const std::uint64_t whole = std::uint64_t{sequence.prompt} + sequence.output + sequence.then;
        if (handovers_.under_way(index, id) || !handovers_.decoders_are_full() || !state.reserve(id, whole)) {
            return false;
        }
        sequence.output += sequence.then;
        sequence.then = 0;
        state.mark_foreign(id);
        ++result_.mixed_outputs;
        return true;
    }

    void record(const Sequence& sequence) {
        const SimTime now = dispatcher_->now();
        if (spec_.timeline) {
            lifelines_.end(sequence.id);
        }
        settle(sequence.turn, true);
        live_.erase(sequence.id);
        result_.finished += measured(now) ? 1 : 0;
        if (!measured(sequence.arrival)) {
            if (hooks_.served) {
                hooks_.served(sequence, nullptr);
            }
            return;
        }
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
        if (hooks_.served) {
            hooks_.served(sequence, &outcome);
        }
    }

    // A lost sequence goes to the replica of a new request, which computes its prompt and what it had given anew. It fails
    // when that happened too often, or when it has outgrown the cache of the replicas that compute prompts.
    void retry(Sequence sequence) {
        const std::uint32_t total = sequence.output + sequence.then;
        const std::uint32_t chosen = entries_.choose(sequence.session, sequence.content, sequence.needed());
        Replica& replica = fleet_[chosen];
        sequence.output = replica.pool.role == Role::prefill ? std::min(total, sequence.generated + 1) : total;
        sequence.then = total - sequence.output;
        Request again;
        again.prompt = sequence.prompt;
        again.output = sequence.output;
        if (sequence.retries >= spec_.retries || !replica.state.accepts(again)) {
            ++result_.failed;
            live_.erase(sequence.id);
            leave_unserved(sequence.arrival, sequence.turn);
            return;
        }
        ++sequence.retries;
        ++result_.retried;
        enter(chosen, replica.state.readmit(sequence));
    }

    // Clients that give up: all wait equally long, so the first to come is the first to go.

    void be_patient(std::uint64_t id) {
        if (spec_.timeout > 0) {
            patience_.push_back({dispatcher_->now() + SimTime::from_seconds(spec_.timeout), id});
            if (patience_.size() == 1) {
                dispatcher_->delay(SimTime::from_seconds(spec_.timeout), 0, Token{Task::timeout, 0, 0}.pack());
            }
        }
    }

    void lose_patience() {
        const std::uint64_t id = patience_.front().second;
        patience_.pop_front();
        if (const auto found = live_.find(id); found != live_.end()) {
            const auto [replica, sequence] = found->second;
            const std::uint32_t turn = fleet_[replica].state.sequence(sequence).turn;
            live_.erase(found);
            if (spec_.timeline) {
                lifelines_.end(id);
            }
            give_up(replica, sequence);
            ++result_.timed_out;
            leave_unserved(dispatcher_->now() - SimTime::from_seconds(spec_.timeout), turn);
        }
        while (!patience_.empty() && live_.count(patience_.front().second) == 0) {
            patience_.pop_front();
        }
        if (!patience_.empty()) {
            dispatcher_->delay(patience_.front().first - dispatcher_->now(), 0, Token{Task::timeout, 0, 0}.pack());
        }
    }

    // What computes or travels is freed when that ends, everything else at once.
    void give_up(std::uint32_t index, std::uint32_t id) {
        Replica& replica = fleet_[index];
        Sequence& sequence = replica.state.sequence(id);
        sequence.abandoned = true;
        const bool waits = sequence.stage == Stage::waiting || sequence.stage == Stage::swapped ||
                           (sequence.stage == Stage::running && replica.under_way == 0);
        if (waits) {
            replica.state.withdraw(id);
            handovers_.make_room(index);
            adapters_.fill(index);
            fleet_.wake(index);
        }
    }

    void follow(std::uint32_t replica, std::uint32_t sequence) {
        if (spec_.timeout > 0) {
            live_[fleet_[replica].state.sequence(sequence).id] = {replica, sequence};
        }
    }

    const ServiceSpec& spec_;
    RequestSource& requests_;
    const ServiceHooks& hooks_;
    ServiceResult result_;
    Fleet fleet_{spec_, hooks_, *this, result_};
    Routes entries_{fleet_, spec_.router};   ///< replicas that take requests
    Routes decoders_{fleet_, spec_.router};  ///< replicas that take handovers
    Handovers handovers_{spec_, fleet_, decoders_, *this, result_};
    Fetches fetches_{fleet_, result_};
    AdapterLoads adapters_{fleet_, *this, result_};
    Lifelines lifelines_{fleet_, result_};
    Lifecycle lifecycle_{spec_, *this};
    Autoscaler autoscaler_{spec_, fleet_, *this, result_};
    RandomStream drafts_{spec_.seed, "serving/drafts"};
    Dispatcher* dispatcher_ = nullptr;
    std::deque<Request> coming_;      ///< sent, and not at an engine yet
    std::vector<Request> returning_;  ///< what clients ask after an answer, while they think
    std::vector<std::uint32_t> free_returning_;
    SimTime frontend_free_;
    bool all_sent_ = false;
    std::uint64_t arrived_ = 0;
    std::uint64_t settled_ = 0;
    SimTime last_;                                            ///< when the last request was accounted for
    std::deque<std::pair<SimTime, std::uint64_t>> patience_;  ///< deadlines by request
    /// Where requests are, when their clients may give up: replica and sequence. Only looked up.
    std::unordered_map<std::uint64_t, std::pair<std::uint32_t, std::uint32_t>> live_;
};

}  // namespace

ServiceResult serve(const ServiceSpec& spec, RequestSource& requests, const ServiceHooks& hooks) {
    Engine engine;
    FluidSharing sharing(engine);
    if (spec.fabric != nullptr) {
        spec.fabric->add_to(sharing);
    }
    Service service(spec, requests, hooks);
    Dispatcher dispatcher(engine, sharing, service);
    (void)dispatcher.run();
    ServiceResult result = service.finish();
    result.events = engine.events();
    return result;
}

}  // namespace orrery
