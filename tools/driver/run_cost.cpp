#include "tools/driver/run_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace orrery::driver {

namespace {

constexpr double kTimeout = 8;  // round trips
constexpr double kPacketHost =
    10.5 * 1024;  // B of a host at packet fidelity, with its ports: 16,384 and 32,768 of them

double nic_rate(const ClusterSpec& cluster) {
    const double rate = cluster.nodes > 0 ? cluster.node.nic_bandwidth.value : cluster.fabric.link;
    return rate > 0 ? rate : 1e15;
}

}  // namespace

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

RunCost cost_of_messages(const Scenario& s, double messages, double bytes, const UnitPrice& each, double crossing) {
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

}  // namespace orrery::driver
