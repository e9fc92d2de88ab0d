// What a packet run reports: counts, ports, queues over time.

#include "sim/network/packet/network.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {

std::string ports_csv(const PacketReport& report) {
    std::string out = "port,bytes,packets,mean_queue_bytes,max_queue_bytes,marks,drops,trims,paused_s\n";
    for (const PortReport& p : report.ports) {
        out += fmt::format("{},{:.0f},{},{:.6g},{:.6g},{},{},{},{:.9g}\n", p.name, p.bytes, p.packets,
                           p.mean_queue_bytes, p.max_queue_bytes, p.marks, p.drops, p.trims, p.paused_s);
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

namespace packet {

namespace {
constexpr std::size_t kMostSamples = 20'000'000;
}

// Runs while messages do and something else is to happen: it must not keep the simulation alive by itself.
void Network::sample() {
    sampling_ = live_messages_ > 0 && wheel_.next_time() != Wheel::kNever;
    if (!sampling_) {
        return;
    }
    for (std::uint32_t i = base_[1]; i < ports_.size(); ++i) {
        double bytes = queue_bytes(ports_[i], std::max<std::int64_t>(0, ports_[i].busy_until - now_));
        if (served_) {
            bytes += static_cast<double>(served_ports_[i].data_bytes + served_ports_[i].control_bytes);
        }
        if (bytes > 0) {
            samples_.push_back({static_cast<double>(now_) * 1e-12, i, bytes});
        }
    }
    if (samples_.size() > kMostSamples) {
        throw InfeasibleError("more than 20 million queue samples: raise network.queue_samples");
    }
    schedule(Timer::sample, 0, now_ + sample_every_);
}

std::string Network::port_name(std::uint32_t port) const {
    const Port& p = ports_[port];
    const std::string where = std::to_string(p.where);
    const std::string lane = std::to_string(p.lane);
    switch (p.kind) {
        case PortKind::nic_out:
            return "nic " + std::to_string(port - base_[0]) + " to leaf " + where;
        case PortKind::nic_in:
            return "leaf " + std::to_string(leaf_of_nic_[p.where]) + " to nic " + where;
        case PortKind::leaf_up:
            return "leaf " + where + " to spine " + lane;
        case PortKind::leaf_down:
            return "spine " + lane + " to leaf " + where;
        case PortKind::spine_up:
            return "spine " + where + " to core " + std::to_string(p.core);
        case PortKind::spine_down:
            return "core " + std::to_string(p.core) + " to spine " + where;
    }
    return "";
}

double Network::paused_seconds(std::uint32_t port) const {
    const Port& p = ports_[port];
    return static_cast<double>(p.paused_time + (p.paused ? now_ - served_ports_[port].paused_since : 0)) * 1e-12;
}

PacketStatistics Network::statistics() const {
    PacketStatistics out;
    out.packets_delivered = delivered_;
    out.retransmissions = retransmissions_;
    out.timeouts = timeouts_;
    out.corrupted = corrupted_;
    out.peak_packets = slab_.peak();
    out.events = events_;
    for (std::uint32_t i = 0; i < ports_.size(); ++i) {
        const Port& port = ports_[i];
        out.packet_hops += port.packets[0];
        out.control_hops += port.packets[1];
        out.drops += port.drops;
        out.trims += port.trims;
        out.ecn_marks += port.marks;
        out.pause_s += paused_seconds(i);
        const bool of_switch = port.kind != PortKind::nic_out;
        if (of_switch) {
            out.max_queue_bytes = std::max(out.max_queue_bytes, queue_bytes(port, port.max_backlog));
        }
        if (of_switch && port.kind != PortKind::nic_in) {
            out.max_link_bytes = std::max(out.max_link_bytes, static_cast<double>(port.bytes));
        }
        if (now_ > 0 && port.bytes > 0) {
            const auto normal = static_cast<double>(nominal_[static_cast<std::size_t>(port.kind)]);
            const double busy = static_cast<double>(port.bytes) * normal / 4294967296.0;
            out.max_link_utilisation = std::max(out.max_link_utilisation, busy / static_cast<double>(now_));
        }
    }
    return out;
}

PacketReport Network::report() const {
    PacketReport out;
    out.samples = samples_;
    for (std::uint32_t i = 0; i < ports_.size(); ++i) {
        const Port& port = ports_[i];
        PortReport report;
        report.name = port_name(i);
        report.bytes = static_cast<double>(port.bytes);
        report.packets = port.packets[0];
        report.marks = port.marks;
        report.drops = port.drops;
        report.trims = port.trims;
        report.mean_queue_bytes =
            elapsed() > 0 ? queue_bytes(port, 1) * port.backlog_area / static_cast<double>(elapsed()) : 0;
        report.max_queue_bytes = queue_bytes(port, port.max_backlog);
        report.paused_s = paused_seconds(i);
        out.ports.push_back(std::move(report));
    }
    return out;
}

}  // namespace packet
}  // namespace orrery
