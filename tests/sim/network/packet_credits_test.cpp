// Links with credits against closed forms: throughput by room and round trip, no loss, deadlocks on a ring and how a dateline opens
// them.

#include "sim/network/topology/product.hpp"
#include "tests/support/packets.hpp"

#include <doctest/doctest.h>

using namespace orrery;
using packet::Network;

namespace {

constexpr std::uint64_t kMtu = 4096;
constexpr double kFull = 4160;      // bytes, 65 blocks of 64
constexpr double kPacket = 83.2e3;  // ps, at 50 GB/s
constexpr double kLatency = 500e3;  // ps, a link
constexpr double kUpdate = 1.28e3;  // ps, a header

PacketSpec credits(double packets, const std::string& transport = "{kind: ideal}") {
    PacketSpec spec;
    spec.paths.policy.choose("ecmp");
    spec.transport = test::transport(transport);
    spec.queues.credits = packets * kFull;
    return spec;
}

// A ring or a torus of hosts.
FabricShape torus(const std::vector<std::uint32_t>& sizes) {
    std::uint32_t count = 1;
    std::vector<ProductDimension> dimensions;
    for (const std::uint32_t size : sizes) {
        count *= size;
        dimensions.push_back({DimensionKind::ring, size, 50e9, 500e-9});
    }
    FabricShape shape = test::hosts(count, 1, 1, 50e9, 500e-9);
    std::vector<std::string> problems;
    complete_product(shape, dimensions, "torus", problems);
    REQUIRE(problems.empty());
    return shape;
}

struct Outcome {
    std::vector<std::int64_t> done;
    PacketStatistics statistics;
};

// Every host sends to the one `shift` places further.
Outcome shifted(const PacketSpec& spec, const FabricShape& shape, std::uint32_t shift, std::uint64_t packets) {
    const Fabric fabric(shape);
    Network network(fabric, spec, 1);
    for (std::uint32_t i = 0; i < shape.nodes; ++i) {
        network.send({GpuId(i), GpuId((i + shift) % shape.nodes), packets * kMtu, 0, i});
    }
    Outcome out{test::finish(network, shape.nodes), network.statistics()};
    CHECK(network.conserved());
    CHECK(out.statistics.drops == 0);
    CHECK(out.statistics.retransmissions == 0);
    return out;
}

}  // namespace

TEST_CASE("packet credits: a link carries the least of its rate and its room a round trip") {
    constexpr double kRoundTrip = kPacket + 2 * kLatency + kUpdate;
    constexpr std::uint64_t kPackets = 2000;
    for (const double room : {1.0, 2.0, 5.0, 10.0, 13.0, 14.0, 40.0}) {
        CAPTURE(room);
        const Fabric fabric(test::hosts(2, 2, 1, 50e9, 500e-9));
        Network network(fabric, credits(room), 1);
        network.send({GpuId(0), GpuId(1), kPackets * kMtu, 0, 0});
        const auto done = static_cast<double>(test::finish(network, 1)[0]);
        CHECK(network.conserved());
        const double apart = std::max(kPacket, kRoundTrip / room);
        CHECK(done == doctest::Approx(kPackets * apart).epsilon(0.01));
        CHECK(network.statistics().drops == 0);
    }
    // A part of a block is none, and nothing is sent without room for a packet.
    CHECK(problems_of(credits(0.9)).front().find("less than a full packet") != std::string::npos);
}

TEST_CASE("packet credits: an incast loses nothing, sends nothing twice and takes what its receiver's link takes") {
    for (const char* transport : {"{kind: ideal}", "{kind: roce, dcqcn: false}", "{kind: window}", "{kind: nscc}"}) {
        CAPTURE(transport);
        const Fabric fabric(test::hosts(16, 4, 4, 50e9, 500e-9));
        Network network(fabric, credits(16, transport), 1);
        for (std::uint32_t i = 1; i < 16; ++i) {
            network.send({GpuId(i), GpuId(0), 200 * kMtu, 0, i});
        }
        const auto done = test::finish(network, 16);
        const PacketStatistics statistics = network.statistics();
        CHECK(network.conserved());
        CHECK(statistics.drops == 0);
        CHECK(statistics.retransmissions == 0);
        CHECK(statistics.timeouts == 0);
        CHECK(statistics.pause_s == 0);
        const auto last = static_cast<double>(*std::max_element(done.begin(), done.end()));
        CHECK(last == doctest::Approx(15 * 200 * kPacket).epsilon(0.02));
        // No queue of a switch is longer than the room of the links into it.
        CHECK(statistics.max_queue_bytes <= 8 * 16 * kFull);
    }
}

TEST_CASE("packet credits: a ring of one lane deadlocks, and the circle is named") {
    for (const char* transport : {"{kind: ideal}", "{kind: roce, dcqcn: false}"}) {
        CAPTURE(transport);
        CHECK_THROWS_WITH_AS(shifted(credits(2, transport), torus({8}), 3, 200),
                             doctest::Contains("deadlock: 8 ports wait for each other's room in a circle"),
                             InfeasibleError);
    }
    // With room for all there is to send none can stand still.
    CHECK(shifted(credits(2000), torus({8}), 3, 200).done.size() == 8);
}

TEST_CASE("packet credits: a second lane beyond the dateline keeps rings and tori going") {
    for (const auto& sizes : std::vector<std::vector<std::uint32_t>>{{8}, {5, 5}, {4, 4, 4}}) {
        CAPTURE(sizes.size());
        for (const double room : {1.0, 2.0, 4.0}) {
            CAPTURE(room);
            for (const std::uint32_t shift : {3U, 7U}) {
                PacketSpec spec = credits(room, shift == 3 ? "{kind: ideal}" : "{kind: roce, dcqcn: false}");
                spec.queues.dateline = true;
                const Outcome out = shifted(spec, torus(sizes), shift, 200);
                CHECK(out.statistics.packets_delivered == 200 * out.done.size());
            }
        }
    }
    PacketSpec spec = credits(2);
    spec.queues.dateline = true;
    CHECK_THROWS_WITH_AS(shifted(spec, test::hosts(8, 4, 1, 50e9, 500e-9), 1, 1),
                         doctest::Contains("dateline is about the rings of a torus"), ConfigError);
}

TEST_CASE("packet credits: lanes of classes have room of their own") {
    PacketSpec spec = credits(4);
    spec.classes.resize(2);
    spec.classes[0].name = "a";
    spec.classes[1].name = "b";
    // Both classes wait for room, so a link carries what both may have under way.
    const Fabric fabric(test::hosts(3, 3, 1, 50e9, 500e-9));
    Network network(fabric, spec, 1);
    network.send({GpuId(0), GpuId(1), 2000 * kMtu, 0, 0, 0, 0, 0});
    network.send({GpuId(0), GpuId(2), 2000 * kMtu, 0, 1, 0, 0, 1});
    const auto done = test::finish(network, 2);
    for (const std::int64_t at : done) {
        CHECK(static_cast<double>(at) == doctest::Approx(2000 * (kPacket + 2 * kLatency + kUpdate) / 4).epsilon(0.01));
    }
}

TEST_CASE("packet credits: what contradicts them is refused") {
    const auto refused = [](const std::function<void(PacketSpec&)>& change) {
        PacketSpec spec = credits(8, "{kind: window}");
        CHECK(problems_of(spec).empty());
        change(spec);
        const auto problems = problems_of(spec);
        return problems.empty() ? std::string() : problems.front();
    };
    for (const auto& change : std::vector<std::function<void(PacketSpec&)>>{
             [](PacketSpec& s) { s.queues.pfc = true; }, [](PacketSpec& s) { s.queues.size = 1e6; },
             [](PacketSpec& s) { s.queues.shared = 1e6; }, [](PacketSpec& s) { s.queues.trim = true; },
             [](PacketSpec& s) { s.bit_error_rate = 1e-9; }, [](PacketSpec& s) { s.link_events = "some.csv"; }}) {
        CHECK(refused(change).find("links with credits lose nothing") != std::string::npos);
    }
}
