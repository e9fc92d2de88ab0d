#include "sim/network/packet/sharing.hpp"

#include "sim/base/error.hpp"

#include <numeric>

namespace orrery::network::packet {

Sharing::Sharing(const Setup& setup, Ports& ports, Routing& routing)
    : setup_(setup),
      ports_(ports),
      routing_(routing),
      one_path_(setup.path_needs.one_path && !setup.path_needs.leaves_choose && !setup.path_needs.weighted &&
                (setup.routed == nullptr || !setup.routed->adaptive())),
      width_(setup.ports(), 1),
      parent_(setup.ports()) {
    std::iota(parent_.begin(), parent_.end(), 0U);
    if (one_path_) {
        return;
    }
    for (std::uint32_t leaf = 0; leaf < setup.pod_of_leaf.size(); ++leaf) {
        bundle(setup.base[2] + leaf * setup.spines, setup.spines);
        bundle(setup.base[3] + leaf * setup.spines, setup.spines);
    }
    const std::uint32_t of_pod = setup.spines * setup.cores;
    for (std::uint32_t first = 0; first < setup.links[4].count; first += of_pod) {
        bundle(setup.base[4] + first, of_pod);
        bundle(setup.base[5] + first, of_pod);
    }
    if (!setup.switch_links.empty()) {
        bundle(setup.base[kTreeKinds], static_cast<std::uint32_t>(setup.switch_links.size()));
    }
}

Sharing::Ways Sharing::ways_of(const Flow& flow) {
    Ways out;
    if (one_path_) {
        out.there = way(flow.source, flow.destination, flow.path.entropy);
        out.back = way(flow.destination, flow.source, flow.path.entropy);
    } else {
        out.there = bundles(flow.source, flow.destination);
        out.back = bundles(flow.destination, flow.source);
    }
    return out;
}

// The ports that a packet with this entropy meets.
std::vector<std::uint32_t> Sharing::way(std::uint32_t from, std::uint32_t to, std::uint32_t entropy) {
    Packet packet{};
    packet.destination = to;
    packet.path = entropy;
    packet.kind = PacketKind::ack;
    std::vector<std::uint32_t> out{setup_.base[0] + from};
    while (ports_[out.back()].kind != PortKind::nic_in) {
        out.push_back(routing_.next_port(ports_[out.back()], packet));
        ORRERY_ASSERT(out.size() <= setup_.ports());
    }
    ORRERY_ASSERT(out.back() == setup_.base[1] + to);
    return out;
}

std::vector<std::uint32_t> Sharing::bundles(std::uint32_t from, std::uint32_t to) const {
    std::vector<std::uint32_t> out{setup_.base[0] + from};
    const std::uint32_t leaf = setup_.leaf_of_nic[from];
    const std::uint32_t to_leaf = setup_.leaf_of_nic[to];
    if (leaf != to_leaf && setup_.routed != nullptr) {
        out.push_back(setup_.base[kTreeKinds]);
    } else if (leaf != to_leaf) {
        const std::uint32_t pod = setup_.pod_of_leaf[leaf];
        const std::uint32_t to_pod = setup_.pod_of_leaf[to_leaf];
        out.push_back(setup_.base[2] + leaf * setup_.spines);
        if (pod != to_pod) {
            out.push_back(setup_.base[4] + pod * setup_.spines * setup_.cores);
            out.push_back(setup_.base[5] + to_pod * setup_.spines * setup_.cores);
        }
        out.push_back(setup_.base[3] + to_leaf * setup_.spines);
    }
    out.push_back(setup_.base[1] + to);
    return out;
}

void Sharing::part() {
    for (const std::uint32_t bundle : joined_) {
        parent_[bundle] = bundle;
    }
    joined_.clear();
}

void Sharing::join(const Ways& ways) {
    const std::uint32_t first = ways.there.front();
    for (const std::vector<std::uint32_t>* way : {&ways.there, &ways.back}) {
        for (const std::uint32_t bundle : *way) {
            joined_.push_back(bundle);
            parent_[group_of(bundle)] = group_of(first);
        }
    }
}

std::uint32_t Sharing::group_of(std::uint32_t bundle) {
    while (parent_[bundle] != bundle) {
        bundle = parent_[bundle] = parent_[parent_[bundle]];
    }
    return bundle;
}

}  // namespace orrery::network::packet
