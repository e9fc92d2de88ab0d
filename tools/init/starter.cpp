#include "tools/init/starter.hpp"

#include "sim/base/input_file.hpp"
#include "sim/config/yaml_tree.hpp"
#include "tools/driver/model_cache.hpp"
#include "tools/driver/run.hpp"
#include "tools/driver/scenario.hpp"
#include "workloads/model/model_names.hpp"
#include "workloads/replay/recorded_device.hpp"
#include "workloads/serving/spec.hpp"
#include "workloads/training/memory/memory.hpp"
#include "workloads/training/plan/state_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace orrery::init {

namespace {

constexpr double kUsedMemory = 0.92;  ///< share of a device that a first plan fills: room for what is not modelled

std::string preset_named(const PresetKind& kind, const std::string& name, const DataDirectory& data) {
    const std::vector<std::string> names = data.names(kind);
    if (std::find(names.begin(), names.end(), name) != names.end()) {
        return name;
    }
    const std::string nearest = nearest_name(name, names);
    throw ConfigError(fmt::format("unknown {} preset '{}'{}; 'orrery list {}s' shows them all", kind.what, name,
                                  nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest), kind.what),
                      ErrorCode::unknown_name);
}

// The model that is asked for, by the name of a preset or of a checkpoint.
NamedCheckpoint model_asked_for(const StarterFacts& facts, const DataDirectory& data) {
    const std::string name = facts.model.empty() ? "llama-3-8b" : facts.model;
    const std::optional<NamedCheckpoint> found = find_checkpoint(name, data);
    NamedCheckpoint near;
    near.preset = found ? "" : preset_named(kModelPresets, name, data);
    return found ? *found : near;
}

// The node that a device is sold in: one that is named after a whole system first.
std::string node_of(const std::string& device, const DataDirectory& data) {
    std::vector<std::string> nodes = data.names(kNodePresets);
    if (std::find(nodes.begin(), nodes.end(), device) != nodes.end()) {
        return device;
    }
    // "h100" is the one on a baseboard, with the larger memory where there are two.
    std::string wanted = device;
    const std::vector<std::string> known = data.names(kDevicePresets);
    for (const char* end : {"-sxm-80g", "-sxm"}) {
        if (std::find(known.begin(), known.end(), wanted) == known.end() &&
            std::find(known.begin(), known.end(), device + end) != known.end()) {
            wanted = device + end;
        }
    }
    wanted = preset_named(kDevicePresets, wanted, data);
    std::stable_partition(nodes.begin(), nodes.end(),
                          [](const std::string& name) { return name.rfind("dgx", 0) == 0; });
    std::vector<std::string> devices;
    for (const std::string& name : nodes) {
        const YamlNode file = load_yaml(data.path(kNodePresets, name));
        const YamlNode* gpu = file.find("gpu");
        if (gpu != nullptr && gpu->scalar == wanted) {
            return name;
        }
        if (gpu != nullptr && !gpu->scalar.empty()) {
            devices.push_back(gpu->scalar);
        }
    }
    throw ConfigError(
        fmt::format("no node preset has the device '{}'; there are nodes with {}. Take one of them (orrery list nodes) "
                    "and change its 'gpu': node: {{preset: dgx-h100, gpu: {}}}",
                    wanted, fmt::join(devices, ", "), wanted),
        ErrorCode::unknown_name);
}

struct Machines {
    NodeSpec node;
    std::string preset;
    std::int64_t nodes = 1;
    std::string text;  ///< the section, with its last newline
};

Machines machines(const StarterFacts& facts, const char* device, std::int64_t gpus, const DataDirectory& data) {
    Machines out;
    out.preset = node_of(facts.device.empty() ? device : facts.device, data);
    const std::int64_t wanted = facts.gpus > 0 ? facts.gpus : gpus;
    std::vector<Diagnostic> errors;
    read_fields(load_yaml(data.path(kNodePresets, out.preset)), data, errors,
                [&](Fields& fields) { describe(fields, out.node); });
    throw_if_any(errors);
    std::string node = out.preset;
    if (wanted < out.node.gpus) {
        node = fmt::format("{{preset: {}, gpus: {}}}", out.preset, wanted);
        out.node.gpus = wanted;
    }
    if (wanted % out.node.gpus != 0) {
        throw ConfigError(
            fmt::format("--gpus {} is no multiple of the {} GPUs of a node ({})", wanted, out.node.gpus, out.preset),
            ErrorCode::command_line);
    }
    out.nodes = wanted / out.node.gpus;
    out.text = fmt::format("cluster:\n  nodes: {:<24} # of {} GPU{}\n  node: {:<25} # orrery list nodes\n", out.nodes,
                           out.node.gpus, out.node.gpus == 1 ? "" : "s", node);
    if (out.nodes > 1) {
        const bool by_rail = out.node.nics > 1;
        out.text += fmt::format(
            "  fabric: {{kind: leaf-spine, nodes_per_leaf: {}{}}}   # full bisection; oversubscription: 2 halves the "
            "uplinks\n",
            std::min<std::int64_t>(16, out.nodes), by_rail ? fmt::format(", rails: {}", out.node.nics) : "");
    }
    return out;
}

ModelSpec model_named(const std::string& name, const DataDirectory& data) {
    ModelSpec model;
    std::vector<Diagnostic> errors;
    read_fields(load_yaml(data.path(kModelPresets, name)), data, errors,
                [&](Fields& fields) { describe(fields, model); });
    complete(model);
    return model;
}

std::string head(const std::string& question, const StarterFacts& facts, const std::string& kind) {
    return fmt::format("# {}\n# Written by: {}\n# 'orrery help {} KEY' explains a key.\norrery: 1\nkind: {}\n",
                       question, facts.command, kind, kind);
}

// Enough micro-batches to keep the bubble of the pipeline small.
void choose_rest(PlanSpec& plan, std::int64_t gpus) {
    plan.data = gpus / (plan.tensor * plan.pipeline);
    plan.global_batch = plan.data * std::max<std::int64_t>(8, 8 * plan.pipeline);
    plan.sequence_parallel = plan.tensor > 1;
    plan.zero = plan.data > 1 ? 1 : 0;
}

bool fits(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software, const Machines& on) {
    double most = 0;
    for (const MemoryUse& stage : memory_by_stage(model, plan, software)) {
        most = std::max(most, stage.total());
    }
    return most <= kUsedMemory * on.node.gpu.memory.value;
}

bool splits(const ModelSpec& model, const PlanSpec& plan, std::int64_t gpus) {
    return gpus % (plan.tensor * plan.pipeline) == 0 && model.heads % plan.tensor == 0 &&
           model.kv_heads % plan.tensor == 0 && plan.pipeline <= model.layers &&
           state_space_problems(model, plan).unfit.empty();
}

// The first plan that fits, by how much it splits the model, inside nodes first.
std::optional<PlanSpec> first_plan(const ModelSpec& model, const SoftwareSpec& software, const Machines& on) {
    const std::int64_t gpus = on.nodes * on.node.gpus;
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        for (std::int64_t split = 1; split <= gpus; split *= 2) {
            PlanSpec plan;
            plan.tensor = std::min(split, on.node.gpus);
            plan.pipeline = split / plan.tensor;
            plan.recompute = recompute;
            if (splits(model, plan, gpus)) {
                choose_rest(plan, gpus);
                if (fits(model, plan, software, on)) {
                    return plan;
                }
            }
        }
    }
    return std::nullopt;
}

// Plans of a mixture of experts that fit, the least split first: experts are divided over replicas, and not cut.
std::vector<PlanSpec> expert_plans(const ModelSpec& model, const SoftwareSpec& software, const Machines& on) {
    constexpr std::size_t kTried = 24;
    constexpr std::int64_t kMostStages = 16;
    const std::int64_t gpus = on.nodes * on.node.gpus;
    std::vector<PlanSpec> out;
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        for (std::int64_t split = 1; split <= kMostStages * on.node.gpus; split *= 2) {
            for (std::int64_t tensor = 1; tensor <= std::min(split, on.node.gpus); tensor *= 2) {
                PlanSpec plan;
                plan.tensor = tensor;
                plan.pipeline = split / tensor;
                plan.recompute = recompute;
                if (plan.pipeline > kMostStages || !splits(model, plan, gpus)) {
                    continue;
                }
                choose_rest(plan, gpus);
                plan.experts.tensor = 1;
                for (std::int64_t expert = 1; expert <= model.experts.count; expert *= 2) {
                    plan.experts.expert = expert;
                    if (model.experts.count % expert == 0 && plan.stage_ranks() % expert == 0 &&
                        fits(model, plan, software, on)) {
                        out.push_back(plan);
                    }
                }
            }
        }
        if (out.size() >= kTried) {
            out.resize(kTried);
            break;
        }
    }
    return out;
}

// A model with the first plan under which it fits the machines.
struct PlannedModel {
    std::string name;
    ModelSpec model;
    PlanSpec plan;
    std::int64_t longest = 0;  ///< tokens of a sequence that the model takes at most
};

std::string model_and_plan(const PlannedModel& of);

// The plan under which a token takes the least time, as closed forms say.
std::optional<PlanSpec> fastest(const std::vector<PlanSpec>& plans, const PlannedModel& of, const Machines& on,
                                const DataDirectory& data) {
    ModelCache models(data);
    RunOptions options;
    options.check_memory = false;
    std::optional<PlanSpec> best;
    double most = 0;
    for (const PlanSpec& plan : plans) {
        PlannedModel tried = of;
        tried.plan = plan;
        const std::string text = "orrery: 1\nkind: training\n" + on.text + model_and_plan(tried);
        try {
            const Scenario scenario = read_scenario(parse_yaml(text, "init"), "init", data);
            const double rate = run_scenario(scenario, models, options).summary.find("tokens_per_s")->value;
            if (rate > most) {
                most = rate;
                best = plan;
            }
        } catch (const InfeasibleError&) {
            // Its groups do not lie evenly on the nodes.
        }
    }
    return best;
}

PlannedModel planned_model(const StarterFacts& facts, const Machines& on, const DataDirectory& data,
                           bool pretrains = true) {
    const NamedCheckpoint asked = model_asked_for(facts, data);
    if (asked.quantised()) {
        throw ConfigError(
            fmt::format("'{}' is a checkpoint in {}, and training starts from weights in 16 bits: --model {}",
                        facts.model, asked.precision(), asked.preset));
    }
    const std::string& name = asked.preset;
    PlannedModel out{name, model_named(name, data), {}};
    // Models are trained in sequences of a few thousand tokens, whatever they take when they serve.
    constexpr std::int64_t kSequence = 4096;
    constexpr std::int64_t kLong = 8192;
    out.longest = out.model.sequence;
    if (pretrains && out.model.sequence > kLong) {
        out.model.sequence = kSequence;
    }
    const ModelSpec& model = out.model;
    SoftwareSpec software;
    std::vector<Diagnostic> errors;
    read_fields(load_yaml(data.path(kSoftwarePresets, "megatron-core-2024")), data, errors,
                [&](Fields& fields) { describe(fields, software); });
    // Weights that cross the fabric to a generator come from ranks that have all experts.
    const std::optional<PlanSpec> plan = pretrains && model.experts.count > 0
                                             ? fastest(expert_plans(model, software, on), out, on, data)
                                             : first_plan(model, software, on);
    if (!plan) {
        throw InfeasibleError(
            fmt::format("{} does not fit on {} GPUs of {} under any plan tried: take more of them (--gpus)", name,
                        on.nodes * on.node.gpus, on.preset),
            ErrorCode::out_of_memory);
    }
    check_spec(model, *plan, static_cast<std::uint32_t>(on.nodes * on.node.gpus), {});
    out.plan = *plan;
    return out;
}

std::string model_and_plan(const PlannedModel& of) {
    const PlanSpec& plan = of.plan;
    const bool shorter = of.model.sequence < of.longest;
    const std::string model =
        shorter ? fmt::format("{{preset: {}, sequence: {}}}   # the model takes up to {} tokens", of.name,
                              of.model.sequence, of.longest)
                : fmt::format("{:<26}# orrery list models, or: orrery import hf-config config.json", of.name);
    const std::string experts =
        of.model.experts.count > 0
            ? fmt::format(
                  "  expert: {:<23}# ranks that a layer's experts are divided among, out of tensor x data\n"
                  "  expert_tensor: 1               # ranks that share each expert\n",
                  plan.experts.expert)
            : "";
    return fmt::format("model: {}\n", model) +
           fmt::format(
               "plan:\n"
               "  tensor: {:<23}# GPUs that share each layer; best inside a node\n"
               "  pipeline: {:<21}# stages of layers\n"
               "  data: {:<25}# replicas; tensor x pipeline x data = GPUs\n"
               "{}"
               "  micro_batch: {:<18}# sequences per pass\n"
               "  global_batch: {:<17}# sequences per step, {} tokens each\n"
               "  recompute: {:<20}# none | selective | half | full: less memory for more time\n"
               "  sequence_parallel: {:<12}# norms and dropout sharded over the tensor-parallel group\n"
               "  zero: {:<25}# 0 to 3: what data-parallel replicas share\n"
               "  precision: bf16\n"
               "  overlap: {{data: true, parameters: true}}\n",
               plan.tensor, plan.pipeline, plan.data, experts, plan.micro_batch, plan.global_batch, of.model.sequence,
               plan.recompute == Recompute::none ? "none" : "full", plan.sequence_parallel, plan.zero);
}

// Bounds are the user's to choose: as a comment they show how.
std::string expectations(const char* bounds) {
    return fmt::format("# expect: {{{}}}   # 'orrery run' exits with 1 when a bound fails\n", bounds);
}

constexpr const char* kFirstPlan = "# The plan is a first one that fits; 'orrery plan FILE' searches for the best.\n";

std::string training(const StarterFacts& facts, const DataDirectory& data) {
    const Machines on = machines(facts, "h100-sxm", 64, data);
    const PlannedModel of = planned_model(facts, on, data);
    return head(fmt::format("How long is one iteration of {} on {} GPUs ({})?", of.name, on.nodes * on.node.gpus,
                            on.preset),
                facts, "training") +
           kFirstPlan + on.text + model_and_plan(of) +
           "network: {fidelity: fluid}       # analytic | fluid | packet\n" +
           expectations("iteration_time_s: \"< 10 s\", mfu: \"> 40 %\"");
}

std::string faults(const StarterFacts& facts, const DataDirectory& data) {
    const Machines on = machines(facts, "h100-sxm", 1024, data);
    const PlannedModel of = planned_model(facts, on, data);
    return head(fmt::format("How much of a month on {} GPUs ({}) is useful training of {}, and what costs the rest?",
                            on.nodes * on.node.gpus, on.preset, of.name),
                facts, "training") +
           kFirstPlan + on.text + model_and_plan(of) +
           fmt::format(
               "network: {{fidelity: analytic}}    # one iteration is simulated for each state of the cluster\n"
               "faults:\n"
               "  duration: 30 d\n"
               "  runs: 8                        # seeds, for intervals of the metrics\n"
               "  processes:                     # mean time between failures of one component (arXiv:2407.21783, "
               "table "
               "5)\n"
               "    - {{component: gpu, kind: fail-stop, mtbf: 111756 h}}\n"
               "    - {{component: hbm, kind: fail-stop, mtbf: 294912 h}}\n"
               "    - {{component: host, kind: fail-stop, mtbf: 57700 h}}\n"
               "    - {{component: gpu, kind: corruption, mtbf: 3538944 h}}\n"
               "  recovery: {{standbys: {}, diagnosis: {{time: 5 min}}, restart: 3 min}}\n"
               "  checkpoint:\n"
               "    method: asynchronous         # blocking | asynchronous | memory\n"
               "    interval: daly               # or {{kind: fixed, every: 30 min}}; 'orrery plan FILE' compares "
               "them\n"
               "    storage: {{write: 100 GB/s, read: 100 GB/s, keep: 10}}\n",
               std::max<std::int64_t>(1, on.nodes / 64)) +
           expectations("goodput_fraction: \"> 90 %\"");
}

// A model to serve, and over how many GPUs of a node it is split.
struct ServedModel {
    std::string name;
    std::int64_t tensor = 1;
};

ServedModel served_model(const StarterFacts& facts, const Machines& on, const DataDirectory& data) {
    const NamedCheckpoint asked = model_asked_for(facts, data);
    const bool stored = asked.quantised();  // the scenario keeps the checkpoint's name, and so its precision
    const std::string name = stored ? facts.model : asked.preset;
    const ModelSpec model = model_named(asked.preset, data);
    const std::vector<std::string>& precisions = precision_names();
    const std::string most_in = stored && !asked.experts.empty() ? asked.experts : stored ? asked.weights : "bf16";
    const double weights =
        model.parameters() *
        bytes_of(static_cast<Precision>(std::find(precisions.begin(), precisions.end(), most_in) - precisions.begin()));
    std::int64_t tensor = 1;
    // Weights take at most seven tenths, so that the cache has room.
    while (tensor < on.node.gpus && weights > 0.7 * static_cast<double>(tensor) * on.node.gpu.memory.value) {
        tensor *= 2;
    }
    // Weights with what the engine keeps aside fill at most nine tenths, less some room for caches.
    const double most = 0.85 * on.node.gpu.memory.value - EngineSpec().reserved();
    if (weights > most * static_cast<double>(tensor) || model.heads % tensor != 0) {
        throw InfeasibleError(
            fmt::format("{} in {} needs {:.0f} GiB and does not fit into {} GPUs of a node ({}): take another "
                        "device or more of its GPUs",
                        name, stored ? asked.precision() : "16 bits", weights / (1024.0 * 1024 * 1024), tensor,
                        on.preset),
            ErrorCode::out_of_memory);
    }
    return {name, tensor};
}

std::string served_requests(std::int64_t per_second) {
    return fmt::format(
               "requests:\n"
               "  rate: {:<25}# per second; or trace: FILE.csv\n"
               "  prompt: {{kind: lognormal, mean: 1024, spread: 0.8}}\n"
               "  output: {{kind: lognormal, mean: 256, spread: 0.8}}\n",
               per_second) +
           "slo: {ttft: 1 s, tpot: 50 ms}    # what counts as in time\n" +
           expectations("ttft_s.p99: \"< 1 s\", slo_attainment: \"> 99 %\"");
}

constexpr const char* kCapacityHint = "# 'orrery capacity FILE' finds the highest rate within the limits below.\n";

std::string serving(const StarterFacts& facts, const DataDirectory& data) {
    const Machines on = machines(facts, "h100-sxm", 1, data);
    const auto [name, tensor] = served_model(facts, on, data);
    const std::int64_t gpus = on.nodes * on.node.gpus;
    const std::int64_t replicas = std::max<std::int64_t>(1, gpus / tensor);
    return head(fmt::format("What do clients of {} see on {} GPU{} ({})?", name, gpus, gpus == 1 ? "" : "s", on.preset),
                facts, "serving") +
           kCapacityHint + on.text + fmt::format("model: {:<26}# orrery list models\n", name) +
           fmt::format(
               "engine:\n"
               "  replicas: {:<21}# of `tensor` GPUs each\n"
               "  tensor: {}\n"
               "  scheduler: {{kind: chunked-prefill, token_budget: 2048, max_sequences: 256}}   # orrery help serving "
               "engine.scheduler.kind\n"
               "  kv: {{memory: 90 %}}         # of the device, for weights and cache\n"
               "  software: vllm-0.11        # what the host costs; orrery list engines\n",
               replicas, tensor) +
           served_requests(2 * replicas);
}

std::string disaggregated(const StarterFacts& facts, const DataDirectory& data) {
    const Machines on = machines(facts, "h100-sxm", 16, data);
    const auto [name, tensor] = served_model(facts, on, data);
    const std::int64_t gpus = on.nodes * on.node.gpus;
    const std::int64_t replicas = gpus / tensor;
    if (replicas < 2) {
        throw ConfigError(
            fmt::format("separate prefill and decode replicas of {} need {} GPUs or more: give more --gpus", name,
                        2 * tensor),
            ErrorCode::command_line);
    }
    const std::int64_t prefill = std::max<std::int64_t>(1, replicas / 4);
    return head(fmt::format("What do clients of {} see on {} GPUs ({}) with separate prefill and decode replicas?",
                            name, gpus, on.preset),
                facts, "serving") +
           kCapacityHint + "# 'orrery plan FILE' searches for the best split of the GPUs.\n" + on.text +
           fmt::format("model: {:<26}# orrery list models\n", name) +
           fmt::format(
               "engine:\n"
               "  prefill: {{replicas: {}, tensor: {}, scheduler: {{kind: chunked-prefill, token_budget: 8192}}}}\n"
               "  decode: {{replicas: {}, tensor: {}, scheduler: {{kind: chunked-prefill, max_sequences: 256}}}}\n"
               "  transfer: layers           # the KV cache crosses the fabric layer by layer; whole: after the "
               "prompt\n"
               "  software: vllm-0.11        # what the host costs; orrery list engines\n",
               prefill, tensor, replicas - prefill, tensor) +
           served_requests(2 * replicas);
}

std::string collective(const StarterFacts& facts, const DataDirectory& data) {
    const Machines on = machines(facts, "h100-sxm", 64, data);
    return head(fmt::format("How long does an all-reduce over {} GPUs ({}) take, message by message?",
                            on.nodes * on.node.gpus, on.preset),
                facts, "collective") +
           on.text +
           "collective:\n"
           "  op: all-reduce                 # all-gather, reduce-scatter, all-to-all, ...\n"
           "  algorithm: auto                # ring, double-tree, hierarchical, in-switch, ...\n"
           "  size: 64 MiB                   # the larger buffer of a rank\n"
           "network: {fidelity: fluid}       # packet: every packet, with transport, paths and queues\n" +
           expectations("collective_time_s: \"< 5 ms\"");
}

std::string network(const StarterFacts& facts, const DataDirectory&) {
    const std::int64_t hosts = facts.gpus > 0 ? facts.gpus : 64;
    if (hosts < 2) {
        throw ConfigError("flows go between hosts: give --gpus of 2 or more", ErrorCode::command_line);
    }
    return head(fmt::format("How long does a permutation of 2 MiB flows take over {} hosts, packet by packet?", hosts),
                facts, "network") +
           fmt::format(
               "cluster:\n"
               "  hosts: {:<24}# bare hosts with one NIC each\n"
               "  fabric: {{kind: leaf-spine, hosts_per_leaf: 16, spines: 16, link: 400 Gbps, latency: 500 ns}}\n"
               "traffic: {{pattern: permutation, size: 2 MiB}}   # incast, all-to-all, shift, ring, or flows: "
               "FILE.csv\n"
               "network:\n"
               "  fidelity: packet               # fluid: a hundred times as fast, without queues\n"
               "  transport: {{kind: multipath}}   # roce, dctcp, swift, ...: orrery help network "
               "network.transport.kind\n"
               "  paths: {{kind: oblivious}}       # ecmp, spray, flowlet, ...: orrery help network network.paths\n",
               hosts) +
           expectations("fct_s.p99: \"< 100 us\"");
}

// The preset of the device that a record names in its head; empty where it names none that is known.
std::string recorded_on(const std::string& trace) {
    constexpr std::size_t kHead = 65536;
    if (!std::filesystem::is_regular_file(trace)) {
        return "";
    }
    const std::string head = start_of_input(trace, kHead);
    const std::string key = fmt::format("\n# {}: ", kRecordedOn);
    const std::size_t at = head.find(key);
    const std::size_t start = at + key.size();
    return at == std::string::npos ? "" : device_preset_of(head.substr(start, head.find('\n', start) - start));
}

std::string replay(const StarterFacts& facts, const DataDirectory& data) {
    const Machines on = machines(facts, "a100-sxm-80g", 8, data);
    const std::string trace = facts.trace.empty() ? data.path("scenarios/replay/two-layer-step.replay") : facts.trace;
    const std::string recorded = recorded_on(trace);
    const std::string device = facts.device.empty() ? "a100-sxm-80g" : facts.device;
    return head("How long does a recorded program take here?", facts, "replay") + on.text +
           fmt::format(
               "compute:\n"
               "  model: replay\n"
               "  trace: {}   # from 'orrery import FORMAT FILE'\n"
               "replay:\n"
               "  communication: simulated       # recorded: as long as they took\n"
               "  kernel_speed: 1                # 1.5: kernels half as fast again\n"
               "{}   # device of the record, where the cluster's is another one\n",
               trace,
               recorded.empty() || recorded == device ? "  # recorded_on: a100-sxm-80g" : "  recorded_on: " + recorded);
}

std::string cluster(const StarterFacts& facts, const DataDirectory& data) {
    const Machines on = machines(facts, "h100-sxm", 16, data);
    if (on.nodes < 2) {
        throw ConfigError("two jobs need two nodes or more: give more --gpus", ErrorCode::command_line);
    }
    const std::int64_t half = on.nodes / 2;
    return head("How much do two jobs on one fabric slow each other?", facts, "cluster") + on.text +
           fmt::format(
               "network: {{fidelity: fluid}}\n"
               "jobs:\n"
               "  - name: train\n"
               "    nodes: {:<22}# a count, or numbers and ranges such as 0-3,8\n"
               "    scenario:\n"
               "      kind: training\n"
               "      model: llama-3-8b\n"
               "      plan: {{tensor: {}, data: {}, global_batch: {}, zero: 1, recompute: full}}\n"
               "  - name: serve\n"
               "    nodes: {}\n"
               "    scenario:\n"
               "      kind: serving\n"
               "      model: llama-3-8b\n"
               "      engine: {{replicas: {}, tensor: {}}}\n"
               "      requests: {{rate: 4, count: 100, prompt: {{mean: 1000}}, output: {{mean: 100}}}}\n",
               half, on.node.gpus, half, 8 * half, on.nodes - half, on.nodes - half, on.node.gpus);
}

std::string rl(const StarterFacts& facts, const DataDirectory& data) {
    const Machines on = machines(facts, "h100-sxm", 16, data);
    if (on.nodes < 2) {
        throw ConfigError("a step that generates and trains on nodes of their own needs two or more: give more --gpus",
                          ErrorCode::command_line);
    }
    Machines trains = on;
    trains.nodes = on.nodes - on.nodes / 2;
    const PlannedModel of = planned_model(facts, trains, data, false);
    const std::int64_t tensor = served_model(facts, on, data).tensor;
    const std::int64_t half = on.nodes / 2;
    const PlanSpec& plan = of.plan;
    return head(fmt::format("How long does a step of reinforcement learning of {} take, and what waits for what?",
                            of.name),
                facts, "rl") +
           on.text +
           fmt::format(
               "algorithm: grpo                  # ppo has a critic, too\n"
               "batch: {{prompts: {}, samples: 8}}\n"
               "rewards: {{time: 10 ms, workers: 64}}   # rules; or a job with role: reward\n"
               "asynchronous: {{staleness: 1}}     # leave out: each waits for the other\n"
               "jobs:\n"
               "  - role: generator\n"
               "    nodes: {:<22}# a count, or numbers and ranges such as 0-3,8, which jobs may share\n"
               "    scenario:\n"
               "      kind: serving\n"
               "      model: {}\n"
               "      engine: {{replicas: {}, tensor: {}}}\n"
               "      requests: {{prompt: {{mean: 500}}, output: {{kind: lognormal, mean: 500, spread: 0.8, most: "
               "4000}}}}\n"
               "  - role: actor\n"
               "    nodes: {}\n"
               "    scenario:\n"
               "      kind: training\n"
               "      model: {}\n"
               "      plan: {{tensor: {}, pipeline: {}, data: {}, global_batch: {}, zero: {}, recompute: full, "
               "sequence_parallel: {}}}\n",
               plan.global_batch, half, of.name, half * on.node.gpus / tensor, tensor, trains.nodes, of.name,
               plan.tensor, plan.pipeline, plan.data, plan.global_batch, plan.zero, plan.sequence_parallel);
}

std::string sweep(const StarterFacts& facts, const DataDirectory& data) {
    const std::string base = facts.base.empty() ? data.path("scenarios/training/gpt3-175b-1024xA100.yaml") : facts.base;
    const YamlNode root = load_yaml(base);
    const YamlNode* cluster = root.find("cluster");
    const YamlNode* kind = root.find("kind");
    const bool nodes = cluster != nullptr && cluster->find("node") != nullptr;
    std::string axes = "  network.fidelity: [analytic, fluid]\n";
    if (nodes) {
        axes = "  cluster.node: [dgx-a100-80g, dgx-h100, dgx-b200]   # any keys; every combination is a point\n";
    }
    if (kind != nullptr && kind->scalar == "serving") {
        axes += "  requests.rate: {from: 1, to: 4, step: 1}\n";
    }
    return fmt::format(
        "# How does {} change along these axes?\n# Written by: {}\n"
        "#   orrery sweep FILE --db results.sqlite && orrery table results.sqlite\norrery: 1\nkind: sweep\n"
        "base: {}   # relative to this file\naxes:\n{}",
        std::filesystem::path(base).filename().string(), facts.command, base, axes);
}

}  // namespace

const std::vector<StarterRow>& starter_table() {
    static const std::vector<StarterRow> kTable = {
        {"training", "how long an iteration takes under a plan", {"gpus", "device", "model"}, training},
        {"collective", "how long a collective takes, message by message", {"gpus", "device"}, collective},
        {"network", "how long flows over a fabric take", {"gpus"}, network},
        {"replay", "how long a recorded program takes here", {"gpus", "device", "trace"}, replay},
        {"serving", "what clients of a served model see", {"gpus", "device", "model"}, serving},
        {"cluster", "how jobs on one fabric slow each other", {"gpus", "device"}, cluster},
        {"rl", "how long a step of reinforcement learning takes", {"gpus", "device", "model"}, rl},
        {"faults", "how much of a month of training under faults is useful", {"gpus", "device", "model"}, faults},
        {"disaggregated",
         "what clients see with separate prefill and decode replicas",
         {"gpus", "device", "model"},
         disaggregated},
        {"sweep", "how a scenario changes along axes", {"base"}, sweep}};
    return kTable;
}

std::string write_starter(const std::string& kind, const StarterFacts& facts, const DataDirectory& data) {
    std::vector<std::string> kinds;
    for (const StarterRow& row : starter_table()) {
        kinds.emplace_back(row.kind);
        if (kind == row.kind) {
            std::string text = row.write(facts, data);
            if (kind != "sweep") {
                try {
                    (void)read_scenario(parse_yaml(text, kind + ".yaml"), kind, data);
                } catch (const ConfigError& error) {
                    // Of no file: what was to be written has no such line yet.
                    throw ConfigError(fmt::format("no scenario comes of these facts (--gpus {}): {}", facts.gpus,
                                                  error.diagnostics().front().text));
                }
            }
            return text;
        }
    }
    const std::string nearest = nearest_name(kind, kinds);
    throw ConfigError(
        fmt::format("unknown kind '{}'{}; it is one of {}", kind,
                    nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest), fmt::join(kinds, ", ")),
        ErrorCode::unknown_name);
}

}  // namespace orrery::init
