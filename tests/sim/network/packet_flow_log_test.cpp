// What becomes of the packets of single messages, against what the run as a whole counts.

#include "tests/support/packets.hpp"

#include <doctest/doctest.h>

using namespace orrery;
using packet::Network;

namespace {

FabricShape leaves() {
    return test::hosts(16, 4, 4, 50e9, 500e-9);
}

PacketSpec counted(const std::string& transport, const std::string& paths) {
    PacketSpec spec;
    spec.transport = test::transport("{kind: " + transport + "}");
    spec.paths = test::paths(paths);
    spec.count_flows = true;
    return spec;
}

// Each host sends to the one four further, so that all messages pass the spines.
void send_shift(Network& network, std::uint64_t bytes) {
    for (std::uint32_t i = 0; i < 16; ++i) {
        network.send({GpuId(i), GpuId((i + 4) % 16), bytes, 0, i});
    }
}

// Seven senders and one receiver.
void send_incast(Network& network, std::uint64_t bytes) {
    for (std::uint32_t i = 0; i < 7; ++i) {
        network.send({GpuId(4 + i), GpuId(0), bytes, 0, i});
    }
}

FlowCounts sum_of(const Network& network) {
    FlowCounts out;
    for (const FlowCounts& one : network.report().flows) {
        out.add(one);
    }
    return out;
}

void check_sums(const Network& network) {
    const FlowCounts sum = sum_of(network);
    const PacketStatistics all = network.statistics();
    CHECK(sum.retransmissions == all.retransmissions);
    CHECK(sum.trims == all.trims);
    CHECK(sum.marks == all.ecn_marks);
    CHECK(sum.timeouts == all.timeouts);
    CHECK(sum.sent == all.packets_delivered + sum.retransmissions);
    CHECK(sum.sent == sum.arrived + sum.drops);
}

}  // namespace

TEST_CASE("a pinned flow has one path, a sprayed one as many as there are spines") {
    const Fabric fabric(leaves());
    const std::vector<std::pair<std::string, std::uint64_t>> choices = {
        {"{kind: ecmp}", 1}, {"{kind: oblivious}", 4}, {"{kind: spray}", 4}};
    for (const auto& [paths, count] : choices) {
        INFO(paths);
        Network network(fabric, counted("multipath", paths), 1);
        send_shift(network, 1 << 20);
        (void)test::finish(network, 16);
        const std::vector<FlowCounts> flows = network.report().flows;
        REQUIRE(flows.size() == 16);
        for (const FlowCounts& flow : flows) {
            CHECK(flow.paths == count);
            CHECK(flow.sent == 256);
            CHECK(flow.bytes == (1 << 20) + 256 * 64);
        }
        check_sums(network);
    }
}

TEST_CASE("subflows of a message share its row, and equal ways count once") {
    const Fabric fabric(leaves());
    Network network(fabric, counted("multipath", "{kind: ecmp, subflows: 64}"), 1);
    network.send({GpuId(0), GpuId(15), 1 << 20, 0, 0});
    (void)test::finish(network, 1);
    REQUIRE(network.report().flows.size() == 1);
    CHECK(network.report().flows[0].paths == 4);
    CHECK(network.report().flows[0].sent == 256);
}

TEST_CASE("what is trimmed, dropped, marked, sent again and timed out adds up to the counts of the run") {
    const Fabric fabric(leaves());
    for (const std::string transport :
         {"multipath", "nscc", "rccc", "receiver-driven", "roce", "dctcp", "cubic", "swift"}) {
        for (const bool trim : {false, true}) {
            INFO(transport << ", trim " << trim);
            const bool one_path = transport == "roce" || transport == "dctcp" || transport == "cubic";
            if (trim && transport == "roce") {
                continue;  // go-back-N takes no trimmed packets
            }
            PacketSpec spec = counted(transport, one_path ? "{kind: ecmp}" : "{kind: oblivious}");
            spec.queues.size = 40e3;
            spec.queues.mark_low = 10e3;
            spec.queues.mark_high = 30e3;
            spec.queues.trim = trim;
            Network network(fabric, spec, 1);
            send_incast(network, 1 << 20);
            (void)test::finish(network, 7);
            check_sums(network);
            CHECK((trim ? sum_of(network).trims > 0 : sum_of(network).drops > 0));
        }
    }
}

TEST_CASE("packets sent again in vain are those that had come, and bit errors make none of them") {
    const Fabric fabric(leaves());
    PacketSpec spec = counted("window", "{kind: ecmp}");
    spec.bit_error_rate = 1e-7;
    Network lossy(fabric, spec, 1);
    send_shift(lossy, 4 << 20);
    (void)test::finish(lossy, 16);
    CHECK(sum_of(lossy).drops > 0);
    CHECK(sum_of(lossy).retransmissions >= sum_of(lossy).drops);
    check_sums(lossy);
    // A timeout far below the round trip sends all again though nothing is lost.
    spec.bit_error_rate = 0;
    spec.transport = test::transport("{kind: window, timeout: 2 us, retries: 200, window: 64 KiB}");
    Network hasty(fabric, spec, 1);
    hasty.send({GpuId(0), GpuId(15), 1 << 20, 0, 0});
    (void)test::finish(hasty, 1);
    const FlowCounts flow = sum_of(hasty);
    CHECK(flow.timeouts > 0);
    CHECK(flow.retransmissions > 0);
    CHECK(flow.needless == flow.retransmissions);
}

TEST_CASE("counts of messages are the same for any number of threads, and change nothing else") {
    const Fabric fabric(leaves());
    PacketSpec spec = counted("nscc", "{kind: mixed}");
    spec.queues.size = 100e3;
    spec.queues.trim = true;
    spec.queues.mark_low = 20e3;
    spec.queues.mark_high = 80e3;
    const auto run = [&](std::uint32_t threads, bool counts) {
        PacketSpec own = spec;
        own.count_flows = counts;
        auto network = std::make_unique<Network>(fabric, own, 1, false, threads);
        send_incast(*network, 300'000);
        send_shift(*network, 300'000);
        while (network->next_time() != packet::Wheel::kNever) {
            network->run(packet::Wheel::kNever - 1);
        }
        return network;
    };
    const auto alone = run(1, true);
    const auto uncounted = run(1, false);
    CHECK(uncounted->now() == alone->now());
    CHECK(uncounted->statistics().packet_hops == alone->statistics().packet_hops);
    CHECK(uncounted->statistics().ecn_marks == alone->statistics().ecn_marks);
    CHECK(uncounted->report().flows.empty());
    check_sums(*alone);
    const auto shared = run(3, true);
    const std::vector<FlowCounts> one = alone->report().flows;
    const std::vector<FlowCounts> three = shared->report().flows;
    REQUIRE(one.size() == three.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
        CHECK(one[i].paths == three[i].paths);
        CHECK(one[i].sent == three[i].sent);
        CHECK(one[i].marks == three[i].marks);
        CHECK(one[i].trims == three[i].trims);
        CHECK(one[i].needless == three[i].needless);
        CHECK(one[i].arrived_marked == three[i].arrived_marked);
    }
}

TEST_CASE("packets of skipped stretches count as sent") {
    const Fabric fabric(leaves());
    PacketSpec spec = counted("multipath", "{kind: ecmp}");
    spec.queues.mark_low = 10e3;
    spec.queues.mark_high = 30e3;
    spec.skip_error = 0.005;
    Network network(fabric, spec, 1);
    send_incast(network, 32 << 20);
    (void)test::finish(network, 7);
    REQUIRE(network.statistics().skipped > 0);
    for (const FlowCounts& flow : network.report().flows) {
        CHECK(flow.sent == 8192);
        CHECK(flow.arrived == 8192);
    }
    const auto all = static_cast<double>(network.statistics().ecn_marks);
    CHECK(static_cast<double>(sum_of(network).marks) == doctest::Approx(all).epsilon(0.01));
}

TEST_CASE("samples of flows tell windows, rates and marks of those that are watched, while they are under way") {
    const Fabric fabric(leaves());
    PacketSpec spec = counted("dctcp", "{kind: ecmp}");
    spec.queues.mark_low = spec.queues.mark_high = 30e3;
    spec.flow_samples = 10e-6;
    Network network(fabric, spec, 1);
    for (std::uint32_t i = 0; i < 4; ++i) {
        network.send({GpuId(4 + i), GpuId(0), 4 << 20, 0, i, 0, 0, 0, i == 2});
    }
    const std::vector<std::int64_t> done = test::finish(network, 4);
    const std::vector<FlowSample> samples = network.report().flow_samples;
    REQUIRE(samples.size() > 20);
    double bytes = 0;
    double marked = 0;
    for (std::size_t i = 0; i < samples.size(); ++i) {
        CHECK(samples[i].token == 2);
        CHECK(samples[i].time == doctest::Approx(static_cast<double>(i) * 10e-6));
        CHECK(samples[i].window > 0);
        CHECK(std::isnan(samples[i].pace));  // it has windows alone
        bytes += samples[i].rate * 10e-6;
        marked = std::max(marked, std::isnan(samples[i].marked) ? 0 : samples[i].marked);
    }
    CHECK(samples.back().time <= static_cast<double>(done[2]) * 1e-12);
    CHECK(bytes <= 4160.0 * 1024);
    CHECK(bytes > 0.9 * 4160 * 1024);
    CHECK(marked > 0);
    CHECK(marked <= 1);
}

TEST_CASE("a set of numbers is a list of numbers and ranges, or all of them") {
    CHECK(NumberRanges::read("")->has(123456));
    const auto some = NumberRanges::read("0-7, 32");
    REQUIRE(some);
    CHECK(some->has(7));
    CHECK_FALSE(some->has(8));
    CHECK(some->has(32));
    for (const char* wrong : {"a", "1,", "7-3", "1-", "-1", "1.5", "99999999999999999999"}) {
        CHECK_FALSE(NumberRanges::read(wrong));
    }
}
