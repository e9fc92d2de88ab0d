#include "tools/driver/run_serving.hpp"

#include "models/scaled_device.hpp"
#include "sim/device/device.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {

namespace {

void add_quantiles(Summary& summary, const std::string& name, std::vector<float> values) {
    std::sort(values.begin(), values.end());
    const auto quantile = [&](double q) {
        return values.empty() ? 0.0
                              : values[std::min(values.size() - 1,
                                                static_cast<std::size_t>(q * static_cast<double>(values.size())))];
    };
    double sum = 0;
    for (const float value : values) {
        sum += value;
    }
    summary.add(name + ".mean", values.empty() ? 0 : sum / static_cast<double>(values.size()), "s");
    summary.add(name + ".p50", quantile(0.5), "s");
    summary.add(name + ".p90", quantile(0.9), "s");
    summary.add(name + ".p99", quantile(0.99), "s");
    summary.add(name + ".max", values.empty() ? 0 : values.back(), "s");
}

// Iterations of the replicas as spans, requests as lifelines, caches as counters.
Timeline draw(const ServiceResult& result) {
    Timeline timeline;
    const auto us = [](SimTime time) { return static_cast<double>(time.ps()) * 1e-6; };
    std::uint32_t replicas = 0;
    std::uint32_t stages = 0;
    for (const IterationRecord& record : result.timeline) {
        replicas = std::max(replicas, record.replica + 1);
        stages = std::max(stages, record.stage + 1);
        timeline.spans.push_back(
            Span{fmt::format("{} sequences, {} tokens, {} blocks", record.sequences, record.tokens, record.blocks),
                 record.tokens > record.sequences ? "prefill" : "decode", record.replica, record.stage,
                 us(record.start), us(record.end - record.start)});
        timeline.counters.push_back(
            CounterPoint{"cache blocks", record.replica, us(record.end), static_cast<double>(record.blocks)});
    }
    for (const LifeRecord& part : result.lives) {
        static constexpr const char* kPhases[] = {"waiting", "adapter", "prefill", "decode"};
        const std::string phase = kPhases[static_cast<std::size_t>(part.phase)];
        timeline.lifelines.push_back(
            Lifeline{"requests", part.phase == LifePhase::adapter ? fmt::format("{} {}", phase, part.adapter) : phase,
                     part.request, part.replica, us(part.start), us(part.end - part.start)});
    }
    for (const AdapterRecord& record : result.adapters) {
        timeline.counters.push_back(
            CounterPoint{"adapters here", record.replica, us(record.at), static_cast<double>(record.here)});
        timeline.counters.push_back(
            CounterPoint{"adapters coming", record.replica, us(record.at), static_cast<double>(record.coming)});
    }
    for (std::uint32_t stage = 0; stage < stages; ++stage) {
        timeline.threads.emplace_back(stage, stages == 1 ? "iterations" : fmt::format("stage {}", stage));
    }
    for (std::uint32_t replica = 0; replica < replicas; ++replica) {
        timeline.processes.emplace_back(replica, fmt::format("replica {}", replica));
    }
    return timeline;
}

// Devices of a pool, and the clock that they run at.
struct PoolDevices {
    const DeviceSpec* gpu;
    double count;
    double clock;
};

// Energy of all pools over the measured window in J; nothing where that is not known.
std::optional<Bounded> energy_of_pools(const std::vector<PoolDevices>& pools, const EngineSpec& engine,
                                       const ServiceResult& result, double seconds) {
    Bounded joules;
    for (std::size_t i = 0; i < pools.size(); ++i) {
        const auto& [gpu, count, clock] = pools[i];
        if (gpu->tdp.value <= 0) {
            return std::nullopt;
        }
        const PoolWork& work = result.pools[i];
        const Bounded own = energy_of(*gpu, DeviceWork{count * seconds, work.kernel_s, work.flops}, clock);
        // On the same devices idle power is counted with the first phase; the second adds what it does on them.
        const double counted = engine.same_devices && i > 0 ? energy_of(*gpu, DeviceWork{count * seconds, 0, 0}) : 0;
        joules.low += own.low - counted;
        joules.value += own.value - counted;
        joules.high += own.high - counted;
    }
    return joules;
}

}  // namespace

void run_serving(const Scenario& scenario, ModelCache& models, const RunOptions& options, const Fabric& fabric,
                 RunOutput& out) {
    const EngineSpec& engine = scenario.engine;
    std::vector<std::pair<Role, const PhaseSpec*>> phases = {{Role::mixed, &engine.mixed}};
    if (engine.split) {
        phases = {{Role::prefill, &engine.prefill}, {Role::decode, &engine.decode}};
    }
    ServiceSpec service;
    std::vector<std::unique_ptr<ModelStep>> costs;
    std::uint32_t next_gpu = 0;
    bool piped = false;
    bool scales = false;
    std::vector<std::unique_ptr<CostModel>> capped;
    double price = 0;  // USD an hour of all GPUs
    bool priced = true;
    std::vector<PoolDevices> devices;
    bool scaled_clock = false;
    for (const auto& [role, phase] : phases) {
        const DeviceSpec& gpu = phase->other_device ? phase->device : scenario.cluster.node.gpu;
        const CostModel* device = &models.device(gpu, scenario.compute, engine.software.kernels);
        if (phase->clock != 1) {
            capped.push_back(std::make_unique<ScaledDevice>(*device, gpu, phase->clock, 1));
            device = capped.back().get();
        }
        check(*phase, scenario.model);
        const std::int64_t ranks = phase->ranks();
        const bool again = engine.same_devices && role == Role::decode;  // on the GPUs of the other phase
        if (again) {
            next_gpu = 0;
        }
        const std::int64_t needed = next_gpu + phase->replicas * ranks;
        if (needed > fabric.gpus()) {
            throw InfeasibleError(fmt::format("{} replicas of {} ranks need {} GPUs, but the cluster has {}",
                                              phase->replicas, ranks, needed, fabric.gpus()));
        }
        PoolSpec pool;
        pool.role = role;
        pool.replicas = static_cast<std::uint32_t>(phase->replicas);
        pool.scheduler = phase->scheduler;
        pool.speculation = engine.speculation;
        pool.limits = limits_of(engine, *phase, scenario.model, gpu);
        if (engine.same_devices && role == Role::prefill) {
            pool.limits.ahead = 1 + pool.limits.draft_tokens;
        }
        pool.device = &gpu;
        pool.units = phase->units;
        pool.first_gpu = next_gpu;
        pool.gpus = static_cast<std::uint32_t>(ranks);
        pool.host_bandwidth = scenario.cluster.node.pcie_bandwidth.value * static_cast<double>(ranks);
        for (std::int64_t stage = 0; stage < phase->pipeline; ++stage) {
            std::vector<GpuId> gpus;
            for (std::int64_t rank = 0; rank < phase->stage_ranks(); ++rank) {
                gpus.emplace_back(static_cast<std::uint32_t>(next_gpu + stage * phase->stage_ranks() + rank));
            }
            // The host plans on the first stage; the later ones run what they are told.
            HostSpec host = engine.software;
            if (stage > 0) {
                host.step.value = host.sequence.value = 0;
            }
            ServingModel model{
                .model = scenario.model,
                .device = *device,
                .fabric = fabric,
                .collectives = models.collectives(scenario.cluster.node.collectives, scenario.network.collectives),
                .gpus = gpus,
                .quantisation = engine.quantisation(gpu),
                .groups = static_cast<std::uint32_t>(phase->groups),
                .expert = static_cast<std::uint32_t>(phase->expert),
                .expert_load = engine.expert_load,
                .dispatch = engine.dispatch,
                .block = static_cast<double>(engine.block),
                .host = host,
                .step_overhead = stage == 0 ? engine.step_overhead : 0,
                .sequence_overhead = stage == 0 ? engine.sequence_overhead : 0,
                .layers = stage_layers(scenario.model.layers, stage, phase->pipeline),
                .embedding = stage == 0,
                .head = stage + 1 == phase->pipeline,
                .adapters = engine.adapters,
                .partitioned = engine.same_devices ? &gpu : nullptr,
                .units = phase->units};
            if (options.serving != nullptr) {
                options.serving->stage(service.pools.size(), model);
            }
            costs.push_back(std::make_unique<ModelStep>(model));
            pool.cost.push_back(costs.back().get());
        }
        if (phase->scales) {
            pool.scaling = phase->scaling;
            pool.scaling.least = std::min(pool.scaling.least, pool.replicas);
            for (std::int64_t stage = 0; stage < phase->pipeline; ++stage) {
                pool.scaling.weight_bytes +=
                    weight_bytes_per_rank(scenario.model, engine.quantisation(gpu), phase->tensor, phase->groups, stage,
                                          phase->pipeline) *
                    static_cast<double>(phase->stage_ranks());
            }
            scales = true;
        }
        next_gpu = static_cast<std::uint32_t>(needed);
        devices.push_back({&gpu, static_cast<double>(phase->replicas * ranks), phase->clock});
        scaled_clock = scaled_clock || phase->clock != 1;
        price += again ? 0 : gpu.price.value * static_cast<double>(phase->replicas * ranks);
        priced = priced && gpu.price.value > 0;
        piped = piped || phase->pipeline > 1;
        service.pools.push_back(pool);
    }
    if (engine.failure.down_s > 0) {
        std::int64_t replicas = 0;
        for (const PoolSpec& pool : service.pools) {
            replicas += pool.replicas;
        }
        if (engine.failure.replica >= replicas) {
            throw InfeasibleError(
                fmt::format("replica {} fails, but the last one is {}", engine.failure.replica, replicas - 1));
        }
        service.failures.push_back(engine.failure);
    }
    service.router = engine.router;
    service.mixing = engine.mixing;
    service.same_devices = engine.same_devices;
    service.transfer = engine.transfer;
    service.layers = static_cast<std::uint32_t>(scenario.model.layers);
    service.cache_token_bytes = cache_bytes_per_token(scenario.model, engine.cache);
    service.hidden_bytes = 2 * static_cast<double>(scenario.model.hidden);  // 16 bits
    service.nvme_bandwidth = engine.nvme_bandwidth;
    service.gpus_per_node = static_cast<std::uint32_t>(scenario.cluster.node.gpus);
    service.fabric = engine.split || piped ? &fabric : nullptr;
    service.paths = scenario.network.path_choice();
    service.stream_interval = static_cast<std::uint32_t>(engine.stream_interval);
    service.ttft_limit = scenario.slo.ttft;
    service.tpot_limit = scenario.slo.tpot;
    service.tbt_limit = scenario.slo.tbt;
    service.timeout = scenario.requests.timeout;
    service.failure_process = engine.failures;
    service.retries = static_cast<std::uint32_t>(engine.retries);
    service.measure_from = scenario.measure.from;
    service.measure_to = scenario.measure.to;
    service.seed = static_cast<std::uint64_t>(scenario.seed);
    service.request_overhead = engine.software.request.value;
    service.frontend = engine.software.frontend.value;
    service.timeline = options.timeline;
    const std::string trace = scenario.requests.trace.empty() ? "" : scenario.file(scenario.requests.trace);
    const auto requests = make_requests(scenario.requests, trace, static_cast<std::uint64_t>(scenario.seed));
    ServiceHooks hooks = options.serving != nullptr ? options.serving->hooks : ServiceHooks();
    hooks.progress = options.progress;
    if (options.requests) {
        hooks.ended = [&](const Sequence& sequence, Ending ending, SimTime now) {
            out.requests.push_back(row_of(sequence, ending, now));
        };
    }
    const ServiceResult result = serve(service, *requests, hooks);

    Summary& summary = out.summary;
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
    summary.add("tbt_s.mean", result.tbt.mean(), "s");
    for (const auto& [name, q] : {std::pair{"tbt_s.p50", 0.5}, {"tbt_s.p90", 0.9}, {"tbt_s.p99", 0.99}}) {
        summary.add(name, result.tbt.quantile(q), "s");
    }
    summary.add("tbt_s.max", result.tbt.max(), "s");
    add_quantiles(summary, "e2e_s", std::move(e2e));
    const double seconds = std::max(result.window_s, 1e-12);
    const auto finished = static_cast<double>(result.finished);
    summary.add("requests", static_cast<double>(result.requests.size()), "requests");
    summary.add("requests_refused", static_cast<double>(result.refused), "requests");
    if (scenario.requests.timeout > 0) {
        summary.add("requests_timed_out", static_cast<double>(result.timed_out), "requests");
    }
    if (engine.fails) {
        summary.add("requests_failed", static_cast<double>(result.failed), "requests");
        summary.add("requests_retried", static_cast<double>(result.retried), "requests");
        summary.add("failures", static_cast<double>(result.failures), "replicas");
    }
    if (result.requests.size() > 1) {
        const double span = (result.requests.back().arrival - result.requests.front().arrival).seconds();
        summary.add("offered_rps", span > 0 ? static_cast<double>(result.requests.size() - 1) / span : 0, "1/s");
    }
    summary.add("requests_per_s", finished / seconds, "1/s");
    summary.add("output_tokens_per_s", static_cast<double>(result.output_tokens) / seconds, "1/s");
    if (scenario.slo.ttft > 0 || scenario.slo.tpot > 0 || scenario.slo.tbt > 0) {
        const auto asked = static_cast<double>(result.requests.size() + result.unserved);
        summary.add("slo_attainment", asked > 0 ? static_cast<double>(in_time) / asked : 1, "1");
        summary.add("goodput_rps", static_cast<double>(in_time) / seconds, "1/s");
    }
    summary.add("iterations", static_cast<double>(result.iterations), "iterations");
    summary.add("preemptions", static_cast<double>(result.preemptions), "preemptions");
    const double running = scales ? result.gpu_s / result.end_s / next_gpu : 1;
    if (priced && result.output_tokens > 0) {
        const double usd = price / 3600 * running * seconds;
        summary.add("cost_per_million_tokens_usd", usd / static_cast<double>(result.output_tokens) * 1e6, "USD");
    }
    const std::optional<Bounded> joules = energy_of_pools(devices, engine, result, running * result.window_s);
    if (joules && result.output_tokens > 0) {
        constexpr double kJoulesPerKilowattHour = 3.6e6;
        const auto add = [&](const char* name, const char* unit, double scale) {
            summary.add(name, joules->value * scale, unit);
            if (scaled_clock) {
                summary.metrics.back().low = joules->low * scale;
                summary.metrics.back().high = joules->high * scale;
            }
        };
        const double per_token = 1 / static_cast<double>(result.output_tokens);
        add("energy_j", "J", 1);
        add("energy_per_token_j", "J", per_token);
        add("energy_per_million_tokens_kwh", "kWh", per_token * 1e6 / kJoulesPerKilowattHour);
        if (scaled_clock) {
            summary.notes.emplace_back(
                "the energy at another clock lies between its bounds: voltage and the memory's share of power are not "
                "known");
        }
    }
    std::uint64_t blocks = 0;
    double replicas = 0;
    for (const PoolSpec& pool : service.pools) {
        blocks = std::max(blocks, pool.limits.blocks);
        replicas += pool.replicas;
        summary.notes.push_back(fmt::format("{} {} replica{} with {} cache blocks of {} tokens each", pool.replicas,
                                            pool.role == Role::mixed     ? "mixed"
                                            : pool.role == Role::prefill ? "prefill"
                                                                         : "decode",
                                            pool.replicas == 1 ? "" : "s", pool.limits.blocks, pool.limits.block));
    }
    summary.add("cache_peak_fraction", static_cast<double>(result.most_blocks) / static_cast<double>(blocks), "1");
    summary.add("busy_fraction", result.busy_s / std::max(result.end_s * replicas, 1e-12), "1");
    if (scales) {
        summary.add("gpus.mean", result.end_s > 0 ? result.gpu_s / result.end_s : 0, "GPUs");
        summary.add("replica_starts", static_cast<double>(result.starts), "replicas");
    }
    if (engine.speculates) {
        summary.add("tokens_per_step",
                    result.decode_steps > 0
                        ? 1 + static_cast<double>(result.accepted) / static_cast<double>(result.decode_steps)
                        : 1,
                    "1");
    }
    if (engine.prefix_cache) {
        const auto prompts = static_cast<double>(result.prompt_tokens);
        summary.add("prefix_hit_fraction", prompts > 0 ? static_cast<double>(result.prefix_tokens) / prompts : 0, "1");
        summary.add("prefix_from_host_bytes", result.fetched_host_bytes, "B");
        summary.add("prefix_from_nvme_bytes", result.fetched_nvme_bytes, "B");
    }
    if (engine.lora) {
        const double named = std::max(1.0, static_cast<double>(result.adapter_requests));
        summary.add("adapter_hit_fraction", static_cast<double>(result.adapter_hits) / named, "1");
        summary.add("adapter_misses", static_cast<double>(result.adapter_requests - result.adapter_hits), "requests");
        summary.add("adapter_loads", static_cast<double>(result.adapter_loads), "adapters");
        summary.add("adapter_wait_s.mean", result.adapter_wait_s / named, "s");
    }
    if (engine.mixes) {
        summary.add("mixed_prompts", static_cast<double>(result.mixed_prompts), "requests");
        summary.add("mixed_outputs", static_cast<double>(result.mixed_outputs), "requests");
    }
    if (piped) {
        summary.add("bubble_fraction", result.in_flight_s > 0 ? 1 - result.busy_s / result.in_flight_s : 0, "1");
    }
    if (result.handovers > 0 && !engine.same_devices) {
        summary.add("handover_s.mean", result.handover_s / static_cast<double>(result.handovers), "s");
    }
    summary.events = result.events;
    if (result.requests.empty()) {
        summary.notes.emplace_back("no request that came in the measured time was answered: latencies are given as 0");
    }
    if (result.refused > 0) {
        summary.notes.push_back(
            fmt::format("{} requests were refused: longer than the context or than the whole cache", result.refused));
    }
    if (result.cut) {
        summary.notes.push_back(
            fmt::format("the timeline is cut: it has the first {} iterations and the first {} parts of requests",
                        result.timeline.size(), result.lives.size()));
    }
    out.timeline = options.timeline ? draw(result) : Timeline();
}

}  // namespace orrery
