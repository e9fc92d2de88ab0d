// A packet network shared by threads: the same results for any number of them, and what they cannot share.

#include "tests/support/packets.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;
using packet::Network;

namespace {

struct Made {
    FabricShape shape;
    PacketSpec spec;
};

FabricShape tree(std::uint32_t nodes_per_leaf, bool pods) {
    FabricShape shape = test::hosts(24, nodes_per_leaf, 4, 50e9, 500e-9);
    if (pods) {
        shape.kind = FabricKind::fat_tree;
        shape.leaf_groups_per_pod = 2;
        shape.cores_per_spine = 2;
    }
    return shape;
}

// Everything that a run says, with times and sums to the last bit.
std::string all_of(const Network& network) {
    const PacketStatistics s = network.statistics();
    std::string out =
        fmt::format("{} {} {} {} {} {} {} {} {} {} {:a} {:a} {:a} {}\n", network.now(), s.packets_delivered,
                    s.packet_hops, s.control_hops, s.drops, s.trims, s.retransmissions, s.ecn_marks, s.timeouts,
                    s.corrupted, s.max_queue_bytes, s.max_link_bytes, s.max_link_utilisation, s.events);
    for (const PortReport& port : network.report().ports) {
        out += fmt::format("{} {:a} {:a} {:a} {} {}\n", port.name, port.bytes, port.mean_queue_bytes,
                           port.max_queue_bytes, port.marks, port.drops + port.trims);
    }
    return out;
}

packet::SendRequest message(RandomStream& random, std::uint64_t token) {
    const auto from = static_cast<std::uint32_t>(random.below(24));
    const auto to = static_cast<std::uint32_t>((from + 1 + random.below(23)) % 24);
    return {GpuId(from), GpuId(to), 1 + random.below(300'000), 0, token};
}

// Messages at once and later; with `reactive` also one for each of the first to end, at that time.
std::string outcome(const Made& made, std::uint32_t threads, bool reactive) {
    constexpr std::uint64_t kFirst = 60;
    constexpr std::uint64_t kLater = 30;
    const Fabric fabric(made.shape);
    Network network(fabric, made.spec, 7, false, threads);
    if (!reactive) {
        network.run_ahead();
    }
    RandomStream random(3, "parts");
    for (std::uint64_t token = 0; token < kFirst; ++token) {
        network.send(message(random, token));
    }
    std::string table;
    std::vector<packet::Completion> done;
    std::uint64_t next = kFirst;
    const auto run = [&](std::int64_t limit) {
        network.run(limit);
        for (const packet::Completion& one : network.completions()) {
            done.push_back(one);
            if (reactive && next < kFirst + kLater) {
                network.send(message(random, next++));
            }
        }
    };
    for (std::int64_t at = 1'000'000; !reactive && next < kFirst + kLater; at += 777'777) {
        while (network.next_time() <= at) {
            run(at);
        }
        network.advance(at);
        network.send(message(random, next++));
    }
    while (network.next_time() != packet::Wheel::kNever) {
        run(packet::Wheel::kNever - 1);
    }
    network.require_finished();
    CHECK(network.conserved());
    CHECK(done.size() == kFirst + kLater);
    for (const packet::Completion& one : done) {
        table += fmt::format("{} {}\n", one.at, one.token);
    }
    return table + all_of(network);
}

void check_same(const Made& made, const std::string& name) {
    for (const bool reactive : {false, true}) {
        const std::string alone = outcome(made, 1, reactive);
        for (const std::uint32_t threads : {2U, 3U, 4U}) {
            INFO(name << ", " << threads << " threads, reactive " << reactive);
            CHECK(outcome(made, threads, reactive) == alone);
        }
    }
}

PacketSpec made_of(const std::string& transport, const std::string& paths) {
    PacketSpec spec;
    spec.transport = test::transport("{kind: " + transport + "}");
    spec.paths = test::paths("{kind: " + paths + "}");
    spec.queues.mark_low = 20e3;
    spec.queues.mark_high = 80e3;
    return spec;
}

}  // namespace

TEST_CASE("threads share a packet network with the same results for every number of them") {
    const std::pair<const char*, const char*> choices[] = {{"multipath", "oblivious"},
                                                           {"nscc", "mixed"},
                                                           {"rccc", "reps"},
                                                           {"receiver-driven", "spray"},
                                                           {"roce", "ecmp"},
                                                           {"dctcp", "flowlet"},
                                                           {"hpcc", "ecmp"},
                                                           {"window", "adaptive"},
                                                           {"cubic", "round-robin"},
                                                           {"swift", "recycled"},
                                                           {"multipath", "bitmap"},
                                                           {"mp-rdma", "clocked"},
                                                           {"falcon", "windowed"},
                                                           {"infiniband", "ecmp"},
                                                           {"mp-rdma, mp_rdma_operation: 8", "clocked"}};
    for (const bool pods : {false, true}) {
        for (const auto& [transport, paths] : choices) {
            const Made made{tree(pods ? 2 : 4, pods), made_of(transport, paths)};
            check_same(made, fmt::format("{} over {}{}", transport, paths, pods ? ", pods" : ""));
        }
    }
}

TEST_CASE("threads share short queues, trimming and bit errors") {
    for (const bool pods : {false, true}) {
        for (const bool trim : {false, true}) {
            Made made{tree(pods ? 2 : 4, pods), made_of("multipath", "oblivious")};
            made.spec.queues.size = 60e3;
            made.spec.queues.trim = trim;
            check_same(made, trim ? "trimming" : "drops");
            made.spec.bit_error_rate = 1e-7;
            check_same(made, "bit errors");
            made.spec.bit_error_rate = 0;
            made.spec.nic.queue_pairs = 1;
            made.spec.nic.done_at_sender = true;
            made.spec.paths.subflows = 2;
            check_same(made, "queue pairs");
            made.spec = made_of("falcon", "windowed");
            made.spec.nic.write_rate = 20e9;
            made.spec.nic.buffer = 30e3;
            check_same(made, "buffers of NICs");
        }
    }
}

TEST_CASE("what needs the whole network at once is not for threads") {
    const Fabric fabric(tree(4, false));
    const auto refused = [&](const PacketSpec& spec, std::uint32_t threads = 2) {
        CHECK_THROWS_AS(Network(fabric, spec, 1, false, threads), Error);
    };
    PacketSpec pfc;
    pfc.queues.pfc = true;
    refused(pfc);
    PacketSpec shared;
    shared.queues.shared = 1e6;
    refused(shared);
    PacketSpec skips;
    skips.skip_error = 0.01;
    refused(skips);
    PacketSpec samples;
    samples.queue_samples = 1e-6;
    refused(samples);
    PacketSpec planned;
    planned.paths = test::paths("{kind: planned}");
    refused(planned);
    refused(PacketSpec(), 7);  // it has six leaves
    FabricShape at_once = tree(4, false);
    at_once.link_latency = 0;
    CHECK_THROWS_AS(Network(Fabric(at_once), PacketSpec(), 1, false, 2), InfeasibleError);
}
