#include "sim/network/topology/routed.hpp"

#include "sim/base/error.hpp"
#include "sim/base/random.hpp"

#include <algorithm>
#include <map>

namespace orrery::network {

std::uint32_t RoutedTopology::add_link(const SwitchLink& link) {
    links_.push_back(link);
    capacities_.push_back(link.rate);
    return static_cast<std::uint32_t>(links_.size() - 1);
}

std::string RoutedTopology::resource_name(std::uint32_t resource) const {
    const SwitchLink link = this->link(resource);
    return "link " + switch_name(link.from) + " to " + switch_name(link.to);
}

std::uint32_t RoutedTopology::next_link(std::uint32_t at, std::uint32_t to, std::uint32_t entropy) const {
    const LinkSet links = next_links(at, to, entropy);
    ORRERY_ASSERT(links.size() > 0);
    // Each switch hashes anew, so that the choices along a path do not follow each other.
    const auto hash = static_cast<std::uint32_t>(mix64((std::uint64_t{at} << 32U) | entropy) >> 32U);
    return links[links.size() == 1 ? 0 : hash % links.size()];
}

std::uint32_t RoutedTopology::link_in_turn(std::uint32_t at, std::uint32_t to, std::uint32_t turn) const {
    const LinkSet links = next_links(at, to, 0);
    ORRERY_ASSERT(links.size() > 0);
    const double first = weight(links[0], to);
    double all = 0;
    bool equal = true;
    for (std::uint32_t i = 0; i < links.size(); ++i) {
        const double own = weight(links[i], to);
        equal = equal && own == first;
        all += own;
    }
    if (equal) {
        return links[turn % links.size()];
    }
    // Multiples of the golden ratio, modulo 1, are evenly distributed over any number of turns.
    double left = static_cast<double>(turn * 2654435769U) / 4294967296.0 * all;
    std::uint32_t chosen = 0;
    for (; chosen + 1 < links.size(); ++chosen) {
        left -= weight(links[chosen], to);
        if (left < 0) {
            break;
        }
    }
    return links[chosen];
}

std::uint32_t RoutedTopology::distance(std::uint32_t from, std::uint32_t to, std::uint32_t entropy) const {
    std::uint32_t hops = 0;
    for (std::uint32_t at = from; at != to; ++hops) {
        at = link(next_link(at, to, entropy)).to;
        ORRERY_ASSERT(hops < switches());
    }
    return hops;
}

void RoutedTopology::route(Route& route, std::uint32_t first, std::uint32_t from_nic, std::uint32_t to_nic,
                           PathChoice choice, std::uint64_t hash) const {
    const std::uint32_t from = switch_of(from_nic);
    const std::uint32_t to = switch_of(to_nic);
    route.latency += 2 * host_latency_;
    if (from == to) {
        return;
    }
    if (const double limit = connection_limit(from, to); limit > 0) {
        route.rate_limit = route.rate_limit > 0 ? std::min(route.rate_limit, limit) : limit;
    }
    if (choice == PathChoice::spray) {
        route.latency += add_spread(route, first, from, to);
        return;
    }
    const std::uint32_t entropy = entropy_of(mix64(hash));
    for (std::uint32_t at = from; at != to;) {
        const std::uint32_t number = next_link(at, to, entropy);
        const SwitchLink next = link(number);
        route.add(first + number);
        route.latency += next.latency;
        at = next.to;
    }
}

// Each switch divides what it sends over its next links by their weights; returns the latency, averaged over the shares.
double RoutedTopology::add_spread(Route& route, std::uint32_t first, std::uint32_t from, std::uint32_t to) const {
    std::vector<std::pair<std::uint32_t, double>> used;  // links with their shares, in the order of the paths
    std::map<std::uint32_t, std::size_t> place;
    double latency = 0;
    for (std::uint32_t way = 0; way < ways(); ++way) {
        const auto entropy = static_cast<std::uint32_t>(((2 * std::uint64_t{way} + 1) << 31U) / ways());
        // Paths of one way have no circle; a switch is passed on when all that comes to it has come, level by level.
        std::map<std::uint32_t, double> level{{from, 1.0 / ways()}};
        while (!level.empty()) {
            std::map<std::uint32_t, double> following;
            for (const auto& [at, share] : level) {
                const LinkSet next = next_links(at, to, entropy);
                ORRERY_ASSERT(next.size() > 0);
                double all = 0;
                for (std::uint32_t i = 0; i < next.size(); ++i) {
                    all += weight(next[i], to);
                }
                for (std::uint32_t i = 0; i < next.size(); ++i) {
                    ORRERY_ASSERT(all > 0);
                    const double each = share * weight(next[i], to) / all;
                    const SwitchLink taken = link(next[i]);
                    latency += each * taken.latency;
                    const auto [known, fresh] = place.try_emplace(next[i], used.size());
                    if (fresh) {
                        used.emplace_back(next[i], 0);
                    }
                    used[known->second].second += each;
                    if (taken.to != to) {
                        following[taken.to] += each;
                    }
                }
            }
            level = std::move(following);
        }
    }
    for (const auto& [number, share] : used) {
        route.add(first + number, share > 1 - 1e-12 ? 1 : share);
    }
    return latency;
}

Reach RoutedTopology::reach_from_first() const {
    Reach farthest;
    for (std::uint32_t to = 1; to < edge_switches(); ++to) {
        for (std::uint32_t way = 0; way < ways(); ++way) {
            const auto entropy = static_cast<std::uint32_t>(((2 * std::uint64_t{way} + 1) << 31U) / ways());
            Reach here;
            for (std::uint32_t at = 0; at != to;) {
                const SwitchLink taken = link(next_link(at, to, entropy));
                ++here.links;
                here.latency += taken.latency;
                at = taken.to;
            }
            farthest.links = std::max(farthest.links, here.links);
            farthest.latency = std::max(farthest.latency, here.latency);
        }
    }
    return farthest;
}

Reach RoutedTopology::reach() const {
    const Reach one = reach_from_first();  // any other way is at most one by way of the first switch
    return {2 * one.links, 2 * one.latency};
}

}  // namespace orrery::network
