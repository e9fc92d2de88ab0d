#include "sim/network/topology/joined.hpp"

#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "sim/network/topology/shape.hpp"
#include "sim/network/topology/tree.hpp"

#include <algorithm>

namespace orrery::network {

static double longest_latency(const std::vector<FabricShape>& fabrics) {
    double latency = 0;
    for (const FabricShape& fabric : fabrics) {
        latency = std::max(latency, fabric.link_latency);
    }
    return latency;
}

JoinedFabrics::JoinedFabrics(const FabricShape& shape, const std::vector<FabricShape>& fabrics)
    : RoutedTopology(longest_latency(fabrics)), nics_per_node_(shape.nics_per_node) {
    ORRERY_ASSERT(fabrics.size() == shape.groups.size() + 1);
    for (std::size_t i = 0; i < fabrics.size(); ++i) {
        const FabricShape& own = fabrics[i];
        Part part;
        if (own.topology) {
            part.topology = own.topology(own);
            part.routed = static_cast<const RoutedTopology*>(part.topology.get());
        } else {
            auto tree = std::make_shared<const TreeTopology>(own);
            part.tree = tree.get();
            part.topology = std::move(tree);
        }
        const bool outer = i == shape.groups.size();
        part.name = outer ? "between groups" : shape.groups[i].name;
        part.first_node = outer ? 0 : shape.groups[i].first;
        part.nics = own.nics_per_node;
        part.first_switch = switches_;
        part.first_link = static_cast<std::uint32_t>(links_.size());
        switches_ += part.topology->switches();
        // Bundles of links that a tree shows to sprayed flows keep their places; as links they lead nowhere.
        for (SwitchLink link : part.topology->links()) {
            link.from += part.first_switch;
            link.to += part.first_switch;
            links_.push_back(link);
        }
        const std::vector<double>& rates = part.topology->capacities();
        ORRERY_ASSERT(links_.size() - part.first_link == rates.size());
        capacities_.insert(capacities_.end(), rates.begin(), rates.end());
        parts_.push_back(std::move(part));
    }
}

JoinedFabrics::Place JoinedFabrics::place_of(std::uint32_t nic) const {
    const std::uint32_t node = nic / nics_per_node_;
    const std::uint32_t own = nic % nics_per_node_;
    if (own + 1 == nics_per_node_) {
        return {&parts_.back(), node};
    }
    std::size_t i = parts_.size() - 2;
    while (parts_[i].first_node > node) {
        ORRERY_ASSERT(i > 0);
        --i;
    }
    // A node with fewer NICs than others leaves those that it does not have unused.
    return {&parts_[i], (node - parts_[i].first_node) * parts_[i].nics + own % parts_[i].nics};
}

const JoinedFabrics::Part& JoinedFabrics::part_of_switch(std::uint32_t number) const {
    std::size_t i = parts_.size() - 1;
    while (parts_[i].first_switch > number) {
        ORRERY_ASSERT(i > 0);
        --i;
    }
    return parts_[i];
}

VertexKind JoinedFabrics::switch_kind(std::uint32_t number) const {
    const Part& part = part_of_switch(number);
    return part.topology->switch_kind(number - part.first_switch);
}

std::string JoinedFabrics::switch_name(std::uint32_t number) const {
    const Part& part = part_of_switch(number);
    return part.name + ": " + part.topology->switch_name(number - part.first_switch);
}

std::string JoinedFabrics::resource_name(std::uint32_t resource) const {
    std::size_t i = parts_.size() - 1;
    while (parts_[i].first_link > resource) {
        ORRERY_ASSERT(i > 0);
        --i;
    }
    return parts_[i].name + ": " + parts_[i].topology->resource_name(resource - parts_[i].first_link);
}

std::uint32_t JoinedFabrics::switch_of(std::uint32_t nic) const {
    const Place place = place_of(nic);
    return place.part->first_switch + place.part->topology->switch_of(place.nic);
}

bool JoinedFabrics::joined(std::uint32_t nic, std::uint32_t other) const {
    const Place a = place_of(nic);
    const Place b = place_of(other);
    return a.part == b.part && a.part->topology->joined(a.nic, b.nic);
}

LinkSet JoinedFabrics::next_links(std::uint32_t at, std::uint32_t to, std::uint32_t entropy) const {
    const Part& part = part_of_switch(at);
    ORRERY_ASSERT(&part == &part_of_switch(to));
    const std::uint32_t own_at = at - part.first_switch;
    const std::uint32_t own_to = to - part.first_switch;
    const LinkSet own =
        part.tree != nullptr ? part.tree->next_links(own_at, own_to) : part.routed->next_links(own_at, own_to, entropy);
    LinkSet out;
    for (std::uint32_t i = 0; i < own.size(); ++i) {
        out.add(part.first_link + own[i]);
    }
    return out;
}

void JoinedFabrics::route(Route& route, std::uint32_t first, std::uint32_t from_nic, std::uint32_t to_nic,
                          PathChoice choice, std::uint64_t hash) const {
    const Place from = place_of(from_nic);
    const Place to = place_of(to_nic);
    ORRERY_ASSERT(from.part == to.part);
    const Part& part = *from.part;
    if (choice == PathChoice::spray) {
        part.topology->route(route, first + part.first_link, from.nic, to.nic, choice, hash);
        return;
    }
    // Link by link as packets go, whose switches are numbered over all fabrics.
    route.latency += 2 * part.topology->host_latency();
    const std::uint32_t entropy = entropy_of(mix64(hash));
    const std::uint32_t end = switch_of(to_nic);
    for (std::uint32_t at = switch_of(from_nic); at != end;) {
        const std::uint32_t link = next_link(at, end, entropy);
        route.add(first + link);
        route.latency += links_[link].latency;
        at = links_[link].to;
    }
}

Reach JoinedFabrics::reach() const {
    Reach farthest;
    for (const Part& part : parts_) {
        Reach own;
        if (part.routed != nullptr) {
            own = part.routed->reach();
        } else {
            own.links = part.tree->cores() > 0 ? 4 : 2;
            own.latency = own.links * part.tree->host_latency();
        }
        farthest.links = std::max(farthest.links, own.links);
        farthest.latency = std::max(farthest.latency, own.latency);
    }
    return farthest;
}

bool JoinedFabrics::full_bisection() const {
    return std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.topology->full_bisection(); });
}

std::vector<std::uint32_t> JoinedFabrics::ample_bundles(std::span<const double> nics) const {
    std::vector<std::vector<double>> rates(parts_.size());
    for (std::uint32_t nic = 0; nic < nics.size(); ++nic) {
        const Place place = place_of(nic);
        std::vector<double>& own = rates[static_cast<std::size_t>(place.part - parts_.data())];
        own.resize(std::max<std::size_t>(own.size(), place.nic + 1), 0);
        own[place.nic] = std::max(own[place.nic], nics[nic]);
    }
    std::vector<std::uint32_t> out;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        if (parts_[i].tree != nullptr) {
            for (const std::uint32_t bundle : parts_[i].tree->ample_bundles(rates[i])) {
                out.push_back(parts_[i].first_link + bundle);
            }
        }
    }
    return out;
}

std::string JoinedFabrics::summary() const {
    std::string out;
    for (const Part& part : parts_) {
        out += (out.empty() ? "" : "; ") + part.name + ": " + part.topology->summary();
    }
    return out;
}

}  // namespace orrery::network
