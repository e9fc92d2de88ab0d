// What goes wrong in a fabric: links that change, ways round them, and circles of ports that pause each other.
//
// A switch knows at once that a link of its own is down; all others hear of it after `reroute_delay`. In between, packets
// are lost at the dead link or, with `detour`, sent another way: a leaf takes another spine, a spine sends the packet down
// to another leaf, which sends it up to another spine. Such down-and-up paths let pauses of PFC form a circle, which
// shortest paths of a tree never do: Hu et al., "Tagger: practical PFC deadlock prevention in data center networks",
// CoNEXT 2017, section 2.

#include "sim/network/packet/network.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery::packet {

void Network::add_link_event(const LinkEvent& event) {
    const auto refuse = [&](const std::string& named, const std::string& fabric) {
        throw ConfigError("a link event names " + named + "; the fabric has " + fabric);
    };
    const auto text = [](std::size_t number) { return std::to_string(number); };
    switch (event.link) {
        case LinkEvent::Link::nic_leaf:
            if (event.lower >= nics_.size()) {
                refuse("nic " + text(event.lower), text(nics_.size()) + " NICs");
            }
            break;
        case LinkEvent::Link::leaf_spine:
            if (event.lower >= fabric_.leaves() || event.upper >= spines_) {
                refuse("leaf " + text(event.lower) + ", spine " + text(event.upper),
                       text(fabric_.leaves()) + " leaves with " + text(spines_) + " spines each");
            }
            break;
        case LinkEvent::Link::spine_core:
            if (!tree_ || event.lower >= fabric_.spines() || event.upper >= cores_) {
                refuse("spine " + text(event.lower) + ", core " + text(event.upper),
                       tree_ ? text(fabric_.spines()) + " spines with " + text(cores_) + " core switches each"
                             : "no core switches");
            }
            break;
    }
    ORRERY_ASSERT(served_);
    link_events_.push_back(event);
    ++link_events_left_;
    if (event.what == LinkEvent::What::errors && !noisy_) {
        noisy_ = true;
        error_rates_.assign(ports_.size(), 0);
    }
    schedule(Timer::link_event, static_cast<std::uint32_t>(link_events_.size() - 1),
             std::max(now_, SimTime::from_seconds(event.time).ps()));
}

void Network::set_rate(std::uint32_t port, double factor) {
    ORRERY_ASSERT(served_ && port < ports_.size() && factor >= 0);
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

void Network::apply_link_event(std::uint32_t index) {
    const LinkEvent event = link_events_[index];
    --link_events_left_;
    const std::size_t up = event.link == LinkEvent::Link::nic_leaf     ? 0
                           : event.link == LinkEvent::Link::leaf_spine ? 2
                                                                       : 4;
    const std::uint32_t links = up == 0 ? 1 : up == 2 ? spines_ : cores_;
    for (const std::size_t kind : {up, up + 1}) {
        set_link(base_[kind] + event.lower * links + event.upper, event);
    }
}

void Network::set_link(std::uint32_t port_id, const LinkEvent& event) {
    Port& port = ports_[port_id];
    switch (event.what) {
        case LinkEvent::What::errors:
            error_rates_[port_id] = event.factor;
            return;
        case LinkEvent::What::rate: {
            const auto nominal = static_cast<double>(nominal_[static_cast<std::size_t>(port.kind)]);
            port.ps_per_byte = static_cast<std::uint64_t>(std::llround(nominal / event.factor));
            port.full_time = send_time(port, full_);
            return;
        }
        case LinkEvent::What::down:
            port.down = true;
            cut_link(port_id);
            break;
        case LinkEvent::What::up:
            port.down = false;
            if (port.kind == PortKind::nic_out) {
                kick(port_id - base_[0]);
            }
            break;
    }
    schedule(Timer::reroute, port_id, now_ + SimTime::from_seconds(spec_.reroute_delay).ps());
}

// What is on the link dies when the first of it would have arrived; what waits dies at once.
void Network::cut_link(std::uint32_t port_id) {
    Port& port = ports_[port_id];
    const std::int64_t first = port.link.head != kNone ? slab_[port.link.head].arrival : now_ + port.latency;
    for (std::uint32_t id = port.link.head; id != kNone; id = slab_[id].next) {
        slab_[id].flags |= kDestroyed;
        slab_[id].arrival = first;
        ++port.drops;
    }
    port.busy_until = std::max(now_, first - port.latency);
    ServedPort& queue = served_ports_[port_id];
    while (queue.data.head != kNone) {
        const std::uint32_t id = queue.data.pop(slab_);
        queue.data_bytes -= slab_[id].size;
        leave_switch(port_id, slab_[id]);
        ++port.drops;
        drop(id);
    }
    while (queue.control.head != kNone) {
        const std::uint32_t id = queue.control.pop(slab_);
        queue.control_bytes -= slab_[id].size;
        ++port.drops;
        drop(id);
    }
}

// Limits of queues are times at the kind's normal rate; a degraded link takes longer for the same bytes.
std::int64_t Network::at_nominal_rate(const Port& port, std::int64_t backlog) const {
    const std::uint64_t nominal = nominal_[static_cast<std::size_t>(port.kind)];
    if (port.ps_per_byte == nominal) {
        return backlog;
    }
    return std::llround(static_cast<double>(backlog) * static_cast<double>(nominal) /
                        static_cast<double>(port.ps_per_byte));
}

// A core switch that joins both pods over live links, `core` or the next one; `core` if there is none.
std::uint32_t Network::live_core(std::uint32_t pod, std::uint32_t to_pod, std::uint32_t lane,
                                 std::uint32_t core) const {
    const Port* up = &ports_[base_[4] + (pod * spines_ + lane) * cores_];
    const Port* down = &ports_[base_[5] + (to_pod * spines_ + lane) * cores_];
    for (std::uint32_t i = 0; i < cores_; ++i) {
        const std::uint32_t candidate = (core + i) % cores_;
        if (!up[candidate].avoided && !down[candidate].avoided) {
            return candidate;
        }
    }
    return core;
}

// True when routing knows of no dead link on the way from a leaf over this spine to another leaf.
bool Network::reaches(std::uint32_t leaf, std::uint32_t to_leaf, std::uint32_t lane) const {
    if (ports_[base_[2] + leaf * spines_ + lane].avoided || ports_[base_[3] + to_leaf * spines_ + lane].avoided) {
        return false;
    }
    const std::uint32_t pod = pod_of_leaf_[leaf];
    const std::uint32_t to_pod = pod_of_leaf_[to_leaf];
    if (pod == to_pod) {
        return true;
    }
    const std::uint32_t core = live_core(pod, to_pod, lane, 0);
    return !ports_[base_[4] + (pod * spines_ + lane) * cores_ + core].avoided &&
           !ports_[base_[5] + (to_pod * spines_ + lane) * cores_ + core].avoided;
}

std::uint32_t Network::route_around(std::uint32_t leaf, std::uint32_t to_leaf, std::uint32_t lane) const {
    for (std::uint32_t i = 0; i < spines_; ++i) {
        const std::uint32_t candidate = (lane + i) % spines_;
        if (reaches(leaf, to_leaf, candidate)) {
            return candidate;
        }
    }
    return lane;
}

// Where a switch sends a packet whose next link is dead, and a leaf one that came down to it for another leaf.
std::uint32_t Network::detour(const Port& in, std::uint32_t out, Packet& p) const {
    const std::uint32_t to_leaf = leaf_of_nic_[p.destination];
    const bool astray = in.kind == PortKind::leaf_down && in.where != to_leaf;
    const PortKind kind = ports_[out].kind;
    if (astray || (kind == PortKind::leaf_up && ports_[out].down)) {
        const std::uint32_t lane = astray ? in.lane : ports_[out].lane;
        for (std::uint32_t i = 1; i < spines_; ++i) {
            const std::uint32_t candidate = (lane + i) % spines_;
            const std::uint32_t port = base_[2] + in.where * spines_ + candidate;
            if (!ports_[port].down && reaches(in.where, to_leaf, candidate)) {
                return port;
            }
        }
        return base_[2] + in.where * spines_ + lane;
    }
    if (kind == PortKind::leaf_down && ports_[out].down && (p.flags & kDetours) != kDetours) {
        const std::uint32_t lane = ports_[out].lane;
        const auto leaves = static_cast<std::uint32_t>(pod_of_leaf_.size());
        for (std::uint32_t i = 1; i < leaves; ++i) {
            const std::uint32_t leaf = (to_leaf + i) % leaves;
            const std::uint32_t port = base_[3] + leaf * spines_ + lane;
            const bool back = in.kind == PortKind::leaf_up && in.where == leaf;
            if (pod_of_leaf_[leaf] == pod_of_leaf_[to_leaf] && !back && !ports_[port].down) {
                p.flags = static_cast<std::uint8_t>(p.flags + kDetour);
                return port;
            }
        }
    }
    return out;
}

// Ports that stay paused for ever: the largest set of paused ports in which each has more bytes waiting behind others of
// the set than it may have when it resumes.
std::vector<std::uint32_t> Network::deadlocked_ports() const {
    // Bytes that came over one link and wait at one port.
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> waiting;
    std::vector<bool> stuck(ports_.size(), false);
    for (std::uint32_t i = 0; i < ports_.size(); ++i) {
        stuck[i] = ports_[i].paused;
        for (std::uint32_t id = ports_[i].paused ? served_ports_[i].data.head : kNone; id != kNone;
             id = slab_[id].next) {
            if (slab_[id].ingress != kNone) {
                waiting[{slab_[id].ingress, i}] += slab_[id].size;
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
            const bool resumes = !served_ports_[i].pause_sent || static_cast<double>(held[i]) <= spec_.queues.resume_at;
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

// A circle of paused ports is the end, unless a link event is still to come that could break it.
void Network::check_deadlock() const {
    if (!spec_.queues.pfc || link_events_left_ > 0) {
        return;
    }
    const std::vector<std::uint32_t> circle = deadlocked_ports();
    if (circle.empty()) {
        return;
    }
    std::string names;
    for (const std::uint32_t port : circle) {
        names += (names.empty() ? "" : ", ") + port_name(port);
    }
    fail_all("deadlock: " + std::to_string(circle.size()) + " ports pause each other in a circle (" + names + ")");
}

}  // namespace orrery::packet
