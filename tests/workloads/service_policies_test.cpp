// Autoscalers and admissions from outside: the same rule gives the same bytes as the built-in, however it decides.

#include "tests/support/command.hpp"
#include "workloads/outside/decisions.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

using namespace orrery;
using namespace orrery::test;

namespace {

const std::string kPolicies = std::string(ORRERY_SOURCE_DIR) + "/scenarios/policies";

// A burst that takes more replicas than one, then little. `engine` is the section of that name, `own` the section `policies`.
std::string service(const std::string& engine, const std::string& own) {
    return fmt::format(
        "orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: llama-3-8b\n"
        "engine: {{{}}}\n"
        "requests: {{rate: 40, count: 400, arrivals: gamma, burstiness: 3, prompt: 400, output: 150}}\n{}",
        engine, own.empty() ? "" : "policies: {" + own + "}\n");
}

const std::string kScale = "autoscale: {target: 8, least: 1, interval: 1 s, cooldown: 2 s}, start: {provision: 1 s}";
const std::string kWhole = "replicas: 6, router: least-requests, " + kScale;
const std::string kSplit = "prefill: {replicas: 2, " + kScale + "}, decode: {replicas: 3, " + kScale + "}";
const std::string kFromNone =
    "replicas: 4, autoscale: {target: 5, least: 0, interval: 1 s, keep_alive: 2 s, cooldown: 0 s}";

std::string metrics_of(const Outcome& outcome) {
    const auto at = outcome.text.find("\"metrics\"");
    return at == std::string::npos ? outcome.text : outcome.text.substr(at);
}

Outcome outcome_of(const Folder& folder, const std::string& text, const std::string& options = "") {
    return orrery_command(fmt::format("run {} --quiet --json - {}", folder.file("scenario.yaml", text), options));
}

bool has_python() {
    const bool found = shell_command("python3 -c ''").code == 0;
    if (!found) {
        MESSAGE("skipped: no python3 here");
    }
    return found;
}

}  // namespace

TEST_CASE("an autoscaler of one's own gives the bytes of the built-in in C++, in Python, over a socket and recorded") {
    if (!has_python()) {
        return;
    }
    const Folder folder;
    const std::string object = folder.file("follow_queue.so");
    const Outcome built = shell_command(fmt::format("c++ -std=c++20 -O1 -shared -fPIC -I{}/include {} -o {}",
                                                    ORRERY_SOURCE_DIR, kPolicies + "/follow_queue.cpp", object));
    REQUIRE_MESSAGE(built.code == 0, built.text);
    for (const std::string& engine : {kWhole, kSplit, kFromNone}) {
        INFO(engine);
        const Outcome expected = outcome_of(folder, service(engine, ""));
        REQUIRE_MESSAGE(expected.code == 0, expected.text);
        const auto check = [&](const char* how, const Outcome& outcome) {
            CHECK_MESSAGE(outcome.code == 0, how << ": " << outcome.text);
            CHECK_MESSAGE(metrics_of(outcome) == metrics_of(expected), how);
        };
        const auto with = [&](const std::string& from) { return service(engine, "autoscaler: {from: " + from + "}"); };
        check("a shared object", outcome_of(folder, with(object), "--allow-policies"));
        const std::string record = folder.file("decisions.jsonl");
        check("Python", outcome_of(folder, with(kPolicies + "/follow_queue.py"),
                                   "--allow-policies --force --record-decisions " + record));
        check("a recording", outcome_of(folder, with(record)));
        const std::string scenario = folder.file("socket.yaml", with("socket"));
        check("a socket",
              shell_command(fmt::format(
                  "( python3 -c 'import sys, threading; sys.path[:0] = [\"{0}/workloads/outside\", \"{1}\"]; "
                  "import host, follow_queue; host.Host(autoscaler=follow_queue.FollowQueue).meet(\"{2}\", "
                  "threading.Event())' & "
                  "ORRERY_PROGRESS=none {3} serve-clock {4} --socket {2} --quiet --json -; code=$?; wait; exit $code )",
                  ORRERY_SOURCE_DIR, kPolicies, folder.file("clock"), orrery_program(), scenario)));
        // Fewer replicas than the load takes change the result: the policy is what decides.
        const std::string least =
            folder.file("least.py", "class L:\n    def scale(self, p):\n        return p.least\n");
        const Outcome few = outcome_of(folder, with(least), "--allow-policies");
        CHECK_MESSAGE((few.code == 0 && metrics_of(few) != metrics_of(expected)), few.text);
    }
}

TEST_CASE("an admission that takes all changes nothing, and one with a limit turns away what comes above it") {
    if (!has_python()) {
        return;
    }
    const Folder folder;
    const std::string engine = "replicas: 1, scheduler: {kind: chunked-prefill, max_sequences: 16}";
    const auto with = [&](const std::string& most) {
        return service(engine,
                       fmt::format("admission: {{from: {}/queue_limit.py, parameters: \"{}\"}}", kPolicies, most));
    };
    const Outcome expected = outcome_of(folder, service(engine, ""));
    const Outcome all = outcome_of(folder, with("100000"), "--allow-policies");
    CHECK_MESSAGE(metrics_of(all) == metrics_of(expected), all.text);
    const std::string record = folder.file("decisions.jsonl");
    const Outcome some = outcome_of(folder, with("20"), "--allow-policies --record-decisions " + record);
    REQUIRE_MESSAGE(some.code == 0, some.text);
    const std::string said = read(record);
    std::size_t refused = 0;
    for (std::size_t at = said.find("\"admit\":false"); at != std::string::npos;
         at = said.find("\"admit\":false", at + 1)) {
        ++refused;
    }
    CHECK((refused > 10 && refused < 400));
    CHECK_MESSAGE(
        some.text.find(fmt::format("{} requests were turned away by policies.admission", refused)) != std::string::npos,
        some.text);
    const Outcome again = outcome_of(folder, service(engine, "admission: {from: " + record + "}"));
    CHECK_MESSAGE(metrics_of(again) == metrics_of(some), again.text);
}

TEST_CASE("policies of a service that cannot be used are errors that say what is wrong") {
    const Folder folder;
    const auto refused = [&](const std::string& engine, const std::string& own, const std::string& said) {
        const Outcome outcome = outcome_of(folder, service(engine, own), "--allow-policies");
        CHECK_MESSAGE((outcome.code == 2 && outcome.text.find(said) != std::string::npos), outcome.text);
    };
    refused("replicas: 2", "autoscaler: {from: x.so}", "number follows the load (autoscale)");
    refused("replicas: 2, autoscale: {target: 5, rule: rate}", "autoscaler: {from: x.so}",
            "'engine.autoscale.rule' has no effect without a rule of Orrery's own");
    refused("replicas: 2", "admission: {}", "from");
    refused("replicas: 2", "admision: {from: x.py}", "admission");
    if (!has_python()) {
        return;
    }
    const auto file = [&](const std::string& body) { return folder.file("p.py", body); };
    refused(kWhole,
            "autoscaler: {from: " + file("class A:\n    def scale(self, pool):\n        return pool.most + 1\n") + "}",
            "it wants 7 replicas of pool 0, which has 1 to 6 (1 s)");
    refused(kWhole, "autoscaler: {from: " + file("class A:\n    def scale(self, pool):\n        return 1.5\n") + "}",
            "'replicas' must be a number of replicas");
    refused(kWhole, "autoscaler: {from: " + file("class A:\n    def scale(self, pool):\n        return pool.x\n") + "}",
            "AttributeError: 'Pool' object has no attribute 'x'");
    refused(kWhole, "autoscaler: {from: " + file("class A:\n    def choose(self, a, b):\n        return 0\n") + "}",
            "it does not decide as autoscaler: it decides router");
}
