#include "sim/network/packet/setup.hpp"

#include "sim/base/error.hpp"
#include "sim/base/time.hpp"
#include "sim/network/packet/clock.hpp"
#include "sim/network/topology/tree.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace orrery::network::packet {

namespace {

constexpr std::int64_t kMostPs = std::int64_t{1} << 62;
constexpr std::int64_t kTimeoutRoundTrips = 8;  // without load, until packets count as lost

std::int64_t to_ps(double seconds) {
    return SimTime::from_seconds(seconds).ps();
}

}  // namespace

Setup::Setup(const Fabric& of, const PacketSpec& wanted, bool links_change, const Transport& sends,
             const PathChooser& chooser)
    : fabric(of),
      spec(wanted),
      mtu(static_cast<std::uint32_t>(wanted.mtu)),
      header(static_cast<std::uint32_t>(wanted.header)),
      full(mtu + header),
      transport(sends.needs()),
      path_needs(chooser.needs()) {
    const std::vector<std::string> problems = problems_of(spec);
    if (!problems.empty()) {
        throw ConfigError(problems.front());
    }
    const FabricShape& shape = fabric.shape();
    nics = shape.nodes * shape.nics_per_node;
    if (spec.nic.rails > std::max(1U, shape.nics_per_node)) {
        throw ConfigError("nic.rails is " + std::to_string(spec.nic.rails) + ", but a node has " +
                          std::to_string(shape.nics_per_node) + " NICs");
    }
    counts_flows = spec.count_flows || spec.flow_samples > 0;
    notifies = transport.notification_gap >= 0;
    notification_gap = to_ps(std::max(0.0, transport.notification_gap));
    go_back = spec.transport.recovery == Recovery::go_back_n ||
              (spec.transport.recovery == Recovery::automatic && transport.go_back_n);
    links_change_ = links_change || !spec.link_events.empty();
    // One class is what the queues are.
    if (spec.classes.size() == 1) {
        const ClassSpec own = spec.classes.front();
        QueueSpec& q = spec.queues;
        q.size = own.size;
        q.mark_low = own.mark_low;
        q.mark_high = own.mark_high;
        q.pfc = own.pfc;
        q.pause_at = own.pause_at;
        q.resume_at = own.resume_at;
        q.headroom = own.headroom;
        q.alpha = own.alpha;
    }
    laned = spec.classes.size() > 1 || spec.queues.credits > 0;
    waits_for_room = network::waits_for_room(spec);
    served =
        transport.telemetry || spec.queues.trim || spec.queues.pfc || spec.queues.shared > 0 || links_change_ || laned;

    // A NIC's own latency is halved between its way out and its way in.
    const double nic_latency = fabric.topology().host_latency() + shape.nic_latency / 2;
    add_links(0, nics, shape.nic_bandwidth, nic_latency);
    add_links(1, nics, shape.nic_bandwidth, nic_latency);
    for (std::uint32_t nic = 0; nic < nics; ++nic) {
        leaf_of_nic.push_back(fabric.topology().switch_of(nic));
    }
    if (fabric.as_tree() != nullptr) {
        add_tree(*fabric.as_tree());
    } else {
        add_switch_links();
    }
    set_limits();
    set_windows();
    set_lanes();
}

void Setup::add_tree(const TreeTopology& of) {
    const FabricShape& shape = fabric.shape();
    spines = shape.spines;
    tree = shape.kind == FabricKind::fat_tree;
    cores = tree ? shape.cores_per_spine : 1;
    paths = {of.leaves(), spines, cores, path_needs.weighted};
    const std::uint32_t leaf_links = of.leaves() * spines;
    add_links(2, leaf_links, of.leaf_link_rate(), shape.link_latency);
    add_links(3, leaf_links, of.leaf_link_rate(), shape.link_latency);
    const std::uint32_t core_links = tree ? of.spines() * cores : 0;
    add_links(4, core_links, of.core_link_rate(), shape.link_latency);
    add_links(5, core_links, of.core_link_rate(), shape.link_latency);
    for (std::uint32_t leaf = 0; leaf < of.leaves(); ++leaf) {
        pod_of_leaf.push_back(of.pod_of_leaf(leaf));
    }
    for (std::size_t kind = kTreeKinds; kind < kPortKinds; ++kind) {
        base[kind + 1] = base[kind];
    }
}

void Setup::add_switch_links() {
    if (path_needs.leaves_choose || path_needs.plans) {
        throw ConfigError("network.paths: '" + spec.paths.policy.name() +
                          "' chooses among spines; this fabric has none: take spray, ecmp, oblivious, flowlet, "
                          "recycled, reps, bitmap or mixed");
    }
    if (path_needs.weighted || spec.failover) {
        throw ConfigError(std::string(spec.failover ? "network.failover" : "network.paths: weighted") +
                          " is about leaves and spines; this fabric has none");
    }
    routed = static_cast<const RoutedTopology*>(&fabric.topology());
    switch_links = routed->links();
    paths = {routed->switches(), RoutedTopology::kEntropies, 1, false};
    for (std::size_t kind = 2; kind < kTreeKinds; ++kind) {
        base[kind + 1] = base[kind];
    }
    std::size_t kind = kTreeKinds;
    for (std::size_t i = 0; i < switch_links.size(); ++kind) {
        if (kind == kPortKinds) {
            throw InfeasibleError("links of more than 32 different rates: too many for fidelity packet");
        }
        std::size_t end = i;
        double latency = 0;
        for (; end < switch_links.size() && switch_links[end].rate == switch_links[i].rate; ++end) {
            latency = std::max(latency, switch_links[end].latency);
        }
        add_links(kind, static_cast<std::uint32_t>(end - i), switch_links[i].rate, latency);
        i = end;
    }
    ORRERY_ASSERT(base[kind] - base[kTreeKinds] == switch_links.size());
    for (; kind < kPortKinds; ++kind) {
        base[kind + 1] = base[kind];
    }
}

void Setup::add_links(std::size_t index, std::uint32_t count, double rate, double latency_s) {
    base[index + 1] = base[index] + count;
    if (count == 0) {
        return;
    }
    if (base[index + 1] > (1U << (kTimerShift - 2))) {
        throw InfeasibleError("more than 2^26 ports: too many for fidelity packet");
    }
    LinkKind& link = links[index];
    link.count = count;
    link.latency = to_ps(latency_s);
    if (rate > 0) {
        const double ps_per_byte = 1e12 / rate * 4294967296.0;
        if (ps_per_byte > 9e18) {
            throw InfeasibleError("a link of less than 10 kb/s is too slow for fidelity packet");
        }
        link.ps_per_byte = static_cast<std::uint64_t>(std::llround(ps_per_byte));
    }
    link.full_time = send_time(link.ps_per_byte, full);
}

void Setup::set_limits() {
    // A NIC's own port never drops: it sends when the port is free.
    for (std::size_t kind = 1; kind < kPortKinds; ++kind) {
        const LinkKind& link = links[kind];
        if (link.count == 0) {
            continue;
        }
        const auto time = [&](double bytes) {
            return bytes > 0 ? send_time(link.ps_per_byte, static_cast<std::uint32_t>(std::min(bytes, 4e9))) : kMostPs;
        };
        limits[kind].drop = time(spec.queues.size);
        if (spec.queues.mark_high > 0) {
            limits[kind].mark_low = time(std::max(1.0, spec.queues.mark_low));
            limits[kind].mark_high = time(spec.queues.mark_high);
        }
    }
}

// Round trip, windows and timeouts.
void Setup::set_windows() {
    // The longest path there and back, store and forward, without load.
    std::int64_t round_trip = 0;
    double fastest = 0;
    std::int64_t slowest = 0;  // of the links between switches, without their latency
    for (std::size_t kind = 0; kind < kPortKinds; ++kind) {
        const LinkKind& link = links[kind];
        if (link.count == 0 || (kind > 1 && kind < kTreeKinds && fabric.leaves() < 2)) {
            continue;
        }
        const std::int64_t sending = link.full_time + send_time(link.ps_per_byte, header);
        if (kind < kTreeKinds) {
            round_trip += 2 * link.latency + sending;
        } else {
            slowest = std::max(slowest, sending);
        }
        longest = std::max(longest, link.latency + link.full_time);
        fastest = std::max(fastest, bytes_in(link.ps_per_byte, 2 * link.latency));
    }
    if (routed != nullptr) {
        const Reach reach = routed->reach();
        if (transport.telemetry && reach.links + 1 > kMostTold) {
            throw ConfigError("network.transport: '" + spec.transport.policy.name() + "' reads at most " +
                              std::to_string(kMostTold) + " links of a path; this fabric's have up to " +
                              std::to_string(reach.links + 1));
        }
        round_trip += 2 * to_ps(reach.latency) + reach.links * slowest;
    }
    // A link can still bring, after its receiver has asked for a pause: what is on it, what leaves until the request
    // arrives, and the packet then being sent.
    QueueSpec& queues = spec.queues;
    pause_default_ = fastest + 2 * full;
    headroom_default_ = fastest + 2 * full + 2 * header;
    queues.pause_at = queues.pause_at > 0 ? queues.pause_at : pause_default_;
    queues.resume_at = queues.resume_at > 0 ? queues.resume_at : queues.pause_at / 2;
    queues.headroom = queues.headroom > 0 ? queues.headroom : headroom_default_;
    if (queues.pfc && queues.resume_at > queues.pause_at) {
        throw ConfigError("network.queues.resume_at is " + std::to_string(std::llround(queues.resume_at)) +
                          " bytes, above pause_at of " + std::to_string(std::llround(queues.pause_at)) +
                          " bytes: a link would be let on before it is stopped");
    }
    congestion.packet = full;
    congestion.payload = mtu;
    congestion.line_rate = fabric.shape().nic_bandwidth;
    congestion.base_rtt = static_cast<double>(round_trip);
    // Many paths keep the sender busy through a late acknowledgement; reordering on one path, control by delay and choices
    // that learn want to hear of every packet.
    const bool batches = transport.rare_news && !path_needs.each;
    tell_every = spec.nic.acknowledge_every > 0 ? static_cast<std::uint32_t>(spec.nic.acknowledge_every)
                 : batches                      ? std::max(1U, 16384 / mtu)
                                                : 1;
    ask_below = tell_every > 1 && transport.asks_early ? 1.5 * tell_every * full : 0;
    const double product = congestion.line_rate * static_cast<double>(round_trip) * 1e-12;
    // An acknowledgement that waits for more packets must not stop the sender, however short the links are. Loss-based control
    // needs room for the queue that it fills.
    const double window = spec.transport.window > 0 ? spec.transport.window
                          : transport.fills_queues  ? 4 * product + queues.size
                                                    : std::max(1.5 * product, product + tell_every * full);
    congestion.max_window = std::max<double>(window, full);
    congestion.told = tell_every * full;
    congestion.trims = queues.trim;
    congestion.paths = path_needs.windows;
    // Where NICs differ, a window of the fastest may wait for the slowest.
    double slowest_nic = congestion.line_rate;
    for (std::uint32_t nic = 0; nic < nics && !fabric.shape().groups.empty(); ++nic) {
        slowest_nic = std::min(slowest_nic, fabric.capacity(fabric.nic_out(nic)));
    }
    set_recovery(slowest_nic, round_trip);
    const double packets = congestion.max_window / full;
    if (packets > 1e7) {
        throw InfeasibleError("a window of more than 10^7 packets: raise network.mtu or set network.transport.window");
    }
    // Beyond the window itself there is room for what arrives while a gap is mended.
    capacity = std::max(256U, std::bit_ceil(4 * static_cast<std::uint32_t>(packets) + 64));
}

// Queues of ports, and what a class does not say of its own.
void Setup::set_lanes() {
    classes = spec.classes;
    if (classes.empty()) {
        classes.emplace_back(spec.queues);
    }
    lanes_per_class = spec.queues.dateline ? 2 : 1;
    lanes = laned ? static_cast<std::uint32_t>(classes.size()) * lanes_per_class : 1;
    if (static_cast<std::uint64_t>(ports()) * lanes >= (1ULL << kTimerShift)) {
        throw InfeasibleError("more than 2^28 lanes of ports: too many for fidelity packet");
    }
    for (ClassSpec& own : classes) {
        own.pause_at = own.pause_at > 0 ? own.pause_at : pause_default_;
        own.resume_at = own.resume_at > 0 ? own.resume_at : own.pause_at / 2;
        own.headroom = own.headroom > 0 ? own.headroom : headroom_default_;
        if (own.pfc && own.resume_at > own.pause_at) {
            throw ConfigError("network.classes: '" + own.name + "' has resume_at above pause_at of " +
                              std::to_string(std::llround(own.pause_at)) +
                              " bytes: a link would be let on before it is stopped");
        }
    }
    if (!spec.queues.dateline) {
        return;
    }
    if (routed == nullptr || !routed->has_rings()) {
        throw ConfigError("network.queues.dateline is about the rings of a torus; this fabric has none");
    }
    for (std::uint32_t link = 0; link < switch_links.size(); ++link) {
        link_turns.push_back(routed->turn(link));
    }
}

// When packets count as lost.
void Setup::set_recovery(double slowest_nic, std::int64_t round_trip) {
    const double wait = slowest_nic < congestion.line_rate ? congestion.max_window / slowest_nic : 0;
    slow_nics_ = to_ps(wait);
    timeout =
        spec.transport.timeout > 0 ? to_ps(spec.transport.timeout) : kTimeoutRoundTrips * (round_trip + slow_nics_);
    reorder = spec.transport.reorder > 0 ? static_cast<std::uint32_t>(spec.transport.reorder)
              : path_needs.one_path      ? 3
                                         : 0;
    // A trimmed packet is reported. Where nothing is lost nothing need be watched.
    const QueueSpec& q = spec.queues;
    // Of several classes each may lose what it has no room for.
    const bool classed = spec.classes.size() > 1;
    const bool paused =
        classed ? std::all_of(spec.classes.begin(), spec.classes.end(), [](const auto& c) { return c.pfc; }) : q.pfc;
    const bool limited = classed ? q.shared > 0 || std::any_of(spec.classes.begin(), spec.classes.end(),
                                                               [](const auto& c) { return c.size > 0; })
                                 : q.size > 0 || q.shared > 0;
    const bool drops = q.watchdog == StormAction::drop;
    const bool loses =
        spec.bit_error_rate > 0 || links_change_ || drops || spec.nic.buffer > 0 || (limited && !q.trim && !paused);
    patience = q.watchdog == StormAction::none ? 0 : to_ps(q.detection) + to_ps(q.restoration);
    // Queues without limit may take longer than any number of round trips; pauses may stand still, which timeouts find.
    nothing_lost = spec.transport.timeout <= 0 && spec.bit_error_rate <= 0 && !links_change_ && !limited && !q.trim &&
                   !pauses(spec) && spec.nic.buffer <= 0;
    by_time =
        transport.acknowledged && !go_back && reorder == 0 && (spec.transport.reorder_time > 0 || (loses && !q.trim));
    reorder_time = to_ps(spec.transport.reorder_time);
    probe = go_back ? 0 : to_ps(transport.probe);
    more_to_send = by_time || transport.credits || transport.backlog || transport.telemetry || counts_flows ||
                   path_needs.windows > 0 || transport.operation > 0;
    more_to_hear = transport.telemetry || transport.late > 0 || path_needs.windows > 0 || probe > 0 ||
                   (transport.hears_buffers && spec.nic.write_rate > 0);
    more_to_tell = transport.timed || path_needs.learns;
}

// ps that a full queue of this kind of port takes to drain; 0: it has no limit, or pauses.
std::int64_t Setup::drain(std::size_t kind) const {
    const QueueSpec& q = spec.queues;
    const double bytes = q.pfc ? 0 : q.size > 0 ? q.size : q.shared * q.alpha / (1 + q.alpha);
    return bytes > 0 && links[kind].count > 0
               ? send_time(links[kind].ps_per_byte, static_cast<std::uint32_t>(std::min(bytes, 4e9)))
               : 0;
}

// Eight round trips of the path without load, and never less than one behind full queues there and back.
std::int64_t Setup::timeout_between(std::uint32_t from_nic, std::uint32_t to_nic, std::uint32_t entropy) const {
    if (spec.transport.timeout > 0) {
        return timeout;
    }
    std::int64_t round_trip = 0;
    std::int64_t queues = 0;
    const auto add = [&](std::size_t kind, std::int64_t latency) {
        round_trip += 2 * latency + links[kind].full_time + send_time(links[kind].ps_per_byte, header);
        queues += kind > 0 ? 2 * drain(kind) : 0;
    };
    const std::uint32_t to = leaf_of_nic[to_nic];
    std::size_t kinds = 2;
    if (routed == nullptr && leaf_of_nic[from_nic] != to) {
        kinds = pod_of_leaf[leaf_of_nic[from_nic]] == pod_of_leaf[to] ? 4 : 6;
    }
    for (std::size_t kind = 0; kind < kinds; ++kind) {
        add(kind, links[kind].latency);
    }
    if (routed != nullptr && !path_needs.one_path) {
        return timeout;  // paths of a flow may differ in length
    }
    for (std::uint32_t at = leaf_of_nic[from_nic]; routed != nullptr && at != to;) {
        const std::uint32_t link = routed->next_link(at, to, entropy);
        const auto* kind = std::upper_bound(base + kTreeKinds, base + kPortKinds, base[kTreeKinds] + link) - 1;
        add(static_cast<std::size_t>(kind - base), to_ps(switch_links[link].latency));
        at = switch_links[link].to;
    }
    return std::max(kTimeoutRoundTrips * (round_trip + slow_nics_), round_trip + queues);
}

}  // namespace orrery::network::packet
