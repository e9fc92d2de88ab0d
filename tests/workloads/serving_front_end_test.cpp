// The host under a front end: cores that take requests in and stream tokens out, and limits of what is let in.

#include "tests/workloads/serving_support.hpp"
#include "workloads/serving/requests/arrivals.hpp"

#include <doctest/doctest.h>

#include <numeric>

using namespace orrery;
using namespace orrery::test;

namespace {

ServiceSpec behind(const FrontEndSpec& front_end) {
    ServiceSpec spec = spec_of("chunked-prefill", 1000, 64, 100000);
    spec.front_end = front_end;
    spec.front_end.given = true;
    return spec;
}

FrontEndSpec front(std::int64_t cores, double request_s, double token_s) {
    FrontEndSpec spec;
    spec.cores = cores;
    spec.request_s = request_s;
    spec.token_s = token_s;
    return spec;
}

}  // namespace

TEST_CASE("front end: requests that come faster than two cores take them in wait as in D/D/2") {
    // One per second, three seconds of a core each: jobs 2m and 2m + 1 start m seconds after they came.
    std::vector<Request> all;
    for (int k = 0; k < 8; ++k) {
        all.push_back(request(k, 1, 1));
    }
    ListSource source(all);
    AffineStep cost(0.0625, 0, 0);
    const ServiceResult result = serve_with(behind(front(2, 3, 0)), source, cost);
    REQUIRE(result.requests.size() == 8);
    for (std::size_t k = 0; k < 8; ++k) {
        CHECK(static_cast<double>(result.requests[k].ttft) == static_cast<double>(k / 2) + 3 + 0.0625);
    }
    CHECK(result.front_end_request_wait_s == doctest::Approx(2 * (0 + 1 + 2 + 3)));
    CHECK(result.front_end_busy_s == doctest::Approx(24));
}

TEST_CASE("front end: each of two replicas brings one that takes requests in one after another, or both share one") {
    for (const bool shared : {false, true}) {
        CAPTURE(shared);
        std::vector<Request> all;
        for (int k = 0; k < 8; ++k) {
            all.push_back(request(k, 1, 1));
        }
        ListSource source(all);
        AffineStep cost(0.0625, 0, 0);
        ServiceSpec spec = spec_of("chunked-prefill", 1000, 64, 100000);
        spec.pools[0].replicas = 2;
        spec.software.frontend.value = 3;
        spec.software.shared_front_end = shared;
        const ServiceResult result = serve_with(spec, source, cost);
        REQUIRE(result.requests.size() == 8);
        for (std::size_t k = 0; k < 8; ++k) {
            const double waited = shared ? 2.0 * static_cast<double>(k) : static_cast<double>(k / 2);  // D/D/1, D/D/2
            CHECK(static_cast<double>(result.requests[k].ttft) == waited + 3 + 0.0625);
        }
    }
}

TEST_CASE("front end: the tokens of an iteration leave one after another over the cores") {
    for (const std::int64_t cores : {1, 2, 4}) {
        ListSource source({request(0, 1, 3), request(0, 1, 3), request(0, 1, 3), request(0, 1, 3)});
        AffineStep cost(1, 0, 0);
        const ServiceResult result = serve_with(behind(front(cores, 0, 0.125)), source, cost);
        REQUIRE(result.requests.size() == 4);
        for (std::size_t k = 0; k < 4; ++k) {
            // Three iterations of a second, then the turn of the k-th token.
            const auto turn = static_cast<double>(k / static_cast<std::size_t>(cores) + 1);
            CHECK(static_cast<double>(result.requests[k].e2e) == 3 + 0.125 * turn);
            CHECK(static_cast<double>(result.requests[k].tpot) == 1);
        }
        CHECK(result.end_s == doctest::Approx(3 + 0.125 * 4 / static_cast<double>(cores)));
        CHECK(result.front_end_tokens == 12);
    }
}

TEST_CASE("front end: a core that is slower than the engine sets the time per token, and tokens queue") {
    // Two tokens per iteration of 1 s, 1 s of the core each: the n-th token of both leaves at 2 n and 2 n + 1, counted from 1.
    ListSource source({request(0, 1, 10), request(0, 1, 10)});
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(behind(front(1, 0, 1)), source, cost);
    CHECK(static_cast<double>(result.requests[0].e2e) == 20);
    CHECK(static_cast<double>(result.requests[1].e2e) == 21);
    CHECK(static_cast<double>(result.requests[1].tpot) == 2);
    CHECK(result.iterations == 10);
}

TEST_CASE("front end: Poisson arrivals wait for one core as M/D/1 says") {
    RequestsSpec requests;
    requests.rate = 0.7;
    requests.count = 60000;
    requests.prompt.mean = 1;
    requests.output.mean = 1;
    const auto source = make_requests(requests, "", 1);
    AffineStep cost(1e-6, 0, 0);
    const ServiceResult result = serve_with(behind(front(1, 1, 0)), *source, cost);
    const double wait = result.front_end_request_wait_s / static_cast<double>(result.front_end_requests);
    CHECK(wait == doctest::Approx(0.7 / (2 * (1 - 0.7))).epsilon(0.05));
}

TEST_CASE("front end: a rate lets requests in evenly, and streams as others end") {
    const std::vector<Request> all(5, request(0, 1, 1));
    AffineStep cost(0.125, 0, 0);
    FrontEndSpec even;
    even.rate = 2;
    ListSource by_rate(all);
    const ServiceResult rated = serve_with(behind(even), by_rate, cost);
    FrontEndSpec one;
    one.streams = 1;
    ListSource by_streams(all);
    const ServiceResult streamed = serve_with(behind(one), by_streams, cost);
    for (std::size_t k = 0; k < 5; ++k) {
        CHECK(static_cast<double>(rated.requests[k].e2e) == 0.5 * static_cast<double>(k) + 0.125);
        CHECK(static_cast<double>(streamed.requests[k].e2e) == 0.125 * static_cast<double>(k + 1));
    }
}

TEST_CASE("front end: a host without work and limits changes nothing, and every request ends whatever they are") {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        RandomStream random(seed, "test/front-end");
        RequestsSpec requests;
        requests.count = 60;
        requests.rate = 2;
        requests.arrivals = random.below(2) == 0 ? ArrivalKind::poisson : ArrivalKind::closed;
        requests.clients = 6;
        requests.prompt = {LengthKind::lognormal, 20, 0.8, 200};
        requests.output = {LengthKind::lognormal, 8, 0.8, 100};
        requests.turns = requests.arrivals == ArrivalKind::poisson && random.below(2) == 0 ? 3 : 0;
        AffineStep cost(0.0625, 0.001, 0);
        const auto run = [&](const ServiceSpec& spec) {
            const auto source = make_requests(requests, "", seed);
            return serve_with(spec, *source, cost);
        };
        ServiceSpec without = behind({});
        without.front_end = FrontEndSpec();
        without.software.request.value = 0.25;
        ServiceSpec idle = behind({});
        idle.software.request.value = 0.25;
        const ServiceResult a = run(without);
        const ServiceResult b = run(idle);
        // How many conversations begin before `count` is spent depends on when the next one is asked for.
        for (std::size_t i = 0; requests.turns == 0 && i < a.requests.size(); ++i) {
            CHECK(a.requests.at(i).e2e == b.requests.at(i).e2e);
        }
        CHECK((requests.turns > 0 || a.end_s == b.end_s));
        FrontEndSpec busy = front(1 + static_cast<std::int64_t>(random.below(3)), 0.1, 0.02);
        busy.prompt_token_s = 0.001;
        busy.rate = random.below(2) == 0 ? 3 : 0;
        busy.streams = random.below(2) == 0 ? 4 : 0;
        const ServiceResult c = run(behind(busy));
        CHECK(c.requests.size() + c.refused == 60);
        CHECK(c.front_end_requests == 60);
        CHECK(c.front_end_tokens == c.output_tokens);
    }
}
