#include "workloads/serving/service.hpp"

#include "sim/base/error.hpp"
#include "sim/engine/fluid.hpp"
#include "workloads/serving/handover.hpp"

#include <algorithm>

namespace orrery {

namespace {

constexpr std::uint64_t kProgressEvery = 4096;

class Service final : public TaskSource, public FleetListener {
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
        await_next();
    }

    void on_done(std::uint64_t packed, Dispatcher&) override {
        const Token token = Token::unpack(packed);
        switch (token.task) {
            case Task::arrival:
                return arrive();
            case Task::background:
                return;
            case Task::fetch:
                return fetched(token);
            case Task::handover:
                return handovers_.on_transfer(token.index);
            default:
                return fleet_.on_task(token);
        }
    }

    void batch_starts(std::uint32_t replica, const Batch& batch) override { handovers_.batch_starts(replica, batch); }

    void batch_ends(std::uint32_t index, const Batch& batch) override {
        EngineState& state = fleet_[index].state;
        for (const BatchItem& item : batch.items) {
            Sequence& sequence = state.sequence(item.sequence);
            sequence.cached = item.context;
            state.name_blocks(item.sequence);
            if (sequence.cached == sequence.needed()) {
                give_token(sequence);
            }
        }
        fleet_[index].scheduler->after(state, batch);
        retire(index);
        handovers_.make_room(index);
    }

    ServiceResult finish() {
        for (std::uint32_t i = 0; i < fleet_.size(); ++i) {
            const EngineState& state = fleet_[i].state;
            result_.preemptions += state.preemptions;
            result_.prompt_tokens += state.prompt_tokens();
            result_.prefix_tokens += state.prefix_tokens();
            ORRERY_ASSERT(state.outstanding() == 0 && state.used_blocks() == 0);
        }
        result_.end_s = last_.seconds();
        std::stable_sort(result_.requests.begin(), result_.requests.end(),
                         [](const RequestOutcome& a, const RequestOutcome& b) { return a.arrival < b.arrival; });
        return std::move(result_);
    }

  private:
    // Reads the next request and waits for its time: the source is never held in memory.
    void await_next() {
        if (requests_.next(pending_)) {
            dispatcher_->delay(std::max(SimTime(), pending_.arrival - dispatcher_->now()), 0, Token{}.pack());
        }
    }

    void arrive() {
        const std::uint32_t chosen = entries_.choose(pending_.session, pending_.content, pending_.prompt);
        Replica& replica = fleet_[chosen];
        Request here = pending_;
        const bool prefill = replica.pool.role == Role::prefill;
        if (prefill) {
            here.output = 1;
        }
        // Decode replicas are equal within a pool; one that accepts is enough.
        const auto& decoders = decoders_.replicas();
        const bool can_end = !prefill || std::any_of(decoders.begin(), decoders.end(), [&](std::uint32_t i) {
            return fleet_[i].state.accepts(pending_);
        });
        if (replica.state.accepts(here) && can_end) {
            const std::uint32_t index = replica.state.add(here, arrived_);
            replica.state.sequence(index).then = pending_.output - here.output;
            if (!fetch(chosen, index)) {
                fleet_.wake(chosen);
            }
        } else {
            ++result_.refused;
            last_ = dispatcher_->now();
        }
        ++arrived_;
        if (hooks_.progress && arrived_ % kProgressEvery == 0) {
            hooks_.progress(requests_.progress());
        }
        await_next();
    }

    // What lower tiers have of a prompt comes before it waits for its turn; true when something does.
    bool fetch(std::uint32_t index, std::uint32_t sequence) {
        Replica& replica = fleet_[index];
        const EngineState::Fetch bytes =
            replica.state.begin_fetch(sequence, replica.room_of(replica.state.sequence(sequence)));
        result_.fetched_host_bytes += bytes.host;
        result_.fetched_nvme_bytes += bytes.nvme;
        // From NVMe through host memory, as a stream: both links at once.
        std::uint32_t transfers = 0;
        for (const auto& [amount, link] :
             {std::pair{bytes.host + bytes.nvme, replica.from_host}, {bytes.nvme, replica.from_nvme}}) {
            if (amount > 0) {
                ++transfers;
                const std::uint64_t token = Token{Task::fetch, index, sequence}.pack();
                if (link.valid()) {
                    dispatcher_->share(link, amount, SimTime(), index + 1, token);
                } else {
                    dispatcher_->delay(SimTime(), index + 1, token);
                }
            }
        }
        if (transfers > 0) {
            fetches_[{index, sequence}] = transfers;
        }
        return transfers > 0;
    }

    void fetched(const Token& token) {
        const auto found = fetches_.find({token.index, token.flight});
        if (--found->second == 0) {
            fetches_.erase(found);
            fleet_[token.index].state.end_fetch(token.flight);
            fleet_.wake(token.index);
        }
    }

    void give_token(Sequence& sequence) {
        const SimTime now = dispatcher_->now();
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

    // Takes from the running sequences those that have given all their tokens.
    void retire(std::uint32_t index) {
        EngineState& state = fleet_[index].state;
        std::size_t kept = 0;
        for (const std::uint32_t id : state.running) {
            const Sequence& sequence = state.sequence(id);
            if (sequence.generated < sequence.output) {
                state.running[kept++] = id;
            } else if (sequence.then > 0) {
                handovers_.prompt_done(index, id);
            } else {
                record(sequence);
                state.finish(id);
            }
        }
        state.running.resize(kept);
    }

    void record(const Sequence& sequence) {
        const SimTime now = dispatcher_->now();
        last_ = now;
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

    const ServiceSpec& spec_;
    RequestSource& requests_;
    const ServiceHooks& hooks_;
    ServiceResult result_;
    Fleet fleet_{spec_, hooks_, *this, result_};
    Routes entries_{fleet_, spec_.router};   ///< replicas that take requests
    Routes decoders_{fleet_, spec_.router};  ///< replicas that take handovers
    Handovers handovers_{spec_, fleet_, decoders_, result_};
    Dispatcher* dispatcher_ = nullptr;
    Request pending_;
    std::uint64_t arrived_ = 0;
    SimTime last_;  ///< when the last request was accounted for
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> fetches_;  ///< under way, by replica and sequence
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
