#pragma once
// Fabrics and run settings for tests of the network.

#include "sim/network/fabric.hpp"
#include "sim/run/simulation.hpp"

#include <cstdint>

namespace orrery::test {

/// Nodes of eight GPUs with a rail of leaf switches a GPU: NVLink 4 and 400 Gb/s.
inline FabricShape rail_nodes(std::uint32_t nodes) {
    FabricShape shape;
    shape.nodes = nodes;
    shape.intra_bandwidth = 450e9;
    shape.pcie_bandwidth = 50e9;
    shape.nic_bandwidth = 50e9;
    shape.rails = 8;
    shape.spines = 16;
    return shape;
}

/// A run by packet.
inline RunSettings by_packet(const PacketSpec& packets) {
    RunSettings settings;
    settings.fidelity = Fidelity::packet;
    settings.packets = packets;
    return settings;
}

/// A fabric of bare hosts: `hosts` on leaves of `per_leaf` with `spines` spines, rates in B/s.
inline FabricShape hosts(std::uint32_t count, std::uint32_t per_leaf, std::uint32_t spines, double rate,
                         double latency = 0) {
    FabricShape shape;
    shape.nodes = count;
    shape.gpus_per_node = 1;
    shape.nics_per_node = 1;
    shape.nic_bandwidth = rate;
    shape.nodes_per_leaf = per_leaf;
    shape.spines = spines;
    shape.link_latency = latency;
    return shape;
}

}  // namespace orrery::test
