// The table of topologies: one row each.

#include "sim/network/topology/topology.hpp"

namespace orrery::network {

extern const PolicyRow<TopologyPlan> kLeafSpine;
extern const PolicyRow<TopologyPlan> kFatTree;
extern const PolicyRow<TopologyPlan> kSingleSwitch;
extern const PolicyRow<TopologyPlan> kRailOnly;
extern const PolicyRow<TopologyPlan> kFullyConnected;
extern const PolicyRow<TopologyPlan> kTorus;
extern const PolicyRow<TopologyPlan> kMultiLevel;
extern const PolicyRow<TopologyPlan> kDragonfly;
extern const PolicyRow<TopologyPlan> kGraph;
extern const PolicyRow<TopologyPlan> kSites;

const PolicyTable<TopologyPlan>& topology_table() {
    static const PolicyTable<TopologyPlan> kTable = {
        &kLeafSpine, &kFatTree,    &kSingleSwitch, &kRailOnly, &kFullyConnected,
        &kTorus,     &kMultiLevel, &kDragonfly,    &kGraph,    &kSites,
    };
    return kTable;
}

}  // namespace orrery::network
