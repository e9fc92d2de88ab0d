// Policies from outside: the same decisions give the same bytes, however they come; wrong ones are errors with request and time.

#include "sim/base/error.hpp"
#include "tests/support/command.hpp"
#include "workloads/outside/decisions.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace orrery;
using namespace orrery::test;

namespace {

const std::string kPolicies = std::string(ORRERY_SOURCE_DIR) + "/scenarios/policies";

// A service whose scheduler is written as `scheduler`.
std::string service(const std::string& scheduler, const std::string& engine, const std::string& requests = "") {
    return fmt::format(
        "orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: llama-3-8b\n"
        "engine: {{{}}}\n"
        "requests: {{rate: 30, count: 150, prompt: {{kind: lognormal, mean: 400, spread: 1, most: 2048}}, "
        "output: {{kind: lognormal, mean: 60, spread: 0.8, most: 400}}{}}}\n",
        fmt::format(fmt::runtime(engine), fmt::arg("scheduler", scheduler)), requests);
}

struct Case {
    const char* what;
    const char* engine;
    const char* requests = "";
};

// Few blocks, so that who came last is preempted; prefixes that prompts share; replicas that only decode what others began.
const Case kCases[] = {
    {"preemption",
     "replicas: 2, kv: {{blocks: 200}}, scheduler: {{{scheduler}, token_budget: 512, max_sequences: 32}}"},
    {"prefixes", "replicas: 1, kv: {{blocks: 600, prefix: {{}}}}, scheduler: {{{scheduler}, token_budget: 1024}}",
     ", sessions: 10, conversations: true, common: 256"},
    {"split phases",
     "prefill: {{replicas: 1, scheduler: {{{scheduler}, token_budget: 1024}}}}, "
     "decode: {{replicas: 1, scheduler: {{{scheduler}, token_budget: 1024}}}}"},
};

// The summary without the lines that name the scenario.
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

std::string shared_object(const Folder& folder, const std::string& source) {
    std::string object = folder.file("policy.so");
    const Outcome built = shell_command(
        fmt::format("c++ -std=c++20 -O1 -shared -fPIC -I{}/include {} -o {}", ORRERY_SOURCE_DIR, source, object));
    REQUIRE_MESSAGE(built.code == 0, built.text);
    return object;
}

// What a scheduler in Python with this body of `plan` makes of a run.
Outcome with_python(const std::string& body, const std::string& options = "") {
    const Folder folder;
    const std::string policy =
        folder.file("policy.py", "class Mine:\n    def plan(self, engine, plan):\n        " + body + "\n");
    return outcome_of(folder, service("kind: outside, from: " + policy, kCases[0].engine),
                      "--allow-policies " + options);
}

}  // namespace

TEST_CASE("orders are read in each of their forms, and written back") {
    outside::Orders orders;
    outside::read_orders(R"({"orders": [7, [8, 128], {"preempt": 9}, {"run": [1, 2], "when_full": "skip"}]})", "it",
                         orders);
    REQUIRE(orders.size() == 5);
    CHECK((orders[0].request == 7 && orders[0].tokens == 0 && !orders[0].preempts));
    CHECK((orders[1].request == 8 && orders[1].tokens == 128));
    CHECK((orders[2].request == 9 && orders[2].preempts));
    CHECK((orders[3].request == 1 && orders[4].request == 2 && orders[4].when_full == policy::WhenFull::skip));
    const std::string text = outside::text_of(orders);
    outside::Orders again;
    outside::read_orders("{\"orders\":" + text + "}", "it", again);
    CHECK(outside::text_of(again) == text);
    CHECK(outside::read_choice(R"({"replica": 3})", "it") == 3);
    for (const char* wrong : {"", "7", "{}", R"({"orders": 7})", R"({"orders": [-1]})", R"({"orders": [[1]]})",
                              R"({"orders": [[1, 2, 3]]})", R"({"orders": [{"preempt": 1, "run": [2]}]})",
                              R"({"orders": [{"run": [1], "when_full": "wait"}]})", R"({"orders": [{"run": 1}]})",
                              R"({"orders": [{"run": [1], "token": 5}]})", R"({"orders": [1.5]})"}) {
        CHECK_THROWS_AS_MESSAGE(outside::read_orders(wrong, "it", orders), ConfigError, wrong);
    }
    CHECK_THROWS_WITH_AS((void)outside::read_choice(R"({"error": "KeyError: 7"})", "mine.py"),
                         "error: policy 'mine.py': KeyError: 7", ConfigError);
}

TEST_CASE("the built-in's scheduler gives the same bytes in C++, in Python, over a socket and from a recording") {
    if (!has_python()) {
        return;
    }
    const Folder folder;
    const std::string object = shared_object(folder, kPolicies + "/chunked_prefill.cpp");
    for (const Case& one : kCases) {
        INFO(one.what);
        const auto with = [&](const std::string& scheduler) { return service(scheduler, one.engine, one.requests); };
        const Outcome expected = outcome_of(folder, with("kind: chunked-prefill"));
        REQUIRE_MESSAGE(expected.code == 0, expected.text);
        CHECK_MESSAGE((std::string(one.what) != "preemption" || expected.text.find("preemptions") != std::string::npos),
                      expected.text);
        const auto check = [&](const char* how, const Outcome& outcome) {
            CHECK_MESSAGE(outcome.code == 0, how << ": " << outcome.text);
            CHECK_MESSAGE(metrics_of(outcome) == metrics_of(expected), how);
        };
        check("a shared object", outcome_of(folder, with("kind: outside, from: " + object), "--allow-policies"));
        const std::string record = folder.file("decisions.jsonl");
        check("Python", outcome_of(folder, with("kind: outside, from: " + kPolicies + "/chunked_prefill.py"),
                                   "--allow-policies --force --record-decisions " + record));
        check("a recording", outcome_of(folder, with("kind: outside, from: " + record)));
        const std::string scenario = folder.file("socket.yaml", with("kind: outside, from: socket"));
        const std::string socket = folder.file("clock");
        check("a socket",
              shell_command(fmt::format(
                  "( python3 -c 'import sys, threading; sys.path[:0] = [\"{0}/workloads/outside\", \"{1}\"]; "
                  "import host, chunked_prefill; host.Host(chunked_prefill.ChunkedPrefill).meet(\"{2}\", "
                  "threading.Event())' & "
                  "ORRERY_PROGRESS=none {3} serve-clock {4} --socket {2} --quiet --json -; code=$?; wait; exit $code )",
                  ORRERY_SOURCE_DIR, kPolicies, socket, orrery_program(), scenario)));
    }
}

TEST_CASE("a router in Python gives the same bytes as the built-in, and from its recording") {
    if (!has_python()) {
        return;
    }
    const Folder folder;
    const auto with = [](const std::string& router) {
        return service("kind: chunked-prefill", "replicas: 4, router: " + router + ", scheduler: {{{scheduler}}}",
                       ", sessions: 10");
    };
    const Outcome expected = outcome_of(folder, with("least-requests"));
    REQUIRE_MESSAGE(expected.code == 0, expected.text);
    const std::string record = folder.file("decisions.jsonl");
    const Outcome own = outcome_of(folder, with("{{kind: outside, from: " + kPolicies + "/least_requests.py}}"),
                                   "--allow-policies --record-decisions " + record);
    CHECK_MESSAGE(metrics_of(own) == metrics_of(expected), own.text);
    const Outcome again = outcome_of(folder, with("{{kind: outside, from: " + record + "}}"));
    CHECK_MESSAGE(metrics_of(again) == metrics_of(expected), again.text);
    const std::string wrong =
        folder.file("wrong.py", "class R:\n    def choose(self, replicas, request):\n        return 4\n");
    const Outcome beyond = outcome_of(folder, with("{{kind: outside, from: " + wrong + "}}"), "--allow-policies");
    CHECK((beyond.code == 2 && beyond.text.find("sends request 0 to replica 4 of 4") != std::string::npos));
}

TEST_CASE("code is loaded only when the command line allows it") {
    const Folder folder;
    for (const char* from : {"chunked_prefill.py", "chunked_prefill.so"}) {
        const Outcome outcome =
            outcome_of(folder, service("kind: outside, from: " + folder.file(from, "?"), kCases[0].engine));
        CHECK((outcome.code == 2 && outcome.text.find("--allow-policies") != std::string::npos));
        CHECK(outcome.text.find("[E216]") != std::string::npos);
    }
    const Outcome missing =
        outcome_of(folder, service("kind: outside, from: none.py", kCases[0].engine), "--allow-policies");
    CHECK((missing.code == 2 && missing.text.find("none.py") != std::string::npos));
    const Outcome other =
        outcome_of(folder, service("kind: outside, from: policy.rb", kCases[0].engine), "--allow-policies");
    CHECK((other.code == 2 && other.text.find("'from' is") != std::string::npos));
    const Outcome nobody = outcome_of(folder, service("kind: outside, from: socket", kCases[0].engine));
    CHECK((nobody.code == 2 && nobody.text.find("serve-clock") != std::string::npos));
    for (const char* extra : {"from: none.jsonl, parameters: x", "from: none.so, class: X", "from: socket, class: X"}) {
        const Outcome ignored = outcome_of(folder, service(std::string("kind: outside, ") + extra, kCases[0].engine));
        CHECK_MESSAGE((ignored.code == 2 && ignored.text.find("has no effect without") != std::string::npos),
                      ignored.text);
    }
    const Outcome without = outcome_of(folder, service("kind: outside", kCases[0].engine));
    CHECK((without.code == 2 && without.text.find("from") != std::string::npos));
}

TEST_CASE("an order that cannot be carried out is an error with its request and time") {
    if (!has_python()) {
        return;
    }
    const auto refused = [](const char* body, const char* said, const std::string& options = "") {
        const Outcome outcome = with_python(body, options);
        CHECK_MESSAGE(outcome.code == 2, body << ": " << outcome.text);
        CHECK_MESSAGE(outcome.text.find(said) != std::string::npos, body << ": " << outcome.text);
    };
    refused("plan.run(4000)", "request 4000 cannot run: it neither waits nor runs here (replica 0, 0.");
    refused("[plan.run(one.request) for one in engine.waiting + engine.running + engine.running]",
            "is twice in one batch");
    refused("plan.preempt(engine.waiting[0].request)", "cannot be preempted: it does not run");
    refused("plan.run(engine.waiting[0].request, when_full='preempt')", "only a request that runs can preempt others");
    refused("pass", "is never finished: no order was given for it at the end");
    refused("plan.run(engine.sequences[0])", "AttributeError: 'Engine' object has no attribute 'sequences' (");
    refused("plan.run('first')", "an order is REQUEST, [REQUEST, TOKENS]");
    refused("__import__('os')._exit(3)", "it has ended without an answer");
    refused("__import__('time').sleep(60)", "it has not answered for 0.2 s", "--policy-timeout '200 ms'");
}

TEST_CASE("a recording of another scenario is refused at the decision that differs") {
    if (!has_python()) {
        return;
    }
    const Folder folder;
    const std::string record = folder.file("decisions.jsonl");
    const std::string policy = "kind: outside, from: " + kPolicies + "/chunked_prefill.py";
    REQUIRE(
        outcome_of(folder, service(policy, kCases[0].engine), "--allow-policies --record-decisions " + record).code ==
        0);
    const std::string recorded = service("kind: outside, from: " + record, kCases[0].engine);
    CHECK(outcome_of(folder, recorded).code == 0);
    const Outcome other = outcome_of(folder, recorded, "--seed 2");
    CHECK((other.code == 2 && other.text.find("the scenario is not the one that was recorded") != std::string::npos));
    for (const auto& [text, said] :
         {std::pair("{}\n", "no recording of decisions"),
          std::pair("{\"orrery_decisions\": 1}\n", "no decision is recorded"),
          std::pair("{\"orrery_decisions\": 1}\n{\"time\": 1}\n", ":2:1: error: a decision names")}) {
        const std::string broken = folder.file("broken.jsonl", text);
        const Outcome outcome = outcome_of(folder, service("kind: outside, from: " + broken, kCases[0].engine));
        CHECK_MESSAGE((outcome.code == 2 && outcome.text.find(said) != std::string::npos), outcome.text);
    }
}

TEST_CASE("an object of another version, or of another kind of policy, is refused") {
    const Folder folder;
    const std::string old =
        folder.file("old.cpp",
                    "#include <orrery/policy.hpp>\n#undef ORRERY_POLICY_VERSION\n"
                    "#define ORRERY_POLICY_VERSION 0\n"
                    "struct S : orrery::policy::Scheduler {\n"
                    "  void plan(const orrery::policy::Engine&, orrery::policy::Plan&) override {}\n"
                    "};\nORRERY_SCHEDULER(S)\n");
    const std::string object = shared_object(folder, old);
    const Outcome outcome =
        outcome_of(folder, service("kind: outside, from: " + object, kCases[0].engine), "--allow-policies");
    CHECK_MESSAGE((outcome.code == 2 && outcome.text.find("built for version 0") != std::string::npos), outcome.text);
    const Outcome router =
        outcome_of(folder,
                   service("kind: chunked-prefill",
                           "replicas: 2, router: {{kind: outside, from: " + object + "}}, scheduler: {{{scheduler}}}"),
                   "--allow-policies");
    CHECK_MESSAGE((router.code == 2 && router.text.find("it has no router") != std::string::npos), router.text);
}

TEST_CASE("a process that never comes to the socket, or greets in another protocol, is an error") {
    const Folder folder;
    const std::string scenario = folder.file("s.yaml", service("kind: outside, from: socket", kCases[0].engine));
    const std::string socket = folder.file("clock");
    const Outcome nobody = orrery_command(fmt::format("serve-clock {} --socket {} --wait '100 ms'", scenario, socket));
    CHECK_MESSAGE((nobody.code == 2 && nobody.text.find("nobody has come for 0.1 s") != std::string::npos),
                  nobody.text);
    const Outcome taken =
        orrery_command(fmt::format("serve-clock {} --socket {} --wait '100 ms'", scenario, folder.file("taken", "x")));
    CHECK_MESSAGE((taken.code == 2 && taken.text.find("a file of this name is there") != std::string::npos),
                  taken.text);
    CHECK(read(folder.file("taken")) == "x");
    if (!has_python()) {
        return;
    }
    const std::string plain = folder.file("plain.yaml", service("kind: chunked-prefill", kCases[0].engine));
    const Outcome unasked =
        shell_command(fmt::format("( python3 -c 'import sys, threading; sys.path[:0] = [\"{0}/workloads/outside\"]; "
                                  "import host; host.Host().meet(\"{1}\", threading.Event())' & "
                                  "{2} serve-clock {3} --socket {1} --quiet --json -; code=$?; wait; exit $code )",
                                  ORRERY_SOURCE_DIR, socket, orrery_program(), plain));
    CHECK_MESSAGE((unasked.code == 2 && unasked.text.find("no policy of this scenario") != std::string::npos),
                  unasked.text);
    const Outcome rude = shell_command(fmt::format(
        "( python3 -c 'import socket, time\n"
        "for _ in range(2000):\n"
        "    s = socket.socket(socket.AF_UNIX)\n"
        "    try:\n        s.connect(\"{0}\")\n        break\n    except OSError:\n        time.sleep(0.005)\n"
        "s.sendall(b\"HTTP/1.1\\n\"); s.recv(1)' & "
        "{1} serve-clock {2} --socket {0} --quiet; code=$?; wait; exit $code )",
        socket, orrery_program(), scenario));
    CHECK_MESSAGE((rude.code == 2 && rude.text.find("it must greet with") != std::string::npos), rude.text);
}
