#include "sim/network/topology/tree.hpp"

#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "sim/network/topology/shape.hpp"

#include <algorithm>
#include <set>

namespace orrery::network {

namespace {

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) {
    return (a + b - 1) / b;
}

}  // namespace

std::uint32_t TreeTopology::reserve(std::size_t count, double capacity) {
    const auto first = static_cast<std::uint32_t>(capacities_.size());
    capacities_.insert(capacities_.end(), count, capacity);
    return first;
}

std::uint32_t TreeTopology::reserve_leaves(const std::vector<double>& bandwidths, std::uint32_t each) {
    const auto first = static_cast<std::uint32_t>(capacities_.size());
    for (const double bandwidth : bandwidths) {
        capacities_.insert(capacities_.end(), each, bandwidth / each);
    }
    return first;
}

// B/s of all NICs under a leaf; where nodes differ, of as many of the mean of those that are there.
static double host_bandwidth(const FabricShape& s, std::uint32_t leaf_group) {
    double rate = s.nics_per_node * s.nic_bandwidth;
    if (!s.groups.empty()) {
        const std::uint32_t first = leaf_group * s.nodes_per_leaf;
        const std::uint32_t end = std::min(s.nodes, first + s.nodes_per_leaf);
        rate = 0;
        for (const NodeGroup& group : s.groups) {
            const std::uint32_t from = std::max(first, group.first);
            const std::uint32_t to = std::min(end, group.first + group.nodes);
            rate += to > from ? (to - from) * group.nics * group.nic_bandwidth / (end - first) : 0;
        }
    }
    return s.nodes_per_leaf * rate / s.rails;
}

TreeTopology::TreeTopology(const FabricShape& s)
    : fat_(s.kind == FabricKind::fat_tree),
      nics_per_node_(s.nics_per_node),
      nodes_per_leaf_(s.nodes_per_leaf),
      rails_(s.rails),
      leaf_groups_per_pod_(s.leaf_groups_per_pod),
      spines_per_pod_(s.spines),
      cores_per_spine_(s.cores_per_spine),
      leaf_oversubscription_(s.leaf_oversubscription),
      spine_oversubscription_(s.spine_oversubscription),
      latency_(s.link_latency) {
    const std::uint32_t groups = ceil_div(s.nodes, s.nodes_per_leaf);
    leaves_ = groups * s.rails;
    const double switch_links = 2.0 * leaves_ * s.spines + 2.0 * s.spines * s.cores_per_spine * leaves_;
    if (switch_links > 2e8) {
        throw InfeasibleError(
            "the fabric has more than 200 million switch links: use fewer spines or more nodes_per_leaf");
    }
    std::vector<double> bandwidths;
    double leaf_bandwidth = 0;  // of the fastest
    for (std::uint32_t leaf = 0; leaf < leaves_; ++leaf) {
        bandwidths.push_back(host_bandwidth(s, leaf / s.rails) / s.leaf_oversubscription);
        leaf_bandwidth = std::max(leaf_bandwidth, bandwidths.back());
    }
    leaf_link_rate_ = leaf_bandwidth / s.spines;
    pods_ = fat_ ? ceil_div(groups, s.leaf_groups_per_pod) : 1;
    spines_ = s.spines * pods_;
    leaf_up_ = reserve_leaves(bandwidths, s.spines);
    leaf_down_ = reserve_leaves(bandwidths, s.spines);
    leaf_up_bundle_ = reserve_leaves(bandwidths, 1);
    leaf_down_bundle_ = reserve_leaves(bandwidths, 1);
    if (fat_) {
        const double pod_bandwidth = leaf_bandwidth * s.rails * s.leaf_groups_per_pod / s.spine_oversubscription;
        const double link = pod_bandwidth / s.spines / s.cores_per_spine;
        cores_ = s.spines * s.cores_per_spine;
        spine_up_ = reserve(static_cast<std::size_t>(spines_) * s.cores_per_spine, link);
        spine_down_ = reserve(static_cast<std::size_t>(spines_) * s.cores_per_spine, link);
        pod_up_bundle_ = reserve(pods_, pod_bandwidth);
        pod_down_bundle_ = reserve(pods_, pod_bandwidth);
    }
}

std::uint32_t TreeTopology::leaf_of_nic(std::uint32_t nic) const {
    const std::uint32_t node = nic / nics_per_node_;
    const std::uint32_t rail = nic % nics_per_node_ % rails_;
    return node / nodes_per_leaf_ * rails_ + rail;
}

std::uint32_t TreeTopology::pod_of_leaf(std::uint32_t leaf) const {
    return fat_ ? leaf / rails_ / leaf_groups_per_pod_ : 0;
}

void TreeTopology::route(Route& route, std::uint32_t first, std::uint32_t from_nic, std::uint32_t to_nic,
                         PathChoice choice, std::uint64_t hash) const {
    const std::uint32_t leaf_a = leaf_of_nic(from_nic);
    const std::uint32_t leaf_b = leaf_of_nic(to_nic);
    ORRERY_ASSERT(leaf_a < leaves_ && leaf_b < leaves_);
    std::uint32_t hops = 2;
    if (leaf_a != leaf_b) {
        const bool across_pods = pod_of_leaf(leaf_a) != pod_of_leaf(leaf_b);
        hops += across_pods ? 4 : 2;
        if (choice == PathChoice::spray) {
            route.add(first + leaf_up_bundle_ + leaf_a);
            if (across_pods) {
                route.add(first + pod_up_bundle_ + pod_of_leaf(leaf_a));
                route.add(first + pod_down_bundle_ + pod_of_leaf(leaf_b));
            }
            route.add(first + leaf_down_bundle_ + leaf_b);
        } else {
            const std::uint64_t pick = mix64(hash);
            const auto spine = static_cast<std::uint32_t>(pick % spines_per_pod_);
            route.add(first + leaf_up_ + leaf_a * spines_per_pod_ + spine);
            if (across_pods) {
                const auto core = static_cast<std::uint32_t>((pick >> 32) % cores_per_spine_);
                const auto port = [&](std::uint32_t leaf) {
                    return (pod_of_leaf(leaf) * spines_per_pod_ + spine) * cores_per_spine_ + core;
                };
                route.add(first + spine_up_ + port(leaf_a));
                route.add(first + spine_down_ + port(leaf_b));
            }
            route.add(first + leaf_down_ + leaf_b * spines_per_pod_ + spine);
        }
    }
    route.latency += hops * latency_;
}

LinkSet TreeTopology::next_links(std::uint32_t at, std::uint32_t leaf) const {
    LinkSet out;
    const auto add = [&](std::uint32_t first, std::uint32_t count) {
        for (std::uint32_t i = 0; i < count; ++i) {
            out.add(first + i);
        }
    };
    if (at < leaves_) {
        add(leaf_up_ + at * spines_per_pod_, spines_per_pod_);
    } else if (at < leaves_ + spines_) {
        const std::uint32_t spine = at - leaves_;
        if (spine / spines_per_pod_ == pod_of_leaf(leaf)) {
            add(leaf_down_ + leaf * spines_per_pod_ + spine % spines_per_pod_, 1);
        } else {
            add(spine_up_ + spine * cores_per_spine_, cores_per_spine_);
        }
    } else {
        const std::uint32_t core = at - leaves_ - spines_;
        ORRERY_ASSERT(core < cores_);
        const std::uint32_t spine = pod_of_leaf(leaf) * spines_per_pod_ + core / cores_per_spine_;
        add(spine_down_ + spine * cores_per_spine_ + core % cores_per_spine_, 1);
    }
    return out;
}

std::uint32_t TreeTopology::add_tree(std::vector<ResourceId>& out, std::uint32_t first,
                                     std::span<const std::uint32_t> nics, PathChoice choice,
                                     std::uint32_t number) const {
    const auto add = [&](std::uint32_t resource) { out.emplace_back(first + resource); };
    std::set<std::uint32_t> leaves;
    std::set<std::uint32_t> pods;
    for (const std::uint32_t nic : nics) {
        leaves.insert(leaf_of_nic(nic));
        pods.insert(pod_of_leaf(leaf_of_nic(nic)));
    }
    const std::uint32_t spine = number % spines_per_pod_;
    const std::uint32_t core = number / spines_per_pod_ % std::max(1U, cores_per_spine_);
    for (const std::uint32_t leaf : leaves) {
        if (leaves.size() > 1) {
            add(leaf_up_ + leaf * spines_per_pod_ + spine);
            add(leaf_down_ + leaf * spines_per_pod_ + spine);
            if (choice == PathChoice::spray) {
                add(leaf_up_bundle_ + leaf);
                add(leaf_down_bundle_ + leaf);
            }
        }
    }
    for (const std::uint32_t pod : pods) {
        if (pods.size() > 1) {
            const std::uint32_t port = (pod * spines_per_pod_ + spine) * cores_per_spine_ + core;
            add(spine_up_ + port);
            add(spine_down_ + port);
            if (choice == PathChoice::spray) {
                add(pod_up_bundle_ + pod);
                add(pod_down_bundle_ + pod);
            }
        }
    }
    return pods.size() > 1 ? 6 : leaves.size() > 1 ? 4 : 2;
}

bool TreeTopology::full_bisection() const {
    return leaf_oversubscription_ <= 1 && (!fat_ || spine_oversubscription_ <= 1);
}

std::vector<std::uint32_t> TreeTopology::ample_bundles(std::span<const double> nics) const {
    constexpr double kRounding = 1 + 1e-9;
    std::vector<double> of_leaf(leaves_, 0);
    std::vector<double> of_pod(pods_, 0);
    for (std::uint32_t nic = 0; nic < nics.size(); ++nic) {
        const std::uint32_t leaf = leaf_of_nic(nic);
        ORRERY_ASSERT(leaf < leaves_ && pod_of_leaf(leaf) < pods_);
        of_leaf[leaf] += nics[nic];
        of_pod[pod_of_leaf(leaf)] += nics[nic];
    }
    std::vector<std::uint32_t> out;
    const auto add = [&](const std::vector<double>& behind, std::uint32_t first) {
        for (std::uint32_t i = 0; i < behind.size(); ++i) {
            if (behind[i] <= capacities_[first + i] * kRounding) {
                out.push_back(first + i);
            }
        }
    };
    add(of_leaf, leaf_up_bundle_);
    add(of_leaf, leaf_down_bundle_);
    if (fat_) {
        add(of_pod, pod_up_bundle_);
        add(of_pod, pod_down_bundle_);
    }
    return out;
}

std::string TreeTopology::resource_name(std::uint32_t resource) const {
    struct Table {
        std::uint32_t first;
        const char* name;
    };
    std::vector<Table> tables = {{leaf_up_, "leaf to spine, link "},
                                 {leaf_down_, "spine to leaf, link "},
                                 {leaf_up_bundle_, "uplinks of leaf "},
                                 {leaf_down_bundle_, "downlinks of leaf "}};
    if (fat_) {
        tables.push_back({spine_up_, "spine to core, link "});
        tables.push_back({spine_down_, "core to spine, link "});
        tables.push_back({pod_up_bundle_, "uplinks of pod "});
        tables.push_back({pod_down_bundle_, "downlinks of pod "});
    }
    ORRERY_ASSERT(resource < capacities_.size());
    const Table* best = tables.data();
    for (const Table& table : tables) {
        if (table.first <= resource && table.first >= best->first) {
            best = &table;
        }
    }
    return best->name + std::to_string(resource - best->first);
}

VertexKind TreeTopology::switch_kind(std::uint32_t number) const {
    return number < leaves_ ? VertexKind::leaf : number < leaves_ + spines_ ? VertexKind::spine : VertexKind::core;
}

std::string TreeTopology::switch_name(std::uint32_t number) const {
    switch (switch_kind(number)) {
        case VertexKind::leaf:
            return "leaf " + std::to_string(number);
        case VertexKind::spine:
            return "spine " + std::to_string(number - leaves_);
        default:
            return "core " + std::to_string(number - leaves_ - spines_);
    }
}

std::vector<SwitchLink> TreeTopology::links() const {
    // In the order of resources; the bundles between them are no single links and stay empty (from = to).
    std::vector<SwitchLink> out(capacities_.size());
    const auto both = [&](std::uint32_t a, std::uint32_t b, std::uint32_t up, std::uint32_t down) {
        out[up] = {a, b, capacities_[up], latency_};
        out[down] = {b, a, capacities_[down], latency_};
    };
    for (std::uint32_t leaf = 0; leaf < leaves_; ++leaf) {
        for (std::uint32_t i = 0; i < spines_per_pod_; ++i) {
            both(leaf, leaves_ + pod_of_leaf(leaf) * spines_per_pod_ + i, leaf_up_ + leaf * spines_per_pod_ + i,
                 leaf_down_ + leaf * spines_per_pod_ + i);
        }
    }
    for (std::uint32_t spine = 0; cores_ > 0 && spine < spines_; ++spine) {
        for (std::uint32_t i = 0; i < cores_per_spine_; ++i) {
            both(leaves_ + spine, leaves_ + spines_ + spine % spines_per_pod_ * cores_per_spine_ + i,
                 spine_up_ + spine * cores_per_spine_ + i, spine_down_ + spine * cores_per_spine_ + i);
        }
    }
    return out;
}

std::string TreeTopology::summary() const {
    const std::string rails = rails_ > 1 ? ", " + std::to_string(rails_) + " rails" : "";
    return (fat_ ? "fat tree: " : "leaf-spine: ") + std::to_string(leaves_) + " leaves, " + std::to_string(spines_) +
           " spines" + (fat_ ? ", " + std::to_string(cores_) + " core switches" : "") + rails;
}

namespace {

// Parameters of both trees. A leaf-spine fabric writes those of pods too, so that resolved scenarios stay what they are.
struct TreeParameters {
    std::int64_t nodes_per_leaf = 16;
    std::int64_t hosts_per_leaf = 0;  ///< synonym of nodes_per_leaf for clusters given in hosts
    std::int64_t rails = 1;
    std::int64_t spines = 0;  ///< 0: as many as a leaf has ports towards its hosts
    std::int64_t leaf_groups_per_pod = 8;
    std::int64_t cores_per_spine = 8;
    double oversubscription = 1;
    double core_oversubscription = 1;

    void describe(Fields& fields) {
        fields.integer(
            {"nodes_per_leaf", "nodes that share a leaf switch (or a group of rail leaves)", false, 1, 65536},
            nodes_per_leaf);
        fields.integer(
            {"hosts_per_leaf", "hosts that share a leaf switch, in clusters given in hosts (0: as nodes_per_leaf)",
             false, 0, 65536},
            hosts_per_leaf);
        fields.integer({"rails", "leaf switches that the NICs of one node spread over", false, 1, 1024}, rails);
        fields.integer({"spines", "number of spine switches, per pod in a fat tree (0: one per host port of a leaf)",
                        false, 0, 4096},
                       spines);
        fields.integer({"leaf_groups_per_pod", "fat tree: groups of nodes in a pod", false, 1, 4096},
                       leaf_groups_per_pod);
        fields.integer({"cores_per_spine", "fat tree: core switches a spine reaches", false, 1, 4096}, cores_per_spine);
        fields.number({"oversubscription", "host over uplink bandwidth of a leaf", false, 1e-3, 1e3}, oversubscription);
        fields.number({"core_oversubscription", "fat tree: bandwidth into over out of a pod", false, 1e-3, 1e3},
                      core_oversubscription);
    }
};

template <FabricKind kKind>
class TreePlan final : public TopologyPlan {
  public:
    using Parameters = TreeParameters;
    explicit TreePlan(const Parameters& own) : own_(own) {}

    [[nodiscard]] bool is_tree() const override { return true; }
    void complete(FabricShape& shape, std::vector<std::string>& problems) const override {
        shape.kind = kKind;
        const TreeParameters usual;
        for (const auto& [given, key] :
             {std::pair{own_.leaf_groups_per_pod != usual.leaf_groups_per_pod, "leaf_groups_per_pod"},
              {own_.cores_per_spine != usual.cores_per_spine, "cores_per_spine"},
              {own_.core_oversubscription != usual.core_oversubscription, "core_oversubscription"}}) {
            if (given && kKind != FabricKind::fat_tree) {
                problems.push_back(
                    problem_at(std::string("fabric.") + key,
                               std::string("'fabric.") + key + "' is of pods, which kind: fat-tree has"));
            }
        }
        if (own_.hosts_per_leaf > 0 && own_.nodes_per_leaf != usual.nodes_per_leaf &&
            own_.nodes_per_leaf != own_.hosts_per_leaf) {
            problems.push_back(
                problem_at("fabric.nodes_per_leaf",
                           "'fabric.nodes_per_leaf' and 'fabric.hosts_per_leaf' say the same of a leaf: give one"));
        }
        shape.nodes_per_leaf =
            static_cast<std::uint32_t>(own_.hosts_per_leaf > 0 ? own_.hosts_per_leaf : own_.nodes_per_leaf);
        shape.nodes_per_leaf = std::min(shape.nodes_per_leaf, std::max(1U, shape.nodes));
        shape.rails = static_cast<std::uint32_t>(own_.rails);
        if (shape.nics_per_node > 0 && shape.nics_per_node % shape.rails != 0) {
            problems.push_back(problem_at("fabric.rails", "'fabric.rails' must divide the NICs of a node (" +
                                                              std::to_string(shape.nics_per_node) + ")"));
        }
        const std::uint32_t host_ports = shape.nodes_per_leaf * std::max(1U, shape.nics_per_node / shape.rails);
        shape.spines = own_.spines > 0 ? static_cast<std::uint32_t>(own_.spines) : std::max(1U, host_ports);
        shape.leaf_groups_per_pod = static_cast<std::uint32_t>(own_.leaf_groups_per_pod);
        shape.cores_per_spine = static_cast<std::uint32_t>(own_.cores_per_spine);
        shape.leaf_oversubscription = own_.oversubscription;
        shape.spine_oversubscription = own_.core_oversubscription;
    }

  private:
    Parameters own_;
};

}  // namespace

extern const PolicyRow<TopologyPlan> kLeafSpine = policy_row<TopologyPlan, TreePlan<FabricKind::leaf_spine>>(
    "leaf-spine", "leaf switches, each joined to all spine switches");
extern const PolicyRow<TopologyPlan> kFatTree = policy_row<TopologyPlan, TreePlan<FabricKind::fat_tree>>(
    "fat-tree", "pods of leaves and spines, joined by core switches");

}  // namespace orrery::network
