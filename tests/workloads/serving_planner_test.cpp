// GPUs that move between prompts and decoding, and load that is seen late.

#include "tests/support/fabrics.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/workloads/serving_support.hpp"

#include <doctest/doctest.h>

#include <fmt/format.h>

using namespace orrery;
using namespace orrery::test;

namespace {

// Four places; at first two compute prompts. One sequence a replica, a second an iteration.
struct Places {
    Places() : fabric(test::rail_nodes(1)) {
        spec = spec_of("sarathi", 100, 1, 1000);
        PoolSpec& prefill = spec.pools[0];
        prefill.role = Role::prefill;
        prefill.replicas = 4;
        spec.pools.push_back(prefill);
        spec.pools[1].role = Role::decode;
        spec.pools[1].scheduler.policy.choose("chunked-prefill");
        spec.fabric = &fabric;
        spec.router.choose("least-requests");
        spec.prefill_first = 2;
        spec.planner.given = true;
        spec.planner.interval_s = 5;
        spec.planner.switch_s = 2;
    }
    ServiceResult serve(std::vector<Request> requests) const {
        AffineStep cost(1, 0, 0);
        ListSource source(std::move(requests));
        return serve_with(spec, source, cost);
    }
    Fabric fabric;
    ServiceSpec spec;
};

}  // namespace

TEST_CASE("planner: an idle place changes its role at the look of its time, and computes prompts after the switch") {
    // Three prompts at 20 s: two places compute them one after another without a move, three do at once with one.
    Places places;
    places.spec.planner.moves = {{9, 3}};
    const std::vector<Request> requests = {request(20, 4, 2), request(20, 4, 2), request(20, 4, 2)};
    const ServiceResult moved = places.serve(requests);
    REQUIRE(moved.requests.size() == 3);
    CHECK(moved.role_moves == 1);
    for (const RequestOutcome& one : moved.requests) {
        CHECK(static_cast<double>(one.ttft) == doctest::Approx(1));
    }
    // From the look at 10 s and the switch at 12 s on there are three instead of two; the only decode replica takes its sequences in turns.
    CHECK(moved.prefill_mean == doctest::Approx((2 * 12 + 3 * (moved.end_s - 12)) / moved.end_s));

    places.spec.planner.moves = {{900, 3}};
    const ServiceResult same = places.serve(requests);
    CHECK(same.role_moves == 0);
    CHECK(same.prefill_mean == doctest::Approx(2));
    CHECK(static_cast<double>(same.requests[2].ttft) == doctest::Approx(2));
}

TEST_CASE("planner: a place that is at work takes nothing new and changes when it has finished") {
    // Two answers of 31 tokens keep the decode replicas until 31 and 32.5 s. A third place for prompts is wanted from the look at 10 s on:
    // one of them changes at the look at 35 s, and is there at 37 s.
    Places places;
    places.spec.planner.moves = {{9, 3}};
    const ServiceResult result =
        places.serve({request(0, 4, 31), request(1.5, 4, 31), request(34, 4, 2), request(36, 4, 2), request(36, 4, 2),
                      request(36, 4, 2), request(37.5, 4, 2), request(37.5, 4, 2)});
    REQUIRE(result.requests.size() == 8);
    CHECK(result.role_moves == 1);
    // At 36 s two places compute prompts: the third waits a second. Of two at 37.5 s one finds the new place.
    CHECK(static_cast<double>(result.requests[3].ttft) == doctest::Approx(1));
    CHECK(static_cast<double>(result.requests[5].ttft) == doctest::Approx(2));
    CHECK(static_cast<double>(result.requests[6].ttft) == doctest::Approx(1));
    CHECK(static_cast<double>(result.requests[7].ttft) == doctest::Approx(1));
    CHECK(result.prefill_mean == doctest::Approx((2 * 37 + 3 * (result.end_s - 37)) / result.end_s));
}

TEST_CASE("planner: by the load one place at a time goes where it is wanted, and one of each role stays") {
    // Twenty prompts at once: more than two a replica at the looks at 5 and 10 s, so that two would move; one has to decode.
    Places places;
    places.spec.planner.prompts = 2;
    std::vector<Request> prompts(20, request(4.5, 4, 1));
    const ServiceResult result = places.serve(prompts);
    CHECK(result.requests.size() == 20);
    CHECK(result.role_moves == 1);

    // Full caches: the other way round.
    places.spec.planner.prompts = 0;
    places.spec.planner.cache = 0.2;
    for (PoolSpec& pool : places.spec.pools) {
        pool.limits.max_sequences = 8;
        pool.limits.blocks = 40;
    }
    const ServiceResult decoding = places.serve(std::vector<Request>(16, request(0, 4, 40)));
    CHECK(decoding.requests.size() == 16);
    CHECK(decoding.role_moves == 1);
    CHECK(decoding.prefill_mean < 2);
}

TEST_CASE("planner: scenarios say what moves, and what does not go with it") {
    const auto run = [](const std::string& planner) {
        return fmt::format(R"(orrery: 1
kind: serving
cluster: {{nodes: 1, node: dgx-h100}}
model: llama-2-7b
engine:
  prefill: {{replicas: 2}}
  decode: {{replicas: 4{}}}
  planner: {}
requests: {{count: 200, rate: 20, prompt: {{mean: 500}}, output: {{mean: 100}}}}
)",
                           planner.find("autoscale") == 0 ? ", autoscale: {target: 4}" : "",
                           planner.find("autoscale") == 0 ? "{moves: [{at: 3 s, prefill: 3}]}" : planner);
    };
    const Summary summary =
        run_scenario(test::scenario(run("{interval: 1 s, switch: 1 s, moves: [{at: 3 s, prefill: 3}]}").c_str()),
                     test::model_cache(), {})
            .summary;
    CHECK(summary.find("role_moves")->value == 1);
    CHECK(summary.find("prefill_replicas.mean")->value > 2);
    CHECK(summary.find("prefill_replicas.mean")->value < 3);
    CHECK(summary.find("requests")->value == 200);
    const auto problem = [&](const std::string& planner) {
        try {
            (void)test::scenario(run(planner).c_str());
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(problem("{moves: [{at: 3 s, prefill: 6}]}").find("leaves no replica to decode: 6 of 6") != std::string::npos);
    CHECK(problem("{interval: 1 s}").find("give one") != std::string::npos);
    CHECK(problem("{prompts: 2, moves: [{at: 3 s, prefill: 3}]}").find("give one") != std::string::npos);
    CHECK(problem("{moves: [{at: 3 s, prefill: 3}, {at: 2 s, prefill: 1}]}").find("order") != std::string::npos);
    CHECK(problem("autoscale").find("no 'autoscale'") != std::string::npos);
}
