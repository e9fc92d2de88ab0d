#include "workloads/collective/alike.hpp"

#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/messages.hpp"
#include "workloads/collective/algorithms/algorithm.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

Scenario scenario(const std::string& cluster, const std::string& op, const std::string& network) {
    const std::string text = fmt::format(
        "orrery: 1\nkind: collective\ncluster: {}\ncollective: {{op: {}, algorithm: direct, size: 64 MiB}}\nnetwork: "
        "{}\n",
        cluster, op, network);
    return test::scenario(text);
}

struct Both {
    MessageRunResult folded;
    MessageRunResult unfolded;
};

Both run_both(const std::string& cluster, const std::string& op, const std::string& network) {
    const Scenario s = scenario(cluster, op, network);
    const Fabric fabric = fabric_of(s);
    const Shifts shifts =
        s.as<CollectiveKind>().collective.algorithm->shifts(s.as<CollectiveKind>().collective, fabric.gpus());
    MessageRunOptions options = message_options(s);
    Both out;
    out.folded = run_shifts(fabric, shifts, fabric.gpus(), options);
    options.fold = false;
    out.unfolded = run_shifts(fabric, shifts, fabric.gpus(), options);
    return out;
}

}  // namespace

TEST_CASE(
    "messages that all start at once are folded where links prove them alike, and take exactly as long as unfolded") {
    const char* const clusters[] = {
        "{nodes: 1, node: dgx-h100}",
        "{nodes: 4, node: dgx-h100, fabric: {kind: leaf-spine, rails: 8}}",
        "{nodes: 32, node: dgx-h100, fabric: {kind: leaf-spine, rails: 8}}",
        "{nodes: 12, node: dgx-h100, fabric: {kind: leaf-spine, nodes_per_leaf: 4, oversubscription: 3}}",
        "{nodes: 16, node: dgx-h100, fabric: {kind: rail-only}}",
        "{nodes: 16, node: hgx-a100-80g-4x200, fabric: {kind: fat-tree, nodes_per_leaf: 2, leaf_groups_per_pod: 2}}",
        "{hosts: 36, fabric: {kind: torus, shape: 6x6, link: 400 Gbps}}",
        "{hosts: 27, fabric: {kind: torus, shape: 3x3x3, link: 400 Gbps}}",
    };
    for (const char* cluster : clusters) {
        for (const char* op : {"all-to-all", "all-gather", "send-recv"}) {
            CAPTURE(cluster);
            CAPTURE(op);
            const Both both = run_both(cluster, op, "{fidelity: fluid}");
            CHECK(both.unfolded.classes == 0);
            CHECK(both.folded.seconds == both.unfolded.seconds);
            CHECK(both.folded.messages == both.unfolded.messages);
            CHECK(both.folded.bytes == both.unfolded.bytes);
            CHECK(both.folded.max_link_utilisation ==
                  doctest::Approx(both.unfolded.max_link_utilisation).epsilon(1e-9));
            if (std::string(op) == "all-to-all") {
                CHECK(both.folded.classes > 0);
                CHECK(both.folded.events < both.unfolded.messages / 2);
            }
        }
    }
}

TEST_CASE("groups of unlike nodes are folded within their groups; hashed paths are not folded") {
    const Both mixed =
        run_both("{groups: [{name: a, nodes: 8, node: dgx-h100}, {name: b, nodes: 8, node: hgx-a100-80g-4x200}]}",
                 "all-to-all", "{fidelity: fluid}");
    CHECK(mixed.folded.classes > 0);
    CHECK(mixed.folded.seconds == doctest::Approx(mixed.unfolded.seconds).epsilon(1e-12));
    const Both hashed = run_both("{nodes: 6, node: dgx-h100, fabric: {kind: leaf-spine, nodes_per_leaf: 2}}",
                                 "all-to-all", "{fidelity: fluid, paths: ecmp}");
    CHECK(hashed.folded.classes == 0);
    CHECK(hashed.folded.seconds == hashed.unfolded.seconds);
}

TEST_CASE("an all-to-all over 1,024 GPUs keeps every NIC busy from the first latency on, in a few classes") {
    const Scenario s = scenario("{nodes: 128, node: dgx-h100, fabric: {kind: leaf-spine, rails: 8}}", "all-to-all",
                                "{fidelity: fluid}");
    const Fabric fabric = fabric_of(s);
    const MessageRunResult result =
        run_shifts(fabric, s.as<CollectiveKind>().collective.algorithm->shifts(s.as<CollectiveKind>().collective, 1024),
                   1024, message_options(s));
    const double sending = 64.0 * 1024 * 1024 / 1024 * 1016 / fabric.capacity(fabric.nic_out(0));
    const auto latency = [&](std::uint32_t to) {
        return fabric.route(GpuId(0), GpuId(to), PathChoice::spray, 0).latency;
    };
    CHECK(result.seconds >= latency(8) + sending - 1e-12);
    CHECK(result.seconds <= latency(1023) + sending);
    CHECK(result.messages == 1024 * 1023);
    CHECK(result.classes < 10);
    CHECK(result.events < 100);
}

TEST_CASE("at fidelity analytic ranks that send to all at once take turns, stored or not") {
    const Scenario s = scenario("{nodes: 8, node: dgx-h100, fabric: {kind: leaf-spine, rails: 8}}", "all-to-all",
                                "{fidelity: analytic}");
    const Fabric fabric = fabric_of(s);
    const MessageRunResult each =
        run_shifts(fabric, s.as<CollectiveKind>().collective.algorithm->shifts(s.as<CollectiveKind>().collective, 64),
                   64, message_options(s));
    const MessageRunResult stored =
        run_messages(fabric, make_schedule(s.as<CollectiveKind>().collective, 64, 8), message_options(s));
    CHECK(each.seconds == stored.seconds);
    CHECK(each.classes == 0);
    // Whole messages one after another leave gaps, but rank by rank it would be 40 times as long.
    const double sending = 64.0 * 1024 * 1024 / 64 * 56 / fabric.capacity(fabric.nic_out(0));
    CHECK(each.seconds > sending);
    CHECK(each.seconds < 3 * sending);
}

TEST_CASE(
    "rings side by side are folded where links prove their messages alike, and take exactly as long as unfolded") {
    for (const char* cluster :
         {"{nodes: 4, node: dgx-h100, fabric: {kind: leaf-spine, rails: 8}}",
          "{nodes: 16, node: dgx-h100, fabric: {kind: leaf-spine, rails: 8, nodes_per_leaf: 4}}",
          "{nodes: 8, node: dgx-h100, fabric: {kind: rail-only}}",
          "{hosts: 64, fabric: {kind: leaf-spine, hosts_per_leaf: 8, oversubscription: 4, link: 400 Gbps}}"}) {
        for (const char* name : {"multi-ring", "bidirectional-ring"}) {
            CAPTURE(cluster);
            CAPTURE(name);
            const Scenario s = scenario(cluster, "all-gather", "{fidelity: fluid}");
            const Fabric fabric = fabric_of(s);
            CollectiveSpec spec = s.as<CollectiveKind>().collective;
            spec.algorithm = &algorithm(name);
            const Rings rings = spec.algorithm->rings(spec, fabric.gpus(), fabric.gpus_per_domain());
            MessageRunOptions options = message_options(s);
            const MessageRunResult folded = run_rings(fabric, rings, options);
            options.fold = false;
            const MessageRunResult unfolded = run_rings(fabric, rings, options);
            const MessageRunResult stored =
                run_messages(fabric, make_schedule(spec, fabric.gpus(), fabric.gpus_per_domain()), options);
            CHECK(unfolded.classes == 0);
            CHECK(folded.seconds == unfolded.seconds);
            CHECK(unfolded.seconds == doctest::Approx(stored.seconds).epsilon(1e-9));
            CHECK(folded.messages == stored.messages);
            CHECK(folded.bytes == doctest::Approx(stored.bytes).epsilon(1e-12));
            if (fabric.gpus() >= 64 && std::string(name) == "multi-ring") {
                CHECK((folded.classes > 0) == (fabric.gpus_per_domain() > 1));
            }
        }
    }
}
