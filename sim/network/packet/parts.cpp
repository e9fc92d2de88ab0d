#include "sim/network/packet/parts.hpp"

#include "sim/base/error.hpp"
#include "sim/base/time.hpp"

#include <algorithm>

namespace orrery::network::packet {

Parts::Parts(const Setup& setup, std::uint32_t wanted) : count(wanted) {
    if (count == 1) {
        return;
    }
    // What stays together, and how many NICs it has; switches without NICs have some work as well.
    std::vector<std::uint32_t> unit_of;
    const std::uint32_t leaves = setup.routed != nullptr ? setup.routed->switches() : setup.fabric.leaves();
    for (std::uint32_t leaf = 0; leaf < leaves; ++leaf) {
        unit_of.push_back(setup.tree ? setup.pod_of_leaf[leaf] : leaf);
    }
    std::vector<std::uint64_t> weights(leaves == 0 ? 0 : *std::max_element(unit_of.begin(), unit_of.end()) + 1, 1);
    for (const std::uint32_t leaf : setup.leaf_of_nic) {
        ++weights[unit_of[leaf]];
    }
    const std::size_t up = setup.routed != nullptr ? kTreeKinds : setup.tree ? 4 : 2;
    first_kind = static_cast<std::uint8_t>(up);
    last_kind = static_cast<std::uint8_t>(setup.routed != nullptr ? kPortKinds - 1 : up);
    if (setup.routed == nullptr) {
        lookahead = setup.links[up].latency;
    }
    for (const SwitchLink& link : setup.switch_links) {
        lookahead = std::min(lookahead, SimTime::from_seconds(link.latency).ps());
    }
    std::string problem;
    if (weights.size() < count) {
        problem = std::to_string(count) + " threads share a network by its " +
                  (setup.tree                ? "pods"
                   : setup.routed != nullptr ? "switches"
                                             : "leaves") +
                  ", of which it has " + std::to_string(weights.size());
    }
    if (lookahead <= 0) {
        problem += (problem.empty() ? "" : "; ") +
                   std::string("threads share a network over links that have a latency; this one's have none");
    }
    if (!problem.empty()) {
        throw InfeasibleError(problem);
    }
    // In their order, as even as whole ones can be; each part has one at least.
    std::uint64_t left = 0;
    for (const std::uint64_t weight : weights) {
        left += weight;
    }
    std::vector<std::uint32_t> part_of(weights.size());
    std::uint32_t part = 0;
    std::uint64_t share = left / count;
    std::uint64_t filled = 0;
    for (std::size_t unit = 0; unit < weights.size(); ++unit) {
        const std::size_t units_left = weights.size() - unit;
        const bool full = filled > 0 && filled + weights[unit] / 2 >= share;
        if (part + 1 < count && (full || units_left == count - part - (filled > 0 ? 1 : 0))) {
            if (filled > 0) {
                ++part;
                filled = 0;
                share = left / (count - part);
            }
        }
        part_of[unit] = part;
        filled += weights[unit];
        left -= weights[unit];
    }
    ORRERY_ASSERT(left == 0 && part + 1 == count);
    for (const std::uint32_t unit : unit_of) {
        of_leaf.push_back(part_of[unit]);
    }
}

std::uint32_t part_of_port(const Setup& setup, const Parts& parts, std::uint32_t port) {
    const auto kind =
        static_cast<std::size_t>(std::upper_bound(setup.base, setup.base + kPortKinds, port) - setup.base) - 1;
    const std::uint32_t number = port - setup.base[kind];
    if (kind < 2) {
        return parts.of_leaf[setup.leaf_of_nic[number]];
    }
    if (kind < 4) {
        return parts.of_leaf[number / setup.spines];
    }
    if (kind >= kTreeKinds) {
        return parts.of_leaf[setup.switch_links[port - setup.base[kTreeKinds]].from];
    }
    const std::uint32_t pod = number / setup.cores / setup.spines;
    const auto leaf = std::find(setup.pod_of_leaf.begin(), setup.pod_of_leaf.end(), pod);
    ORRERY_ASSERT(leaf != setup.pod_of_leaf.end());
    return parts.of_leaf[static_cast<std::size_t>(leaf - setup.pod_of_leaf.begin())];
}

std::vector<PartsProblem> problems_of_parts(const PacketSpec& spec) {
    std::vector<PartsProblem> out;
    const PathNeeds paths = spec.paths.needs();
    if (spec.queues.pfc || pauses(spec)) {
        out.push_back({"queues.pfc", "a switch counts what came over a link in all of its ports"});
    }
    if (spec.queues.shared > 0) {
        out.push_back({"queues.shared", "all ports of a switch share its memory"});
    }
    if (spec.classes.size() > 1 || spec.queues.credits > 0) {
        out.push_back(
            {spec.classes.size() > 1 ? "classes" : "queues.credits", "ports choose whom to serve when they are free"});
    }
    if (spec.skip_error > 0) {
        out.push_back({"skip.error", "it looks at the whole network at once"});
    }
    if (!spec.link_events.empty()) {
        out.push_back({"link_events", "routing learns of them everywhere at once"});
    }
    if (spec.queue_samples > 0) {
        out.push_back({"queue_samples", "they look at all queues at once"});
    }
    if (spec.flow_samples > 0) {
        out.push_back({"flow_samples.every", "they look at all flows at once"});
    }
    if (paths.plans || paths.weighted) {
        out.push_back({"paths", spec.paths.policy.name() + (paths.plans ? "" : ", weighted") +
                                    ", whose choice is by all links of the network"});
    }
    return out;
}

}  // namespace orrery::network::packet
