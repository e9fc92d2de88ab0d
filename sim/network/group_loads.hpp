#pragma once
// What groups that do the same collective at once put on each link, for a byte that each rank sends.
//
// Claims: flows take the fabric's own routes. In an exchange between all pairs every member sends to every other; other collectives go
// round in rings, node by node. Where no link between switches can be full before the NICs are, an exchange between pairs is counted by its
// ports. As a price these loads are in concurrent_groups.hpp; here they are demands of an activity.
// Validated by tests/workloads/fabric_exchanges_test.cpp and pass_exchanges_test.cpp.

#include "sim/network/collective.hpp"

#include <functional>
#include <vector>

namespace orrery::network {

struct GroupTraffic {
    const Fabric& fabric;
    PathChoice paths;
    const std::vector<std::vector<GpuId>>& groups;  ///< of equal size, each in ring order, node by node
    const GroupPorts& ports;                        ///< of the first
    bool pairs;                                     ///< else rings
    const std::vector<bool>* only_nodes = nullptr;  ///< keep the ports of these nodes alone, as make_transfer() does
};

/// Calls `add(resource, inside, outside)` for what is put on it by traffic inside nodes and between them, in bytes, and `path(route)`
/// for each route that is taken.
void for_group_loads(const GroupTraffic& of, const std::function<void(ResourceId, double, double)>& add,
                     const std::function<void(const Route&)>& path);

/// The same of one group as demands of an activity whose amount is the bytes that a rank sends; none of a group of one rank.
[[nodiscard]] std::vector<Demand> demands_of_group(const Fabric& fabric, PathChoice paths,
                                                   const std::vector<GpuId>& group, bool pairs,
                                                   const std::vector<bool>* only_nodes);

/// The ranks at equal places on their nodes.
[[nodiscard]] std::vector<std::vector<GpuId>> rails_of(const Fabric& fabric, const std::vector<GpuId>& group);

}  // namespace orrery::network
