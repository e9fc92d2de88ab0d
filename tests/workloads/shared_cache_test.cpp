// Prefixes that replicas take from a store beside them and from each other: times, break-even, hit rates.

#include "tests/support/fabrics.hpp"
#include "tests/workloads/serving_support.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace orrery;
using namespace orrery::test;

namespace {

Request turn(double arrival_s, std::uint32_t prompt, std::uint32_t output, std::uint64_t conversation) {
    Request one = request(arrival_s, prompt, output);
    one.content.conversation = conversation;
    return one;
}

// Replicas that take requests in turn, of so many blocks of 4 tokens and 1,000 B, with a store of 100 blocks.
ServiceSpec with_store(std::int64_t replicas, std::uint64_t blocks) {
    ServiceSpec spec = spec_of("chunked-prefill", 10'000, 8, blocks);
    spec.pools[0].limits.prefix_cache = true;
    spec.pools[0].limits.block_bytes = 1000;
    spec.pools[0].replicas = replicas;
    spec.shared.given = true;
    spec.shared.capacity = 100'000;
    return spec;
}

ServiceResult serve_all(const ServiceSpec& spec, std::vector<Request> requests, AffineStep cost = AffineStep(1, 0, 0)) {
    ListSource source(std::move(requests));
    return serve_with(spec, source, cost);
}

double ttft(const ServiceResult& result, std::size_t index) {
    return static_cast<double>(result.requests.at(index).ttft);
}

// The hit rate of LRU for independent requests: Che, Tung and Wang, "Hierarchical web caching systems", IEEE JSAC 20(7), 2002.
double che(const std::vector<double>& shares, double room) {
    const auto held = [&](double time) {
        double sum = 0;
        for (const double share : shares) {
            sum += 1 - std::exp(-share * time);
        }
        return sum;
    };
    double low = 0;
    double high = 1e9;
    for (int i = 0; i < 200; ++i) {
        const double middle = (low + high) / 2;
        (held(middle) < room ? low : high) = middle;
    }
    double hits = 0;
    for (const double share : shares) {
        hits += share * (1 - std::exp(-share * low));
    }
    return hits;
}

std::vector<std::string> problems(double capacity, bool peers, PullRule pull, std::int64_t replicas) {
    SharedCacheSpec spec;
    spec.given = true;
    spec.capacity = capacity;
    spec.peers = peers;
    spec.pull = pull;
    return problems_of(spec, replicas);
}

}  // namespace

TEST_CASE("a replica takes from a store what another computed, once it is written") {
    ServiceSpec spec = with_store(2, 100);
    spec.shared.bandwidth = 1000;
    spec.shared.latency = 0.5;
    // Two full blocks of nine tokens, computed at 1 s and written by 3.5 s. The second replica takes them in 2.5 s.
    const ServiceResult late = serve_all(spec, {turn(0, 9, 1, 1), turn(10, 9, 1, 1)});
    CHECK(ttft(late, 0) == doctest::Approx(1));
    CHECK(ttft(late, 1) == doctest::Approx(2.5 + 1));
    CHECK(late.store_written_bytes == 2000);
    CHECK(late.fetched_store_bytes == 2000);
    CHECK(late.prefix_tokens == 8);
    CHECK(late.brought_tokens[2] == 8);
    // At 3 s they are not there yet; the second replica computes them, and writes nothing as they are on their way.
    const ServiceResult early = serve_all(spec, {turn(0, 9, 1, 1), turn(3, 9, 1, 1)});
    CHECK(ttft(early, 1) == doctest::Approx(1));
    CHECK(early.fetched_store_bytes == 0);
    CHECK(early.store_written_bytes == 2000);
    // Two at once share the pipe: 4,000 B of both take 4 s.
    const ServiceResult both =
        serve_all(spec, {turn(0, 9, 1, 1), turn(0, 9, 1, 2), turn(20, 9, 1, 2), turn(20, 9, 1, 1)});
    CHECK(ttft(both, 2) == doctest::Approx(0.5 + 4 + 1));
    CHECK(ttft(both, 3) == doctest::Approx(0.5 + 4 + 1));
    spec.shared.pull = PullRule::never;
    CHECK(serve_all(spec, {turn(0, 9, 1, 1), turn(10, 9, 1, 1)}).prefix_tokens == 0);
}

TEST_CASE("pull against recompute: blocks are brought as long as latency and bytes take less than computing them") {
    // A token takes 50 ms to compute and 25 ms to bring: n blocks of four come sooner when the latency is below 0.1 n.
    for (std::uint32_t blocks = 1; blocks <= 6; ++blocks) {
        for (const double slack : {-0.05, -0.001, 0.001, 0.05}) {
            CAPTURE(blocks);
            CAPTURE(slack);
            ServiceSpec spec = with_store(2, 100);
            spec.shared.bandwidth = 10'000;
            spec.shared.latency = 0.1 * blocks + slack;
            spec.shared.pull = PullRule::faster;
            const std::uint32_t prompt = 4 * blocks + 1;
            const ServiceResult result =
                serve_all(spec, {turn(0, prompt, 1, 1), turn(100, prompt, 1, 1)}, AffineStep(0.1, 0.05, 0));
            const double anew = 0.1 + 0.05 * prompt;
            const double brought = spec.shared.latency + 0.1 * blocks + 0.1 + 0.05;
            CHECK(ttft(result, 1) == doctest::Approx(std::min(anew, brought)));
            CHECK((result.fetched_store_bytes > 0) == (slack < 0));
        }
    }
}

TEST_CASE("written back, a store gets the blocks that replicas drop, and only those") {
    ServiceSpec spec = with_store(1, 4);
    spec.shared.write = StoreWrite::back;
    // Conversations 1 and 2 fill two blocks each; 3 drives those of 1 out. They come back from the store, and 2's go there for that.
    const std::vector<Request> requests = {turn(0, 8, 1, 1), turn(2, 8, 1, 2), turn(4, 7, 1, 3), turn(6, 9, 1, 1)};
    const ServiceResult result = serve_all(spec, {requests.begin(), requests.end()});
    CHECK(serve_all(spec, {requests[0], requests[1]}).store_written_bytes == 0);
    CHECK(serve_all(spec, {requests[0], requests[1], requests[2]}).store_written_bytes == 2000);
    CHECK(result.fetched_store_bytes == 2000);
    CHECK(result.prefix_tokens == 8);
}

TEST_CASE("the store of a fleet hits as often as LRU does under Zipf, by Che's approximation") {
    constexpr int kPrompts = 400;
    constexpr int kRequests = 20'000;
    std::vector<double> shares;
    double sum = 0;
    for (int k = 1; k <= kPrompts; ++k) {
        shares.push_back(std::pow(k, -0.9));
        sum += shares.back();
    }
    for (double& share : shares) {
        share /= sum;
    }
    RandomStream random(11, "zipf");
    std::vector<Request> requests;
    for (int i = 0; i < kRequests; ++i) {
        double at = random.uniform();
        std::size_t which = 0;
        while (which + 1 < shares.size() && at >= shares[which]) {
            at -= shares[which++];
        }
        // A block and a token; the two blocks of a replica hold one of them, so that the store is asked for all others.
        requests.push_back(turn(2.0 * i, 5, 1, which + 1));
    }
    for (const int room : {20, 60, 150}) {
        CAPTURE(room);
        ServiceSpec spec = with_store(3, 2);
        spec.shared.capacity = 1000.0 * room;
        const ServiceResult result = serve_all(spec, requests);
        const double hits = static_cast<double>(result.prefix_tokens) / (4.0 * kRequests);
        CHECK(hits == doctest::Approx(che(shares, room)).epsilon(0.03));
        CHECK(result.store_written_bytes - result.store_dropped_bytes == doctest::Approx(1000.0 * room));
    }
}

TEST_CASE("replicas take blocks from each other over the fabric") {
    const Fabric fabric(test::rail_nodes(2));
    ServiceSpec spec = with_store(2, 100);
    spec.shared.capacity = 0;
    spec.shared.peers = true;
    spec.fabric = &fabric;
    spec.gpus_per_node = fabric.shape().gpus_per_node;
    spec.pools[0].gpus = spec.gpus_per_node;
    spec.pools[0].limits.block_bytes = 1e11;
    const std::vector<Request> requests = {turn(0, 9, 1, 1), turn(10, 9, 1, 1)};
    const ServiceResult result = serve_all(spec, requests);
    // Each GPU of a node sends to its like over a NIC of its own.
    const double rate = fabric.shape().nic_bandwidth * fabric.shape().nics_per_node;
    CHECK(result.fetched_peer_bytes == 2e11);
    CHECK(ttft(result, 1) == doctest::Approx(1 + 2e11 / rate).epsilon(1e-3));
    CHECK(result.fetched_store_bytes == 0);
    // A prompt that is computed sooner than that is computed.
    spec.shared.pull = PullRule::faster;
    CHECK(serve_all(spec, requests).fetched_peer_bytes == 0);
    CHECK(serve_all(spec, requests, AffineStep(1, 2e11 / rate, 0)).fetched_peer_bytes == 2e11);
    // In a store on the first node the blocks of the second one come over the fabric, too.
    spec.shared.pull = PullRule::always;
    spec.shared.peers = false;
    spec.shared.capacity = 1e12;
    spec.shared.node = 0;
    const ServiceResult stored = serve_all(spec, {turn(0, 9, 1, 1), turn(100, 9, 1, 1)});
    CHECK(stored.fetched_store_bytes == 2e11);
    CHECK(ttft(stored, 1) == doctest::Approx(1 + 2e11 / rate).epsilon(1e-3));
}

TEST_CASE("a shared cache that shares nothing is refused") {
    CHECK(problems(1e9, false, PullRule::always, 1).empty());
    CHECK(problems(0, true, PullRule::faster, 2).empty());
    CHECK(problems(0, false, PullRule::always, 2).size() == 1);
    CHECK(problems(1e9, true, PullRule::always, 1).size() == 1);
    CHECK(problems(0, true, PullRule::never, 2).size() == 1);
}
