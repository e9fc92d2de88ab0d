#include "tools/driver/scenario.hpp"

#include "models/calibrated.hpp"
#include "models/collective_library.hpp"
#include "sim/base/random.hpp"
#include "sim/device/device.hpp"
#include "tools/driver/interval.hpp"
#include "tools/driver/run_serving.hpp"
#include "workloads/trace/flow_trace.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <limits>
#include <numeric>

namespace orrery {

namespace {

constexpr const char* kDefaultSoftware = "megatron-core-2024";
constexpr const char* kSchemaVersionDoc = "version of the scenario language; this is 1";

void describe_network(Fields& fields, NetworkSpec& network) {
    fields.enumeration(
        {"fidelity",
         "analytic: alpha-beta with reservations; fluid: max-min fair sharing; simgrid: SimGrid's; packet: by packet"},
        fidelity_names(), network.fidelity);
    auto kind = static_cast<std::size_t>(network.packets.path_kind);
    fields.variant({"paths", "spray: evenly over parallel paths; ecmp: a hash picks one; the others by packet"},
                   path_kind_names(), kind, network.path_details,
                   [&](Fields& inner) { describe(inner, network.packets.paths); });
    network.packets.path_kind = static_cast<PathKind>(kind);
    fields.enumeration(
        {"collectives", "library as measured (serving engines bring an all-reduce of their own), or ideal links"},
        library_names(), network.collectives);
    fields.quantity({"batch", "completions within this window are handled together; 0 s: exact", false, 0, 1},
                    Dimension::time, network.batch);
    fields.boolean({"fold", "simulate what is provably identical once"}, network.fold);
    network.packet_details = network.packet_details || network.fidelity == Fidelity::packet;
    fields.group(network.packet_details, [&](Fields& same) { describe(same, network.packets); });
}

// FNV over the resolved text, as sixteen hexadecimal digits.
std::string hash_text(const std::string& text) {
    return fmt::format("{:016x}", mix64(hash64(text)));
}

std::vector<LinkEvent> link_events_of(const Scenario& s) {
    const std::string& file = s.network.packets.link_events;
    return file.empty() ? std::vector<LinkEvent>() : read_link_events(s.file(file));
}

void add_packet_metrics(const std::optional<PacketStatistics>& packets, Summary& out) {
    if (!packets) {
        return;
    }
    const auto count = [&](const char* name, std::uint64_t value) {
        out.add(name, static_cast<double>(value), "packets");
    };
    count("packets_delivered", packets->packets_delivered);
    count("packet_hops", packets->packet_hops);
    count("control_hops", packets->control_hops);
    count("drops", packets->drops);
    count("trims", packets->trims);
    count("retransmissions", packets->retransmissions);
    count("timeouts", packets->timeouts);
    count("ecn_marks", packets->ecn_marks);
    count("corrupted", packets->corrupted);
    out.add("pause_s", packets->pause_s, "s");
    out.add("max_queue_bytes", packets->max_queue_bytes, "B");
    out.add("max_link_bytes", packets->max_link_bytes, "B");
}

void add_training_metrics(const Scenario& s, const TrainingResult& result, Summary& out) {
    const auto gpus = static_cast<double>(s.plan.ranks());
    const double tokens = static_cast<double>(s.plan.global_batch) * static_cast<double>(s.model.sequence);
    const double model_rate = result.model_flops / result.iteration_s / gpus;
    const double peak = s.cluster.node.gpu.flops_bf16.value;
    out.add("iteration_time_s", result.iteration_s, "s");
    out.add("tokens_per_s", tokens / result.iteration_s, "1/s");
    out.add("tflops_per_gpu", model_rate * 1e-12, "TFLOP/s");
    out.add("mfu", model_rate / peak, "1");
    out.add("hfu", result.hardware_flops / result.iteration_s / gpus / peak, "1");
    out.add("memory_per_gpu_gib", result.memory_bytes / (1024.0 * 1024 * 1024), "GiB");
    out.add("bubble_fraction", result.bubble_s / result.iteration_s, "1");
    out.add("exposed_communication_s", result.exposed_communication_s, "s");
    for (int i = 0; i < kCategoryCount; ++i) {
        if (result.booked[static_cast<std::size_t>(i)] > 0) {
            out.breakdown.emplace_back(category_name(static_cast<Category>(i)),
                                       result.booked[static_cast<std::size_t>(i)]);
        }
    }
    out.breakdown.emplace_back("bubble", result.bubble_s);
    if (s.cluster.node.gpu.tdp.value > 0) {
        double busy = 0;
        for (const Category kernels :
             {Category::forward, Category::backward, Category::recompute, Category::optimizer}) {
            busy += result.booked[static_cast<std::size_t>(kernels)];
        }
        const double joules =
            energy_of(s.cluster.node.gpu, DeviceWork{gpus * result.iteration_s, gpus * busy, result.hardware_flops});
        out.add("energy_per_token_j", joules / tokens, "J");
    }
    if (result.folded_into_one > 1) {
        out.notes.push_back(
            fmt::format("{} ranks simulated, each standing for {}", result.simulated_ranks, result.folded_into_one));
    } else {
        out.notes.push_back(fmt::format("{} ranks simulated one by one", result.simulated_ranks));
    }
    if (s.network.batch > 0) {
        out.notes.push_back(
            fmt::format("completions grouped within {}", pretty_quantity(s.network.batch, Dimension::time)));
    }
}

void run_training(const Scenario& scenario, ModelCache& models, const RunOptions& options, const Fabric& fabric,
                  RunOutput& out) {
    const DeviceSpec& gpu = scenario.cluster.node.gpu;
    const TrainingInput input = training_input(scenario, models, fabric);
    TrainingOptions training;
    training.fidelity = scenario.network.fidelity;
    training.batch_window = SimTime::from_seconds(scenario.network.batch);
    training.timeline = options.timeline;
    training.progress = options.progress;
    training.packets = &scenario.network.packets;
    training.link_events = link_events_of(scenario);
    training.seed = static_cast<std::uint64_t>(scenario.seed);
    TrainingResult result =
        simulate(input, options.check_memory ? gpu.memory.value : std::numeric_limits<double>::infinity(), training);
    add_training_metrics(scenario, result, out.summary);
    const double spread = iteration_spread(scenario, result, input.device);
    for (const char* name : {"iteration_time_s", "tokens_per_s", "tflops_per_gpu", "mfu", "hfu"}) {
        for (Metric& metric : out.summary.metrics) {
            if (metric.name == name) {
                set_interval(metric, spread);
            }
        }
    }
    out.summary.events = result.events;
    out.timeline = std::move(result.timeline);
    add_packet_metrics(result.packets, out.summary);
    out.packets = std::move(result.ports);
    out.training = std::move(result);
}

void run_replay(const Scenario& scenario, ModelCache& models, const RunOptions& options, const Fabric& fabric,
                RunOutput& out) {
    if (scenario.network.fidelity == Fidelity::simgrid || scenario.network.fidelity == Fidelity::packet) {
        throw ConfigError("a replay takes fidelity fluid or analytic");
    }
    const ReplayTrace trace = read_replay(scenario.file(scenario.replay.trace));
    ReplayOptions replay_options;
    replay_options.analytic = scenario.network.fidelity == Fidelity::analytic;
    replay_options.batch_window = SimTime::from_seconds(scenario.network.batch);
    replay_options.paths = scenario.network.path_choice();
    replay_options.timeline = options.timeline;
    replay_options.progress = options.progress;
    ReplayResult result =
        replay(trace, scenario.replay, scenario.cluster.node.gpu, fabric,
               models.collectives(scenario.cluster.node.collectives, scenario.network.collectives), replay_options);
    Summary& summary = out.summary;
    summary.add("replay_time_s", result.seconds, "s");
    if (result.recorded_s >= 0) {
        summary.add("recorded_time_s", result.recorded_s, "s");
    }
    summary.add("operations", static_cast<double>(result.tasks), "1");
    summary.breakdown = {{"device", result.device_s},
                         {"exposed communication", result.exposed_communication_s},
                         {"host", result.host_s},
                         {"idle", result.idle_s}};
    summary.events = result.events;
    summary.notes.push_back(fmt::format("recorded by {}; {} ranks simulated", trace.meta.at("source"), result.ranks));
    constexpr double kFaithful = 0.01;
    if (result.unchanged && result.recorded_s > 0) {
        const double error = result.seconds / result.recorded_s - 1;
        summary.notes.push_back(
            fmt::format("unchanged replay: {:+.3f} % of the recorded time{}", error * 100,
                        std::abs(error) > kFaithful ? ", more than the 1 % that it should keep" : ""));
    }
    out.timeline = std::move(result.timeline);
    out.replay_path = std::move(result.critical_path);
}

constexpr std::size_t kMostDrawn = 200'000;
constexpr std::uint64_t kMostKept = 2'000'000;

std::string too_many_to_draw(std::uint64_t messages) {
    return fmt::format("--trace draws up to {} messages of a fluid or analytic run; this one has {}", kMostDrawn,
                       messages);
}

// Messages as spans on their senders, in as many lanes as overlap.
Timeline draw_messages(const Schedule& schedule, const MessageRunResult& result) {
    if (result.starts.size() != schedule.messages.size() || schedule.messages.size() > kMostDrawn) {
        throw ConfigError(too_many_to_draw(schedule.messages.size()));
    }
    Timeline timeline;
    std::map<std::uint32_t, std::vector<double>> lanes;  // by sender: when each lane is free
    std::vector<std::uint32_t> order(schedule.messages.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return result.starts[a] < result.starts[b]; });
    for (const std::uint32_t id : order) {
        const Message& message = schedule.messages[id];
        std::vector<double>& busy = lanes[message.from];
        std::uint32_t lane = 0;
        while (lane < busy.size() && busy[lane] > result.starts[id]) {
            ++lane;
        }
        busy.resize(std::max<std::size_t>(busy.size(), lane + 1));
        busy[lane] = result.completions[id];
        timeline.spans.push_back(Span{fmt::format("to {}", message.to), "message", message.from, lane,
                                      result.starts[id] * 1e6, (result.completions[id] - result.starts[id]) * 1e6});
    }
    for (const auto& [sender, busy] : lanes) {
        timeline.processes.emplace_back(sender, fmt::format("rank {}", sender));
    }
    return timeline;
}

Schedule traffic_of(const Scenario& s, std::uint32_t hosts) {
    if (!s.traffic.flows.empty()) {
        return read_flows(s.file(s.traffic.flows), hosts);
    }
    return make_traffic(s.traffic, hosts, static_cast<std::uint64_t>(s.seed));
}

void run_messages_of(const Scenario& scenario, const RunOptions& options, const Fabric& fabric, RunOutput& out) {
    const bool simgrid = scenario.network.fidelity == Fidelity::simgrid;
    MessageRunOptions run = message_options(scenario);
    run.progress = options.progress;
    MessageRunResult result;
    Summary& summary = out.summary;
    const auto keep = [&](Schedule& schedule) {
        if (options.messages && result.starts.size() == schedule.messages.size() &&
            schedule.messages.size() <= kMostKept) {
            out.messages = MessageRecord{std::move(schedule), result.starts, result.completions};
        }
    };
    if (scenario.kind == ScenarioKind::collective) {
        const CollectiveSpec& spec = scenario.collective;
        const auto ranks = spec.ranks > 0 ? static_cast<std::uint32_t>(spec.ranks) : fabric.gpus();
        if (ranks > fabric.gpus()) {
            throw InfeasibleError(fmt::format("{} ranks, but the cluster has {} GPUs", ranks, fabric.gpus()));
        }
        const bool ring = spec.algorithm == Algorithm::ring && spec.op != CollectiveOp::all_to_all &&
                          spec.op != CollectiveOp::send_recv;
        const std::uint64_t ring_messages = static_cast<std::uint64_t>(ranks) * 2 * (ranks - 1);
        const bool stored = (options.timeline && ring_messages <= kMostDrawn) ||
                            (options.messages && ring_messages <= kMostKept && spec.slow_rank < 0);
        if (ring && !simgrid && !stored) {
            result = run_ring(fabric, spec, ranks, run);
        } else {
            Schedule schedule = make_schedule(spec, ranks, fabric.shape().gpus_per_node);
            result =
                simgrid ? run_messages_on_simgrid(fabric, schedule, run.paths) : run_messages(fabric, schedule, run);
            out.timeline = options.timeline ? draw_messages(schedule, result) : Timeline();
            keep(schedule);
        }
        if (options.timeline && out.timeline.spans.empty()) {
            throw ConfigError(too_many_to_draw(ring_messages));
        }
        summary.add("collective_time_s", result.seconds, "s");
        const double algorithm_rate = result.seconds > 0 ? spec.bytes / result.seconds : 0;
        summary.add("algbw_gbps", algorithm_rate * 8e-9, "Gb/s");
        summary.add("busbw_gbps", algorithm_rate * 8e-9 * wire_bytes(spec.op, ranks, Bytes(1)).value(), "Gb/s");
    } else {
        Schedule traffic = traffic_of(scenario, fabric.gpus());
        result = simgrid ? run_messages_on_simgrid(fabric, traffic, run.paths) : run_messages(fabric, traffic, run);
        out.timeline = options.timeline ? draw_messages(traffic, result) : Timeline();
        std::vector<double> sorted = result.completions;
        for (std::size_t i = 0; i < result.starts.size(); ++i) {
            sorted[i] -= result.starts[i] + traffic.messages[i].delay;
        }
        std::sort(sorted.begin(), sorted.end());
        double sum = 0;
        for (const double value : sorted) {
            sum += value;
        }
        const auto quantile = [&](double q) {
            return sorted[std::min(sorted.size() - 1,
                                   static_cast<std::size_t>(q * static_cast<double>(sorted.size())))];
        };
        summary.add("fct_s.mean", sum / static_cast<double>(sorted.size()), "s");
        summary.add("fct_s.p50", quantile(0.5), "s");
        summary.add("fct_s.p99", quantile(0.99), "s");
        summary.add("fct_s.max", sorted.back(), "s");
        keep(traffic);
    }
    summary.add("messages", static_cast<double>(result.messages), "1");
    summary.add("bytes_on_wire", result.bytes, "B");
    summary.add("max_link_utilisation", result.max_link_utilisation, "1");
    summary.events = result.events;
    add_packet_metrics(result.packets, summary);
    out.packets = std::move(result.ports);
    if (result.folded_into_one > 1) {
        summary.notes.push_back(fmt::format("each simulated rank stands for {}", result.folded_into_one));
    }
}

}  // namespace

PathChoice NetworkSpec::path_choice() const {
    return packets.path_kind == PathKind::ecmp || packets.path_kind == PathKind::flowlet ? PathChoice::ecmp
                                                                                         : PathChoice::spray;
}

std::string Scenario::file(const std::string& path) const {
    return directory.empty() || path.front() == '/' ? path : directory + "/" + path;
}

Scenario seen_from(const std::string& directory, Scenario scenario) {
    namespace fs = std::filesystem;
    for (std::string* path : {&scenario.requests.trace, &scenario.replay.trace, &scenario.traffic.flows,
                              &scenario.network.packets.link_events}) {
        if (!path->empty() && path->front() != '/') {
            *path = fs::proximate(fs::absolute(scenario.file(*path)), fs::absolute(directory)).string();
        }
    }
    scenario.directory = directory;
    return scenario;
}

const std::vector<std::string>& library_names() {
    static const std::vector<std::string> kNames = {"nccl", "vllm", "sglang", "trtllm", "ideal"};
    return kNames;
}

const std::vector<std::string>& scenario_kind_names() {
    static const std::vector<std::string> kNames = {"training", "collective", "network", "replay", "serving"};
    return kNames;
}

void describe(Fields& fields, Scenario& s) {
    std::int64_t version = 1;
    fields.integer({"orrery", kSchemaVersionDoc, true, 1, 1}, version);
    fields.enumeration({"kind", "what the scenario asks", true}, scenario_kind_names(), s.kind);
    fields.integer({"seed", "of all random streams", false, 0, 9e15}, s.seed);
    bool present = false;
    fields.section({"cluster", "the machines and their network", true}, std::nullopt, present,
                   [&](Fields& inner) { describe(inner, s.cluster); });
    if (s.kind == ScenarioKind::training) {
        fields.section({"model", "what is trained: a preset or its dimensions", true}, kModelPresets, present,
                       [&](Fields& inner) { describe(inner, s.model); });
        fields.section({"plan", "how it is spread over the cluster", true}, std::nullopt, present,
                       [&](Fields& inner) { describe(inner, s.plan); });
        fields.section({"software", "the generation of training software (default: megatron-core-2024)"},
                       kSoftwarePresets, present, [&](Fields& inner) { describe(inner, s.software); });
        fields.section({"compute", "where kernel times come from"}, [&](Fields& inner) {
            inner.enumeration({"model", "calibrated on measured kernels, or a roofline"}, {"calibrated", "roofline"},
                              s.compute);
        });
        std::size_t faults = 0;
        fields.choice({"faults", "failures during the run"}, {"none"}, faults);
    } else if (s.kind == ScenarioKind::collective) {
        fields.section({"collective", "the operation", true}, std::nullopt, present,
                       [&](Fields& inner) { describe(inner, s.collective); });
    } else if (s.kind == ScenarioKind::serving) {
        fields.section({"model", "what is served: a preset or its dimensions", true}, kModelPresets, present,
                       [&](Fields& inner) { describe(inner, s.model); });
        fields.section({"engine", "replicas, their plan, scheduler and cache"},
                       [&](Fields& inner) { describe(inner, s.engine); });
        fields.section({"requests", "what clients ask for"}, [&](Fields& inner) { describe(inner, s.requests); });
        fields.section({"slo", "what counts as in time"}, [&](Fields& inner) { describe(inner, s.slo); });
        fields.section({"measure", "the part of the run that is measured"},
                       [&](Fields& inner) { describe(inner, s.measure); });
        fields.section({"compute", "where kernel times come from"}, [&](Fields& inner) {
            inner.enumeration({"model", "calibrated on measured kernels, or a roofline"}, {"calibrated", "roofline"},
                              s.compute);
        });
    } else if (s.kind == ScenarioKind::replay) {
        fields.section({"compute", "the recorded program", true}, [&](Fields& inner) {
            std::size_t model = 0;
            inner.choice({"model", "replay: times come from the record"}, {"replay"}, model);
            inner.text({"trace", "file written by 'orrery import'; relative paths start at the scenario", true},
                       s.replay.trace);
        });
        fields.section({"replay", "what is changed about it"}, [&](Fields& inner) { describe(inner, s.replay); });
    } else {
        fields.section({"traffic", "who sends how much to whom", true}, std::nullopt, present,
                       [&](Fields& inner) { describe(inner, s.traffic); });
    }
    fields.section({"network", "how the network is simulated"},
                   [&](Fields& inner) { describe_network(inner, s.network); });
}

Scenario read_scenario(const YamlNode& root, const std::string& name, const DataDirectory& data) {
    Scenario scenario;
    scenario.name = name;
    std::vector<Diagnostic> errors;
    if (root.kind != YamlNode::Kind::map) {
        throw ConfigError({root.mark.error("a scenario is a map that starts with 'orrery: 1'")});
    }
    // Keys of another kind of scenario are unknown keys, so the kind has to be known first.
    if (const YamlNode* kind = root.find("kind")) {
        if (kind->scalar == "sweep") {
            throw ConfigError({kind->mark.error("this is a sweep of scenarios: 'orrery sweep' runs it")});
        }
        const auto& names = scenario_kind_names();
        const auto found = std::find(names.begin(), names.end(), kind->scalar);
        if (found != names.end()) {
            scenario.kind = static_cast<ScenarioKind>(found - names.begin());
        }
    }
    const auto mark_of = [&](const char* key) {
        const YamlNode* node = root.find(key);
        return node != nullptr ? node->mark : root.mark;
    };
    scenario.cluster_mark = mark_of("cluster");
    scenario.plan_mark = mark_of("plan");
    scenario.network_mark = mark_of("network");
    scenario.engine_mark = mark_of("engine");
    scenario.requests_mark = mark_of("requests");
    read_fields(
        root, data, errors, [&](Fields& fields) { describe(fields, scenario); }, &scenario.origins);
    if (scenario.network.fidelity == Fidelity::packet) {
        for (const std::string& problem : problems_of(scenario.network.packets)) {
            errors.push_back(scenario.network_mark.error(problem));
        }
    }
    if (scenario.kind == ScenarioKind::serving) {
        for (const std::string& problem : problems_of(scenario.requests)) {
            errors.push_back(scenario.requests_mark.error(problem));
        }
        for (const std::string& problem : problems_of(scenario.engine, scenario.requests, scenario.model)) {
            errors.push_back(scenario.engine_mark.error(problem));
        }
    }
    if (!errors.empty()) {
        throw ConfigError(errors);
    }
    if (scenario.kind == ScenarioKind::training && scenario.software.name.empty()) {
        read_fields(load_yaml(data.path(kSoftwarePresets, kDefaultSoftware)), data, errors,
                    [&](Fields& fields) { describe(fields, scenario.software); });
    }
    complete(scenario.model);
    const FabricShape shape = shape_of(scenario.cluster, scenario.cluster_mark);
    if (const std::int64_t rails = scenario.network.packets.nic.rails; rails > std::max(1U, shape.nics_per_node)) {
        throw ConfigError({scenario.network_mark.error(
            fmt::format("nic.rails is {}, but a node has {} NICs", rails, shape.nics_per_node))});
    }
    return scenario;
}

Scenario load_scenario(const std::string& path, const std::vector<std::string>& overrides, const DataDirectory& data) {
    YamlNode root;
    if (path == "-") {
        const std::string text((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
        root = parse_yaml(text, "standard input");
    } else {
        root = load_yaml(path);
    }
    for (const std::string& assignment : overrides) {
        apply_override(root, assignment);
    }
    Scenario scenario =
        read_scenario(root, path == "-" ? "stdin" : std::filesystem::path(path).filename().string(), data);
    scenario.directory = path == "-" ? "" : std::filesystem::path(path).parent_path().string();
    return scenario;
}

std::string resolved_json(Scenario scenario) {
    return write_fields([&](Fields& fields) { describe(fields, scenario); });
}

std::string scenario_schema(ScenarioKind kind) {
    Scenario scenario;
    scenario.kind = kind;
    return schema_of([&](Fields& fields) { describe(fields, scenario); });
}

const CostModel& ModelCache::device(const DeviceSpec& device, ComputeKind kind, const std::string& kernels) {
    DeviceSpec copy = device;
    const std::string key = write_fields([&](Fields& fields) { orrery::describe(fields, copy); }) +
                            (kind == ComputeKind::roofline ? "roofline" : "calibrated") + kernels;
    std::unique_ptr<CostModel>& slot = devices_[key];
    if (!slot) {
        if (kind == ComputeKind::roofline) {
            slot = std::make_unique<Roofline>(device);
        } else {
            slot = make_calibrated_model(device, data_.path("models/data/kernels"), kernels);
        }
        if (wrap_) {
            slot = wrap_(std::move(slot), device);
        }
    }
    return *slot;
}

const CollectiveModel& ModelCache::collectives(const std::string& generation, LibraryKind kind) {
    const std::string& name = library_names()[static_cast<std::size_t>(kind)];
    std::unique_ptr<CollectiveModel>& slot = libraries_[kind == LibraryKind::ideal ? "ideal" : name + " " + generation];
    if (!slot) {
        if (kind == LibraryKind::ideal) {
            slot = std::make_unique<IdealCollectives>();
        } else {
            slot = make_collectives(generation, name, data_);
        }
    }
    return *slot;
}

TrainingInput training_input(const Scenario& scenario, ModelCache& models, const Fabric& fabric) {
    const DeviceSpec& gpu = scenario.cluster.node.gpu;
    check(scenario.model, scenario.plan, fabric.gpus(), scenario.plan_mark);
    if (gpu.matrix_flops(scenario.plan.precision) <= 0) {
        throw InfeasibleError(fmt::format("{} has no matrix unit for {}", gpu.name,
                                          precision_names()[static_cast<std::size_t>(scenario.plan.precision)]));
    }
    const bool by_packet = scenario.network.fidelity == Fidelity::packet;
    return TrainingInput{scenario.model,
                         scenario.plan,
                         scenario.software,
                         models.device(gpu, scenario.compute),
                         fabric,
                         models.collectives(scenario.cluster.node.collectives, scenario.network.collectives),
                         scenario.network.path_choice(),
                         scenario.network.fold && !by_packet,
                         by_packet};
}

MessageRunOptions message_options(const Scenario& scenario) {
    MessageRunOptions run;
    run.analytic = scenario.network.fidelity == Fidelity::analytic;
    run.fold = scenario.network.fold;
    run.paths = scenario.network.path_choice();
    if (scenario.network.fidelity == Fidelity::packet) {
        run.packets = &scenario.network.packets;
        run.link_events = link_events_of(scenario);
        run.seed = static_cast<std::uint64_t>(scenario.seed);
    }
    run.batch_window = SimTime::from_seconds(scenario.network.batch);
    return run;
}

RunOutput run(const Scenario& scenario, ModelCache& models, const RunOptions& options) {
    const auto started = std::chrono::steady_clock::now();
    RunOutput out;
    out.summary.scenario = scenario.name;
    out.summary.kind = scenario_kind_names()[static_cast<std::size_t>(scenario.kind)];
    out.summary.hash = hash_text(resolved_json(scenario));
    out.summary.seed = static_cast<std::uint64_t>(scenario.seed);
    const Fabric fabric(shape_of(scenario.cluster, scenario.cluster_mark));
    if (scenario.kind == ScenarioKind::training) {
        if (scenario.network.fidelity == Fidelity::simgrid) {
            throw ConfigError({scenario.plan_mark.error(
                "fidelity simgrid serves collective and network scenarios: SimGrid owns its clock; use fluid here")});
        }
        if (scenario.cluster.nodes == 0) {
            throw ConfigError({scenario.cluster_mark.error("training needs 'nodes' with GPUs, not bare hosts")});
        }
        run_training(scenario, models, options, fabric, out);
    } else if (scenario.kind == ScenarioKind::serving) {
        run_serving(scenario, models, options, fabric, out);
    } else if (scenario.kind == ScenarioKind::replay) {
        run_replay(scenario, models, options, fabric, out);
    } else {
        run_messages_of(scenario, options, fabric, out);
    }
    const auto elapsed = std::chrono::steady_clock::now() - started;
    out.summary.wall_time_s = std::chrono::duration<double>(elapsed).count();
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    out.summary.peak_rss_mib = static_cast<double>(usage.ru_maxrss) / 1024;
    return out;
}

DataDirectory find_data_directory(const std::string& program) {
    std::error_code failed;
    const std::filesystem::path real = std::filesystem::read_symlink("/proc/self/exe", failed);
    const std::filesystem::path base = failed ? std::filesystem::path(program) : real;
    const std::filesystem::path installed = base.parent_path().parent_path() / "share" / "orrery";
    if (std::filesystem::exists(installed / "models" / "data")) {
        return DataDirectory(installed.string());
    }
    return DataDirectory(ORRERY_SOURCE_DIR);
}

}  // namespace orrery
