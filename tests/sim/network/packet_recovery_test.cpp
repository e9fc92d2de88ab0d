// Losses and what is sent again: go-back-N and selective acknowledgements, on one path and on many, by closed forms.

#include "tests/support/packets.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace orrery;
using packet::Network;

namespace {

constexpr std::uint64_t kMtu = 4096;
constexpr double kFull = 4160 / 50e9 * 1e12;  // ps on a link
constexpr double kHeader = 64 / 50e9 * 1e12;  // ps
constexpr double kLatency = 500e3;            // ps
constexpr double kFrom = 100;                 // number of the packet that is lost
constexpr std::uint64_t kPackets = 2000;

struct Outcome {
    double last = 0;  ///< ps
    PacketStatistics statistics;
};

// A message from host 0, of whose packets the one is lost that arrives at the first leaf at this time, ps. Less than 0: none.
Outcome losing(const FabricShape& shape, const PacketSpec& wanted, std::uint32_t to, std::uint64_t packets, double at) {
    const Fabric fabric(shape);
    PacketSpec spec = wanted;
    spec.link_events = "given directly";
    Network network(fabric, spec, 1);
    if (at >= 0) {
        network.add_link_event({(at - 500) * 1e-12, {FaultKind::bit_errors, {Place::What::nic, 0, 0}}});
        network.add_link_event({(at + 500) * 1e-12, {FaultKind::bit_errors, {Place::What::nic, 0, 0}, 0}});
    }
    network.send({GpuId(0), GpuId(to), packets * kMtu, 0, 0});
    const double last = static_cast<double>(test::finish(network, 1)[0]);
    CHECK(network.conserved());
    CHECK(network.statistics().corrupted == (at >= 0 ? 1 : 0));
    return {last, network.statistics()};
}

FabricShape leaf_spine() {
    return test::hosts(16, 8, 4, 50e9, 500e-9);
}

PacketSpec spec_of(const std::string& transport, const std::string& paths) {
    PacketSpec spec;
    spec.paths = test::paths(paths);
    spec.transport = test::transport(transport);
    return spec;
}

// When packet `number` of a message arrives at the first leaf.
double arrival(double number) {
    return (number + 1) * kFull + kLatency;
}

}  // namespace

TEST_CASE("recovery: after one loss go-back-N sends a round trip of packets again, selective the lost one") {
    // The next packet's arrival at its host, two links further, sends the report back over two links.
    const double report = arrival(kFrom + 1) + kFull + kLatency + 2 * (kHeader + kLatency);
    const double left = std::floor(report / kFull) + 1;  // packets that have begun to leave by then
    const double clean =
        losing(leaf_spine(), spec_of("{kind: roce, dcqcn: false}", "{kind: ecmp}"), 1, kPackets, -1).last;
    CHECK(clean == doctest::Approx((kPackets + 1) * kFull + 2 * kLatency).epsilon(1e-9));

    const Outcome back =
        losing(leaf_spine(), spec_of("{kind: roce, dcqcn: false}", "{kind: ecmp}"), 1, kPackets, arrival(kFrom));
    CHECK(back.statistics.retransmissions == static_cast<std::uint64_t>(left - kFrom));
    CHECK(back.last == doctest::Approx(clean + (left - kFrom) * kFull).epsilon(1e-9));
    CHECK(back.statistics.timeouts == 0);

    const Outcome selective =
        losing(leaf_spine(), spec_of("{kind: roce, dcqcn: false, recovery: selective}", "{kind: ecmp}"), 1, kPackets,
               arrival(kFrom));
    CHECK(selective.statistics.retransmissions == 1);
    CHECK(selective.last == doctest::Approx(clean + kFull).epsilon(1e-9));
    CHECK(selective.statistics.timeouts == 0);
}

TEST_CASE("recovery: on sprayed paths one loss costs one packet and no timeout") {
    for (const char* paths : {"{kind: oblivious}", "{kind: round-robin}"}) {
        for (const char* transport :
             {"{kind: window, window: 1 MB}", "{kind: window, window: 1 MB, reorder_time: 1 us}"}) {
            CAPTURE(paths);
            CAPTURE(transport);
            const double clean = losing(leaf_spine(), spec_of(transport, paths), 9, kPackets, -1).last;
            const Outcome out = losing(leaf_spine(), spec_of(transport, paths), 9, kPackets, arrival(kFrom));
            CHECK(out.statistics.retransmissions == 1);
            CHECK(out.statistics.timeouts == 0);
            CHECK(out.last <= clean + 2 * kFull);
        }
    }
    // By packets beyond the gap, as on one path.
    const Outcome counted =
        losing(leaf_spine(), spec_of("{kind: window, window: 1 MB, reorder: 64}", "{kind: oblivious}"), 9, kPackets,
               arrival(kFrom));
    CHECK(counted.statistics.timeouts == 0);
}

TEST_CASE("recovery: where nothing can be lost no wait is long enough for a timeout") {
    // 63 windows stand in one queue for many round trips, before anybody has heard how long it takes.
    const Fabric fabric(test::hosts(64, 8, 8, 50e9, 500e-9));
    for (const char* transport : {"{kind: window}", "{kind: window, timeout: 20 us}"}) {
        const bool given = std::string(transport).find("timeout") != std::string::npos;
        Network network(fabric, spec_of(transport, "{kind: oblivious}"), 1);
        for (std::uint32_t i = 1; i < 64; ++i) {
            network.send({GpuId(i), GpuId(0), 200 * kMtu, 0, i - 1});
        }
        const std::vector<std::int64_t> ends = test::finish(network, 63);
        const double last = static_cast<double>(*std::max_element(ends.begin(), ends.end()));
        CAPTURE(transport);
        CHECK((network.statistics().retransmissions == 0) == !given);
        CHECK((network.statistics().timeouts == 0) == !given);
        if (!given) {
            CHECK(last == doctest::Approx(63 * 200 * kFull).epsilon(0.005));
        }
    }
}

TEST_CASE("recovery: next to nothing that only waits is sent again, however unlike the queues of sprayed paths") {
    const auto again = [](const std::string& paths) {
        const Fabric fabric(test::hosts(32, 8, 4, 50e9, 500e-9));
        PacketSpec spec = spec_of("{kind: window}", paths);
        spec.bit_error_rate = 1e-15;  // losses are looked for, and there are none
        Network network(fabric, spec, 1);
        for (std::uint32_t i = 0; i < 32; ++i) {
            network.send({GpuId(i), GpuId((i + 8) % 32), 500 * kMtu, 0, i});
        }
        (void)test::finish(network, 32);
        CHECK(network.statistics().corrupted == 0);
        return network.statistics().retransmissions;
    };
    CHECK(again("{kind: oblivious}") == 0);
    CHECK(again("{kind: round-robin}") == 0);
    // Three paths of a flow, of which one may carry twice what another does: a few packets of a flow until it has learnt.
    CHECK(again("{kind: oblivious, entropies: 3}") < 32 * 500 / 100);
}

TEST_CASE("recovery: a flow that hears nothing waits for eight round trips of its own path") {
    FabricShape pods = test::hosts(16, 4, 4, 50e9, 500e-9);
    pods.kind = FabricKind::fat_tree;
    pods.leaf_groups_per_pod = 2;
    pods.cores_per_spine = 2;
    for (const auto& [to, links] : {std::pair(1U, 2.0), std::pair(5U, 4.0), std::pair(9U, 6.0)}) {
        CAPTURE(to);
        const double one_way = links * (kFull + kLatency);
        const double round_trip = one_way + links * (kHeader + kLatency);
        for (const char* recovery : {"go-back-n", "selective"}) {
            const PacketSpec spec = spec_of(std::string("{kind: window, recovery: ") + recovery + "}", "{kind: ecmp}");
            const Outcome out = losing(pods, spec, to, 1, arrival(0));
            CHECK(out.last == doctest::Approx(8 * round_trip + one_way).epsilon(1e-6));
        }
    }
    // Behind queues that may take longer to drain than that, as long as they take there and back.
    PacketSpec deep = spec_of("{kind: window, recovery: selective}", "{kind: ecmp}");
    deep.queues.size = 4e6;
    const double drain = 4e6 / 50e9 * 1e12;
    const double one_way = 4 * (kFull + kLatency);
    const double round_trip = one_way + 4 * (kHeader + kLatency);
    CHECK(losing(pods, deep, 5, 1, arrival(0)).last ==
          doctest::Approx(round_trip + 2 * 3 * drain + one_way).epsilon(1e-6));
}

TEST_CASE("recovery: settings that cannot work together are named") {
    const auto problem = [](const std::string& transport, const std::string& paths) {
        const std::vector<std::string> found = problems_of(spec_of(transport, paths));
        return found.empty() ? "" : found.front();
    };
    CHECK(problem("{kind: roce, reorder: 3}", "{kind: ecmp}").find("go-back-n takes the first") == 0);
    CHECK(problem("{kind: roce, recovery: selective, reorder: 3}", "{kind: ecmp}").empty());
    CHECK(problem("{kind: window, reorder_time: 1 us}", "{kind: ecmp}").find("transport.reorder_time is for many") ==
          0);
    CHECK(
        problem("{kind: window, reorder_time: 1 us, reorder: 3}", "{kind: oblivious}").find("transport.reorder and") ==
        0);
    CHECK(
        problem("{kind: window, recovery: go-back-n}", "{kind: oblivious}").find("go-back-n needs packets in order") ==
        0);
}
