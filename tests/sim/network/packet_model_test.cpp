// Flows packet by packet beside their fluid shares: max-min fairness as packets shrink, limits of hosts.

#include "sim/network/packet/packet_model.hpp"
#include "tests/support/packets.hpp"
#include "tests/support/support.hpp"
#include "workloads/collective/message_run.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>

using namespace orrery;

namespace {

struct Traffic {
    FabricShape shape;
    PathChoice paths = PathChoice::spray;
    Schedule schedule;
};

template <class T>
T one_of(RandomStream& random, std::initializer_list<T> choices) {
    return *(choices.begin() + static_cast<std::ptrdiff_t>(random.below(choices.size())));
}

Traffic random_traffic(RandomStream& random) {
    Traffic t;
    const auto hosts = static_cast<std::uint32_t>(4 + random.below(20));
    t.shape = test::hosts(hosts, static_cast<std::uint32_t>(1 + random.below(6)),
                          static_cast<std::uint32_t>(1 + random.below(4)), one_of(random, {12.5e9, 50e9}), 0);
    t.shape.leaf_oversubscription = one_of(random, {1.0, 2.0, 5.0});
    t.paths = one_of(random, {PathChoice::spray, PathChoice::ecmp});
    const std::size_t flows = 2 + random.below(20);
    for (std::size_t i = 0; i < flows; ++i) {
        Message m;
        m.from = static_cast<std::uint32_t>(random.below(hosts));
        m.to = static_cast<std::uint32_t>((m.from + 1 + random.below(hosts - 1)) % hosts);
        m.bytes = static_cast<double>((1 + random.below(8)) << 20);
        t.schedule.messages.push_back(m);
    }
    return t;
}

std::vector<double> completions(const Traffic& t, const PacketSpec* packets) {
    MessageRunOptions options;
    options.paths = t.paths;
    if (packets != nullptr) {
        options.run = test::by_packet(*packets);
    }
    return run_messages(Fabric(t.shape), t.schedule, options).completions;
}

// Largest distance of any completion from the fluid one, as a share of the last.
double error_of(const Traffic& t, const std::vector<double>& fluid, double mtu) {
    PacketSpec spec = test::ideal(t.paths == PathChoice::ecmp ? "ecmp" : "spray");
    spec.mtu = mtu;
    spec.header = 1;
    const std::vector<double> packet = completions(t, &spec);
    double worst = 0;
    for (std::size_t i = 0; i < packet.size(); ++i) {
        worst = std::max(worst, std::abs(packet[i] - fluid[i]));
    }
    return worst / *std::max_element(fluid.begin(), fluid.end());
}

}  // namespace

TEST_CASE("packet sharing: under ideal transport every completion of random traffic converges to max-min fairness") {
    RandomStream random(5, "packet/fair");
    double sums[3] = {0, 0, 0};
    for (int i = 0; i < 25 * test::scale(); ++i) {
        CAPTURE(i);
        const Traffic t = random_traffic(random);
        const std::vector<double> fluid = completions(t, nullptr);
        const double errors[] = {error_of(t, fluid, 65536), error_of(t, fluid, 16384), error_of(t, fluid, 4096)};
        // A quarter and a sixteenth on average, less evenly in a single case; a packet's header is a byte.
        CHECK(errors[1] < errors[0] / 2 + 2.0 / 16384);
        CHECK(errors[2] < errors[0] / 6 + 2.0 / 4096);
        for (int k = 0; k < 3; ++k) {
            sums[k] += errors[k];
        }
    }
    // In proportion to the packet; what is left at the smallest is the header of one byte.
    CHECK(sums[1] == doctest::Approx(sums[0] / 4).epsilon(0.05));
    CHECK(sums[2] == doctest::Approx(sums[0] / 16).epsilon(0.2));
}

TEST_CASE("packet sharing: PCIe and host memory hold flows back, and what one leaves the others take at once") {
    FabricShape shape = test::hosts(2, 2, 1, 50e9);
    shape.gpus_per_node = shape.nics_per_node = 2;
    shape.intra_bandwidth = 400e9;
    const auto seconds = [&](const PacketSpec& spec, const std::vector<std::array<double, 3>>& flows) {
        Schedule schedule;
        for (const auto& [from, to, bytes] : flows) {
            Message m;
            m.from = static_cast<std::uint32_t>(from);
            m.to = static_cast<std::uint32_t>(to);
            m.bytes = bytes;
            schedule.messages.push_back(m);
        }
        MessageRunOptions options;
        options.run = test::by_packet(spec);
        return run_messages(Fabric(shape), schedule, options).completions;
    };
    const double mb = 4096 * 1024;
    for (const char* kind : {"multipath", "roce", "dctcp"}) {
        CAPTURE(kind);
        PacketSpec spec;
        spec.paths.policy.choose("ecmp");
        spec.transport.policy.choose(kind);
        spec.transport.window = 1e6;
        shape.pcie_bandwidth = 0;
        CHECK(seconds(spec, {{0, 2, mb}})[0] == doctest::Approx(mb * 4160 / 4096 / 50e9).epsilon(0.01));
        shape.pcie_bandwidth = 20e9;
        CHECK(seconds(spec, {{0, 2, mb}})[0] == doctest::Approx(mb / 20e9).epsilon(0.01));
        CHECK(seconds(spec, {{0, 2, mb}, {1, 3, mb}})[1] == doctest::Approx(mb / 20e9).epsilon(0.01));
        shape.pcie_bandwidth = 0;
        spec.nic.host_memory = 60e9;
        // Two flows share 60 GB/s; when the short one has ended the other has its NIC's 50 GB/s.
        const std::vector<double> two = seconds(spec, {{0, 2, mb}, {1, 3, 3 * mb}});
        CHECK(two[0] == doctest::Approx(mb / 30e9).epsilon(0.02));
        CHECK(two[1] == doctest::Approx(mb / 30e9 + 2 * mb * 4160 / 4096 / 50e9).epsilon(0.02));
        // What comes in counts like what goes out.
        const std::vector<double> both = seconds(spec, {{0, 2, mb}, {3, 1, mb}});
        CHECK(both[0] == doctest::Approx(mb / 30e9).epsilon(0.02));
        CHECK(both[1] == doctest::Approx(mb / 30e9).epsilon(0.02));
    }
}
