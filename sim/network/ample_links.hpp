#pragma once
// Links between switches that cannot be full before the NICs are.
//
// Claims: what sprays over the links of a leaf or a pod loads them evenly, as one bundle. Where a bundle has at least the rate of all
// NICs behind it, and no NIC carries more than it can, the bundle does not either: it holds nobody up, whatever is sent when.
// Scope: bundles of trees, also of those that JoinedFabrics joins. Hashed flows use single links, which are never among these.
// Validated by tests/sim/network/ample_links_test.cpp.

#include "sim/network/fabric.hpp"

#include <vector>

namespace orrery::network {

[[nodiscard]] std::vector<ResourceId> ample_links(const Fabric& fabric);

}  // namespace orrery::network
