// Given faults of collectives, traffic and jobs of a cluster: closed forms, causes, and what is refused.

#include "tests/support/scenarios.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

std::string ring(const std::string& faults, const std::string& network = "fidelity: fluid",
                 const std::string& size = "1 GB") {
    return fmt::format(R"(orrery: 1
kind: collective
cluster: {{hosts: 8, fabric: {{hosts_per_leaf: 4, spines: 4, link: 100 Gbps, latency: 0 s}}}}
collective: {{op: all-reduce, size: {}, algorithm: ring}}
network: {{{}}}
{})",
                       size, network, faults);
}

std::string event(const std::string& text) {
    return "faults: {events: [{" + text + "}]}\n";
}

double seconds(const std::string& text) {
    return run_scenario(test::scenario(text), test::model_cache(), {}).seconds;
}

std::string error_of(const std::string& text) {
    try {
        (void)seconds(text);
    } catch (const InfeasibleError& error) {
        return error.what();
    }
    return "";
}

constexpr double kAlone = 2.0 * 7 / 8 * 1e9 / 12.5e9;  // of the ring

std::string at(double share, const std::string& rest) {
    return event(fmt::format("at: {} s, {}", share * kAlone, rest));
}

std::string jobs(const std::string& faults) {
    return fmt::format(R"(orrery: 1
kind: cluster
cluster: {{nodes: 2, node: dgx-h100, fabric: {{nodes_per_leaf: 2, rails: 8}}}}
jobs:
  - name: a
    nodes: 0-0
    scenario:
      kind: training
      model: {{layers: 8, hidden: 4096, heads: 32, vocabulary: 32000, sequence: 4096}}
      plan: {{data: 8, global_batch: 32, micro_batch: 1}}
  - name: b
    nodes: 1-1
    scenario:
      kind: training
      model: {{layers: 4, hidden: 4096, heads: 32, vocabulary: 32000, sequence: 4096}}
      plan: {{data: 8, global_batch: 8, micro_batch: 1}}
{})",
                       faults);
}

double metric(const std::string& text, const char* name) {
    return run_scenario(test::scenario(text), test::model_cache(), {}).summary.find(name)->value;
}

}  // namespace

TEST_CASE("a ring with one link at half its rate takes twice as long, from the instant on at which it has it") {
    const double alone = seconds(ring(""));
    CHECK(alone == doctest::Approx(kAlone).epsilon(1e-6));
    CHECK(seconds(ring("faults: none\n")) == alone);
    const std::string half = "kind: degraded, where: nic3, factor: 50 %";
    for (const char* fidelity : {"fidelity: fluid", "fidelity: analytic"}) {
        CHECK(seconds(ring(at(0, half), fidelity)) == doctest::Approx(2 * kAlone).epsilon(1e-6));
    }
    CHECK(seconds(ring(at(0.5, half))) == doctest::Approx(1.5 * kAlone).epsilon(1e-6));
    CHECK(seconds(ring(at(2, half))) == alone);
    // For a while: what it did not carry comes later.
    CHECK(seconds(ring(at(0, half + fmt::format(", lasts: {} s", 0.5 * kAlone)))) ==
          doctest::Approx(1.25 * kAlone).epsilon(1e-6));
    const std::string network = "fidelity: packet, transport: {kind: ideal}";
    const double packets = seconds(ring("", network, "16 MB"));
    CHECK(seconds(ring(at(0, half), network, "16 MB")) == doctest::Approx(2 * packets).epsilon(0.05));
}

TEST_CASE("of overlapping faults of a link the worst holds") {
    const std::string text =
        "faults: {events: [{at: 0 s, kind: degraded, where: nic3, factor: 50 %}, "
        "{at: 0 s, kind: degraded, where: nic3, factor: 25 %}, "
        "{at: 0 s, kind: degraded, where: nic5, factor: 80 %}]}\n";
    CHECK(seconds(ring(text)) == doctest::Approx(4 * kAlone).epsilon(1e-6));
}

TEST_CASE("a link that is down holds the ring up as long, and for ever when it does not come back") {
    CHECK(seconds(ring(at(0.5, "kind: link-down, where: nic3, lasts: 1 s"))) ==
          doctest::Approx(kAlone + 1).epsilon(1e-6));
    CHECK(seconds(ring(at(0.5, "kind: switch-loss, where: leaf1, lasts: 1 s"))) ==
          doctest::Approx(kAlone + 1).epsilon(1e-6));
    const std::string error = error_of(ring(at(0.5, "kind: link-down, where: nic3")));
    CHECK(error.find("'link-down' of nic3") != std::string::npos);
    CHECK(error.find("has no 'lasts'") != std::string::npos);
}

TEST_CASE("a dead rank stops a collective, with the cause, unless it dies when all is done") {
    for (const char* kind : {"fail-stop", "hang"}) {
        const std::string error = error_of(ring(at(0.5, fmt::format("kind: {}, where: gpu3", kind))));
        CHECK(error.find(fmt::format("'{}' of gpu3", kind)) != std::string::npos);
        CHECK(error.find("rank 3 is gone") != std::string::npos);
    }
    CHECK(seconds(ring(at(1.5, "kind: fail-stop, where: node3"))) == doctest::Approx(kAlone).epsilon(1e-6));
}

TEST_CASE("flows over a degraded link take longer, and the others do not") {
    const auto text = [](const std::string& faults) {
        return "orrery: 1\nkind: network\n"
               "cluster: {hosts: 16, fabric: {hosts_per_leaf: 16, spines: 1, link: 100 Gbps, latency: 0 s}}\n"
               "traffic: {pattern: shift, shift: 1, size: 100 MB}\n" +
               faults;
    };
    const Summary out = run_scenario(test::scenario(text(event("at: 0 s, kind: degraded, where: nic0, factor: 25 %"))),
                                     test::model_cache(), {})
                            .summary;
    CHECK(out.find("fct_s.p50")->value == doctest::Approx(8e-3).epsilon(1e-6));
    CHECK(out.find("fct_s.max")->value == doctest::Approx(32e-3).epsilon(1e-6));
}

TEST_CASE("a GPU of a job that is slow for a while delays all of the job by what its kernels lose, and no other job") {
    const double a = metric(jobs(""), "a.iteration_time_s");
    const double b = metric(jobs(""), "b.iteration_time_s");
    const auto slow = [&](double from, const std::string& rest) {
        return jobs(event(fmt::format("at: {} s, kind: slow, where: gpu5, factor: 50 %{}", from, rest)));
    };
    const std::string spell = slow(0.3 * a, fmt::format(", lasts: {} s", 0.1 * a));
    CHECK(metric(spell, "a.iteration_time_s") == doctest::Approx(1.05 * a).epsilon(1e-4));
    CHECK(metric(spell, "b.iteration_time_s") == b);
    CHECK(metric(slow(2 * a, ""), "a.iteration_time_s") == doctest::Approx(a).epsilon(1e-9));
    CHECK(metric(slow(0, ""), "a.iteration_time_s") > 1.8 * a);
}

TEST_CASE("a node that dies stops the job that runs there, by name") {
    const std::string error = error_of(jobs(event("at: 0 s, kind: fail-stop, where: node1")));
    CHECK(error.find("job 'b'") != std::string::npos);
    CHECK(error_of(jobs(event("at: 1000 s, kind: fail-stop, where: node1"))).empty());
}

TEST_CASE("faults that a kind cannot honour are refused with their line") {
    const auto refused = [](const std::string& text) { return test::refusal(text); };
    CHECK(refused(ring(at(0, "kind: slow, where: gpu0, factor: 50 %"))).find("no kernels") != std::string::npos);
    CHECK(refused(ring(at(0, "kind: corruption, where: gpu0"))).find("wrong results") != std::string::npos);
    CHECK(refused(ring(at(0, "kind: degraded, where: nic99, factor: 50 %"))).find("nic99") != std::string::npos);
    CHECK(refused(ring(at(0, "kind: degraded, where: nic1"))).find("factor") != std::string::npos);
    CHECK(refused(ring(at(0, "kind: switch-loss, where: spine0"))).find("packet") != std::string::npos);
    CHECK(refused(ring(at(0, "kind: link-down, where: nic0"), "fidelity: simgrid")).find("simgrid") !=
          std::string::npos);
    CHECK(refused("orrery: 1\nkind: network\ncluster: {hosts: 4, fabric: {hosts_per_leaf: 4, link: 100 Gbps}}\n"
                  "traffic: {pattern: shift, size: 1 MB}\n" +
                  event("at: 0 s, kind: fail-stop, where: node0"))
              .find("link-down") != std::string::npos);
    CHECK(refused(ring("faults: given\n")).find("names none") != std::string::npos);
    CHECK(refused(jobs(event("at: 0 s, kind: slow, where: gpu99, factor: 50 %"))).find("gpu99") != std::string::npos);
}
