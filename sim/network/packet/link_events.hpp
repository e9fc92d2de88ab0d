#pragma once
// Faults of links during a packet run: which of them a fabric can have. A NIC, a leaf and its spine, and a spine and its core switch
// name a link, both directions.

#include "sim/network/fault.hpp"

#include <string>

namespace orrery::network {

class Fabric;

/// Why a fabric cannot have this fault, with the nearest link that it has; empty: it can. `pauses`: its ports heed pauses.
[[nodiscard]] std::string problem_of(const Fault& fault, const Fabric& fabric, bool pauses);

}  // namespace orrery::network
