// Classes of traffic, the watchdog and links with credits as a user meets them: from YAML and CSV to the summary.

#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace orrery;

namespace {

double value(const Summary& summary, const std::string& metric) {
    const Metric* found = summary.find(metric);
    REQUIRE_MESSAGE(found != nullptr, metric);
    return found->value;
}

std::string network_for(const std::string& traffic, const std::string& settings, const char* fidelity = "packet") {
    return fmt::format(
        "orrery: 1\nkind: network\n"
        "cluster: {{hosts: 8, fabric: {{hosts_per_leaf: 4, spines: 1, link: 400 Gbps, latency: 500 ns}}}}\n"
        "traffic: {}\nnetwork: {{fidelity: {}{}}}\n",
        traffic, fidelity, settings);
}

Summary summary_of(const std::string& text) {
    return run_scenario(test::scenario(text), test::model_cache(), {}).summary;
}

constexpr const char* kWindow = ", paths: ecmp, transport: {kind: window}, classes: ";

}  // namespace

TEST_CASE("flows of a file share a link by the weights of their classes") {
    const test::File flows("classes.csv", "src,dst,bytes,start,class\n0,3,24576000,0,bulk\n1,3,8192000,0,little\n");
    const auto last = [&](const std::string& classes) {
        return value(summary_of(network_for("{flows: " + flows.path() + "}", kWindow + classes)), "fct_s.mean");
    };
    const double packet = 4160 / 50e9;  // s
    // 6,000 and 2,000 packets at 3 to 1 end together; at 1 to 1 the shorter one in half the time.
    CHECK(last("[{name: bulk, weight: 3}, {name: little}]") == doctest::Approx(8000 * packet).epsilon(0.01));
    const Summary even = summary_of(
        network_for("{flows: " + flows.path() + "}", std::string(kWindow) + "[{name: bulk}, {name: little}]"));
    CHECK(value(even, "fct_s.mean") == doctest::Approx((8000 + 4000) / 2.0 * packet).epsilon(0.01));
    const Summary strict = summary_of(network_for(
        "{flows: " + flows.path() + "}", std::string(kWindow) + "[{name: little, strict: true}, {name: bulk}]"));
    CHECK(value(strict, "fct_s.mean") == doctest::Approx((8000 + 2000) / 2.0 * packet).epsilon(0.01));
    // Flows that are paced at their max-min fair rates never wait for each other.
    for (const char* own : {"strict: true", "weight: 3"}) {
        const std::string classes = fmt::format("[{{name: little, {}}}, {{name: bulk}}]", own);
        CHECK_THROWS_WITH_AS(
            (void)summary_of(network_for("{flows: " + flows.path() + "}",
                                         ", paths: ecmp, transport: {kind: ideal}, classes: " + classes)),
            doctest::Contains("whatever their class"), ConfigError);
    }
}

TEST_CASE("patterns and collectives go in the class that they name") {
    const std::string classes =
        ", paths: ecmp, transport: {kind: window}, classes: [{name: plain}, {name: marked, ecn: [1 B, 1 B]}]";
    const std::string incast = "{pattern: incast, senders: 4, size: 1 MiB";
    CHECK(value(summary_of(network_for(incast + "}", classes)), "ecn_marks") == 0);
    CHECK(value(summary_of(network_for(incast + ", class: plain}", classes)), "ecn_marks") == 0);
    CHECK(value(summary_of(network_for(incast + ", class: marked}", classes)), "ecn_marks") > 100);
    const auto marks = [&](const std::string& operation, const std::string& name) {
        return value(
            summary_of(fmt::format("orrery: 1\nkind: collective\n"
                                   "cluster: {{hosts: 8, fabric: {{hosts_per_leaf: 4, spines: 1, oversubscription: "
                                   "4, link: 400 Gbps, latency: 500 ns}}}}\n"
                                   "collective: {{{}, size: 8 MiB, class: {}}}\n"
                                   "network: {{fidelity: packet{}}}\n",
                                   operation, name, classes)),
            "ecn_marks");
    };
    for (const char* operation :
         {"op: all-to-all", "op: all-reduce, algorithm: ring", "op: all-reduce, algorithm: tree"}) {
        CAPTURE(operation);
        CHECK(marks(operation, "plain") == 0);
        CHECK(marks(operation, "marked") > 0);
    }
}

TEST_CASE("collectives and sends of training go in the classes that carry them") {
    const std::string base =
        "orrery: 1\nkind: training\n"
        "cluster: {nodes: 8, node: {preset: dgx-a100-80g, gpus: 2, nics: 2}, fabric: {nodes_per_leaf: 2, rails: 1, "
        "oversubscription: 4, link: 50 Gbps}}\n"
        "model: {layers: 4, hidden: 256, heads: 8, vocabulary: 1024, sequence: 512}\n"
        "plan: {pipeline: 2, data: 8, global_batch: 32, micro_batch: 2, schedule: 1f1b, precision: fp16}\n"
        "software: megatron-core-2024\n"
        "network: {fidelity: packet, paths: ecmp, transport: {kind: window}, classes: ";
    const auto marks = [&](const std::string& classes) {
        return value(summary_of(base + classes + "}\n"), "ecn_marks");
    };
    const double collectives = marks("[{name: a}, {name: b, ecn: [1 B, 1 B], collectives: true}]");
    const double sends = marks("[{name: a}, {name: b, ecn: [1 B, 1 B], sends: true}]");
    CHECK(collectives > 0);
    CHECK(sends > 0);
    CHECK(collectives != sends);
    CHECK(marks("[{name: a}, {name: b, ecn: [1 B, 1 B]}]") == 0);
    CHECK(marks("[{name: a, ecn: [1 B, 1 B]}, {name: b, collectives: true, sends: true}]") == 0);
}

TEST_CASE("what is wrong with classes is told on its line") {
    const std::string two =
        ", paths: ecmp, transport: {kind: window}, classes: [{name: bulk}, {name: urgent, strict: true}]";
    const auto refused = [](const std::string& text, const std::string& expected) {
        const std::string said = test::refusal(text);
        CHECK_MESSAGE(said.find(expected) != std::string::npos, said);
    };
    const std::string incast = "{pattern: incast, senders: 4, size: 1 MiB";
    refused(network_for(incast + ", class: urgnt}", two), ":4:");
    refused(network_for(incast + ", class: urgnt}", two), "'urgnt' is none of network.classes; did you mean 'urgent'?");
    refused(network_for(incast + ", class: bulk}", ""), "'bulk' is none of network.classes");
    refused(network_for(incast + ", class: bulk}", two, "fluid"),
            "classes of traffic are simulated at fidelity packet");
    refused(network_for(incast + "}", two, "analytic"), ":5:");
    refused(network_for(incast + "}", ", classes: [{name: a, collectives: true}]"), "collectives");
    refused(network_for(incast + "}", ", classes: [{name: a}, {name: a}]"), "'a' is there twice");
    refused(network_for(incast + "}", ", classes: [{weight: 2}]"), "name");
    refused(network_for(incast + "}", ", queues: {credits: 64 kB, pfc: true}"), "links with credits lose nothing");
    refused(network_for(incast + "}", ", queues: {dateline: true}"), "no effect without links with credits");
    refused(network_for(incast + "}", ", nic: {buffer: 1 MB}"), "no effect without a write_rate");
    refused(network_for(incast + "}", ", classes: [{name: a, strict: true, weight: 2}]"),
            "'network.classes.0.weight' has no effect without turns");
    refused(network_for(incast + "}", ", queues: {watchdog: drop}"),
            "'network.queues.watchdog' has no effect without ports that pause");
    const test::File flows("classes-bad.csv", "src,dst,bytes,start,class\n0,3,100,0,bulk\n1,3,100,0,urgnt\n");
    CHECK_THROWS_WITH_AS(summary_of(network_for("{flows: " + flows.path() + "}", two)),
                         doctest::Contains(":3:11: error: class 'urgnt' is none of network.classes; did you mean "),
                         ConfigError);
    refused(network_for("{flows: " + flows.path() + ", class: bulk}", two), "are in its column class");
    refused(
        "orrery: 1\nkind: collective\ncluster: {hosts: 8, fabric: {hosts_per_leaf: 4, spines: 1, link: 400 Gbps}}\n"
        "collective: {op: all-reduce, algorithm: in-switch, size: 1 MiB}\nnetwork: {fidelity: packet" +
            two + "}\n",
        "sums inside switches know ports with one queue");
}

TEST_CASE("a watchdog's storms are in the summary, and only with one") {
    const test::File events("storm.csv", "time_s,link,event,factor\n0,nic 7,pause,\n0.004,nic 7,resume,\n");
    const std::string settings =
        ", paths: ecmp, transport: {kind: roce, dcqcn: false, timeout: 10 ms}, link_events: " + events.path() +
        ", queues: {pfc: true";
    const std::string traffic = "{pattern: shift, shift: 4, size: 4 MiB}";
    const Summary without = summary_of(network_for(traffic, settings + "}"));
    CHECK(without.find("pfc_storms") == nullptr);
    CHECK(value(without, "fct_s.p50") > 4e-3);
    const Summary with = summary_of(
        network_for(traffic, settings + ", watchdog: drop, watchdog_detection: 1 ms, watchdog_restoration: 500 us}"));
    CHECK(value(with, "pfc_storms") >= 1);
    CHECK(value(with, "watchdog_drops") > 0);
    CHECK(value(with, "fct_s.p50") < 4e-3);
    CHECK(value(with, "fct_s.max") > 4.5e-3);
    CHECK_THROWS_WITH_AS(
        summary_of(network_for(traffic, ", paths: ecmp, transport: {kind: window}, link_events: " + events.path())),
        doctest::Contains("lets nic 7 pause its switch"), ConfigError);
}

TEST_CASE("a ring of links with credits deadlocks with one lane, which the run says, and goes on with two") {
    const auto torus = [](const std::string& queues) {
        return "orrery: 1\nkind: network\n"
               "cluster: {hosts: 8, fabric: {kind: torus, shape: 8x1, link: 400 Gbps, neighbour_link: 400 Gbps}}\n"
               "traffic: {pattern: shift, shift: 3, size: 1 MiB}\n"
               "network: {fidelity: packet, paths: ecmp, transport: {kind: roce, dcqcn: false}, queues: {credits: 8320 "
               "B" +
               queues + "}}\n";
    };
    CHECK_THROWS_WITH_AS(summary_of(torus("")), doctest::Contains("deadlock: 8 ports wait for each other's room"),
                         InfeasibleError);
    const Summary two = summary_of(torus(", dateline: true"));
    CHECK(value(two, "packets_delivered") == 8 * 256);
    CHECK(value(two, "drops") == 0);
}
