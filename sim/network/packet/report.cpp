// What a packet run reports: counts, ports, queues over time.

#include "sim/base/error.hpp"
#include "sim/network/packet/network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace orrery::network {

std::string ports_csv(const PacketReport& report) {
    std::string out = "port,bytes,packets,mean_queue_bytes,max_queue_bytes,marks,drops,trims,paused_s,utilisation\n";
    for (const PortReport& p : report.ports) {
        out += fmt::format("{},{:.0f},{},{:.6g},{:.6g},{},{},{},{:.9g},{:.6g}\n", p.name, p.bytes, p.packets,
                           p.mean_queue_bytes, p.max_queue_bytes, p.marks, p.drops, p.trims, p.paused_s, p.utilisation);
    }
    return out;
}

std::string queues_csv(const PacketReport& report) {
    std::string out = "time_s,port,queue_bytes\n";
    for (const QueueSample& s : report.samples) {
        out += fmt::format("{:.12g},{},{:.6g}\n", s.time, report.ports[s.port].name, s.bytes);
    }
    return out;
}

Table flow_sample_table(const PacketReport& report) {
    Table out;
    out.name = "flow_samples";
    out.columns = {{"time_s", 12},          {"flow"},           {"window_bytes", 3}, {"pace_bytes_per_s", 3},
                   {"rate_bytes_per_s", 3}, {"ecn_fraction", 6}};
    out.rows = report.flow_samples.size();
    out.fill = [&report](std::size_t row, std::span<double> cells) {
        const FlowSample& s = report.flow_samples[row];
        const double values[] = {s.time, static_cast<double>(s.token), s.window, s.pace, s.rate, s.marked};
        std::copy(std::begin(values), std::end(values), cells.begin());
    };
    return out;
}

void FlowCounts::add(const FlowCounts& other) {
    paths += other.paths;
    sent += other.sent;
    bytes += other.bytes;
    retransmissions += other.retransmissions;
    needless += other.needless;
    trims += other.trims;
    drops += other.drops;
    marks += other.marks;
    timeouts += other.timeouts;
    arrived += other.arrived;
    arrived_marked += other.arrived_marked;
}

namespace packet {

namespace {
constexpr std::size_t kMostSamples = 20'000'000;
}

void Network::start_samples() {
    if (sampling_armed_) {
        return;
    }
    for (Samples& samples : sampling_) {
        sampling_armed_ = sampling_armed_ || samples.every > 0;
        samples.next = samples.every > 0 ? parts_[0]->clock.now : Wheel::kNever;
    }
    if (sampling_armed_) {
        parts_[0]->clock.schedule(Timer::sample, 0, parts_[0]->clock.now);
    }
}

// Runs while messages do and something else is to happen: it must not keep the simulation alive by itself.
void Network::sample() {
    Partition& all = *parts_[0];
    sampling_armed_ = messages_.live() > 0 && all.clock.wheel.next_time() != Wheel::kNever;
    if (!sampling_armed_) {
        return;
    }
    auto& [queues, flows] = sampling_;
    if (queues.next == all.clock.now) {
        sample_queues();
        queues.next += queues.every;
    }
    if (flows.next == all.clock.now) {
        sample_flows();
        flows.next += flows.every;
    }
    ORRERY_ASSERT(std::min(queues.next, flows.next) > all.clock.now);
    all.clock.schedule(Timer::sample, 0, std::min(queues.next, flows.next));
}

void Network::sample_queues() {
    Partition& all = *parts_[0];
    for (std::uint32_t i = setup_.base[1]; i < setup_.ports(); ++i) {
        const double bytes = all.ports.waiting(i);
        if (bytes > 0) {
            samples_.push_back({static_cast<double>(all.clock.now) * 1e-12, i, bytes});
        }
    }
    if (samples_.size() > kMostSamples) {
        throw InfeasibleError("more than 20 million queue samples: raise network.queue_samples");
    }
}

void Network::sample_flows() {
    const Partition& all = *parts_[0];
    constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
    std::map<std::uint32_t, FlowSample> found;  // by number of the message
    for (std::uint32_t id = 0; id < all.flows.size(); ++id) {
        const Flow& flow = all.flows[id];
        if (!flow.live || !flow.started || !messages_[flow.message].sampled) {
            continue;
        }
        const std::uint32_t number = messages_[flow.message].number;
        sampled_.resize(std::max<std::size_t>(sampled_.size(), std::size_t{number} + 1));
        const auto [sample, fresh] = found.try_emplace(number);
        if (fresh) {
            const FlowCounts& now = all.flows.log->of(id);
            FlowCounts& before = sampled_[number];
            const auto came = static_cast<double>(now.arrived - before.arrived);
            sample->second.time = static_cast<double>(all.clock.now) * 1e-12;
            sample->second.token = number;
            sample->second.rate =
                static_cast<double>(now.bytes - before.bytes) / static_cast<double>(sampling_[1].every) * 1e12;
            sample->second.marked =
                came > 0 ? static_cast<double>(now.arrived_marked - before.arrived_marked) / came : kUnknown;
            before = now;
        }
        sample->second.window += flow.window < kNoLimit ? flow.window : kUnknown;
        sample->second.pace += flow.rate > 0 ? flow.rate : kUnknown;
    }
    for (const auto& [number, sample] : found) {
        flow_samples_.push_back(sample);
    }
    if (flow_samples_.size() > kMostSamples) {
        throw InfeasibleError(
            "more than 20 million samples of flows: raise network.flow_samples.every, or name fewer flows");
    }
}

PacketCounts Network::counts() const {
    PacketCounts out;
    for (const std::unique_ptr<Partition>& part : parts_) {
        out.add(part->flows.counts);
    }
    return out;
}

// Those that a port belongs to.
const Ports& Network::ports_of(std::uint32_t port) const {
    return parts_[crew_ ? part_of_port(setup_, division_, port) : 0]->ports;
}

PacketStatistics Network::statistics() const {
    PacketStatistics out;
    const PacketCounts all = counts();
    ORRERY_ASSERT(all.arrived + all.destroyed <= all.sent);
    out.packets_delivered = all.delivered;
    out.retransmissions = all.retransmissions;
    out.timeouts = all.timeouts;
    for (const std::unique_ptr<Partition>& part : parts_) {
        out.corrupted += part->ports.corrupted();
        out.peak_packets += part->slab.peak();
        out.events += part->events;
    }
    out.watched = setup_.spec.queues.watchdog != StormAction::none;
    out.storms = parts_[0]->watchdog.storms();
    out.storm_drops = parts_[0]->ports.discarded();
    if (const std::unique_ptr<Steady>& steady = parts_[0]->steady) {
        out.skips = true;
        out.skipped = steady->skipped();
        out.skip_error = out.packets_delivered > 0 ? steady->error() / static_cast<double>(out.packets_delivered) : 0;
    }
    for (std::uint32_t i = 0; i < setup_.ports(); ++i) {
        const Ports& ports = ports_of(i);
        const Port& port = ports[i];
        const PortCounts& counts = ports.counts(i);
        out.packet_hops += port.packets;
        out.control_hops += counts.control;
        out.drops += counts.drops;
        out.trims += counts.trims;
        out.ecn_marks += counts.marks;
        const auto bytes = static_cast<double>(ports.bytes_sent(i));
        out.pause_s += ports.paused_seconds(i);
        const bool of_switch = port.kind != PortKind::nic_out;
        if (of_switch) {
            out.max_queue_bytes = std::max(out.max_queue_bytes, ports.bytes_of(i, port.max_backlog));
        }
        if (of_switch && port.kind != PortKind::nic_in) {
            out.max_link_bytes = std::max(out.max_link_bytes, bytes);
        }
        out.max_link_utilisation = std::max(out.max_link_utilisation, utilisation(i));
    }
    return out;
}

// What is sent after the last message has arrived (acknowledgements, needless repeats) does not count as time.
double Network::utilisation(std::uint32_t port) const {
    const Ports& ports = ports_of(port);
    const auto elapsed = static_cast<double>(messages_.elapsed(now_));
    const auto normal = static_cast<double>(setup_.links[static_cast<std::size_t>(ports[port].kind)].ps_per_byte);
    const double busy = static_cast<double>(ports.bytes_sent(port)) * normal / 4294967296.0;
    return elapsed > 0 ? std::min(1.0, busy / elapsed) : 0;
}

PacketReport Network::report() const {
    PacketReport out;
    out.samples = samples_;
    out.flow_samples = flow_samples_;
    const auto elapsed = static_cast<double>(messages_.elapsed(now_));
    for (std::uint32_t i = 0; i < setup_.ports(); ++i) {
        const Ports& ports = ports_of(i);
        const Port& port = ports[i];
        const PortCounts& counts = ports.counts(i);
        PortReport report;
        report.name = ports.name(i);
        report.bytes = static_cast<double>(ports.bytes_sent(i));
        report.packets = port.packets;
        report.marks = counts.marks;
        report.drops = counts.drops;
        report.trims = counts.trims;
        report.mean_queue_bytes = elapsed > 0 ? ports.queue_area(i) / elapsed : 0;
        report.max_queue_bytes = ports.bytes_of(i, port.max_backlog);
        report.paused_s = ports.paused_seconds(i);
        report.utilisation = utilisation(i);
        out.ports.push_back(std::move(report));
    }
    out.flows = flow_counts();
    return out;
}

// Senders, switches and receivers of a message may be in different parts.
std::vector<FlowCounts> Network::flow_counts() const {
    std::vector<FlowCounts> out;
    for (const std::unique_ptr<Partition>& part : parts_) {
        if (!part->flows.log) {
            continue;
        }
        const std::vector<FlowCounts>& own = part->flows.log->messages();
        out.resize(std::max(out.size(), own.size()));
        for (std::size_t i = 0; i < own.size(); ++i) {
            out[i].add(own[i]);
        }
    }
    return out;
}

}  // namespace packet
}  // namespace orrery::network
