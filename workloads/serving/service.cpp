#include "workloads/serving/service.hpp"

#include "sim/base/error.hpp"
#include "sim/base/math.hpp"
#include "sim/base/random.hpp"
#include "sim/engine/fluid.hpp"

#include <algorithm>
#include <cmath>

namespace orrery {

namespace {

constexpr std::uint64_t kArrival = ~0ULL;
constexpr double kLeast = 1e-6;
constexpr double kRatio = 1.01;

class Service final : public TaskSource {
  public:
    Service(const ServiceSpec& spec, RequestSource& requests, StepCost& cost, const ServiceHooks& hooks)
        : spec_(spec), requests_(requests), cost_(cost), hooks_(hooks) {
        for (std::uint32_t i = 0; i < spec.replicas; ++i) {
            replicas_.push_back(std::make_unique<Replica>(spec.limits));
            replicas_.back()->scheduler = make_scheduler(spec.scheduler);
        }
    }

    void begin(Dispatcher& dispatcher) override { await_next(dispatcher); }

    void on_done(std::uint64_t token, Dispatcher& dispatcher) override {
        if (token == kArrival) {
            arrive(dispatcher);
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
        std::sort(result_.requests.begin(), result_.requests.end(),
                  [](const RequestOutcome& a, const RequestOutcome& b) { return a.arrival < b.arrival; });
        return std::move(result_);
    }

  private:
    struct Replica {
        explicit Replica(const EngineLimits& limits) : state(limits) {}
        EngineState state;
        std::unique_ptr<Scheduler> scheduler;
        Batch batch;
        bool busy = false;
        SimTime started;
    };

    // Reads the next request and waits for its time: the source is never held in memory.
    void await_next(Dispatcher& dispatcher) {
        if (requests_.next(pending_)) {
            dispatcher.delay(std::max(SimTime(), pending_.arrival - dispatcher.now()), 0, kArrival);
        }
    }

    void arrive(Dispatcher& dispatcher) {
        const std::uint32_t chosen = route();
        Replica& replica = *replicas_[chosen];
        if (replica.state.accepts(pending_)) {
            replica.state.add(pending_, arrived_);
            start_iteration(chosen, dispatcher);
        } else {
            ++result_.refused;
        }
        ++arrived_;
        if (hooks_.progress && arrived_ % 65536 == 0) {
            hooks_.progress(0);
        }
        await_next(dispatcher);
    }

    std::uint32_t route() {
        const auto count = static_cast<std::uint32_t>(replicas_.size());
        const auto least = [&](auto measure) {
            std::uint32_t best = 0;
            for (std::uint32_t i = 1; i < count; ++i) {
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
                return least([](const Replica& r) { return r.state.outstanding(); });
            case Router::least_cache:
                return least([](const Replica& r) { return r.state.used_blocks(); });
            case Router::session:
                return static_cast<std::uint32_t>(mix64(pending_.session) % count);
        }
        return static_cast<std::uint32_t>(turn_++ % count);
    }

    void start_iteration(std::uint32_t index, Dispatcher& dispatcher) {
        Replica& replica = *replicas_[index];
        if (replica.busy || replica.state.outstanding() == 0) {
            return;
        }
        replica.batch.clear();
        replica.scheduler->plan(replica.state, replica.batch);
        if (replica.batch.empty()) {
            throw InternalError("a scheduler runs nothing although " + std::to_string(replica.state.outstanding()) +
                                " sequences wait");
        }
        if (hooks_.iteration) {
            hooks_.iteration(index, replica.batch, replica.state);
        }
        const double seconds = cost_.seconds(replica.batch, replica.state);
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
        retire(state, now);
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

    void retire(EngineState& state, SimTime now) {
        std::size_t kept = 0;
        for (std::size_t place = 0; place < state.running.size(); ++place) {
            const Sequence& sequence = state.sequence(state.running[place]);
            if (sequence.generated < sequence.output) {
                state.running[kept++] = state.running[place];
                continue;
            }
            RequestOutcome outcome;
            outcome.arrival = sequence.arrival;
            const double ttft = (sequence.first_token - sequence.arrival).seconds();
            const double tpot = sequence.output > 1
                                    ? (now - sequence.first_token).seconds() / static_cast<double>(sequence.output - 1)
                                    : 0;
            outcome.ttft = static_cast<float>(ttft);
            outcome.tpot = static_cast<float>(tpot);
            outcome.e2e = static_cast<float>((now - sequence.arrival).seconds());
            outcome.in_time = !sequence.late && (spec_.ttft_limit <= 0 || ttft <= spec_.ttft_limit) &&
                              (spec_.tpot_limit <= 0 || tpot <= spec_.tpot_limit);
            result_.requests.push_back(outcome);
            state.finish(state.running[place]);
        }
        state.running.resize(kept);
    }

    const ServiceSpec& spec_;
    RequestSource& requests_;
    StepCost& cost_;
    const ServiceHooks& hooks_;
    std::vector<std::unique_ptr<Replica>> replicas_;
    Request pending_;
    std::uint64_t arrived_ = 0;
    std::uint64_t turn_ = 0;
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

ServiceResult serve(const ServiceSpec& spec, RequestSource& requests, StepCost& cost, const ServiceHooks& hooks) {
    Engine engine;
    FluidSharing sharing(engine);
    Service service(spec, requests, cost, hooks);
    Dispatcher dispatcher(engine, sharing, service);
    const SimTime end = dispatcher.run();
    ServiceResult result = service.finish(end.seconds());
    result.events = engine.events();
    return result;
}

}  // namespace orrery
