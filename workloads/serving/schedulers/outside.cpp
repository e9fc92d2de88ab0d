#include "sim/base/error.hpp"
#include "workloads/outside/connection.hpp"
#include "workloads/outside/policies.hpp"
#include "workloads/outside/session.hpp"
#include "workloads/serving/schedulers/policies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace orrery::serving {

namespace {

constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

/// The state as include/orrery/policy.hpp shows it.
class View final : public policy::Engine {
  public:
    View(const EngineState& state, std::uint32_t number, SimTime now) : state_(state), number_(number), now_(now) {}
    [[nodiscard]] std::uint32_t number() const override { return number_; }
    [[nodiscard]] double now() const override { return now_.seconds(); }
    [[nodiscard]] std::uint32_t token_budget() const override { return state_.limits().token_budget; }
    [[nodiscard]] std::uint32_t block_tokens() const override { return state_.limits().block; }
    [[nodiscard]] std::uint64_t blocks() const override { return state_.limits().blocks; }
    [[nodiscard]] std::uint64_t free_blocks() const override { return state_.free_blocks(); }
    [[nodiscard]] std::size_t places() const override { return state_.places(); }
    [[nodiscard]] std::size_t waiting() const override { return state_.waiting.size(); }
    [[nodiscard]] policy::Sequence waiting(std::size_t i) const override { return shown(state_.waiting[i]); }
    [[nodiscard]] std::size_t running() const override { return state_.running.size(); }
    [[nodiscard]] policy::Sequence running(std::size_t i) const override { return shown(state_.running[i]); }

  private:
    [[nodiscard]] policy::Sequence shown(std::uint32_t index) const {
        const Sequence& one = state_.sequence(index);
        return {one.id,
                one.arrival.seconds(),
                one.session,
                one.prompt,
                one.output,
                one.generated,
                one.cached,
                one.blocks,
                one.decoding() ? 1 : one.left_to_prefill()};
    }

    const EngineState& state_;
    std::uint32_t number_;
    SimTime now_;
};

class Collector final : public policy::Plan {
  public:
    explicit Collector(outside::Orders& orders) : orders_(orders) {}
    void run(std::uint64_t request, std::uint32_t tokens, policy::WhenFull when_full) override {
        orders_.push_back({request, tokens, when_full, false});
    }
    void preempt(std::uint64_t request) override { orders_.push_back({request, 0, {}, true}); }

  private:
    outside::Orders& orders_;
};

/// A policy of the user's own: it sees the state and gives orders (include/orrery/policy.hpp), which are carried out here. Blocks are
/// taken as ChunkedPrefill takes them.
class Outside final : public Scheduler {
  public:
    using Parameters = outside::PolicySource;
    explicit Outside(const Parameters& own) : source_(own) {}
    [[nodiscard]] SchedulerNeeds needs() const override { return {.outside = true}; }
    void attach(const SchedulerPlace& place) override {
        policy_ = place.policies.scheduler(source_);
        number_ = place.replica;
        now_ = place.now;
    }
    void plan(EngineState& state, Batch& batch) override;
    void ended(const EngineState& state) const override {
        if (state.outstanding() > 0) {
            const std::uint32_t index = state.waiting.empty() ? state.running.front() : state.waiting.front();
            fail(state.sequence(index).id, fmt::format("is never finished: no order was given for it at the end, and "
                                                       "{} requests are left",
                                                       state.outstanding()));
        }
    }

  private:
    void ask(const EngineState& state);
    [[noreturn]] void fail(std::uint64_t request, const std::string& problem) const {
        outside::policy_failed(
            source_.from, fmt::format("request {} {} (replica {}, {} s)", request, problem, number_, now_().seconds()));
    }
    [[nodiscard]] std::size_t place_of(const EngineState& state, std::uint64_t request);
    void preempt(EngineState& state, std::size_t place);
    [[nodiscard]] bool run_on(EngineState& state, std::size_t place, const outside::Order& order, Batch& batch);
    [[nodiscard]] bool admit(EngineState& state, std::size_t place, const outside::Order& order, Batch& batch);
    [[nodiscard]] bool schedule(EngineState& state, std::uint32_t index, std::uint32_t tokens, Batch& batch);
    void mark(std::uint32_t index) {
        planned_.resize(std::max<std::size_t>(planned_.size(), index + 1));
        planned_[index] = plans_;
    }
    [[nodiscard]] bool is_marked(std::uint32_t index) const {
        return index < planned_.size() && planned_[index] == plans_;
    }

    outside::PolicySource source_;
    std::unique_ptr<policy::Scheduler> policy_;
    std::uint32_t number_ = 0;
    std::function<SimTime()> now_;
    outside::Orders orders_;
    std::vector<std::uint64_t> planned_;  ///< by sequence: the plan that has last had it in its batch, or preempted it
    std::uint64_t plans_ = 0;
    std::uint32_t budget_ = 0;
    bool preempted_ = false;
    std::size_t next_place_ = 0;  ///< of the running sequence that the next order is likely to name
};

}  // namespace

void Outside::ask(const EngineState& state) {
    orders_.clear();
    Collector collector(orders_);
    {
        const outside::Decision counted;
        policy_->plan(View(state, number_, now_()), collector);
    }
    if (outside::session().records) {
        outside::session().record += outside::recorded_plan(number_, now_().seconds(), orders_);
    }
}

std::size_t Outside::place_of(const EngineState& state, std::uint64_t request) {
    const std::size_t count = state.running.size();
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t place = (next_place_ + i) % count;
        if (state.sequence(state.running[place]).id == request) {
            next_place_ = place + 1;
            return place;
        }
    }
    return kNowhere;
}

void Outside::preempt(EngineState& state, std::size_t place) {
    mark(state.running[place]);
    state.recompute_later(place);
    preempted_ = true;
    next_place_ = 0;
}

bool Outside::schedule(EngineState& state, std::uint32_t index, std::uint32_t tokens, Batch& batch) {
    if (!schedule_and_name(state, index, tokens, batch)) {
        return false;
    }
    mark(index);
    return true;
}

// False: the batch ends here.
bool Outside::run_on(EngineState& state, std::size_t place, const outside::Order& order, Batch& batch) {
    const std::uint32_t index = state.running[place];
    if (is_marked(index)) {
        fail(order.request, "is twice in one batch");
    }
    const Sequence& sequence = state.sequence(index);
    const std::uint32_t all = sequence.decoding() ? 1 : sequence.left_to_prefill();
    const std::uint32_t tokens = std::min({order.tokens > 0 ? order.tokens : all, all, budget_});
    const std::uint32_t used = state.budget_for(index, tokens);
    while (!schedule(state, index, tokens, batch)) {
        if (order.when_full != policy::WhenFull::preempt) {
            return order.when_full == policy::WhenFull::skip;
        }
        std::size_t last = state.running.size();
        while (last > 0 && is_marked(state.running[last - 1])) {
            --last;
        }
        const bool itself = state.running[last - 1] == index;
        // Who came after it may be under way: it keeps what it has, and they give way when they are back.
        if (itself && state.in_flight() > 0) {
            return false;
        }
        preempt(state, last - 1);
        if (itself) {
            return true;
        }
    }
    budget_ -= std::min(budget_, used);
    return true;
}

bool Outside::admit(EngineState& state, std::size_t place, const outside::Order& order, Batch& batch) {
    if (order.when_full == policy::WhenFull::preempt) {
        fail(order.request, "waits, and only a request that runs can preempt others");
    }
    if (preempted_ || !state.has_place()) {
        return false;
    }
    const std::uint32_t index = state.waiting[place];
    const std::uint32_t all = state.claim_prefix(index);
    const std::uint32_t tokens = std::min({order.tokens > 0 ? order.tokens : all, all, budget_});
    if (!schedule(state, index, tokens, batch)) {
        return order.when_full == policy::WhenFull::skip;
    }
    state.waiting.erase(state.waiting.begin() + static_cast<std::ptrdiff_t>(place));
    state.waiting.push_front(index);
    state.admit_front();
    budget_ -= tokens;
    return true;
}

void Outside::plan(EngineState& state, Batch& batch) {
    ORRERY_ASSERT(policy_ != nullptr);
    if (state.waiting.empty() && state.running.empty()) {
        return;
    }
    ask(state);
    ++plans_;
    budget_ = state.limits().token_budget;
    preempted_ = false;
    next_place_ = 0;
    for (const outside::Order& order : orders_) {
        const std::size_t place = place_of(state, order.request);
        if (order.preempts) {
            if (place == kNowhere || is_marked(state.running[place])) {
                fail(order.request, place == kNowhere ? "cannot be preempted: it does not run"
                                                      : "cannot be preempted: it is in the batch");
            }
            preempt(state, place);
            continue;
        }
        if (budget_ == 0) {
            break;
        }
        if (place != kNowhere) {
            if (!run_on(state, place, order, batch)) {
                break;
            }
            continue;
        }
        const auto found = std::find_if(state.waiting.begin(), state.waiting.end(),
                                        [&](std::uint32_t index) { return state.sequence(index).id == order.request; });
        if (found == state.waiting.end()) {
            fail(order.request, "cannot run: it neither waits nor runs here");
        }
        if (is_marked(*found)) {
            continue;  // an order before this one has preempted it
        }
        if (!admit(state, static_cast<std::size_t>(found - state.waiting.begin()), order, batch)) {
            break;
        }
    }
}

extern const PolicyRow<Scheduler> kOutsideScheduler = policy_row<Scheduler, Outside>(
    "outside", "a policy of your own: C++, Python, a process at a socket, or a recording");

}  // namespace orrery::serving
