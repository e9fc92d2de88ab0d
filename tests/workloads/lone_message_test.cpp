// What a message takes alone, in closed form, against a run of it by itself.

#include "workloads/collective/lone_message.hpp"
#include "tests/support/packets.hpp"

#include <doctest/doctest.h>

using namespace orrery;

namespace {

struct Case {
    FabricShape shape;
    std::uint32_t from;
    std::uint32_t to;
};

// Ratio of the run to the closed form.
double ratio(const Case& one, const MessageRunOptions& options, double bytes) {
    const Fabric fabric(one.shape);
    Schedule schedule;
    schedule.messages.emplace_back();
    schedule.messages[0].from = one.from;
    schedule.messages[0].to = one.to;
    schedule.messages[0].bytes = bytes;
    const Placement placement(fabric);
    LoneMessages lone(fabric, placement, schedule, options);
    return run_messages(fabric, schedule, options).seconds / lone.seconds(schedule.messages[0]);
}

std::vector<Case> cases() {
    std::vector<Case> out;
    const FabricShape leaf_spine = test::hosts(16, 4, 4, 50e9, 500e-9);
    out.push_back({leaf_spine, 0, 1});
    out.push_back({leaf_spine, 0, 15});
    FabricShape slow_spines = leaf_spine;
    slow_spines.leaf_oversubscription = 2;  // a link to a spine has half a NIC's rate
    out.push_back({slow_spines, 0, 15});
    FabricShape pods = leaf_spine;
    pods.kind = FabricKind::fat_tree;
    pods.leaf_groups_per_pod = 2;
    pods.cores_per_spine = 2;
    out.push_back({pods, 0, 15});
    FabricShape far = leaf_spine;
    far.nic_latency = 2e-6;
    out.push_back({far, 2, 9});
    return out;
}

}  // namespace

TEST_CASE("a message alone takes what the closed form says, at every fidelity and size") {
    for (const Case& one : cases()) {
        for (const Fidelity fidelity : {Fidelity::analytic, Fidelity::fluid, Fidelity::packet}) {
            for (const double bytes : {1.0, 4096.0, 4097.0, 10'000.0, 1e6, 5e6}) {
                for (const PathChoice paths : {PathChoice::ecmp, PathChoice::spray}) {
                    MessageRunOptions options;
                    options.run.fidelity = fidelity;
                    options.paths = paths;
                    options.run.packets = test::ideal(paths == PathChoice::ecmp ? "ecmp" : "spray");
                    INFO(static_cast<int>(fidelity) << " " << bytes << " " << static_cast<int>(paths));
                    // The last packets of a sprayed message meet on a link, or do not.
                    const double within = paths == PathChoice::spray && fidelity == Fidelity::packet ? 0.02 : 2e-3;
                    CHECK(ratio(one, options, bytes) == doctest::Approx(1).epsilon(within));
                }
            }
        }
    }
}

TEST_CASE("NICs, hosts and acknowledgements add to it what they add to a run") {
    MessageRunOptions options;
    options.run.fidelity = Fidelity::packet;
    options.paths = PathChoice::ecmp;
    options.run.packets.paths = test::paths("{kind: ecmp}");
    options.run.packets.transport = test::transport("{kind: multipath}");
    NicSpec& nic = options.run.packets.nic;
    const Case one = cases()[1];
    CHECK(ratio(one, options, 5e6) == doctest::Approx(1).epsilon(1e-3));
    nic.doorbell = 3e-6;
    nic.dma = 1e-6;
    CHECK(ratio(one, options, 1e4) == doctest::Approx(1).epsilon(1e-3));
    nic.host_rate = 20e9;
    CHECK(ratio(one, options, 5e6) == doctest::Approx(1).epsilon(1e-3));
    nic.write_rate = 15e9;
    CHECK(ratio(one, options, 5e6) == doctest::Approx(1).epsilon(1e-3));
    CHECK(ratio(one, options, 5e3) == doctest::Approx(1).epsilon(1e-3));
    nic.done_at_sender = true;
    CHECK(ratio(one, options, 5e5) == doctest::Approx(1).epsilon(1e-3));
}

TEST_CASE("a transport that begins slowly is slower than its path") {
    MessageRunOptions options;
    options.run.fidelity = Fidelity::packet;
    options.paths = PathChoice::ecmp;
    options.run.packets.paths = test::paths("{kind: ecmp}");
    options.run.packets.transport = test::transport("{kind: cubic}");
    CHECK(ratio(cases()[3], options, 1e6) > 1.05);
}
