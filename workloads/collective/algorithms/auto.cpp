// The choice of an algorithm: the cheapest by what the links of a group allow, among those that do the operation.

#include "sim/network/topology/product.hpp"
#include "workloads/collective/algorithms/algorithm.hpp"
#include "workloads/collective/choose.hpp"

#include <algorithm>
#include <map>

namespace orrery::collective {

namespace {

double narrowest(const Fabric& fabric, const Route& route) {
    double least = std::numeric_limits<double>::infinity();
    const std::span<const ResourceId> links = route.resources();
    for (std::size_t i = 0; i < links.size(); ++i) {
        least = std::min(least, fabric.capacity(links[i]) / route.share(i));
    }
    return route.rate_limit > 0 ? std::min(least, route.rate_limit) : least;
}

// "NIC out 17" without its number.
std::string kind_of(const std::string& name) {
    return name.substr(0, name.find_first_of("0123456789("));
}

/// The ranks of which an estimate is made.
struct Ranks {
    const Fabric& fabric;
    const Placement& placement;
    PathChoice paths;

    [[nodiscard]] Route route(std::uint32_t from, std::uint32_t to, std::uint64_t hash) const {
        return fabric.route(placement.gpu(from), placement.gpu(to), paths, hash);
    }
};

// B/s out of a node that sends evenly to all others while they do the same: what each kind of link carries, over all of them.
double all_to_all_rate(const Ranks& ranks, std::uint32_t nodes) {
    constexpr std::uint32_t kMostSamples = 512;
    const Fabric& fabric = ranks.fabric;
    const std::uint32_t per_node = fabric.gpus_per_domain();
    const std::uint32_t step = std::max(1U, nodes / kMostSamples);
    std::map<std::string, double> shares;  // of a byte that leaves a node, by kind of link
    double samples = 0;
    for (std::uint32_t to = 1; to < nodes; to += step) {
        for (std::uint32_t local = 0; local < per_node; ++local) {
            const Route route = ranks.route(local, to * per_node + local, to);
            const std::span<const ResourceId> links = route.resources();
            for (std::size_t i = 0; i < links.size(); ++i) {
                shares[kind_of(fabric.resource_name(links[i]))] += route.share(i);
            }
            ++samples;
        }
    }
    std::map<std::string, double> capacity;
    const double all_nodes = static_cast<double>(fabric.gpus()) / per_node;
    for (std::uint32_t i = 0; i < fabric.resource_count(); ++i) {
        const std::string kind = kind_of(fabric.resource_name(ResourceId(i)));
        if (shares.contains(kind)) {
            capacity[kind] += fabric.capacity(ResourceId(i)) * nodes / all_nodes;
        }
    }
    double rate = std::numeric_limits<double>::infinity();
    for (const auto& [kind, share] : shares) {
        rate = std::min(rate, capacity[kind] / (nodes * share / samples));
    }
    return rate;
}

// What a node sends to the next one: of a message alone, and of one from each of its ranks.
void take_crossing(const Ranks& ranks, std::uint32_t node, std::uint32_t count, GroupLinks& out) {
    const Fabric& fabric = ranks.fabric;
    const std::uint32_t per_node = fabric.gpus_per_domain();
    const std::uint32_t first = node * per_node;
    const Route route = ranks.route(first + per_node - 1, first + per_node, 0);
    out.outside_latency = std::max(out.outside_latency, route.latency);
    out.flow_rate = std::min(out.flow_rate, narrowest(fabric, route));
    const Fabric::Crossing crossing =
        fabric.crossing(ranks.placement.gpu(first + per_node - 1), ranks.placement.gpu(first + per_node));
    out.nic_rate = std::min(out.nic_rate, fabric.capacity(fabric.nic_out(crossing.out)));
    std::map<std::uint32_t, double> load;
    for (std::uint32_t i = 0; i < per_node && first + per_node + i < count; ++i) {
        const Route rail = ranks.route(first + i, first + per_node + i, i);
        const std::span<const ResourceId> links = rail.resources();
        for (std::size_t k = 0; k < links.size(); ++k) {
            load[links[k].value()] += rail.share(k);
        }
    }
    for (const auto& [link, bytes] : load) {
        out.node_rate = std::min(out.node_rate, per_node * fabric.capacity(ResourceId(link)) / bytes);
    }
}

GroupLinks links_of(const Ranks& group, std::uint32_t ranks) {
    const Fabric& fabric = group.fabric;
    const std::uint32_t per_node = std::min(ranks, fabric.gpus_per_domain());
    const std::uint32_t nodes = ranks / per_node;
    GroupLinks out;
    out.ranks = ranks;
    out.per_node = per_node;
    // Where nodes differ, the slowest of some of them decides.
    constexpr std::uint32_t kMostSamples = 256;
    const bool alike = fabric.shape().groups.empty();
    const std::uint32_t step = alike ? nodes : std::max(1U, nodes / kMostSamples);
    constexpr double kUnknown = std::numeric_limits<double>::infinity();
    if (per_node > 1) {
        out.inside_rate = kUnknown;
        for (std::uint32_t node = 0; node < nodes; node += step) {
            const Route route = group.route(node * per_node, node * per_node + 1, 0);
            out.inside_latency = std::max(out.inside_latency, route.latency);
            out.inside_rate = std::min(out.inside_rate, narrowest(fabric, route));
        }
    }
    if (ranks > per_node) {
        out.flow_rate = out.nic_rate = out.node_rate = kUnknown;
        for (std::uint32_t node = 0; (node + 1) * per_node < ranks; node += step) {
            take_crossing(group, node, ranks, out);
        }
        out.all_rate = nodes > 1 ? all_to_all_rate(group, nodes) : out.node_rate;
    }
    if (const auto* product = dynamic_cast<const ProductTopology*>(&fabric.topology());
        product != nullptr && fabric.shape().gpus_per_node == 1 && ranks == fabric.shape().nodes) {
        for (const ProductDimension& dimension : product->dimensions()) {
            out.shape.push_back(dimension.size);
        }
    }
    return out;
}

}  // namespace

CollectiveSpec resolved(const CollectiveSpec& spec, const Fabric& fabric, const Placement& placement, PathChoice paths,
                        std::uint32_t ranks) {
    CollectiveSpec out = spec;
    if (ranks < 2) {
        return out;
    }
    const bool chooses = spec.algorithm == &algorithm("auto");
    if (!chooses && (spec.algorithm != &algorithm("per-dimension") || !spec.shape.empty())) {
        return out;
    }
    const GroupLinks links = links_of({fabric, placement, paths}, ranks);
    for (const std::uint32_t size : links.shape) {
        out.shape += (out.shape.empty() ? "" : "x") + std::to_string(size);
    }
    if (!chooses) {
        return out;
    }
    double best = kNotServed;
    for (const CollectiveAlgorithm* row : algorithm_table()) {
        const double seconds = row->estimate != nullptr ? row->estimate(spec, links) : kNotServed;
        if (seconds < best) {
            best = seconds;
            out.algorithm = row;
        }
    }
    return out;
}

extern const CollectiveAlgorithm kAutoAlgorithm = {
    "auto", "cheapest algorithm for the operation, by message size and fabric", nullptr,
    [](const CollectiveSpec&, double ranks, double) { return 2 * ranks * ranks; },
    [](ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t per_node) {
        // Without a fabric to go by.
        const bool rooted = spec.op == CollectiveOp::broadcast || spec.op == CollectiveOp::reduce;
        CollectiveSpec own = spec;
        own.algorithm = &algorithm(reduces_or_gathers(spec.op) ? "ring" : rooted ? "binomial" : "direct");
        own.algorithm->build(builder, own, ranks, per_node);
    }};

}  // namespace orrery::collective
