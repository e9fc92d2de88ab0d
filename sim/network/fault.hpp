#pragma once
// What can go wrong in a cluster: what happens when, to what, and until when. Campaigns of training, services, links that change during
// a run and link events of packet runs all take their faults as this.

#include "sim/base/namespaces.hpp"

#include <cstdint>

namespace orrery::network {

enum class FaultKind {
    fail_stop,
    link_down,
    link_flap,
    degraded,
    slow,
    hang,
    corruption,
    outage,
    switch_loss,
    power_cap,
    preemption,
    // Of packet runs, from files of link events alone:
    bit_errors,  ///< `factor` is the link's bit error rate
    pause        ///< the NIC pauses its switch
};

/// Where a fault strikes. Numbers of GPUs, NICs and nodes are places of the job or service, whatever machine is there.
struct Place {
    enum class What { gpu, nic, node, leaf, spine, leaf_spine, storage, job, replica, spine_core };
    What what = What::job;
    std::uint32_t index = 0;
    std::uint32_t upper = 0;  ///< leaf_spine: the spine; spine_core: the core switch among those of the spine
    friend bool operator==(const Place&, const Place&) = default;
};

struct Fault {
    FaultKind kind = FaultKind::fail_stop;
    Place place;
    double factor = 1;   ///< share of the speed or rate that is left
    double lasts_s = 0;  ///< 0: until it is repaired, replaced or ended by another event
};

/// A fault at its time.
struct TimedFault {
    double at_s = 0;
    Fault fault;
    bool ends = false;  ///< the fault ends then, of a place that has it; otherwise it begins
};

}  // namespace orrery::network
