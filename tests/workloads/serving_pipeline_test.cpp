#include "tests/support/fabrics.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/workloads/serving_support.hpp"
#include "tools/driver/kinds/serving.hpp"

#include <doctest/doctest.h>

using namespace orrery;
using namespace orrery::test;

namespace {

// Two stages of one second each on two GPUs of a node; hidden states of a token take `hop` seconds.
struct TwoStages {
    explicit TwoStages(double hop) : fabric(test::rail_nodes(1)) {
        spec = spec_of("chunked-prefill", 8, 8, 100);
        spec.pools[0].limits.batches = 2;
        spec.pools[0].gpus = 2;
        spec.fabric = &fabric;
        const Route route = fabric.route(GpuId(0), GpuId(1), spec.paths, 0);
        latency = route.latency;
        spec.hidden_bytes = hop * fabric.capacity(route.resources()[0]);
    }
    Fabric fabric;
    ServiceSpec spec;
    double latency = 0;
};

}  // namespace

TEST_CASE("serving: a token passes every pipeline stage and the links between them") {
    TwoStages two(0.25);
    ListSource source({request(0, 2, 3)});
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(two.spec, source, cost);
    // The prompt's two tokens take twice as long from stage to stage as one does.
    const double ttft = 2 + 2 * 0.25 + two.latency;
    CHECK(static_cast<double>(result.requests[0].ttft) == doctest::Approx(ttft).epsilon(1e-6));
    CHECK(static_cast<double>(result.requests[0].e2e) ==
          doctest::Approx(ttft + 2 * (2 + 0.25 + two.latency)).epsilon(1e-6));
}

TEST_CASE("serving: two batches circulate in two stages and leave no bubble but at the ends") {
    TwoStages two(0);
    ListSource source({request(0, 4, 50), request(0.5, 4, 50)});
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(two.spec, source, cost);
    // Stage 0 is busy from 0 to 100 s, stage 1 from 1 to 101 s (and latencies of microseconds).
    CHECK(result.iterations == 100);
    CHECK(result.busy_s == doctest::Approx(100));
    CHECK(result.in_flight_s == doctest::Approx(101).epsilon(1e-3));
    // Asked for in one instant both are in one batch from then on, and each stage idles half of the time.
    ListSource together({request(0, 4, 1), request(0.5, 4, 50), request(0.5, 4, 50)});
    const ServiceResult bubbles = serve_with(two.spec, together, cost);
    CHECK(bubbles.busy_s / bubbles.in_flight_s == doctest::Approx(0.5).epsilon(0.02));
}

TEST_CASE("serving: a sequence is in one batch of a pipeline at a time, its prompt's pieces too") {
    TwoStages two(0);
    CHECK(iterations(two.spec, {request(0, 12, 2), request(0.5, 3, 2), request(1.5, 2, 1)}) ==
          Lines{"0:8", "1:3", "0:4 2:2", "1:1", "0:1"});
    // Static batches: as many groups as stages, each with half of the places, the finished ones padded.
    two.spec.pools[0].scheduler.policy.choose("static");
    two.spec.pools[0].limits.max_sequences = 4;
    CHECK(iterations(two.spec, {request(0, 4, 1), request(0.5, 5, 3), request(0.5, 6, 2), request(0.5, 7, 1)}) ==
          Lines{"0:4", "1:5 2:6", "3:7", "1:1 2:1", "1:1 +1"});
}

TEST_CASE("serving: stages share the layers of a model, and the fullest one decides about the cache") {
    const char* text = R"(orrery: 1
kind: serving
cluster: {nodes: 1, node: dgx-h100}
model: llama-2-70b
engine: {tensor: 1, pipeline: 8}
requests: {count: 20}
)";
    const Scenario s = test::scenario(text);
    const auto& serving = s.as<ServingKind>();
    // 80 layers over 8 stages: with the tables of the model on the first and the last.
    const double memory = s.cluster.node.gpu.memory.value * 0.9 - serving.engine.reserved();
    const double room = memory - 20.0 * serving.model.layer_parameters() - 2 * serving.model.embedding_parameters();
    const double block = 16 * cache_bytes_per_token(serving.model, Precision::bf16) / 8;
    CHECK(limits_of(serving.engine, serving.engine.mixed, serving.model, s.cluster.node.gpu).blocks ==
          static_cast<std::uint64_t>(room / block));
    std::int64_t layers = 0;
    for (std::int64_t stage = 0; stage < 6; ++stage) {
        layers += stage_layers(80, stage, 6);
    }
    CHECK(layers == 80);
    const Summary summary = run_scenario(s, test::model_cache(), {}).summary;
    CHECK(summary.find("requests")->value == 20);
    CHECK(summary.find("bubble_fraction")->value > 0.25);  // few requests: seldom more than a batch under way
}

TEST_CASE("serving: Orca and prompts first share the sequences out among the batches of a pipeline") {
    for (const auto& [kind, lines] : {std::pair{"orca", Lines{"0:4", "1:4 2:4", "0:1 3:4", "1:1 2:1"}},
                                      {"vllm-v0", Lines{"0:4", "1:4 2:4", "3:4", "0:1 1:1", "2:1"}}}) {
        TwoStages two(0);
        two.spec.pools[0].scheduler.policy.choose(kind);
        two.spec.pools[0].limits.max_sequences = 4;
        CHECK(iterations(two.spec, {request(0, 4, 2), request(0.5, 4, 2), request(0.5, 4, 2), request(0.5, 4, 1)}) ==
              lines);
        // A single place is not divided further: one sequence at a time.
        two.spec.pools[0].limits.max_sequences = 1;
        CHECK(iterations(two.spec, {request(0, 4, 1), request(0.5, 4, 1)}) == Lines{"0:4", "1:4"});
    }
}
