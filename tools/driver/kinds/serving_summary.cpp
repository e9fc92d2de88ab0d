#include "tools/driver/kinds/serving_summary.hpp"

#include "sim/device/power.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "workloads/serving/engine_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::driver {

namespace {

void add_quantiles(Summary& summary, const std::string& name, std::vector<float> values) {
    std::sort(values.begin(), values.end());
    const auto quantile = [&](double q) {
        return values.empty() ? kNotMeasured
                              : values[std::min(values.size() - 1,
                                                static_cast<std::size_t>(q * static_cast<double>(values.size())))];
    };
    double sum = 0;
    for (const float value : values) {
        sum += value;
    }
    summary.add(name + ".mean", values.empty() ? kNotMeasured : sum / static_cast<double>(values.size()), "s");
    summary.add(name + ".p50", quantile(0.5), "s");
    summary.add(name + ".p90", quantile(0.9), "s");
    summary.add(name + ".p99", quantile(0.99), "s");
    summary.add(name + ".max", values.empty() ? kNotMeasured : values.back(), "s");
}

// Energy of all pools over the measured window in J; nothing where that is not known.
std::optional<Bounded> energy_of_pools(const std::vector<PoolDevices>& pools, const EngineSpec& engine,
                                       const ServiceResult& result, double seconds) {
    Bounded joules;
    for (std::size_t i = 0; i < pools.size(); ++i) {
        ORRERY_ASSERT(i < result.pools.size());
        const auto& [gpu, given, clock] = pools[i];
        double count = given;
        if (engine.planner.given) {
            const auto places = static_cast<double>(engine.pool_replicas(engine.prefill));
            count = static_cast<double>(engine.prefill.ranks()) *
                    (i == 0 ? result.prefill_mean : places - result.prefill_mean);
        }
        if (!knows_power(*gpu)) {
            return std::nullopt;
        }
        const PoolWork& work = result.pools[i];
        const Bounded own = energy_of(*gpu, DeviceWork{count * seconds, work.kernel_s, work.flops, work.bytes}, clock);
        // On the same devices idle power is counted with the first phase; the second adds what it does on them.
        const double counted = engine.same_devices && i > 0 ? energy_of(*gpu, DeviceWork{count * seconds, 0, 0, 0}) : 0;
        ORRERY_ASSERT(own.low <= own.value && own.value <= own.high);
        joules.low += own.low - counted;
        joules.value += own.value - counted;
        joules.high += own.high - counted;
    }
    return joules;
}

// Of each stage of the load, as a load generator counts: latencies of what was answered, rates from the first request sent to the last
// accounted for.
void add_stages(const ServiceResult& result, bool prefixes, Summary& summary) {
    auto request = result.requests.begin();
    for (std::size_t i = 0; i < result.stages.size(); ++i) {
        const StageResult& stage = result.stages[i];
        const std::string name = fmt::format("stage{}.", i + 1);
        std::vector<float> ttft;
        std::vector<float> tpot;
        std::vector<float> e2e;
        for (; request != result.requests.end() &&
               (i + 1 == result.stages.size() || request->arrival < result.stages[i + 1].start);
             ++request) {
            ttft.push_back(request->ttft);
            e2e.push_back(request->e2e);
            if (request->tpot > 0) {
                tpot.push_back(request->tpot);
            }
        }
        const double span = (stage.last - stage.first).seconds();
        const auto per_second = [&](std::uint64_t count) {
            return span > 0 ? static_cast<double>(count) / span : kNotMeasured;
        };
        summary.add(name + "requests", static_cast<double>(stage.answered), "requests");
        summary.add(name + "requests_failed", static_cast<double>(stage.requests - stage.answered), "requests");
        summary.add(name + "requests_per_s", per_second(stage.answered), "1/s");
        summary.add(name + "output_tokens_per_s", per_second(stage.output_tokens), "1/s");
        add_quantiles(summary, name + "ttft_s", std::move(ttft));
        add_quantiles(summary, name + "tpot_s", std::move(tpot));
        add_quantiles(summary, name + "e2e_s", std::move(e2e));
        if (prefixes) {
            const auto prompts = static_cast<double>(stage.prompt_tokens);
            summary.add(name + "prefix_hit_fraction",
                        prompts > 0 ? static_cast<double>(stage.prefix_tokens) / prompts : kNotMeasured, "1");
        }
    }
}

class Writer {
  public:
    Writer(const ServingTotals& totals, const ServiceResult& result, Summary& summary)
        : totals_(totals),
          scenario_(totals.scenario),
          engine_(totals.scenario.as<ServingKind>().engine),
          service_(totals.service),
          in_time_(add_latencies(result, summary)) {
        add_rates(result, summary);
        add_costs(result, summary);
        add_pools(result, summary);
        add_options(result, summary);
        add_sessions(result, summary);
        add_stages(result, engine_.prefix_cache, summary);
    }

  private:
    // Returns how many requests kept their limits.
    std::size_t add_latencies(const ServiceResult& result, Summary& summary) const {
        std::vector<float> ttft;
        std::vector<float> tpot;
        std::vector<float> e2e;
        std::size_t in_time = 0;
        for (const RequestOutcome& request : result.requests) {
            ttft.push_back(request.ttft);
            e2e.push_back(request.e2e);
            if (request.tpot > 0) {
                tpot.push_back(request.tpot);
            }
            in_time += request.in_time ? 1 : 0;
        }
        add_quantiles(summary, "ttft_s", std::move(ttft));
        add_quantiles(summary, "tpot_s", std::move(tpot));
        const bool gaps = result.tbt.count() > 0;
        summary.add("tbt_s.mean", gaps ? result.tbt.mean() : kNotMeasured, "s");
        for (const auto& [name, q] : {std::pair{"tbt_s.p50", 0.5}, {"tbt_s.p90", 0.9}, {"tbt_s.p99", 0.99}}) {
            summary.add(name, gaps ? result.tbt.quantile(q) : kNotMeasured, "s");
        }
        summary.add("tbt_s.max", gaps ? result.tbt.max() : kNotMeasured, "s");
        add_quantiles(summary, "e2e_s", std::move(e2e));
        ORRERY_ASSERT(in_time <= result.requests.size());
        return in_time;
    }

    // GPUs that ran, on average, of those that are there.
    [[nodiscard]] double running(const ServiceResult& result) const {
        return totals_.scales ? result.gpu_s / result.end_s / totals_.pool_gpus : 1;
    }

    void add_rates(const ServiceResult& result, Summary& summary) const {
        // A window past the end of the run has no rates, and one that no request came or ended in has none to speak of.
        const bool any =
            result.window_s > 0 && (result.finished > 0 || !result.requests.empty() || result.unserved > 0);
        const auto per_second = [&](auto count) {
            return any ? static_cast<double>(count) / std::max(result.window_s, 1e-12) : kNotMeasured;
        };
        summary.add("requests", static_cast<double>(result.requests.size()), "requests");
        summary.add("requests_refused", static_cast<double>(result.refused), "requests");
        if (scenario_.as<ServingKind>().requests.timeout > 0) {
            summary.add("requests_timed_out", static_cast<double>(result.timed_out), "requests");
        }
        add_faults(result, summary);
        if (result.requests.size() > 1) {
            const double span = (result.requests.back().arrival - result.requests.front().arrival).seconds();
            summary.add("offered_rps", span > 0 ? static_cast<double>(result.requests.size() - 1) / span : 0, "1/s");
        }
        summary.add("requests_per_s", per_second(result.finished), "1/s");
        summary.add("output_tokens_per_s", per_second(result.output_tokens), "1/s");
        if (scenario_.as<ServingKind>().slo.ttft > 0 || scenario_.as<ServingKind>().slo.tpot > 0 ||
            scenario_.as<ServingKind>().slo.tbt > 0) {
            const auto asked = static_cast<double>(result.requests.size() + result.unserved);
            summary.add("slo_attainment", asked > 0 ? static_cast<double>(in_time_) / asked : kNotMeasured, "1");
            summary.add("goodput_rps", per_second(in_time_), "1/s");
        }
        summary.add("iterations", static_cast<double>(result.iterations), "iterations");
        summary.add("preemptions", static_cast<double>(result.preemptions), "preemptions");
    }

    void add_faults(const ServiceResult& result, Summary& summary) const {
        const ServiceFaults& faults = engine_.faults;
        if (faults.given) {
            double replicas = 0;
            for (const PoolSpec& pool : service_.pools) {
                replicas += pool.replicas;
            }
            const auto share = [&](double lost_s, double of) {
                return result.window_s > 0 ? 1 - lost_s / (of * result.window_s) : kNotMeasured;
            };
            summary.add("requests_failed", static_cast<double>(result.failed), "requests");
            if (faults.retry_budget) {
                summary.add("requests_over_budget", static_cast<double>(result.over_budget), "requests");
            }
            summary.add("requests_retried", static_cast<double>(result.retried), "requests");
            summary.add("failures", static_cast<double>(result.failures), "replicas");
            if (result.wrong > 0 || faults.recovery.corruption_s) {
                summary.add("requests_wrong", static_cast<double>(result.wrong), "requests");
            }
            summary.add("replica_availability", share(result.down_s, replicas), "1");
            summary.add("service_availability", share(result.outage_s, 1), "1");
            summary.add(
                "mean_time_to_recover_s",
                result.recoveries > 0 ? result.recovery_s / static_cast<double>(result.recoveries) : kNotMeasured, "s");
            summary.add("lost_tokens", static_cast<double>(result.lost_tokens), "tokens");
            if (faults.restores) {
                summary.add("restored_tokens", static_cast<double>(result.restored_tokens), "tokens");
            }
        }
        if (result.cold_starts > 0) {
            const auto starts = static_cast<double>(result.cold_starts);
            double all = 0;
            for (const double part : result.start_s) {
                all += part;
            }
            summary.add("replica_start_s.mean", all / starts, "s");
            for (std::size_t i = 0; i < kStartParts; ++i) {
                if (result.start_s.at(i) > 0) {
                    summary.add("replica_start_s." + start_part_names()[i], result.start_s.at(i) / starts, "s");
                }
            }
        }
    }

    // Each pool is paid for by prompts and by decoding in proportion to the time of its batches; idle time goes with them.
    void add_costs_by_phase(double usd_per_output, Summary& summary) const {
        double all = 0;
        double prompts = 0;
        for (std::size_t i = 0; i < totals_.phases.size(); ++i) {
            const PhaseTime& phase = totals_.phases[i];
            const PoolDevices& pool = totals_.devices[i];
            const double paid = pool.gpu->price.value * (engine_.same_devices ? phase.batch_s : pool.count);
            all += paid;
            prompts += phase.batch_s > 0 ? paid * phase.prompt_s / phase.batch_s : 0;
        }
        if (totals_.prompt_tokens == 0 || totals_.answer_tokens == 0 || !(all > 0)) {
            return;
        }
        const double share = std::min(1.0, prompts / all);
        const double inputs = static_cast<double>(totals_.prompt_tokens) / static_cast<double>(totals_.answer_tokens);
        summary.add("cost_per_million_input_tokens_usd", usd_per_output * share / inputs, "USD");
        summary.add("cost_per_million_output_tokens_usd", usd_per_output * (1 - share), "USD");
        summary.add("cost_per_million_blended_tokens_usd", usd_per_output / (1 + inputs), "USD");
    }

    void add_costs(const ServiceResult& result, Summary& summary) const {
        if (totals_.priced && result.output_tokens > 0) {
            const double usd = totals_.price / 3600 * running(result) * std::max(result.window_s, 1e-12);
            const double usd_per_output = usd / static_cast<double>(result.output_tokens) * 1e6;
            summary.add("cost_per_million_tokens_usd", usd_per_output, "USD");
            add_costs_by_phase(usd_per_output, summary);
        }
        const double seconds = running(result) * result.window_s;
        // A given step cost does not say how busy the devices are.
        const std::optional<Bounded> joules =
            engine_.has_step_cost ? std::nullopt : energy_of_pools(totals_.devices, engine_, result, seconds);
        if (joules && result.output_tokens > 0) {
            constexpr double kJoulesPerKilowattHour = 3.6e6;
            const auto add = [&](const char* name, const char* unit, double scale) {
                summary.add(name, joules->value * scale, unit);
                if (totals_.scaled_clock) {
                    summary.metrics.back().low = joules->low * scale;
                    summary.metrics.back().high = joules->high * scale;
                }
            };
            const double per_token = 1 / static_cast<double>(result.output_tokens);
            add("energy_j", "J", 1);
            add("energy_per_token_j", "J", per_token);
            add("energy_per_million_tokens_kwh", "kWh", per_token * 1e6 / kJoulesPerKilowattHour);
            summary.add("power_w", joules->value / std::max(result.window_s, 1e-12), "W");
            summary.add("tokens_per_j", static_cast<double>(result.output_tokens) / joules->value, "1/J");
            if (totals_.scaled_clock) {
                summary.notes.emplace_back(
                    "the energy at another clock lies between its bounds: voltage and the memory's share of power are "
                    "not "
                    "known");
            }
        }
    }

    void add_pools(const ServiceResult& result, Summary& summary) const {
        std::uint64_t blocks = 0;
        double replicas = 0;
        for (const PoolSpec& pool : service_.pools) {
            blocks = std::max(blocks, pool.limits.blocks);
            replicas += static_cast<double>(pool.replicas) / (engine_.planner.given ? 2 : 1);
            const bool one = pool.replicas == 1;
            const char* role = pool.role == Role::mixed ? "mixed" : pool.role == Role::prefill ? "prefill" : "decode";
            summary.notes.push_back(fmt::format("{} {} replica{} {} cache blocks of {} tokens{}", pool.replicas, role,
                                                one ? " has" : "s have", pool.limits.blocks, pool.limits.block,
                                                one ? "" : " each"));
        }
        add_engine_caches(summary);
        ORRERY_ASSERT(blocks > 0);
        summary.add("cache_peak_fraction", static_cast<double>(result.most_blocks) / static_cast<double>(blocks), "1");
        // An iteration may go on when the last request has been accounted for: the time ends there.
        summary.add("busy_fraction", std::min(1.0, result.busy_s / std::max(result.end_s * replicas, 1e-12)), "1");
    }

    // What engines print of their caches, which size them themselves.
    void add_engine_caches(Summary& summary) const {
        const auto phases = engine_.phases();
        ORRERY_ASSERT(phases.size() == service_.pools.size());
        for (std::size_t i = 0; engine_.sized_by_engine() && i < phases.size(); ++i) {
            const auto& [role, phase] = phases[i];
            const EngineCache cache =
                engine_cache(engine_, *phase, scenario_.as<ServingKind>().model, *service_.pools[i].device);
            const std::string of = role == Role::mixed ? "" : role == Role::prefill ? ".prefill" : ".decode";
            summary.notes.push_back(log_line(engine_, cache) + (of.empty() ? "" : fmt::format(" ({})", of.substr(1))));
            summary.add("kv_cache_tokens" + of, cache.tokens, "tokens");
            summary.add("kv_cache_blocks" + of, cache.blocks, "blocks");
            summary.add("kv_max_concurrency" + of, cache.concurrency, "requests");
        }
    }

    // Where the cached part of prompts was, and what a store took.
    void add_tiers(const ServiceResult& result, Summary& summary) const {
        const SharedCacheSpec& shared = service_.shared;
        if (engine_.prefix_host <= 0 && engine_.prefix_nvme <= 0 && !shared.given) {
            return;
        }
        const auto& [host, nvme, outside] = result.brought_tokens;
        // Of all tokens of prompts.
        const auto share = [&](bool exists, const char* tier, double tokens) {
            const auto prompts = static_cast<double>(result.prompt_tokens);
            if (exists) {
                summary.add(fmt::format("prefix_hits.{}", tier), prompts > 0 ? tokens / prompts : 0, "1");
            }
        };
        ORRERY_ASSERT(host + nvme + outside <= result.prefix_tokens);
        share(true, "device", static_cast<double>(result.prefix_tokens - host - nvme - outside));
        share(engine_.prefix_host > 0, "host", static_cast<double>(host));
        share(engine_.prefix_nvme > 0, "nvme", static_cast<double>(nvme));
        // Bytes and tokens are in one ratio.
        const double bytes = result.fetched_store_bytes + result.fetched_peer_bytes;
        const double from_store = bytes > 0 ? result.fetched_store_bytes / bytes : 0;
        if (shared.capacity > 0) {
            share(true, "store", from_store * static_cast<double>(outside));
            summary.add("prefix_from_store_bytes", result.fetched_store_bytes, "B");
            summary.add("store_written_bytes", result.store_written_bytes, "B");
            summary.add("store_dropped_bytes", result.store_dropped_bytes, "B");
        }
        if (shared.peers) {
            share(true, "peers", (1 - from_store) * static_cast<double>(outside));
            summary.add("prefix_from_peers_bytes", result.fetched_peer_bytes, "B");
        }
    }

    // Conversations that began in the measured time, from their first request to their last answer.
    void add_sessions(const ServiceResult& result, Summary& summary) const {
        if (result.sessions.empty()) {
            if (service_.slo.session > 0) {
                summary.notes.emplace_back(
                    "'slo.session' has no effect: it needs whole conversations, as in a trace whose requests wait for "
                    "answers, or in a load with a 'count'");
            }
            return;
        }
        std::vector<float> times;
        double requests = 0;
        double in_time = 0;
        double measured = 0;
        for (const SessionOutcome& session : result.sessions) {
            const double from = session.first.seconds();
            if (from < service_.measure.from || (service_.measure.to > 0 && from >= service_.measure.to)) {
                continue;
            }
            const double seconds = (session.last - session.first).seconds();
            ++measured;
            requests += session.requests;
            if (session.unserved == 0) {
                times.push_back(static_cast<float>(seconds));
                in_time += seconds <= service_.slo.session ? 1 : 0;
            }
        }
        const auto mean = [&](double sum) { return measured > 0 ? sum / measured : kNotMeasured; };
        summary.add("sessions", static_cast<double>(times.size()), "sessions");
        summary.add("sessions_failed", measured - static_cast<double>(times.size()), "sessions");
        summary.add("session_requests.mean", mean(requests), "requests");
        add_quantiles(summary, "session_s", std::move(times));
        if (service_.slo.session > 0) {
            summary.add("session_attainment", mean(in_time), "1");
        }
    }

    // What only some engines have.
    void add_options(const ServiceResult& result, Summary& summary) const {
        if (totals_.scales) {
            summary.add("gpus.mean", result.end_s > 0 ? result.gpu_s / result.end_s : 0, "GPUs");
            summary.add("replica_starts", static_cast<double>(result.starts), "replicas");
        }
        if (engine_.planner.given) {
            summary.add("role_moves", static_cast<double>(result.role_moves), "moves");
            summary.add("prefill_replicas.mean", result.prefill_mean, "replicas");
        }
        if (engine_.speculates) {
            summary.add("tokens_per_step",
                        result.decode_steps > 0
                            ? 1 + static_cast<double>(result.accepted) / static_cast<double>(result.decode_steps)
                            : 1,
                        "1");
        }
        if (engine_.prefix_cache) {
            ORRERY_ASSERT(result.prefix_tokens <= result.prompt_tokens);
            const auto prompts = static_cast<double>(result.prompt_tokens);
            summary.add("prefix_hit_fraction", prompts > 0 ? static_cast<double>(result.prefix_tokens) / prompts : 0,
                        "1");
            summary.add("prefix_from_host_bytes", result.fetched_host_bytes, "B");
            summary.add("prefix_from_nvme_bytes", result.fetched_nvme_bytes, "B");
            add_tiers(result, summary);
        }
        if (engine_.names()) {
            ORRERY_ASSERT(result.adapter_hits <= result.adapter_requests);
            const double named = std::max(1.0, static_cast<double>(result.adapter_requests));
            summary.add("adapter_hit_fraction", static_cast<double>(result.adapter_hits) / named, "1");
            summary.add("adapter_misses", static_cast<double>(result.adapter_requests - result.adapter_hits),
                        "requests");
            summary.add("adapter_loads", static_cast<double>(result.adapter_loads), "adapters");
            summary.add("adapter_wait_s.mean", result.adapter_wait_s / named, "s");
        }
        if (engine_.caches_experts) {
            ORRERY_ASSERT(result.expert_hits <= result.experts_used);
            const double used = std::max(1.0, static_cast<double>(result.experts_used));
            const double steps = std::max(1.0, static_cast<double>(result.iterations));
            summary.add("expert_hit_fraction", static_cast<double>(result.expert_hits) / used, "1");
            if (engine_.expert_cache.prefetches) {
                summary.add("expert_prefetched_fraction", static_cast<double>(result.experts_predicted) / used, "1");
                summary.add("experts_in_vain", static_cast<double>(result.experts_in_vain), "experts");
            }
            summary.add("expert_bytes", result.expert_bytes, "B");
            summary.add("expert_wait_s.mean", result.expert_wait_s / steps, "s");
        }
        if (engine_.compression.given) {
            summary.add("kv_token_bytes", service_.cache_token_bytes, "B");
        }
        if (engine_.has_swap) {
            summary.add("swap_out_bytes", result.swap_out_bytes, "B");
            summary.add("swap_in_bytes", result.swap_in_bytes, "B");
            if (engine_.keeps_copies) {
                summary.add("swap_reused_bytes", result.swap_reused_bytes, "B");
            }
            summary.add("swap_stall_s.mean",
                        result.swap_stall_s / std::max(1.0, static_cast<double>(result.iterations)), "s");
        }
        if (engine_.front_end.given) {
            const auto mean = [](double sum, std::uint64_t count) {
                return count > 0 ? sum / static_cast<double>(count) : kNotMeasured;
            };
            summary.add("front_end_request_wait_s.mean",
                        mean(result.front_end_request_wait_s, result.front_end_requests), "s");
            summary.add("front_end_token_wait_s.mean", mean(result.front_end_token_wait_s, result.front_end_tokens),
                        "s");
            summary.add(
                "front_end_busy_fraction",
                result.front_end_busy_s / std::max(static_cast<double>(engine_.front_end.cores) * result.end_s, 1e-12),
                "1");
        }
        if (engine_.mixes) {
            summary.add("mixed_prompts", static_cast<double>(result.mixed_prompts), "requests");
            summary.add("mixed_outputs", static_cast<double>(result.mixed_outputs), "requests");
        }
        if (totals_.piped) {
            summary.add("bubble_fraction", result.in_flight_s > 0 ? 1 - result.busy_s / result.in_flight_s : 0, "1");
        }
        if (result.kv_transfers > 0 && !engine_.same_devices) {
            summary.add("kv_transfer_s.mean", result.kv_transfer_s / static_cast<double>(result.kv_transfers), "s");
        }
    }

    const ServingTotals& totals_;
    const Scenario& scenario_;
    const EngineSpec& engine_;
    const ServiceSpec& service_;
    std::size_t in_time_;  ///< requests that kept their limits
};

}  // namespace

void summarise_service(const ServingTotals& totals, const ServiceResult& result, Summary& summary) {
    Writer(totals, result, summary);
}

void note_service(const ServiceResult& result, std::uint64_t turned_away, Summary& summary) {
    if (result.requests.empty()) {
        summary.notes.push_back(
            fmt::format("warning: no request that came in the measured time was answered: latencies are not known "
                        "(the run ends at {})",
                        pretty_quantity(result.end_s, Dimension::time)));
    }
    ORRERY_ASSERT(turned_away <= result.refused);
    if (turned_away > 0) {
        summary.notes.push_back(fmt::format("{} requests were turned away by policies.admission", turned_away));
    }
    if (result.refused > turned_away) {
        summary.notes.push_back(
            fmt::format("{} requests were refused: they are longer than the context or than the whole cache",
                        result.refused - turned_away));
    }
    if (result.lone_prompts > 0) {
        summary.notes.push_back(fmt::format(
            "{} prompts were longer than the token budget and ran alone; the engine with this scheduler refuses "
            "them, unless token_budget is larger",
            result.lone_prompts));
    }
    if (result.without_effect > 0) {
        summary.notes.push_back(
            fmt::format("{} faults had no effect: they struck replicas that were not running", result.without_effect));
    }
    if (result.cut) {
        summary.notes.push_back(
            fmt::format("the timeline is cut: it has the first {} iterations and the first {} parts of requests",
                        result.timeline.size(), result.lives.size()));
    }
}

}  // namespace orrery::driver
