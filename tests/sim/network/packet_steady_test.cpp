#include "tests/support/packets.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace orrery;
using packet::Network;

namespace {

constexpr double kTolerance = 0.005;

struct Done {
    std::vector<std::int64_t> at;  ///< ps, by message
    PacketStatistics statistics;
    double payload = 0;

    [[nodiscard]] double mean() const {
        double sum = 0;
        for (const std::int64_t one : at) {
            sum += static_cast<double>(one);
        }
        return sum / static_cast<double>(at.size());
    }
    [[nodiscard]] double p99() const {
        std::vector<std::int64_t> sorted = at;
        std::sort(sorted.begin(), sorted.end());
        return static_cast<double>(sorted[(sorted.size() - 1) * 99 / 100]);
    }
};

struct Sent {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::uint64_t bytes = 0;
    std::int64_t at = 0;  ///< ps
};

Done run_case(PacketSpec spec, const std::vector<Sent>& messages, double tolerance, std::uint32_t hosts = 16) {
    spec.skip_error = tolerance;
    const Fabric fabric(test::hosts(hosts, 8, 8, 50e9, 500e-9));
    Network network(fabric, spec, 1);
    Done out;
    out.at.resize(messages.size(), -1);
    std::size_t next = 0;
    std::size_t left = messages.size();
    while (left > 0) {
        for (; next < messages.size() && messages[next].at <= network.now(); ++next) {
            const Sent& one = messages[next];
            network.send({GpuId(one.from), GpuId(one.to), one.bytes, 0, next});
        }
        const std::int64_t limit = next < messages.size() ? messages[next].at : packet::Wheel::kNever - 1;
        network.run(limit);
        for (const std::uint64_t token : network.completed()) {
            out.at[token] = network.now() - messages[token].at;
            --left;
        }
        if (network.completed().empty()) {
            REQUIRE(next < messages.size());
            network.advance(limit);
        }
    }
    while (network.next_time() != packet::Wheel::kNever) {
        network.run(packet::Wheel::kNever - 1);
    }
    CHECK(network.conserved());
    out.statistics = network.statistics();
    out.payload = network.payload_delivered();
    return out;
}

PacketSpec spec_of(const std::string& transport, const std::string& paths) {
    PacketSpec spec;
    spec.transport = test::transport(transport);
    spec.paths = test::paths("{kind: " + paths + "}");
    return spec;
}

// With and without skipping: the same times within the tolerance, the same bytes, and fewer events by `factor` at least.
void compare(const PacketSpec& spec, const std::vector<Sent>& messages, double factor, std::uint32_t hosts = 16) {
    const Done exact = run_case(spec, messages, 0, hosts);
    const Done skipped = run_case(spec, messages, kTolerance, hosts);
    CHECK(exact.statistics.skipped == 0);
    CHECK(skipped.payload == exact.payload);
    CHECK(skipped.statistics.packets_delivered == exact.statistics.packets_delivered);
    CHECK(std::abs(skipped.mean() / exact.mean() - 1) < kTolerance);
    CHECK(std::abs(skipped.p99() / exact.p99() - 1) < kTolerance);
    CHECK(skipped.statistics.skip_error <= kTolerance);
    const auto hops = static_cast<double>(exact.statistics.packet_hops);
    CHECK(std::abs(static_cast<double>(skipped.statistics.packet_hops) / hops - 1) < 0.001);
    CHECK(static_cast<double>(exact.statistics.events) > factor * static_cast<double>(skipped.statistics.events));
}

const std::vector<std::string> kTransports = {
    "{kind: ideal}",
    "{kind: window}",
    "{kind: roce}",
    "{kind: swift}",
    "{kind: timely}",
    "{kind: nscc}",
    "{kind: receiver-driven}",
    "{kind: multipath}",
    "{kind: dctcp}",
    "{kind: cubic}",
    "{kind: rccc}",
    "{kind: hpcc}",
    "{kind: strack}",
    "{kind: mp-rdma, mp_rdma_window: 1000}",  // as large as it gets: it grows unseen
    "{kind: falcon}",
    "{kind: srd}",
    "{kind: infiniband}",
    "{kind: roce, dcqcn: false}",
    "{kind: multipath, receiver_credits: true}"};

}  // namespace

TEST_CASE("a long flow alone, skipped: its completion time is that of its packets, for each transport") {
    CHECK(kTransports.size() >= packet::transport_table().size());
    for (const std::string& transport : kTransports) {
        INFO(transport);
        constexpr std::uint64_t kPackets = 100'000;
        const PacketSpec spec = spec_of(transport, "ecmp");
        const Done done = run_case(spec, {{0, 9, kPackets * 4096}}, kTolerance);
        const Done exact = run_case(spec, {{0, 9, kPackets * 4096}}, 0);
        CHECK(std::abs(done.mean() / exact.mean() - 1) < kTolerance);
        CHECK(done.payload == exact.payload);
        CHECK(done.statistics.packet_hops == 4 * kPackets);
        if (transport != "{kind: hpcc}" && transport != "{kind: timely}") {
            // At line rate: its packets one after the other, and the last one's way.
            const double alone = (kPackets + 3) * 4160 * 20.0 + 4 * 500e3;
            CHECK(done.mean() == doctest::Approx(alone).epsilon(kTolerance));
        }
        CHECK(done.statistics.skipped > kPackets * 8 / 10);
        CHECK(done.statistics.events * 8 < exact.statistics.events);
    }
}

TEST_CASE("a long flow alone over paths that its transport clocks or has windows for, skipped") {
    for (const auto& [transport, paths] :
         {std::pair("{kind: mp-rdma, mp_rdma_window: 1000}", "clocked"), {"{kind: falcon}", "windowed"}}) {
        INFO(transport);
        constexpr std::uint64_t kPackets = 100'000;
        const PacketSpec spec = spec_of(transport, paths);
        const Done done = run_case(spec, {{0, 9, kPackets * 4096}}, kTolerance);
        const Done exact = run_case(spec, {{0, 9, kPackets * 4096}}, 0);
        CHECK(std::abs(done.mean() / exact.mean() - 1) < kTolerance);
        CHECK(done.payload == exact.payload);
        CHECK(static_cast<double>(done.statistics.packet_hops) == doctest::Approx(4.0 * kPackets).epsilon(1e-4));
        CHECK(done.statistics.skipped > kPackets * 8 / 10);
    }
}

TEST_CASE("flows to one receiver share its link, skipped or not") {
    for (const std::string transport : {"{kind: window}", "{kind: multipath}", "{kind: nscc}", "{kind: rccc}",
                                        "{kind: receiver-driven}", "{kind: ideal}"}) {
        INFO(transport);
        std::vector<Sent> messages;
        for (std::uint32_t i = 1; i <= 4; ++i) {
            messages.push_back({7 + i, 0, 20'000 * 4096});
        }
        PacketSpec spec = spec_of(transport, "ecmp");
        const Done exact = run_case(spec, messages, 0);
        const Done done = run_case(spec, messages, kTolerance);
        CHECK(std::abs(done.p99() / exact.p99() - 1) < kTolerance);
        CHECK(std::abs(done.mean() / exact.mean() - 1) < kTolerance);
        CHECK(done.p99() == doctest::Approx(4 * 20'000 * 4160 * 20.0).epsilon(0.01));
        // Where all send at line rate their queue grows: nothing of that is steady.
        CHECK((done.statistics.skipped > 0) == (transport != "{kind: ideal}"));
    }
}

TEST_CASE(
    "a permutation, sprayed or planned, and steps of a ring: times as without skipping, a fraction of the events") {
    std::vector<Sent> permutation;
    std::vector<Sent> ring;
    for (std::uint32_t i = 0; i < 32; ++i) {
        permutation.push_back({i, (i + 11) % 32, 64U << 20});
        ring.push_back({i, (i + 1) % 32, 32U << 20});
    }
    compare(spec_of("{kind: multipath}", "spray"), permutation, 5, 32);
    compare(spec_of("{kind: nscc}", "spray"), permutation, 5, 32);
    compare(spec_of("{kind: window}", "planned"), permutation, 5, 32);
    compare(spec_of("{kind: multipath}", "spray"), ring, 4, 32);
}

TEST_CASE("a flow that starts in the middle ends a skip, and those that it shares no ports with go on") {
    for (const std::string& transport : kTransports) {
        INFO(transport);
        const PacketSpec spec = spec_of(transport, "ecmp");
        // The second flow comes to the first one's receiver, from its leaf; the third is elsewhere.
        const std::vector<Sent> messages = {
            {1, 0, 40'000 * 4096}, {2, 3, 40'000 * 4096}, {4, 0, 400 * 4096, 1'000'000'000}};
        const Done exact = run_case(spec, messages, 0);
        const Done done = run_case(spec, messages, kTolerance);
        for (std::size_t i = 0; i < messages.size(); ++i) {
            CAPTURE(i);
            // The short one sees another phase of the long one's packets and windows.
            CHECK(std::abs(static_cast<double>(done.at[i]) / static_cast<double>(exact.at[i]) - 1) <
                  (i == 2 ? 0.05 : kTolerance));
        }
        CHECK(done.statistics.skipped > 0);
    }
}

TEST_CASE("messages that begin as others did are held sooner than they could be judged") {
    // One after the other, between other hosts each time, with the same neighbourhood: all but the first are known.
    std::vector<Sent> messages;
    for (std::uint32_t i = 0; i < 8; ++i) {
        messages.push_back({i, 8 + i, 2000 * 4096, i * 1'000'000'000});
    }
    const PacketSpec spec = spec_of("{kind: multipath}", "spray");
    const Done exact = run_case(spec, messages, 0);
    const Done done = run_case(spec, messages, kTolerance);
    const Done first = run_case(spec, {messages.front()}, kTolerance);
    for (std::size_t i = 0; i < messages.size(); ++i) {
        CHECK(std::abs(static_cast<double>(done.at[i]) / static_cast<double>(exact.at[i]) - 1) < kTolerance);
    }
    CHECK(done.payload == exact.payload);
    CHECK(first.statistics.skipped > 0);
    CHECK(done.statistics.skipped > 8 * first.statistics.skipped);
    CHECK(done.statistics.events < 8 * first.statistics.events);
    CHECK(std::abs(static_cast<double>(done.statistics.packet_hops) -
                   static_cast<double>(exact.statistics.packet_hops)) < 8 * 8);
    CHECK(static_cast<double>(done.statistics.control_hops) ==
          doctest::Approx(static_cast<double>(exact.statistics.control_hops)).epsilon(0.02));
}

TEST_CASE(
    "all-to-alls and steps between leaves, whose flows are steady together only: times within the error that is told") {
    std::vector<Sent> exchange;
    std::vector<Sent> step;
    constexpr std::uint32_t kHosts = 128;
    for (std::uint32_t i = 0; i < kHosts; ++i) {
        step.push_back({i, (i + kHosts / 2) % kHosts, 32U << 20});
        for (std::uint32_t k = 1; k < kHosts / 4; ++k) {
            exchange.push_back({i, (i + k) % kHosts, 1U << 20});
        }
    }
    for (const std::vector<Sent>& messages : {exchange, step}) {
        CAPTURE(messages.size());
        const PacketSpec spec = spec_of("{kind: multipath}", "spray");
        const Done exact = run_case(spec, messages, 0, kHosts);
        const Done done = run_case(spec, messages, kTolerance, kHosts);
        const auto of = [](const Done& one) {
            return static_cast<double>(*std::max_element(one.at.begin(), one.at.end()));
        };
        CHECK(done.payload == exact.payload);
        CHECK(done.statistics.skipped * 2 > done.statistics.packets_delivered);
        CHECK(done.statistics.events * 2 < exact.statistics.events);
        CHECK(std::abs(done.mean() / exact.mean() - 1) < done.statistics.skip_error);
        CHECK(std::abs(done.p99() / exact.p99() - 1) < done.statistics.skip_error);
        CHECK(std::abs(of(done) / of(exact) - 1) < done.statistics.skip_error);
        CHECK(done.statistics.skip_error <= kTolerance);
        CHECK(static_cast<double>(done.statistics.packet_hops) ==
              doctest::Approx(static_cast<double>(exact.statistics.packet_hops)).epsilon(0.001));
    }
    // Over hashed paths some queues grow as long as it lasts: nothing of that is steady.
    CHECK(run_case(spec_of("{kind: multipath}", "ecmp"), exchange, kTolerance, kHosts).statistics.skipped == 0);
}

TEST_CASE("the error that is told is never more than the one that is allowed") {
    RandomStream random(5, "skip");
    std::uint64_t skipped = 0;
    for (const double tolerance : {0.0005, 0.002, 0.005, 0.02}) {
        for (int round = 0; round < 6; ++round) {
            // Messages that come one after the other, or in crowds, and cut each other's steady stretches short.
            std::vector<Sent> messages;
            const std::uint64_t crowd = 1 + random.below(24);
            std::int64_t at = 0;
            for (std::uint64_t i = 0; i < 24; ++i) {
                at += i % crowd == 0 ? static_cast<std::int64_t>(random.below(200'000'000)) : 0;
                const auto from = static_cast<std::uint32_t>(random.below(16));
                const auto to = static_cast<std::uint32_t>((from + 1 + random.below(15)) % 16);
                messages.push_back({from, to, (1 + random.below(40)) << 18U, at});
            }
            const PacketSpec spec = spec_of(kTransports[random.below(kTransports.size())], "ecmp");
            const Done done = run_case(spec, messages, tolerance);
            INFO(spec.transport.policy.name() << " " << tolerance << " " << round);
            CHECK(done.statistics.skip_error <= tolerance);
            skipped += done.statistics.skipped;
        }
    }
    CHECK(skipped > 0);
    // Steps of few packets each, of which each begins as the ones before: what rounding adds to each is most of it.
    std::vector<Sent> steps;
    for (std::uint32_t i = 0; i < 40; ++i) {
        steps.push_back({i % 16, (i + 8) % 16, std::uint64_t{700} * 4096, std::int64_t{i} * 500'000'000});
    }
    const Done done = run_case(spec_of("{kind: window}", "ecmp"), steps, 0.001);
    CHECK(done.statistics.skip_error <= 0.001);
}

TEST_CASE("groups have one key where the names of their ports alone differ") {
    const Fabric fabric(test::hosts(16, 8, 8, 50e9, 500e-9));
    const auto transport = spec_of("{kind: window}", "ecmp").transport.policy.make();
    const auto chooser = spec_of("{kind: window}", "ecmp").paths.policy.make();
    const packet::Setup setup(fabric, spec_of("{kind: window}", "ecmp"), false, *transport, *chooser);
    packet::Clock clock;
    packet::Slab slab;
    const packet::Parts whole;
    packet::Border border(setup, whole, 0);
    packet::Flows flows(setup, slab, true);
    packet::Ports ports(setup, border, clock, slab, flows, 1);
    packet::Routing routing(setup, ports, *chooser);
    packet::Sharing sharing(setup, ports, routing);
    const packet::Phases phases(ports);
    const auto ways = [&](std::uint32_t from, std::uint32_t to, std::uint32_t lane) {
        packet::Flow flow;
        flow.source = from;
        flow.destination = to;
        flow.path.entropy = setup.paths.entropy(lane, 0);
        return sharing.ways_of(flow);
    };
    const auto key = [&](const std::vector<packet::Sharing::Ways>& all, double limit = 0) {
        std::vector<packet::Phases::Begun> begun;
        for (const packet::Sharing::Ways& one : all) {
            begun.push_back({&one, limit});
        }
        return phases.key_of(begun, sharing);
    };
    const packet::Sharing::Ways across = ways(0, 9, 3);
    CHECK(across.there.size() == 4);
    CHECK(across.back.size() == 4);
    CHECK(key({across}) == key({ways(12, 2, 5)}));
    CHECK(key({across}) != key({ways(0, 1, 3)}));  // within a leaf
    CHECK(key({across}) != key({across}, 1e9));
    // Two that meet on a spine are not two that do not.
    CHECK(key({across, ways(1, 10, 3)}) == key({ways(4, 11, 7), ways(6, 12, 7)}));
    CHECK(key({across, ways(1, 10, 3)}) != key({across, ways(1, 10, 4)}));
}

TEST_CASE("the wheel gives up the events of those who are named, and pops all others as before") {
    packet::Wheel wheel(1000, 1'000'000);
    std::uint64_t state = 1;
    const auto draw = [&](std::uint64_t below) {
        state = mix64(state);
        return state % below;
    };
    std::vector<packet::Wheel::Pending> all;
    const auto insert = [&](std::int64_t from, int count) {
        for (int i = 0; i < count; ++i) {
            const auto time = from + static_cast<std::int64_t>(draw(i % 7 == 0 ? 50'000'000 : 900'000));
            const auto entity = static_cast<std::uint32_t>(draw(1000));
            wheel.insert(entity, time);
            all.push_back({time, entity});
        }
    };
    const auto before = [](const packet::Wheel::Pending& a, const packet::Wheel::Pending& b) {
        return a.time != b.time ? a.time < b.time : a.entity < b.entity;
    };
    insert(0, 3000);
    std::sort(all.begin(), all.end(), before);
    std::int64_t time = 0;
    for (int i = 0; i < 500; ++i) {
        time = wheel.pop().time;
        CHECK(time == all[static_cast<std::size_t>(i)].time);
    }
    all.erase(all.begin(), all.begin() + 500);
    insert(time, 100);
    std::vector<packet::Wheel::Pending> taken;
    wheel.extract([](std::uint32_t one) { return one % 3 == 0; }, taken);
    std::vector<packet::Wheel::Pending> expected;
    std::copy_if(all.begin(), all.end(), std::back_inserter(expected),
                 [](const packet::Wheel::Pending& one) { return one.entity % 3 == 0; });
    std::erase_if(all, [](const packet::Wheel::Pending& one) { return one.entity % 3 == 0; });
    std::sort(all.begin(), all.end(), before);
    std::sort(taken.begin(), taken.end(), before);
    std::sort(expected.begin(), expected.end(), before);
    REQUIRE(taken.size() == expected.size());
    for (std::size_t i = 0; i < taken.size(); ++i) {
        CHECK(taken[i].time == expected[i].time);
        CHECK(taken[i].entity == expected[i].entity);
    }
    for (const packet::Wheel::Pending& one : all) {
        const packet::Wheel::Pending next = wheel.pop();
        CHECK(next.time == one.time);
        CHECK(next.entity == one.entity);
    }
    CHECK(wheel.pop().entity == packet::Wheel::kNobody);
}
