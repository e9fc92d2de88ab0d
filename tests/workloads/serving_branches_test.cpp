// Conversations whose questions are several requests side by side: agents with sub-agents, and their deadlines.

#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tests/workloads/serving_support.hpp"
#include "workloads/serving/requests/arrivals.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <vector>

using namespace orrery;
using namespace orrery::test;

namespace {

// Conversations without an end but that of `count`, 10,000 s apart, of questions of 10 tokens and answers of 5.
RequestsSpec forking(std::int64_t branches, double think, std::int64_t count) {
    RequestsSpec spec;
    spec.arrivals = ArrivalKind::fixed;
    spec.rate = 1e-4;
    spec.turns = 1e9;
    spec.think = think;
    spec.branches = branches;
    spec.count = count;
    spec.prompt.mean = 10;
    spec.output.mean = 5;
    return spec;
}

ServiceSpec service() {
    ServiceSpec spec = spec_of("chunked-prefill", 10'000, 64, 10'000);
    spec.pools[0].limits.prefix_cache = true;
    spec.pools[0].limits.block_bytes = 1000;
    return spec;
}

}  // namespace

TEST_CASE("the branches of a question run side by side, and the next question waits for all of them") {
    // One question and four more of three branches, and the question of the next conversation, which is asked for ahead of time. The
    // branches of a question share iterations of a second: five seconds for each question, whatever its branches.
    const auto source = make_requests(forking(3, 0, 14), "", 1);
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(service(), *source, cost);
    REQUIRE(result.requests.size() == 14);
    REQUIRE(result.sessions.size() == 2);
    CHECK(result.sessions[0].requests == 13);
    CHECK((result.sessions[0].last - result.sessions[0].first).seconds() == doctest::Approx(25));
    CHECK((result.sessions[1].last - result.sessions[1].first).seconds() == doctest::Approx(5));
    // With two places the third branch of a question waits for one of the others.
    ServiceSpec narrow = service();
    narrow.pools[0].limits.max_sequences = 2;
    const auto again = make_requests(forking(3, 0, 14), "", 1);
    const ServiceResult slow = serve_with(narrow, *again, cost);
    CHECK((slow.sessions[0].last - slow.sessions[0].first).seconds() == doctest::Approx(5 + 4 * 10));
}

TEST_CASE("branches begin with what their conversation has said, and go on alone") {
    const auto source = make_requests(forking(3, 0, 14), "", 1);
    Request first;
    REQUIRE(source->next(first));
    CHECK(first.prompt == 10);
    std::vector<Request> branches(3);
    REQUIRE(source->follow_up(first.turn, SimTime::from_seconds(7), true, branches[0]));
    REQUIRE(source->another(branches[1]));
    REQUIRE(source->another(branches[2]));
    Request next;
    CHECK_FALSE(source->another(next));
    for (const Request& branch : branches) {
        CHECK(branch.prompt == 10 + 5 + 10);
        CHECK(branch.arrival == SimTime::from_seconds(7));
        CHECK(branch.session == first.session);
        for (std::uint64_t block = 0; block < 15; ++block) {
            CHECK(branch.content.key(block, 1) == first.content.key(block, 1));
        }
    }
    CHECK(branches[0].content.key(15, 1) != branches[1].content.key(15, 1));
    CHECK(branches[1].content.key(15, 1) != branches[2].content.key(15, 1));
    CHECK(branches[0].content.key(15, 1) != first.content.key(15, 1));
    // Two are answered: nothing follows yet. The next question has all that was said, in an order of its own.
    CHECK_FALSE(source->follow_up(first.turn, SimTime::from_seconds(8), true, next));
    CHECK_FALSE(source->follow_up(first.turn, SimTime::from_seconds(9), true, next));
    REQUIRE(source->follow_up(first.turn, SimTime::from_seconds(11), true, next));
    CHECK(next.prompt == 15 + 3 * 15 + 10);
    CHECK(next.arrival == SimTime::from_seconds(11));
    CHECK(next.content.key(14, 1) == first.content.key(14, 1));
    CHECK(next.content.key(20, 1) != branches[0].content.key(20, 1));
}

TEST_CASE("a conversation ends when a branch is not answered") {
    const auto source = make_requests(forking(2, 0, 100), "", 1);
    Request first;
    Request next;
    REQUIRE(source->next(first));
    REQUIRE(source->follow_up(first.turn, SimTime(), true, next));
    REQUIRE(source->another(next));
    CHECK_FALSE(source->follow_up(first.turn, SimTime(), false, next));
    CHECK_FALSE(source->follow_up(first.turn, SimTime(), true, next));
}

TEST_CASE("one branch is a question as before, drawn as before") {
    RequestsSpec spec = forking(1, 3, 200);
    spec.turns = 5;
    spec.prompt = {LengthKind::lognormal, 40, 1, 4000};
    const auto source = make_requests(spec, "", 3);
    Request request;
    REQUIRE(source->next(request));
    CHECK(request.content.branch == 0);
    std::int64_t said = request.prompt + request.output;
    SimTime now;
    while (source->follow_up(request.turn, now, true, request)) {
        CHECK(request.prompt > said);
        CHECK(request.content.branch == 0);
        CHECK_FALSE(source->another(request));
        said = request.prompt + request.output;
    }
}

namespace {

// Four sessions for two clients; the first asks again 100 s after its answer.
class Sessions final : public RequestSource {
  public:
    std::uint64_t clients() const override { return 2; }
    bool next(Request& one) override {
        one = request(0, 4, 1, next_);
        one.turn = next_ == 0 ? 1 : 0;
        return next_++ < 4;
    }
    bool follow_up(std::uint32_t, SimTime now, bool, Request& one) override {
        one = request(now.seconds() + 100, 4, 1, 0);
        return true;
    }

  private:
    std::uint32_t next_ = 0;
};

}  // namespace

TEST_CASE("a client that thinks about an answer takes no other conversation meanwhile") {
    Sessions sessions;
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(service(), sessions, cost);
    REQUIRE(result.requests.size() == 5);
    // The other client plays the rest, one after another.
    CHECK(result.requests[1].arrival.seconds() == doctest::Approx(0));
    CHECK(result.requests[2].arrival.seconds() == doctest::Approx(1));
    CHECK(result.requests[3].arrival.seconds() == doctest::Approx(2));
    CHECK(result.requests[4].arrival.seconds() == doctest::Approx(101));
}

TEST_CASE("a run of conversations says how long they take, and how many keep their deadline") {
    const auto run = [](const char* requests, const char* slo) {
        return run_scenario(scenario(fmt::format("orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\n"
                                                 "model: llama-2-7b\nengine: {{step_cost: {{fixed: 10 ms}}}}\n"
                                                 "requests: {{rate: 1, count: 300, turns: 4, {}prompt: 100, output: "
                                                 "{{mean: 50}}}}\nslo: {{{}}}\n",
                                                 requests, slo)),
                            model_cache(), {})
            .summary;
    };
    const Summary plain = run("", "session: 1 s");
    const Summary forked = run("branches: 4, ", "session: 1 s");
    REQUIRE(plain.find("session_s.mean") != nullptr);
    // Half a second for each question: those of one question alone, or of two, keep a deadline of a second.
    CHECK(plain.find("session_requests.mean")->value > 2);
    CHECK(plain.find("session_s.mean")->value ==
          doctest::Approx(0.5 * plain.find("session_requests.mean")->value).epsilon(0.05));
    CHECK(plain.find("session_attainment")->value > 0.15);
    CHECK(plain.find("session_attainment")->value < 0.7);
    CHECK(plain.find("sessions_failed")->value == 0);
    CHECK(forked.find("session_requests.mean")->value > plain.find("session_requests.mean")->value);
    CHECK(run("", "ttft: 1 s").find("session_attainment") == nullptr);
    const std::string twice = "requests: {rate: 1, turns: 4, mix: [{share: 1}]}\nslo: {session: 3 s}\n";
    CHECK(refusal("orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-2-7b\n" + twice) != "");
    CHECK_THROWS_AS(scenario("orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-2-7b\n"
                             "requests: {branches: 3}\n"),
                    ConfigError);
    CHECK_THROWS_AS(scenario("orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-2-7b\n"
                             "slo: {session: 3 s}\n"),
                    ConfigError);
}
