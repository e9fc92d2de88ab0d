#pragma once
// Pictures of fabrics that are no trees: tori and meshes as grids, rails above their nodes, other graphs as a circle of switches.

#include "sim/network/fabric.hpp"
#include "tools/report/svg.hpp"

namespace orrery::report {

/// `loads`: by resource, the share of the time that it was in use; empty: no run. Of large fabrics a part is drawn, and the picture
/// says which. Precondition: the fabric is no tree.
[[nodiscard]] std::string topology_svg(const Fabric& fabric, const std::vector<double>& loads, const ChartStyle& style);

}  // namespace orrery::report
