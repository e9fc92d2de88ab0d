#include "sim/network/packet/faults.hpp"

#include "sim/base/time.hpp"
#include "sim/network/fabric.hpp"
#include "sim/network/topology/tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace orrery::network {

std::string problem_of(const Fault& fault, const Fabric& fabric, bool pauses) {
    const Place& place = fault.place;
    const auto missing = [&](const char* lower, std::uint32_t lowers, const char* upper, std::uint32_t uppers) {
        const auto name = [&](std::uint32_t first, std::uint32_t second) {
            return *upper == 0 ? fmt::format("{} {}", lower, first)
                               : fmt::format("{} {} {} {}", lower, first, upper, second);
        };
        if (lowers == 0 || uppers == 0) {
            return fmt::format("'{}': the fabric has no {}", name(place.index, place.upper),
                               *upper == 0 ? lower : upper);
        }
        if (place.index < lowers && place.upper < uppers) {
            return std::string();
        }
        return fmt::format("'{}' does not exist: the fabric has '{}' to '{}'; nearest is '{}'",
                           name(place.index, place.upper), name(0, 0), name(lowers - 1, uppers - 1),
                           name(std::min(place.index, lowers - 1), std::min(place.upper, uppers - 1)));
    };
    const FabricShape& shape = fabric.shape();
    const TreeTopology* tree = fabric.as_tree();
    std::string problem;
    switch (place.what) {
        case Place::What::nic:
            problem = missing("nic", shape.nodes * shape.nics_per_node, "", 1);
            break;
        case Place::What::leaf_spine:
            problem = missing("leaf", fabric.leaves(), "spine", tree != nullptr ? shape.spines : 0);
            break;
        default:
            ORRERY_ASSERT(place.what == Place::What::spine_core);
            problem = missing("spine", fabric.spines(), "core",
                              tree != nullptr && shape.kind == FabricKind::fat_tree ? shape.cores_per_spine : 0);
            break;
    }
    if (problem.empty() && !pauses && fault.kind == FaultKind::pause) {
        problem = fmt::format(
            "a link event lets nic {} pause its switch, which knows pauses with network.queues.pfc alone", place.index);
    }
    return problem;
}

}  // namespace orrery::network

namespace orrery::network::packet {

void Faults::add(const TimedFault& event) {
    const Fault& fault = event.fault;
    if (std::string problem = problem_of(fault, setup_.fabric, pauses(setup_.spec)); !problem.empty()) {
        throw ConfigError(problem);
    }
    ORRERY_ASSERT(setup_.served && (fault.kind != FaultKind::pause || fault.place.what == Place::What::nic));
    if (fault.kind == FaultKind::bit_errors) {
        ports_.expect_errors();
    }
    events_.push_back(event);
    ++left_;
    clock_.schedule(Timer::link_event, static_cast<std::uint32_t>(events_.size() - 1),
                    std::max(clock_.now, SimTime::from_seconds(event.at_s).ps()));
    if (fault.lasts_s > 0) {
        add({event.at_s + fault.lasts_s, {fault.kind, fault.place, fault.factor}, true});
    }
}

void Faults::set_rate(std::uint32_t port, double factor) {
    ORRERY_ASSERT(setup_.served && port < ports_.size() && factor >= 0);
    if (ports_[port].down != (factor == 0)) {
        set_link(port, {FaultKind::link_down, {}, 0}, factor > 0);
    }
    if (factor > 0) {
        set_link(port, {FaultKind::degraded, {}, factor}, false);
    }
}

void Faults::apply(std::uint32_t index) {
    const auto [at_s, fault, ends] = events_[index];
    --left_;
    const Place& place = fault.place;
    if (fault.kind == FaultKind::pause) {
        for (std::uint32_t lane = 0; lane < setup_.lanes; ++lane) {  // all that can be paused
            if (setup_.classes[lane / setup_.lanes_per_class].pfc) {
                (void)watchdog_.set_paused((setup_.base[1] + place.index) * setup_.lanes + lane, !ends);
            }
        }
        return;
    }
    const std::size_t up = place.what == Place::What::nic ? 0 : place.what == Place::What::leaf_spine ? 2 : 4;
    const std::uint32_t links = up == 0 ? 1 : up == 2 ? setup_.spines : setup_.cores;
    for (const std::size_t kind : {up, up + 1}) {
        set_link(setup_.base[kind] + place.index * links + place.upper, fault, ends);
    }
}

void Faults::set_link(std::uint32_t port_id, const Fault& fault, bool ends) {
    Port& port = ports_[port_id];
    if (fault.kind == FaultKind::bit_errors) {
        ports_.set_error_rate(port_id, ends ? setup_.spec.bit_error_rate : fault.factor);
        return;
    }
    if (fault.kind == FaultKind::degraded) {
        ports_.set_rate(port_id, ends ? 1 : fault.factor);
        if (!setup_.path_needs.weighted) {
            return;
        }
    } else {
        ORRERY_ASSERT(fault.kind == FaultKind::link_down);
        port.down = !ends;
        if (port.down) {
            ports_.cut(port_id);
        } else if (port.kind == PortKind::nic_out) {
            nics_.kick(port_id - setup_.base[0]);
        }
    }
    clock_.schedule(Timer::reroute, port_id, clock_.now + SimTime::from_seconds(setup_.spec.reroute_delay).ps());
}

// Lanes that stand still for ever: the largest set of lanes that are paused, or have no room at the far end, in which each has more
// bytes waiting behind others of the set than it may have when it goes on. Without classes a port has one.
std::vector<std::uint32_t> Faults::deadlocked_lanes() const {
    const std::uint32_t lanes = setup_.lanes;
    const auto all = static_cast<std::uint32_t>(ports_.size() * lanes);
    const auto data = [&](std::uint32_t i) -> const Ring& {
        return setup_.laned ? ports_.lane(i).data : ports_.served(i).data;
    };
    const bool credits = setup_.spec.queues.credits > 0;
    // Bytes that came over one link and wait at one lane.
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> waiting;
    std::vector<bool> stuck(all, false);
    for (std::uint32_t i = 0; i < all; ++i) {
        const Ring& ring = data(i);
        stuck[i] = credits
                       ? !ring.empty() && !ports_.lane_may_send(i / lanes, i % lanes, ports_.rings().front(ring).size)
                   : setup_.laned ? ports_.lane(i).paused
                                  : ports_[i].paused;
        for (std::uint32_t k = 0; stuck[i] && k < ring.count(); ++k) {
            const Packet& p = slab_[ports_.rings().at(ring, k).packet];
            if (p.ingress != kNone) {
                const std::int64_t size = credits ? Lane::blocks(p.size) : p.size;
                waiting[{p.ingress * lanes + (setup_.laned ? p.came : 0), i}] += size;
            }
        }
    }
    const auto goes_on = [&](std::uint32_t i, std::int64_t held) {
        if (credits) {
            const std::int64_t room =
                static_cast<std::int64_t>(setup_.spec.queues.credits) / kCreditBlock * kCreditBlock;
            return room - held >= Lane::blocks(ports_.rings().front(data(i)).size);
        }
        const bool sent = setup_.laned ? ports_.lane(i).pause_sent : ports_.served(i).pause_sent;
        const double limit =
            setup_.laned ? setup_.classes[i % lanes / setup_.lanes_per_class].resume_at : setup_.spec.queues.resume_at;
        return !sent || static_cast<double>(held) <= limit;
    };
    for (bool changed = true; changed;) {
        changed = false;
        std::map<std::uint32_t, std::int64_t> held;
        for (const auto& [link, bytes] : waiting) {
            held[link.first] += stuck[link.second] ? bytes : 0;
        }
        for (std::uint32_t i = 0; i < all; ++i) {
            if (stuck[i] && goes_on(i, held[i])) {
                stuck[i] = false;
                changed = true;
            }
        }
    }
    // Downstream along them, always to where most waits, leads into a circle.
    const auto first = std::find(stuck.begin(), stuck.end(), true);
    if (first == stuck.end()) {
        return {};
    }
    std::vector<std::uint32_t> walk{static_cast<std::uint32_t>(first - stuck.begin())};
    for (;;) {
        std::uint32_t next = kNone;
        std::int64_t most = 0;
        for (auto at = waiting.lower_bound({walk.back(), 0}); at != waiting.end() && at->first.first == walk.back();
             ++at) {
            if (stuck[at->first.second] && at->second > most) {
                most = at->second;
                next = at->first.second;
            }
        }
        ORRERY_ASSERT(next != kNone);
        if (const auto seen = std::find(walk.begin(), walk.end(), next); seen != walk.end()) {
            walk.erase(walk.begin(), seen);
            return walk;
        }
        walk.push_back(next);
    }
}

// Data wait for a NIC that has paused its switch.
void Faults::check_pausing_nics() const {
    for (std::uint32_t nic = 0; nic < setup_.nics; ++nic) {
        const std::uint32_t port = setup_.base[1] + nic;
        const bool paused = setup_.laned ? ports_.lane(port * setup_.lanes).paused : ports_[port].paused;
        if (paused && ports_.served(port).data_bytes > 0) {
            messages_.fail_first("nic " + std::to_string(nic) +
                                 " pauses its switch without end (a link event lets it), and data wait for it");
        }
    }
}

// A circle of paused ports is the end, unless a link event is still to come that could break it, or a watchdog will.
void Faults::check_deadlock() const {
    if (!waits_for_room(setup_.spec) || left_ > 0 || setup_.spec.queues.watchdog != StormAction::none) {
        return;
    }
    const std::vector<std::uint32_t> circle = deadlocked_lanes();
    if (circle.empty()) {
        check_pausing_nics();
        return;
    }
    std::string names;
    for (const std::uint32_t lane : circle) {
        names += (names.empty() ? "" : ", ") + ports_.name(lane / setup_.lanes);
        names += setup_.lanes > 1 ? " in lane " + std::to_string(lane % setup_.lanes) : "";
    }
    messages_.fail_first(
        "deadlock: " + std::to_string(circle.size()) +
        (setup_.spec.queues.credits > 0 ? " ports wait for each other's room" : " ports pause each other") +
        " in a circle (" + names + ")");
}

}  // namespace orrery::network::packet
