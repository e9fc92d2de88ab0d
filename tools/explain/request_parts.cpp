#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/scenario.hpp"
#include "tools/explain/paths.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

namespace orrery::explain {

namespace {

enum Part : std::size_t {
    kWay,
    kQueue,
    kProducts,
    kExperts,
    kAttention,
    kSmall,
    kCollectives,
    kHost,
    kGiven,
    kStages,
    kKvTransfer,
    kWaits,
    kParts
};
constexpr std::array<const char*, kParts> kPartNames = {"way to the engine",
                                                        "queue before the first iteration",
                                                        "dense products",
                                                        "experts",
                                                        "attention",
                                                        "small kernels",
                                                        "collectives",
                                                        "host and launches",
                                                        "iterations as given",
                                                        "pipeline stages, swaps, drafts",
                                                        "KV transfer to a decode replica",
                                                        "waits between iterations"};
using Times = std::array<double, kParts>;

Part part_of(StepClass kind) {
    constexpr std::array<Part, 7> kOfClass = {kProducts, kExperts, kAttention, kSmall, kCollectives, kHost, kGiven};
    return kOfClass.at(static_cast<std::size_t>(kind));
}

void add(Times& sum, const Times& more, double factor) {
    for (std::size_t i = 0; i < kParts; ++i) {
        sum[i] += factor * more[i];
    }
}

constexpr std::size_t kDistributionSteps = 200;  // of a distribution

LatencyCurve curve_of(const char* name, std::vector<float> values, double limit) {
    LatencyCurve out{name, limit, 1, {}, {}};
    std::sort(values.begin(), values.end());
    const std::size_t count = values.size();
    // Every value of a short run, an even choice of a long one; the last is the largest.
    const std::size_t steps = std::min(count, kDistributionSteps);
    for (std::size_t step = 1; step <= steps; ++step) {
        const std::size_t rank = (step * count + steps - 1) / steps;
        ORRERY_ASSERT(rank >= 1 && rank <= count);
        out.points.emplace_back(values[rank - 1], static_cast<double>(rank) / static_cast<double>(count));
    }
    for (const double share : {0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0}) {
        if (count > 0) {
            const auto rank = static_cast<std::size_t>(share * static_cast<double>(count));
            out.quantiles.emplace_back(share, values[std::min(count - 1, rank)]);
        }
    }
    if (limit > 0 && count > 0) {
        const auto kept = std::upper_bound(values.begin(), values.end(), static_cast<float>(limit)) - values.begin();
        out.within = static_cast<double>(kept) / static_cast<double>(count);
    }
    return out;
}

// Follows every request through its iterations.
class RequestParts {
  public:
    RequestParts(const Scenario& scenario, const Summary& base)
        : way_(scenario.as<ServingKind>().engine.software.request.value),
          together_(static_cast<std::uint32_t>(scenario.as<ServingKind>().engine.stream_interval)),
          limits_{scenario.as<ServingKind>().slo.ttft, scenario.as<ServingKind>().slo.tpot, 0} {
        const EngineSpec& engine = scenario.as<ServingKind>().engine;
        const std::vector<const PhaseSpec*> pools =
            engine.split ? std::vector{&engine.prefill, &engine.decode} : std::vector{&engine.mixed};
        for (std::size_t pool = 0; pool < pools.size(); ++pool) {
            pool_of_.insert(pool_of_.end(), static_cast<std::size_t>(engine.pool_replicas(*pools[pool])), pool);
        }
        stages_.resize(pools.size());
        for (std::size_t i = 0; i < tails_.size(); ++i) {
            const Metric* metric = base.find(std::array{"ttft_s.p99", "tpot_s.p99", "e2e_s.p99"}.at(i));
            ORRERY_ASSERT(metric != nullptr);  // every serving run has it
            tails_.at(i) = static_cast<float>(metric->value);
        }
    }

    ServingObserver observer() {
        ServingObserver out;
        out.stage = [this](std::size_t pool, const ServingModel& model) { stages_[pool].push_back(make_step(model)); };
        out.hooks.ran = [this](std::uint32_t replica, const Batch& batch, const EngineState& state, SimTime planned,
                               SimTime now) { ran(pool_of_[replica], batch, state, planned, now); };
        out.hooks.served = [this](const Sequence& sequence, const RequestOutcome* outcome) {
            const auto found = live_.find(sequence.id);
            if (outcome != nullptr) {
                count(sequence, *outcome, found->second);
            }
            live_.erase(found);
        };
        return out;
    }

    void write(Explanation& out) const {
        for (std::size_t i = 0; i < kParts; ++i) {
            RequestPart row{kPartNames.at(i), {}, {}, {}};
            RequestPart::Split* splits[] = {&row.ttft, &row.tpot, &row.e2e};
            bool any = false;
            for (std::size_t k = 0; k < sums_.size(); ++k) {
                ORRERY_ASSERT(tail_counts_.at(k) <= counts_.at(k));
                splits[k]->mean = sums_.at(k)[i] / std::max(1.0, counts_.at(k));
                splits[k]->tail = tail_sums_.at(k)[i] / std::max(1.0, tail_counts_.at(k));
                any = any || splits[k]->mean > 0 || splits[k]->tail > 0;
            }
            if (any) {
                out.requests.push_back(row);
            }
        }
        constexpr std::array kLatencies = {"time to the first token", "time per output token", "end to end"};
        for (std::size_t i = 0; i < kLatencies.size(); ++i) {
            out.latencies.push_back(curve_of(kLatencies.at(i), values_.at(i), limits_.at(i)));
        }
        for (std::size_t kind = 0; kind < mixes_.size(); ++kind) {
            IterationMix mix = mixes_.at(kind);
            const Times& times = mix_times_.at(kind);
            if (mix.iterations == 0) {
                continue;
            }
            mix.kind = std::array{"prompts alone", "prompts and decodes", "decodes alone"}.at(kind);
            ORRERY_ASSERT(mix.sequences >= static_cast<double>(mix.iterations));  // none is empty
            mix.sequences /= static_cast<double>(mix.iterations);
            mix.tokens /= static_cast<double>(mix.iterations);
            for (std::size_t i = 0; i < kParts; ++i) {
                if (times[i] > 0) {
                    mix.shares.emplace_back(kPartNames.at(i), times[i] / mix.seconds);
                }
            }
            for (const auto& [name, seconds] : operations_.at(kind)) {
                mix.operations.emplace_back(name, seconds / mix.seconds);
            }
            std::stable_sort(mix.operations.begin(), mix.operations.end(),
                             [](const auto& a, const auto& b) { return a.second > b.second; });
            out.iterations.push_back(std::move(mix));
        }
    }

  private:
    struct Live {
        SimTime until;  ///< accounted for
        std::size_t pool = 0;
        bool has_run = false;
        bool has_token = false;
        Times times{};
        Times to_first{};
    };

    void ran(std::size_t pool, const Batch& batch, const EngineState& state, SimTime planned, SimTime now) {
        Times times{};
        ORRERY_ASSERT(pool < stages_.size());
        std::vector<StepProgram> programs;
        for (const std::unique_ptr<StepCost>& stage : stages_[pool]) {
            programs.push_back(stage->program(batch));
            for (const StepOperation& one : programs.back().operations()) {
                times[part_of(one.kind)] += one.times * one.work.seconds;
            }
        }
        ORRERY_ASSERT(now >= planned);
        const double seconds = (now - planned).seconds();
        double priced = 0;
        for (const double one : times) {
            priced += one;
        }
        times[kStages] = std::max(0.0, seconds - priced);
        bool prompts = false;
        bool decodes = false;
        double tokens = 0;
        for (const BatchItem& item : batch.items) {
            const Sequence& sequence = state.sequence(item.sequence);
            (sequence.decoding() ? decodes : prompts) = true;
            tokens += item.tokens;
            follow(sequence, pool, planned, now, times);
        }
        const std::size_t kind = !decodes ? 0 : prompts ? 1 : 2;
        IterationMix& mix = mixes_.at(kind);
        ++mix.iterations;
        mix.seconds += seconds;
        mix.sequences += static_cast<double>(batch.items.size());
        mix.tokens += tokens;
        add(mix_times_.at(kind), times, 1);
        for (const StepProgram& program : programs) {
            for (const StepOperation& one : program.operations()) {
                operations_.at(kind)[one.name] += one.times * one.work.seconds;
            }
        }
    }

    void follow(const Sequence& sequence, std::size_t pool, SimTime planned, SimTime now, const Times& times) {
        auto [entry, fresh] = live_.try_emplace(sequence.id);
        Live& live = entry->second;
        if (fresh) {
            live.until = sequence.arrival;
            live.pool = pool;
        }
        // The first tokens reached the client at the end of the iteration before.
        if (!live.has_token && sequence.generated >= together_ && !sequence.held) {
            live.has_token = true;
            live.to_first = live.times;
        }
        double gap = (planned - live.until).seconds();
        if (!live.has_run) {
            const double way = std::min(gap, way_);
            live.times[kWay] += way;
            live.times[kQueue] += gap - way;
        } else {
            live.times[live.pool != pool ? kKvTransfer : kWaits] += gap;
        }
        live.has_run = true;
        live.pool = pool;
        live.until = now;
        add(live.times, times, 1);
    }

    void count(const Sequence& sequence, const RequestOutcome& outcome, Live& live) {
        if (!live.has_token) {
            live.to_first = live.times;
        }
        Times later = live.times;
        add(later, live.to_first, -1);
        const double tokens = sequence.generated > 1 ? sequence.generated - 1 : 0;
        const std::array<const Times*, 3> times = {&live.to_first, &later, &live.times};
        const std::array<float, 3> values = {outcome.ttft, outcome.tpot, outcome.e2e};
        for (std::size_t i = 0; i < times.size(); ++i) {
            if (i == 1 && outcome.tpot <= 0) {
                continue;  // as the summary leaves them out
            }
            ORRERY_ASSERT(i != 1 || tokens > 0);  // one that has a time per output token
            const double factor = i == 1 ? 1 / tokens : 1;
            add(sums_.at(i), *times.at(i), factor);
            counts_.at(i) += 1;
            values_.at(i).push_back(values.at(i));
            if (values.at(i) >= tails_.at(i)) {
                add(tail_sums_.at(i), *times.at(i), factor);
                tail_counts_.at(i) += 1;
            }
        }
    }

    double way_;
    std::uint32_t together_;  ///< tokens that reach a client as its first
    std::array<double, 3> limits_;
    std::vector<std::size_t> pool_of_;                            ///< by replica
    std::vector<std::vector<std::unique_ptr<StepCost>>> stages_;  ///< by pool
    std::unordered_map<std::uint64_t, Live> live_;                ///< by request; only looked up
    std::array<float, 3> tails_{};                                ///< 99th percentiles: ttft, tpot, e2e
    std::array<Times, 3> sums_{}, tail_sums_{};
    std::array<double, 3> counts_{}, tail_counts_{};
    std::array<std::vector<float>, 3> values_;
    std::array<IterationMix, 3> mixes_;
    std::array<Times, 3> mix_times_{};
    std::array<std::map<std::string, double>, 3> operations_;  ///< s by kind of iteration and operation
};

}  // namespace

void explain_requests(const Scenario& scenario, ModelCache& models, const Summary& base, Explanation& out) {
    RequestParts parts(scenario, base);
    const ServingObserver observer = parts.observer();
    RunOptions options;
    options.serving = &observer;
    (void)run_scenario(scenario, models, options);
    parts.write(out);
}

}  // namespace orrery::explain
