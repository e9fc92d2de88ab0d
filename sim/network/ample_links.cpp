#include "sim/network/ample_links.hpp"

#include "sim/network/topology/joined.hpp"
#include "sim/network/topology/tree.hpp"

namespace orrery::network {

std::vector<ResourceId> ample_links(const Fabric& fabric) {
    const FabricShape& shape = fabric.shape();
    // Of NICs that are not there, and so send nothing, the fabric has the numbers all the same.
    std::vector<double> nics(shape.nics(), 0);
    for (std::uint32_t nic = 0; nic < nics.size(); ++nic) {
        const GpuId gpu(nic / shape.nics_per_node * shape.gpus_per_node);
        const std::uint32_t own = nic % shape.nics_per_node;
        const bool outer = shape.outer_bandwidth > 0 && own + 1 == shape.nics_per_node;
        nics[nic] = outer || own < fabric.parts_of(gpu).nics ? fabric.capacity(fabric.nic_out(nic)) : 0;
    }
    std::vector<std::uint32_t> bundles;
    if (const TreeTopology* tree = fabric.as_tree()) {
        bundles = tree->ample_bundles(nics);
    } else if (const auto* joined = dynamic_cast<const JoinedFabrics*>(&fabric.topology())) {
        bundles = joined->ample_bundles(nics);
    }
    std::vector<ResourceId> out;
    for (const std::uint32_t bundle : bundles) {
        out.emplace_back(fabric.first_switch_link() + bundle);
    }
    return out;
}

}  // namespace orrery::network
