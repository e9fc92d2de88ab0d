// The table of topologies: one row each.

#include "sim/network/topology/topology.hpp"

namespace orrery {

extern const PolicyRow<TopologyPlan> kLeafSpine;
extern const PolicyRow<TopologyPlan> kFatTree;

const PolicyTable<TopologyPlan>& topology_table() {
    static const PolicyTable<TopologyPlan> kTable = {&kLeafSpine, &kFatTree};
    return kTable;
}

}  // namespace orrery
