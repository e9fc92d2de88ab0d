// States and activations in memories of the nodes of a cluster whose nodes differ.

#include "tests/support/scenarios.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

using test::metric;

std::string host(const char* rate, const char* capacity = "4 TB", const char* more = "") {
    return fmt::format("tiers: [{{name: dram, medium: dram, capacity: {}, read: {}}}{}]", capacity, rate, more);
}

std::string node(const std::string& memories, const char* link = "20 GB/s", const char* preset = "dgx-a100-80g") {
    return fmt::format("{{preset: {}, pcie_bandwidth: {}{}}}", preset, link,
                       memories.empty() ? "" : ", host: {" + memories + "}");
}

std::string alike(const std::string& kind) {
    return fmt::format("{{nodes: 2, node: {}, fabric: {{rails: 8}}}}", kind);
}

std::string groups(const std::string& first, const std::string& second, const char* more = "") {
    return fmt::format("{{groups: [{{name: a, nodes: 1, node: {}{}}}, {{name: b, nodes: 1, node: {}{}}}], fabric: {}}}",
                       first, more, second, more, *more == 0 ? "{rails: 8}" : "{link: 100 Gbps}");
}

Scenario job(const std::string& cluster, const std::string& offload, const char* plan = "data: 16, zero: 3",
             const char* more = "") {
    return test::scenario(
        fmt::format("orrery: 1\nkind: training\ncluster: {}\n"
                    "model: {{layers: 16, hidden: 2048, heads: 16, vocabulary: 1000, sequence: 1024}}\n"
                    "plan: {{{}, global_batch: 64, micro_batch: 4, recompute: full, overlap: {{data: true}}, offload: "
                    "{{{}}}}}\n{}",
                    cluster, plan, offload, more));
}

double seconds(const std::string& cluster, const std::string& offload, const char* plan = "data: 16, zero: 3") {
    return metric(job(cluster, offload, plan), "iteration_time_s");
}

// What a run is refused with, after whether it is infeasible (3) or wrong (2).
std::string refused(const Scenario& scenario) {
    try {
        (void)run_scenario(scenario, test::model_cache(), {});
    } catch (const InfeasibleError& error) {
        return std::string("3 ") + error.what();
    } catch (const ConfigError& error) {
        return std::string("2 ") + error.what();
    }
    return "";
}

constexpr const char* kAll = "optimizer: {tier: dram}, gradients: {tier: dram}, parameters: {tier: dram}";

}  // namespace

TEST_CASE("offloading on equal groups is offloading on their nodes, to the last digit") {
    const std::string drives = ", {name: nvme, medium: nvme, units: 2, capacity: 4 TB, read: 2 GB/s, write: 1 GB/s}";
    const std::string kind =
        node("cores: 32, core_bandwidth: 5 GB/s, devices_per_switch: 2, " + host("100 GB/s", "4 TB", drives.c_str()));
    for (const char* offload :
         {kAll, "optimizer: {tier: nvme}, step: pipelined", "optimizer: {tier: dram, fraction: 0.5}, step: delayed",
          "activations: {tier: dram, fraction: 0.5, rest: nvme}, prefetch: 1"}) {
        CAPTURE(offload);
        CHECK(seconds(groups(kind, kind), offload) == seconds(alike(kind), offload));
        CHECK(metric(job(groups(kind, kind), offload), "exposed_copies_s") ==
              doctest::Approx(metric(job(alike(kind), offload), "exposed_copies_s")).epsilon(1e-12));
    }
    CHECK(metric(job(groups(kind, kind), kAll), "tier_gib.dram") == metric(job(alike(kind), kAll), "tier_gib.dram"));
}

TEST_CASE("each group copies over its own links, from its own memories: the slower holds the step") {
    const std::string fast = node("cores: 32, core_bandwidth: 5 GB/s, " + host("100 GB/s"));
    // Updates over less bandwidth of DRAM, updates on fewer cores, copies over a slower link.
    for (const std::string& slow : {node("cores: 32, core_bandwidth: 5 GB/s, " + host("20 GB/s")),
                                    node("cores: 4, core_bandwidth: 5 GB/s, " + host("100 GB/s")),
                                    node("cores: 32, core_bandwidth: 5 GB/s, " + host("100 GB/s"), "2 GB/s")}) {
        CAPTURE(slow);
        const double all_fast = seconds(alike(fast), kAll);
        const double all_slow = seconds(alike(slow), kAll);
        const double mixed = seconds(groups(fast, slow), kAll);
        CHECK(mixed > 1.2 * all_fast);
        CHECK(mixed <= 1.0005 * all_slow);
        CHECK(mixed > 0.9 * all_slow);
        // Whichever comes first.
        CHECK(seconds(groups(slow, fast), kAll) == doctest::Approx(mixed).epsilon(0.02));
    }
}

TEST_CASE("offloading on groups: tiers in other places, fabrics of their own, folding") {
    const std::string one = node(host("100 GB/s"));
    const std::string both = node(
        "tiers: [{name: nvme, medium: nvme, units: 2, capacity: 4 TB, read: 2 GB/s}, {name: dram, medium: dram, "
        "capacity: 4 TB, read: 100 GB/s}]");
    const char* const kStates = "optimizer: {tier: dram}";
    // A tier has a name, and not a place: what lies beside it is not used.
    CHECK(seconds(groups(one, both), kStates) == seconds(alike(one), kStates));
    const std::string own = groups(one, one, ", fabric: {rails: 8}");
    CHECK(seconds(own, kStates) > seconds(alike(one), kStates));
    Scenario unfolded = job(own, kAll);
    unfolded.network.fold = false;
    CHECK(metric(unfolded, "iteration_time_s") == doctest::Approx(seconds(own, kAll)).epsilon(1e-9));
}

TEST_CASE("a tier that a group lacks, or that is too small in one, is named with its group and numbers") {
    const std::string good = node(host("100 GB/s"));
    const char* const kStates = "optimizer: {tier: dram}";
    const std::string small = refused(job(groups(good, node(host("100 GB/s", "1 GB"))), kStates));
    CHECK(small.rfind("3 out of memory: the 8 ranks of a node of 'b' place", 0) == 0);
    CHECK(small.find("in its tier 'dram', which holds 953.7 MiB") != std::string::npos);
    CHECK(small.find("of 'a'") == std::string::npos);
    const std::string none = refused(job(groups(good, node("")), kStates));
    CHECK(none.rfind("3 the plan keeps optimizer in 'dram', and a node of 'b' has 0 tiers", 0) == 0);
    const std::string other =
        refused(job(groups(good, node("tiers: [{name: ddr, medium: dram, capacity: 4 TB, read: 1 GB/s}]")), kStates));
    CHECK(other.rfind("3 the plan keeps optimizer in 'dram', and none of the 1 tiers of a node of 'b' is called so; it "
                      "has ddr",
                      0) == 0);
    const std::string wrong = refused(job(groups(good, good), "optimizer: {tier: drm}"));
    CHECK(wrong.rfind("2 ", 0) == 0);
    CHECK(wrong.find("the node of 'a' has no tier 'drm' (did you mean 'dram'?)") != std::string::npos);
    const std::string drives = node("tiers: [{name: dram, medium: cxl, capacity: 4 TB, read: 9 GB/s}]");
    CHECK(refused(job(groups(good, drives), kStates)).empty());
}

TEST_CASE("a campaign of an offloading job prices its states with the memories of the nodes") {
    const std::string kind = node(host("100 GB/s"));
    const char* const kSlow =
        "faults: {duration: 1 d, events: [{at: 0 s, kind: slow, where: node1, factor: 0.5, lasts: 12 h}]}\n";
    const auto goodput = [&](const std::string& cluster, const char* more) {
        return metric(job(cluster, "optimizer: {tier: dram}", "data: 16, zero: 3", more), "goodput_fraction");
    };
    const double alone = goodput(alike(kind), kSlow);
    CHECK(alone < 1);
    CHECK(alone > 0.5);
    CHECK(goodput(groups(kind, kind), kSlow) == alone);
}
