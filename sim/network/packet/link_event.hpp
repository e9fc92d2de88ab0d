#pragma once
// A change of a link during a packet run.

#include "sim/base/namespaces.hpp"

#include <cstdint>
#include <string>

namespace orrery::network {

class Fabric;

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

/// Why a fabric cannot have this event, with the nearest link that it has; empty: it can. `pauses`: its ports heed pauses.
[[nodiscard]] std::string problem_of(const LinkEvent& event, const Fabric& fabric, bool pauses);

}  // namespace orrery::network
