#include "sim/network/packet/faults.hpp"

#include "sim/base/time.hpp"

#include <algorithm>
#include <map>

namespace orrery::inline network::packet {

void Faults::add(const LinkEvent& event) {
    const auto refuse = [&](const std::string& named, const std::string& fabric) {
        throw ConfigError("a link event names " + named + "; the fabric has " + fabric);
    };
    const auto text = [](std::size_t number) { return std::to_string(number); };
    switch (event.link) {
        case LinkEvent::Link::nic_leaf:
            if (event.lower >= setup_.nics) {
                refuse("nic " + text(event.lower), text(setup_.nics) + " NICs");
            }
            break;
        case LinkEvent::Link::leaf_spine:
            if (event.lower >= setup_.fabric.leaves() || event.upper >= setup_.spines) {
                refuse("leaf " + text(event.lower) + ", spine " + text(event.upper),
                       text(setup_.fabric.leaves()) + " leaves with " + text(setup_.spines) + " spines each");
            }
            break;
        case LinkEvent::Link::spine_core:
            if (!setup_.tree || event.lower >= setup_.fabric.spines() || event.upper >= setup_.cores) {
                refuse("spine " + text(event.lower) + ", core " + text(event.upper),
                       setup_.tree
                           ? text(setup_.fabric.spines()) + " spines with " + text(setup_.cores) + " core switches each"
                           : "no core switches");
            }
            break;
    }
    const bool by_nic = event.what == LinkEvent::What::pause || event.what == LinkEvent::What::resume;
    if (by_nic && !pauses(setup_.spec)) {
        throw ConfigError("a link event lets nic " + text(event.lower) +
                          " pause its switch, which knows pauses with network.queues.pfc alone");
    }
    ORRERY_ASSERT(setup_.served && (!by_nic || event.link == LinkEvent::Link::nic_leaf));
    events_.push_back(event);
    ++left_;
    if (event.what == LinkEvent::What::errors) {
        ports_.expect_errors();
    }
    clock_.schedule(Timer::link_event, static_cast<std::uint32_t>(events_.size() - 1),
                    std::max(clock_.now, SimTime::from_seconds(event.time).ps()));
}

void Faults::set_rate(std::uint32_t port, double factor) {
    ORRERY_ASSERT(setup_.served && port < ports_.size() && factor >= 0);
    LinkEvent event;
    if (ports_[port].down != (factor == 0)) {
        event.what = factor == 0 ? LinkEvent::What::down : LinkEvent::What::up;
        set_link(port, event);
    }
    if (factor > 0) {
        event.what = LinkEvent::What::rate;
        event.factor = factor;
        set_link(port, event);
    }
}

void Faults::apply(std::uint32_t index) {
    const LinkEvent event = events_[index];
    --left_;
    if (event.what == LinkEvent::What::pause || event.what == LinkEvent::What::resume) {
        for (std::uint32_t lane = 0; lane < setup_.lanes; ++lane) {  // all that can be paused
            if (setup_.classes[lane / setup_.lanes_per_class].pfc) {
                (void)watchdog_.set_paused((setup_.base[1] + event.lower) * setup_.lanes + lane,
                                           event.what == LinkEvent::What::pause);
            }
        }
        return;
    }
    const std::size_t up = event.link == LinkEvent::Link::nic_leaf     ? 0
                           : event.link == LinkEvent::Link::leaf_spine ? 2
                                                                       : 4;
    const std::uint32_t links = up == 0 ? 1 : up == 2 ? setup_.spines : setup_.cores;
    for (const std::size_t kind : {up, up + 1}) {
        set_link(setup_.base[kind] + event.lower * links + event.upper, event);
    }
}

void Faults::set_link(std::uint32_t port_id, const LinkEvent& event) {
    Port& port = ports_[port_id];
    switch (event.what) {
        case LinkEvent::What::errors:
            ports_.set_error_rate(port_id, event.factor);
            return;
        case LinkEvent::What::rate:
            ports_.set_rate(port_id, event.factor);
            if (!setup_.path_needs.weighted) {
                return;
            }
            break;
        case LinkEvent::What::down:
            port.down = true;
            ports_.cut(port_id);
            break;
        case LinkEvent::What::up:
            port.down = false;
            if (port.kind == PortKind::nic_out) {
                nics_.kick(port_id - setup_.base[0]);
            }
            break;
        case LinkEvent::What::pause:
        case LinkEvent::What::resume:
            break;  // above: they change no link
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

}  // namespace orrery::inline network::packet
