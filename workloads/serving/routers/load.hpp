#pragma once
// What routers measure replicas by.

#include "workloads/serving/fleet/fleet.hpp"
#include "workloads/serving/routers/router.hpp"

namespace orrery::serving {

/// Requests that a replica has, the KV transfers that wait for blocks among them.
[[nodiscard]] inline std::size_t outstanding_requests(const Replica& replica) {
    return replica.state.outstanding() + replica.state.aside() + replica.without_room.size();
}

/// The first of the replicas with the least measure.
template <class Measure>
[[nodiscard]] std::uint32_t least(const Fleet& fleet, const std::vector<std::uint32_t>& among, const Measure& measure) {
    std::uint32_t best = among.front();
    for (const std::uint32_t i : among) {
        if (measure(fleet[i]) < measure(fleet[best])) {
            best = i;
        }
    }
    return best;
}

}  // namespace orrery::serving
