#pragma once
// Products of simple networks: every node has a place in each dimension, and in each dimension the nodes that differ in it
// alone are a ring, a line, fully connected, or hang on a switch. Packets correct one dimension after another, the first
// first (dimension-ordered routing, Dally and Seitz, IEEE Trans. Computers C-36(5), 1987). A ring of two is one link.

#include "sim/network/topology/routed.hpp"

namespace orrery::network {

enum class DimensionKind { ring, line, fully_connected, crossbar };

struct ProductDimension {
    DimensionKind kind = DimensionKind::ring;
    std::uint32_t size = 1;
    double rate = 0;     ///< B/s of a link, a direction
    double latency = 0;  ///< s of a link
};

class ProductTopology final : public RoutedTopology {
  public:
    /// Throws InfeasibleError when there are too many links.
    ProductTopology(const FabricShape& shape, std::vector<ProductDimension> dimensions, std::string name);

    [[nodiscard]] std::vector<SwitchLink> links() const override;
    [[nodiscard]] SwitchLink link(std::uint32_t number) const override;
    [[nodiscard]] std::uint32_t switches() const override { return switches_; }
    [[nodiscard]] std::uint32_t edge_switches() const override { return nodes_; }
    [[nodiscard]] std::string switch_name(std::uint32_t number) const override;
    [[nodiscard]] std::uint32_t switch_of(std::uint32_t nic) const override { return nic / nics_per_node_; }
    [[nodiscard]] LinkSet next_links(std::uint32_t at, std::uint32_t to, std::uint32_t entropy) const override;
    [[nodiscard]] Reach reach() const override { return reach_from_first(); }  // a corner, or any node
    [[nodiscard]] std::string summary() const override;
    [[nodiscard]] LinkTurn turn(std::uint32_t link) const override;
    [[nodiscard]] bool has_rings() const override;

    [[nodiscard]] const std::vector<ProductDimension>& dimensions() const { return dimensions_; }

  private:
    struct Table {
        std::uint32_t stride = 1;        ///< between neighbours
        std::uint32_t first_link = 0;    ///< towards higher places, into the switch, or to the first peer
        std::uint32_t second_link = 0;   ///< towards lower places, or out of the switch
        std::uint32_t first_switch = 0;  ///< of this dimension
    };
    [[nodiscard]] std::uint32_t place(std::uint32_t node, std::size_t dimension) const {
        return node / tables_[dimension].stride % dimensions_[dimension].size;
    }
    /// Number of the line of nodes that differ in this dimension alone.
    [[nodiscard]] std::uint32_t line(std::uint32_t node, std::size_t dimension) const {
        const std::uint32_t stride = tables_[dimension].stride;
        return node / (stride * dimensions_[dimension].size) * stride + node % stride;
    }
    /// The node at this place of a line of a dimension.
    [[nodiscard]] std::uint32_t node(std::size_t dimension, std::uint32_t of_line, std::uint32_t at) const {
        const std::uint32_t stride = tables_[dimension].stride;
        return of_line / stride * stride * dimensions_[dimension].size + of_line % stride + at * stride;
    }
    void add_dimension(std::size_t dimension);

    std::vector<ProductDimension> dimensions_;
    std::vector<Table> tables_;
    std::string name_;
    std::uint32_t nodes_;
    std::uint32_t nics_per_node_;
    std::uint32_t switches_;
};

/// Sizes of "4x4x8". Empty, with a line in `problems`, when it is none.
[[nodiscard]] std::vector<std::uint32_t> parse_sizes(const std::string& text, std::vector<std::string>& problems);
/// Puts a product into the shape; a line in `problems` when it does not have as many places as there are nodes, or when a
/// link has no rate. Links without a rate of their own share what the node's NICs have, a direction each.
void complete_product(FabricShape& shape, std::vector<ProductDimension> dimensions, const std::string& name,
                      std::vector<std::string>& problems);

}  // namespace orrery::network
