#include "tests/support/packets.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <vector>

using namespace orrery;
using packet::Network;
using packet::Wheel;

namespace {

constexpr std::int64_t kLatency = 500'000;  // ps
constexpr std::int64_t kFull = 4160 * 20;   // ps, a full packet at 400 Gb/s
constexpr std::int64_t kSmall = 64 * 20;    // ps, an acknowledgement
constexpr std::uint64_t kMtu = 4096;

// 32 hosts at 400 Gb/s on leaves of 8 with 8 spines.
Fabric leaf_spine() {
    return Fabric(test::hosts(32, 8, 8, 50e9, 500e-9));
}

std::int64_t alone(const Fabric& fabric, const PacketSpec& spec, std::uint32_t to, std::uint64_t bytes) {
    Network network(fabric, spec, 1);
    network.send({GpuId(0), GpuId(to), bytes, 0, 0});
    return test::finish(network, 1)[0];
}

}  // namespace

TEST_CASE("packet: the wheel pops in the order of time and entity, whatever the order of insertion") {
    RandomStream random(7, "wheel");
    for (int round = 0; round < 20; ++round) {
        const auto entities = static_cast<std::uint32_t>(1 + random.below(300));
        const auto horizon = static_cast<std::int64_t>(1 + random.below(2'000'000));
        Wheel wheel(entities, horizon);
        std::set<std::pair<std::int64_t, std::uint32_t>> expected;
        std::vector<bool> pending(entities, false);
        std::int64_t now = 0;
        for (int step = 0; step < 2000; ++step) {
            const auto entity = static_cast<std::uint32_t>(random.below(entities));
            // Many events at one instant, some beyond the horizon.
            const std::int64_t at = now + static_cast<std::int64_t>(random.below(4)) * horizon / 3;
            if (!pending[entity] && random.below(3) > 0) {
                wheel.insert(entity, at);
                pending[entity] = true;
                expected.emplace(at, entity);
            } else if (random.below(8) == 0) {
                // Of kinds before the one that may be on the wheel, and after it.
                const std::uint32_t timer = random.below(2) == 0
                                                ? Wheel::kNearTimers / 2 + static_cast<std::uint32_t>(step)
                                                : Wheel::kNearTimers * 2 + static_cast<std::uint32_t>(step);
                wheel.insert_far(timer, at);
                expected.emplace(at, timer);
            } else if (random.below(4) == 0) {
                wheel.insert_timer(static_cast<std::uint32_t>(step), at);
                expected.emplace(at, Wheel::kNearTimers | static_cast<std::uint32_t>(step));
            }
            const std::int64_t limit = random.below(2) == 0 ? Wheel::kNever : now + horizon / 5;
            REQUIRE(wheel.next_time() == (expected.empty() ? Wheel::kNever : expected.begin()->first));
            const bool due = !expected.empty() && expected.begin()->first <= limit;
            wheel.set_limit(limit);
            const auto [time, popped] = wheel.pop();
            REQUIRE((popped != Wheel::kNobody) == due);
            if (due) {
                REQUIRE(std::pair<std::int64_t, std::uint32_t>(time, Wheel::whole(popped)) == *expected.begin());
                expected.erase(expected.begin());
                now = time;
                if (popped < entities) {
                    pending[popped] = false;
                }
            }
        }
    }
}

TEST_CASE("packet: few keys and many are put in order, equal ones among them") {
    RandomStream random(3, "keys");
    for (std::size_t count = 0; count < 400; ++count) {
        const std::uint64_t different = count % 3 == 0 ? count / 2 + 1 : std::uint64_t{1} << (count % 64);
        std::vector<std::uint64_t> keys(count);
        for (std::uint64_t& key : keys) {
            key = random.below(different) << (count % 5 * 9);
        }
        std::vector<std::uint64_t> expected = keys;
        std::sort(expected.begin(), expected.end());
        std::vector<std::uint64_t> sorted(count);
        if (count <= packet::kFewKeys) {
            packet::sort_few(keys.data(), count, sorted.data());
            REQUIRE(sorted == expected);
        }
        packet::sort_many(keys.data(), count, sorted.data());
        REQUIRE(sorted == expected);
    }
}

TEST_CASE("packet: keys that differ in their last 52 bits are put in order, equal ones among them") {
    RandomStream random(4, "near keys");
    for (std::size_t i = 0; i < 6400; ++i) {
        const std::size_t count = i % packet::kFewKeys + 1;
        // Most are different; in some cases two are equal, or all are.
        const std::uint64_t different = i % 7 == 0 ? i % 5 + 1 : std::uint64_t{1} << packet::kNearBits;
        const std::uint64_t rest = random.next() << packet::kNearBits;
        std::vector<std::uint64_t> keys(count);
        for (std::uint64_t& key : keys) {
            key = rest | random.below(different);
        }
        keys.back() = i % 3 == 0 ? keys.front() : keys.back();
        std::vector<std::uint64_t> expected = keys;
        std::sort(expected.begin(), expected.end());
        std::vector<std::uint64_t> sorted(count);
        packet::sort_near(keys.data(), count, sorted.data());
        REQUIRE(sorted == expected);
    }
}

TEST_CASE("packet: a flow alone takes (n + k - 2) full packets, the last one, and k latencies, to the picosecond") {
    const Fabric fabric = leaf_spine();
    for (const char* paths : {"ecmp", "spray", "round-robin", "planned"}) {
        const PacketSpec spec = test::ideal(paths);
        // One leaf: two hops. Across leaves: four.
        CHECK(alone(fabric, spec, 1, 1) == 2 * (65 * 20 + kLatency));
        CHECK(alone(fabric, spec, 1, kMtu) == 2 * (kFull + kLatency));
        CHECK(alone(fabric, spec, 1, 100 * kMtu) == 101 * kFull + 2 * kLatency);
        CHECK(alone(fabric, spec, 9, 100 * kMtu) == 103 * kFull + 4 * kLatency);
        CHECK(alone(fabric, spec, 1, 99 * kMtu + 1) == 100 * kFull + 65 * 20 + 2 * kLatency);
    }
    // A flow of one path keeps its order; on several, the short last packet may overtake at the spines.
    CHECK(alone(fabric, test::ideal(), 9, 99 * kMtu + 1) == 102 * kFull + 65 * 20 + 4 * kLatency);
}

TEST_CASE("packet: six hops through a fat tree, and NIC latency on both ends") {
    FabricShape shape = test::hosts(32, 4, 4, 50e9, 500e-9);
    shape.kind = FabricKind::fat_tree;
    shape.leaf_groups_per_pod = 2;
    shape.cores_per_spine = 4;
    shape.nic_latency = 2e-6;
    const Fabric fabric(shape);
    const std::int64_t core = static_cast<std::int64_t>(4160 / fabric.core_link_rate() * 1e12 + 0.5);
    CHECK(core == 2 * kFull);  // a pod of eight hosts has sixteen links to the cores
    const std::int64_t expected = 4 * kFull + 2 * core + 6 * kLatency + 2'000'000;
    CHECK(alone(fabric, test::ideal(), 31, kMtu) == expected);
    // A pipeline of n packets is bound by the slowest link.
    CHECK(alone(fabric, test::ideal(), 31, 100 * kMtu) == expected + 99 * core);
}

TEST_CASE("packet: a window of one packet makes one round trip a packet") {
    const Fabric fabric = leaf_spine();
    PacketSpec spec = test::ideal();
    spec.transport.policy.choose("window");
    spec.transport.window = 4160;
    const std::int64_t round_trip = 2 * (kFull + kLatency) + 2 * (kSmall + kLatency);
    CHECK(alone(fabric, spec, 1, 50 * kMtu) == 49 * round_trip + 2 * (kFull + kLatency));
    spec.nic.done_at_sender = true;
    CHECK(alone(fabric, spec, 1, 50 * kMtu) == 50 * round_trip);
    // A window of a bandwidth-delay product is as good as none.
    spec.nic.done_at_sender = false;
    spec.transport.window = 0;
    CHECK(alone(fabric, spec, 1, 500 * kMtu) == 501 * kFull + 2 * kLatency);
}

TEST_CASE("packet: an incast of n equal flows keeps its port busy from the first packet to the last") {
    const Fabric fabric = leaf_spine();
    for (const std::uint32_t senders : {2U, 5U, 7U}) {
        Network network(fabric, test::ideal(), 1);
        for (std::uint32_t i = 1; i <= senders; ++i) {
            network.send({GpuId(i), GpuId(0), 40 * kMtu, 0, i - 1});
        }
        const auto done = test::finish(network, senders);
        const std::int64_t last = kFull + kLatency + 40 * senders * kFull + kLatency;
        for (std::uint32_t i = 0; i < senders; ++i) {
            // Served in turn: flow i ends i packets before the last.
            CHECK(done[i] == last - (senders - 1 - i) * kFull);
        }
        // In 39 packets' time n packets come and one leaves each time; the very last finds all others of its instant too.
        const PacketStatistics s = network.statistics();
        CHECK(s.max_queue_bytes == doctest::Approx(40.0 * (senders - 1) * 4160).epsilon(1e-9));
        CHECK(s.packet_hops == 2 * 40 * senders);
        CHECK(network.conserved());
    }
}

TEST_CASE("packet: two flows share a saturated link equally, and each ends when fluid sharing says") {
    const Fabric fabric = leaf_spine();
    Network network(fabric, test::ideal(), 1);
    network.send({GpuId(1), GpuId(0), 1000 * kMtu, 0, 0});
    network.send({GpuId(2), GpuId(0), 500 * kMtu, 0, 1});
    const auto done = test::finish(network, 2);
    const std::int64_t start = kFull + 2 * kLatency;
    CHECK(done[0] == start + 1500 * kFull);
    CHECK(done[1] == start + 1000 * kFull);
}

TEST_CASE("packet: pacing sends a packet every size / rate") {
    const Fabric fabric = leaf_spine();
    Network network(fabric, test::ideal(), 1);
    network.send({GpuId(0), GpuId(1), 10 * kMtu, 5e9, 0});
    CHECK(test::finish(network, 1)[0] == 9 * 10 * kFull + 2 * (kFull + kLatency));
}

TEST_CASE("packet: doorbell and DMA delay a message, and a message rate spaces them") {
    const Fabric fabric = leaf_spine();
    PacketSpec spec = test::ideal();
    spec.nic.doorbell = 1e-6;
    spec.nic.dma = 0.5e-6;
    spec.nic.message_rate = 1e5;
    spec.nic.host_rate = 25e9;  // half the link
    Network network(fabric, spec, 1);
    network.send({GpuId(0), GpuId(1), 2 * kMtu, 0, 0});
    network.send({GpuId(0), GpuId(1), kMtu, 0, 1});
    const auto done = test::finish(network, 2);
    CHECK(done[0] == 1'500'000 + 2 * kFull + 2 * (kFull + kLatency));
    CHECK(done[1] == 11'500'000 + 2 * (kFull + kLatency));
}

TEST_CASE("packet: a queue accepts a packet that just fits and drops the next") {
    const Fabric fabric = leaf_spine();
    // Three packets meet at one port: the last finds almost two in the queue.
    const auto drops = [&](double size) {
        PacketSpec spec = test::ideal();
        spec.transport.policy.choose("window");
        spec.queues.size = size;
        Network network(fabric, spec, 1);
        for (std::uint32_t i = 1; i <= 3; ++i) {
            network.send({GpuId(i), GpuId(0), kMtu, 0, i - 1});
        }
        (void)test::finish(network, 3);
        CHECK(network.conserved());
        return network.statistics().drops;
    };
    CHECK(drops(3 * 4160) == 0);
    CHECK(drops(3 * 4160 - 1) == 1);
    CHECK(drops(2 * 4160) == 1);
}

TEST_CASE("packet: a step of ECN marks from its threshold on and not below") {
    const Fabric fabric = leaf_spine();
    const auto marks = [&](double threshold) {
        PacketSpec spec = test::ideal();
        spec.queues.mark_low = spec.queues.mark_high = threshold;
        Network network(fabric, spec, 1);
        for (std::uint32_t i = 1; i <= 3; ++i) {
            network.send({GpuId(i), GpuId(0), kMtu, 0, i - 1});
        }
        (void)test::finish(network, 3);
        return network.statistics().ecn_marks;
    };
    // Packets find 0, 4160 and 8320 bytes before them.
    CHECK(marks(4160) == 2);
    CHECK(marks(4161) == 1);
    CHECK(marks(8320) == 1);
    CHECK(marks(8321) == 0);
}

TEST_CASE("packet: linear ECN marks the share of packets that its line says") {
    const Fabric fabric = leaf_spine();
    PacketSpec spec = test::ideal();
    spec.queues.mark_low = 0;
    spec.queues.mark_high = 8000 * 4160.0;
    spec.queues.mark_probability = 0.5;
    Network network(fabric, spec, 1);
    network.send({GpuId(1), GpuId(0), 4000 * kMtu, 0, 0});
    network.send({GpuId(2), GpuId(0), 4000 * kMtu, 0, 1});
    (void)test::finish(network, 2);
    // The queue grows evenly from nothing to 4,000 packets: half of the line, a quarter on average, half of that.
    CHECK(static_cast<double>(network.statistics().ecn_marks) == doctest::Approx(8000 * 0.125).epsilon(0.1));
}

TEST_CASE("packet: go-back-N never goes back on a single path without losses: order is kept") {
    const Fabric fabric = leaf_spine();
    PacketSpec spec = test::ideal();
    spec.transport = test::transport("{kind: roce, dcqcn: false}");
    spec.transport.timeout = 1;
    RandomStream random(3, "pairs");
    Network network(fabric, spec, 1);
    for (std::uint32_t i = 0; i < 200; ++i) {
        const auto from = static_cast<std::uint32_t>(random.below(32));
        const auto to = static_cast<std::uint32_t>((from + 1 + random.below(31)) % 32);
        network.send({GpuId(from), GpuId(to), 1 + random.below(60 * kMtu), 0, i});
    }
    (void)test::finish(network, 200);
    CHECK(network.statistics().retransmissions == 0);
    CHECK(network.conserved());
}

TEST_CASE("packet: messages above 4 GiB, and packets of a mebibyte") {
    const Fabric fabric = leaf_spine();
    PacketSpec spec = test::ideal();
    spec.mtu = 1 << 20;
    const std::uint64_t bytes = 5'000'000'000;
    Network network(fabric, spec, 1);
    network.send({GpuId(0), GpuId(1), bytes, 0, 0});
    const double seconds = static_cast<double>(test::finish(network, 1)[0]) * 1e-12;
    CHECK(seconds == doctest::Approx(5e9 / 50e9).epsilon(1e-3));
    CHECK(network.payload_delivered() == 5e9);
}

TEST_CASE("packet: times hold at 1.6 Tb/s, where a byte takes 5 ps, and at rates that do not divide") {
    const Fabric fast(test::hosts(4, 4, 1, 200e9, 0));
    CHECK(alone(fast, test::ideal(), 1, 1000 * kMtu) == 1001 * 4160 * 5);
    const Fabric odd(test::hosts(4, 4, 1, 37.5e9, 0));
    const double exact = 1001 * 4160 / 37.5e9 * 1e12;
    CHECK(std::abs(static_cast<double>(alone(odd, test::ideal(), 1, 1000 * kMtu)) - exact) <= 1001 * 0.5);
}

TEST_CASE("packet: the utilisation of the busiest link counts up to the last arrival, whatever timers run on") {
    const Fabric fabric = leaf_spine();
    PacketSpec spec;
    spec.paths = test::paths("{kind: ecmp}");
    Network network(fabric, spec, 1);
    network.send({GpuId(0), GpuId(31), 20000 * kMtu, 0, 0});
    const double seconds = static_cast<double>(test::finish(network, 1)[0]) * 1e-12;
    network.advance(network.now() + 1'000'000'000'000);
    const double most = network.statistics().max_link_utilisation;
    CHECK(most > 0.97);
    CHECK(most <= 1);
    double ports = 0;
    for (const PortReport& port : network.report().ports) {
        CHECK(port.utilisation == doctest::Approx(port.bytes / (50e9 * seconds)).epsilon(0.02));
        ports = std::max(ports, port.utilisation);
    }
    CHECK(ports == most);
}

TEST_CASE("packet: the engine's records are small") {
    CHECK(sizeof(packet::Packet) <= 64);
    CHECK(sizeof(packet::Port) <= 128);
    CHECK(sizeof(packet::Flow) <= 512);
}
