// Threads that share the packets of a scenario: what it says does not depend on them, and what they cannot share is refused.

#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

using namespace orrery;

namespace {

constexpr const char* kFolder = ORRERY_SOURCE_DIR "/tests/data/fields";

// The summary as it is written, the ports, and when each message came.
std::string outcome(const Scenario& scenario) {
    RunOptions options;
    options.messages = true;
    const RunOutput out = run_scenario(scenario, test::model_cache(), options);
    std::string text = to_json(out.summary, false) + ports_csv(out.packets);
    if (out.messages) {
        for (const double time : out.messages->completions) {
            text += fmt::format("{:a}\n", time);
        }
    }
    return text;
}

std::string network_of(const std::string& settings, const std::string& rest = "",
                       const std::string& latency = "500 ns") {
    return fmt::format(
        "orrery: 1\nkind: network\n"
        "cluster: {{hosts: 16, fabric: {{hosts_per_leaf: 4, spines: 2, link: 100 Gbps, latency: {}}}}}\n"
        "traffic: {{pattern: permutation, size: 256 KiB}}\n"
        "network:\n  fidelity: packet\n{}{}",
        latency, settings, rest);
}

}  // namespace

TEST_CASE("threads change nothing that a scenario of messages says, or are refused with a line") {
    std::map<std::string, int> shared;  // by kind
    int refused = 0;
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
        const std::string name = entry.path().filename().string();
        if (name.ends_with(".yaml") && (name.starts_with("network") || name.starts_with("collective"))) {
            files.push_back(entry.path().string());
        }
    }
    std::sort(files.begin(), files.end());
    for (std::size_t i = 0; i < files.size(); ++i) {
        const std::string& file = files[i];
        INFO(file);
        Scenario alone;
        try {
            alone = load_scenario(file, {"network.fidelity=packet", "network.threads=1"}, test::data());
        } catch (const ConfigError&) {
            continue;  // of another fidelity
        }
        std::string expected;
        // More threads than most machines of tests have cores wait for each other: three for every fourth scenario.
        for (int count = 2; count <= (i % 4 == 0 ? 3 : 2); ++count) {
            const std::string threads = fmt::format("network.threads={}", count);
            try {
                const Scenario scenario = load_scenario(file, {"network.fidelity=packet", threads}, test::data());
                expected = expected.empty() ? outcome(alone) : expected;
                INFO(threads);
                CHECK(outcome(scenario) == expected);
                ++shared[scenario.kind().name];
            } catch (const ConfigError& error) {
                CHECK_MESSAGE(std::string(error.what()).find("threads") != std::string::npos, error.what());
                ++refused;
            }
        }
    }
    MESSAGE(fmt::format("shared: {} of network, {} of collective; refused: {}", shared["network"], shared["collective"],
                        refused));
    CHECK(shared["network"] >= 20);
    CHECK(shared["collective"] >= 8);
}

TEST_CASE("what threads cannot share is refused where it stands, all of it at once") {
    const std::string text =
        test::refusal(network_of("  threads: 5\n"
                                 "  queues:\n    size: 1 MB\n    pfc: true\n    shared: 4 MB\n"
                                 "  queue_samples: 1 us\n"
                                 "  paths: {kind: planned}\n"
                                 "  link_events: no.csv\n",
                                 "faults:\n  events: [{at: 1 us, kind: link-down, where: nic3}]\n", "0 s"));
    CAPTURE(text);
    for (const char* part :
         {"test.yaml:7:", "5 threads share a network by its leaves, of which it has 4", "links that have a latency",
          "test.yaml:10:", "queues.pfc", "test.yaml:11:", "queues.shared", "test.yaml:12:", "queue_samples",
          "test.yaml:13:", "planned", "test.yaml:14:", "link_events", "whose links change"}) {
        CHECK_MESSAGE(text.find(part) != std::string::npos, part);
    }
    CHECK(test::refusal(network_of("  threads: 2\n  skip: {error: 1 %}\n")).find("test.yaml:8:") != std::string::npos);
    CHECK(test::refusal(network_of("  threads: 2\n  paths: {kind: ecmp, weighted: true}\n")).find("weighted") !=
          std::string::npos);
    CHECK(test::refusal(network_of("  threads: 4\n")).empty());
    CHECK(test::refusal(network_of("  threads: 0\n")).find("between 1 and 256") != std::string::npos);
}

TEST_CASE("threads are for packets of messages: other fidelities, kinds and sums in switches are refused") {
    std::string fluid = network_of("  threads: 2\n");
    fluid.replace(fluid.find("packet"), 6, "fluid");
    CHECK(test::refusal(fluid).find("test.yaml:7:12: error: threads share packets") != std::string::npos);
    const std::string collective =
        "orrery: 1\nkind: collective\n"
        "cluster: {nodes: 4, node: dgx-h100, fabric: {nodes_per_leaf: 2, rails: 8}}\n"
        "collective: {op: all-reduce, size: 1 MB, algorithm: in-switch}\n"
        "network: {fidelity: packet, threads: 2}\n";
    CHECK(test::refusal(collective).find("test.yaml:4:53: error: threads cannot share a network that sums") !=
          std::string::npos);
    const std::string training = std::string(test::kSmallTraining) + "network: {fidelity: packet, threads: 2}\n";
    CHECK(test::refusal(training).find("unknown key 'threads'") != std::string::npos);
}
