#pragma once
// Topologies: what joins the NICs of the nodes. One file and one row of the table each; a topology owns its parameters.
//
// Claims: links, routes and next hops are arithmetic over a few numbers (a graph from a file has tables instead), the same at
// every fidelity: a hashed flow takes the same path whether it is simulated as a flow or packet by packet. Each NIC hangs on
// one switch; where the nodes are joined directly (torus, fully connected) that switch is the router of the node.
// Scope: links of constant rate and latency. Switches have no limit of their own.
// Validated by tests/sim/network/topology_test.cpp: paths against breadth-first search, closed forms of collectives.

#include "sim/base/id.hpp"
#include "sim/config/policy.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace orrery::network {

struct FabricShape;

enum class PathChoice { spray, ecmp };

/// What a vertex of the graph of links is.
enum class VertexKind { gpu, node_switch, nic, leaf, spine, core, router };

/// A path: the resources a flow uses, in order, and its latency without load. A flow that is spread over several paths uses
/// the links of all of them, a share of its bytes on each.
class Route {
  public:
    void add(std::uint32_t resource, double share = 1) {
        if (count_ < few_.size() && share == 1 && shares_.empty()) {
            few_[count_++] = ResourceId(resource);
        } else {
            add_further(resource, share);
        }
    }
    [[nodiscard]] std::span<const ResourceId> resources() const {
        return many_.empty() ? std::span<const ResourceId>(few_.data(), count_) : std::span<const ResourceId>(many_);
    }
    /// Of the bytes of the flow, what the resource at this place of resources() carries.
    [[nodiscard]] double share(std::size_t place) const { return place < shares_.size() ? shares_[place] : 1; }
    [[nodiscard]] bool spread() const { return !shares_.empty(); }

    double latency = 0;     ///< s
    double rate_limit = 0;  ///< B/s that one connection reaches on it; 0: no limit

  private:
    void add_further(std::uint32_t resource, double share);  // long or spread paths, out of line

    std::array<ResourceId, 12> few_;
    std::uint32_t count_ = 0;
    std::vector<ResourceId> many_;  ///< all of them, when they are more
    std::vector<double> shares_;    ///< empty: all 1
};

/// A link between two switches, one direction.
struct SwitchLink {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    double rate = 0;     ///< B/s
    double latency = 0;  ///< s
};

class Topology {
  public:
    virtual ~Topology() = default;

    /// B/s of its resources: the links between switches, and what flows see of several links together.
    [[nodiscard]] const std::vector<double>& capacities() const { return capacities_; }
    /// "leaf to spine, link 3".
    [[nodiscard]] virtual std::string resource_name(std::uint32_t resource) const = 0;

    [[nodiscard]] virtual std::uint32_t switches() const = 0;
    [[nodiscard]] virtual VertexKind switch_kind(std::uint32_t /*number*/) const { return VertexKind::router; }
    [[nodiscard]] virtual std::string switch_name(std::uint32_t number) const = 0;
    [[nodiscard]] virtual std::uint32_t switch_of(std::uint32_t nic) const = 0;
    /// s, of the link between a NIC and its switch.
    [[nodiscard]] virtual double host_latency() const = 0;
    /// All single links; the place of a link is its resource.
    [[nodiscard]] virtual std::vector<SwitchLink> links() const = 0;

    /// False for two NICs that no path joins.
    [[nodiscard]] virtual bool joined(std::uint32_t /*nic*/, std::uint32_t /*other*/) const { return true; }
    /// Adds what lies between two NICs to a route, `first` being the resource of the first link, and the latency of all links,
    /// those of the NICs too. `hash` picks among equal paths for PathChoice::ecmp.
    virtual void route(Route& route, std::uint32_t first, std::uint32_t from_nic, std::uint32_t to_nic,
                       PathChoice choice, std::uint64_t hash) const = 0;

    /// True when no link between switches can bind before the NICs do: then equal nodes see equal shares wherever they are.
    [[nodiscard]] virtual bool full_bisection() const { return false; }
    /// One line for people: "torus 4 x 4 x 4, wrapped".
    [[nodiscard]] virtual std::string summary() const = 0;

  protected:
    std::vector<double> capacities_;
};

/// What does not fit, about the part of the cluster at this path ("fabric.links[1]"), whose line it then names.
[[nodiscard]] inline std::string problem_at(const std::string& path, const std::string& text) {
    return path + '\n' + text;
}

/// How a topology is chosen and made: base of the policies of the table.
class TopologyPlan {
  public:
    virtual ~TopologyPlan() = default;
    /// Completes a shape of which the nodes are known. Appends one line for each thing that does not fit.
    virtual void complete(FabricShape& shape, std::vector<std::string>& problems) const = 0;
    /// Needs switches that look at their queues: fidelity packet.
    [[nodiscard]] virtual bool needs_packets() const { return false; }
    /// One connection reaches less than its links: only messages (kinds collective and network) know connections.
    [[nodiscard]] virtual bool limits_connections() const { return false; }
    /// Leaf-spine or fat tree.
    [[nodiscard]] virtual bool is_tree() const { return false; }
};

/// All topologies, the default first.
[[nodiscard]] const PolicyTable<TopologyPlan>& topology_table();

}  // namespace orrery::network
