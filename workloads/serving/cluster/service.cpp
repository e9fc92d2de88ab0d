#include "workloads/serving/cluster/service.hpp"

#include "sim/base/error.hpp"
#include "workloads/serving/cluster/lifecycle.hpp"
#include "workloads/serving/cluster/live_feed.hpp"
#include "workloads/serving/cluster/planner.hpp"

#include <algorithm>

namespace orrery::serving {

// The parts, each after those that it hands on to.
class ServiceRun::Service {
  public:
    Service(const ServiceSpec& spec, RequestSource& requests, const ServiceHooks& hooks)
        : spec_(spec),
          frontend_(spec, requests, hooks, result_),
          accounts_(spec, requests.clients() > 0, requests.has_conversations(), hooks, frontend_, places_, timeline_,
                    result_),
          pipelines_(spec, hooks, fleet_, transfers_, experts_ ? &*experts_ : nullptr, generation_, timeline_,
                     result_) {
        ORRERY_ASSERT(routing_.decoders.empty() || spec.fabric != nullptr);
        frontend_.when_stage([this](SimTime start) {
            result_.stages.emplace_back();
            result_.stages.back().start = start;
            count_prompts(result_.stages.back());
        });
    }

    // In the order in which they add their resources, and in which what ends together on one link is told.
    [[nodiscard]] std::vector<TaskSource*> parts() {
        std::vector<TaskSource*> out;
        if (experts_) {
            out.push_back(&*experts_);
        }
        out.insert(out.end(), {&fleet_, &pipelines_, &transfers_.kv, &transfers_.fetches, &transfers_.adapters,
                               &transfers_.restores, &starter_, &transfers_.swap_ins, &lifecycle_, &autoscaler_,
                               &timeouts_, &accounts_});
        if (spec_.planner.given) {
            out.push_back(&planner_);
        }
        if (spec_.shared.given) {
            out.push_back(&transfers_.shared);
        }
        if (frontend_.host() != nullptr) {
            out.push_back(frontend_.host());
        }
        out.push_back(&frontend_);
        out.push_back(&feed_);
        return out;
    }

    ServiceResult result() {
        if (experts_) {
            experts_->finish();
        }
        for (const EngineState* state : fleet_.engines()) {
            result_.preemptions += state->preemptions;
            result_.lone_prompts += state->lone_prompts;
            result_.prompt_tokens += state->prompt_tokens();
            result_.prefix_tokens += state->prefix_tokens();
            for (std::size_t i = 0; i < result_.brought_tokens.size(); ++i) {
                result_.brought_tokens.at(i) += state->brought_tokens().at(i);
            }
            result_.swap_reused_bytes += static_cast<double>(state->reused_blocks()) * state->limits().block_bytes;
            ORRERY_ASSERT(state->outstanding() == 0 && state->used_blocks() == 0 && state->used_host_blocks() == 0);
        }
        ORRERY_ASSERT(frontend_.all_settled());
        finish_stages();
        result_.end_s = frontend_.last().seconds();
        result_.gpu_s = autoscaler_.gpu_seconds(frontend_.last());
        result_.prefill_mean = planner_.mean_prefill(frontend_.last());
        const double to = spec_.measure.to > 0 ? std::min(spec_.measure.to, result_.end_s) : result_.end_s;
        result_.window_s = std::max(0.0, to - spec_.measure.from);
        std::stable_sort(result_.requests.begin(), result_.requests.end(),
                         [](const RequestOutcome& a, const RequestOutcome& b) { return a.arrival < b.arrival; });
        accounts_.finish();
        const double from = result_.steady ? result_.steady->warm_up_s : spec_.measure.from;
        lifecycle_.finish(SimTime::from_seconds(from), SimTime::from_seconds(from + result_.window_s));
        return std::move(result_);
    }

  private:
    void count_prompts(StageResult& stage) const {
        for (const EngineState* state : fleet_.engines()) {
            stage.prompt_tokens += state->prompt_tokens();
            stage.prefix_tokens += state->prefix_tokens();
        }
    }

    // What was counted at the starts of stages becomes what was counted within them.
    void finish_stages() {
        for (std::size_t i = 0; i < result_.stages.size(); ++i) {
            const bool last = i + 1 == result_.stages.size();
            StageResult& stage = result_.stages[i];
            stage.prompt_tokens =
                (last ? result_.prompt_tokens : result_.stages[i + 1].prompt_tokens) - stage.prompt_tokens;
            stage.prefix_tokens =
                (last ? result_.prefix_tokens : result_.stages[i + 1].prefix_tokens) - stage.prefix_tokens;
        }
    }

    const ServiceSpec& spec_;
    ServiceResult result_;
    Fleet fleet_{spec_, result_};
    Routing routing_{fleet_, spec_.router};
    RequestTimeline timeline_{spec_.timeline, result_};
    Frontend frontend_;
    RequestPlaces places_{spec_.timeout > 0 || frontend_.live() != nullptr};
    Accounts accounts_;
    Transfers transfers_{spec_, fleet_, routing_, places_, timeline_, result_};
    std::optional<ExpertLoads> experts_ =
        spec_.host != nullptr ? std::make_optional<ExpertLoads>(spec_, fleet_, result_) : std::nullopt;
    Mixing mixing_{spec_.mixing, fleet_, routing_.decoders, transfers_.kv};
    Generation generation_{spec_, fleet_, transfers_, mixing_, accounts_, timeline_, result_};
    Pipelines pipelines_;
    Starter starter_{spec_, fleet_, result_};
    Autoscaler autoscaler_{spec_, fleet_, routing_, starter_, frontend_, result_};
    Planner planner_{spec_, fleet_, routing_, frontend_, result_};
    ClientTimeouts timeouts_{spec_.timeout, fleet_, transfers_, places_, accounts_};
    Admission admission_{spec_,     fleet_,  routing_,  transfers_, mixing_, autoscaler_,
                         frontend_, places_, accounts_, timeouts_,  result_};
    Lifecycle lifecycle_{spec_, fleet_, routing_, pipelines_, transfers_, admission_, starter_, frontend_, result_};
    LiveFeed feed_{frontend_.live(), fleet_, frontend_, timeouts_};
};

ServiceRun::ServiceRun(const ServiceSpec& spec, RequestSource& requests, const ServiceHooks& hooks,
                       Simulation& simulation, SimTime start)
    : service_(std::make_unique<Service>(spec, requests, hooks)) {
    simulation.add(service_->parts(), start);
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
