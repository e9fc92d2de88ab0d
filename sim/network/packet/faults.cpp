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
    const bool pauses = event.what == LinkEvent::What::pause || event.what == LinkEvent::What::resume;
    if (pauses && !setup_.spec.queues.pfc) {
        throw ConfigError("a link event lets nic " + text(event.lower) +
                          " pause its switch, which knows pauses with network.queues.pfc alone");
    }
    ORRERY_ASSERT(setup_.served && (!pauses || event.link == LinkEvent::Link::nic_leaf));
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
        (void)watchdog_.set_paused(setup_.base[1] + event.lower, event.what == LinkEvent::What::pause);
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

// Ports that stay paused for ever: the largest set of paused ports in which each has more bytes waiting behind others of
// the set than it may have when it resumes.
std::vector<std::uint32_t> Faults::deadlocked_ports() const {
    // Bytes that came over one link and wait at one port.
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> waiting;
    std::vector<bool> stuck(ports_.size(), false);
    for (std::uint32_t i = 0; i < ports_.size(); ++i) {
        stuck[i] = ports_[i].paused;
        const Ring& data = ports_.served(i).data;
        for (std::uint32_t k = 0; ports_[i].paused && k < data.count; ++k) {
            const Packet& p = slab_[ports_.rings().at(data, k).packet];
            if (p.ingress != kNone) {
                waiting[{p.ingress, i}] += p.size;
            }
        }
    }
    for (bool changed = true; changed;) {
        changed = false;
        std::map<std::uint32_t, std::int64_t> held;
        for (const auto& [link, bytes] : waiting) {
            held[link.first] += stuck[link.second] ? bytes : 0;
        }
        for (std::uint32_t i = 0; i < ports_.size(); ++i) {
            const bool resumes =
                !ports_.served(i).pause_sent || static_cast<double>(held[i]) <= setup_.spec.queues.resume_at;
            if (stuck[i] && resumes) {
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
        if (ports_[port].paused && !ports_.served(port).data.empty()) {
            messages_.fail_first("nic " + std::to_string(nic) +
                                 " pauses its switch without end (a link event lets it), and data wait for it");
        }
    }
}

// A circle of paused ports is the end, unless a link event is still to come that could break it, or a watchdog will.
void Faults::check_deadlock() const {
    if (!setup_.spec.queues.pfc || left_ > 0 || setup_.spec.queues.watchdog != StormAction::none) {
        return;
    }
    const std::vector<std::uint32_t> circle = deadlocked_ports();
    if (circle.empty()) {
        check_pausing_nics();
        return;
    }
    std::string names;
    for (const std::uint32_t port : circle) {
        names += (names.empty() ? "" : ", ") + ports_.name(port);
    }
    messages_.fail_first("deadlock: " + std::to_string(circle.size()) + " ports pause each other in a circle (" +
                         names + ")");
}

}  // namespace orrery::inline network::packet
