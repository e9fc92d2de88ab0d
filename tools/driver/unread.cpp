#include "tools/driver/unread.hpp"

#include "sim/config/given.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <tuple>
#include <utility>

namespace orrery::inline driver {

namespace {

// The value at a path such as "faults.processes.0.lasts", or what is there of it.
const YamlNode& nearest_at(const YamlNode& root, const std::string& path) {
    const YamlNode* at = &root;
    for (std::size_t from = 0; from <= path.size();) {
        const std::size_t end = std::min(path.find('.', from), path.size());
        const std::string key = path.substr(from, end - from);
        const YamlNode* next = at->find(key);
        if (at->kind == YamlNode::Kind::sequence) {
            std::size_t index = at->items.size();  // a list in place of a map has no such key
            (void)std::from_chars(key.data(), key.data() + key.size(), index);
            next = index < at->items.size() ? &at->items[index] : nullptr;
        }
        if (next == nullptr) {
            break;
        }
        at = next;
        from = end + 1;
    }
    return *at;
}

// Whether the scenario itself says something at a path; what a preset says does not stand in it.
bool stands(const YamlNode& root, const std::string& path) {
    const std::size_t last = path.rfind('.');
    const YamlNode& parent = nearest_at(root, path.substr(0, last));
    const YamlNode& at = nearest_at(root, path);
    return &at != &parent && parent.find(path.substr(last + 1)) == &at && at.kind != YamlNode::Kind::null;
}

bool is_override(const YamlNode& node) {
    return node.mark.file && node.mark.file->rfind("--set", 0) == 0;
}

bool has_override(const YamlNode& node) {
    return is_override(node) || std::any_of(node.items.begin(), node.items.end(), has_override) ||
           std::any_of(node.entries.begin(), node.entries.end(),
                       [](const YamlNode::Entry& entry) { return has_override(entry.value); });
}

class Unread {
  public:
    Unread(const YamlNode& root, std::vector<Diagnostic>& errors)
        : root_(root), errors_(errors), overridden_(has_override(root)) {}

    /// `given`: the value differs from its default. `reader`: what reads it, and is not there.
    void refuse(bool given, const std::string& path, bool read, const char* reader) {
        if (!given || read) {
            return;
        }
        // What an override has left without a meaning stays: a trace in place of a generator, another kind of arrivals.
        if (const YamlNode& at = nearest_at(root_, path); !overridden_ || is_override(at)) {
            errors_.push_back(at.mark.error(fmt::format("'{}' changes nothing: it needs {}", path, reader)));
        }
    }

    [[nodiscard]] const YamlNode& root() const { return root_; }

  private:
    const YamlNode& root_;
    std::vector<Diagnostic>& errors_;
    bool overridden_;
};

void refuse_requests(Unread& unread, const RequestsSpec& spec) {
    const RequestsSpec usual;
    const auto lengths = [](const LengthSpec& a, const LengthSpec& b) {
        return a.kind != b.kind || a.mean != b.mean || a.spread != b.spread || a.most != b.most;
    };
    const bool made = spec.trace.empty();
    const bool mixed = !spec.mix.empty();
    const bool closed = spec.arrivals == ArrivalKind::closed;
    const bool timed = made && !closed && (mixed || spec.arrivals != ArrivalKind::at_once);
    unread.refuse(spec.clients > 0, "requests.clients", closed, "arrivals: closed");
    unread.refuse(spec.arrivals != usual.arrivals && !closed, "requests.arrivals", made && !mixed,
                  "generated requests of one kind: a trace says when they come, and clients of a 'mix' have gaps of "
                  "their own 'burstiness'");
    unread.refuse(spec.rate != usual.rate, "requests.rate", timed,
                  "generated requests that come by it: a trace, a closed loop and arrivals at once have none");
    unread.refuse(spec.burstiness != usual.burstiness, "requests.burstiness",
                  timed && !mixed && spec.arrivals == ArrivalKind::gamma,
                  "arrivals: gamma (clients of a 'mix' have their own)");
    unread.refuse(spec.swing > 0, "requests.swing", timed, "generated requests that come at a rate");
    unread.refuse(spec.period != usual.period, "requests.period", spec.swing > 0, "a 'swing'");
    for (const auto& [own, other, path] : {std::tuple{&spec.prompt, &usual.prompt, "requests.prompt"},
                                           {&spec.output, &usual.output, "requests.output"}}) {
        unread.refuse(lengths(*own, *other), path, made && !mixed,
                      "generated requests: a trace and the clients of a 'mix' have lengths of their own");
        unread.refuse(own->spread != other->spread, std::string(path) + ".spread", own->kind != LengthKind::fixed,
                      "kind: uniform or lognormal");
    }
    unread.refuse(spec.longest > 0, "requests.longest", made, "generated requests");
    unread.refuse(spec.common > 0, "requests.common", made, "generated requests");
    unread.refuse(spec.common_kinds > 1, "requests.common_kinds", spec.common > 0, "'common' tokens");
    unread.refuse(spec.adapter_skew > 0, "requests.adapter_skew", spec.adapters > 0, "'adapters'");
}

// Of kinds of faults that a service may meet; of a trace any may be in it.
bool meets(const ServiceFaults& faults, const std::function<bool(FaultKind, const std::string& where, Component)>& is) {
    return !faults.trace.empty() || std::any_of(faults.events.begin(), faults.events.end(), [&](const EventSpec& one) {
        return is(one.kind, one.where, Component::host);
    }) || std::any_of(faults.processes.begin(), faults.processes.end(), [&](const ProcessSpec& one) {
        return is(one.kind, "", one.component);
    });
}

bool starts_replicas(const ServiceFaults& faults) {
    return meets(faults, [](FaultKind kind, const std::string&, Component) {
        return kind == FaultKind::fail_stop || kind == FaultKind::hang || kind == FaultKind::preemption ||
               kind == FaultKind::link_down || kind == FaultKind::link_flap || kind == FaultKind::corruption;
    });
}

void refuse_processes(Unread& unread, const std::vector<ProcessSpec>& processes) {
    for (std::size_t i = 0; i < processes.size(); ++i) {
        const ProcessSpec& process = processes[i];
        const std::string at = fmt::format("faults.processes.{}.", i);
        unread.refuse(process.bad_share > 0, at + "bad_share", process.bad_factor > 1, "a 'bad_factor' above 1");
        unread.refuse(process.bad_factor > 1, at + "bad_factor", process.bad_share > 0, "a 'bad_share' above 0 %");
    }
}

// Whether anything of a service goes between nodes.
bool crosses(const EngineSpec& engine, std::int64_t gpus_per_node) {
    const auto phase = [&](const PhaseSpec& one) {
        return one.pipeline > 1 || one.stage_ranks() > gpus_per_node || one.start.weights == WeightsFrom::peer;
    };
    return engine.split ? !engine.same_devices : phase(engine.mixed);
}

void refuse_starts(Unread& unread, const EngineSpec& engine) {
    const bool restarts = starts_replicas(engine.faults);
    const std::tuple<const PhaseSpec*, bool, std::string> phases[] = {
        {&engine.mixed, !engine.split, "engine.start"},
        {&engine.prefill, engine.split, "engine.prefill.start"},
        {&engine.decode, engine.split, "engine.decode.start"}};
    for (const auto& [phase, used, path] : phases) {
        unread.refuse(phase->starts_given, path, used && (phase->scales || restarts),
                      "replicas that start: 'autoscale', or 'faults' that stop some");
        const bool registry = phase->start.registry > 0;
        unread.refuse(phase->start.image > 0, path + ".image", registry, "the rate of 'registry'");
        unread.refuse(registry, path + ".registry", phase->start.image > 0, "an 'image'");
        const bool fresh = phase->scales || engine.faults.recovery.spares > 0;
        unread.refuse(phase->start.provision_s > 0, path + ".provision", fresh,
                      "new machines: 'autoscale' or 'spares'");
        unread.refuse(phase->start.image > 0, path + ".image", fresh, "new machines: 'autoscale' or 'spares'");
    }
}

void refuse_service_faults(Unread& unread, const EngineSpec& engine, std::int64_t gpus_per_node) {
    const ServiceFaults& faults = engine.faults;
    refuse_processes(unread, faults.processes);
    const ServiceRecovery usual;
    const auto kinds = [&](std::initializer_list<FaultKind> wanted) {
        return meets(faults, [&](FaultKind kind, const std::string&, Component) {
            return std::find(wanted.begin(), wanted.end(), kind) != wanted.end();
        });
    };
    const bool stops = starts_replicas(faults);
    // What strikes a replica or all of them is of their processes.
    const bool machines = meets(faults, [](FaultKind kind, const std::string& where, Component component) {
        const bool process = where.rfind("replica", 0) == 0 || where == "job" || component == Component::replica ||
                             component == Component::software;
        return !process && (kind == FaultKind::fail_stop || kind == FaultKind::hang || kind == FaultKind::preemption ||
                            kind == FaultKind::corruption);
    });
    const bool given = faults.given;
    unread.refuse(given && faults.recovery.detection_s > 0, "faults.recovery.detection",
                  kinds({FaultKind::fail_stop, FaultKind::preemption}), "faults that stop replicas");
    unread.refuse(given && faults.recovery.timeout_s != usual.timeout_s, "faults.recovery.timeout",
                  kinds({FaultKind::hang, FaultKind::link_down, FaultKind::link_flap}),
                  "faults that let replicas hang");
    unread.refuse(given && faults.recovery.finds, "faults.recovery.corruption", kinds({FaultKind::corruption}),
                  "a 'corruption'");
    unread.refuse(given && faults.recovery.notice_s > 0, "faults.recovery.notice", kinds({FaultKind::preemption}),
                  "a 'preemption'");
    unread.refuse(given && faults.recovery.repair_s > 0, "faults.recovery.repair",
                  machines || kinds({FaultKind::link_down}), "machines or links that break");
    unread.refuse(given && faults.recovery.exponential, "faults.recovery.exponential", faults.recovery.repair_s > 0,
                  "a 'repair'");
    unread.refuse(given && faults.recovery.spares > 0, "faults.recovery.spares", machines, "machines that break");
    unread.refuse(given && faults.retries != ServiceFaults().retries, "faults.retries", stops,
                  "faults that stop replicas");
    unread.refuse(given && faults.budgeted, "faults.retry_budget", stops && faults.retries > 0,
                  "'retries' of requests whose replica stopped");
    unread.refuse(given && stands(unread.root(), "faults.kv.rate"), "faults.kv.rate", faults.restores,
                  "kind: restored");
    unread.refuse(given && faults.restores, "faults.kv", stops && faults.retries > 0,
                  "'retries' of requests whose replica stopped");
    const bool storage =
        engine.split ? engine.prefill.start.storage + engine.decode.start.storage > 0 : engine.mixed.start.storage > 0;
    const bool of_storage = meets(faults, [](FaultKind kind, const std::string& where, Component component) {
        return kind == FaultKind::outage || where == "storage" || component == Component::storage;
    });
    unread.refuse(given && faults.trace.empty() && of_storage, "faults", storage,
                  "replicas that load over 'start.storage', where storage fails");
    const bool of_links = meets(faults, [](FaultKind kind, const std::string& where, Component component) {
        const bool link = where.rfind("nic", 0) == 0 || component == Component::nic || component == Component::link;
        return link && kind != FaultKind::fail_stop;
    });
    unread.refuse(
        given && faults.trace.empty() && of_links, "faults", crosses(engine, gpus_per_node),
        "traffic between nodes, where links fail: KV transfers, pipelines, stages over several nodes, weights "
        "of peers");
    unread.refuse(given && faults.trace.empty() && kinds({FaultKind::power_cap}), "faults", !engine.has_step_cost,
                  "prices of kernels in place of 'step_cost', where power is capped");
}

}  // namespace

void refuse_unread_model(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors) {
    Unread unread(root, errors);
    const ModelSpec& model = scenario.model;
    const LatentSpec usual;
    const char* latent = "latent attention: a 'kv_rank'";
    unread.refuse(model.full_every > 0, "model.full_every", model.window > 0, "a 'window'");
    const bool positions = model.latent.rotary > 0;
    unread.refuse(model.rotary != positions && stands(root, "model.rotary"), "model.rotary", model.latent.kv_rank == 0,
                  "attention that is not latent, whose part with position is 'latent.rotary'");
    unread.refuse(model.latent.q_rank > 0, "model.latent.q_rank", model.latent.kv_rank > 0, latent);
    unread.refuse(model.latent.rotary != usual.rotary, "model.latent.rotary", model.latent.kv_rank > 0, latent);
    unread.refuse(stands(root, "model.latent.value_dim"), "model.latent.value_dim", model.latent.kv_rank > 0, latent);
    for (const char* key :
         {"topk", "ffn", "shared", "dense_layers", "gate", "skewed", "every", "groups", "group_topk"}) {
        const std::string path = fmt::format("model.experts.{}", key);
        unread.refuse(stands(root, path), path, model.experts.count > 0, "experts: a 'count'");
    }
    unread.refuse(model.experts.group_topk > 0, "model.experts.group_topk", model.experts.groups > 0,
                  "'groups' of experts");
    unread.refuse(model.experts.groups > 0, "model.experts.groups", model.experts.group_topk > 0,
                  "'group_topk': of how many groups the experts of a token are");
    unread.refuse(stands(root, "model.encoder"), "model.encoder", model.encoder.given(),
                  "an encoder with layers and tokens");
    const bool grouped = model.kv_heads != 0 && model.kv_heads != model.heads;
    unread.refuse(grouped && stands(root, "model.kv_heads"), "model.kv_heads", model.latent.kv_rank == 0,
                  "attention that is not latent, which has one compressed key and value for all heads");
    const bool no_width = model.head_dim == 0 || (model.heads > 0 && model.head_dim == model.hidden / model.heads);
    if (model.heads > 0 && model.hidden % model.heads != 0 && no_width) {
        errors.push_back(nearest_at(root, "model.heads")
                             .mark.error(fmt::format("heads ({}) must divide hidden ({}) where no 'head_dim' is given",
                                                     model.heads, model.hidden)));
    }
    unread.refuse(scenario.software.scan_efficiency.how == kGivenInScenario, "software.scan_efficiency",
                  model.layers_with(LayerPart::state_space) > 0, "a model with state-space layers");
    if (scenario.software.blocking_launches) {
        const YamlNode& at = nearest_at(root, "software.blocking_launches");
        if (scenario.plan.overlaps()) {
            errors.push_back(at.mark.error(
                "with 'software.blocking_launches' nothing overlaps, and the plan has exchanges that do"));
        }
        if (scenario.software.graphs != CudaGraphs::none) {
            errors.push_back(
                at.mark.error("'software.blocking_launches' launches kernels one by one, and no 'graphs' of them"));
        }
    }
    for (const std::vector<ModelProblem>& found : {hybrid_problems(model), encoder_problems(model)}) {
        for (const ModelProblem& problem : found) {
            errors.push_back(nearest_at(root, "model." + problem.key).mark.error(problem.text));
        }
    }
}

void refuse_unread_serving(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors) {
    Unread unread(root, errors);
    if (scenario.model.hybrid()) {
        errors.push_back(
            nearest_at(root, "model.pattern")
                .mark.error("models with a 'pattern' of layers are trained and not served here: what a "
                            "state-space layer keeps of a sequence, and its decode step, are not modelled"));
    }
    if (scenario.model.encoder.given()) {
        errors.push_back(nearest_at(root, "model.encoder")
                             .mark.error("models with an 'encoder' are trained and not served here: when images are "
                                         "encoded beside prompts and decode steps is not modelled"));
    }
    refuse_requests(unread, scenario.requests);
    const EngineSpec& engine = scenario.engine;
    const bool experts = scenario.model.experts.count > 0;
    const char* of_experts = "a model with experts";
    for (const auto& [time, key] :
         {std::pair{&engine.software.request, "request"}, std::pair{&engine.software.frontend, "frontend"},
          std::pair{&engine.software.prompt_token, "prompt_token"}}) {
        unread.refuse(time->how == kGivenInScenario, fmt::format("engine.software.{}", key), !engine.front_end.given,
                      "an engine without 'front_end', which says itself what requests take");
    }
    unread.refuse(engine.experts_differ, "engine.experts", experts, of_experts);
    for (const auto& [phase, path] :
         {std::pair{&engine.mixed, "engine"}, {&engine.prefill, "engine.prefill"}, {&engine.decode, "engine.decode"}}) {
        unread.refuse(phase->redundant_experts > 0, fmt::format("{}.redundant_experts", path), experts, of_experts);
        unread.refuse(phase->expert > 1, fmt::format("{}.expert", path), experts, of_experts);
    }
    for (const char* key : {"replicas", "tensor", "pipeline", "groups", "expert", "redundant_experts", "scheduler",
                            "autoscale", "device", "clock", "units"}) {
        const std::string path = fmt::format("engine.{}", key);
        unread.refuse(stands(root, path), path, !engine.split,
                      "replicas that are all alike: those of 'prefill' and of 'decode' have their own");
    }
    unread.refuse(stands(root, "model.window") && scenario.model.window > 0, "model.window",
                  scenario.model.latent.kv_rank == 0, "attention that is not latent, where requests are served");
    const bool apart = engine.split ? engine.prefill.groups > 1 || engine.decode.groups > 1 : engine.mixed.groups > 1;
    unread.refuse(engine.dispatch != Dispatch::gather, "engine.dispatch", experts && apart,
                  "experts on several attention groups: 'groups'");
    unread.refuse(engine.affinity > 0, "engine.affinity", engine.dispatch == Dispatch::coherent,
                  "tokens that stay with their experts: dispatch: coherent");
    const Precision of_weights = engine.experts_differ ? engine.experts : engine.weights;
    unread.refuse(engine.scaling != Scaling::tensor, "engine.scaling", experts && of_weights == Precision::fp8,
                  "a model with experts in fp8: 'experts' or 'weights'");
    unread.refuse(engine.expert_load != 1, "engine.expert_load", experts, of_experts);
    unread.refuse(engine.transfer != Transfer::whole, "engine.transfer", engine.split && !engine.same_devices,
                  "'prefill' and 'decode' replicas on devices of their own");
    unread.refuse(engine.first_token == FirstToken::decode, "engine.first_token", engine.split && !engine.same_devices,
                  "'prefill' and 'decode' replicas on devices of their own");
    unread.refuse(engine.handover > 0, "engine.handover", engine.split && !engine.same_devices,
                  "'prefill' and 'decode' replicas on devices of their own");
    unread.refuse(engine.of_free, "engine.kv.of_free", engine.blocks == 0, "'memory', and 'blocks' replaces it");
    unread.refuse(engine.nvme_bandwidth > 0, "engine.kv.prefix.nvme_bandwidth", engine.prefix_nvme > 0, "'nvme'");
    unread.refuse(engine.router.name() == std::string("prefix"), "engine.router", engine.prefix_cache,
                  "a prefix cache: 'kv.prefix'");
    const RequestsSpec& asked = scenario.requests;
    const bool part = root.find("orrery") == nullptr;  // of an algorithm that says itself how many answers a prompt has
    unread.refuse(engine.router.name() == std::string("session"), "engine.router",
                  part || !asked.trace.empty() || !asked.mix.empty() || asked.sessions > 1 || asked.samples > 1 ||
                      asked.turns > 0 || asked.arrivals == ArrivalKind::closed,
                  "requests of several sessions: 'sessions', 'turns', 'samples', a 'mix' or a trace (one replica would "
                  "have all)");
    const auto refuse_groups = [&](const PhaseSpec& phase, const char* key) {
        unread.refuse(phase.scheduler.policy.name() == std::string("prefix-groups"), key, engine.prefix_cache,
                      "a prefix cache: 'kv.prefix'");
    };
    refuse_groups(engine.mixed, "engine.scheduler");
    refuse_groups(engine.prefill, "engine.prefill.scheduler");
    refuse_groups(engine.decode, "engine.decode.scheduler");
    const auto swaps = [](const PhaseSpec& phase) {
        return phase.scheduler.policy.name() == "vllm-v0" || phase.scheduler.policy.name() == "priority";
    };
    unread.refuse(engine.host_memory > 0, "engine.kv.host_memory",
                  engine.split ? swaps(engine.prefill) || swaps(engine.decode) : swaps(engine.mixed),
                  "a scheduler that swaps: vllm-v0 or priority");
    unread.refuse(engine.has_swap, "engine.kv.swap", engine.host_memory > 0, "'host_memory' to swap to");
    unread.refuse(engine.compression.iterations != KvCompressionSpec().iterations, "engine.kv.compression.iterations",
                  engine.compression.rank > 0, "low-rank factors: a 'rank'");
    unread.refuse(engine.swap_run > 1, "engine.kv.swap.run", engine.swap_call > 0, "the time of a 'call'");
    refuse_starts(unread, engine);
    refuse_service_faults(unread, engine, scenario.cluster.node.gpus);
}

void refuse_unread_faults(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors) {
    Unread unread(root, errors);
    const FaultsSpec& faults = scenario.faults;
    const RecoverySpec usual;
    refuse_processes(unread, faults.processes);
    const RecoverySpec& recovery = faults.recovery;
    unread.refuse(recovery.borrow_s != usual.borrow_s, "faults.recovery.borrow", recovery.spares > 0, "'spares'");
    unread.refuse(recovery.retire_window_s != usual.retire_window_s, "faults.recovery.repair.retire_window",
                  recovery.retire_after > 0, "'retire_after'");
}

void refuse_unread_collective(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors) {
    Unread unread(root, errors);
    unread.refuse(scenario.collective.slow_factor != CollectiveSpec().slow_factor, "collective.slow_factor",
                  stands(root, "collective.slow_rank"), "a 'slow_rank'");
}

namespace {

// Notes of keys that the scenario itself gives.
class Notes {
  public:
    explicit Notes(const YamlNode& root) : root_(root) {}

    /// `unless`: what would have to be for the key to count.
    void add(bool read, const std::string& path, const std::string& unless) {
        if (!read && stands(root_, path)) {
            out.push_back(fmt::format("'{}' has no effect: it needs {}", path, unless));
        }
    }
    std::vector<std::string> out;

  private:
    const YamlNode& root_;
};

void add_unread_plan(const PlanSpec& plan, Notes& notes) {
    const bool cut = plan.tensor > 1 || plan.expert_tensor() > 1;
    // Ranks with the same weights, of experts or of the rest; layers that are offloaded move by the same keys.
    const bool alike =
        std::max(plan.data * plan.context, plan.expert_data()) > std::max<std::int64_t>(1, plan.outer.workers) ||
        plan.by_layer();
    const std::string more = plan.outer.workers > 1 ? "'data' above the 'workers' of 'outer'" : "'data' above 1";
    const std::tuple<bool, bool, const char*, std::string> degrees[] = {
        {plan.sequence_parallel, cut, "sequence_parallel", "tensor parallelism: 'tensor' above 1"},
        {plan.overlap_tensor != TensorOverlap::none, cut, "overlap.tensor", "tensor parallelism: 'tensor' above 1"},
        {plan.overlap_pipeline, plan.pipeline > 1, "overlap.pipeline",
         "stages that send to each other: 'pipeline' above 1"},
        {plan.overlap_data, alike, "overlap.data", "gradients that are added up over ranks: " + more},
        {plan.zero == 1, alike, "zero", "ranks that have the same weights: " + more}};
    for (const auto& [given, read, key, unless] : degrees) {
        if (given) {
            notes.add(read, fmt::format("plan.{}", key), unless);
        }
    }
    if (plan.overlap_data && plan.zeroth_order.given) {
        notes.add(plan.zero == 3, "plan.overlap.data",
                  "gradients that are added up, which zeroth_order has not, or zero: 3, which gathers weights");
    }
    if (plan.overlap_parameters) {
        notes.add(plan.zero >= 1 && plan.zero < 3 && alike, "plan.overlap.parameters",
                  "weights that are gathered once a step: zero: 1 or 2, and " + more);
    }
    if (plan.spread == Spread::replicas) {
        notes.add(plan.pipeline > 1 && plan.data > 1, "plan.spread",
                  "replicas of several stages: 'pipeline' and 'data' above 1");
    }
    if (plan.recompute == Recompute::selective) {
        notes.add(plan.attention == AttentionKernel::unfused, "plan.recompute",
                  "attention: unfused, as fused attention computes its scores again by itself");
    }
}

void add_unread_transport(const NetworkSpec& network, Notes& notes) {
    const TransportSpec& transport = network.packets.transport;
    const std::string name = transport.policy.name();
    if (!network.by_packet()) {
        return;  // said of all settings of packets
    }
    notes.add(transport.needs().window, "network.transport.window",
              fmt::format("a transport with a window, and {} has none", name));
    if (!transport.needs().acknowledged) {
        for (const char* key : {"transport.recovery", "transport.timeout", "transport.retries", "transport.reorder",
                                "transport.reorder_time", "nic.acknowledge_every", "nic.done_at_sender"}) {
            notes.add(false, fmt::format("network.{}", key),
                      fmt::format("a transport that acknowledges packets, and {} does not", name));
        }
    }
}

// What of a campaign's recovery no fault of its lists asks for; in a trace there may be any.
void add_unread_recovery(const FaultsSpec& faults, Notes& notes) {
    const RecoverySpec& recovery = faults.recovery;
    const RecoverySpec usual;
    const auto strikes = [&](std::initializer_list<FaultKind> kinds) {
        const auto among = [&](const auto& fault) {
            return std::find(kinds.begin(), kinds.end(), fault.kind) != kinds.end();
        };
        return !faults.trace.empty() || std::any_of(faults.events.begin(), faults.events.end(), among) ||
               std::any_of(faults.processes.begin(), faults.processes.end(), among);
    };
    const bool stops = strikes({FaultKind::fail_stop});
    const bool links = strikes({FaultKind::link_down, FaultKind::link_flap, FaultKind::switch_loss});
    const bool missed = stops && recovery.heartbeat_misses > 0;
    const bool notices = recovery.watches && strikes({FaultKind::slow, FaultKind::degraded, FaultKind::link_flap});
    const bool corrupts = strikes({FaultKind::corruption});
    const bool hangs = strikes({FaultKind::hang});
    const bool interrupts = stops || links || notices || corrupts || hangs || strikes({FaultKind::preemption});
    const char* stop = "faults that stop the job";
    const std::tuple<bool, bool, const char*, const char*> keys[] = {
        {recovery.heartbeat_s != usual.heartbeat_s, stops || strikes({FaultKind::preemption}), "heartbeat.delay",
         "a 'fail-stop' or a 'preemption'"},
        {recovery.heartbeat_misses > 0, stops, "heartbeat.misses", "a 'fail-stop'"},
        {recovery.timeout_s != usual.timeout_s, missed || hangs, "timeout",
         "a 'hang', or heartbeats that miss a 'fail-stop'"},
        {recovery.corruption_s != usual.corruption_s, corrupts, "corruption", "a 'corruption'"},
        {recovery.retry_limit_s != usual.retry_limit_s, links, "retry_limit", "links or switches that fail"},
        {recovery.diagnosis_s != usual.diagnosis_s, interrupts, "diagnosis.time", stop},
        {recovery.bisection_s > 0, interrupts, "diagnosis.bisection", stop},
        {recovery.restart_s != usual.restart_s, interrupts, "restart", stop},
        {recovery.queue_s > 0, interrupts, "queue", stop},
        {recovery.standbys > 0, interrupts, "standbys", stop},
        {recovery.pool > 0, interrupts, "pool", stop},
        {recovery.spares > 0, interrupts, "spares", stop},
        {recovery.join_s != usual.join_s, interrupts, "join", stop},
        {recovery.shrinks, interrupts, "shrinks", stop},
        {recovery.automatic.mean_s != usual.automatic.mean_s, interrupts, "repair.automatic.mean", stop},
        {recovery.automatic.fails > 0, interrupts, "repair.automatic.fails", stop},
        {recovery.to_manual > 0, interrupts, "repair.to_manual", stop},
        {recovery.retire_after > 0, interrupts, "repair.retire_after", stop},
        {recovery.watches, notices || hangs, "anomaly", "faults that slow machines, or a 'hang'"},
        {recovery.manual.mean_s != usual.manual.mean_s, recovery.to_manual > 0, "repair.manual.mean", "'to_manual'"},
        {recovery.manual.fails > 0, recovery.to_manual > 0, "repair.manual.fails", "'to_manual'"}};
    for (const auto& [given, read, key, unless] : keys) {
        if (given) {
            notes.add(read, fmt::format("faults.recovery.{}", key), unless);
        }
    }
    const StorageSpec& storage = faults.checkpoint.storage;
    if (storage.keep != StorageSpec().keep) {
        notes.add(corrupts || storage.capacity > 0, "faults.checkpoint.storage.keep",
                  "a 'corruption', which older checkpoints are free of, or a 'capacity'");
    }
}

// Requests of several sessions, where all are served alike.
void add_unread_sessions(const Scenario& scenario, Notes& notes) {
    const EngineSpec& engine = scenario.engine;
    const auto fair = [](const PhaseSpec& phase) { return phase.scheduler.policy.name() == std::string("fair"); };
    const bool asks = engine.router.name() == std::string("session") ||
                      (engine.split ? fair(engine.prefill) || fair(engine.decode) : fair(engine.mixed));
    if (scenario.requests.sessions > 1) {
        notes.add(asks || scenario.requests.conversations, "requests.sessions",
                  "'conversations', router: session or scheduler: fair");
    }
}

// One replica of each kind leaves nothing to choose.
void add_unread_router(const EngineSpec& engine, Notes& notes) {
    const bool several =
        engine.split ? engine.prefill.replicas > 1 || engine.decode.replicas > 1 : engine.mixed.replicas > 1;
    if (engine.router.name() != EngineSpec().router.name()) {
        notes.add(several, "engine.router", "several 'replicas' to choose from");
    }
}

// Batches of these are formed by sequences alone.
void add_unread_budget(const PhaseSpec& phase, const std::string& path, Notes& notes) {
    const std::string name = phase.scheduler.policy.name();
    if (phase.scheduler.token_budget != SchedulerSpec().token_budget) {
        notes.add(name != "static" && name != "orca", path + ".scheduler.token_budget",
                  fmt::format("a scheduler that counts tokens, and {} does not", name));
    }
}

// The rate of a host link is that of its NIC, too.
void add_unread_nics(const ClusterSpec& cluster, bool stripes, Notes& notes) {
    const auto add = [&](const NodeSpec& node, double link, const std::string& path) {
        if (cluster.nodes > 1 && node.nics > node.gpus && !stripes) {
            notes.out.push_back(fmt::format("of the {} NICs of a node ('{}.nics') {} send messages: one for each GPU",
                                            node.nics, path, node.gpus));
        }
        if (node.nic_bandwidth.how == kGivenInScenario && node.nic_bandwidth.value != link) {
            notes.add(link <= 0, path + ".nic_bandwidth", "a fabric without 'link', which is the rate of the NICs");
        }
    };
    if (!cluster.mixed) {
        add(cluster.node, cluster.fabric.link, "cluster.node");
    }
    for (std::size_t i = 0; i < cluster.groups.size(); ++i) {
        const GroupSpec& group = cluster.groups[i];
        add(group.node, group.has_fabric ? group.fabric.link : cluster.fabric.link,
            fmt::format("cluster.groups.{}.node", i));
    }
}

}  // namespace

std::vector<std::string> without_effect(const YamlNode& root, const Scenario& scenario) {
    Notes notes(root);
    if (scenario.kind == ScenarioKind::training) {
        add_unread_plan(scenario.plan, notes);
        if (scenario.faults.campaign) {
            add_unread_recovery(scenario.faults, notes);
        }
    }
    notes.add(scenario.collective.slow_rank >= 0, "collective.slow_factor", "a 'slow_rank'");
    if (scenario.kind == ScenarioKind::serving) {
        add_unread_sessions(scenario, notes);
        add_unread_router(scenario.engine, notes);
        if (scenario.compute != Scenario().compute) {
            notes.add(!scenario.engine.has_step_cost, "compute.model",
                      "prices of kernels in place of 'engine.step_cost'");
        }
        for (const auto& [phase, path] : {std::pair{&scenario.engine.mixed, "engine"},
                                          {&scenario.engine.prefill, "engine.prefill"},
                                          {&scenario.engine.decode, "engine.decode"}}) {
            add_unread_budget(*phase, path, notes);
        }
    }
    const PacketSpec& packets = scenario.network.packets;
    add_unread_nics(scenario.cluster, scenario.network.by_packet() && packets.nic.rails > 1, notes);
    const bool sums =
        scenario.kind != ScenarioKind::network &&
        (scenario.kind != ScenarioKind::collective || scenario.collective.algorithm == &algorithm("in-switch") ||
         scenario.collective.algorithm == &algorithm("auto"));
    if (scenario.network.by_packet() && packets.queues.reduction_slots > 0) {
        notes.add(sums, "network.queues.reduction_slots", "an all-reduce inside switches: algorithm: in-switch");
    }
    add_unread_transport(scenario.network, notes);
    return notes.out;
}

std::vector<std::string> without_effect_forward(const PlanSpec& plan) {
    std::vector<std::string> out;
    for (const auto& [given, key] : {std::pair{plan.recompute != Recompute::none, "recompute"},
                                     {plan.zero > 0, "zero"},
                                     {plan.overlap_data, "overlap.data"},
                                     {plan.overlap_parameters, "overlap.parameters"}}) {
        if (given) {
            out.push_back(
                fmt::format("'plan.{}' has no effect: this model is not trained, it runs forward alone", key));
        }
    }
    return out;
}

}  // namespace orrery::inline driver
