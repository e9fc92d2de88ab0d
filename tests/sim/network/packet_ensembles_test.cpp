// Transports against closed forms of traffic patterns at 128 and 1,024 hosts: what the links bound, and how hashes collide.
// Sources: Ultra Ethernet Specification 1.0 (NSCC, RCCC), Handley et al., SIGCOMM 2017 (NDP), Olteanu et al., NSDI 2022 (EQDS).

#include "tests/support/packets.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace orrery;
using packet::Network;

namespace {

constexpr double kPacket = 4160 * 20.0;  // ps, at 400 Gbps
constexpr double kLatency = 500e3;       // ps, a link

struct Pair {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
};

struct Case {
    std::string transport;
    std::string paths;
    bool trims = true;
    bool credits = false;  // a header for each packet, against the way of data
};

// RoCE and constant windows as they are deployed: planned or sprayed paths over queues that pause, or that have no limit.
const std::vector<Case> kCases = {{"{kind: nscc}", "{kind: oblivious}"},
                                  {"{kind: nscc}", "{kind: reps}"},
                                  {"{kind: rccc}", "{kind: oblivious}", true, true},
                                  {"{kind: receiver-driven}", "{kind: oblivious}", true, true},
                                  {"{kind: window}", "{kind: oblivious}", false},
                                  {"{kind: roce, dcqcn: false}", "{kind: planned}", false}};

struct Times {
    std::vector<double> each;  // ps
    std::uint64_t delivered = 0;
    [[nodiscard]] double mean() const {
        return std::accumulate(each.begin(), each.end(), 0.0) / static_cast<double>(each.size());
    }
    [[nodiscard]] double last() const { return *std::max_element(each.begin(), each.end()); }
};

Times run_case(const Case& one, const FabricShape& shape, const std::vector<Pair>& pairs, std::uint64_t packets) {
    PacketSpec spec;
    spec.transport = test::transport(one.transport);
    spec.paths = test::paths(one.paths);
    if (one.trims) {
        spec.queues.size = 266240;
        spec.queues.trim = true;
        spec.queues.mark_low = 54080;
        spec.queues.mark_high = 212160;
    } else if (one.transport.find("roce") != std::string::npos) {
        spec.queues.pfc = true;
    }
    const Fabric fabric(shape);
    Network network(fabric, spec, 1);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        network.send({GpuId(pairs[i].from), GpuId(pairs[i].to), packets * 4096, 0, i});
    }
    Times out;
    for (const std::int64_t at : test::finish(network, pairs.size())) {
        out.each.push_back(static_cast<double>(at));
    }
    out.delivered = network.statistics().packets_delivered;
    return out;
}

FabricShape fabric_of(std::uint32_t hosts) {
    const std::uint32_t per_leaf = hosts == 128 ? 16 : 32;
    return test::hosts(hosts, per_leaf, per_leaf, 50e9, 500e-9);
}

// A flow over so many links, with nobody beside it.
double alone(double packets, double links) {
    return (packets + links - 1) * kPacket + links * kLatency;
}

std::vector<Pair> permutation(std::uint32_t hosts, std::uint64_t seed) {
    RandomStream random(seed, "ensembles");
    std::vector<std::uint32_t> to(hosts);
    std::iota(to.begin(), to.end(), 0U);
    for (std::uint32_t i = hosts - 1; i > 0; --i) {
        std::swap(to[i], to[random.below(i)]);  // Sattolo: nobody sends to itself
    }
    std::vector<Pair> out;
    for (std::uint32_t i = 0; i < hosts; ++i) {
        out.push_back({i, to[i]});
    }
    return out;
}

}  // namespace

TEST_CASE("ensembles: a permutation over even paths takes each flow little longer than alone, none less") {
    for (const std::uint32_t hosts : {128U, 1024U}) {
        for (const Case& one : kCases) {
            CAPTURE(one.transport);
            CAPTURE(one.paths);
            CAPTURE(hosts);
            const Times times = run_case(one, fabric_of(hosts), permutation(hosts, 1), 512);
            CHECK(times.delivered == 512 * hosts);
            CHECK(*std::min_element(times.each.begin(), times.each.end()) >= alone(512, 2) - 1);
            CHECK(times.mean() <= (one.credits ? 1.12 : 1.1) * alone(512, 4));
            CHECK(times.last() <= 1.35 * alone(512, 4));
        }
    }
}

TEST_CASE("ensembles: a shift within leaves meets nobody, and takes what a flow alone does") {
    for (const std::uint32_t hosts : {128U, 1024U}) {
        const std::uint32_t per_leaf = hosts == 128 ? 16 : 32;
        std::vector<Pair> pairs;
        for (std::uint32_t i = 0; i < hosts; ++i) {
            pairs.push_back({i, i / per_leaf * per_leaf + (i + 1) % per_leaf});
        }
        for (const Case& one : kCases) {
            CAPTURE(one.transport);
            CAPTURE(one.paths);
            const Times times = run_case(one, fabric_of(hosts), pairs, 512);
            // Of each link acknowledgements take 64 bytes for four packets, and credits for each.
            CHECK(times.last() <= (one.credits ? 1.03 : 1.015) * alone(512, 2));
            CHECK(times.mean() >= alone(512, 2) - 1);
        }
    }
}

TEST_CASE("ensembles: an incast ends when its receiver's link has brought all, and that link is hardly ever idle") {
    for (const std::uint32_t hosts : {128U, 1024U}) {
        const std::uint32_t senders = hosts / 4;
        std::vector<Pair> pairs;
        for (std::uint32_t i = 0; i < senders; ++i) {
            pairs.push_back({hosts / 2 + i, 0});
        }
        for (const Case& one : kCases) {
            CAPTURE(one.transport);
            CAPTURE(one.paths);
            CAPTURE(hosts);
            const double bound = alone(static_cast<double>(senders) * 128, 4);
            const Times times = run_case(one, fabric_of(hosts), pairs, 128);
            CHECK(times.last() >= bound - 4 * kPacket);
            // NSCC's windows of a packet are more than the queue holds: what is trimmed goes again, its headers take their time.
            const bool trims = one.transport == "{kind: nscc}";
            CHECK(times.last() <= (trims ? 1.075 : 1.03) * bound);
        }
    }
}

TEST_CASE("ensembles: an all-to-all takes what each host has to send over its link, and little more") {
    constexpr std::uint32_t kHosts = 128;
    std::vector<Pair> pairs;
    for (std::uint32_t i = 0; i < kHosts; ++i) {
        for (std::uint32_t k = 1; k < kHosts; ++k) {
            pairs.push_back({i, (i + k) % kHosts});
        }
    }
    for (const Case& one : kCases) {
        CAPTURE(one.transport);
        CAPTURE(one.paths);
        const double bound = (kHosts - 1) * 8 * kPacket;
        const Times times = run_case(one, fabric_of(kHosts), pairs, 8);
        CHECK(times.last() >= bound);
        CHECK(times.last() <= 1.18 * bound);
    }
}

TEST_CASE("ensembles: as many hashed flows of a permutation meet nobody as balls that are alone in two bins") {
    constexpr std::uint32_t kHosts = 128;
    constexpr std::uint32_t kLeaf = 16;
    double expected = 0;
    double variance = 0;
    double found = 0;
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        const std::vector<Pair> pairs = permutation(kHosts, seed);
        // Where headers go first: acknowledgements behind the data of others would slow a flow down that meets nobody.
        FabricShape shape = fabric_of(kHosts);
        shape.hash_salt = seed;
        const Times times = run_case({"{kind: window}", "{kind: ecmp}"}, shape, pairs, 256);
        const auto crosses = [&](const Pair& one) { return one.from / kLeaf != one.to / kLeaf; };
        for (std::size_t i = 0; i < pairs.size(); ++i) {
            if (!crosses(pairs[i])) {
                continue;
            }
            // Others that could be on its link up or down: each is, if the hash says the same of sixteen spines.
            double others = 0;
            for (std::size_t j = 0; j < pairs.size(); ++j) {
                const bool up = pairs[j].from / kLeaf == pairs[i].from / kLeaf;
                const bool down = pairs[j].to / kLeaf == pairs[i].to / kLeaf;
                others += j != i && crosses(pairs[j]) && (up || down) ? 1 : 0;
            }
            const double share = std::pow(15.0 / 16, others);
            expected += share;
            variance += share * (1 - share);
            found += times.each[i] < 1.1 * alone(256, 4) ? 1 : 0;
        }
    }
    CAPTURE(expected);
    CAPTURE(found);
    CHECK(std::abs(found - expected) < 4 * std::sqrt(variance));
}
