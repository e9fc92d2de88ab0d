#include "sim/network/packet/partition.hpp"

#include "sim/network/packet/hop.hpp"

namespace orrery::network::packet {

namespace {

// How many events ahead a port, the first packet of its link, and where that goes are fetched; and how many events of a slot at once.
constexpr std::size_t kPortAhead = 11;
constexpr std::size_t kPacketAhead = 4;
constexpr std::size_t kNextAhead = 1;
constexpr std::size_t kFirstAhead = 8;
constexpr std::uint32_t kManyPorts = 2048;
constexpr double kMostExpectedPackets = 1U
                                        << 21;  // packets, as room counts against the limit of memory before it is used

}  // namespace

Partition::Partition(const Setup& setup, const Parts& parts, std::uint32_t own, Messages& all,
                     const Transport& transport, Watcher& watcher, std::uint64_t seed)
    : chooser(setup.spec.paths.policy.make()),
      border(setup, parts, own),
      flows(setup, slab, parts.count == 1),
      messages(all),
      ports(setup, border, clock, slab, flows, seed),
      routing(setup, ports, *chooser),
      nics(setup, border, clock, slab, flows, messages, ports, transport, *chooser),
      receivers(setup, clock, slab, flows, ports, nics),
      reductions(setup, clock, slab, flows, messages, ports, nics),
      watchdog(setup, clock, ports),
      faults(setup, clock, slab, messages, ports, nics, watchdog),
      setup_(setup),
      watcher_(watcher) {
    if (setup.spec.skip_error > 0) {
        steady = std::make_unique<Steady>(setup, clock, slab, flows, ports, routing, nics, receivers, transport);
        nics.watch([this](std::uint32_t flow, bool posted) { steady->tell(flow, posted); });
    }
    chooser->begin(setup.paths);
    // A window of data of each NIC, and as many acknowledgements.
    const double likely = 2 * setup.congestion.max_window / setup.full * setup.nics / parts.count;
    slab.expect(static_cast<std::size_t>(std::min(likely, kMostExpectedPackets)));
    // Entities: links by port, NICs, served ports.
    fetches_ = setup.ports() / parts.count >= kManyPorts;
    clock.wheel = Wheel((2 * setup.ports() + setup.nics) / parts.count, setup.longest + setup.longest / 4);
}

std::size_t Partition::memory() const {
    return slab.peak() * sizeof(Packet) + flows.memory() + ports.memory() + nics.memory() + clock.wheel.bytes() +
           slab.telemetry.memory();
}

void Partition::run(std::int64_t limit, bool stop) {
    clock.limit = limit;
    if (setup_.laned) {
        run_all<Departures::decided_by_lane>(limit, stop);
    } else if (!setup_.served) {
        run_all<Departures::known>(limit, stop);
    } else if (ports.decide_late()) {
        run_all<Departures::decided_late>(limit, stop);
    } else {
        run_all<Departures::decided_in_turn>(limit, stop);
    }
}

template <Departures kDepartures>
void Partition::run_all(std::int64_t limit, bool stop) {
    if (kDepartures == Departures::decided_by_lane || ports.inspects() || setup_.spec.detour) {
        fetches_ ? run_events<kDepartures, true, true>(limit, stop) : run_events<kDepartures, true, false>(limit, stop);
        return;
    }
    if constexpr (kDepartures != Departures::decided_by_lane) {
        fetches_ ? run_events<kDepartures, false, true>(limit, stop)
                 : run_events<kDepartures, false, false>(limit, stop);
    }
}

// Memory answers late: what the next events need is asked for while this one is handled.
void Partition::fetch_ahead() {
    const std::uint32_t links = setup_.ports();
    const std::uint32_t nics_end = links + setup_.nics;
    if (const std::uint32_t far = clock.wheel.ahead(kPortAhead); far < nics_end + links) {
        const bool of_nic = far >= links && far < nics_end;
        ports.fetch_port(of_nic ? setup_.base[0] + far - links : far < links ? far : far - nics_end);
        if (of_nic) {
            nics.fetch_nic(far - links);
        }
    }
    if (const std::uint32_t near = clock.wheel.ahead(kPacketAhead); near < links) {
        if (const std::uint32_t packet = ports.first_on_link(near); packet != kNone) {
            slab.fetch(packet);
        }
    } else if (near < nics_end) {
        nics.fetch_turn(near - links);
    } else if (near < nics_end + links) {
        ports.fetch_waiting(near - nics_end);
    }
    if (const std::uint32_t next = clock.wheel.ahead(kNextAhead); next < links) {
        const Port& in = ports[next];
        if (const std::uint32_t packet = ports.first_on_link(next); packet != kNone) {
            if (in.kind == PortKind::nic_in) {
                flows.fetch_receiver(slab[packet].flow);
            } else {
                const std::uint32_t out = routing.likely_port(in, slab[packet]);
                ports.fetch_port(out < links ? out : next);
            }
        }
    }
}

// The same for the first events of a slot of the wheel, all at once. Pays in small networks as well.
void Partition::fetch_first() {
    const std::uint32_t links = setup_.ports();
    const std::uint32_t nics_end = links + setup_.nics;
    for (std::size_t i = 0; i < kFirstAhead; ++i) {
        const std::uint32_t entity = clock.wheel.ahead(i);
        if (entity >= nics_end + links) {
            break;
        }
        const std::uint32_t port = entity - (entity < links ? 0 : entity < nics_end ? links : nics_end);
        ports.fetch_port(port);
        if (const std::uint32_t packet = ports.first_on_link(port); packet != kNone) {
            slab.fetch(packet);
        }
    }
}

// The first packet of a port's link; false when it arrives later.
template <Departures kDepartures>
bool Partition::take(std::uint32_t port, std::int64_t now, std::uint32_t& id) {
    if constexpr (kDepartures == Departures::decided_late) {
        return ports.take_late_arrival(port, now, id);
    }
    id = ports.take_arrival(port);
    return true;
}

// Bit errors, which end a packet's way here: then this is true. And where its way leads.
bool Partition::inspect(std::uint32_t port, std::uint32_t id) {
    Packet& p = slab[id];
    if (ports.noisy() && ports.spoiled(port, p)) {
        flows.drop(id);
        return true;
    }
    if (flows.log && (p.kind == PacketKind::data || p.kind == PacketKind::trimmed)) {
        p.way = FlowLog::further(p.way, port);
        if (ports[port].kind == PortKind::nic_in) {
            flows.log->arrived(p.flow, p.way, (p.flags & kMarked) != 0);
        }
    }
    return false;
}

// The first packet of a port's link reaches the far end; true when that is its NIC, or may be.
template <Departures kDepartures, bool kWatched>
bool Partition::arrive(std::uint32_t port, std::int64_t now) {
    std::uint32_t id = kNone;
    if (!take<kDepartures>(port, now, id)) {
        return false;
    }
    ++events;  // looks that found nothing are none: how many there are says nothing of the network
    Packet& p = slab[id];
    if ((p.flags & (kDestroyed | kReduces)) != 0) {
        if ((p.flags & kDestroyed) != 0) {
            flows.drop(id);
        } else {
            reductions.arrive(port, id);
        }
        return true;
    }
    if (kWatched && ports.inspects() && inspect(port, id)) {
        return false;
    }
    const Port& in = ports[port];
    if (in.kind == PortKind::nic_in) {
        if constexpr (kDepartures == Departures::decided_by_lane) {
            p.ingress = port;
            p.came = p.lane;
            ports.give_room(p);
        }
        receivers.deliver(id);
        return true;
    }
    const std::uint32_t out = routing.next_port(in, p);
    if constexpr (kDepartures == Departures::known) {
        ports.forward(out, id, p, now);
    } else {
        p.ingress = port;
        const std::uint32_t next = kWatched && setup_.spec.detour ? routing.detour(in, out, p) : out;
        if constexpr (kDepartures == Departures::decided_by_lane) {
            ports.enqueue_in_lane(next, id);
        } else {
            ports.enqueue<kDepartures == Departures::decided_late>(next, id, p, now, now);
        }
    }
    return false;
}

template <Departures kDepartures, bool kWatched, bool kFetches>
void Partition::run_events(std::int64_t limit, bool stop) {
    const std::uint32_t links = setup_.ports();
    const std::uint32_t nics_end = links + setup_.nics;
    const std::uint32_t served_end = nics_end + links;
    clock.wheel.set_limit(limit);
    for (;;) {
        const auto [at, entity] = clock.wheel.pop([&] { fetch_first(); });
        if (entity == Wheel::kNobody) {
            return;
        }
        clock.now = at;
        if constexpr (kDepartures == Departures::decided_late) {
            clock.before = at;
        }
        if constexpr (kFetches) {
            fetch_ahead();
        }
        if (entity < links) {
            if (!arrive<kDepartures, kWatched>(entity, at)) {
                continue;
            }
        } else {
            ++events;
            clock.before = at;
            if (entity < nics_end) {
                nics.wake(entity - links);
            } else if (entity < served_end) {
                if constexpr (kDepartures == Departures::decided_in_turn) {
                    ports.serve_in_turn(entity - nics_end, at);
                } else {
                    ports.serve_due(entity - nics_end);
                }
            } else {
                clock.before = at + 1;
                dispatch(Wheel::whole(entity));
            }
        }
        // Flows end, and progress is made, where packets do not only go from switch to switch.
        if (!nics.ended().empty() && (stop || border.whole())) {
            finish_ended();
            if (stop || messages.any_completed()) {
                clock.wheel.set_limit(at);
            }
        }
        if (events >= watch_next_) {
            watch_next_ = events + kWatchInterval;
            if (border.whole()) {
                watcher_.watch(flows.counts.delivered, flows.counts.payload, clock.now);
            }
        }
    }
}

// Of the whole network; parts hand over what has ended when all have come to that time.
void Partition::finish_ended() {
    if (border.whole()) {
        for (const Ended& ended : nics.ended()) {
            messages.finish_part(ended.message, ended.at);
        }
        nics.ended().clear();
    }
}

// A NIC's own port may send again.
void Partition::kick_nic_of(std::uint32_t port) {
    if (ports[port].kind == PortKind::nic_out) {
        nics.kick(port - setup_.base[0]);
    }
}

// An event that does not come from the wheel.
void Partition::dispatch(std::uint32_t entity) {
    const std::uint32_t index = entity & ((1U << kTimerShift) - 1);
    switch (static_cast<Timer>(entity >> kTimerShift)) {
        case Timer::start:
            nics.start(index);
            break;
        case Timer::pace:
            nics.on_pace(index);
            break;
        case Timer::retransmit:
            if (setup_.waits_for_room && nics.silent(index) && clock.now - deadlock_checked_ >= setup_.timeout) {
                deadlock_checked_ = clock.now;
                faults.check_deadlock();
            }
            nics.on_timeout(index);
            break;
        case Timer::congestion:
            nics.on_congestion_timer(index);
            break;
        case Timer::pause:
            (void)watchdog.set_paused(index, true);
            break;
        case Timer::resume:
            if (watchdog.set_paused(index, false)) {
                kick_nic_of(index / setup_.lanes);
            }
            break;
        case Timer::credit:
            ports.room_returns(index);
            kick_nic_of(index / setup_.lanes);
            break;
        case Timer::link_event:
            faults.apply(index);
            if (setup_.spec.failover) {
                routing.look();
            }
            break;
        case Timer::reroute:
            routing.learn(index);
            break;
        case Timer::grant:
            receivers.grant(index);
            break;
        case Timer::write:
            receivers.write(index);
            break;
        case Timer::sample:
            watcher_.sample();
            break;
        case Timer::watchdog:
            watchdog.look(index);
            break;
        case Timer::steady:
            steady->on_time(index);
            break;
        case Timer::go_on:
            steady->go_on(index);
            break;
        case Timer::wheel:
            break;  // above
    }
}

}  // namespace orrery::network::packet
