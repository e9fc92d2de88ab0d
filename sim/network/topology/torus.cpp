// Torus, mesh (a torus that does not wrap) and fully connected nodes.

#include "sim/network/topology/product.hpp"
#include "sim/network/topology/shape.hpp"

namespace orrery::network {

namespace {

struct TorusParameters {
    std::string shape;
    bool wrap = true;
    double neighbour_link = 0;
    double neighbour_latency = 500e-9;
    void describe(Fields& fields) {
        fields.text({"shape", "nodes in each dimension, joined by x: 4x4x8", true}, shape);
        fields.boolean({"wrap", "rings in every dimension; false: a mesh", false}, wrap);
        fields.quantity(
            {"neighbour_link", "rate of a link to a neighbour, per direction (0: the NICs' over the links of a node)",
             false, 0, 1e14},
            Dimension::rate, neighbour_link);
        fields.quantity({"neighbour_latency", "latency of a link to a neighbour, its router included", false, 0, 1},
                        Dimension::time, neighbour_latency);
    }
};

class TorusPlan final : public TopologyPlan {
  public:
    using Parameters = TorusParameters;
    explicit TorusPlan(const Parameters& own) : own_(own) {}
    void complete(FabricShape& shape, std::vector<std::string>& problems) const override {
        std::vector<ProductDimension> dimensions;
        for (const std::uint32_t size : parse_sizes(own_.shape, problems)) {
            dimensions.push_back({own_.wrap ? DimensionKind::ring : DimensionKind::line, size, own_.neighbour_link,
                                  own_.neighbour_latency});
        }
        complete_product(shape, std::move(dimensions), own_.wrap ? "torus" : "mesh", problems);
    }

  private:
    Parameters own_;
};

struct FullyConnectedParameters {
    double neighbour_link = 0;
    double neighbour_latency = 500e-9;
    void describe(Fields& fields) {
        fields.quantity(
            {"neighbour_link",
             "rate of a link between two nodes, per direction (0: the NICs' over the links of a node)", false, 0, 1e14},
            Dimension::rate, neighbour_link);
        fields.quantity({"neighbour_latency", "latency of a link between two nodes", false, 0, 1}, Dimension::time,
                        neighbour_latency);
    }
};

class FullyConnectedPlan final : public TopologyPlan {
  public:
    using Parameters = FullyConnectedParameters;
    explicit FullyConnectedPlan(const Parameters& own) : own_(own) {}
    void complete(FabricShape& shape, std::vector<std::string>& problems) const override {
        complete_product(shape,
                         {{DimensionKind::fully_connected, shape.nodes, own_.neighbour_link, own_.neighbour_latency}},
                         "fully connected", problems);
    }

  private:
    Parameters own_;
};

struct MultiLevelParameters {
    struct Level {
        DimensionKind kind = DimensionKind::ring;
        std::int64_t size = 0;
        double link = 0;
        double latency = 500e-9;
    };
    std::vector<Level> levels;
    void describe(Fields& fields) {
        fields.items(
            {"levels", "dimensions of a product, the first one first", true}, levels, [](Fields& inner, Level& level) {
                inner.enumeration({"kind", "network among the nodes that differ in this dimension alone"},
                                  {"ring", "line", "fully-connected", "switch"}, level.kind);
                inner.integer({"size", "nodes in this dimension", true, 1, 1'000'000}, level.size);
                inner.quantity({"link", "rate of a link per direction", true, 1, 1e14}, Dimension::rate, level.link);
                inner.quantity({"latency", "latency of a link", false, 0, 1}, Dimension::time, level.latency);
            });
    }
};

class MultiLevelPlan final : public TopologyPlan {
  public:
    using Parameters = MultiLevelParameters;
    explicit MultiLevelPlan(const Parameters& own) : own_(own) {}
    void complete(FabricShape& shape, std::vector<std::string>& problems) const override {
        std::vector<ProductDimension> dimensions;
        for (const MultiLevelParameters::Level& level : own_.levels) {
            dimensions.push_back({level.kind, static_cast<std::uint32_t>(level.size), level.link, level.latency});
        }
        if (dimensions.empty()) {
            problems.emplace_back("'fabric.levels' is missing: the dimensions of the product");
        }
        complete_product(shape, std::move(dimensions), "multi-level", problems);
    }

  private:
    Parameters own_;
};

}  // namespace

extern const PolicyRow<TopologyPlan> kFullyConnected =
    policy_row<TopologyPlan, FullyConnectedPlan>("fully-connected", "a link between every two nodes");
extern const PolicyRow<TopologyPlan> kTorus = policy_row<TopologyPlan, TorusPlan>(
    "torus", "nodes joined to their neighbours in two, three or more dimensions, with or without wrap-around");
extern const PolicyRow<TopologyPlan> kMultiLevel = policy_row<TopologyPlan, MultiLevelPlan>(
    "multi-level", "a product of rings, lines, switches and full meshes, each with a rate and a latency of its own");

}  // namespace orrery::network
