// Classes of traffic against closed forms: shares by weight, strict priority, pauses, marks and room of one class alone.

#include "tests/support/packets.hpp"

#include <doctest/doctest.h>

using namespace orrery;
using packet::Network;

namespace {

constexpr std::uint64_t kMtu = 4096;
constexpr double kPacket = 83.2e3;  // ps, of 4160 B at 50 GB/s

ClassSpec named(const std::string& name, double weight = 1, bool strict = false) {
    ClassSpec out;
    out.name = name;
    out.weight = weight;
    out.strict = strict;
    return out;
}

PacketSpec with(const std::vector<ClassSpec>& classes, const std::string& transport = "{kind: ideal}") {
    PacketSpec spec;
    spec.paths.policy.choose("ecmp");
    spec.transport = test::transport(transport);
    spec.classes = classes;
    return spec;
}

struct Sent {
    std::uint32_t from;
    std::uint32_t to;
    std::uint64_t packets;
    std::uint8_t traffic_class;
};

struct Outcome {
    std::vector<std::int64_t> done;  ///< ps
    PacketStatistics statistics;
};

Outcome run_case(const PacketSpec& spec, const FabricShape& shape, const std::vector<Sent>& all,
                 const std::vector<TimedFault>& events = {}) {
    const Fabric fabric(shape);
    Network network(fabric, spec, 1);
    for (const TimedFault& event : events) {
        network.add_link_event(event);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        network.send({GpuId(all[i].from), GpuId(all[i].to), all[i].packets * kMtu, 0, i, 0, 0, all[i].traffic_class});
    }
    Outcome out{test::finish(network, all.size()), network.statistics()};
    CHECK(network.conserved());
    return out;
}

FabricShape leaf(std::uint32_t hosts) {
    return test::hosts(hosts, hosts, 1, 50e9, 500e-9);
}

}  // namespace

TEST_CASE("packet classes: a NIC and a switch's port share a link by the weights, to 1 %") {
    for (const bool at_switch : {false, true}) {
        for (const char* transport : {"{kind: ideal}", "{kind: window}"}) {
            CAPTURE(at_switch);
            CAPTURE(transport);
            // Each has as much as its weight: all end together. From one host, or from three to one.
            const std::vector<Sent> even = {{0, 3, 6000, 0},
                                            {at_switch ? 1U : 0U, at_switch ? 3U : 2U, 2000, 1},
                                            {at_switch ? 2U : 0U, at_switch ? 3U : 1U, 1000, 2}};
            const Outcome all = run_case(with({named("a", 6), named("b", 2), named("c", 1)}, transport), leaf(4), even);
            for (const std::int64_t done : all.done) {
                CHECK(static_cast<double>(done) == doctest::Approx(9000 * kPacket).epsilon(0.01));
            }
            // What one leaves is shared by the others as their weights say.
            const std::vector<Sent> uneven = {{0, 3, 1500, 0},
                                              {at_switch ? 1U : 0U, at_switch ? 3U : 2U, 2000, 1},
                                              {at_switch ? 2U : 0U, at_switch ? 3U : 1U, 2000, 2}};
            const Outcome two =
                run_case(with({named("a", 6), named("b", 2), named("c", 1)}, transport), leaf(4), uneven);
            CHECK(static_cast<double>(two.done[0]) == doctest::Approx(1500 * kPacket * 9 / 6).epsilon(0.01));
            CHECK(static_cast<double>(two.done[1]) == doctest::Approx((2250 + 1500 * 3 / 2) * kPacket).epsilon(0.01));
            CHECK(static_cast<double>(two.done[2]) == doctest::Approx(5500 * kPacket).epsilon(0.01));
        }
    }
}

TEST_CASE("packet classes: a strict class takes the time that it takes alone, up to a packet a hop") {
    const FabricShape shape = test::hosts(8, 4, 1, 50e9, 500e-9);
    const std::vector<Sent> mine = {{0, 5, 1000, 0}};
    const std::vector<ClassSpec> classes = {named("urgent", 1, true), named("bulk")};
    const Outcome alone = run_case(with(classes), shape, mine);
    std::vector<Sent> all = mine;
    for (const std::uint32_t from : {0U, 1U, 2U}) {
        all.push_back({from, 5, 2000, 1});
    }
    const Outcome beside = run_case(with(classes), shape, all);
    CHECK(beside.done[0] >= alone.done[0]);
    CHECK(static_cast<double>(beside.done[0] - alone.done[0]) <= 4 * kPacket);
    // In one class it waits for them.
    CHECK(run_case(with({}), shape, all).done[0] > 2 * alone.done[0]);
}

TEST_CASE("packet classes: pauses of one class do not stop another") {
    const FabricShape shape = test::hosts(8, 4, 1, 50e9, 500e-9);
    ClassSpec storage = named("storage");
    storage.pfc = true;
    PacketSpec spec = with({storage, named("training")}, "{kind: roce, dcqcn: false, timeout: 50 ms}");
    spec.link_events = "given directly";
    const std::vector<TimedFault> storm = {{0, {FaultKind::pause, {Place::What::nic, 7, 0}}},
                                           {2e-3, {FaultKind::pause, {Place::What::nic, 7, 0}}, true}};
    // All over the one spine: to the NIC that pauses, and past it.
    const std::vector<Sent> all = {{0, 7, 1000, 0}, {1, 6, 1000, 1}};
    const Outcome two = run_case(spec, shape, all, storm);
    CHECK(two.done[0] > 2'000'000'000);
    CHECK(static_cast<double>(two.done[1]) < 1100 * kPacket);
    CHECK(two.statistics.drops == 0);
    CHECK(two.statistics.pause_s > 2e-3);
    spec.classes[1].pfc = true;
    const Outcome each = run_case(spec, shape, all, storm);  // a queue for each is enough
    CHECK(each.done[1] < 200'000'000);
    spec.classes.resize(1);
    std::vector<Sent> one = all;
    one[1].traffic_class = 0;
    CHECK(run_case(spec, shape, one, storm).done[1] > 2'000'000'000);
}

TEST_CASE("packet classes: marks, room and shared memory are those of the class") {
    ClassSpec marked = named("marked");
    marked.mark_low = marked.mark_high = 20 * 4160;
    const std::vector<Sent> incast = {{0, 3, 200, 0}, {1, 3, 200, 0}, {0, 3, 200, 1}, {1, 3, 200, 1}};
    const Outcome marks = run_case(with({marked, named("plain")}), leaf(4), incast);
    CHECK(marks.statistics.ecn_marks > 100);
    CHECK(marks.statistics.ecn_marks <= 400);
    CHECK(run_case(with({named("marked"), named("plain")}), leaf(4), incast).statistics.ecn_marks == 0);

    ClassSpec shallow = named("shallow");
    shallow.size = 8 * 4160;
    const PacketSpec lossy = with({shallow, named("deep")}, "{kind: window}");
    const Outcome deep = run_case(lossy, leaf(4), {{0, 3, 400, 1}, {1, 3, 400, 1}, {2, 3, 400, 1}});
    CHECK(deep.statistics.drops == 0);
    const Outcome drops = run_case(lossy, leaf(4), {{0, 3, 400, 0}, {1, 3, 400, 0}, {2, 3, 400, 0}});
    CHECK(drops.statistics.drops > 0);
    CHECK(drops.statistics.retransmissions >= drops.statistics.drops);

    // Alpha of a class: what it may hold of the memory that is left.
    PacketSpec memory = with({named("little"), named("much")}, "{kind: window}");
    memory.queues.shared = 64 * 4160;
    memory.classes[0].alpha = 0.125;
    memory.classes[1].alpha = 8;
    const Outcome little = run_case(memory, leaf(4), {{0, 3, 400, 0}, {1, 3, 400, 0}, {2, 3, 400, 0}});
    const Outcome much = run_case(memory, leaf(4), {{0, 3, 400, 1}, {1, 3, 400, 1}, {2, 3, 400, 1}});
    CHECK(little.statistics.drops > 0);
    CHECK(little.statistics.max_queue_bytes < 12 * 4160);
    CHECK(much.statistics.max_queue_bytes > 2 * little.statistics.max_queue_bytes);
}

TEST_CASE("packet classes: one class is none") {
    const FabricShape shape = test::hosts(8, 4, 2, 50e9, 500e-9);
    std::vector<Sent> all;
    for (std::uint32_t i = 0; i < 8; ++i) {
        all.push_back({i, (i + 3) % 8, 300, 0});
    }
    for (const char* transport : {"{kind: ideal}", "{kind: nscc}", "{kind: roce}"}) {
        CAPTURE(transport);
        PacketSpec spec = with({}, transport);
        spec.queues.mark_low = spec.queues.mark_high = 20 * 4160;
        const Outcome none = run_case(spec, shape, all);
        spec.classes.emplace_back(spec.queues);
        spec.classes.back().name = "all";
        const Outcome one = run_case(spec, shape, all);
        CHECK(none.done == one.done);
        CHECK(none.statistics.events == one.statistics.events);
        CHECK(none.statistics.ecn_marks == one.statistics.ecn_marks);
        // Two of which one is empty take as long, where nobody has a queue of his own to wait in.
        spec.classes.push_back(named("empty"));
        const Outcome two = run_case(spec, shape, all);
        CHECK(two.statistics.packets_delivered == none.statistics.packets_delivered);
    }
}

TEST_CASE("packet classes: every transport that knows queues brings all home in each class") {
    const FabricShape shape = test::hosts(16, 4, 4, 50e9, 500e-9);
    std::vector<Sent> all;
    for (std::uint32_t i = 0; i < 48; ++i) {
        all.push_back({i % 16, (i * 7 + 5) % 16 == i % 16 ? (i + 1) % 16 : (i * 7 + 5) % 16, 100 + i,
                       static_cast<std::uint8_t>(i % 3)});
    }
    for (const auto* row : packet::transport_table()) {
        CAPTURE(row->name);
        PacketSpec spec =
            with({named("a", 1, true), named("b", 3), named("c", 1)}, std::string("{kind: ") + row->name + "}");
        if (spec.transport.needs().telemetry) {
            CHECK(problems_of(spec).front().find("know ports with one queue") != std::string::npos);
            continue;
        }
        const Outcome out = run_case(spec, shape, all);
        std::uint64_t packets = 0;
        for (const Sent& one : all) {
            packets += one.packets;
        }
        CHECK(out.statistics.packets_delivered == packets);
    }
}

TEST_CASE("packet classes: what contradicts them is refused") {
    const auto said = [](const PacketSpec& spec) {
        std::string out;
        for (const std::string& line : problems_of(spec)) {
            out += line + "\n";
        }
        return out;
    };
    CHECK(said(with({named("a"), named("a")})).find("'a' is there twice") != std::string::npos);
    CHECK(said(with(std::vector<ClassSpec>(16))).find("at most 15 classes") != std::string::npos);
    PacketSpec skips = with({named("a"), named("b")});
    skips.skip_error = 0.01;
    CHECK(said(skips).find("know ports with one queue") != std::string::npos);
    const Fabric two_leaves(test::hosts(8, 4, 1, 50e9, 500e-9));
    CHECK_THROWS_WITH_AS(Network(two_leaves, with({named("a"), named("b")}), 1, false, 2),
                         doctest::Contains("threads cannot share a network with classes"), ConfigError);
}
