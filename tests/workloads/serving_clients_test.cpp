// Speculation, clients that give up, replicas that fail, and what of a run is measured.

#include "sim/base/random.hpp"
#include "tests/support/fabrics.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tests/workloads/serving_support.hpp"
#include "workloads/serving/requests/arrivals.hpp"

#include <doctest/doctest.h>

#include <unistd.h>
#include <cmath>
#include <filesystem>
#include <fstream>

using namespace orrery;
using namespace orrery::test;

namespace {

ServiceSpec speculating(std::uint32_t tokens, double acceptance) {
    ServiceSpec spec = spec_of("chunked-prefill", 100, 8, 10000);
    spec.speculation = {tokens, acceptance, true, 0.1, 0, {}};
    spec.pools[0].limits.draft_tokens = tokens;
    return spec;
}

}  // namespace

TEST_CASE("serving: a draft that is always accepted gives all its tokens and one more in an iteration") {
    // After the prompt's token seven are left: four, then three, for which two draft tokens suffice.
    ListSource source({request(0, 4, 8)});
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(speculating(3, 1), source, cost);
    CHECK(result.iterations == 3);
    CHECK(result.output_tokens == 8);
    CHECK(result.decode_steps == 2);
    CHECK(result.accepted == 5);
    // Each of the two iterations takes 1 s and three draft tokens of 0.1 s.
    CHECK(static_cast<double>(result.requests[0].e2e) == doctest::Approx(1 + 2 * 1.3));
}

TEST_CASE("serving: verified drafts take tokens of the iteration's budget and blocks, and are computed") {
    // A budget of five: request 0 with its two draft tokens leaves two for the prompt of request 1.
    ServiceSpec spec = speculating(2, 0);
    spec.pools[0].limits.token_budget = 5;
    CHECK(iterations(spec, {request(0, 4, 4), request(0.5, 4, 1)}) == Lines{"0:4", "0:1 1:2", "0:1 1:2", "0:1"});
    ListSource source({request(0, 4, 4)});
    AffineStep cost(0, 1, 0);  // a second a token: one with two drafts, one with one, one alone
    const ServiceResult result = serve_with(spec, source, cost);
    CHECK(static_cast<double>(result.requests[0].e2e) == doctest::Approx(4 + (3 + 0.2) + (2 + 0.2) + 1));
}

TEST_CASE("serving: a step gives (1 - a^(k+1)) / (1 - a) tokens in the mean, drawn or not") {
    for (const bool sampled : {false, true}) {
        for (const double acceptance : {0.5, 0.8}) {
            ServiceSpec spec = speculating(4, acceptance);
            spec.speculation.sampled = sampled;
            ListSource source({request(0, 4, 20000)});
            AffineStep cost(1, 0, 0);
            const ServiceResult result = serve_with(spec, source, cost);
            const double mean = (1 - std::pow(acceptance, 5)) / (1 - acceptance);
            CHECK(1 + static_cast<double>(result.accepted) / static_cast<double>(result.decode_steps) ==
                  doctest::Approx(mean).epsilon(sampled ? 0.02 : 1e-3));
        }
    }
}

TEST_CASE("serving: shares by position give their sum and one more token in a step, drawn or not") {
    // As vLLM logged them with drafts of eight: 4.4 tokens a step (vllm pull 48892).
    const std::vector<double> shares = {0.7568, 0.6011, 0.4976, 0.4113, 0.3538, 0.298, 0.2608, 0.2229};
    for (const bool sampled : {false, true}) {
        ServiceSpec spec = speculating(8, 0.5);
        spec.speculation.positions = shares;
        spec.speculation.sampled = sampled;
        ListSource source({request(0, 4, 20000)});
        AffineStep cost(1, 0, 0);
        const ServiceResult result = serve_with(spec, source, cost);
        CHECK(1 + static_cast<double>(result.accepted) / static_cast<double>(result.decode_steps) ==
              doctest::Approx(4.4023).epsilon(sampled ? 0.02 : 1e-3));
    }
}

TEST_CASE("serving: a client that waits too long gives up, and whoever waits behind it goes on") {
    // One place, ten seconds each. Request 1 would end at 20.
    ServiceSpec spec = spec_of("chunked-prefill", 100, 1, 100);
    spec.timeout = 15;
    ListSource source(
        {request(0, 4, 10), request(0, 4, 10), request(1, 4, 10), request(14, 4, 1), request(15, 500, 1)});
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(spec, source, cost);
    // 1 goes in the middle of its work (its iteration ends), 2 in the queue at 16; 3 and 4 find the place free.
    CHECK(result.timed_out == 2);
    CHECK(result.refused == 1);
    REQUIRE(result.requests.size() == 2);
    CHECK(static_cast<double>(result.requests[0].e2e) == 10);
    CHECK(static_cast<double>(result.requests[1].e2e) == doctest::Approx(17 - 14));
    CHECK(result.end_s == 17);
}

TEST_CASE("serving: what a failed replica had starts anew on another, with the tokens that it had given") {
    ServiceSpec spec = spec_of("chunked-prefill", 100, 8, 100);
    spec.pools[0].replicas = 2;
    spec.faults.timed = {loss(0, 3.5, 100)};
    ListSource source({request(0, 4, 6), request(0, 4, 2), request(10, 4, 1), request(20, 4, 1)});
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(spec, source, cost);
    REQUIRE(result.requests.size() == 4);
    CHECK(result.failures == 1);
    CHECK(result.retried == 1);
    // Three tokens by 3 s; anew at 3.5 on the idle other replica: the other three by 6.5.
    CHECK(static_cast<double>(result.requests[1].ttft) == 1);
    CHECK(static_cast<double>(result.requests[1].e2e) == 6.5);
    CHECK(result.requests[2].e2e == result.requests[3].e2e);  // both on the replica that is left
    CHECK(result.output_tokens == 10);
}

TEST_CASE("serving: requests wait for the only replica to come back, and fail when it fails too often") {
    ServiceSpec spec = spec_of("chunked-prefill", 100, 8, 100);
    spec.faults.timed = {loss(0, 0.5, 2), loss(0, 3, 2), loss(0, 20, 1)};
    spec.faults.retries = 1;
    ListSource source({request(0, 4, 1), request(1, 4, 1)});
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(spec, source, cost);
    // 0 starts at 0, anew at 2.5, and is lost at 3 again; 1 waits until 2.5, is lost once and is done a second after 5.
    CHECK(result.failed == 1);
    CHECK(result.failures == 2);  // the third finds nothing to do
    REQUIRE(result.requests.size() == 1);
    CHECK(static_cast<double>(result.requests[0].e2e) == 5);
}

// Processes and machines that fail, noticed at once or later, with caches that are lost or restored.
static void fail_by_chance(ServiceSpec& spec, RandomStream& random) {
    if (random.below(4) == 0) {
        return;
    }
    ServiceFaults& faults = spec.faults;
    for (const Component component : {Component::replica, Component::host}) {
        ProcessSpec process;
        process.component = component;
        process.kind = random.below(3) == 0 ? FaultKind::hang : FaultKind::fail_stop;
        process.mtbf_s = 5 + 20 * random.uniform();
        faults.processes.push_back(process);
    }
    faults.recovery.detection_s = random.below(2) == 0 ? 0 : random.uniform();
    faults.recovery.timeout_s = 2 * random.uniform();
    faults.recovery.repair_s = 3;
    faults.recovery.exponential = random.below(2) == 0;
    faults.recovery.spares = static_cast<std::int64_t>(random.below(2));
    faults.restores = random.below(2) == 0;
    faults.restore_rate = 1e10;
    if (random.below(3) == 0) {
        faults.retry_budget = 0.3;
    }
    faults.retries = static_cast<std::int64_t>(random.below(4));
    for (PoolSpec& pool : spec.pools) {
        pool.start.provision_s = random.uniform();
        pool.start.weight_bytes = 10;
        pool.start.storage = 10;
        pool.start.warm_up_s = 1;
        pool.start.weights = static_cast<WeightsFrom>(random.below(3));
    }
}

TEST_CASE("serving: every request is accounted for while replicas fail, clients give up and caches travel") {
    const Fabric fabric(test::rail_nodes(2));
    RandomStream random(17, "failing");
    for (int round = 0; round < 150 * test::scale(); ++round) {
        const auto kind = [&] { return any_of(scheduler_table(), random); };
        ServiceSpec spec = spec_of(kind(), 1 + static_cast<std::uint32_t>(random.below(40)), 4, 12 + random.below(30));
        spec.pools[0].replicas = 1 + static_cast<std::uint32_t>(random.below(3));
        spec.pools[0].limits.prefix_cache = random.below(2) == 0;
        spec.pools[0].limits.host_cache = random.below(20);
        spec.pools[0].limits.block_bytes = 1e10;
        spec.pools[0].host_bandwidth = 1e10;
        spec.pools[0].limits.batches = 1 + static_cast<std::uint32_t>(random.below(2));
        spec.pools[0].gpus = spec.pools[0].limits.batches;
        spec.pools[0].limits.draft_tokens = static_cast<std::uint32_t>(random.below(3));
        spec.speculation.tokens = spec.pools[0].limits.draft_tokens;
        if (random.below(2) == 0) {
            spec.pools.push_back(spec.pools[0]);
            spec.pools[0].role = Role::prefill;
            spec.pools[1].role = Role::decode;
            spec.pools[1].scheduler.policy.choose(kind());
            spec.pools[1].limits.blocks = 25 + random.below(20);
            spec.pools[1].first_gpu = 8;
            spec.transfer = static_cast<Transfer>(random.below(2));
            spec.layers = 4;
            spec.cache_token_bytes = 1e9;
        }
        spec.fabric = &fabric;
        spec.hidden_bytes = 1e9;
        spec.timeout = random.below(2) == 0 ? 0 : 1 + 20 * random.uniform();
        fail_by_chance(spec, random);
        if (random.below(2) == 0) {
            spec.pools[0].scaling = {1.0 + static_cast<double>(random.below(4)), 1, 2, 5};
            spec.pools[0].scaling.rule = static_cast<ScalingRule>(random.below(2));
        }
        spec.router.choose(any_of(router_table(), random));
        spec.seed = random.next();
        std::vector<Request> requests;
        double at = 0;
        for (int i = 0; i < 40; ++i) {
            at += random.exponential(1);
            requests.push_back(request(at, 1 + static_cast<std::uint32_t>(random.below(40)),
                                       1 + static_cast<std::uint32_t>(random.below(15))));
            requests.back().content.conversation = random.below(3);
        }
        ListSource source(requests);
        AffineStep cost(0.3, 0.01, 0.001);
        const ServiceResult result = serve_with(spec, source, cost);
        CHECK(result.requests.size() + result.refused + result.timed_out + result.failed == 40);
        CHECK(result.unserved + result.requests.size() == 40);
    }
}

TEST_CASE("serving: latencies are of requests that come in the window, rates of what happens in it") {
    ServiceSpec spec = spec_of("chunked-prefill", 100, 8, 100);
    spec.measure.from = 10;
    spec.measure.to = 20;
    std::vector<Request> requests;
    for (int i = 0; i < 30; ++i) {
        requests.push_back(request(i + 0.25, 4, 1));
    }
    requests.push_back(request(30, 4000, 1));
    ListSource source(requests);
    AffineStep cost(0.5, 0, 0);
    const ServiceResult result = serve_with(spec, source, cost);
    CHECK(result.requests.size() == 10);
    CHECK(result.finished == 10);
    CHECK(result.output_tokens == 10);
    CHECK(result.window_s == 10);
    CHECK(result.refused == 1);
    CHECK(result.unserved == 0);  // the refused one came after the window
}

TEST_CASE("serving: days have their most requests at noon and keep their sum") {
    RequestsSpec spec;
    spec.arrivals = ArrivalKind::fixed;
    spec.rate = 10;
    spec.count = 4001;
    spec.swing = 0.8;
    spec.period = 200;
    const auto source = make_requests(spec, "", 1);
    Request one;
    std::vector<int> quarters(8);
    while (source->next(one)) {
        if (one.arrival.seconds() < 399.99) {
            ++quarters[static_cast<std::size_t>(one.arrival.seconds() / 50)];
        }
    }
    // The rate in the first quarter goes from 2 to 10 a second: 300 requests; in the second from 10 to 18: 700.
    for (const std::size_t day : {0U, 4U}) {
        CHECK(quarters[day] == doctest::Approx(300).epsilon(0.01));
        CHECK(quarters[day + 1] == doctest::Approx(700).epsilon(0.01));
        CHECK(quarters[day + 2] == doctest::Approx(700).epsilon(0.01));
        CHECK(quarters[day + 3] == doctest::Approx(300).epsilon(0.01));
    }
}

TEST_CASE("serving: traces can be clipped in their own time, stretched and sampled") {
    const std::string path =
        (std::filesystem::temp_directory_path() / fmt::format("orrery-clip-{}", getpid())).string();
    {
        std::ofstream out(path);
        out << "arrival_s,prompt,output\n";
        for (int i = 0; i < 1000; ++i) {
            out << 100 + i << "," << i + 1 << ",1\n";
        }
    }
    RequestsSpec spec;
    spec.from = 10;
    spec.to = 20;
    spec.time_scale = 0.5;
    const auto all = [&] {
        const auto source = make_requests(spec, path, 1);
        std::vector<Request> out;
        Request one;
        while (source->next(one)) {
            out.push_back(one);
        }
        return out;
    };
    const std::vector<Request> clipped = all();
    REQUIRE(clipped.size() == 10);
    CHECK(clipped[0].prompt == 11);
    CHECK(clipped[0].arrival == SimTime());
    CHECK(clipped[9].arrival.seconds() == doctest::Approx(4.5));
    spec.from = spec.to = 0;
    spec.sample = 0.3;
    CHECK(all().size() == doctest::Approx(300).epsilon(0.15));
    std::filesystem::remove(path);
}

TEST_CASE("requests: what is longer than the longest is drawn anew, not cut") {
    RequestsSpec spec;
    spec.count = 20'000;
    spec.prompt = {LengthKind::uniform, 50.5, 0.98, 1000};
    spec.output = {LengthKind::fixed, 10, 0, 1000};
    spec.longest = 60;
    const auto source = make_requests(spec, "", 1);
    double sum = 0;
    int at_the_limit = 0;
    for (Request request; source->next(request);) {
        REQUIRE(request.prompt + request.output <= 60);
        sum += request.prompt;
        at_the_limit += request.prompt == 50 ? 1 : 0;
    }
    // Prompts of 1 to 50 tokens are left, equally likely.
    CHECK(sum / 20'000 == doctest::Approx(25.5).epsilon(0.02));
    CHECK(at_the_limit < 2 * 20'000 / 50);
    spec.longest = 10;
    Request none;
    CHECK_THROWS_AS((void)make_requests(spec, "", 1)->next(none), InfeasibleError);

    // What cannot be is said with its place, before a run.
    const std::string text = R"(orrery: 1
kind: serving
cluster: {nodes: 1, node: dgx-h100}
model: llama-2-7b
requests: {rate: 1, longest: 64, prompt: {mean: 60}, output: {kind: uniform, mean: 10, spread: 0.5}}
)";
    CHECK(test::refusal(text).find("test.yaml:5:11: error: no request has 64 tokens or fewer ('longest'): the shortest "
                                   "prompt and output have 65") != std::string::npos);
    CHECK(test::refusal(std::string(text).replace(text.find("64"), 2, "65")).empty());
}
