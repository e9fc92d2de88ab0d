// Benchmark of the packet engine: packet-hops a second of CPU time, memory, and what README quotes.
// Usage: orrery_bench_packet [128] [1024] [8192] [plain] [trimmed] [pfc] [incast] [ring] [threads=N]; without arguments all, permutations
// of a size or kind alone where one is named. Instructions a packet-hop:
//   valgrind --tool=callgrind --collect-atstart=no --toggle-collect='orrery::network::packet::Network::run*' orrery_bench_packet 128
// and divide the total by the packet-hops printed. A packet-hop is a data packet leaving a port; the hops of
// acknowledgements are printed apart, and their cost is included.

#include "sim/base/random.hpp"
#include "sim/network/packet/network.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <set>
#include <string>
#include <vector>

using namespace orrery;

namespace {

FabricShape leaf_spine(std::uint32_t hosts, std::uint32_t per_leaf) {
    FabricShape shape;
    shape.nodes = hosts;
    shape.gpus_per_node = 1;
    shape.nics_per_node = 1;
    shape.nic_bandwidth = 50e9;
    shape.nodes_per_leaf = per_leaf;
    shape.spines = per_leaf;
    shape.link_latency = 500e-9;
    return shape;
}

double cpu_seconds() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

PacketSpec sprayed() {
    PacketSpec spec;
    spec.paths.policy.choose("oblivious");
    spec.transport.policy.choose("multipath");
    spec.queues.mark_low = 54080;
    spec.queues.mark_high = 212160;
    return spec;
}

// Multipath over queues without limit, over short ones that trim, or over ones that pause.
PacketSpec with_queues(const std::string& kind) {
    PacketSpec spec = sprayed();
    spec.queues.trim = kind == "trimmed";
    spec.queues.size = kind == "trimmed" ? 266240 : 0;
    spec.queues.pfc = kind == "pfc";
    return spec;
}

void report_case(const std::string& name, packet::Network& network, double seconds) {
    const PacketStatistics s = network.statistics();
    fmt::print("{:<34} {:>11} hops {:>11} of acks {:>11} events {:7.3f} s CPU {:6.2f} M hops/s {:6.1f} B per packet\n",
               name, s.packet_hops, s.control_hops, s.events, seconds,
               static_cast<double>(s.packet_hops) / seconds * 1e-6, static_cast<double>(sizeof(packet::Packet)));
    fmt::print("{:<34} finished at {:.6f} ms, peak {} packets, {:.1f} MiB of records, {} drops, {} sent again\n", "",
               static_cast<double>(network.now()) * 1e-9, s.peak_packets,
               static_cast<double>(network.memory()) / 1048576, s.drops, s.retransmissions);
    std::fflush(stdout);
}

void finish(const std::string& name, packet::Network& network) {
    const double before = cpu_seconds();
    const auto began = std::chrono::steady_clock::now();
    while (network.live_messages() > 0 && network.next_time() != packet::Wheel::kNever) {
        network.run(packet::Wheel::kNever - 1);
    }
    const double seconds = cpu_seconds() - before;
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - began;
    network.require_finished();
    report_case(name, network, seconds);
    fmt::print("{:<34} {:.3f} s wall, {} steps of threads\n", "", wall.count(), network.steps());
}

void permutation(const std::string& name, std::uint32_t hosts, std::uint32_t per_leaf, std::uint64_t bytes,
                 const std::string& queues, std::uint32_t threads) {
    const Fabric fabric(leaf_spine(hosts, per_leaf));
    packet::Network network(fabric, with_queues(queues), 1, false, threads);
    network.run_ahead();
    RandomStream random(1, "bench");
    std::vector<std::uint32_t> to(hosts);
    for (std::uint32_t i = 0; i < hosts; ++i) {
        to[i] = i;
    }
    for (std::uint32_t i = hosts - 1; i > 0; --i) {
        std::swap(to[i], to[random.below(i)]);
    }
    for (std::uint32_t i = 0; i < hosts; ++i) {
        network.send({GpuId(i), GpuId(to[i]), bytes, 0, i});
    }
    finish(name + ", " + queues + (threads > 1 ? fmt::format(", {} threads", threads) : ""), network);
}

void incast() {
    const Fabric fabric(leaf_spine(128, 16));
    packet::Network network(fabric, sprayed(), 1);
    for (std::uint32_t i = 1; i <= 64; ++i) {
        network.send({GpuId(i), GpuId(0), 4U << 20, 0, i});
    }
    finish("incast 64:1 of 4 MiB", network);
}

// A ring all-reduce: each rank sends its next piece when the piece before it has come.
void ring() {
    constexpr std::uint32_t kRanks = 128;
    constexpr std::uint32_t kSteps = 2 * (kRanks - 1);
    const Fabric fabric(leaf_spine(kRanks, 16));
    packet::Network network(fabric, sprayed(), 1);
    std::vector<std::uint32_t> sent(kRanks, 1);
    std::vector<std::uint32_t> received(kRanks, 0);
    const auto send = [&](std::uint32_t i) {
        network.send({GpuId(i), GpuId((i + 1) % kRanks), (64U << 20) / kRanks, 0, i});
    };
    for (std::uint32_t i = 0; i < kRanks; ++i) {
        send(i);
    }
    const double before = cpu_seconds();
    while (network.live_messages() > 0) {
        network.run(packet::Wheel::kNever - 1);
        const std::vector<std::uint64_t> done = network.completed();
        for (const std::uint64_t from : done) {
            const auto at = static_cast<std::uint32_t>((from + 1) % kRanks);
            ++received[at];
            if (sent[at] < kSteps) {
                ++sent[at];
                send(at);
            }
        }
    }
    report_case("ring all-reduce of 64 MiB, 128", network, cpu_seconds() - before);
}

}  // namespace

int main(int argc, char** argv) {
    std::set<std::string> wanted(argv + 1, argv + argc);
    std::uint32_t threads = 1;
    for (const std::uint32_t many : {2U, 3U, 4U}) {
        threads = wanted.erase(fmt::format("threads={}", many)) > 0 ? many : threads;
    }
    const auto want = [&](const char* name) { return wanted.empty() || wanted.contains(name); };
    struct Size {
        const char* key;
        const char* name;
        std::uint32_t hosts, per_leaf;
        std::uint64_t bytes;
    };
    const std::vector<Size> sizes = {{"128", "128 hosts, 16 MiB", 128, 16, 16U << 20},
                                     {"1024", "1,024 hosts, 2 MiB", 1024, 32, 2U << 20},
                                     {"8192", "8,192 hosts, 256 KiB", 8192, 64, 256U << 10}};
    const std::vector<std::string> kinds = {"plain", "trimmed", "pfc"};
    const bool any_size =
        std::none_of(sizes.begin(), sizes.end(), [&](const Size& s) { return wanted.contains(s.key); });
    const bool any_kind = std::none_of(kinds.begin(), kinds.end(), [&](const auto& k) { return wanted.contains(k); });
    const bool others = any_size && any_kind && !wanted.empty();
    for (const Size& size : sizes) {
        for (const std::string& kind : kinds) {
            if (!others && (any_size || wanted.contains(size.key)) && (any_kind || wanted.contains(kind))) {
                permutation(size.name, size.hosts, size.per_leaf, size.bytes, kind, kind == "pfc" ? 1 : threads);
            }
        }
    }
    if (want("incast")) {
        incast();
    }
    if (want("ring")) {
        ring();
    }
    return 0;
}
