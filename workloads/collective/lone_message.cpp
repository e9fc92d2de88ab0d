#include "workloads/collective/lone_message.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace orrery::collective {

namespace {

// Bytes on the wire of a message, or of the part of it that one NIC sends.
struct Packets {
    double count = 0;
    double full = 0;
    double last = 0;  ///< of the last one
};

Packets packets_of(double bytes, const PacketSpec& spec) {
    Packets out;
    out.full = spec.mtu + spec.header;
    bytes = std::max(1.0, std::ceil(bytes));
    const double all = std::ceil(bytes / spec.mtu);
    const double parts = std::min(all, static_cast<double>(spec.nic.rails));
    out.count = std::ceil(all / parts);
    out.last = all == out.count * parts ? bytes - (all - 1) * spec.mtu + spec.header : out.full;
    return out;
}

// B/s of the narrowest of these links, of which each carries its share.
template <class Counts>
double narrowest(const Fabric& fabric, const Route& route, const Counts& counts) {
    double rate = ResourceModel::kUnbounded;
    const std::span<const ResourceId> links = route.resources();
    for (std::size_t i = 0; i < links.size(); ++i) {
        if (counts(links[i])) {
            rate = std::min(rate, fabric.capacity(links[i]) / route.share(i));
        }
    }
    return rate;
}

}  // namespace

double LoneMessages::of_group(const Message& message) const {
    std::vector<GpuId> members;
    for (const std::uint32_t rank : schedule_.groups[message.group]) {
        members.push_back(placement_.gpu(rank));
    }
    const TreeLinks tree = fabric_.tree(members, options_.paths, message.group);
    double rate = ResourceModel::kUnbounded;
    for (const ResourceId link : tree.links) {
        rate = std::min(rate, fabric_.capacity(link));
    }
    const PacketSpec& spec = options_.run.packets;
    const bool packets = options_.run.fidelity == Fidelity::packet;
    const double wire = packets ? message.bytes + std::ceil(message.bytes / spec.mtu) * spec.header : message.bytes;
    return tree.latency + wire / rate;
}

double LoneMessages::seconds(const Message& message) {
    if (message.group != Message::kNoGroup) {
        return of_group(message);
    }
    const GpuId from = placement_.gpu(message.from);
    const GpuId to = placement_.gpu(message.to);
    const Route route = fabric_.route(from, to, options_.paths, hash_of(from, to.value()));
    const double start = slow_start_of(fabric_, from, to, message.bytes);
    if (options_.run.fidelity == Fidelity::packet && fabric_.domain_of(from) != fabric_.domain_of(to)) {
        return start + by_packet(message, from, to, route);
    }
    const double rate = narrowest(fabric_, route, [](ResourceId) { return true; });
    return start + route.latency + message.bytes / std::min(rate, bound_of(route));
}

// A packet leaves a hop when it has come, the one before it has left, and it has been sent: the last but one and the last are
// followed from hop to hop.
double LoneMessages::by_packet(const Message& message, GpuId from, GpuId to, const Route& route) const {
    const PacketSpec& spec = options_.run.packets;
    const bool one_path = options_.paths == PathChoice::ecmp && spec.paths.subflows == 1;
    const auto between = [&](ResourceId link) { return !fabric_.inside_node(link); };
    const Route hops = fabric_.route(from, to, PathChoice::ecmp, hash_of(from, to.value()));
    const double spread = narrowest(fabric_, route, between) * static_cast<double>(spec.nic.rails);
    const double inside = narrowest(fabric_, route, [&](ResourceId link) { return !between(link); });
    const Packets packets = packets_of(message.bytes, spec);

    double pace = std::min(inside * packets.full / spec.mtu, bound_of(route)) / static_cast<double>(spec.nic.rails);
    pace = spec.nic.host_rate > 0 ? std::min(pace, spec.nic.host_rate) : pace;
    std::vector<ResourceId> links;
    std::copy_if(hops.resources().begin(), hops.resources().end(), std::back_inserter(links), between);
    ORRERY_ASSERT(!links.empty() && packets.count >= 1 && packets.last <= packets.full && pace > 0);
    double gap = std::max(packets.full / pace, packets.full / fabric_.capacity(links.front()));  // between packets
    double first = 0;                         // until a full packet has left the hop
    double last = (packets.count - 1) * gap;  // until the last one has
    double answer = 0;
    // Then the receiver's NIC writes it to its host, where that takes time.
    const std::size_t all = links.size() + (spec.nic.write_rate > 0 ? 1 : 0);
    for (std::size_t i = 0; i < all; ++i) {
        const double rate = i < links.size() ? fabric_.capacity(links[i]) : spec.nic.write_rate;
        const double time = packets.full / rate;
        const double rest = packets.last / rate;
        // Packets over many links do not wait for each other at each of them.
        const bool parallel = !one_path && i > 0 && i + 1 < links.size();
        gap = std::max(gap, parallel ? std::min(time, packets.full / spread) : time);
        first += time;
        const double previous = first + (packets.count - 2) * gap;  // the last but one has left
        if (parallel || packets.count == 1) {
            last += rest;
        } else if (last >= previous - time) {
            last = std::max(last, previous) + rest;
        } else {
            last = std::max(previous, last + rest + time);  // the short one has overtaken it
        }
        answer += i < links.size() ? spec.header / rate : 0;
    }
    const double latency = hops.latency + spec.nic.doorbell + spec.nic.dma;
    const double back = spec.nic.done_at_sender ? hops.latency + answer : 0;
    return std::max(latency + last + back, message.bytes / inside);
}

std::vector<double> slowdowns(LoneMessages& alone, const Schedule& schedule, const std::vector<double>& starts,
                              const std::vector<double>& ends) {
    std::vector<double> out;
    ORRERY_ASSERT(starts.size() == ends.size() && schedule.messages.size() == ends.size());
    for (std::size_t i = 0; i < ends.size(); ++i) {
        const Message& message = schedule.messages[i];
        out.push_back(slowdown_of(ends[i] - starts[i] - message.delay, alone.seconds(message)));
    }
    return out;
}

}  // namespace orrery::collective
