#include "tests/support/scenarios.hpp"
#include "tests/workloads/serving_support.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;
using namespace orrery::test;

namespace {

// One place a replica, ten seconds per request; up to three replicas.
ServiceSpec scaling() {
    ServiceSpec spec = spec_of("chunked-prefill", 100, 1, 100);
    spec.pools[0].replicas = 3;
    spec.pools[0].scaling = {1, 1, 5, 20};
    spec.pools[0].start.provision_s = 2;
    spec.pools[0].start.weight_bytes = 300;
    spec.pools[0].start.storage = 100;
    spec.pools[0].start.warm_up_s = 1;
    spec.router.choose("least-requests");
    return spec;
}

}  // namespace

TEST_CASE("serving: a replica starts in its stages, those that start share the storage, and it then takes requests") {
    // At 5 s three requests are outstanding: two replicas start, provisioned at 7 s. Together their weights take 6 s instead
    // of 3, warm at 14 s. The request at 13.9 s queues behind the two on replica 0, that of 14.1 s runs at once.
    ServiceSpec spec = scaling();
    ListSource source(
        {request(0, 4, 10), request(1, 4, 10), request(2, 4, 10), request(13.9, 4, 10), request(14.1, 4, 10)});
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(spec, source, cost);
    REQUIRE(result.requests.size() == 5);
    CHECK(result.starts == 2);
    CHECK(static_cast<double>(result.requests[3].e2e) == doctest::Approx(40 - 13.9));
    CHECK(static_cast<double>(result.requests[4].e2e) == doctest::Approx(10));
    CHECK(result.end_s == 40);
    // Looks at the load see what ends in their instant as ended. Replica 0 ran all the time; one that started at 5 s was
    // never used, drained at 25 s (20 s after the start, with two requests left) and off at 30 s; the other was drained at
    // 30 s, when one request was left, and off at 35 s.
    CHECK(result.gpu_s == doctest::Approx(40 + 25 + 30));
}

TEST_CASE("serving: a look sees the load as it was measured, and only when the measurement has come") {
    // `start`: when two more replicas start, which takes 9 s. A request before that time queues behind two on replica 0, one after it
    // runs at once.
    const auto check = [](double scrape, double delay, double start) {
        ServiceSpec spec = scaling();
        spec.pools[0].scaling.scrape_s = scrape;
        spec.pools[0].scaling.delay_s = delay;
        ListSource source({request(0, 4, 10), request(1, 4, 10), request(2, 4, 10), request(start + 8.9, 4, 10),
                           request(start + 9.1, 4, 10)});
        AffineStep cost(1, 0, 0);
        const ServiceResult result = serve_with(spec, source, cost);
        REQUIRE(result.requests.size() == 5);
        CHECK(result.starts == 2);
        CHECK(static_cast<double>(result.requests[3].e2e) == doctest::Approx(40 - (start + 8.9)));
        CHECK(static_cast<double>(result.requests[4].e2e) == doctest::Approx(10));
    };
    check(0, 0, 5);   // measured by each look
    check(3, 1, 5);   // the measurement of 3 s has come by 4 s
    check(3, 3, 10);  // only at 6 s
    check(0, 6, 15);  // that of the look at 5 s comes at 11 s
}

TEST_CASE("serving: the load never takes more replicas than there are nor fewer than the least, and all is served") {
    ServiceSpec spec = scaling();
    spec.pools[0].scaling.least = 2;
    std::vector<Request> requests;
    for (int i = 0; i < 60; ++i) {
        requests.push_back(request(i < 30 ? 1 : 400 + 30 * i, 4, 10));
    }
    ListSource source(requests);
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(spec, source, cost);
    CHECK(result.requests.size() == 60);
    CHECK(result.starts == 1);
    CHECK(result.gpu_s >= 2 * result.end_s);
    CHECK(result.gpu_s <= 3 * result.end_s);
}

TEST_CASE("serving: while a replica still starts, those that serve are not drained below the least") {
    // At 5 s two more start, and are there after 307 s. The load falls at once: with cooldown over long before that, the only
    // one that serves has to go on serving. Requests that come meanwhile have it to go to.
    ServiceSpec spec = scaling();
    spec.pools[0].start.provision_s = 300;
    std::vector<Request> requests = {request(0, 4, 10), request(1, 4, 10), request(2, 4, 10)};
    for (int i = 1; i <= 10; ++i) {
        requests.push_back(request(25 * i, 4, 10));
    }
    ListSource source(requests);
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(spec, source, cost);
    CHECK(result.requests.size() == 13);
    CHECK(result.starts == 2);
}

TEST_CASE("serving: a pool of none starts a replica for the first request, and keeps it alive for the next") {
    // A start takes 6 s (2 + 300 B over 100 B/s + 1), an answer 10. The second request comes 34 s after the first answer, and the
    // third 134 s after the second, when nobody is there any more: looks are at multiples of 5 s.
    ServiceSpec spec = scaling();
    spec.pools[0].scaling = {1, 0, 5, 0, ScalingRule::queue, 60};
    ListSource source({request(0, 4, 10), request(50, 4, 10), request(194, 4, 10)});
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(spec, source, cost);
    REQUIRE(result.requests.size() == 3);
    CHECK(result.starts == 2);
    CHECK(static_cast<double>(result.requests[0].e2e) == doctest::Approx(16));
    CHECK(static_cast<double>(result.requests[1].e2e) == doctest::Approx(10));
    CHECK(static_cast<double>(result.requests[2].e2e) == doctest::Approx(16));
    // Idle since 60 s, it begins to drain at 120 and is off at 125 s; the other runs from 194 s to the end at 210.
    CHECK(result.gpu_s == doctest::Approx(125 + 16));
}

TEST_CASE("serving: replicas follow the rate at which requests come, where that is the rule") {
    // Two requests per second in the first 20 s, one replica for each of them at a second an answer; then one every five seconds.
    ServiceSpec spec = scaling();
    spec.pools[0].scaling = {1, 1, 5, 0, ScalingRule::rate};
    std::vector<Request> requests;
    for (int i = 0; i < 40; ++i) {
        requests.push_back(request(0.25 + 0.5 * i, 4, 1));
    }
    for (int i = 0; i < 10; ++i) {
        requests.push_back(request(20.25 + 5 * i, 4, 1));
    }
    ListSource source(requests);
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(spec, source, cost);
    CHECK(result.requests.size() == 50);
    CHECK(result.starts == 1);
    // The second one is wanted from 5 s to the look at 25 s, when one request had come in 5 s, and has stopped at the look after.
    CHECK(result.gpu_s == doctest::Approx(result.end_s + 25));
}

TEST_CASE("serving: pools can have devices of their own, and clocks held down by a cap on power") {
    const auto summary = [](const char* prefill, const char* decode) {
        return run_scenario(test::scenario(fmt::format(R"(orrery: 1
kind: serving
cluster: {{nodes: 2, node: dgx-h100}}
model: llama-2-70b
engine:
  prefill: {{replicas: 1, tensor: 8, scheduler: {{kind: vllm-v0}}{}}}
  decode: {{replicas: 1, tensor: 8{}}}
requests: {{count: 50, rate: 0.5, arrivals: fixed}}
)",
                                                       prefill, decode)
                                               .c_str()),
                            test::model_cache(), {})
            .summary;
    };
    const Summary plain = summary("", "");
    const Summary older = summary("", ", device: a100-sxm-80g");
    CHECK(older.find("ttft_s.mean")->value == plain.find("ttft_s.mean")->value);
    CHECK(older.find("tpot_s.mean")->value > 1.1 * plain.find("tpot_s.mean")->value);
    // Decoding streams weights: half of the clock costs it little, prompts much.
    const Summary slow_decode = summary("", ", clock: 50 %");
    const Summary slow_prefill = summary(", clock: 50 %", "");
    CHECK(slow_decode.find("tpot_s.mean")->value < 1.2 * plain.find("tpot_s.mean")->value);
    CHECK(slow_prefill.find("ttft_s.mean")->value > 1.4 * plain.find("ttft_s.mean")->value);
}
