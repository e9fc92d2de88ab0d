// kind: serving. Requests served by engine replicas.

#include "tools/driver/kind.hpp"

#include "models/scaled_device.hpp"
#include "sim/device/power.hpp"
#include "tools/driver/serving_intervals.hpp"
#include "tools/driver/serving_timeline.hpp"
#include "tools/driver/unread.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace orrery::inline driver {

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

// The GPUs that the pools number, as faults see them.
JobShape service_shape(const Scenario& scenario) {
    const Fabric fabric = fabric_of(scenario);
    const EngineSpec& engine = scenario.engine;
    JobShape out;
    out.gpus_per_node = fabric.shape().gpus_per_node;
    out.nics_per_node = std::max(1U, fabric.shape().nics_per_node);
    std::int64_t gpus = 0;
    for (const PhaseSpec* phase :
         engine.split ? std::vector{&engine.prefill, &engine.decode} : std::vector{&engine.mixed}) {
        out.replicas += static_cast<std::uint32_t>(phase->replicas);
        gpus += phase->replicas * phase->ranks();
    }
    // Groups of a cluster begin at nodes of their own: any of them may have replicas.
    out.nodes = scenario.cluster.mixed ? fabric.shape().nodes
                                       : static_cast<std::uint32_t>((gpus + out.gpus_per_node - 1) / out.gpus_per_node);
    return out;
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
        if (!knows_power(*gpu)) {
            return std::nullopt;
        }
        const PoolWork& work = result.pools[i];
        const Bounded own = energy_of(*gpu, DeviceWork{count * seconds, work.kernel_s, work.flops, work.bytes}, clock);
        // On the same devices idle power is counted with the first phase; the second adds what it does on them.
        const double counted = engine.same_devices && i > 0 ? energy_of(*gpu, DeviceWork{count * seconds, 0, 0, 0}) : 0;
        joules.low += own.low - counted;
        joules.value += own.value - counted;
        joules.high += own.high - counted;
    }
    return joules;
}

class ServingScenario final : public ScenarioRun {
  public:
    explicit ServingScenario(const RunContext& context)
        : context_(context),
          scenario_(context.scenario),
          engine_(context.scenario.engine),
          options_(context.options),
          end_(load_end(engine_, scenario_.requests, scenario_.measure)) {
        std::vector<std::pair<Role, const PhaseSpec*>> phases = {{Role::mixed, &engine_.mixed}};
        if (engine_.split) {
            phases = {{Role::prefill, &engine_.prefill}, {Role::decode, &engine_.decode}};
        }
        for (const auto& [role, phase] : phases) {
            add_pool(context, role, *phase);
        }
        describe_service(context);
        const std::string trace = scenario_.requests.trace.empty() ? "" : scenario_.file(scenario_.requests.trace);
        RequestsSpec requests = scenario_.requests;
        if (end_ != LoadEnd::count) {
            requests.count = kEndlessRequests;
        }
        requests_ = make_requests(requests, trace, static_cast<std::uint64_t>(scenario_.seed));
        hooks_ = options_.serving != nullptr ? options_.serving->hooks : ServiceHooks();
        hooks_.progress = options_.progress;
        if (options_.requests) {
            hooks_.ended = [this](const Sequence& sequence, Ending ending, SimTime now) {
                rows_.push_back(row_of(sequence, ending, now));
            };
        }
        run_ = std::make_unique<ServiceRun>(service_, *requests_, hooks_, context.simulation, context.start);
    }

    void summarise(RunOutput& out) override {
        const ServiceResult result = run_->result();
        out.seconds = result.end_s;
        out.requests = std::move(rows_);
        in_time_ = add_latencies(result, out.summary);
        add_rates(result, out.summary);
        add_costs(result, out.summary);
        add_pools(result, out.summary);
        add_options(result, out.summary);
        if (result.steady) {
            add_steady_state(result, out.summary);
        }
        add_model_error(scenario_, spread_, out.summary);
        add_notes(result, out.summary);
        out.timeline = options_.timeline ? draw(result) : Timeline();
    }

  private:
    /// Where the replicas of a pool are.
    struct PoolPlace {
        std::uint32_t first_gpu;
        std::uint32_t node;
    };

    // On the nodes of its group, or on those that follow the last pool's.
    [[nodiscard]] PoolPlace place_of(const RunContext& context, const PhaseSpec& phase, bool again) {
        const Fabric& fabric = context.fabric;
        const std::vector<NodeGroup>& groups = fabric.shape().groups;
        const std::uint32_t per_node = fabric.shape().gpus_per_node;
        const auto needed = static_cast<std::uint32_t>(phase.replicas * phase.ranks());
        std::uint32_t end = context.placement.gpus();
        std::uint32_t group = 0;
        std::uint32_t base = 0;
        std::string where = "the cluster";
        if (!groups.empty() && context.placement.gpus() != fabric.gpus()) {
            throw InfeasibleError("serving on some nodes of a cluster of groups is not simulated: give it all of them");
        }
        if (phase.placed) {
            std::vector<std::string> names;
            for (; group < groups.size() && groups[group].name != phase.group; ++group) {
                names.push_back(groups[group].name);
            }
            if (group == groups.size()) {
                const std::string guess = nearest_name(phase.group, names);
                throw ConfigError({scenario_.engine_mark.error(
                    fmt::format("the cluster has no group '{}'{}", phase.group,
                                guess.empty() ? "" : fmt::format(" (did you mean '{}'?)", guess)))});
            }
        }
        if (!groups.empty()) {
            // Without a name: the first group with room for them.
            const auto room = [&](std::uint32_t g) {
                const auto next = next_gpus_.try_emplace(g, groups[g].first * per_node).first->second;
                return (groups[g].first + groups[g].nodes) * per_node - next;
            };
            while (!phase.placed && group + 1 < groups.size() && room(group) < needed) {
                ++group;
            }
            (void)room(group);
            base = groups[group].first * per_node;
            end = base + groups[group].nodes * per_node;
            where = fmt::format("group '{}'", groups[group].name);
        }
        std::uint32_t& next = next_gpus_[group];
        const std::uint32_t first = again ? base : next;
        if (first + needed > end) {
            throw InfeasibleError(fmt::format("{} replicas of {} ranks need {} GPUs, but {} has {}", phase.replicas,
                                              phase.ranks(), first + needed - base, where, end - base));
        }
        next = first + needed;
        pool_gpus_ = again ? pool_gpus_ : pool_gpus_ + needed;
        return {first, fabric.node_of(context.placement.gpu(first))};
    }

    void add_pool(const RunContext& context, Role role, const PhaseSpec& spec) {
        const PhaseSpec* phase = &spec;
        const bool again = engine_.same_devices && role == Role::decode;  // on the GPUs of the other phase
        const PoolPlace place = place_of(context, *phase, again);
        const NodeSpec& node = node_at(scenario_.cluster, place.node);
        const DeviceSpec& gpu = phase->other_device ? phase->device : node.gpu;
        const CostModel* device = device_at(gpu, phase->clock);
        spread_ = std::max(spread_, products_spread(*device, scenario_.model));
        check(*phase, scenario_.model);
        const std::int64_t ranks = phase->ranks();
        PoolSpec pool;
        pool.role = role;
        pool.replicas = static_cast<std::uint32_t>(phase->replicas);
        pool.scheduler = phase->scheduler;
        pool.speculation = engine_.speculation;
        pool.limits = limits_of(engine_, *phase, scenario_.model, gpu);
        if (engine_.same_devices && role == Role::prefill) {
            pool.limits.ahead = 1 + pool.limits.draft_tokens;
        }
        const double beside = std::max(1.0, static_cast<double>(node.gpus) / static_cast<double>(ranks));
        pool.experts = experts_of(engine_, *phase, scenario_.model, gpu, node.has_host ? &node.host : nullptr,
                                  std::min(beside, static_cast<double>(phase->replicas)), scenario_.engine_mark);
        pool.device = &gpu;
        pool.units = phase->units;
        pool.first_gpu = place.first_gpu;
        pool.gpus = static_cast<std::uint32_t>(ranks);
        pool.host_bandwidth = node.host_rate(static_cast<double>(ranks));
        for (std::int64_t stage = 0; stage < phase->pipeline; ++stage) {
            const ServingModel model =
                stage_model({phase, &gpu, &node, place.first_gpu}, stage, *device, context.fabric);
            if (options_.serving != nullptr) {
                options_.serving->stage(service_.pools.size(), model);
            }
            costs_.push_back(make_step(model));
            pool.cost.push_back(costs_.back().get());
        }
        if (phase->scales) {
            pool.scaling = phase->scaling;
            pool.scaling.least = std::min(pool.scaling.least, pool.replicas);
            scales_ = true;
        }
        pool.starts = phase->scales || engine_.faults.given;
        pool.start = phase->start;
        for (std::int64_t stage = 0; stage < phase->pipeline; ++stage) {
            pool.start.weight_bytes += weight_bytes_per_rank(scenario_.model, engine_.quantisation(gpu), phase->tensor,
                                                             phase->groups, stage, phase->pipeline) *
                                       static_cast<double>(phase->stage_ranks());
        }
        peers_ = peers_ || (pool.starts && phase->start.weights == WeightsFrom::peer);
        places_.push_back({phase, &gpu, &node, place.first_gpu});
        devices_.push_back({&gpu, static_cast<double>(phase->replicas * ranks), phase->clock});
        scaled_clock_ = scaled_clock_ || phase->clock != 1;
        price_ += again ? 0 : gpu.price.value * static_cast<double>(phase->replicas * ranks);
        priced_ = priced_ && gpu.price.value > 0;
        piped_ = piped_ || phase->pipeline > 1;
        service_.pools.push_back(pool);
    }

    /// What the replicas of a pool are made of.
    struct PoolModel {
        const PhaseSpec* phase;
        const DeviceSpec* gpu;
        const NodeSpec* node;
        std::uint32_t first_gpu;
    };

    [[nodiscard]] const CostModel* device_at(const DeviceSpec& gpu, double clock) {
        const CostModel* device = &context_.models.device(gpu, scenario_.compute, engine_.software.kernels);
        if (clock != 1) {
            capped_.push_back(std::make_unique<ScaledDevice>(*device, gpu, clock, 1));
            device = capped_.back().get();
        }
        return device;
    }

    [[nodiscard]] ServingModel stage_model(const PoolModel& pool, std::int64_t stage, const CostModel& device,
                                           const Fabric& fabric) const {
        const PhaseSpec* phase = pool.phase;
        std::vector<GpuId> gpus;
        for (std::int64_t rank = 0; rank < phase->stage_ranks(); ++rank) {
            gpus.push_back(context_.placement.gpu(
                static_cast<std::uint32_t>(pool.first_gpu + stage * phase->stage_ranks() + rank)));
        }
        // The host plans on the first stage; the later ones run what they are told.
        HostSpec host = engine_.software;
        if (stage > 0) {
            host.step.value = host.sequence.value = 0;
        }
        return {.model = scenario_.model,
                .device = device,
                .fabric = fabric,
                .collectives = context_.models.collectives(*pool.node, scenario_.network.collectives),
                .paths = scenario_.network.path_choice(),
                .gpus = gpus,
                .quantisation = engine_.quantisation(*pool.gpu),
                .groups = static_cast<std::uint32_t>(phase->groups),
                .expert = static_cast<std::uint32_t>(phase->expert),
                .expert_load = engine_.expert_load,
                .dispatch = engine_.dispatch,
                .block = static_cast<double>(engine_.block),
                .host = host,
                .step_overhead = stage == 0 ? engine_.step_overhead : 0,
                .sequence_overhead = stage == 0 ? engine_.sequence_overhead : 0,
                .layers = stage_layers(scenario_.model.layers, stage, phase->pipeline),
                .embedding = stage == 0,
                .head = stage + 1 == phase->pipeline,
                .adapters = engine_.adapters,
                .partitioned = engine_.same_devices ? pool.gpu : nullptr,
                .units = phase->units,
                .given = engine_.has_step_cost ? &engine_.step_cost : nullptr};
    }

    // A stage whose devices run at a share of their clock, or whose nodes' NICs at a share of their rate.
    StepCost& impaired_step(std::size_t pool, std::size_t stage, double clock, double nic) {
        const auto [entry, fresh] = impaired_.try_emplace({pool, stage, clock, nic});
        if (fresh) {
            const PoolModel& of = places_.at(pool);
            const CostModel* device = device_at(*of.gpu, of.phase->clock * clock);
            const Fabric* fabric = &context_.fabric;
            if (nic < 1) {
                FabricShape shape = fabric->shape();
                shape.nic_bandwidth *= nic;
                shape.leaf_oversubscription *= nic;  // links between switches stay as they are
                fabrics_.push_back(std::make_unique<Fabric>(shape));
                fabric = fabrics_.back().get();
            }
            entry->second = make_step(stage_model(of, static_cast<std::int64_t>(stage), *device, *fabric));
        }
        return *entry->second;
    }

    void describe_faults() {
        service_.faults = engine_.faults;
        if (!engine_.faults.given) {
            return;
        }
        service_.faults.shape = service_shape(scenario_);
        for (const EventSpec& event : engine_.faults.events) {
            TimedFault one{event.at_s, {event.kind, {}, event.factor, event.lasts_s}};
            std::string problem;
            if (!parse_place(event.where, service_.faults.shape, one.fault.place, problem)) {
                throw InternalError(problem);  // checked where the scenario is read
            }
            service_.faults.timed.push_back(one);
        }
        if (!engine_.faults.trace.empty()) {
            const auto trace = read_fault_trace(scenario_.file(engine_.faults.trace), service_.faults.shape);
            service_.faults.timed.insert(service_.faults.timed.end(), trace.begin(), trace.end());
        }
        service_.impaired = [this](std::size_t pool, std::size_t stage, double clock, double nic) -> StepCost& {
            return impaired_step(pool, stage, clock, nic);
        };
    }

    void describe_service(const RunContext& context) {
        describe_faults();
        service_.router = engine_.router;
        service_.mixing = engine_.mixing;
        service_.same_devices = engine_.same_devices;
        service_.transfer = engine_.transfer;
        service_.layers = static_cast<std::uint32_t>(scenario_.model.layers);
        service_.cache_token_bytes = cache_bytes_per_token(scenario_.model, engine_.cache);
        service_.hidden_bytes = 2 * static_cast<double>(scenario_.model.hidden);  // 16 bits
        service_.nvme_bandwidth = engine_.nvme_bandwidth;
        service_.gpus_per_node = static_cast<std::uint32_t>(scenario_.cluster.node.gpus);
        service_.fabric = engine_.split || piped_ || engine_.caches_experts || peers_ ? &context.fabric : nullptr;
        if (engine_.caches_experts) {
            if (scenario_.cluster.mixed) {
                throw InfeasibleError(
                    "'expert_cache' on a cluster of groups is not simulated: give it nodes of one kind");
            }
            service_.host = &scenario_.cluster.node.host;
            service_.device_link = scenario_.cluster.node.pcie_rate();
        }
        service_.paths = scenario_.network.path_choice();
        service_.stream_interval = static_cast<std::uint32_t>(engine_.stream_interval);
        service_.ttft_limit = scenario_.slo.ttft;
        service_.tpot_limit = scenario_.slo.tpot;
        service_.tbt_limit = scenario_.slo.tbt;
        service_.timeout = scenario_.requests.timeout;
        service_.measure_from = scenario_.measure.from;
        service_.measure_to = scenario_.measure.to;
        if (end_ == LoadEnd::time) {
            service_.load_to = scenario_.measure.to > 0 ? scenario_.measure.to : scenario_.requests.period;
            service_.measure_to = service_.load_to;
        }
        service_.steady = options_.steady;
        service_.steady.wanted = end_ == LoadEnd::steady;
        service_.seed = static_cast<std::uint64_t>(scenario_.seed);
        service_.request_overhead = engine_.software.request.value;
        service_.frontend = engine_.software.frontend.value;
        service_.timeline = options_.timeline;
        service_.placement = context.placement;
    }

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
        return in_time;
    }

    // GPUs that ran, on average, of those that are there.
    [[nodiscard]] double running(const ServiceResult& result) const {
        return scales_ ? result.gpu_s / result.end_s / pool_gpus_ : 1;
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
        if (scenario_.requests.timeout > 0) {
            summary.add("requests_timed_out", static_cast<double>(result.timed_out), "requests");
        }
        add_faults(result, summary);
        if (result.requests.size() > 1) {
            const double span = (result.requests.back().arrival - result.requests.front().arrival).seconds();
            summary.add("offered_rps", span > 0 ? static_cast<double>(result.requests.size() - 1) / span : 0, "1/s");
        }
        summary.add("requests_per_s", per_second(result.finished), "1/s");
        summary.add("output_tokens_per_s", per_second(result.output_tokens), "1/s");
        if (scenario_.slo.ttft > 0 || scenario_.slo.tpot > 0 || scenario_.slo.tbt > 0) {
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
            if (faults.budgeted) {
                summary.add("requests_over_budget", static_cast<double>(result.over_budget), "requests");
            }
            summary.add("requests_retried", static_cast<double>(result.retried), "requests");
            summary.add("failures", static_cast<double>(result.failures), "replicas");
            if (result.wrong > 0 || faults.recovery.finds) {
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

    void add_costs(const ServiceResult& result, Summary& summary) const {
        if (priced_ && result.output_tokens > 0) {
            const double usd = price_ / 3600 * running(result) * std::max(result.window_s, 1e-12);
            summary.add("cost_per_million_tokens_usd", usd / static_cast<double>(result.output_tokens) * 1e6, "USD");
        }
        const double seconds = running(result) * result.window_s;
        // A given step cost does not say how busy the devices are.
        const std::optional<Bounded> joules =
            engine_.has_step_cost ? std::nullopt : energy_of_pools(devices_, engine_, result, seconds);
        if (joules && result.output_tokens > 0) {
            constexpr double kJoulesPerKilowattHour = 3.6e6;
            const auto add = [&](const char* name, const char* unit, double scale) {
                summary.add(name, joules->value * scale, unit);
                if (scaled_clock_) {
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
            if (scaled_clock_) {
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
            replicas += pool.replicas;
            summary.notes.push_back(fmt::format("{} {} replica{} with {} cache blocks of {} tokens each", pool.replicas,
                                                pool.role == Role::mixed     ? "mixed"
                                                : pool.role == Role::prefill ? "prefill"
                                                                             : "decode",
                                                pool.replicas == 1 ? "" : "s", pool.limits.blocks, pool.limits.block));
        }
        summary.add("cache_peak_fraction", static_cast<double>(result.most_blocks) / static_cast<double>(blocks), "1");
        summary.add("busy_fraction", result.busy_s / std::max(result.end_s * replicas, 1e-12), "1");
    }

    // What only some engines have.
    void add_options(const ServiceResult& result, Summary& summary) const {
        if (scales_) {
            summary.add("gpus.mean", result.end_s > 0 ? result.gpu_s / result.end_s : 0, "GPUs");
            summary.add("replica_starts", static_cast<double>(result.starts), "replicas");
        }
        if (engine_.speculates) {
            summary.add("tokens_per_step",
                        result.decode_steps > 0
                            ? 1 + static_cast<double>(result.accepted) / static_cast<double>(result.decode_steps)
                            : 1,
                        "1");
        }
        if (engine_.prefix_cache) {
            const auto prompts = static_cast<double>(result.prompt_tokens);
            summary.add("prefix_hit_fraction", prompts > 0 ? static_cast<double>(result.prefix_tokens) / prompts : 0,
                        "1");
            summary.add("prefix_from_host_bytes", result.fetched_host_bytes, "B");
            summary.add("prefix_from_nvme_bytes", result.fetched_nvme_bytes, "B");
        }
        if (engine_.names()) {
            const double named = std::max(1.0, static_cast<double>(result.adapter_requests));
            summary.add("adapter_hit_fraction", static_cast<double>(result.adapter_hits) / named, "1");
            summary.add("adapter_misses", static_cast<double>(result.adapter_requests - result.adapter_hits),
                        "requests");
            summary.add("adapter_loads", static_cast<double>(result.adapter_loads), "adapters");
            summary.add("adapter_wait_s.mean", result.adapter_wait_s / named, "s");
        }
        if (engine_.caches_experts) {
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
        if (engine_.mixes) {
            summary.add("mixed_prompts", static_cast<double>(result.mixed_prompts), "requests");
            summary.add("mixed_outputs", static_cast<double>(result.mixed_outputs), "requests");
        }
        if (piped_) {
            summary.add("bubble_fraction", result.in_flight_s > 0 ? 1 - result.busy_s / result.in_flight_s : 0, "1");
        }
        if (result.kv_transfers > 0 && !engine_.same_devices) {
            summary.add("kv_transfer_s.mean", result.kv_transfer_s / static_cast<double>(result.kv_transfers), "s");
        }
    }

    static void add_notes(const ServiceResult& result, Summary& summary) {
        if (result.requests.empty()) {
            summary.notes.push_back(
                fmt::format("warning: no request that came in the measured time was answered: latencies are not known "
                            "(the run ends at {})",
                            pretty_quantity(result.end_s, Dimension::time)));
        }
        if (result.refused > 0) {
            summary.notes.push_back(fmt::format(
                "{} requests were refused: longer than the context or than the whole cache", result.refused));
        }
        if (result.without_effect > 0) {
            summary.notes.push_back(
                fmt::format("{} faults struck what did not run, and changed nothing", result.without_effect));
        }
        if (result.cut) {
            summary.notes.push_back(
                fmt::format("the timeline is cut: it has the first {} iterations and the first {} parts of requests",
                            result.timeline.size(), result.lives.size()));
        }
    }

    const RunContext context_;
    const Scenario& scenario_;
    const EngineSpec& engine_;
    const RunOptions& options_;
    LoadEnd end_;
    ServiceSpec service_;
    ServiceHooks hooks_;
    std::vector<std::unique_ptr<CostModel>> capped_;  ///< devices at another clock
    std::vector<std::unique_ptr<StepCost>> costs_;
    std::vector<PoolModel> places_;  ///< by pool
    std::map<std::tuple<std::size_t, std::size_t, double, double>, std::unique_ptr<StepCost>> impaired_;
    std::vector<std::unique_ptr<Fabric>> fabrics_;  ///< with slow NICs
    std::vector<PoolDevices> devices_;
    double spread_ = 0;  ///< of the products of the device that is known least
    std::unique_ptr<RequestSource> requests_;
    std::vector<RequestRow> rows_;
    std::unique_ptr<ServiceRun> run_;
    std::map<std::uint32_t, std::uint32_t> next_gpus_;  ///< by group: the first GPU that no pool has
    std::uint32_t pool_gpus_ = 0;
    std::size_t in_time_ = 0;
    double price_ = 0;  ///< USD per hour of all GPUs
    bool priced_ = true;
    bool piped_ = false;
    bool scales_ = false;
    bool peers_ = false;  ///< weights come from them
    bool scaled_clock_ = false;
};

void describe_serving(Fields& fields, Scenario& s) {
    bool present = false;
    fields.section({"model", "what is served: a preset or its dimensions", true}, kModelPresets, present,
                   [&](Fields& inner) { describe(inner, s.model); });
    fields.section({"engine", "replicas, their plan, scheduler and cache"},
                   [&](Fields& inner) { describe(inner, s.engine); });
    fields.section({"requests", "what clients ask for"}, [&](Fields& inner) { describe(inner, s.requests); });
    fields.section({"slo", "what counts as in time"}, [&](Fields& inner) { describe(inner, s.slo); });
    fields.section({"measure", "the part of the run that is measured"},
                   [&](Fields& inner) { describe(inner, s.measure); });
    describe(fields, s.engine.faults);
    describe_compute(fields, s);
}

void check_faults_of_service(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors) {
    const YamlNode* node = root.find("faults");
    if (node == nullptr || !scenario.engine.faults.given || !errors.empty()) {
        return;
    }
    try {
        check(*node, scenario.engine.faults, service_shape(scenario), errors);
    } catch (const Error&) {
        return;  // said where the cluster is read
    }
}

void check_serving(const YamlNode& root, const DataDirectory&, Scenario& scenario, std::vector<Diagnostic>& errors) {
    check_faults_of_service(root, scenario, errors);
    const MeasureSpec& window = scenario.measure;
    if (window.to > 0 && window.from >= window.to) {
        const YamlNode* section = root.find("measure");
        const YamlNode* from = section != nullptr ? section->find("from") : nullptr;
        errors.push_back((from != nullptr ? from : &root)
                             ->mark.error(fmt::format("'measure' is from {} to {}: it must end after it begins",
                                                      pretty_quantity(window.from, Dimension::time),
                                                      pretty_quantity(window.to, Dimension::time))));
    }
    refuse_unread_model(root, scenario, errors);
    refuse_unread_serving(root, scenario, errors);
    for (const std::string& problem : problems_of(scenario.requests)) {
        errors.push_back(scenario.requests_mark.error(problem));
    }
    for (const std::string& problem : problems_of(scenario.engine, scenario.requests, scenario.model)) {
        errors.push_back(scenario.engine_mark.error(problem));
    }
}

}  // namespace

static constexpr const char* kServingCards[] = {"requests_per_s", "output_tokens_per_s",         "slo_attainment",
                                                "goodput_rps",    "cost_per_million_tokens_usd", "energy_per_token_j",
                                                "busy_fraction",  "cache_peak_fraction"};

const KindRow kServingKind = {
    .name = "serving",
    .headline = "e2e_s.mean",
    .cards = kServingCards,
    .nodes = true,
    .messages = false,
    .kernels = true,
    .requests = true,
    .drawing = TimelineDrawing::none,
    .network = {.library = true},
    .cost = cost_of_serving,
    .describe = describe_serving,
    .check = check_serving,
    .prepare = [](const RunContext& context) -> std::unique_ptr<ScenarioRun> {
        return std::make_unique<ServingScenario>(context);
    },
};

}  // namespace orrery::inline driver
