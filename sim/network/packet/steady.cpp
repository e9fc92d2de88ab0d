#include "sim/network/packet/steady.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery::inline network::packet {

namespace {

constexpr std::int64_t kRoundTrips = 2;  // a window, of the longest path without load
constexpr int kStretch = 2;              // windows, at least
constexpr std::int64_t kPackets = 32;    // a window, at least, at a NIC's rate
constexpr std::int64_t kPeriods = 2;     // a window, at least, of a control that acts more slowly than that
constexpr double kLeastPackets = 16;     // in a stretch: a control acts on what comes
constexpr double kWorth = 2;             // windows to be skipped at least
constexpr double kTripsObserved = 2;     // smoothed round trips in a stretch at least: queues may be long
constexpr double kUnevenPackets = 4;     // by which what is under way may differ between two moments of a steady state
constexpr double kForever = 9e18;

}  // namespace

Steady::Steady(const Setup& setup, Clock& clock, Slab& slab, Flows& flows, Ports& ports, Routing& routing, Nics& nics,
               Receivers& receivers, const Transport& transport)
    : setup_(setup),
      clock_(clock),
      slab_(slab),
      flows_(flows),
      ports_(ports),
      nics_(nics),
      receivers_(receivers),
      sharing_(setup, ports, routing),
      tolerance_(setup.spec.skip_error),
      window_(std::max({kRoundTrips * static_cast<std::int64_t>(setup.congestion.base_rtt),
                        kPackets * setup.links[0].full_time, kPeriods * transport.period()})),
      phases_(ports),
      users_(setup.ports(), 0),
      holder_(setup.ports(), kNone),
      since_(setup.ports()),
      more_bytes_(setup.ports(), 0) {}

void Steady::tell(std::uint32_t id, bool posted) {
    if (!posted) {
        if (id < tracks_.size() && tracks_[id].tracked) {
            if (tracks_[id].group != kNone) {
                go_on_now(tracks_[id].group);
            }
            tracks_[id].number = ++number_;
            tracks_[id].key = 0;
        }
        return;
    }
    if (id >= tracks_.size()) {
        tracks_.resize(std::size_t{id} + 1);
        moved_.resize(tracks_.size(), 0);
    }
    Track& track = tracks_[id];
    ORRERY_ASSERT(track.group == kNone);
    if (!track.tracked) {
        active_.push_back(id);
    } else {
        use(track.ways, -1U);
    }
    track = Track();
    track.tracked = true;
    track.number = ++number_;
    if (flows_[id].reduction != kNone) {
        go_on_all();
        return;
    }
    track.ways = sharing_.ways_of(flows_[id]);
    for (const std::vector<std::uint32_t>* way : {&track.ways.there, &track.ways.back}) {
        for (const std::uint32_t bundle : *way) {
            if (holder_[bundle] != kNone) {
                go_on_now(holder_[bundle]);
            }
        }
    }
    use(track.ways, 1);
    // Neither NICs that start messages one by one nor what queue pairs remember make each beginning like the other.
    if (setup_.spec.nic.queue_pairs == 0 && setup_.spec.nic.message_rate <= 0) {
        if (fresh_.empty()) {
            clock_.schedule(Timer::steady, kBegin, clock_.now);
        }
        fresh_.push_back(id);
    }
    arm();
}

void Steady::use(const Sharing::Ways& ways, std::uint32_t more) {
    for (const std::vector<std::uint32_t>* way : {&ways.there, &ways.back}) {
        for (const std::uint32_t bundle : *way) {
            users_[bundle] += more;
        }
    }
}

void Steady::on_time(std::uint32_t index) {
    if (index == kLook) {
        look();
    } else if (index == kBegin) {
        begin();
    } else {
        recall(index - kPlans);
    }
}

// The next look, while there is something to look at.
void Steady::arm() {
    if (!armed_) {
        armed_ = true;
        clock_.schedule(Timer::steady, kLook, clock_.now + window_);
    }
}

void Steady::look() {
    armed_ = false;
    // A flow whose last packets are under way still shares ports.
    std::erase_if(active_, [&](std::uint32_t id) {
        const bool over = !flows_[id].live && flows_[id].records == 0;
        if (over) {
            tracks_[id].tracked = false;
            use(tracks_[id].ways, -1U);
        }
        return over;
    });
    std::vector<Group> steady;
    bool any = false;
    const bool reduces =
        std::any_of(active_.begin(), active_.end(), [&](std::uint32_t id) { return flows_[id].reduction != kNone; });
    if (!reduces) {
        for (Group& group : groups()) {
            any = true;
            if (const std::int64_t length = observe(group) ? judge(group) : 0; length > 0) {
                group.until = clock_.now + length;
                group.answers = answers_of(group);
                learn(group);
                steady.push_back(std::move(group));
            }
        }
    }
    if (!steady.empty()) {
        hold(std::move(steady));
    }
    // It must not keep the simulation alive by itself.
    if ((any || reduces) && clock_.wheel.next_time() != Wheel::kNever) {
        arm();
    }
}

// Flows that are not held, by the ports that they share.
std::vector<Steady::Group> Steady::groups() {
    sharing_.part();
    for (const std::uint32_t id : active_) {
        if (tracks_[id].group == kNone && !nics_.waits_in_pair(id)) {
            sharing_.join(tracks_[id].ways);
        }
    }
    std::map<std::uint32_t, Group> found;
    for (const std::uint32_t id : active_) {
        const Track& track = tracks_[id];
        if (track.group != kNone || nics_.waits_in_pair(id)) {
            continue;
        }
        const Flow& flow = flows_[id];
        Group& group = found[sharing_.group_of(track.ways.there.front())];
        group.flows.push_back(id);
        group.bundles.insert(group.bundles.end(), track.ways.there.begin(), track.ways.there.end());
        group.bundles.insert(group.bundles.end(), track.ways.back.begin(), track.ways.back.end());
        group.company += mix64(track.number);
        group.open = group.open || !goes_well(flow);
    }
    std::vector<Group> out;
    for (auto& [bundle, group] : found) {
        std::sort(group.bundles.begin(), group.bundles.end());
        group.bundles.erase(std::unique(group.bundles.begin(), group.bundles.end()), group.bundles.end());
        // What is lost is sent again, and tells senders to slow down: no steady state goes on over it.
        each_port(group, [&, &of = group](std::uint32_t port) {
            const PortCounts& counts = ports_.counts(port);
            of.company += mix64(counts.drops + counts.trims) * (port + 1);
        });
        out.push_back(std::move(group));
    }
    return out;
}

// Takes down what the flows of a group have done in this window. True when it was the same group before.
bool Steady::observe(Group& group) {
    const bool same = std::all_of(group.flows.begin(), group.flows.end(),
                                  [&](std::uint32_t id) { return tracks_[id].company == group.company; });
    for (const std::uint32_t id : group.flows) {
        Track& track = tracks_[id];
        if (!same) {
            track.past.clear();
            track.company = group.company;
            track.received = flows_[id].received;
        }
        if (track.past.size() == kSnapshots) {
            for (std::size_t i = 0; i < kSnapshots / 2; ++i) {
                track.past[i] = track.past[2 * i + 1];
            }
            track.past.resize(kSnapshots / 2);
        }
        track.past.push_back(snapshot(id));
    }
    if (!same) {
        each_port(group, [&](std::uint32_t port) { since_[port] = ports_.sent(port); });
    }
    return same && !group.open;
}

Steady::Snapshot Steady::snapshot(std::uint32_t id) const {
    const Flow& flow = flows_[id];
    Snapshot out;
    out.at = static_cast<double>(clock_.now);
    out.sent = static_cast<double>(flow.next_new) * setup_.full;
    out.sent_at = static_cast<double>(flow.rate > 0 ? flow.next_time : nics_.free_at(flow.source));
    if (setup_.transport.acknowledged) {
        out.under_way = static_cast<double>(flow.in_flight);
        out.heard = out.sent - out.under_way;
        out.heard_at = static_cast<double>(flow.last_news);
    } else {
        out.heard = static_cast<double>(flow.received) * setup_.full;
        out.heard_at = out.at;
        out.under_way = out.sent - out.heard;
    }
    return out;
}

// ps for which a group may be held; 0: it is not steady, or it is not worth it.
std::int64_t Steady::judge(const Group& group) {
    double most = kForever;
    for (const std::uint32_t id : group.flows) {
        most = std::min(most, judge(tracks_[id], flows_[id]));
        if (most <= 0) {
            return 0;
        }
        most = std::min(most, time_left(id));
    }
    return most >= kWorth * static_cast<double>(window_) ? static_cast<std::int64_t>(most) : 0;
}

// ps until a flow's last windows and round trips, which come packet by packet.
double Steady::time_left(std::uint32_t id) const {
    const Flow& flow = flows_[id];
    const double left = static_cast<double>(flow.packets - flow.next_new) * setup_.full;
    return left / tracks_[id].rate -
           std::max(static_cast<double>(window_), kTripsObserved * static_cast<double>(flow.round_trip));
}

// The same for one flow, by what was observed: three stretches of equal length, as long as they can be or shorter, whichever
// allows most.
double Steady::judge(Track& track, const Flow& flow) const {
    double best = 0;
    Track chosen;
    const double now = track.past.back().at;
    for (double length = kStretch * static_cast<double>(window_); now - 3 * length >= track.past.front().at - 1;
         length *= 2) {
        if (length < kTripsObserved * static_cast<double>(flow.round_trip)) {
            continue;
        }
        const Snapshot* ends[4] = {&track.past.back()};
        for (std::size_t k = 1; k < 4; ++k) {
            const auto later =
                std::upper_bound(track.past.begin(), track.past.end(), now - static_cast<double>(k) * length + 1,
                                 [](double at, const Snapshot& one) { return at < one.at; });
            ends[k] = &*(later - 1);
        }
        if (const double most = judge(track, ends); most > best) {
            best = most;
            chosen.rate = track.rate;
            chosen.spread = track.spread;
            chosen.trend = track.trend;
            chosen.steady_since = ends[3]->at;
        }
    }
    track.steady_since = chosen.steady_since;
    track.rate = chosen.rate;
    track.spread = chosen.spread;
    track.trend = chosen.trend;
    return best;
}

// ... by these three stretches, the last first: ps.
double Steady::judge(Track& track, const Snapshot* const (&ends)[4]) const {
    const auto rates = [&](double Snapshot::*bytes, double Snapshot::*at) {
        double least = kForever;
        double largest = 0;
        double first = 0;
        double last = 0;
        for (int k = 0; k < 3; ++k) {
            const double time = ends[k]->*at - ends[k + 1]->*at;
            const double rate = time > 0 ? (ends[k]->*bytes - ends[k + 1]->*bytes) / time : 0;
            least = std::min(least, rate);
            largest = std::max(largest, rate);
            last = k == 0 ? rate : last;
            first = rate;
        }
        const double whole = ends[0]->*at - ends[3]->*at;
        const double mean = whole > 0 ? (ends[0]->*bytes - ends[3]->*bytes) / whole : 0;
        track.rate = mean;
        track.spread = mean > 0 ? (largest - least) / mean : kForever;
        track.trend = mean > 0 ? (last - first) / mean / (whole * 2 / 3) : kForever;
    };
    // Both measure the same rate in the end; the steadier one is nearer to it. Senders that wait for windows and paces send evenly,
    // answers over many paths come unevenly, and the other way round behind a queue.
    rates(&Snapshot::sent, &Snapshot::sent_at);
    if (setup_.transport.acknowledged) {
        const double rate = track.rate;
        const double spread = track.spread;
        const double trend = track.trend;
        rates(&Snapshot::heard, &Snapshot::heard_at);
        if (spread < track.spread) {
            track.rate = rate;
            track.spread = spread;
            track.trend = trend;
        }
    }
    const double bytes = ends[0]->heard - ends[3]->heard;
    const double uneven = (kUnevenPackets + 2 * setup_.tell_every) * setup_.full;
    if (!(track.spread < tolerance_) || bytes < 3 * kLeastPackets * setup_.full ||
        std::abs(ends[0]->under_way - ends[3]->under_way) > tolerance_ * bytes + uneven) {
        return 0;
    }
    // What a held flow does not learn it learns later: trends add up over all that is skipped of it.
    const double spare = tolerance_ - track.spread / 2 - std::abs(track.lag);
    return track.trend != 0 ? std::min(kForever, spare / std::abs(track.trend)) : kForever;
}

std::uint32_t Steady::holder_of(std::uint32_t entity) const {
    const std::uint32_t index = entity & ((1U << kTimerShift) - 1);
    const auto of_flow = [&] { return index < tracks_.size() ? tracks_[index].group : kNone; };
    switch (static_cast<Timer>(entity >> kTimerShift)) {
        case Timer::wheel: {
            const std::uint32_t ports = setup_.ports();
            return holder_[index < ports                 ? index
                           : index < ports + setup_.nics ? setup_.base[0] + index - ports
                                                         : index - ports - setup_.nics];
        }
        case Timer::pace:
        case Timer::retransmit:
        case Timer::congestion:
            return of_flow();
        case Timer::pause:
        case Timer::resume:
            return holder_[index];
        case Timer::grant:
            return holder_[setup_.base[0] + index];
        default:
            return kNone;
    }
}

void Steady::hold(std::vector<Group> some) {
    for (Group& group : some) {
        group.since = clock_.now;
        group.held = true;
        const std::uint32_t slot = held_.take(std::move(group));
        for (const std::uint32_t id : held_[slot].flows) {
            tracks_[id].group = slot;
        }
        each_port(held_[slot], [&](std::uint32_t port) {
            ports_.settle(port);
            holder_[port] = slot;
        });
        clock_.schedule(Timer::go_on, slot, held_[slot].until);
    }
    std::vector<Wheel::Pending> events;
    clock_.wheel.extract([&](std::uint32_t entity) { return holder_of(entity) != kNone; }, events);
    for (const Wheel::Pending& event : events) {
        held_[holder_of(event.entity)].events.push_back(event);
    }
}

void Steady::go_on(std::uint32_t slot) {
    if (held_[slot].held && held_[slot].until == clock_.now) {
        go_on_now(slot);
    }
}

void Steady::go_on_all() {
    for (std::uint32_t slot = 0; slot < held_.size(); ++slot) {
        if (held_[slot].held) {
            go_on_now(slot);
        }
    }
}

void Steady::go_on_now(std::uint32_t slot) {
    const Group group = std::move(held_[slot]);
    held_[slot] = Group();
    const std::int64_t time = clock_.now - group.since;
    for (const std::uint32_t id : group.flows) {
        Track& track = tracks_[id];
        const Flow& flow = flows_[id];
        const double bytes = track.rate * static_cast<double>(time) + track.residue;
        const auto most = static_cast<double>(flow.packets - flow.next_new - 1);
        moved_[id] = static_cast<std::uint32_t>(std::clamp(std::floor(bytes / setup_.full), 0.0, most));
        track.residue = bytes - static_cast<double>(moved_[id]) * setup_.full;
        skipped_ += moved_[id];
        const double missed = track.trend * static_cast<double>(time);
        error_ += moved_[id] * (track.spread / 2 + std::abs(track.lag + missed / 2));
        track.lag += missed;
    }
    count_skipped(group, time);
    shift_ports(group, time);
    for (const std::uint32_t id : group.flows) {
        Track& track = tracks_[id];
        const double bytes = static_cast<double>(moved_[id]) * setup_.full;
        for (Snapshot& one : track.past) {
            for (double* const at : {&one.at, &one.sent_at, &one.heard_at}) {
                *at += static_cast<double>(time);
            }
            one.sent += bytes;
            one.heard += bytes;
        }
        nics_.shift_flow(id, {time, moved_[id]});
        if (setup_.transport.telemetry) {
            slab_.telemetry.shift_flow(id, time, [&](std::uint32_t port) { return more_bytes_[port]; });
        }
        track.group = kNone;
        moved_[id] = 0;
    }
    for (const Wheel::Pending& event : group.events) {
        if (event.entity >> kTimerShift == 0) {
            clock_.wheel.insert(event.entity, event.time + time);
        } else {
            clock_.wheel.insert_far(event.entity, event.time + time);
        }
    }
    each_port(group, [&](std::uint32_t port) {
        holder_[port] = kNone;
        more_bytes_[port] = 0;
    });
    held_.give(slot);
    arm();
}

// Ports, with all packets on them, and NICs.
void Steady::shift_ports(const Group& group, std::int64_t time) {
    each_port(group, [&](std::uint32_t port) {
        ports_.shift(port, time, [&](std::uint32_t packet) { shift_packet(packet, time); });
        if (ports_[port].kind == PortKind::nic_out) {
            nics_.shift_nic(port - setup_.base[0], time);
            receivers_.shift_nic(port - setup_.base[0], time);
        }
    });
}

void Steady::shift_packet(std::uint32_t id, std::int64_t time) {
    Packet& p = slab_[id];
    const std::uint32_t packets = moved_[p.flow];
    p.sent += time;
    p.sequence += packets;
    p.cumulative += packets;
    if (setup_.transport.credits && p.kind != PacketKind::ack && p.kind != PacketKind::nack) {
        p.selected += std::uint64_t{packets} * setup_.full;
    }
    if (setup_.transport.telemetry && (p.kind == PacketKind::data || p.kind == PacketKind::ack)) {
        slab_.telemetry.shift_packet(id, time, [&](std::uint32_t port) { return more_bytes_[port]; });
    }
}

// Packets that the receivers of a group have sent for each of data since its observation began.
double Steady::answers_of(const Group& group) const {
    std::map<std::uint32_t, std::uint64_t> sent;  // by port
    double received = 0;
    for (const std::uint32_t id : group.flows) {
        received += flows_[id].received - tracks_[id].received;
        const std::uint32_t port = tracks_[id].ways.back.front();
        sent[port] = ports_.counts(port).control - since_[port].counts.control;
    }
    double all = 0;
    for (const auto& [port, count] : sent) {
        all += static_cast<double>(count);
    }
    return received > 0 ? all / received : 0;
}

// Ports count what was skipped. What passes a bundle divides among its ports as before; answers are as many for each packet as
// receivers sent before.
void Steady::count_skipped(const Group& group, std::int64_t time) {
    struct Share {
        double there = 0, back = 0, before = 0;  ///< packets: skipped, of data and of those answered; received before
    };
    std::map<std::uint32_t, Share> shares;
    double began = kForever;
    for (const std::uint32_t id : group.flows) {
        const Track& track = tracks_[id];
        const auto before = static_cast<double>(flows_[id].received - track.received);
        began = track.past.empty() ? began : std::min(began, track.past.front().at);
        for (const std::uint32_t bundle : track.ways.there) {
            shares[bundle].there += moved_[id];
            shares[bundle].before += before;
        }
        for (const std::uint32_t bundle : track.ways.back) {
            shares[bundle].back += moved_[id];
        }
    }
    const double observed = static_cast<double>(group.since) - began;
    for (const auto& [bundle, share] : shares) {
        const std::uint32_t width = sharing_.width(bundle);
        double data = 0;
        double control = 0;
        const auto more = [&](std::uint32_t port) {
            const Ports::Sent now = ports_.sent(port);
            return std::pair(static_cast<double>(now.packets - since_[port].packets),
                             static_cast<double>(now.counts.control - since_[port].counts.control));
        };
        for (std::uint32_t port = bundle; port < bundle + width; ++port) {
            data += more(port).first;
            control += more(port).second;
        }
        // Where all links of a fabric are one bundle a packet passes it several times.
        const bool often = setup_.routed != nullptr && width > 1 && share.before > 0;
        const double passes = often ? data / share.before : 1;
        for (std::uint32_t port = bundle; port < bundle + width; ++port) {
            const auto [own_data, own_control] = more(port);
            const double of_data = data > 0 ? own_data / data : 1.0 / width;
            const double of_control = control > 0 ? own_control / control : 1.0 / width;
            const std::uint64_t bytes = ports_.bytes_sent(port);
            ports_.skip(port, share.there * passes * of_data, share.back * passes * group.answers * of_control,
                        since_[port], observed > 0 ? static_cast<double>(time) / observed : 0);
            more_bytes_[port] = ports_.bytes_sent(port) - bytes;
        }
    }
}

}  // namespace orrery::inline network::packet
