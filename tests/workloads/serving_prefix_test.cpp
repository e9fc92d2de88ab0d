#include "sim/base/random.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tests/workloads/serving_support.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "workloads/serving/requests/arrivals.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>

using namespace orrery;
using namespace orrery::test;

namespace {

Request turn(double arrival_s, std::uint32_t prompt, std::uint32_t output, std::uint64_t conversation) {
    Request one = request(arrival_s, prompt, output);
    one.content.conversation = conversation;
    return one;
}

ServiceSpec caching(std::uint64_t blocks) {
    ServiceSpec spec = spec_of("chunked-prefill", 100, 8, blocks);
    spec.pools[0].limits.prefix_cache = true;
    spec.pools[0].limits.block_bytes = 1000;
    return spec;
}

}  // namespace

TEST_CASE("serving: keys of blocks follow the content: keys of a trace, a system prompt, then the conversation") {
    PromptContent content;
    CHECK(content.key(0, 16) == 0);
    content.common = 40;
    content.conversation = 7;
    PromptContent other = content;
    other.conversation = 8;
    CHECK(content.key(1, 16) == other.key(1, 16));  // tokens 16 to 31 are the system prompt's
    CHECK(content.key(2, 16) != other.key(2, 16));  // 32 to 47 are partly its own
    CHECK(content.key(0, 16) != content.key(1, 16));
    PromptContent traced;
    traced.keys = {5, 6};
    CHECK(traced.key(31, 16) != 0);
    CHECK(traced.key(63, 16) != 0);
    CHECK(traced.key(64, 16) == 0);
    PromptContent longer;
    longer.keys = {5, 6, 9};
    CHECK(traced.key(40, 16) == longer.key(40, 16));
}

TEST_CASE("serving: a turn computes only what its conversation has not cached, and at least its last token") {
    // Blocks of four. The first turn leaves 4 + 3 - 1 cached tokens: one full block.
    CHECK(iterations(caching(100), {turn(0, 4, 3, 1), turn(10, 9, 1, 1), turn(20, 8, 1, 1), turn(30, 8, 1, 2)}) ==
          Lines{"0:4", "0:1", "0:1", "1:5", "2:4", "3:8"});
}

TEST_CASE("serving: who holds blocks waits before who was preempted while it was held back") {
    EngineLimits limits;
    limits.blocks = 10;
    limits.block = 16;
    EngineState state(limits);
    const std::uint32_t runs = state.add(request(0, 64, 8), 1);
    Batch batch;
    REQUIRE(state.schedule(runs, 64, batch));
    state.admit_front();
    // The cache of another comes from elsewhere and is held back while the engine plans; the plan preempts what runs.
    const std::uint32_t arrives = state.add(request(0, 64, 8), 2);
    state.waiting.clear();
    REQUIRE(state.reserve(arrives, 64));
    state.arrived(arrives);
    const std::vector<std::uint32_t> newcomers = state.hold_newcomers();
    REQUIRE(newcomers == std::vector<std::uint32_t>{arrives});
    state.recompute_later(0);
    state.let_in(newcomers);
    CHECK(state.waiting.front() == arrives);
    CHECK(state.waiting.back() == runs);
}

TEST_CASE("serving: conversations through lower tiers of a cache for few sequences end, whatever the engine") {
    for (const char* software : {"vllm-0.11", "vllm-0.6", "sglang-0.5"}) {
        for (const char* tiers : {"nvme: 8 GiB, nvme_bandwidth: 6 GB/s", "host: 2 GiB", "host: 1 GiB, nvme: 4 GiB"}) {
            CAPTURE(software);
            CAPTURE(tiers);
            const Summary out =
                run_scenario(
                    scenario(fmt::format(
                        "orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\n"
                        "model: llama-2-7b\nengine: {{software: {}, kv: {{blocks: 400, prefix: {{{}}}}}}}\n"
                        "requests: {{sessions: 10, conversations: true, count: 1500, prompt: {{most: 4096}}}}\n",
                        software, tiers)),
                    model_cache(), {})
                    .summary;
            CHECK(out.find("requests_per_s")->value > 0);
        }
    }
}

TEST_CASE("serving: sequences share the blocks of a prefix while both run") {
    // Five blocks of four: both need four for their prompts, but three of them are the same.
    ServiceSpec spec = caching(5);
    std::vector<Request> requests = {request(0, 14, 4), request(0.5, 14, 2)};
    CHECK(iterations(spec, requests) == Lines{"0:14", "0:1", "0:1", "0:1", "1:14", "1:1"});
    for (Request& one : requests) {
        one.content.common = 12;
    }
    CHECK(iterations(spec, requests) == Lines{"0:14", "0:1 1:2", "0:1 1:1", "0:1"});
    ListSource source(requests);
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(spec, source, cost);
    CHECK(result.prompt_tokens == 28);
    CHECK(result.prefix_tokens == 12);
    CHECK(result.most_blocks == 5);  // three shared and one each; at the end five of request 0
}

TEST_CASE(
    "serving: prompts that start in one iteration share a prefix where the engine names blocks as it plans them") {
    // Three full blocks of four in common, of 14 tokens each.
    std::vector<Request> requests = {request(0, 14, 1), request(0, 14, 1), request(0, 14, 1)};
    for (Request& one : requests) {
        one.content.common = 12;
    }
    ServiceSpec spec = caching(100);
    CHECK(iterations(spec, requests) == Lines{"0:14 1:2 2:2"});
    // A prompt that is cut shares what this iteration computes of it, and the rest with the next.
    spec.pools[0].limits.token_budget = 10;
    CHECK(iterations(spec, requests) == Lines{"0:10", "0:4 1:2 2:2"});
    spec.pools[0].limits.token_budget = 100;
    spec.pools[0].scheduler.policy.choose("vllm-v0");
    CHECK(iterations(spec, requests) == Lines{"0:14 1:14 2:14"});
}

TEST_CASE("serving: idle blocks go when room is needed, the least recently used first") {
    // Four blocks: conversations 1 and 2 fill two each; 3 takes two, so the blocks of 1 go.
    const std::vector<Request> requests = {turn(0, 8, 1, 1), turn(2, 8, 1, 2), turn(4, 7, 1, 3), turn(6, 9, 1, 2),
                                           turn(8, 8, 1, 1)};
    CHECK(iterations(caching(4), requests) == Lines{"0:8", "1:8", "2:7", "3:1", "4:8"});
}

TEST_CASE(
    "serving: requests that share a prefix run one after another, the group with the most output for its prompts "
    "first") {
    ServiceSpec spec = caching(4);
    spec.pools[0].limits.max_sequences = 1;
    const auto member = [](std::uint32_t prompt, std::uint32_t output, std::uint32_t group, double at = 0.5) {
        Request one = request(at, prompt, output);
        one.content.common = 8;
        one.content.group = group;
        return one;
    };
    const Request first = request(0, 4, 1);
    // Four blocks of four: as they come, each group drives the blocks of the other out.
    const std::vector<Request> two = {first, member(12, 1, 1), member(12, 2, 2), member(12, 1, 1), member(12, 2, 2)};
    CHECK(iterations(spec, two) == Lines{"0:4", "1:12", "2:12", "2:1", "3:12", "4:8", "4:1"});
    spec.pools[0].scheduler = scheduler("{kind: prefix-groups, max_sequences: 1, order: arrival}");
    CHECK(iterations(spec, two) == Lines{"0:4", "1:12", "3:4", "2:12", "2:1", "4:4", "4:1"});
    spec.pools[0].scheduler = scheduler("{kind: prefix-groups, max_sequences: 1}");
    CHECK(iterations(spec, two) == Lines{"0:4", "2:12", "2:1", "4:4", "4:1", "1:12", "3:4"});
    // What members share counts once: 9 + 1 + 1 tokens for three are fewer than five for one.
    const std::vector<Request> once = {first, request(0.5, 5, 1), member(9, 1, 1), member(9, 1, 1), member(9, 1, 1)};
    CHECK(iterations(spec, once) == Lines{"0:4", "2:9", "3:1", "4:1", "1:5"});
    // A group that has begun goes on, whoever comes while it runs.
    const std::vector<Request> later = {member(12, 3, 1, 0), member(12, 1, 1, 0), request(1.5, 4, 12)};
    CHECK(iterations(spec, later)[3] == "1:4");
    // In a group those that share more stand beside each other.
    std::vector<Request> tree = {first, request(0.5, 12, 1), request(0.5, 12, 1), request(0.5, 12, 1)};
    for (std::size_t i = 1; i < tree.size(); ++i) {
        tree[i].content.key_tokens = 4;
        tree[i].content.keys = {5, i == 2 ? 7U : 6U, 10 + i};
    }
    const Lines lines = iterations(spec, tree);
    CHECK(std::count(lines.begin(), lines.end(), "3:4") + std::count(lines.begin(), lines.end(), "1:4") == 1);
    CHECK(lines.size() == 4);
}

TEST_CASE("serving: blocks that leave the devices come back from host memory and NVMe over their links") {
    ServiceSpec spec = caching(4);
    spec.pools[0].limits.host_cache = 1;
    spec.pools[0].limits.nvme_cache = 8;
    spec.pools[0].host_bandwidth = 1e4;  // a block takes 0.1 s
    spec.nvme_bandwidth = 2e3;           // 0.5 s
    // As above: the end of conversation 1 was first in host memory; then its start came there, and the end went on to NVMe.
    // It comes back with its block from each, but the last token is computed: nothing is found of the second block.
    ListSource source({turn(0, 8, 1, 1), turn(2, 8, 1, 2), turn(4, 7, 1, 3), turn(8, 9, 1, 1)});
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(spec, source, cost);
    REQUIRE(result.requests.size() == 4);
    CHECK(result.fetched_host_bytes == 1000);
    CHECK(result.fetched_nvme_bytes == 1000);
    CHECK(static_cast<double>(result.requests[3].ttft) == doctest::Approx(1.5));
    CHECK(result.prefix_tokens == 8);
}

TEST_CASE("serving: a request goes where its prefix is, unless that replica has far more to do") {
    ServiceSpec spec = caching(1000);
    spec.pools[0].replicas = 3;
    spec.router.choose("prefix");
    std::vector<std::uint32_t> chosen;
    ServiceHooks hooks;
    hooks.iteration = [&](std::uint32_t replica, const Batch& batch, const EngineState& state) {
        if (state.sequence(batch.items[0].sequence).generated == 0) {
            chosen.push_back(replica);
        }
    };
    AffineStep cost(1, 0, 0);
    spec.pools[0].cost = {&cost};
    ListSource source(
        {turn(0, 8, 5, 1), turn(0.5, 8, 5, 2), turn(10, 17, 2, 2), turn(20, 21, 1, 1), turn(30, 8, 1, 3)});
    (void)serve(spec, source, hooks);
    CHECK(chosen == std::vector<std::uint32_t>{0, 1, 1, 0, 0});
    // 70 requests on one replica against none: the 71st goes elsewhere although its prefix is there.
    std::vector<Request> many = {turn(0, 8, 1, 1)};
    for (int i = 0; i < 70; ++i) {
        many.push_back(turn(2, 9, 1, 1));
    }
    chosen.clear();
    ListSource crowd(many);
    (void)serve(spec, crowd, hooks);
    CHECK(std::count(chosen.begin(), chosen.end(), 0U) < static_cast<std::ptrdiff_t>(chosen.size()));
}

TEST_CASE("serving: the prefix cache does what a list of blocks in order of use does") {
    RandomStream random(3, "prefixes");
    for (int round = 0; round < 30 * test::scale(); ++round) {
        const std::uint64_t host = random.below(6);
        const std::uint64_t nvme = random.below(6);
        TierCache cache({host, nvme});
        std::vector<std::deque<std::uint64_t>> tiers(3);            // keys, least recently used first
        std::vector<std::pair<std::uint64_t, std::uint32_t>> used;  // by a sequence: key and block
        const auto in = [](std::deque<std::uint64_t>& tier, std::uint64_t key) {
            return std::find(tier.begin(), tier.end(), key);
        };
        for (int step = 0; step < 200; ++step) {
            const std::uint64_t key = 1 + random.below(20);
            const bool busy = std::any_of(used.begin(), used.end(), [&](const auto& one) { return one.first == key; });
            if (random.below(3) > 0) {
                const std::uint32_t block = cache.publish(key);
                const bool here = busy || in(tiers[0], key) != tiers[0].end();
                REQUIRE((block == TierCache::kNone) == here);
                if (!here) {
                    for (std::deque<std::uint64_t>& tier : tiers) {
                        std::erase(tier, key);
                    }
                    used.emplace_back(key, block);
                }
            } else if (!used.empty()) {
                const std::size_t which = random.below(used.size());
                REQUIRE(cache.drop(used[which].second));
                tiers[0].push_back(used[which].first);
                used.erase(used.begin() + static_cast<std::ptrdiff_t>(which));
            }
            const std::uint64_t room = random.below(8);
            cache.trim(room);
            const std::array<std::uint64_t, 3> most = {room, host, nvme};
            for (std::size_t tier = 0; tier < 3; ++tier) {
                while (tiers[tier].size() > most[tier]) {
                    if (tier < 2) {
                        tiers[tier + 1].push_back(tiers[tier].front());
                    }
                    tiers[tier].pop_front();
                }
            }
            REQUIRE(cache.idle() == tiers[0].size());
            bool same = true;
            for (std::uint64_t k = 1; k <= 20; ++k) {
                const std::uint32_t block = cache.find(k);
                for (std::size_t tier = 0; tier < 3; ++tier) {
                    const bool listed = in(tiers[tier], k) != tiers[tier].end();
                    const bool running =
                        std::any_of(used.begin(), used.end(), [&](const auto& one) { return one.first == k; });
                    const bool found = block != TierCache::kNone && cache.tier(block) == tier;
                    same = same && found == (listed || (tier == 0 && running));
                }
            }
            REQUIRE(same);
        }
    }
}

TEST_CASE("serving: conversations grow by their turns and start anew beyond the longest prompt") {
    RequestsSpec spec;
    spec.conversations = true;
    spec.sessions = 2;
    spec.common = 100;
    spec.count = 200;
    spec.prompt = {LengthKind::uniform, 50, 0.5, 1000};
    spec.output = {LengthKind::uniform, 30, 0.5, 1000};
    const auto source = make_requests(spec, "", 4);
    std::vector<Request> last(2);
    Request one;
    int turns = 0;
    int fresh = 0;
    while (source->next(one)) {
        const Request& before = last[one.session];
        if (before.content.conversation == one.content.conversation) {
            CHECK(one.prompt >= before.prompt + before.output + 25);
            CHECK(one.prompt <= 1000);
            ++turns;
        } else {
            CHECK(one.prompt <= 175);
            ++fresh;
        }
        last[one.session] = one;
    }
    CHECK(turns > 10 * fresh / 2);
    CHECK(fresh > 4);
}

TEST_CASE("serving: a router's parameters are its own, and unknown to the others") {
    const auto with_router = [](const std::string& router) {
        return test::scenario(
            fmt::format("orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\n"
                        "model: llama-2-70b\nengine: {{replicas: 2, tensor: 4, kv: {{prefix: {{}}}}, router: {}}}\n",
                        router));
    };
    ServiceSpec spec = caching(1000);
    spec.pools[0].replicas = 2;
    AffineStep cost(1, 0, 0);
    spec.pools[0].cost = {&cost};
    const auto elsewhere = [&](const std::string& router) {
        spec.router = with_router(router).as<ServingKind>().engine.router;
        std::set<std::uint32_t> chosen;
        ServiceHooks hooks;
        hooks.iteration = [&](std::uint32_t replica, const Batch&, const EngineState&) { chosen.insert(replica); };
        std::vector<Request> many = {turn(0, 8, 1, 1)};
        for (int i = 0; i < 5; ++i) {
            many.push_back(turn(2, 9, 1, 1));
        }
        ListSource crowd(many);
        (void)serve(spec, crowd, hooks);
        return chosen.size() > 1;
    };
    CHECK_FALSE(elsewhere("prefix"));
    CHECK_FALSE(elsewhere("{kind: prefix}"));
    CHECK(elsewhere("{kind: prefix, imbalance: 2}"));
    CHECK_THROWS_AS((void)with_router("{kind: session, imbalance: 2}"), const ConfigError&);
}

TEST_CASE("serving: a prompt that found no room for what lower tiers have of it gets it when its turn comes") {
    // The second request takes all five blocks, so that those of the first go to host memory, and ends after four iterations.
    ServiceSpec spec = caching(5);
    spec.pools[0].limits.host_cache = 100;
    CHECK(iterations(spec, {turn(0, 8, 1, 1), turn(2, 16, 4, 2), turn(3.5, 9, 1, 1)}) ==
          Lines{"0:8", "1:16", "1:1", "1:1", "1:1", "2:1"});
}
