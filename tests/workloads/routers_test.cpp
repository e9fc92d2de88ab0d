// What each router decides of the same replicas, from its published formula.

#include "tests/workloads/serving_support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

using namespace orrery;
using namespace orrery::test;

namespace {

/// Replicas of 100 blocks of 16 tokens with a prefix cache.
class Replicas {
  public:
    explicit Replicas(std::size_t count) {
        EngineLimits limits;
        limits.blocks = 100;
        limits.block = 16;
        limits.prefix_cache = true;
        for (std::size_t i = 0; i < count; ++i) {
            states_.push_back(std::make_unique<EngineState>(limits));
            engines.push_back(states_.back().get());
            among.push_back(static_cast<std::uint32_t>(i));
        }
    }
    /// A request that waits, and one that runs and decodes.
    void wait(std::size_t replica, std::uint32_t prompt, std::uint64_t conversation = 0) {
        Request one = request(0, prompt, 50);
        one.content.conversation = conversation;
        (void)states_[replica]->add(one, next_++);
    }
    void run(std::size_t replica, std::uint32_t prompt, std::uint64_t conversation = 0) {
        wait(replica, prompt, conversation);
        EngineState& state = *states_[replica];
        const std::uint32_t index = state.waiting.back();
        Batch batch;
        REQUIRE(state.schedule(index, prompt, batch));
        state.admit_front();
        Sequence& sequence = state.sequence(index);
        sequence.cached = prompt;
        sequence.generated = 1;
        state.name_blocks(index);
    }
    [[nodiscard]] std::uint32_t choice(Router& router, std::uint32_t prompt, std::uint32_t session = 0,
                                       std::uint64_t conversation = 0, std::uint64_t number = 0) const {
        PromptContent content;
        content.conversation = conversation;
        return router.choose(engines, among, {number, SimTime(), session, content, prompt});
    }
    [[nodiscard]] std::uint32_t choice(const std::string& kind, std::uint32_t prompt,
                                       std::uint64_t conversation = 0) const {
        return choice(*RouterChoice(router_table(), kind).make(), prompt, 0, conversation);
    }

    /// The number of the next request.
    [[nodiscard]] std::uint64_t next() const { return next_; }

    EngineStates engines;
    std::vector<std::uint32_t> among;

  private:
    std::vector<std::unique_ptr<EngineState>> states_;
    std::uint64_t next_ = 0;
};

std::unique_ptr<Router> router(const std::string& text) {
    RouterChoice choice(router_table(), "round-robin");
    std::vector<Diagnostic> errors;
    read_fields(parse_yaml("router: " + text, "router"), DataDirectory(ORRERY_SOURCE_DIR), errors, [&](Fields& fields) {
        choice.describe(fields, {"router", "a router"});
    });
    throw_if_any(errors);
    return choice.make();
}

}  // namespace

TEST_CASE("waiting-first counts a waiting request as four running ones, as vLLM's balancer does") {
    Replicas replicas(3);
    for (int i = 0; i < 5; ++i) {
        replicas.run(0, 16);
    }
    replicas.wait(1, 16);
    replicas.run(1, 16);
    replicas.wait(2, 16);
    replicas.wait(2, 16);
    // 5, 4 + 1 and 8: the first of the equals; one that waits for two takes the second, and one for nothing the third.
    CHECK(replicas.choice("waiting-first", 16) == 0);
    CHECK(replicas.choice(*router("{kind: waiting-first, waiting: 2}"), 16) == 1);
    CHECK(replicas.choice(*router("{kind: waiting-first, waiting: 0}"), 16) == 2);
    CHECK(replicas.choice("least-requests", 16) == 1);
}

TEST_CASE("kv-cost takes the least of blocks to compute and blocks in use, as Dynamo documents it") {
    // The example of Dynamo's documentation: 8 blocks of a request of 10 are to be computed beside 10 in use, 5 beside 5, 2 beside 9.
    Replicas replicas(3);
    const std::uint32_t prompt = 160;
    const auto set_up = [&](std::size_t replica, std::uint32_t cached, std::uint32_t used) {
        // The conversation's first blocks, which the running request holds, and others in use beside them.
        replicas.run(replica, cached * 16, 7);
        replicas.run(replica, (used - cached) * 16);
    };
    set_up(0, 2, 10);
    set_up(1, 4, 5);
    set_up(2, 8, 9);
    // 8 + 10 + 8, 6 + 5 + 6, 2 + 9 + 2.
    CHECK(replicas.choice("kv-cost", prompt, 7) == 2);
    // Without the prompt's blocks the least used one is left; they count once even then, as blocks to hold: 18, 11, 11.
    CHECK(replicas.choice(*router("{kind: kv-cost, overlap: 0}"), prompt, 0, 7) == 1);
    // Of another conversation nothing is cached: 10 + 10 + 10, 10 + 5 + 10, 10 + 9 + 10.
    CHECK(replicas.choice("kv-cost", prompt, 8) == 1);
    // What waits will have to be computed as well: 10 blocks of prompts on the second replica.
    replicas.wait(1, 160);
    CHECK(replicas.choice("kv-cost", prompt, 8) == 2);
}

TEST_CASE("kv-cost with a temperature draws replicas by softmax over their costs") {
    Replicas replicas(2);
    replicas.run(1, 160);
    const auto drawn = router("{kind: kv-cost, temperature: 1}");
    int first = 0;
    constexpr int kDraws = 20'000;
    for (int i = 0; i < kDraws; ++i) {
        first += replicas.choice(*drawn, 160, 0, 0, static_cast<std::uint64_t>(i)) == 0 ? 1 : 0;
    }
    // Costs scaled to 0 and 1: 1 / (1 + 1/e).
    CHECK(static_cast<double>(first) / kDraws == doctest::Approx(1 / (1 + std::exp(-1.0))).epsilon(0.02));
}

TEST_CASE("weighted-scores adds a short queue, free cache and cached prompt, as llm-d's scorers do") {
    Replicas replicas(3);
    replicas.run(0, 160, 7);  // 10 of 100 blocks, all of the conversation's
    replicas.wait(0, 16);
    replicas.wait(0, 16);
    replicas.wait(1, 16);
    replicas.run(2, 800);
    // Queues 2, 1, 0; free 0.9, 1, 0.5. Nothing cached: 0 + 1.8, 1 + 2, 2 + 1: the last two are equal, and one of them is drawn.
    std::map<std::uint32_t, int> drawn;
    const auto scores = router("weighted-scores");
    for (std::uint64_t i = 0; i < 1000; ++i) {
        ++drawn[replicas.choice(*scores, 320, 0, 0, i)];
    }
    CHECK((drawn.size() == 2 && drawn[1] > 400 && drawn[2] > 400));
    // Half of the prompt cached adds 1.5 to the first: 3.3.
    CHECK(replicas.choice(*scores, 320, 0, 7) == 0);
    CHECK(replicas.choice(*router("{kind: weighted-scores, prefix: 0, cache: 0}"), 320, 0, 7) == 2);
    CHECK(replicas.choice(*router("{kind: weighted-scores, prefix: 0, queue: 0}"), 320, 0, 7) == 1);
}

TEST_CASE("power-of-two takes the better of two draws, so that the worst replica gets none") {
    Replicas replicas(4);
    for (std::size_t replica = 0; replica < 4; ++replica) {
        for (std::size_t i = 0; i < replica; ++i) {
            replicas.wait(replica, 16);
        }
    }
    std::map<std::uint32_t, int> drawn;
    const auto two = router("power-of-two");
    constexpr int kDraws = 12'000;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
        ++drawn[replicas.choice(*two, 16, 0, 0, i)];
    }
    // Of the six pairs the first replica wins three, the second two and the third one.
    CHECK(drawn[0] == doctest::Approx(kDraws / 2.0).epsilon(0.04));
    CHECK(drawn[1] == doctest::Approx(kDraws / 3.0).epsilon(0.04));
    CHECK(drawn[2] == doctest::Approx(kDraws / 6.0).epsilon(0.06));
    CHECK(drawn[3] == 0);
    Replicas one(1);
    CHECK(one.choice(*two, 16) == 0);
}

TEST_CASE("consistent-hash moves only the sessions of a replica that goes, and random spreads evenly") {
    Replicas replicas(5);
    const auto hash = router("consistent-hash");
    const auto homes = [&] {
        std::vector<std::uint32_t> out;
        for (std::uint32_t session = 0; session < 5000; ++session) {
            out.push_back(replicas.choice(*hash, 16, session));
        }
        return out;
    };
    const std::vector<std::uint32_t> before = homes();
    for (std::uint32_t i = 0; i < 5; ++i) {
        CHECK(std::count(before.begin(), before.end(), i) == doctest::Approx(1000).epsilon(0.1));
    }
    replicas.among = {0, 1, 3, 4};
    const std::vector<std::uint32_t> after = homes();
    for (std::size_t session = 0; session < before.size(); ++session) {
        CHECK((before[session] == 2 ? after[session] != 2 : after[session] == before[session]));
    }
    replicas.among = {0, 1, 2, 3, 4};
    std::map<std::uint32_t, int> drawn;
    const auto any = router("random");
    for (std::uint64_t i = 0; i < 5000; ++i) {
        ++drawn[replicas.choice(*any, 16, 0, 0, i)];
    }
    for (std::uint32_t i = 0; i < 5; ++i) {
        CHECK(drawn[i] == doctest::Approx(1000).epsilon(0.1));
    }
}

// Arrivals at random to servers of a fixed service time, one request at a time: as many replicas as `replicas`, at a load of 0.8.
double mean_wait(const std::string& kind, std::size_t count) {
    constexpr double kLoad = 0.8;
    constexpr std::uint32_t kReplicas = 8;
    RandomStream random(3, "queue");
    std::vector<Request> requests;
    double at = 0;
    for (std::size_t i = 0; i < count; ++i) {
        at += random.exponential(1 / (kLoad * kReplicas));
        requests.push_back(request(at, 1, 1, static_cast<std::uint32_t>(i)));
    }
    ListSource source(std::move(requests));
    AffineStep cost(1, 0, 0);
    ServiceSpec spec = spec_of("orca", 100, 1, 100);
    spec.pools[0].replicas = kReplicas;
    spec.router.choose(kind);
    const ServiceResult result = serve_with(spec, source, cost);
    double wait = 0;
    for (const RequestOutcome& outcome : result.requests) {
        wait += outcome.ttft - 1;
    }
    return wait / static_cast<double>(result.requests.size());
}

TEST_CASE(
    "queues behind routers follow theory: random is M/D/1, two choices are far better, the shortest queue better "
    "still") {
    constexpr std::size_t kRequests = 60'000;
    const double drawn = mean_wait("random", kRequests);
    // Pollaczek-Khinchine at a load of 0.8: 0.8 / (2 (1 - 0.8)) services.
    CHECK(drawn == doctest::Approx(2).epsilon(0.06));
    const double two = mean_wait("power-of-two", kRequests);
    const double shortest = mean_wait("least-requests", kRequests);
    CHECK((two < 0.5 * drawn && shortest < 0.75 * two && shortest > 0));
    CHECK(mean_wait("round-robin", kRequests) < drawn);
}

TEST_CASE("affinity keeps a request at a replica with most of its prompt until that is saturated, as llm-d documents") {
    const auto choice = [](const std::string& text, std::uint32_t loading) {
        Replicas replicas(2);
        replicas.run(1, 144, 7);
        const auto one = router(text);
        const auto send = [&](std::uint32_t prompt) {
            const std::uint32_t taken = replicas.choice(*one, prompt, 0, 7, replicas.next());
            replicas.wait(taken, prompt, 7);
            return taken;
        };
        // 144 of 160 tokens are cached: sticky, with 16 tokens in flight then.
        CHECK(send(160) == 1);
        // Less than half of this one is: the fewest uncached tokens in flight take it, which are those beside the cached ones.
        CHECK(send(144 + loading) == 1);
        return send(160);
    };
    CHECK(choice("{kind: affinity, cached: 0.5, imbalance: 1000}", 984) == 1);
    CHECK(choice("{kind: affinity, cached: 0.5, imbalance: 1000}", 985) == 0);
    CHECK(choice("{kind: affinity, cached: 0.5, imbalance: 0}", 985) == 1);
}

TEST_CASE("affinity counts prompts as in flight until their first token") {
    Replicas replicas(2);
    const auto one = router("affinity");
    const std::uint32_t taken = replicas.choice(*one, 160, 0, 0, replicas.next());
    replicas.wait(taken, 160);
    const std::uint32_t other = replicas.choice(*one, 100, 0, 0, replicas.next());
    CHECK(other == 1 - taken);
    replicas.run(other, 100);  // it has had its first token: 160 against none
    CHECK(replicas.choice(*one, 100, 0, 0, replicas.next()) == other);
}

TEST_CASE("an index of traffic knows the prompts that were sent, as many blocks as the cache has") {
    Replicas replicas(2);
    const auto one = router("{kind: weighted-scores, queue: 0, cache: 0, prefix: 1, approximate: true}");
    // Nothing is cached anywhere, and nobody has run: the second request of a conversation follows the first.
    const std::uint32_t first = replicas.choice(*one, 160, 0, 7, 1);
    CHECK(replicas.choice(*one, 160, 0, 7, 2) == first);
    CHECK(replicas.choice(*one, 320, 0, 7, 3) == first);
    // 100 blocks of other prompts on both replicas push it out: draws decide again, and go both ways.
    std::set<std::uint32_t> drawn;
    for (std::uint64_t i = 0; i < 40; ++i) {
        for (std::uint64_t other = 0; other < 4; ++other) {
            (void)replicas.choice(*one, 1600, 0, 1000 + 10 * i + other, 100 + 10 * i + other);
        }
        drawn.insert(replicas.choice(*one, 160, 0, 7, 5000 + i));
    }
    CHECK(drawn.size() == 2);
}

TEST_CASE("weighted-scores spreads prompts that nobody knows, the replica without one for longest first") {
    // The scores of llm-d's no-hit-lru-scorer among three: 1, 0.5 and 0, first those that never had one, in their order.
    Replicas replicas(3);
    const auto one = router("{kind: weighted-scores, queue: 0, cache: 0, prefix: 0, cold: 1, approximate: true}");
    std::vector<std::uint32_t> taken;
    for (std::uint64_t i = 0; i < 6; ++i) {
        taken.push_back(replicas.choice(*one, 160, 0, 0, i));
    }
    CHECK(taken == std::vector<std::uint32_t>{0, 1, 2, 0, 1, 2});
}
