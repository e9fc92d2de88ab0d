#include "tools/driver/run_cost.hpp"

#include "tools/driver/kind.hpp"
#include "tools/driver/training_faults.hpp"

#include "workloads/collective/algorithms/algorithm.hpp"
#include "workloads/collective/choose.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace orrery::inline driver {

namespace {

// Time and memory of one of what is counted; tests/bench measures them.
struct UnitPrice {
    double seconds;
    double bytes;
};
constexpr UnitPrice kPacketHop = {2e-7, 0};
constexpr UnitPrice kMessage = {4e-6, 500};      // of a fluid or analytic run, with what it waits for
constexpr UnitPrice kFoldedMessage = {2e-8, 0};  // of a ring that is not stored
constexpr UnitPrice kAlikeMessage = {1e-6, 0};   // looked at for its class, of which one is simulated
constexpr double kHashedPair =
    2e-10;  // s, of two messages that start at once on hashed paths: each has a rate of its own
constexpr UnitPrice kTask = {4e-7, 70};         // of a training iteration or a replay
constexpr UnitPrice kCopied = {1.5e-7, 10};     // of an iteration whose ranks do the same: copies of one of each stage
constexpr UnitPrice kRequest = {8e-6, 40};      // of usual lengths
constexpr double kToken = 2e-8;                 // s, of an output token among others of its batch
constexpr double kIteration = 4e-7;             // s, of a batch that decodes
constexpr UnitPrice kCampaignStep = {3e-7, 0};  // a fault, or a stretch of training with its checkpoint
constexpr UnitPrice kSlowState = {1.2e-4, 1200};  // of an iteration that a campaign prepares, and whose time it keeps
constexpr double kHops = 4;                       // links of a path through a fabric of two tiers
constexpr double kTimeout = 8;                    // round trips
constexpr double kTasksPerPass = 8;               // of a pipeline stage: compute, its transfers and what they wait for
constexpr double kPacketHost =
    10.5 * 1024;                      // B of a host at packet fidelity, with its ports: 16,384 and 32,768 of them
constexpr double kBytesPerRow = 60;   // of a trace of operations
constexpr double kBytesPerLine = 30;  // of a trace of requests or flows

RunCost cost_of(double count, UnitPrice price, const char* what) {
    return {count * price.seconds, count * price.bytes, fmt::format("{:.2g} {}", count, what)};
}

double size_of(const std::string& path) {
    std::error_code failed;
    const auto size = std::filesystem::file_size(path, failed);
    return failed ? 0 : static_cast<double>(size);
}

double endpoints(const ClusterSpec& cluster) {
    return static_cast<double>(cluster.nodes > 0 ? cluster.nodes * cluster.node.gpus : cluster.hosts);
}

double nic_rate(const ClusterSpec& cluster) {
    const double rate = cluster.nodes > 0 ? cluster.node.nic_bandwidth.value : cluster.fabric.link;
    return rate > 0 ? rate : 1e15;
}

// `crossing`: the share of bytes that leave their node.
RunCost cost_of_messages(const Scenario& s, double messages, double bytes, const UnitPrice& each, double crossing = 1) {
    if (s.network.fidelity == Fidelity::packet) {
        const double packets = crossing * std::max(messages, bytes / s.network.packets.mtu);
        RunCost out = cost_of(kHops * packets, kPacketHop, "packet-hops");
        out.bytes = messages * kMessage.bytes + endpoints(s.cluster) * kPacketHost;
        // A packet that waits for the memory of a host runs into a timeout every few round trips.
        if (const PacketSpec& of = s.network.packets; of.nic.host_memory > 0) {
            const double round_trip = 2 * kHops * (s.cluster.fabric.latency + of.mtu / nic_rate(s.cluster));
            const double timeout = of.transport.timeout > 0 ? of.transport.timeout : kTimeout * round_trip;
            out.seconds += kPacketHop.seconds * crossing * bytes / of.nic.host_memory / timeout;
        }
        return out;
    }
    return cost_of(messages, each, "messages");
}

}  // namespace

RunCost cost_of_traffic(const Scenario& s) {
    const TrafficSpec& traffic = s.traffic;
    const double hosts = endpoints(s.cluster);
    if (!traffic.flows.empty()) {
        return cost_of_messages(s, size_of(s.file(traffic.flows)) / kBytesPerLine, 0, kMessage);
    }
    const double messages = traffic.pattern == TrafficPattern::all_to_all ? hosts * hosts : hosts;
    return cost_of_messages(s, messages, messages * traffic.size, kMessage);
}

RunCost cost_of_collective(const Scenario& s) {
    const double ranks = s.collective.ranks > 0 ? static_cast<double>(s.collective.ranks) : endpoints(s.cluster);
    const Fabric fabric = fabric_of(s);
    const CollectiveSpec spec = ranks <= fabric.gpus()
                                    ? resolved(s.collective, fabric, Placement(fabric), s.network.path_choice(),
                                               static_cast<std::uint32_t>(ranks))
                                    : s.collective;
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
    const bool folds = s.network.fold && !s.faults.given && !spec.in_memory;
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

static double strikes_per_second(const ProcessSpec& process, const JobShape& shape) {
    return shape.count(process.component) / process.mtbf_s * (1 + process.bad_share * (process.bad_factor - 1));
}

// How often so many components are slow at once that an iteration with just these is simulated.
static double slow_states(const Scenario& s) {
    const JobShape shape = job_shape(s);
    double rate = 0;
    double at_once = 0;
    for (const ProcessSpec& process : s.faults.processes) {
        if (process.factor < 1 && process.lasts_s > 0) {
            const double own = strikes_per_second(process, shape);
            rate += own;
            at_once += own * process.lasts_s;
        }
    }
    return static_cast<double>(s.faults.runs) * s.faults.duration_s * rate * std::min(1.0, at_once);
}

static RunCost cost_of_campaign(const Scenario& s) {
    constexpr double kStall = 60;  // s, where the interval depends on it
    const JobShape shape = job_shape(s);
    double rate = 0;
    for (const ProcessSpec& process : s.faults.processes) {
        rate += strikes_per_second(process, shape);
    }
    const double stops = interruption_rate(s.faults, shape);
    if (const auto interval = s.faults.checkpoint.interval.make(); stops > 0 || !interval->needs_mtbf()) {
        rate += 2 / std::max(1e-3, interval->seconds(kStall, 1 / std::max(stops, 1e-12)));
    }
    const double length =
        s.faults.work_s > 0 ? std::min(s.faults.duration_s, 10 * s.faults.work_s) : s.faults.duration_s;
    return cost_of(static_cast<double>(s.faults.runs) * length * rate, kCampaignStep, "steps of campaigns");
}

RunCost cost_of_training(const Scenario& s) {
    const PlanSpec& plan = s.plan;
    const double chunks = static_cast<double>(plan.chunks);
    const bool by_layer = plan.zero == 3 || (plan.zero == 2 && plan.pipeline == 1);
    const double parts = by_layer ? static_cast<double>(s.model.layers) / static_cast<double>(plan.pipeline) : chunks;
    const bool folds = s.network.fold && !s.network.by_packet();
    const double ranks = static_cast<double>(folds ? plan.pipeline : plan.ranks());
    const bool alike = !s.faults.given && !plan.documents.given && !plan.offload.given;
    RunCost out = cost_of(2 * static_cast<double>(plan.micro_batches()) * parts * ranks * kTasksPerPass,
                          alike ? kCopied : kTask, "operations");
    if (s.faults.campaign) {
        const RunCost campaign = cost_of_campaign(s);
        const RunCost anew = out;
        const double states = slow_states(s);
        out.seconds += campaign.seconds + states * (anew.seconds + kSlowState.seconds);
        out.bytes += states * kSlowState.bytes;
        out.what += ", " + campaign.what;
    }
    return out;
}

RunCost cost_of_replay(const Scenario& s) {
    const double ranks = std::max(1.0, static_cast<double>(s.replay.ranks));
    return cost_of(size_of(s.file(s.replay.trace)) / kBytesPerRow * ranks, kTask, "operations");
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
static double widest_batch(const Scenario& s, double tokens) {
    const PhaseSpec& phase = s.engine.split ? s.engine.decode : s.engine.mixed;
    double most = static_cast<double>(phase.scheduler.max_sequences);
    if (!s.engine.has_step_cost) {
        try {
            const DeviceSpec& device = phase.other_device ? phase.device : s.cluster.node.gpu;
            check(phase, s.model);
            const EngineLimits limits = limits_of(s.engine, phase, s.model, device);
            most = std::min(most, static_cast<double>(limits.blocks) * limits.block / std::max(1.0, tokens));
        } catch (const InfeasibleError&) {
            // The run says what does not fit.
        }
    }
    return std::max(1.0, most);
}

RunCost cost_of_serving(const Scenario& s) {
    constexpr double kGenerated = 20'000;  // until the steady state is known: a few thousand to 200,000
    const RequestsSpec& requests = s.requests;
    const double all = requests.trace.empty() ? kGenerated : size_of(s.file(requests.trace)) / kBytesPerLine;
    const double count = requests.count > 0 ? static_cast<double>(requests.count) : all * requests.sample;
    RunCost out = cost_of(count, kRequest, "requests");
    const double each = mean_tokens(requests, requests.output, &ClientSpec::output);
    // On average a sequence has half of its output in the cache.
    const double batch = std::min(count, widest_batch(s, each / 2));
    const double decoding = count * each * (kToken + kIteration / batch);
    if (decoding > out.seconds) {
        out.what += fmt::format(" of {:.2g} output tokens each", each);
    }
    out.seconds += decoding;
    if (s.network.by_packet() && s.engine.split && !s.engine.same_devices) {
        const double prompt = mean_tokens(requests, requests.prompt, &ClientSpec::prompt);
        const double cached = prompt * cache_bytes_per_token(s.model, s.engine.cache, s.engine.compression);
        const RunCost transfers = cost_of(kHops * count * cached / s.network.packets.mtu, kPacketHop, "packet-hops");
        out.seconds += transfers.seconds;
        out.what += ", " + transfers.what;
    }
    return out;
}

RunCost cost_of_jobs(const Scenario& s) {
    RunCost all;
    for (const JobSpec& job : s.jobs) {
        const RunCost own = expected_cost(job.scenario);
        all.seconds += own.seconds;
        all.bytes += own.bytes;
        all.what += (all.what.empty() ? "" : ", ") + own.what;
    }
    return all;
}

RunCost expected_cost(const Scenario& scenario) {
    return row_of(scenario.kind).cost(scenario);
}

}  // namespace orrery::inline driver
