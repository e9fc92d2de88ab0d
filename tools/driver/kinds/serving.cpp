// kind: serving. Requests served by engine replicas.

#include "tools/driver/kinds/serving.hpp"

#include "models/scaled_device.hpp"
#include "tools/driver/group_names.hpp"
#include "tools/driver/kinds/pool_place.hpp"
#include "tools/driver/kinds/serving_intervals.hpp"
#include "tools/driver/kinds/serving_summary.hpp"
#include "tools/driver/kinds/serving_timeline.hpp"
#include "tools/driver/scenario_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace orrery::driver {

namespace {

// Whether prefixes that replicas share cross the cluster's network.
bool over_fabric(const SharedCacheSpec& shared) {
    return shared.given && (shared.peers || shared.node >= 0);
}

constexpr UnitPrice kRequest = {8e-6, 40};  // of usual lengths
constexpr double kToken = 2e-8;             // s, of an output token among others of its batch
constexpr double kIteration = 4e-7;         // s, of a batch that decodes

// The GPUs that the pools number, as faults see them.
JobShape service_shape(const Scenario& scenario) {
    const Fabric fabric = fabric_of(scenario);
    const EngineSpec& engine = scenario.as<ServingKind>().engine;
    JobShape out;
    out.gpus_per_node = fabric.shape().gpus_per_node;
    out.nics_per_node = std::max(1U, fabric.shape().nics_per_node);
    std::uint32_t gpus = 0;
    for (const auto& [role, phase] : engine.phases()) {
        out.replicas += static_cast<std::uint32_t>(phase->replicas);
        const std::uint32_t first = engine.same_devices ? 0 : pool_begin(*phase, gpus, out.gpus_per_node);
        gpus = std::max(gpus, first + static_cast<std::uint32_t>(phase->replicas * phase->ranks()));
    }
    // Groups of a cluster begin at nodes of their own: any of them may have replicas.
    out.nodes = scenario.cluster.mixed ? fabric.shape().nodes : (gpus + out.gpus_per_node - 1) / out.gpus_per_node;
    return out;
}

class ServingWork final : public ScenarioRun {
  public:
    explicit ServingWork(const RunContext& context)
        : context_(context),
          scenario_(context.scenario),
          spec_(context.scenario.as<ServingKind>()),
          engine_(spec_.engine),
          options_(context.options),
          end_(spec_.source != nullptr ? LoadEnd::count : load_end(engine_, spec_.requests, spec_.measure)) {
        for (const auto& [role, phase] : engine_.phases()) {
            add_pool(context, role, *phase);
        }
        describe_service(context);
        RequestSource* const source = spec_.source != nullptr ? spec_.source : make_source();
        hooks_ = options_.serving != nullptr ? options_.serving->hooks : ServiceHooks();
        hooks_.progress = options_.progress;
        if (options_.requests) {
            hooks_.ended = [this](const Sequence& sequence, Ending ending, SimTime now) {
                rows_.push_back(row_of(sequence, ending, now));
            };
        }
        if (totals_.priced) {
            count_for_costs();
        }
        run_ = std::make_unique<ServiceRun>(service_, *source, hooks_, context.simulation, context.start);
    }

    void summarise(RunOutput& out) override {
        const ServiceResult result = run_->result();
        out.seconds = result.end_s;
        out.requests = std::move(rows_);
        summarise_service(totals_, result, out.summary);
        if (result.steady) {
            add_steady_state(result, out.summary);
        }
        add_model_error(scenario_, spread_, out.summary);
        note_service(result, policies_ != nullptr ? policies_->turned_away : 0, out.summary);
        const auto& serving = scenario_.as<ServingKind>();
        if (serving.engine.split && serving.model.linear_layers() > 0) {
            out.summary.notes.emplace_back(
                "states of linear attention are not sent from prefill to decode replicas: a transfer holds the cache "
                "alone");
        }
        out.timeline = options_.timeline ? draw(result) : Timeline();
    }

  private:
    // A chunk of one token counts as decoding.
    static double prompt_share(const Batch& batch) {
        std::uint64_t prompts = 0;
        std::uint64_t all = std::uint64_t{batch.padded} + batch.drafted;
        for (const BatchItem& item : batch.items) {
            prompts += item.tokens > 1 ? item.tokens : 0;
            all += item.tokens;
        }
        return prompts > 0 ? static_cast<double>(prompts) / static_cast<double>(all) : 0;
    }

    // What input and output tokens cost needs the time of either, beside what others watch.
    void count_for_costs() {
        totals_.phases.resize(service_.pools.size());
        std::vector<std::size_t> pool_of;
        for (std::size_t pool = 0; pool < service_.pools.size(); ++pool) {
            pool_of.insert(pool_of.end(), service_.pools[pool].replicas, pool);
        }
        hooks_.ran = [this, pool_of, others = hooks_.ran](std::uint32_t replica, const Batch& batch,
                                                          const EngineState& state, SimTime planned, SimTime now) {
            PhaseTime& phase = totals_.phases[replica < pool_of.size() ? pool_of[replica] : pool_of.back()];
            const double seconds = (now - planned).seconds();
            phase.batch_s += seconds;
            phase.prompt_s += seconds * prompt_share(batch);
            if (others) {
                others(replica, batch, state, planned, now);
            }
        };
        hooks_.served = [this, others = hooks_.served](const Sequence& sequence, const RequestOutcome* outcome) {
            if (outcome != nullptr) {
                totals_.prompt_tokens += sequence.prompt;
                totals_.answer_tokens += sequence.generated;
            }
            if (others) {
                others(sequence, outcome);
            }
        };
    }

    RequestSource* make_source() {
        const std::string trace = spec_.requests.trace.empty() ? "" : scenario_.file(spec_.requests.trace);
        RequestsSpec requests = spec_.requests;
        if (end_ != LoadEnd::count) {
            requests.count = kEndlessRequests;
        }
        requests_ = make_requests(requests, trace, static_cast<std::uint64_t>(scenario_.seed));
        return requests_.get();
    }

    /// Where the replicas of a pool are.
    struct PoolPlace {
        std::uint32_t first_gpu;
        std::uint32_t node;
    };

    // On the nodes of its group, or on those that follow the last pool's.
    [[nodiscard]] PoolPlace place_of(const RunContext& context, const PhaseSpec& phase, bool again) {
        const std::int64_t replicas = engine_.pool_replicas(phase);
        const Fabric& fabric = context.fabric;
        const std::vector<NodeGroup>& groups = fabric.shape().groups;
        const std::uint32_t per_node = fabric.shape().gpus_per_node;
        const auto needed = static_cast<std::uint32_t>(replicas * phase.ranks());
        std::uint32_t end = context.placement.gpus();
        std::uint32_t group = 0;
        std::uint32_t base = 0;
        std::string where = "the cluster";
        if (!groups.empty() && context.placement.gpus() != fabric.gpus()) {
            throw InfeasibleError("serving on some nodes of a cluster of groups is not simulated: give it all of them");
        }
        while (!phase.group.empty() && groups.at(group).name != phase.group) {
            ++group;
        }
        if (!groups.empty()) {
            // Without a name: the first group with room for them.
            const auto room = [&](std::uint32_t g) {
                const auto next = next_gpus_.try_emplace(g, groups[g].first * per_node).first->second;
                return (groups[g].first + groups[g].nodes) * per_node - next;
            };
            while (phase.group.empty() && group + 1 < groups.size() && room(group) < needed) {
                ++group;
            }
            (void)room(group);
            base = groups[group].first * per_node;
            end = base + groups[group].nodes * per_node;
            where = fmt::format("group '{}'", groups[group].name);
        }
        std::uint32_t& next = next_gpus_[group];
        const std::uint32_t first = again ? base : base + pool_begin(phase, next - base, per_node);
        if (first + needed > end) {
            throw InfeasibleError(fmt::format("{} replicas of {} ranks need {} GPUs, but {} has {}", replicas,
                                              phase.ranks(), first + needed - base, where, end - base),
                                  ErrorCode::too_few_gpus);
        }
        next = first + needed;
        totals_.pool_gpus = again ? totals_.pool_gpus : totals_.pool_gpus + needed;
        return {first, fabric.node_of(context.placement.gpu(first))};
    }

    void add_pool(const RunContext& context, Role role, const PhaseSpec& spec) {
        const PhaseSpec* phase = &spec;
        // On the GPUs of the other phase.
        const bool again = (engine_.same_devices || engine_.planner.given) && role == Role::decode;
        const PoolPlace place = place_of(context, *phase, again);
        const NodeSpec& node = node_at(scenario_.cluster, place.node);
        const DeviceSpec& gpu = phase->other_device ? phase->device : node.gpu;
        const CostModel* device = device_at(gpu, phase->clock);
        spread_ = std::max(spread_, products_spread(*device, spec_.model));
        check_spec(*phase, spec_.model);
        const std::int64_t ranks = phase->ranks();
        PoolSpec pool;
        static_cast<ReplicaPlan&>(pool) = *phase;
        pool.role = role;
        pool.replicas = engine_.pool_replicas(*phase);
        pool.limits = limits_of(engine_, *phase, spec_.model, gpu);
        if (engine_.same_devices && role == Role::prefill) {
            pool.limits.ahead = 1 + pool.limits.draft_tokens;
        }
        const double beside = std::max(1.0, static_cast<double>(node.gpus) / static_cast<double>(ranks));
        pool.experts = experts_of(engine_, *phase, spec_.model, gpu, node.has_host ? &node.host : nullptr,
                                  std::min(beside, static_cast<double>(phase->replicas)), spec_.engine_mark);
        pool.device = &gpu;
        pool.first_gpu = place.first_gpu;
        pool.gpus = static_cast<std::uint32_t>(ranks);
        pool.limits.seed = static_cast<std::uint64_t>(scenario_.seed);
        const bool latent = spec_.model.latent.kv_rank > 0;  // keys and values are one vector
        pool.swap = {engine_.swap_call,
                     static_cast<double>((latent ? 1 : 2) * stage_layers(spec_.model.layers, 0, phase->pipeline))};
        pool.plans_ahead = engine_.software.overlap && phase->pipeline == 1;
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
        pool.scaling.least = std::min(pool.scaling.least, static_cast<std::uint32_t>(phase->replicas));
        totals_.scales = totals_.scales || phase->scales;
        pool.starts = phase->scales || engine_.faults.given;
        for (std::int64_t stage = 0; stage < phase->pipeline; ++stage) {
            pool.start.weight_bytes += weight_bytes(spec_.model, engine_.quantisation(gpu), *phase, stage) *
                                       static_cast<double>(phase->stage_ranks());
        }
        peers_ = peers_ || (pool.starts && phase->start.weights == WeightsFrom::peer);
        places_.push_back({phase, &gpu, &node, place.first_gpu});
        totals_.devices.push_back({&gpu, static_cast<double>(phase->replicas * ranks), phase->clock});
        totals_.scaled_clock = totals_.scaled_clock || phase->clock != 1;
        totals_.price +=
            again && !engine_.planner.given ? 0 : gpu.price.value * static_cast<double>(phase->replicas * ranks);
        totals_.priced = totals_.priced && gpu.price.value > 0;
        totals_.piped = totals_.piped || phase->pipeline > 1;
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
        const CostModel* device = &context_.models.device(gpu, spec_.compute, engine_.software.kernels);
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
        return {.model = spec_.model,
                .device = device,
                .fabric = fabric,
                .collectives = context_.models.collectives(*pool.node, scenario_.network.collectives),
                .paths = scenario_.network.path_choice(),
                .gpus = gpus,
                .quantisation = engine_.quantisation(*pool.gpu),
                .groups = static_cast<std::uint32_t>(phase->groups),
                .expert = static_cast<std::uint32_t>(phase->expert),
                .redundant_experts = static_cast<std::uint32_t>(phase->redundant_experts),
                .expert_load = engine_.expert_load,
                .dispatch = engine_.dispatch,
                .affinity = engine_.affinity,
                .block = static_cast<double>(engine_.block),
                .host = host,
                .step_overhead = stage == 0 ? engine_.step_overhead : 0,
                .sequence_overhead = stage == 0 ? engine_.sequence_overhead : 0,
                .layers = stage_layers(spec_.model.layers, stage, phase->pipeline),
                .embedding = stage == 0,
                .head = stage + 1 == phase->pipeline,
                .adapters = engine_.adapters,
                .partitioned = engine_.same_devices ? pool.gpu : nullptr,
                .units = phase->units,
                .spec = pool.gpu,
                .compression = engine_.compression,
                .draft_tokens = engine_.speculation.tokens,
                .draft_layers = engine_.speculation.layers,
                .nano_batches = engine_.nano_batches,
                .streamed = engine_.streamed,
                .sums = engine_.sums,
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
        if (!engine_.faults.given) {
            return;
        }
        service_.faults.shape = service_shape(scenario_);
        service_.faults.timed = timed_faults(engine_.faults.events, service_.faults.shape);
        if (!engine_.faults.trace.empty()) {
            const auto trace = read_fault_trace(scenario_.file(engine_.faults.trace), service_.faults.shape);
            service_.faults.timed.insert(service_.faults.timed.end(), trace.begin(), trace.end());
        }
        service_.impaired = [this](std::size_t pool, std::size_t stage, double clock, double nic) -> StepCost& {
            return impaired_step(pool, stage, clock, nic);
        };
    }

    void describe_service(const RunContext& context) {
        static_cast<ServicePlan&>(service_) = engine_;
        service_.prefill_first = static_cast<std::uint32_t>(engine_.prefill.replicas);
        service_.slo = spec_.slo;
        service_.measure = spec_.measure;
        describe_faults();
        service_.layers = static_cast<std::uint32_t>(spec_.model.layers);
        service_.cache_token_bytes = cache_bytes_per_token(spec_.model, engine_.cache, engine_.compression);
        service_.hidden_bytes = 2 * static_cast<double>(spec_.model.hidden);  // 16 bits
        service_.gpus_per_node = static_cast<std::uint32_t>(scenario_.cluster.node.gpus);
        service_.fabric =
            engine_.split || totals_.piped || engine_.caches_experts || peers_ || over_fabric(engine_.shared)
                ? &context.fabric
                : nullptr;
        check_store(context);
        if (engine_.caches_experts) {
            if (scenario_.cluster.mixed) {
                throw InfeasibleError(
                    "'expert_cache' on a cluster of groups is not simulated: give it nodes of one kind");
            }
            service_.host = &scenario_.cluster.node.host;
            service_.device_link = scenario_.cluster.node.pcie_rate();
        }
        service_.paths = scenario_.network.path_choice();
        service_.timeout = spec_.requests.timeout;
        service_.pause = spec_.requests.pause;
        service_.concurrency = spec_.requests.concurrency;
        if (end_ == LoadEnd::time) {
            service_.load_to = spec_.measure.to > 0 ? spec_.measure.to : spec_.requests.period;
            service_.measure.to = service_.load_to;
        }
        service_.steady = options_.steady;
        service_.steady.wanted = end_ == LoadEnd::steady;
        service_.seed = static_cast<std::uint64_t>(scenario_.seed);
        service_.timeline = options_.timeline;
        service_.placement = context.placement;
        const bool outside = spec_.policies.given() || engine_.router.make()->needs().outside ||
                             engine_.any_phase([](const PhaseSpec& phase) { return phase.scheduler.needs().outside; });
        if (outside) {
            policies_ = std::make_unique<outside::Policies>(
                [this](const std::string& path) { return scenario_.file(path); }, spec_.policies);
            service_.policies = policies_.get();
        }
    }

    // The node that a store is on is one of those that the service has.
    void check_store(const RunContext& context) const {
        const std::int64_t nodes = context.placement.gpus() / service_.gpus_per_node;
        if (engine_.shared.node >= nodes) {
            throw ConfigError({spec_.engine_mark.error(fmt::format(
                "'kv.prefix.shared.node' is {}, and there are nodes 0 to {}", engine_.shared.node, nodes - 1))});
        }
    }

    const RunContext context_;
    const Scenario& scenario_;
    const ServingKind& spec_;
    const EngineSpec& engine_;
    const RunOptions& options_;
    LoadEnd end_;
    std::unique_ptr<outside::Policies> policies_;
    ServiceSpec service_;
    ServingTotals totals_{scenario_, service_, {}};
    ServiceHooks hooks_;
    std::vector<std::unique_ptr<CostModel>> capped_;  ///< devices at another clock
    std::vector<std::unique_ptr<StepCost>> costs_;
    std::vector<PoolModel> places_;  ///< by pool
    std::map<std::tuple<std::size_t, std::size_t, double, double>, std::unique_ptr<StepCost>> impaired_;
    std::vector<std::unique_ptr<Fabric>> fabrics_;  ///< with slow NICs
    double spread_ = 0;                             ///< of the products of the device that is known least
    std::unique_ptr<RequestSource> requests_;
    std::vector<RequestRow> rows_;
    std::unique_ptr<ServiceRun> run_;
    std::map<std::uint32_t, std::uint32_t> next_gpus_;  ///< by group: the first GPU that no pool has
    bool peers_ = false;                                ///< weights come from them
};

// Whether anything of a service goes between nodes.
bool crosses_nodes(const EngineSpec& engine, std::int64_t gpus_per_node) {
    const PhaseSpec& one = engine.mixed;
    return engine.split ? !engine.same_devices
                        : one.pipeline > 1 || one.stage_ranks() > gpus_per_node ||
                              one.start.weights == WeightsFrom::peer || over_fabric(engine.shared);
}

// What of the engine or its faults has an effect by the model, the requests or the cluster.
void describe_needs(Fields& fields, const ServingKind& s, const ClusterSpec& cluster) {
    const EngineSpec& engine = s.engine;
    const bool experts = s.model.experts.count > 0;
    constexpr const char* kExperts = "a model with experts";
    for (const char* key : {"experts", "expert_load", "expert", "redundant_experts", "prefill.expert",
                            "prefill.redundant_experts", "decode.expert", "decode.redundant_experts"}) {
        fields.needs(fmt::format("engine.{}", key), experts, kExperts);
    }
    const bool groups = engine.any_phase([](const PhaseSpec& phase) { return phase.groups > 1; });
    fields.needs("engine.dispatch", experts && groups, "experts on several attention groups (groups)");
    fields.needs("engine.scaling", experts && engine.experts.value_or(engine.weights) == Precision::fp8,
                 "a model with experts in fp8 (experts or weights)");
    for (const char* key : {"model.window", "model.full_every", "model.window_state"}) {
        fields.needs(key, s.model.latent.kv_rank == 0 || engine.software.memory.hybrid || s.model.linear.given(),
                     "attention that is not latent, or an engine with pages by kind of layer (memory.hybrid), where "
                     "requests are served");
    }
    fields.needs("slo.session", (s.requests.turns > 0 && s.requests.mix.empty()) || !s.requests.trace.empty(),
                 "conversations whose questions wait for answers (requests.turns without a mix, or a trace of them)");
    const bool fair = engine.any_phase([](const PhaseSpec& phase) { return phase.scheduler.needs().sessions; });
    fields.needs("requests.sessions", fair || s.requests.conversations || engine.router.make()->needs().sessions,
                 "conversations, or a router or scheduler that goes by sessions (router: session, scheduler: fair)",
                 Unmet::noted);
    fields.needs("compute.model", !engine.has_step_cost, "prices of kernels in place of engine.step_cost",
                 Unmet::noted);
    fields.needs("policies.autoscaler", engine.any_phase([](const PhaseSpec& phase) { return phase.scales; }),
                 "replicas whose number follows the load (autoscale)");
    for (const char* key : {"engine.autoscale.rule", "engine.prefill.autoscale.rule", "engine.decode.autoscale.rule"}) {
        fields.needs(key, !s.policies.scales, "a rule of Orrery's own in place of policies.autoscaler");
    }
    const ServiceFaults& faults = engine.faults;
    const auto meets = [&](bool fits, const auto& is) { return fits || !faults.trace.empty() || !faults.meets(is); };
    const bool storage = engine.any_phase([](const PhaseSpec& phase) { return phase.start.storage > 0; });
    fields.needs("faults",
                 meets(storage,
                       [](FaultKind kind, const std::string& where, Component component) {
                           return kind == FaultKind::outage || where == "storage" || component == Component::storage;
                       }),
                 "replicas that load over start.storage, where storage fails");
    fields.needs("faults",
                 meets(crosses_nodes(engine, cluster.node.gpus),
                       [](FaultKind kind, const std::string& where, Component component) {
                           const bool link = where.rfind("nic", 0) == 0 || component == Component::nic ||
                                             component == Component::link;
                           return link && kind != FaultKind::fail_stop;
                       }),
                 "traffic between nodes, where links fail (KV transfers, pipelines, stages over several nodes, weights "
                 "of peers)");
    fields.needs("faults",
                 meets(!engine.has_step_cost,
                       [](FaultKind kind, const std::string&, Component) { return kind == FaultKind::power_cap; }),
                 "prices of kernels in place of step_cost, where power is capped");
}

}  // namespace

void ServingKind::describe(Fields& fields, const Scenario& whole) {
    fields.section({"model", "model that is served: a preset or its dimensions", true}, kModelPresets,
                   [&](Fields& inner) { orrery::describe(inner, model); });
    fields.section({"engine", "replicas, their plan, scheduler and cache"},
                   [&](Fields& inner) { orrery::describe(inner, engine); });
    fields.section({"requests", "requests that clients send"},
                   [&](Fields& inner) { orrery::describe(inner, requests); });
    fields.section({"slo", "latency limits of goodput"}, [&](Fields& inner) { orrery::describe(inner, slo); });
    fields.section({"measure", "time window that metrics cover"},
                   [&](Fields& inner) { orrery::describe(inner, measure); });
    orrery::describe(fields, engine.faults);
    fields.section({"policies", "user-defined policies of the fleet: autoscaler and admission"},
                   [&](Fields& inner) { policies.describe(inner); });
    describe_compute(fields, compute);
    describe_needs(fields, *this, whole.cluster);
}

namespace {

void check_faults_of_service(const YamlNode& root, const Scenario& scenario, const ServiceFaults& faults,
                             std::vector<Diagnostic>& errors) {
    const YamlNode* node = root.find("faults");
    if (node == nullptr || !faults.given || names_lines_of(errors, root, "cluster") ||
        names_lines_of(errors, root, "engine")) {
        return;  // places are those of the service
    }
    try {
        check_spec(*node, faults, service_shape(scenario), errors);
    } catch (const Error&) {
        return;  // said where the cluster is read
    }
}

// What of a model is trained only.
void check_served_model(const YamlNode& root, const ModelSpec& model, std::vector<Diagnostic>& errors) {
    if (model.hybrid() && model.layers_with(LayerPart::attention) == 0) {
        errors.push_back(mark_of(root, "model.pattern")
                             .error("a pattern without attention (*) is trained and not served here: sequences without "
                                    "keys and values fill no cache"));
    }
    if (model.encoder.given()) {
        errors.push_back(mark_of(root, "model.encoder")
                             .error("models with an 'encoder' are trained and not served here: when images are encoded "
                                    "beside prompts and decode steps is not modelled"));
    }
}

}  // namespace

void ServingKind::keep_marks(const YamlNode& root) {
    engine_mark = mark_of(root, "engine");
    requests_mark = mark_of(root, "requests");
}

std::vector<DeviceSpec*> ServingKind::own_devices() {
    std::vector<DeviceSpec*> out;
    for (PhaseSpec* phase : {&engine.mixed, &engine.prefill, &engine.decode}) {
        if (phase->other_device) {
            out.push_back(&phase->device);
        }
    }
    return out;
}

std::vector<std::string> ServingKind::refusals(const FaultReach& reach) const {
    if (reach.processors || engine.faults.given) {
        return {"serves: faults of its GPUs, and all where it has some, stand in its own 'faults'"};
    }
    return {};
}

void ServingKind::check(const YamlNode& root, const DataDirectory&, Scenario& whole, std::vector<Diagnostic>& errors) {
    check_faults_of_service(root, whole, engine.faults, errors);
    const MeasureSpec& window = measure;
    if (window.to > 0 && window.from >= window.to) {
        const YamlNode* section = root.find("measure");
        const YamlNode* from = section != nullptr ? section->find("from") : nullptr;
        errors.push_back((from != nullptr ? from : &root)
                             ->mark.error(fmt::format("'measure' is from {} to {}: it must end after it begins",
                                                      pretty_quantity(window.from, Dimension::time),
                                                      pretty_quantity(window.to, Dimension::time))));
    }
    const auto check_pool = [&](const std::vector<const char*>& path, const PhaseSpec& phase) {
        if (!phase.group.empty()) {
            check_group_names(root, path, {phase.group}, whole, errors);
        }
    };
    check_pool({"engine", "group"}, engine.mixed);
    check_pool({"engine", "prefill", "group"}, engine.prefill);
    check_pool({"engine", "decode", "group"}, engine.decode);
    check_model(root, model, errors);
    check_served_model(root, model, errors);
    const bool part = root.find("orrery") == nullptr;  // of an algorithm that says itself how many answers a prompt has
    if (engine.router.make()->needs().sessions && !part && requests.trace.empty() && requests.mix.empty() &&
        requests.sessions <= 1 && requests.samples <= 1 && requests.turns <= 0 &&
        requests.arrivals != ArrivalKind::closed) {
        errors.push_back(mark_of(root, "engine.router")
                             .error("'engine.router' has no effect without requests of several sessions ('sessions', "
                                    "'turns', 'samples', a 'mix' or a trace): one replica would have all",
                                    ErrorCode::no_effect));
    }
    for (const std::string& problem : problems_of(requests)) {
        errors.push_back(requests_mark.error(problem));
    }
    for (const std::string& problem : problems_of(engine, requests, model)) {
        errors.push_back(engine_mark.error(problem));
    }
}

// Tokens of generated requests, on average; 0 of a trace.
static double mean_tokens(const RequestsSpec& requests, const LengthSpec& lengths, LengthSpec ClientSpec::*own) {
    const auto mean = [](const LengthSpec& one) { return std::min(one.mean, static_cast<double>(one.most)); };
    if (!requests.trace.empty()) {
        return 0;
    }
    double tokens = 0;
    double shares = 0;
    for (const ClientSpec& client : requests.mix) {
        tokens += client.share * mean(client.*own);
        shares += client.share;
    }
    return requests.mix.empty() ? mean(lengths) : tokens / shares;
}

// Sequences that a replica can decode at a time, where they wait for it.
static double widest_batch(const Scenario& whole, const ServingKind& s, double tokens) {
    const PhaseSpec& phase = s.engine.split ? s.engine.decode : s.engine.mixed;
    double most = static_cast<double>(phase.scheduler.max_sequences);
    if (!s.engine.has_step_cost) {
        try {
            const DeviceSpec& device = phase.other_device ? phase.device : whole.cluster.node.gpu;
            check_spec(phase, s.model);
            const EngineLimits limits = limits_of(s.engine, phase, s.model, device);
            most = std::min(most, static_cast<double>(limits.blocks) * limits.block / std::max(1.0, tokens));
        } catch (const InfeasibleError&) {
            // The run says what does not fit.
        }
    }
    return std::max(1.0, most);
}

RunCost ServingKind::cost(const Scenario& s) const {
    constexpr double kGenerated = 20'000;  // until the steady state is known: a few thousand to 200,000
    const double all = requests.trace.empty() ? kGenerated : size_of(s.file(requests.trace)) / kBytesPerLine;
    const double count = requests.count > 0 ? static_cast<double>(requests.count) : all * requests.sample;
    RunCost out = cost_of(count, kRequest, "requests");
    const double each = mean_tokens(requests, requests.output, &ClientSpec::output);
    // On average a sequence has half of its output in the cache.
    const double batch = std::min(count, widest_batch(s, *this, each / 2));
    const double decoding = count * each * (kToken + kIteration / batch);
    if (decoding > out.seconds) {
        out.what += fmt::format(" of {:.2g} output tokens each", each);
    }
    out.seconds += decoding;
    if (s.network.by_packet() && engine.split && !engine.same_devices) {
        const double prompt = mean_tokens(requests, requests.prompt, &ClientSpec::prompt);
        const double cached = prompt * cache_bytes_per_token(model, engine.cache, engine.compression);
        const RunCost transfers = cost_of(kHops * count * cached / s.network.packets.mtu, kPacketHop, "packet-hops");
        out.seconds += transfers.seconds;
        out.what += ", " + transfers.what;
    }
    return out;
}

std::vector<std::string*> ServingKind::own_files() {
    std::vector<std::string*> out = {&requests.trace, &engine.faults.trace};
    for (std::string* file :
         {engine.router.file(), engine.mixed.scheduler.policy.file(), engine.prefill.scheduler.policy.file(),
          engine.decode.scheduler.policy.file(), policies.scales ? policies.autoscaler.file() : nullptr,
          policies.admits ? policies.admission.file() : nullptr}) {
        if (file != nullptr) {
            out.push_back(file);
        }
    }
    return out;
}

std::unique_ptr<ScenarioRun> ServingKind::prepare(const RunContext& context) const {
    return std::make_unique<ServingWork>(context);
}

static constexpr const char* kServingCards[] = {"requests_per_s", "output_tokens_per_s",         "slo_attainment",
                                                "goodput_rps",    "cost_per_million_tokens_usd", "energy_per_token_j",
                                                "busy_fraction",  "cache_peak_fraction"};

const KindRow ServingKind::kRow = {
    .name = "serving",
    .headline = "e2e_s.mean",
    .cards = kServingCards,
    .drawing = TimelineDrawing::none,
    .network = {.library = true, .sends = true},
    .make = make_kind<ServingKind>,
};

}  // namespace orrery::driver
