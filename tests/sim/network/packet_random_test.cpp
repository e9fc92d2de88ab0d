// Random small networks with everything that can be switched on, and what must hold for all of them.

#include "tests/support/packets.hpp"
#include "tests/support/support.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

using namespace orrery;
using packet::Network;

namespace {

struct Case {
    FabricShape shape;
    PacketSpec spec;
    std::vector<packet::SendRequest> requests;
    std::vector<packet::ReductionRequest> reductions;
    std::vector<TimedFault> events;
};

template <class T>
T one_of(RandomStream& random, std::initializer_list<T> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(random.below(choices.size())));
}

// Links that slow down, corrupt, or go down and come back.
void add_events(RandomStream& random, Case& c) {
    const Fabric fabric(c.shape);
    const std::size_t count = 1 + random.below(3);
    for (std::size_t i = 0; i < count; ++i) {
        TimedFault e;
        e.at_s = static_cast<double>(random.below(40)) * 1e-6;
        const std::uint64_t link = random.below(fabric.cores() > 0 ? 3 : 2);
        constexpr Place::What kLinks[] = {Place::What::leaf_spine, Place::What::nic, Place::What::spine_core};
        Fault& fault = e.fault;
        fault.place.what = kLinks[link];
        const std::uint64_t lower[] = {fabric.leaves(), c.shape.nodes * c.shape.nics_per_node, fabric.spines()};
        const std::uint64_t upper[] = {c.shape.spines, 1, c.shape.cores_per_spine};
        fault.place.index = static_cast<std::uint32_t>(random.below(lower[link]));
        fault.place.upper = static_cast<std::uint32_t>(random.below(upper[link]));
        fault.kind = one_of(random, {FaultKind::link_down, FaultKind::degraded, FaultKind::bit_errors});
        fault.factor = fault.kind == FaultKind::degraded ? one_of(random, {0.1, 0.5, 1.0}) : 1e-7;
        if (fault.kind == FaultKind::link_down) {
            // At least a nanosecond: without an end of its own it would stay down.
            fault.lasts_s = std::max(1e-9, static_cast<double>(random.below(40)) * 1e-6);
        }
        c.events.push_back(e);
    }
}

// Several classes, or links with credits, or both.
void add_classes(RandomStream& random, Case& c) {
    PacketSpec& s = c.spec;
    const double packet = s.mtu + s.header;
    for (std::size_t i = random.below(5); i > 0; --i) {
        ClassSpec one(s.queues);
        one.name = std::to_string(i);
        one.strict = random.below(4) == 0;
        one.weight = one.strict ? 1 : one_of(random, {0.5, 1.0, 7.0});
        one.pfc = one.pfc || (!s.queues.trim && random.below(4) == 0);
        one.alpha = one_of(random, {0.5, 1.0, 4.0});
        s.classes.push_back(one);
    }
    for (packet::SendRequest& request : c.requests) {
        request.traffic_class = static_cast<std::uint8_t>(random.below(std::max<std::size_t>(1, s.classes.size())));
    }
    s.queues.credits = random.below(3) == 0 ? packet * static_cast<double>(1 + random.below(40)) + 63 : 0;
}

Case random_case(RandomStream& random) {
    Case c;
    const auto per_leaf = static_cast<std::uint32_t>(1 + random.below(6));
    const auto hosts = static_cast<std::uint32_t>(2 + random.below(20));
    c.shape = test::hosts(hosts, per_leaf, static_cast<std::uint32_t>(1 + random.below(5)),
                          one_of(random, {1.25e9, 12.5e9, 50e9, 100e9}), one_of(random, {0.0, 100e-9, 1e-6}));
    c.shape.leaf_oversubscription = one_of(random, {1.0, 1.0, 2.0, 3.0});
    if (random.below(4) == 0) {
        c.shape.kind = FabricKind::fat_tree;
        c.shape.leaf_groups_per_pod = static_cast<std::uint32_t>(1 + random.below(3));
        c.shape.cores_per_spine = static_cast<std::uint32_t>(1 + random.below(3));
    }
    PacketSpec& s = c.spec;
    if (random.below(4) == 0) {
        c.shape.nics_per_node = 2;
        c.shape.rails = static_cast<std::uint32_t>(1 + random.below(2));
        s.nic.rails = 2;
    }
    s.nic.queue_pairs = static_cast<std::int64_t>(random.below(3));
    s.mtu = static_cast<double>(64 + random.below(9000));
    s.header = static_cast<double>(1 + random.below(100));
    const std::string paths = packet::path_table()[random.below(packet::path_table().size())]->name;
    const std::uint64_t entropies = random.below(20);
    const bool hashes = paths == "oblivious" || paths == "recycled" || paths == "reps";
    s.paths = test::paths(hashes ? fmt::format("{{kind: {}, entropies: {}}}", paths, entropies) : "kind: " + paths);
    s.paths.subflows = static_cast<std::int64_t>(1 + random.below(4));
    const std::string transport = packet::transport_table()[random.below(packet::transport_table().size())]->name;
    const bool credits = transport == "multipath" && random.below(2) == 0;
    s.transport = test::transport("{kind: " + transport + (credits ? ", receiver_credits: true}" : "}"));
    s.transport.recovery = static_cast<Recovery>(random.below(3));
    s.transport.retries = 200;
    s.nic.done_at_sender = random.below(2) == 0;
    s.nic.acknowledge_every = static_cast<std::int64_t>(random.below(8));
    const double packet = s.mtu + s.header;
    if (random.below(2) == 0) {
        s.queues.mark_low = packet * static_cast<double>(random.below(10));
        s.queues.mark_high = s.queues.mark_low + packet * static_cast<double>(1 + random.below(30));
    }
    switch (random.below(6)) {
        case 0:
            s.queues.size = packet * static_cast<double>(8 + random.below(60));
            break;
        case 1:
            s.queues.size = packet * static_cast<double>(8 + random.below(60));
            s.queues.trim = true;
            break;
        case 2:
            s.queues.pfc = true;
            break;
        case 3:
            s.queues.shared = packet * static_cast<double>(40 + random.below(100));
            s.queues.alpha = one_of(random, {0.5, 1.0, 4.0});
            break;
        default:
            break;
    }
    if (s.queues.trim && transport == "roce") {
        // Nothing but marks slows DCQCN down: without them the headers of trimmed packets crowd out the data.
        s.queues.mark_high = s.queues.size / 2;
        s.queues.mark_low = s.queues.mark_high / 2;
    }
    if (random.below(5) == 0) {
        s.bit_error_rate = one_of(random, {1e-9, 1e-7});
    }
    if (transport != "ideal" && random.below(4) == 0) {
        s.link_events = "given directly";
        s.reroute_delay = one_of(random, {0.0, 10e-6, 100e-6});
        s.detour = !s.queues.pfc && random.below(2) == 0;  // with pauses it can end in a deadlock
        add_events(random, c);
    }
    const std::size_t flows = 1 + random.below(12);
    for (std::size_t i = 0; i < flows; ++i) {
        const auto from = static_cast<std::uint32_t>(random.below(hosts));
        const auto to = random.below(3) == 0 ? (from == 0 ? 1 : 0)  // incast
                                             : static_cast<std::uint32_t>((from + 1 + random.below(hosts - 1)) % hosts);
        c.requests.push_back({GpuId(from), GpuId(to), 1 + random.below(random.below(2) == 0 ? 5000 : 300'000), 0, i});
    }
    s.queues.reduction_slots = one_of<std::int64_t>(random, {0, 0, 2, 7, 64});
    for (std::size_t i = random.below(3); i > 0; --i) {
        packet::ReductionRequest r;
        for (std::uint32_t host = 0; host < hosts; ++host) {
            if (random.below(3) > 0 || host < 2) {
                r.members.emplace_back(host);
            }
        }
        r.tree = static_cast<std::uint32_t>(random.below(20));
        r.bytes = 1 + random.below(random.below(2) == 0 ? 5000 : 100'000);
        r.token = c.requests.size() + c.reductions.size();
        c.reductions.push_back(r);
    }
    if (c.reductions.empty() && random.below(2) == 0) {
        add_classes(random, c);
    }
    return c;
}

struct Outcome {
    std::vector<std::int64_t> done;
    PacketStatistics statistics;
};

Outcome run_case(const Case& c) {
    const Fabric fabric(c.shape);
    Network network(fabric, c.spec, 1);
    double bytes = 0;
    for (const TimedFault& event : c.events) {
        network.add_link_event(event);
    }
    for (const packet::SendRequest& request : c.requests) {
        network.send(request);
        bytes += static_cast<double>(request.bytes);
    }
    for (const packet::ReductionRequest& reduction : c.reductions) {
        network.reduce(reduction);
        bytes += static_cast<double>(reduction.bytes) * static_cast<double>(reduction.members.size());
    }
    Outcome out;
    out.done = test::finish(network, c.requests.size() + c.reductions.size());
    out.statistics = network.statistics();
    REQUIRE(network.live_messages() == 0);
    CHECK(network.conserved());
    CHECK(network.payload_delivered() == bytes);
    return out;
}

// s, the longest that a flow waits for an answer before it sends again: eight round trips, and what may be in the queues of its path
// there and back.
double longest_timeout(const Case& c, double bytes, double rate) {
    const double packet = c.spec.mtu + 2 * c.spec.header;
    const double limit = c.spec.queues.size > 0     ? c.spec.queues.size
                         : c.spec.queues.shared > 0 ? c.spec.queues.shared
                                                    : bytes;
    return 8 * (12 * c.shape.link_latency + 6 * packet / rate) + 10 * limit / rate;
}

// Transports lose time to their own rules: windows that start small, rates that fall and rise again. The worst of 120,000 cases takes
// 14 of these, six more than 9.
constexpr double kMostOfBound = 16;

// s, by when all messages would have arrived one after another: the last change of a link and what routing needs to learn of it, then
// every byte with its headers over the slowest link there is, at the lowest rate it has, and each message's way there and back.
double one_by_one(const Case& c, std::uint64_t timeouts) {
    double since = 0;
    double slowest = 1;
    for (const TimedFault& event : c.events) {
        since = std::max(since, event.at_s + event.fault.lasts_s + c.spec.reroute_delay);
        slowest = event.fault.kind == FaultKind::degraded ? std::min(slowest, event.fault.factor) : slowest;
    }
    double bytes = 0;
    double messages = 0;
    const auto add = [&](std::uint64_t payload, double copies) {
        const double packets = std::ceil(static_cast<double>(payload) / c.spec.mtu);
        bytes += copies * (static_cast<double>(payload) + 2 * packets * c.spec.header);  // and their answers
        messages += copies;
    };
    for (const packet::SendRequest& request : c.requests) {
        add(request.bytes, 1);
    }
    for (const packet::ReductionRequest& reduction : c.reductions) {
        add(reduction.bytes, static_cast<double>(reduction.members.size()));
    }
    const double uplinks = static_cast<double>(c.shape.spines) * c.shape.leaf_oversubscription;
    double rate = std::min(c.shape.nic_bandwidth, c.shape.nic_bandwidth * c.shape.nodes_per_leaf / uplinks);
    if (c.spec.queues.credits >
        0) {  // a link sends what room it has, which comes back after its latency there and back
        rate = c.spec.queues.credits / (2 * c.shape.link_latency + c.spec.queues.credits / rate);
    }
    return since + bytes / (rate * slowest) + messages * 12 * c.shape.link_latency +
           static_cast<double>(timeouts) * longest_timeout(c, bytes, rate);
}

}  // namespace

TEST_CASE(
    "packet: random networks deliver every byte once, account for lost packets, end in time, and repeat themselves") {
    RandomStream random(11, "packet/random");
    std::size_t ran = 0;
    for (int i = 0; i < 400 * test::scale() * (test::scale() > 1 ? 3 : 1); ++i) {
        const Case c = random_case(random);
        if (!problems_of(c.spec).empty()) {
            continue;
        }
        ++ran;
        CAPTURE(i);
        Outcome out;
        try {
            out = run_case(c);
        } catch (const Error& error) {
            FAIL_CHECK(fmt::format("case {}: {}", i, error.what()));
            continue;
        }
        const PacketStatistics& s = out.statistics;
        if (c.spec.queues.pfc && c.events.empty() && c.spec.classes.empty()) {
            CHECK(s.drops == 0);
        }
        if (c.spec.queues.size == 0 && c.spec.queues.shared == 0 && !c.spec.queues.pfc && c.events.empty()) {
            CHECK(s.drops == 0);
        }
        CHECK(s.max_link_utilisation <= 1 + 1e-9);
        // No message is faster than its bytes through its NIC and the light on its path.
        for (const packet::SendRequest& request : c.requests) {
            const double least =
                static_cast<double>(request.bytes) / static_cast<double>(c.spec.nic.rails) / c.shape.nic_bandwidth +
                2 * c.shape.link_latency;
            CHECK(static_cast<double>(out.done[request.token]) >= least * 1e12 * (1 - 1e-9) - 1);
        }
        for (const packet::ReductionRequest& r : c.reductions) {
            const double least = static_cast<double>(r.bytes) / c.shape.nic_bandwidth + 2 * c.shape.link_latency;
            CHECK(static_cast<double>(out.done[r.token]) >= least * 1e12 * (1 - 1e-9) - 1);
        }
        const double last = static_cast<double>(*std::max_element(out.done.begin(), out.done.end())) * 1e-12;
        CHECK_MESSAGE(last <= kMostOfBound * one_by_one(c, s.timeouts),
                      c.spec.transport.policy.name() << ": " << last / one_by_one(c, s.timeouts));
        if (i % 10 == 0) {
            CHECK(run_case(c).done == out.done);
        }
    }
    CHECK(ran > 100);
}
