// Loads of several stages, prompts that are asked again, and what a client holds back.

#include "tests/workloads/serving_support.hpp"
#include "workloads/serving/requests/arrivals.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <vector>

using namespace orrery;
using namespace orrery::test;

namespace {

/// Two rates; a request of four and two tokens takes two iterations.
RequestsSpec ladder() {
    RequestsSpec spec;
    spec.arrivals = ArrivalKind::fixed;
    spec.prompt.mean = 4;
    spec.output.mean = 2;
    spec.stages = {{2, 2}, {4, 1}};
    spec.pause = 10;
    return spec;
}

ServiceSpec one_at_a_time() {
    ServiceSpec spec = spec_of("chunked-prefill", 100, 1, 100);
    spec.pools[0].limits.prefix_cache = true;
    spec.pools[0].limits.block_bytes = 1000;
    return spec;
}

std::vector<Request> all_of(const RequestsSpec& spec, std::uint64_t seed) {
    const auto source = make_requests(spec, "", seed);
    std::vector<Request> out;
    for (Request one; source->next(one);) {
        out.push_back(one);
    }
    return out;
}

}  // namespace

TEST_CASE("serving: a stage sends rate times duration requests, whose arrivals count from its start") {
    const std::vector<Request> requests = all_of(ladder(), 1);
    REQUIRE(requests.size() == 8);
    for (std::size_t i = 0; i < 8; ++i) {
        CHECK(requests[i].stage == (i < 4 ? 1 : 2));
        CHECK(requests[i].arrival.seconds() == doctest::Approx(i < 4 ? 0.5 * i : 0.25 * (i - 4)));
    }
}

TEST_CASE("serving: a stage begins a pause after all before it is answered, and caches stay") {
    RequestsSpec spec = ladder();
    spec.common = 8;
    spec.questions = 1;
    ServiceSpec service = one_at_a_time();
    service.pause = spec.pause;
    const auto source = make_requests(spec, "", 1);
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(service, *source, cost);
    REQUIRE(result.stages.size() == 2);
    // Four requests of two iterations of a second each, then ten seconds, then the same.
    CHECK(result.stages[0].last.seconds() == doctest::Approx(8));
    CHECK(result.stages[1].start.seconds() == doctest::Approx(18));
    CHECK(result.stages[1].first.seconds() == doctest::Approx(18));
    CHECK(result.stages[1].last.seconds() == doctest::Approx(26));
    for (const StageResult& stage : result.stages) {
        CHECK(stage.answered == 4);
        CHECK(stage.output_tokens == 8);
        CHECK(stage.prompt_tokens == 48);
    }
    // One prompt of twelve tokens: all but its last block of four is found from the second time on.
    CHECK(result.stages[0].prefix_tokens == 3 * 8);
    CHECK(result.stages[1].prefix_tokens == 4 * 8);
}

TEST_CASE("serving: prompts that are asked again come in one order, from its start in each stage") {
    RequestsSpec spec = ladder();
    spec.stages = {{10, 1}, {7, 1}};
    spec.common = 8;
    spec.common_kinds = 2;
    spec.questions = 3;
    const std::vector<Request> requests = all_of(spec, 5);
    REQUIRE(requests.size() == 17);
    std::map<std::uint64_t, int> kinds;
    for (std::size_t i = 0; i < 6; ++i) {
        ++kinds[requests[i].content.conversation];
        CHECK(requests[i].prompt == 12);
    }
    CHECK(kinds.size() == 6);  // each once
    for (std::size_t i = 0; i < 17; ++i) {
        const std::size_t place = i < 10 ? i : i - 10;
        CHECK(requests[i].content.conversation == requests[place % 6].content.conversation);
        CHECK(requests[i].content.key(2, 4) == requests[place % 6].content.key(2, 4));  // to its last token
        CHECK(requests[i].content.group == (requests[i].content.conversation - 1) / 3);
    }
    CHECK(all_of(spec, 5)[3].content.conversation == requests[3].content.conversation);
}

TEST_CASE("serving: what a client holds back counts from when it is sent") {
    RequestsSpec spec;
    spec.arrivals = ArrivalKind::at_once;
    spec.count = 3;
    spec.prompt.mean = 4;
    spec.output.mean = 2;
    ServiceSpec service = one_at_a_time();
    const auto longest = [&](std::int64_t most) {
        service.concurrency = most;
        const auto source = make_requests(spec, "", 1);
        AffineStep cost(1, 0, 0);
        const ServiceResult result = serve_with(service, *source, cost);
        CHECK(result.requests.size() == 3);
        float out = 0;
        for (const RequestOutcome& request : result.requests) {
            out = std::max(out, request.e2e);
        }
        return out;
    };
    CHECK(longest(0) == doctest::Approx(6));
    CHECK(longest(2) == doctest::Approx(4));
    CHECK(longest(1) == doctest::Approx(2));
}

TEST_CASE("serving: a gateway takes its time of each request and of each token of its prompt") {
    RequestsSpec spec;
    spec.arrivals = ArrivalKind::at_once;
    spec.count = 1;
    spec.prompt.mean = 4;
    spec.output.mean = 1;
    ServiceSpec service = one_at_a_time();
    service.gateway = {0.25, 0.125};
    const auto source = make_requests(spec, "", 1);
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(service, *source, cost);
    REQUIRE(result.requests.size() == 1);
    CHECK(result.requests[0].ttft == doctest::Approx(1.75));
}
