#pragma once
// A change of a link during a packet run.

#include <cstdint>

namespace orrery::inline network {

/// A change of one link, both directions.
struct LinkEvent {
    /// pause: the NIC pauses its switch without end; resume: no longer.
    enum class What { down, up, rate, errors, pause, resume };
    enum class Link { leaf_spine, nic_leaf, spine_core };
    double time = 0;          ///< s
    std::uint32_t lower = 0;  ///< the leaf, the NIC, or the spine of the whole fabric
    std::uint32_t upper = 0;  ///< the spine of the leaf's pod, nothing, or the core switch among those of the spine
    What what = What::down;
    double factor = 1;  ///< rate: of the normal rate; errors: the link's bit error rate from now on
    Link link = Link::leaf_spine;
};

}  // namespace orrery::inline network
