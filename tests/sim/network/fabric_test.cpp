#include "sim/base/random.hpp"
#include "tests/support/fabrics.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "topologies/graph.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <map>
#include <set>

using namespace orrery;

namespace {

FabricShape random_shape(RandomStream& random) {
    FabricShape s;
    s.nodes = 1 + static_cast<std::uint32_t>(random.below(20));
    s.gpus_per_node = 1U << random.below(4);
    s.nics_per_node = std::max(1U, s.gpus_per_node >> random.below(3));
    s.intra = random.below(3) == 0 ? IntraKind::mesh : IntraKind::nvswitch;
    s.intra_bandwidth = 100e9;
    s.pcie_bandwidth = random.below(2) == 0 ? 25e9 : 0;
    s.nic_bandwidth = 25e9;
    s.kind = random.below(2) == 0 ? FabricKind::leaf_spine : FabricKind::fat_tree;
    s.nodes_per_leaf = 1 + static_cast<std::uint32_t>(random.below(6));
    s.rails = random.below(2) == 0 ? 1 : s.nics_per_node;
    s.spines = 1 + static_cast<std::uint32_t>(random.below(5));
    s.leaf_groups_per_pod = 1 + static_cast<std::uint32_t>(random.below(3));
    s.cores_per_spine = 1 + static_cast<std::uint32_t>(random.below(3));
    s.link_latency = 1e-6;
    return s;
}

}  // namespace

TEST_CASE("arithmetic routes are connected shortest paths of the graph of links") {
    for (int round = 0; round < 200 * test::scale(); ++round) {
        RandomStream random(static_cast<std::uint64_t>(round), "routes");
        const Fabric fabric(random_shape(random));
        const auto links = fabric.links();
        std::map<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> ends;
        for (const Fabric::Link& link : links) {
            ends[link.resource.value()] = {link.from, link.to};
        }
        const GpuId from(static_cast<std::uint32_t>(random.below(fabric.gpus())));
        const auto distance = distances_from(fabric, from);
        for (int k = 0; k < 10 && fabric.gpus() > 1; ++k) {
            const GpuId to(static_cast<std::uint32_t>(random.below(fabric.gpus())));
            if (to == from) {
                continue;
            }
            const Route route = fabric.route(from, to, PathChoice::ecmp, random.next());
            // Every resource once, joined end to end; the NIC's port stands for two hops where PCIe does not limit.
            std::uint32_t at = from.value();
            std::uint32_t hops = 0;
            std::set<std::uint32_t> used;
            const bool joined = fabric.shape().pcie_bandwidth > 0 || fabric.node_of(from) == fabric.node_of(to);
            for (const ResourceId link : route.resources()) {
                CHECK(used.insert(link.value()).second);
                if (joined) {
                    CHECK(ends.at(link.value()).first == at);
                    at = ends.at(link.value()).second;
                }
                ++hops;
            }
            if (joined) {
                CHECK(at == to.value());
                CHECK(hops == distance[to.value()]);
            } else {
                CHECK(hops + 2 == distance[to.value()]);
            }
            CHECK(fabric.route(from, to, PathChoice::spray, 0).latency == route.latency);
        }
    }
}

TEST_CASE("a bundle of parallel links carries what its links carry together") {
    RandomStream random(1, "bundles");
    for (int round = 0; round < 50; ++round) {
        FabricShape shape = random_shape(random);
        shape.nodes = 20;
        shape.leaf_oversubscription = 1 + static_cast<double>(random.below(3));
        const Fabric fabric(shape);
        std::map<std::string, double> sums;
        for (std::uint32_t i = 0; i < fabric.resource_count(); ++i) {
            const std::string name = fabric.resource_name(ResourceId(i));
            sums[name.substr(0, name.find_last_of(" 0123456789") + 1).substr(0, name.find_first_of("0123456789"))] +=
                fabric.capacity(ResourceId(i));
        }
        CHECK(sums["leaf to spine, link "] == doctest::Approx(sums["uplinks of leaf "]).epsilon(1e-12));
        CHECK(sums["spine to leaf, link "] == doctest::Approx(sums["downlinks of leaf "]).epsilon(1e-12));
        CHECK(sums["spine to core, link "] == doctest::Approx(sums["uplinks of pod "]).epsilon(1e-12));
        CHECK(fabric.full_bisection() == (shape.leaf_oversubscription <= 1));
    }
}

TEST_CASE("16,384 GPUs build in under a second without a stored route per pair") {
    const FabricShape shape = test::rail_nodes(2048);
    const auto started = std::chrono::steady_clock::now();
    const Fabric fabric(shape);
    CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count() < 1);
    CHECK(fabric.gpus() == 16384);
    CHECK(fabric.resource_count() < 200'000);
    const GraphReport report = inspect(fabric);
    CHECK(report.reachable_gpus == 16384);
    CHECK(report.diameter_from_first == 6);
}

TEST_CASE("an unreachable node is an error that names it") {
    FabricShape shape;
    shape.nodes = 2;
    shape.nics_per_node = 0;
    shape.intra_bandwidth = 1e9;
    CHECK_THROWS_WITH_AS(Fabric{shape}, doctest::Contains("node 1 cannot be reached"), InfeasibleError);
}

TEST_CASE("a message is not stored and forwarded at each hop") {
    const Fabric fabric(test::hosts(4, 2, 2, 1e9));
    Schedule schedule;
    schedule.messages.push_back(Message{0, 3, 1e9, 0, 0, 0, 0});
    CHECK(run_messages(fabric, schedule, {}).seconds == 1);  // four links, one second
}
