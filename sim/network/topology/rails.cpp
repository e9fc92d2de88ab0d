// Single switch, and rail-only: a switch for each rail, and nothing that joins the rails. Data for another rail first go over
// the inside of the node to the GPU of that rail.
//
// Source: Wang, Ghobadi, Shakeri, Zhang, Hasani, "Rail-only: A Low-Cost High-Performance Network for Training LLMs with
// Trillion Parameters", IEEE Hot Interconnects 2024, section 3.

#include "sim/network/topology/routed.hpp"
#include "sim/network/topology/shape.hpp"

namespace orrery::network {

namespace {

class Rails final : public RoutedTopology {
  public:
    Rails(const FabricShape& shape, std::uint32_t rails)
        : RoutedTopology(shape.link_latency), nics_per_node_(shape.nics_per_node), rails_(rails) {}

    [[nodiscard]] std::uint32_t switches() const override { return rails_; }
    [[nodiscard]] std::string switch_name(std::uint32_t number) const override {
        return rails_ > 1 ? "rail switch " + std::to_string(number) : "switch";
    }
    [[nodiscard]] std::uint32_t switch_of(std::uint32_t nic) const override { return nic % nics_per_node_ % rails_; }
    [[nodiscard]] bool joined(std::uint32_t nic, std::uint32_t other) const override {
        return switch_of(nic) == switch_of(other);
    }
    [[nodiscard]] LinkSet next_links(std::uint32_t, std::uint32_t, std::uint32_t) const override { return {}; }
    [[nodiscard]] std::uint32_t edge_switches() const override { return 0; }
    [[nodiscard]] bool full_bisection() const override { return true; }
    [[nodiscard]] std::string summary() const override {
        return rails_ > 1 ? "rail-only: " + std::to_string(rails_) + " rail switches" : "single switch";
    }

  private:
    std::uint32_t nics_per_node_;
    std::uint32_t rails_;
};

class SingleSwitchPlan final : public TopologyPlan {
  public:
    using Parameters = NoParameters;
    explicit SingleSwitchPlan(const Parameters&) {}
    void complete(FabricShape& shape, std::vector<std::string>&) const override {
        shape.nodes_per_leaf = shape.nodes;
        shape.topology = [](const FabricShape& s) { return std::make_shared<Rails>(s, 1U); };
    }
};

struct RailOnlyParameters {
    std::int64_t rails = 0;
    void describe(Fields& fields) {
        fields.integer({"rails", "switches that the NICs of one node spread over (0: one per NIC)", false, 0, 1024},
                       rails);
    }
};

class RailOnlyPlan final : public TopologyPlan {
  public:
    using Parameters = RailOnlyParameters;
    explicit RailOnlyPlan(const Parameters& own) : rails_(static_cast<std::uint32_t>(own.rails)) {}
    void complete(FabricShape& shape, std::vector<std::string>& problems) const override {
        const std::uint32_t rails = rails_ > 0 ? rails_ : std::max(1U, shape.nics_per_node);
        if (shape.nics_per_node > 0 && shape.nics_per_node % rails != 0) {
            problems.push_back(problem_at("fabric.rails", "'fabric.rails' must divide the NICs of a node (" +
                                                              std::to_string(shape.nics_per_node) + ")"));
        }
        if (rails > 1 && shape.gpus_per_node < shape.nics_per_node) {
            problems.push_back("rail-only needs a GPU for each NIC: a node has " + std::to_string(shape.gpus_per_node) +
                               " GPUs and " + std::to_string(shape.nics_per_node) + " NICs");
        }
        for (const NodeGroup& group : shape.groups) {
            if (rails > 1 && group.nics != shape.nics_per_node) {
                problems.push_back("rail-only needs as many NICs in every node: those of '" + group.name + "' have " +
                                   std::to_string(group.nics) + ", others " + std::to_string(shape.nics_per_node));
            }
        }
        shape.nodes_per_leaf = shape.nodes;
        shape.topology = [rails](const FabricShape& s) { return std::make_shared<Rails>(s, rails); };
    }

  private:
    std::uint32_t rails_;
};

}  // namespace

extern const PolicyRow<TopologyPlan> kSingleSwitch =
    policy_row<TopologyPlan, SingleSwitchPlan>("single-switch", "one switch that joins all NICs");
extern const PolicyRow<TopologyPlan> kRailOnly = policy_row<TopologyPlan, RailOnlyPlan>(
    "rail-only", "a switch for each rail, none between them: other rails are reached over the inside of the node");

}  // namespace orrery::network
