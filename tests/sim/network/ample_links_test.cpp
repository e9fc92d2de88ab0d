// Which bundles of links between switches nobody has to wait for at fidelity analytic.

#include "sim/network/ample_links.hpp"
#include "sim/network/analytic.hpp"

#include <doctest/doctest.h>

#include <map>

using namespace orrery;

namespace {

FabricShape sixteen_nodes(FabricKind kind) {
    FabricShape shape;
    shape.kind = kind;
    shape.nodes = 16;
    shape.intra_bandwidth = 300e9;
    shape.nic_bandwidth = 25e9;
    shape.rails = 8;
    shape.nodes_per_leaf = 4;
    shape.spines = 4;
    shape.leaf_groups_per_pod = 2;
    shape.cores_per_spine = 4;
    return shape;
}

// Names of the ample links without their numbers, each with how many there are.
std::map<std::string, int> ample(const FabricShape& shape) {
    const Fabric fabric(shape);
    std::map<std::string, int> out;
    for (const ResourceId link : ample_links(fabric)) {
        const std::string name = fabric.resource_name(link);
        ++out[name.substr(0, name.rfind(' '))];
    }
    return out;
}

using Counts = std::map<std::string, int>;

class Ends final : public ActivityListener {
  public:
    explicit Ends(Engine& engine) : engine_(engine) {}
    void on_activity_done(std::uint64_t token) override { at[token] = engine_.now().seconds(); }
    std::map<std::uint64_t, double> at;

  private:
    Engine& engine_;
};

}  // namespace

TEST_CASE("bundles are ample where they carry what all NICs behind them send") {
    FabricShape shape = sixteen_nodes(FabricKind::leaf_spine);
    CHECK(ample(shape) == Counts{{"uplinks of leaf", 32}, {"downlinks of leaf", 32}});
    shape.leaf_oversubscription = 1.01;
    CHECK(ample(shape).empty());

    shape = sixteen_nodes(FabricKind::fat_tree);
    CHECK(ample(shape) ==
          Counts{{"uplinks of leaf", 32}, {"downlinks of leaf", 32}, {"uplinks of pod", 2}, {"downlinks of pod", 2}});
    shape.spine_oversubscription = 2;
    CHECK(ample(shape) == Counts{{"uplinks of leaf", 32}, {"downlinks of leaf", 32}});

    shape = sixteen_nodes(FabricKind::leaf_spine);
    NodeGroup eight{"eight", 0, 8, 8, IntraKind::nvswitch, 300e9, 0, 0, 25e9};
    NodeGroup four{"four", 8, 8, 4, IntraKind::nvswitch, 300e9, 0, 0, 25e9};
    shape.groups = {eight, four};
    // Over the nodes with half the NICs each of eight leaves has the mean of four NICs that hang on the first four alone.
    CHECK(ample(shape) == Counts{{"uplinks of leaf", 16 + 8}, {"downlinks of leaf", 16 + 8}});
}

TEST_CASE("nobody waits for an ample link until it has less than before") {
    Engine engine;
    AnalyticModel model(engine);
    Ends ends(engine);
    const ListenerId listener = model.add_listener(ends);
    const ResourceId bundle = model.add_resource(1);
    const ResourceId one = model.add_resource(1);
    const ResourceId two = model.add_resource(1);
    const std::vector<Demand> first = {{bundle, 1}, {one, 1}};
    const std::vector<Demand> second = {{bundle, 1}, {two, 1}};
    const auto run = [&] {
        const double now = engine.now().seconds();
        model.start(model.hold(first), 4, listener, 0);
        model.start(model.hold(second), 4, listener, 1);
        engine.run();
        return std::pair(ends.at[0] - now, ends.at[1] - now);
    };
    CHECK(run() == std::pair(4.0, 8.0));  // the bundle serves the first one, then the second
    model.set_ample(bundle);
    CHECK(run() == std::pair(4.0, 4.0));
    model.set_capacity(bundle, 0.5);
    CHECK(run() == std::pair(8.0, 16.0));
    model.set_capacity(bundle, 1);
    CHECK(run() == std::pair(4.0, 4.0));
}
