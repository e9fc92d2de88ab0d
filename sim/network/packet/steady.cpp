#include "sim/network/packet/steady.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery::network::packet {

namespace {

constexpr std::int64_t kWindowRoundTrips = 2;  // a window, of the longest path without load
constexpr int kStretch = 2;                    // windows, at least
constexpr std::int64_t kPackets = 32;          // a window, at least, at a NIC's rate
constexpr std::int64_t kPeriods = 2;           // a window, at least, of a control that acts more slowly than that
constexpr double kLeastPackets = 16;           // in a stretch: a control acts on what comes
constexpr double kWorth = 2;                   // windows to be skipped at least
constexpr double kTripsObserved = 2;           // smoothed round trips in a stretch at least: queues may be long
constexpr double kUnevenPackets = 4;  // by which what is under way may differ between two moments of a steady state
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
      window_(std::max({kWindowRoundTrips * static_cast<std::int64_t>(setup.congestion.base_rtt),
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
    arm(window_);
}

void Steady::use(const Sharing::Ways& ways, std::uint32_t more) {
    for (const std::vector<std::uint32_t>* way : {&ways.there, &ways.back}) {
        for (const std::uint32_t bundle : *way) {
            ORRERY_ASSERT(more == 1 || users_[bundle] > 0);
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
void Steady::arm(std::int64_t after) {
    if (!armed_) {
        armed_ = true;
        clock_.schedule(Timer::steady, kLook, clock_.now + after);
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
    std::int64_t next = Wheel::kNever;
    const bool reduces =
        std::any_of(active_.begin(), active_.end(), [&](std::uint32_t id) { return flows_[id].reduction != kNone; });
    if (!reduces) {
        for (Group& group : groups()) {
            any = true;
            const std::int64_t length = observe(group) ? judge(group) : 0;
            next = std::min(next, next_look(group));
            if (length > 0) {
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
        arm(any ? next : window_);
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
            track.marks = flows_.log ? flows_.log->of(id).marks : 0;
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
    out.came = static_cast<double>(flow.received) * setup_.full;
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
        tracks_[id].together = false;
        most = std::min(most, judge(tracks_[id], flows_[id]));
        if (most <= 0) {
            return judge_together(group);
        }
        most = std::min(most, time_left(id));
    }
    return most >= kWorth * static_cast<double>(window_) ? static_cast<std::int64_t>(most) : 0;
}

// ps until a flow's last round trip, which comes packet by packet: what it sends then is the last to be answered.
double Steady::time_left(std::uint32_t id) const {
    const Flow& flow = flows_[id];
    const double left = static_cast<double>(flow.packets - flow.next_new) * setup_.full;
    return left / tracks_[id].rate - std::max(setup_.congestion.base_rtt, static_cast<double>(flow.round_trip));
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
            ORRERY_ASSERT(later != track.past.begin());
            ends[k] = &*(later - 1);
        }
        if (const double most = judge(track, ends); most > best) {
            best = most;
            chosen.rate = track.rate;
            chosen.spread = track.spread;
            chosen.trend = track.trend;
            chosen.doubt = track.doubt;
            chosen.steady_since = ends[3]->at;
        }
    }
    track.steady_since = chosen.steady_since;
    track.rate = chosen.rate;
    track.spread = chosen.spread;
    track.trend = chosen.trend;
    track.doubt = chosen.doubt;
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
    track.doubt = 0;
    if (setup_.transport.acknowledged) {
        const double rate = track.rate;
        const double spread = track.spread;
        const double trend = track.trend;
        rates(&Snapshot::heard, &Snapshot::heard_at);
        track.doubt = rate > 0 ? std::abs(track.rate / rate - 1) : 0;
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
    const double spare = tolerance_ - track.spread / 2 - track.doubt / 2 - std::abs(track.lag);
    if (spare <= 0) {
        return 0;
    }
    return track.trend != 0 ? std::min(kForever, spare / std::abs(track.trend)) : kForever;
}

}  // namespace orrery::network::packet
