#pragma once
// Where the ranks of a job are: which nodes of a cluster are its own, in the order in which ranks fill them.

#include "sim/network/fabric.hpp"

#include <vector>

namespace orrery::network {

class Placement {
  public:
    /// All nodes of the fabric.
    explicit Placement(const Fabric& fabric) : per_node_(fabric.shape().gpus_per_node), gpus_(fabric.gpus()) {}
    /// These nodes, in this order. Precondition: distinct nodes of the fabric.
    Placement(const Fabric& fabric, std::vector<std::uint32_t> nodes)
        : per_node_(fabric.shape().gpus_per_node),
          gpus_(static_cast<std::uint32_t>(nodes.size()) * per_node_),
          nodes_(std::move(nodes)) {}

    /// The same nodes with ranks in another order: rank r takes the place of `order[r]`, and further ranks their own.
    [[nodiscard]] Placement reordered(std::vector<std::uint32_t> order) const {
        Placement out = *this;
        out.order_ = std::move(order);
        return out;
    }

    [[nodiscard]] std::uint32_t gpus() const { return gpus_; }
    /// True when the ranks lie as on a fabric of their own: on consecutive nodes from the first of a leaf on. Only then does what
    /// is known of the symmetry of a fabric hold for them.
    [[nodiscard]] bool aligned(const Fabric& fabric) const {
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            if (nodes_[i] != nodes_[0] + i) {
                return false;
            }
        }
        return order_.empty() && (nodes_.empty() || (nodes_[0] % fabric.shape().nodes_per_leaf == 0 &&
                                                     nodes_[0] % fabric.shape().nodes_per_domain == 0));
    }
    [[nodiscard]] GpuId gpu(std::uint32_t rank) const {
        rank = rank < order_.size() ? order_[rank] : rank;
        return nodes_.empty() ? GpuId(rank) : GpuId(nodes_[rank / per_node_] * per_node_ + rank % per_node_);
    }

  private:
    std::uint32_t per_node_;
    std::uint32_t gpus_;
    std::vector<std::uint32_t> nodes_;  ///< empty: all, in their own order
    std::vector<std::uint32_t> order_;  ///< by rank: its place; empty: its own number
};

}  // namespace orrery::network
