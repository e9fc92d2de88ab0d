#include "sim/network/packet/network.hpp"

#include <algorithm>

namespace orrery::inline network::packet {

namespace {

constexpr int kIdleIntervals = 8;           // looks in a row that found no new packet delivered,
constexpr std::int64_t kIdleTimeouts = 64;  // and so many timeouts of simulated time: nothing is just on a long way
// How many events ahead a port, and the first packet of its link, are fetched.
constexpr std::size_t kPortAhead = 11;
constexpr std::size_t kPacketAhead = 3;
constexpr std::uint32_t kManyPorts = 2048;

}  // namespace

Network::Network(const Fabric& fabric, const PacketSpec& spec, std::uint64_t seed, bool links_change)
    : transport_(spec.transport.policy.make()),
      chooser_(spec.paths.policy.make()),
      setup_(fabric, spec, links_change, *transport_, *chooser_),
      flows_(setup_, slab_),
      messages_(clock_),
      ports_(setup_, clock_, slab_, flows_, seed),
      routing_(setup_, ports_, *chooser_),
      nics_(setup_, clock_, slab_, flows_, messages_, ports_, *transport_, *chooser_),
      receivers_(setup_, clock_, slab_, flows_, messages_, ports_, nics_),
      reductions_(setup_, clock_, slab_, flows_, messages_, ports_, nics_),
      faults_(setup_, clock_, slab_, messages_, ports_, nics_),
      sample_every_(SimTime::from_seconds(spec.queue_samples).ps()) {
    if (spec.skip_error > 0) {
        steady_ =
            std::make_unique<Steady>(setup_, clock_, slab_, flows_, ports_, routing_, nics_, receivers_, *transport_);
        nics_.watch([this](std::uint32_t flow, bool posted) { steady_->tell(flow, posted); });
    }
    transport_->begin(setup_.congestion);
    chooser_->begin(setup_.paths);
    // Entities: links by port, NICs, served ports.
    fetches_ = setup_.ports() >= kManyPorts;
    clock_.wheel = Wheel(2 * setup_.ports() + setup_.nics, setup_.longest + setup_.longest / 4);
}

void Network::advance(std::int64_t now_ps) {
    ORRERY_ASSERT(now_ps >= clock_.now);
    clock_.now = now_ps;
    clock_.before = now_ps + 1;
}

void Network::send(const Request& request) {
    ORRERY_ASSERT(request.bytes > 0 && setup_.fabric.node_of(request.from) != setup_.fabric.node_of(request.to));
    const std::uint32_t id = messages_.add(request);
    start_samples();
    // The pair decides the hash, so that all levels of detail place a hashed flow on the same spine.
    const std::uint64_t pair = (static_cast<std::uint64_t>(request.from.value()) << 32) | request.to.value();
    messages_[id].hash = mix64(pair + setup_.fabric.shape().hash_salt);
    if (setup_.path_needs.per_message) {
        messages_[id].hash = mix64(messages_[id].hash + sent_between_[pair]++);
    }
    if (setup_.path_needs.plans) {
        unplanned_.push_back(id);
    } else {
        nics_.begin_message(id, static_cast<std::uint32_t>(setup_.spec.paths.subflows * setup_.spec.nic.rails), {});
    }
}

void Network::reduce(const ReductionRequest& request) {
    reductions_.begin(request);
    start_samples();
}

double Network::cancel(std::uint64_t token) {
    double most = 0;
    for (std::uint32_t id = 0; id < messages_.size(); ++id) {
        if (!messages_[id].live || messages_[id].token != token) {
            continue;
        }
        const auto bytes = static_cast<double>(messages_[id].bytes);
        const double missing = std::erase(unplanned_, id) > 0 ? bytes : nics_.cancel(id);
        most = std::max(most, std::min(1.0, missing / bytes));
        messages_.cancel(id);
    }
    return most;
}

// Messages that start at this instant get their paths together.
void Network::plan_batch() {
    const std::vector<std::uint32_t> batch = std::move(unplanned_);
    unplanned_.clear();
    std::vector<std::uint32_t> crossing;
    std::vector<PlannedMessage> planned;
    for (const std::uint32_t m : batch) {
        const std::uint32_t from = setup_.leaf_of_nic[setup_.fabric.nic_of(messages_[m].from)];
        const std::uint32_t to = setup_.leaf_of_nic[setup_.fabric.nic_of(messages_[m].to)];
        if (from == to) {
            nics_.begin_message(m, 1, {});
        } else {
            crossing.push_back(m);
            planned.push_back({from, to, (messages_[m].bytes + setup_.mtu - 1) / setup_.mtu});
        }
    }
    if (crossing.empty()) {
        return;
    }
    const auto paths = chooser_->plan(planned, static_cast<std::uint32_t>(setup_.spec.paths.subflows));
    for (std::size_t i = 0; i < crossing.size(); ++i) {
        nics_.begin_message(crossing[i], static_cast<std::uint32_t>(paths[i].size()), paths[i]);
    }
}

std::int64_t Network::next_time() const {
    return unplanned_.empty() ? clock_.wheel.next_time() : clock_.now;
}

void Network::require_finished() const {
    if (messages_.live() > 0) {
        faults_.check_deadlock();
        messages_.fail_first("its packets were lost, and the transport does not send them again");
    }
}

std::size_t Network::memory() const {
    return slab_.peak() * sizeof(Packet) + flows_.memory() + messages_.memory() + ports_.memory() + nics_.memory() +
           clock_.wheel.bytes() + slab_.telemetry.memory();
}

// The first packet of a port's link reaches the far end; true when that is its NIC, or may be.
template <Departures kDepartures>
bool Network::arrive(std::uint32_t port) {
    const std::uint32_t id =
        kDepartures == Departures::decided_late ? ports_.take_late_arrival(port) : ports_.take_arrival(port);
    if (kDepartures == Departures::decided_late && id == kNone) {
        return false;
    }
    Packet& p = slab_[id];
    if ((p.flags & (kDestroyed | kReduces)) != 0) {
        if ((p.flags & kDestroyed) != 0) {
            flows_.drop(id);
        } else {
            reductions_.arrive(port, id);
        }
        return true;
    }
    if (ports_.noisy() && ports_.spoiled(port, p)) {
        flows_.drop(id);
        return false;
    }
    const Port& in = ports_[port];
    if (in.kind == PortKind::nic_in) {
        receivers_.deliver(id);
        return true;
    }
    const std::uint32_t out = routing_.next_port(in, p);
    if constexpr (kDepartures == Departures::known) {
        ports_.forward(out, id);
    } else {
        p.ingress = port;
        ports_.enqueue(setup_.spec.detour ? routing_.detour(in, out, p) : out, id);
    }
    return false;
}

// Reports progress; where millions of events and many round trips bring no packet home, none will come: retransmissions
// crowd out everything.
void Network::watch() {
    if (progress_) {
        progress_(flows_.counts.payload);
    }
    if (flows_.counts.delivered != watched_) {
        watched_ = flows_.counts.delivered;
        watched_at_ = clock_.now;
        idle_intervals_ = 0;
    } else if (++idle_intervals_ >= kIdleIntervals && (clock_.now - watched_at_) / kIdleTimeouts > setup_.timeout) {
        faults_.check_deadlock();
        messages_.fail_first(
            "8 million events have not brought a single new packet to its receiver (congestion collapse)");
    }
}

// Memory answers late: what the next events need is asked for while this one is handled.
void Network::fetch_ahead() {
    const std::uint32_t ports = setup_.ports();
    if (const std::uint32_t port = clock_.wheel.ahead(kPortAhead); port < ports) {
        ports_.fetch_port(port);
    }
    if (const std::uint32_t port = clock_.wheel.ahead(kPacketAhead); port < ports) {
        ports_.fetch_packet(port);
    }
}

void Network::run(std::int64_t limit_ps) {
    messages_.forget_completed();
    if (!unplanned_.empty()) {
        plan_batch();
    }
    if (!setup_.served) {
        run_events<Departures::known>(limit_ps);
    } else if (ports_.decide_late()) {
        run_events<Departures::decided_late>(limit_ps);
    } else {
        run_events<Departures::decided_in_turn>(limit_ps);
    }
    clock_.before = clock_.now + 1;
    messages_.sort_completed();
}

template <Departures kDepartures>
void Network::run_events(std::int64_t limit) {
    const std::uint32_t ports = setup_.ports();
    std::uint32_t entity = 0;
    std::int64_t at = clock_.now;
    while (clock_.wheel.pop(limit, at, entity)) {
        clock_.now = at;
        if constexpr (kDepartures == Departures::decided_late) {
            clock_.before = at;
        }
        ++events_;
        if (fetches_) {
            fetch_ahead();
        }
        if (entity < ports) {
            if (!arrive<kDepartures>(entity)) {
                continue;
            }
        } else {
            dispatch(entity);
        }
        // Messages end, and progress is made, where packets do not only go from switch to switch.
        if (messages_.any_completed()) {
            limit = at;
        }
        if (events_ >= watch_next_) {
            watch_next_ = events_ + kProgressInterval;
            watch();
        }
    }
}

void Network::dispatch(std::uint32_t entity) {
    const std::uint32_t ports = setup_.ports();
    const std::uint32_t index = entity & ((1U << kTimerShift) - 1);
    if (entity >> kTimerShift == 0) [[likely]] {
        clock_.before = clock_.now;
        if (index < ports + setup_.nics) {
            nics_.wake(index - ports);
        } else {
            ports_.serve_due(index - ports - setup_.nics);
        }
        return;
    }
    clock_.before = clock_.now + 1;
    switch (static_cast<Timer>(entity >> kTimerShift)) {
        case Timer::start:
            nics_.start(index);
            break;
        case Timer::pace:
            nics_.on_pace(index);
            break;
        case Timer::retransmit:
            if (setup_.spec.queues.pfc && nics_.silent(index) && clock_.now - deadlock_checked_ >= setup_.timeout) {
                deadlock_checked_ = clock_.now;
                faults_.check_deadlock();
            }
            nics_.on_timeout(index);
            break;
        case Timer::congestion:
            nics_.on_congestion_timer(index);
            break;
        case Timer::pause:
            (void)ports_.set_paused(index, true);
            break;
        case Timer::resume:
            if (ports_.set_paused(index, false) && ports_[index].kind == PortKind::nic_out) {
                nics_.kick(index - setup_.base[0]);
            }
            break;
        case Timer::link_event:
            faults_.apply(index);
            if (setup_.spec.failover) {
                routing_.look();
            }
            break;
        case Timer::reroute:
            routing_.learn(index);
            break;
        case Timer::grant:
            receivers_.grant(index);
            break;
        case Timer::sample:
            sample();
            break;
        case Timer::steady:
            steady_->on_time(index);
            break;
        case Timer::go_on:
            steady_->go_on(index);
            break;
        case Timer::wheel:
            break;  // above
    }
}

}  // namespace orrery::inline network::packet
