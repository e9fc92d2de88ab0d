// kind: collective and kind: network. Messages on a fabric, of a collective or as traffic.

#include "tools/driver/kinds/messages.hpp"

#include "sim/network/simgrid_job.hpp"
#include "tools/driver/given_faults.hpp"
#include "tools/driver/kinds/completion_times.hpp"
#include "tools/driver/scenario.hpp"
#include "workloads/collective/algorithms/algorithm.hpp"
#include "workloads/collective/choose.hpp"
#include "workloads/collective/lone_message.hpp"
#include "workloads/trace/flow_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace orrery::driver {

namespace {

constexpr std::size_t kMostDrawn = 200'000;
constexpr UnitPrice kFoldedMessage = {2e-8, 0};  // of a ring that is not stored
constexpr UnitPrice kAlikeMessage = {1e-6, 0};   // looked at for its class, of which one is simulated
constexpr double kHashedPair =
    2e-10;  // s, of two messages that start at once on hashed paths: each has a rate of its own

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
    const auto start_of = [&](std::uint32_t id) { return result.starts[id] + schedule.messages[id].delay; };
    std::map<std::uint32_t, std::vector<double>> lanes;  // by sender: when each lane is free
    std::vector<std::uint32_t> order(schedule.messages.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return start_of(a) < start_of(b); });
    for (const std::uint32_t id : order) {
        const Message& message = schedule.messages[id];
        std::vector<double>& busy = lanes[message.from];
        std::uint32_t lane = 0;
        const double start = start_of(id);
        while (lane < busy.size() && busy[lane] > start) {
            ++lane;
        }
        busy.resize(std::max<std::size_t>(busy.size(), lane + 1));
        ORRERY_ASSERT(lane < busy.size() && busy[lane] <= start);  // lanes hold messages one after another
        busy[lane] = result.completions[id];
        timeline.spans.push_back(Span{fmt::format("to {}", message.to),
                                      "message",
                                      message.from,
                                      lane,
                                      start * 1e6,
                                      (result.completions[id] - start) * 1e6,
                                      {{"bytes", message.bytes}}});
    }
    for (const auto& [sender, busy] : lanes) {
        timeline.processes.emplace_back(sender, fmt::format("rank {}", sender));
    }
    return timeline;
}

void put_into_class(Schedule& schedule, std::uint8_t number) {
    for (Message& message : schedule.messages) {
        message.traffic_class = number & 15U;
    }
}

Schedule traffic_of(const Scenario& s, const TrafficSpec& traffic, std::uint32_t hosts) {
    if (!traffic.flows.empty()) {
        return read_flows(s.file(traffic.flows), hosts, s.network.class_names());
    }
    Schedule out = make_traffic(traffic, hosts, static_cast<std::uint64_t>(s.seed));
    put_into_class(out, s.network.class_number(traffic.traffic_class));
    return out;
}

// Messages of either kind, and what is said of them afterwards.
class MessageScenario {
  public:
    MessageScenario(const Scenario& scenario, const RunOptions& options, const Fabric& fabric,
                    const Placement& placement)
        : fabric_(fabric),
          placement_(placement),
          run_options_(message_options(scenario)),
          collective_(scenario.find<CollectiveKind>() != nullptr),
          options_(options) {
        const std::uint32_t gpus = placement.gpus();
        if (!collective_) {
            schedule_ = traffic_of(scenario, scenario.as<NetworkKind>().traffic, gpus);
            return;
        }
        spec_ = scenario.as<CollectiveKind>().collective_of(scenario);
        ranks_ = spec_.ranks > 0 ? static_cast<std::uint32_t>(spec_.ranks) : gpus;
        if (ranks_ > gpus) {
            throw InfeasibleError(fmt::format("{} ranks, but the cluster has {} GPUs", ranks_, gpus),
                                  ErrorCode::too_few_gpus);
        }
        const bool chooses = spec_.algorithm == &algorithm("auto");
        spec_ = resolved(spec_, fabric, placement, scenario.network.path_choice(), ranks_);
        chosen_ = chooses ? spec_.algorithm->name : "";
        const bool reduces = spec_.op == CollectiveOp::all_reduce || spec_.op == CollectiveOp::all_gather ||
                             spec_.op == CollectiveOp::reduce_scatter;
        const bool ring = spec_.algorithm == &algorithm("ring") && reduces;
        if (spec_.slow_rank >= static_cast<std::int64_t>(ranks_)) {
            throw InfeasibleError(
                fmt::format("rank {} is slow, but the last one is {}", spec_.slow_rank, std::int64_t{ranks_} - 1));
        }
        if (spec_.slow_rank >= 0 && (!ring || options.timeline || scenario.network.fidelity == Fidelity::simgrid)) {
            throw ConfigError(
                "collective.slow_rank serves rings of all-reduce, all-gather and reduce-scatter, without --trace and "
                "not "
                "with fidelity simgrid");
        }
        ring_messages_ = static_cast<std::uint64_t>(ranks_) * 2 * (ranks_ - 1);
        const bool stored = (options.timeline && ring_messages_ <= kMostDrawn) ||
                            (options.messages && ring_messages_ <= kMostListed && spec_.slow_rank < 0);
        const Fidelity fidelity = scenario.network.fidelity;
        const bool counted = !spec_.in_memory;  // what is summed in memory goes message by message
        bool unstored_ring = ring && counted && fidelity != Fidelity::simgrid;
        const bool each = options.timeline || options.messages;  // message is asked for
        if (spec_.algorithm->shifts != nullptr && counted &&
            (fidelity == Fidelity::fluid || fidelity == Fidelity::analytic)) {
            shifts_ = spec_.algorithm->shifts(spec_, ranks_);
        }
        std::optional<Schedule> one =
            each ? std::nullopt : folded_torus(spec_, fabric, placement, message_options(scenario));
        if (spec_.algorithm->rings != nullptr && counted && reduces && ranks_ > 1 && fidelity == Fidelity::fluid) {
            rings_ = spec_.algorithm->rings(spec_, ranks_, fabric.gpus_per_domain());
        }
        stored_anyway_ = !unstored_ring && shifts_.count == 0 && rings_.members.empty();
        unstored_ring = unstored_ring && !stored;
        if (each) {
            shifts_ = Shifts();
            rings_ = Rings();
        }
        ORRERY_ASSERT(spec_.algorithm != nullptr && ranks_ >= 1);
        form_ = unstored_ring             ? Form::ring
                : shifts_.count > 0       ? Form::shifts
                : !rings_.members.empty() ? Form::rings
                                          : Form::stored;
        if (one.has_value()) {
            schedule_ = std::move(*one);
        } else if (form_ == Form::stored) {
            schedule_ = make_schedule(spec_, ranks_, fabric.gpus_per_domain());
        }
        put_into_class(schedule_, scenario.network.class_number(spec_.traffic_class));
    }

    /// Null where there is nothing to send.
    [[nodiscard]] std::unique_ptr<MessageRun> add(const RunContext& context, const MessageRunOptions& options) const {
        switch (form_) {
            case Form::ring:
                return ranks_ > 1
                           ? add_ring(context.simulation, context.placement,
                                      context.scenario.as<CollectiveKind>().collective, ranks_, options, context.start)
                           : nullptr;
            case Form::shifts:
                return add_shifts(context.simulation, context.placement, shifts_, ranks_, options, context.start);
            case Form::rings:
                return add_rings(context.simulation, context.placement, rings_, options, context.start);
            case Form::stored:
                break;
        }
        return add_messages(context.simulation, context.placement, schedule_, options, context.start);
    }
    /// All messages are known, and none waits for another.
    [[nodiscard]] bool known_ahead() const { return form_ == Form::stored && schedule_.releases.empty(); }
    [[nodiscard]] const Schedule& schedule() const { return schedule_; }

    void summarise(MessageRunResult result, RunOutput& out) {
        Summary& summary = out.summary;
        out.seconds = result.seconds;
        if (options_.timeline && form_ == Form::stored) {
            out.timeline = draw_messages(schedule_, result);
        }
        if (options_.timeline && collective_ && out.timeline.spans.empty()) {
            throw ConfigError(too_many_to_draw(ring_messages_));
        }
        if (collective_) {
            summary.add("collective_time_s", result.seconds, "s");
            const double algorithm_rate = result.seconds > 0 ? spec_.bytes / result.seconds : 0;
            summary.add("algbw_gbps", algorithm_rate * 8e-9, "Gb/s");
            const double bus_rate = algorithm_rate * wire_bytes(spec_.op, ranks_, Bytes(1)).value();
            summary.add("busbw_gbps", bus_rate * 8e-9, "Gb/s");
            summary.notes.push_back(fmt::format("as nccl-tests prints it: algbw {:.2f} GB/s, busbw {:.2f} GB/s{}",
                                                algorithm_rate * 1e-9, bus_rate * 1e-9,
                                                chosen_.empty() ? "" : ", by algorithm " + chosen_));
        } else {
            summary.add("makespan_s", result.seconds, "s");
        }
        ORRERY_ASSERT(result.seconds >= 0 && result.bytes >= 0);
        add_completion_times(result, summary);
        summary.add("messages", static_cast<double>(result.messages), "1");
        summary.add("bytes_on_wire", result.bytes, "B");
        if (result.folded_into_one > 1) {
            summary.notes.push_back(fmt::format("each simulated rank stands for {}", result.folded_into_one));
        }
        if (result.classes > 0) {
            summary.notes.push_back(
                fmt::format("{} messages form {} classes of equal messages; one of each class was simulated",
                            result.messages, result.classes));
        }
        if (options_.messages && result.starts.size() == schedule_.messages.size() && form_ == Form::stored &&
            schedule_.messages.size() <= kMostListed) {
            out.messages = MessageRecord{std::move(schedule_), std::move(result.starts), std::move(result.completions)};
        }
    }

  private:
    // Of messages that were simulated one by one; whether somebody asked for them one by one changes nothing.
    void add_completion_times(const MessageRunResult& result, Summary& summary) const {
        if (form_ != Form::stored || !stored_anyway_ || result.completions.empty() ||
            result.completions.size() != schedule_.messages.size()) {
            return;
        }
        std::vector<double> times = result.completions;
        for (std::size_t i = 0; i < result.starts.size(); ++i) {
            times[i] -= result.starts[i] + schedule_.messages[i].delay;
        }
        LoneMessages alone(fabric_, placement_, schedule_, run_options_);
        ORRERY_ASSERT(*std::min_element(times.begin(), times.end()) >= -1e-9);
        add_spread("fct_s", std::move(times), "s", summary);
        add_spread("slowdown", slowdowns(alone, schedule_, result.starts, result.completions), "1", summary);
    }

    const Fabric& fabric_;
    Placement placement_;
    MessageRunOptions run_options_;
    bool collective_;
    CollectiveSpec spec_;
    const RunOptions& options_;
    std::uint32_t ranks_ = 0;
    std::uint64_t ring_messages_ = 0;
    enum class Form { stored, ring, rings, shifts };  ///< rings and shifts are not stored
    Form form_ = Form::stored;
    bool stored_anyway_ = true;  ///< and not because messages were asked for
    Shifts shifts_;
    Rings rings_;
    std::string chosen_;  ///< by `auto`
    Schedule schedule_;
};

class MessageJob final : public ScenarioRun {
  public:
    explicit MessageJob(const RunContext& context)
        : messages_(context.scenario, context.options, context.fabric, context.placement) {
        MessageRunOptions options = message_options(context.scenario);
        options.progress = context.options.progress;
        const bool threads = context.scenario.network.threads > 1;
        if (threads && messages_.known_ahead()) {
            context.simulation.run_ahead();  // nothing waits for what arrives
        }
        run_ = messages_.add(context, options);
    }

    void summarise(RunOutput& out) override {
        messages_.summarise(run_ != nullptr ? run_->result() : MessageRunResult(), out);
    }

  private:
    MessageScenario messages_;
    std::unique_ptr<MessageRun> run_;
};

// A class of traffic is one that the network has.
void check_class(const YamlNode& root, const char* section, const Scenario& scenario, std::vector<Diagnostic>& errors) {
    const YamlNode* node = root.find(section);
    node = node == nullptr ? nullptr : node->find("class");
    if (node == nullptr) {
        return;
    }
    const std::vector<std::string> names = scenario.network.class_names();
    if (!scenario.network.by_packet()) {
        errors.push_back(node->mark.error("classes of traffic are simulated at fidelity packet"));
    } else if (std::find(names.begin(), names.end(), node->scalar) == names.end()) {
        const std::string near = nearest_name(node->scalar, names);
        errors.push_back(node->mark.error(fmt::format("'{}' is none of network.classes{}", node->scalar,
                                                      near.empty() ? "" : fmt::format("; did you mean '{}'?", near)),
                                          ErrorCode::unknown_name));
    }
}

}  // namespace

void NetworkKind::check(const YamlNode& root, const DataDirectory&, Scenario& whole, std::vector<Diagnostic>& errors) {
    check_class(root, "traffic", whole, errors);
    const YamlNode* section = root.find("traffic");
    const YamlNode* chosen = section == nullptr ? nullptr : section->find("class");
    if (chosen != nullptr && !traffic.flows.empty()) {
        errors.push_back(chosen->mark.error("the classes of a file's flows are in its column class"));
    }
}

void CollectiveKind::check(const YamlNode& root, const DataDirectory&, Scenario& whole,
                           std::vector<Diagnostic>& errors) {
    if (const YamlNode* given = root.find("faults"); given != nullptr && faults.given && collective.slow_rank >= 0) {
        errors.push_back(
            given->mark.error("collective.slow_rank is a fault too: give it here, as 'degraded' of a NIC"));
    }
    const YamlNode* section = root.find("collective");
    const YamlNode* chosen = section != nullptr ? section->find("algorithm") : nullptr;
    if (whole.network.threads > 1 && collective.algorithm == &algorithm("in-switch") && chosen != nullptr) {
        errors.push_back(chosen->mark.error(
            "threads cannot share a network that sums inside its switches: leave in-switch or network.threads out"));
    }
    check_class(root, "collective", whole, errors);
    const bool laned = whole.network.by_packet() &&
                       (whole.network.packets.classes.size() > 1 || whole.network.packets.queues.credits > 0);
    if (laned && collective.algorithm == &algorithm("in-switch") && chosen != nullptr) {
        errors.push_back(
            chosen->mark.error("sums inside switches know ports with one queue: leave in-switch, or network.classes "
                               "and queues.credits, out"));
    }
    const YamlNode* given = section != nullptr ? section->find("in_memory") : nullptr;
    if (!collective.in_memory || given == nullptr) {
        return;
    }
    const Fidelity fidelity = whole.network.fidelity;
    if (fidelity != Fidelity::fluid && fidelity != Fidelity::analytic) {
        errors.push_back(given->mark.error("sums in memory are simulated at fidelity fluid and analytic"));
    }
    if (whole.cluster.hosts > 0) {
        errors.push_back(given->mark.error("bare hosts have no device whose memory sums could pass: give 'nodes'"));
    }
}

void CollectiveKind::describe(Fields& fields, const Scenario&) {
    fields.section({"collective", "collective operation: its kind, payload, ranks and algorithm", true},
                   [&](Fields& inner) { orrery::describe(inner, collective); });
    describe_given(fields, faults);
}

void NetworkKind::describe(Fields& fields, const Scenario&) {
    fields.section({"traffic", "traffic between hosts: its pattern, sizes and senders", true},
                   [&](Fields& inner) { orrery::describe(inner, traffic); });
    describe_given(fields, faults);
}

bool CollectiveKind::sums_in_switches() const {
    return collective.algorithm == &algorithm("in-switch") || collective.algorithm == &algorithm("auto");
}

RunCost NetworkKind::cost(const Scenario& s) const {
    const double hosts = endpoints(s.cluster);
    if (!traffic.flows.empty()) {
        return cost_of_messages(s, size_of(s.file(traffic.flows)) / kBytesPerLine, 0, kMessage);
    }
    const double messages = traffic.pattern == TrafficPattern::all_to_all ? hosts * hosts : hosts;
    return cost_of_messages(s, messages, messages * traffic.size, kMessage);
}

CollectiveSpec CollectiveKind::collective_of(const Scenario& whole) const {
    CollectiveSpec out = collective;
    if (!out.program.empty()) {
        out.program = whole.file(out.program);
    }
    return out;
}

RunCost CollectiveKind::cost(const Scenario& s) const {
    const double ranks = collective.ranks > 0 ? static_cast<double>(collective.ranks) : endpoints(s.cluster);
    const Fabric fabric = fabric_of(s);
    const CollectiveSpec spec = ranks <= fabric.gpus()
                                    ? resolved(collective_of(s), fabric, Placement(fabric), s.network.path_choice(),
                                               static_cast<std::uint32_t>(ranks))
                                    : collective_of(s);
    const Shifts shifts =
        spec.algorithm->shifts != nullptr ? spec.algorithm->shifts(spec, static_cast<std::uint32_t>(ranks)) : Shifts();
    const double messages =
        shifts.count > 0 ? ranks * shifts.count : spec.algorithm->messages(spec, ranks, fabric.gpus_per_domain());
    const double volume = spec.op == CollectiveOp::all_reduce ? 2 : 1;  // of the payload, by each rank
    const bool ring = spec.algorithm == &algorithm("ring");
    const double per_node = s.cluster.nodes > 0 ? fabric.gpus_per_domain() : 1;
    // Rings, and what works inside nodes first, cross once for all ranks of a node.
    const std::string name = spec.algorithm->name;
    const bool by_node =
        ring || name == "multi-ring" || (name == "hierarchical" && spec.op != CollectiveOp::all_to_all);
    const double crossing = by_node ? 1 / per_node : std::max(0.0, 1 - per_node / std::max(1.0, ranks));
    const bool fluid = s.network.fidelity == Fidelity::fluid;
    const bool hashed = s.network.path_choice() == PathChoice::ecmp;
    const bool folds = s.network.fold && !faults.given && !spec.in_memory;
    const bool reduces = reduces_or_gathers(spec.op);  // of others rings are chains
    const bool rings = ring ? spec.slow_rank < 0 : fluid && !hashed && reduces && spec.algorithm->rings != nullptr;
    const UnitPrice each = folds && rings                                  ? kFoldedMessage
                           : folds && fluid && !hashed && shifts.count > 0 ? kAlikeMessage
                                                                           : kMessage;
    RunCost out = cost_of_messages(s, messages, volume * ranks * spec.bytes, each, crossing);
    if (fluid && hashed && shifts.count > 1 && s.network.batch == 0) {
        out.seconds = std::max(out.seconds, kHashedPair * messages * messages);
        out.what += " that end one by one on hashed paths (network.batch groups their ends)";
    }
    return out;
}

std::unique_ptr<ScenarioRun> CollectiveKind::prepare(const RunContext& context) const {
    return std::make_unique<MessageJob>(context);
}

std::unique_ptr<ScenarioRun> NetworkKind::prepare(const RunContext& context) const {
    return std::make_unique<MessageJob>(context);
}

MessageRunOptions message_options(const Scenario& scenario) {
    MessageRunOptions options;
    options.run = run_settings(scenario);
    options.fold = scenario.network.fold && !faults_of(scenario).given;
    options.paths = scenario.network.path_choice();
    const auto* own = scenario.find<CollectiveKind>();
    options.traffic_class = scenario.network.class_number(own != nullptr ? own->collective.traffic_class : "");
    if (own != nullptr && own->collective.in_memory) {
        for (const GroupSpec& group : scenario.cluster.groups) {
            options.memories.push_back(group.node.gpu.memory_bandwidth.value);
        }
        if (options.memories.empty()) {
            options.memories.push_back(scenario.cluster.node.gpu.memory_bandwidth.value);
        }
    }
    return options;
}

static void messages_on_simgrid(const Scenario& scenario, const RunOptions& options, const Fabric& fabric,
                                RunOutput& out) {
    if (!has_simgrid()) {
        throw ConfigError({scenario.network_mark.error(
            "fidelity simgrid needs the program orrery-simgrid beside this one, and this build has no SimGrid: use "
            "fluid")});
    }
    MessageScenario messages(scenario, options, fabric, Placement(fabric));
    MessageRunResult result = run_messages_on_simgrid(fabric, messages.schedule(), scenario.network.path_choice());
    const double utilisation = result.max_link_utilisation;
    messages.summarise(std::move(result), out);
    out.summary.add("max_link_utilisation", utilisation, "1");
}

void CollectiveKind::run_on_simgrid(const Scenario& whole, const RunOptions& options, const Fabric& fabric,
                                    RunOutput& out) const {
    messages_on_simgrid(whole, options, fabric, out);
}

void NetworkKind::run_on_simgrid(const Scenario& whole, const RunOptions& options, const Fabric& fabric,
                                 RunOutput& out) const {
    messages_on_simgrid(whole, options, fabric, out);
}

static constexpr const char* kCollectiveCards[] = {"collective_time_s",    "algbw_gbps",    "busbw_gbps",
                                                   "max_link_utilisation", "bytes_on_wire", "retransmissions"};

const KindRow CollectiveKind::kRow = {
    .name = "collective",
    .headline = "collective_time_s",
    .cards = kCollectiveCards,
    .drawing = TimelineDrawing::few_streams,
    .network = {.folds = true, .threads = true, .flows = true, .simgrid = true},
    .make = make_kind<CollectiveKind>,
};

static constexpr const char* kNetworkCards[] = {
    "max_link_utilisation", "bytes_on_wire", "messages",       "drops", "trims",
    "retransmissions",      "ecn_marks",     "max_queue_bytes"};

const KindRow NetworkKind::kRow = {
    .name = "network",
    .headline = "fct_s.max",
    .cards = kNetworkCards,
    .drawing = TimelineDrawing::few_streams,
    .network = {.threads = true, .flows = true, .simgrid = true},
    .make = make_kind<NetworkKind>,
};

}  // namespace orrery::driver
