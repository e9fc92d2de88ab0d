// Runs without an end of their own: when they have said enough, and when the queue grows without bound.

#include "sim/record/batch_means.hpp"
#include "tests/workloads/serving_support.hpp"
#include "workloads/serving/requests/arrivals.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace orrery;
using namespace orrery::test;

namespace {

constexpr std::int64_t kEndless = 1'000'000'000'000;

// One place, a second per request: M/D/1 at the rate.
ServiceResult one_place(double rate, std::uint64_t seed, const SteadySpec& steady = {}) {
    RequestsSpec requests;
    requests.rate = rate;
    requests.count = kEndless;
    requests.prompt.mean = 10;
    requests.output.mean = 1;
    const auto source = make_requests(requests, "", seed);
    AffineStep cost(1, 0, 0);
    ServiceSpec spec = spec_of("orca", 100, 1, 100);
    spec.steady = steady;
    spec.steady.wanted = true;
    return serve_with(spec, *source, cost);
}

double mean_e2e(const ServiceResult& result) {
    double sum = 0;
    for (const RequestOutcome& outcome : result.requests) {
        sum += static_cast<double>(outcome.e2e);
    }
    return sum / static_cast<double>(result.requests.size());
}

}  // namespace

TEST_CASE("steady state: a queue is watched until its mean is known as well as asked for") {
    for (const double rate : {0.3, 0.6, 0.8}) {
        const ServiceResult result = one_place(rate, 7);
        REQUIRE(result.steady);
        const SteadyRun& steady = *result.steady;
        CHECK(steady.precise);
        CHECK(!steady.overloaded);
        // Pollaczek-Khinchine: a service and rho / (2 (1 - rho)) of them.
        CHECK(mean_e2e(result) == doctest::Approx(1 + rate / (2 * (1 - rate))).epsilon(0.1));
        CHECK(static_cast<double>(result.finished) / result.window_s == doctest::Approx(rate).epsilon(0.04));
        // The longer the queue remembers, the longer the run.
        CHECK(steady.measured >= 1600);
        // All that came in the window is there, and rates end where the load does.
        CHECK(result.requests.size() == doctest::Approx(static_cast<double>(steady.measured)).epsilon(0.01));
        CHECK(result.window_s < result.end_s);
        CHECK(steady.seconds.size() == 16);
    }
    CHECK(one_place(0.8, 7).steady->measured > 2 * one_place(0.3, 7).steady->measured);
}

TEST_CASE("steady state: 90 % intervals hold what is true in nine of ten cases") {
    int inside = 0;
    int served = 0;
    constexpr int kCases = 60;
    for (std::uint64_t seed = 1; seed <= kCases; ++seed) {
        const ServiceResult result = one_place(0.7, seed);
        const BatchEstimate rate = ratio_of_batches(result.steady->finished, result.steady->seconds, 0.9);
        inside += std::fabs(rate.value - 0.7) <= rate.half_width ? 1 : 0;
        served += result.steady->overloaded ? 0 : 1;
    }
    CHECK(inside >= 0.82 * kCases);
    CHECK(served == kCases);
}

TEST_CASE("steady state: a queue that grows without bound ends the run with the rate that is sustained") {
    for (const double rate : {1.05, 1.3, 5.0, 40.0}) {
        const ServiceResult result = one_place(rate, 3);
        REQUIRE(result.steady);
        CHECK_MESSAGE(result.steady->overloaded, rate);
        CHECK(result.steady->sustainable_rps == doctest::Approx(1).epsilon(0.001));
        CHECK(result.steady->offered_rps == doctest::Approx(rate).epsilon(0.06));
        CHECK(result.steady->warm_up + result.steady->measured < 50'000);
    }
    // Just below, waiting is long and the run as well, but it is no overload.
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        CHECK(!one_place(0.98, seed).steady->overloaded);
    }
}

TEST_CASE("steady state: a system that takes long to fill is not taken for one that overflows") {
    // 4000 places, 2000 requests under way on average: the first look finds it filling.
    RequestsSpec requests;
    requests.rate = 2;
    requests.count = kEndless;
    requests.prompt.mean = 1;
    requests.output = {LengthKind::lognormal, 1000, 1, 1 << 20};
    const auto source = make_requests(requests, "", 5);
    AffineStep cost(1, 0, 0);
    ServiceSpec spec = spec_of("orca", 8000, 4000, 100'000'000);
    spec.steady.wanted = true;
    spec.steady.most = 30'000;
    const ServiceResult result = serve_with(spec, *source, cost);
    CHECK(!result.steady->overloaded);
    CHECK(result.steady->warm_up > 500);
    CHECK(mean_e2e(result) == doctest::Approx(1000).epsilon(0.05));
}

TEST_CASE("steady state: a closed loop has no overload, and a run that cannot say enough ends at the most requests") {
    RequestsSpec requests;
    requests.arrivals = ArrivalKind::closed;
    requests.clients = 8;
    requests.count = kEndless;
    requests.prompt.mean = 10;
    requests.output = {LengthKind::uniform, 5, 1, 1 << 20};
    AffineStep cost(1, 0, 0);
    ServiceSpec spec = spec_of("orca", 100, 2, 100);
    spec.steady.wanted = true;
    const auto source = make_requests(requests, "", 5);
    const ServiceResult result = serve_with(spec, *source, cost);
    CHECK(result.steady->precise);
    CHECK(!result.steady->overloaded);
    spec.steady.e2e = 1e-9;
    spec.steady.most = 6400;
    const auto again = make_requests(requests, "", 5);
    const ServiceResult longest = serve_with(spec, *again, cost);
    CHECK(!longest.steady->precise);
    CHECK(longest.steady->warm_up + longest.steady->measured <= 6400);
}
