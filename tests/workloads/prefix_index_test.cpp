// Routers whose index of caches learns of stored and evicted blocks after a delay.

#include "tests/support/scenarios.hpp"
#include "tests/workloads/serving_support.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

using namespace orrery;
using namespace orrery::test;

namespace {

RouterChoice router(const std::string& text) {
    RouterChoice choice(router_table(), "round-robin");
    std::vector<Diagnostic> errors;
    read_fields(parse_yaml("router: " + text, "router"), DataDirectory(ORRERY_SOURCE_DIR), errors, [&](Fields& fields) {
        choice.describe(fields, {"router", "a router"});
    });
    throw_if_any(errors);
    return choice;
}

Request turn(double arrival_s, std::uint32_t prompt, std::uint32_t output, std::uint64_t conversation) {
    Request one = request(arrival_s, prompt, output);
    one.content.conversation = conversation;
    return one;
}

struct Outcome {
    std::map<std::uint64_t, std::uint32_t> replicas;  ///< by request, the one that computed its prompt
    ServiceResult result;
};

// Replicas of so many blocks of 4 tokens, whose iterations take one second each.
Outcome serve_by(const std::string& text, std::int64_t replicas, std::uint64_t blocks, std::vector<Request> requests) {
    ServiceSpec spec = spec_of("chunked-prefill", 10'000, 64, blocks);
    spec.pools[0].limits.prefix_cache = true;
    spec.pools[0].limits.block_bytes = 1000;
    spec.pools[0].replicas = replicas;
    spec.router = router(text);
    AffineStep cost(1, 0, 0);
    spec.pools[0].cost = {&cost};
    Outcome out;
    ServiceHooks hooks;
    hooks.iteration = [&](std::uint32_t replica, const Batch& batch, const EngineState& state) {
        for (const BatchItem& item : batch.items) {
            out.replicas.try_emplace(state.sequence(item.sequence).id, replica);
        }
    };
    ListSource source(std::move(requests));
    out.result = serve(spec, source, hooks);
    return out;
}

// Conversations that take turns at random, in caches that drop most of what they said.
std::vector<Request> talks() {
    RandomStream random(5, "talks");
    std::map<std::uint64_t, std::uint32_t> said;
    std::vector<Request> out;
    double at = 0;
    for (int i = 0; i < 400; ++i) {
        at += random.exponential(0.7);
        const std::uint64_t conversation = 1 + random.below(12);
        const auto asks = static_cast<std::uint32_t>(4 + random.below(20));
        const auto answer = static_cast<std::uint32_t>(1 + random.below(5));
        std::uint32_t& tokens = said[conversation];
        tokens = tokens > 150 ? 0 : tokens;
        out.push_back(turn(at, tokens + asks, answer, conversation));
        tokens += asks + answer;
    }
    return out;
}

}  // namespace

TEST_CASE("an index whose events take next to no time routes as one that is the caches") {
    for (const char* kind : {"prefix", "weighted-scores", "affinity", "kv-cost"}) {
        CAPTURE(kind);
        const Outcome exact = serve_by(fmt::format("{{kind: {}}}", kind), 3, 120, talks());
        const Outcome none = serve_by(fmt::format("{{kind: {}, index_delay: 0 s}}", kind), 3, 120, talks());
        const Outcome fast = serve_by(fmt::format("{{kind: {}, index_delay: 1 ns}}", kind), 3, 120, talks());
        const Outcome slow = serve_by(fmt::format("{{kind: {}, index_delay: 30 s}}", kind), 3, 120, talks());
        REQUIRE(exact.result.prefix_tokens > 0);
        CHECK(none.replicas == exact.replicas);
        CHECK(fast.replicas == exact.replicas);
        CHECK(fast.result.prefix_tokens == exact.result.prefix_tokens);
        CHECK(slow.replicas != exact.replicas);
    }
}

TEST_CASE("an index whose events never come routes as one that knows nothing") {
    const Outcome never = serve_by("{kind: weighted-scores, index_delay: 1000000 s}", 3, 120, talks());
    CHECK(never.replicas == serve_by("{kind: weighted-scores, prefix: 0}", 3, 120, talks()).replicas);
    // Without a replica that has the prompt, and no load, the first one takes it.
    const std::vector<Request> quiet = {turn(0, 8, 1, 1), turn(0.1, 8, 1, 2), turn(10, 12, 1, 2)};
    CHECK(serve_by("{kind: prefix}", 2, 120, quiet).replicas.at(2) == 1);
    CHECK(serve_by("{kind: prefix, index_delay: 1000000 s}", 2, 120, quiet).replicas.at(2) == 0);
}

TEST_CASE("hits fall with the delay of events: a question after a gap finds its conversation if its blocks are known") {
    // The first replica is busy when a conversation begins, so that the second has it from 1.1 s after the first request on. Its next
    // question comes 1, 2, 4, 8, ... s after that, when both are idle, and goes to the first replica unless the second is known to have it.
    // Its blocks are stored when its batch is planned, a second before the answer.
    std::vector<Request> requests;
    constexpr int kTalks = 6;
    for (int i = 0; i < kTalks; ++i) {
        const double from = 1000.0 * i;
        const auto conversation = static_cast<std::uint64_t>(i) + 1;
        requests.push_back(request(from, 400, 1));
        requests.push_back(turn(from + 0.1, 9, 1, conversation));
        requests.push_back(turn(from + 1.1 + (1 << i), 13, 1, conversation));
    }
    std::uint64_t last = kTalks;
    for (const int delay : {0, 1, 2, 3, 5, 9, 17, 33, 200}) {
        CAPTURE(delay);
        std::uint64_t known = 0;
        for (int i = 0; i < kTalks; ++i) {
            known += (1 << i) >= delay ? 1 : 0;
        }
        for (const char* kind : {"prefix", "kv-cost"}) {  // the others draw among equals
            CAPTURE(kind);
            // Half a second more, so that no event is known just when a question comes.
            const Outcome out =
                serve_by(fmt::format("{{kind: {}, index_delay: {} s}}", kind, delay + 0.5), 2, 1000, requests);
            CHECK(out.result.prefix_tokens == 8 * known);
        }
        CHECK(known <= last);
        last = known;
    }
}

TEST_CASE("an index goes on to send prompts to a replica whose blocks are gone until it learns so") {
    // Ten blocks: the second conversation on a replica drives the first out. Its question comes 3 s after that.
    const std::vector<Request> requests = {turn(0, 30, 1, 1), turn(0.1, 30, 1, 2), turn(10, 36, 1, 3),
                                           turn(10.1, 36, 1, 4), turn(14, 31, 1, 2)};
    // Known to have lost it: the first of two idle replicas takes it. Not known yet: the one that had it.
    CHECK(serve_by("{kind: prefix, index_delay: 1 s}", 2, 10, requests).replicas.at(4) == 0);
    CHECK(serve_by("{kind: prefix, index_delay: 8 s}", 2, 10, requests).replicas.at(4) == 1);
}

TEST_CASE("an index of what was sent has no events, and says so") {
    const auto with = [](const char* text) {
        return scenario(fmt::format(
            "orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: llama-2-7b\n"
            "engine: {{replicas: 2, router: {{kind: affinity{}, index_delay: 1 s}}, kv: {{prefix: {{}}}}}}\n",
            text));
    };
    CHECK_NOTHROW((void)with(""));
    CHECK_THROWS_AS((void)with(", approximate: true"), ConfigError);
    CHECK_THROWS_AS(router("{kind: kv-cost, index_delay: -1 s}"), ConfigError);
}
