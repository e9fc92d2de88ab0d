// Blocks that go to host memory and back: what copies take, what comes back beside the others, and copies that are kept.

#include "tests/workloads/serving_support.hpp"
#include "workloads/serving/requests/arrivals.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace orrery;
using namespace orrery::test;

namespace {

// Two sequences of 7 tokens fill four blocks of 4; the first goes on alone from its third block on, then the second comes back.
ServiceSpec two_sequences(std::uint32_t run, bool behind) {
    ServiceSpec spec = spec_of("vllm-v0", 100, 8, 4);
    PoolSpec& pool = spec.pools[0];
    pool.scheduler = scheduler("{kind: vllm-v0, preemption: swap}");
    pool.limits.host_blocks = 8;
    pool.limits.block_bytes = 8;
    pool.limits.copy_blocks = run;
    pool.limits.swaps_in_behind = behind;
    pool.host_bandwidth = 64;
    pool.swap = {0.125, 2};
    return spec;
}

// A sequence that has computed its prompt and one token for each of `more`.
std::uint32_t running(EngineState& state, std::uint32_t prompt, std::uint32_t output, std::uint64_t id) {
    const std::uint32_t index = state.add(request(0, prompt, output), id);
    Batch batch;
    REQUIRE(state.schedule(index, prompt, batch));
    state.admit_front();
    state.sequence(index).cached = prompt;
    state.sequence(index).generated = 1;
    return index;
}

void decode(EngineState& state, std::uint32_t index, int tokens) {
    for (int i = 0; i < tokens; ++i) {
        Batch batch;
        REQUIRE(state.schedule(index, 1, batch));
        ++state.sequence(index).cached;
        ++state.sequence(index).generated;
    }
}

EngineLimits limits_for_copies(std::uint64_t host_blocks) {
    EngineLimits limits;
    limits.block = 4;
    limits.blocks = 16;
    limits.host_blocks = host_blocks;
    limits.block_bytes = 10;
    limits.keeps_copies = true;
    limits.watermark = 0;
    return limits;
}

}  // namespace

TEST_CASE(
    "swap: a batch waits for the calls of its copies, fewer where blocks lie beside each other, or for the link") {
    AffineStep cost(1, 0, 0);
    for (const bool behind : {false, true}) {
        // Two runs of one block: four calls and the last of four copies of 4 B; one run of two: two calls and 8 B.
        for (const auto& [run, wait] : {std::pair{1U, 4 * 0.125 + 4.0 / 64}, {2U, 2 * 0.125 + 8.0 / 64}}) {
            ListSource source({request(0, 7, 6), request(0, 7, 6)});
            const ServiceResult result = serve_with(two_sequences(run, behind), source, cost);
            REQUIRE(result.requests.size() == 2);
            CHECK(static_cast<double>(result.requests[0].e2e) == 6 + wait);
            CHECK(static_cast<double>(result.requests[1].e2e) == 10 + 2 * wait);
            CHECK(result.swap_out_bytes == 16);
            CHECK(result.swap_in_bytes == 16);
            CHECK(result.swap_stall_s == doctest::Approx(behind ? wait : 2 * wait));
        }
        // The link is slower than the calls: 16 B after the first call.
        ServiceSpec slow = two_sequences(2, behind);
        slow.pools[0].host_bandwidth = 8;
        ListSource source({request(0, 7, 6), request(0, 7, 6)});
        const ServiceResult result = serve_with(slow, source, cost);
        CHECK(static_cast<double>(result.requests[1].e2e) == 10 + 2 * (0.125 + 2));
    }
}

TEST_CASE("swap: of a sequence that was in host memory before only what is new goes there again") {
    EngineState state(limits_for_copies(16));
    const std::uint32_t index = running(state, 9, 20, 0);
    Batch first;
    REQUIRE(state.swap_out(0, first));
    CHECK(first.swap_out == 30);
    CHECK(first.copies_out == 3);
    CHECK(state.used_host_blocks() == 3);
    Batch back;
    REQUIRE(state.swap_in(0, back));
    CHECK(back.swap_in == 30);
    // The third block was not full: it is not worth keeping.
    CHECK(state.used_host_blocks() == 2);
    decode(state, index, 5);
    Batch second;
    REQUIRE(state.swap_out(0, second));
    CHECK(second.swap_out == 20);
    CHECK(state.used_host_blocks() == 4);
    CHECK(state.reused_blocks() == 2);
    state.withdraw(index);
    CHECK(state.used_host_blocks() == 0);
    CHECK(state.used_blocks() == 0);
}

TEST_CASE("swap: copies of what runs make room in host memory for what does not") {
    EngineState state(limits_for_copies(5));
    const std::uint32_t a = running(state, 12, 20, 0);
    Batch batch;
    REQUIRE(state.swap_out(0, batch));
    REQUIRE(state.swap_in(0, batch));
    CHECK(state.used_host_blocks() == 3);
    const std::uint32_t b = running(state, 12, 20, 1);
    REQUIRE(state.swap_out(1, batch));
    CHECK(state.used_host_blocks() == 3);
    // The copy of the first one is gone: all of it would have to go, and there is no room for that.
    CHECK(!state.swap_out(0, batch));
    state.withdraw(a);
    state.withdraw(b);
    CHECK(state.used_host_blocks() == 0);
}

TEST_CASE("priority: those that hold the cache change with the priorities, and every request ends whatever happens") {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        RandomStream random(seed, "test/priority");
        RequestsSpec requests;
        requests.count = 60;
        requests.rate = 1;
        requests.prompt = {LengthKind::lognormal, 20, 0.8, 60};
        requests.output = {LengthKind::lognormal, 12, 0.8, 60};
        ServiceSpec spec = spec_of("priority", 100, 8, 32);
        PoolSpec& pool = spec.pools[0];
        pool.scheduler = scheduler(
            fmt::format("{{kind: priority, updates: {}, keeps: {}}}", 0.02 + 0.5 * random.uniform(), random.uniform()));
        pool.limits.block_bytes = 8;
        pool.limits.host_blocks = 8 << random.below(4);
        pool.limits.copy_blocks = 1 + static_cast<std::uint32_t>(random.below(4));
        pool.limits.swaps_in_behind = random.below(2) == 0;
        pool.limits.keeps_copies = random.below(2) == 0;
        pool.limits.prefix_cache = random.below(2) == 0;
        pool.limits.seed = seed;
        pool.host_bandwidth = 100;
        pool.swap = {0.01, 4};
        spec.timeout = random.below(2) == 0 ? 40 : 0;
        AffineStep cost(0.25, 0.001, 0);
        const auto source = make_requests(requests, "", seed);
        const ServiceResult result = serve_with(spec, *source, cost);
        CHECK(result.requests.size() + result.refused + result.timed_out == 60);
    }
}

TEST_CASE(
    "priority: without a change of priorities the highest goes first, and asynchronous swaps stall nobody that comes "
    "back") {
    RequestsSpec requests;
    requests.count = 300;
    requests.rate = 2;
    requests.prompt = {LengthKind::lognormal, 20, 0.8, 60};
    requests.output = {LengthKind::lognormal, 12, 0.8, 60};
    const auto run = [&](const char* policy, bool behind) {
        ServiceSpec spec = spec_of("priority", 100, 8, 32);
        PoolSpec& pool = spec.pools[0];
        pool.scheduler = scheduler(policy);
        pool.limits.block_bytes = 8;
        pool.limits.host_blocks = 1000;
        pool.limits.swaps_in_behind = behind;
        pool.host_bandwidth = 1000;
        pool.swap = {0.01, 4};
        AffineStep cost(0.25, 0.001, 0);
        const auto source = make_requests(requests, "", 3);
        return serve_with(spec, *source, cost);
    };
    const ServiceResult still = run("{kind: priority, updates: 0.000001}", false);
    const ServiceResult together = run("{kind: priority, updates: 0.2}", false);
    const ServiceResult beside = run("{kind: priority, updates: 0.2}", true);
    CHECK(together.preemptions > 2 * still.preemptions);
    CHECK(together.swap_in_bytes == together.swap_out_bytes);
    CHECK(beside.swap_in_bytes == beside.swap_out_bytes);
    CHECK(beside.swap_stall_s < 0.7 * together.swap_stall_s);
    // Who keeps its priority for ever is not moved by changes.
    CHECK(run("{kind: priority, updates: 0.2, keeps: 100 %}", false).preemptions < together.preemptions);
}
