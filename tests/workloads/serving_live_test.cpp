// Requests sent while a service runs, at times of a clock that only moves when the simulation waits for it.

#include "sim/base/random.hpp"
#include "tests/workloads/serving_support.hpp"
#include "workloads/serving/front_end/live_requests.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

using namespace orrery;
using namespace orrery::test;

namespace {

/// What a client does at a time.
struct Act {
    SimTime at;
    std::function<void()> what;
};

class ScriptClock final : public LiveClock {
  public:
    [[nodiscard]] SimTime now() override { return now_; }
    void wait(std::unique_lock<std::mutex>& lock, std::condition_variable&, SimTime until) override {
        if (acts.empty() || acts.front().at > until) {
            now_ = std::max(now_, until);
            return;
        }
        const Act act = acts.front();
        acts.erase(acts.begin());
        now_ = std::max(now_, act.at);
        lock.unlock();
        act.what();
        lock.lock();
    }
    std::vector<Act> acts;

  private:
    SimTime now_;
};

class Recorder final : public LiveClient {
  public:
    void sent(SimTime at) override { arrival = at; }
    void tokens(std::uint32_t count, SimTime at) override { given.emplace_back(count, at); }
    void ended(Ending how, SimTime at) override { ends.emplace_back(how, at); }
    SimTime arrival;
    std::vector<std::pair<std::uint32_t, SimTime>> given;
    std::vector<std::pair<Ending, SimTime>> ends;
};

struct Times {
    SimTime arrival, first, last;
    friend bool operator==(const Times&, const Times&) = default;
};

// First and last token of each request, by its number.
std::map<std::uint64_t, Times> times_of(ServiceSpec spec, RequestSource& source, ServiceResult* result = nullptr) {
    AffineStep cost(0.01, 0.0003, 0.000001);
    for (PoolSpec& pool : spec.pools) {
        pool.cost.assign(pool.limits.batches, &cost);
        pool.starts = true;
    }
    spec.faults.shape = nodes_of(spec);
    std::map<std::uint64_t, Times> out;
    ServiceHooks hooks;
    hooks.served = [&](const Sequence& one, const RequestOutcome*) {
        out[one.id] = {one.arrival, one.first_token, one.last_token};
    };
    ServiceResult done = serve(spec, source, hooks);
    if (result != nullptr) {
        *result = std::move(done);
    }
    return out;
}

struct LiveRun {
    ScriptClock clock;
    LiveRequests live{clock, SimTime::from_seconds(0.0005)};
    std::vector<std::shared_ptr<Recorder>> clients;
    std::vector<std::uint32_t> tickets;

    void send(const Request& one) {
        clients.push_back(std::make_shared<Recorder>());
        tickets.push_back(0);
        clock.acts.push_back(
            {one.arrival, [this, one, i = clients.size() - 1] { tickets[i] = live.send(one, clients[i]).value(); }});
    }
    void cancel(double at_s, std::size_t client) {
        clock.acts.push_back({SimTime::from_seconds(at_s), [this, client] { live.cancel(tickets[client]); }});
    }
    void close(double at_s) {
        clock.acts.push_back({SimTime::from_seconds(at_s), [this] { live.close(); }});
    }
};

std::vector<Request> poisson(std::uint64_t seed, int count, double rate) {
    RandomStream random(seed, "live");
    std::vector<Request> out;
    double at = 0;
    for (int i = 0; i < count; ++i) {
        at += random.exponential(1 / rate);
        out.push_back(request(at, 1 + static_cast<std::uint32_t>(random.below(200)),
                              1 + static_cast<std::uint32_t>(random.below(40))));
    }
    return out;
}

}  // namespace

TEST_CASE("serving: requests sent while it runs fare as the same requests known beforehand, to the picosecond") {
    for (const char* kind : {"chunked-prefill", "vllm-v0", "static"}) {
        for (const double frontend_s : {0.0, 0.004}) {
            CAPTURE(kind);
            CAPTURE(frontend_s);
            ServiceSpec spec = spec_of(kind, 256, 16, 400);
            spec.pools[0].replicas = 2;
            spec.software.frontend.value = frontend_s;
            spec.software.request.value = frontend_s / 4;
            const std::vector<Request> requests = poisson(7, 300, 40);
            ListSource list(requests);
            const auto expected = times_of(spec, list);
            LiveRun live;
            for (const Request& one : requests) {
                live.send(one);
            }
            live.close(20);
            CHECK(times_of(spec, live.live) == expected);
            REQUIRE(expected.size() == requests.size());
            for (std::size_t i = 0; i < requests.size(); ++i) {
                const Recorder& client = *live.clients[i];
                REQUIRE(client.given.size() == requests[i].output);  // one by one
                CHECK(client.arrival == requests[i].arrival);
                CHECK(client.given.front() == std::pair(1U, expected.at(i).first));
                CHECK(client.given.back() == std::pair(requests[i].output, expected.at(i).last));
                CHECK(client.ends == std::vector{std::pair(Ending::finished, expected.at(i).last)});
            }
        }
    }
}

TEST_CASE("serving: a client gets tokens as the server gathers them, the rest with the end") {
    ServiceSpec spec = spec_of("chunked-prefill", 256, 16, 400);
    spec.stream_interval = 4;
    LiveRun live;
    live.send(request(0.1, 10, 10));
    live.close(5);
    const auto times = times_of(spec, live.live);
    std::vector<std::uint32_t> counts;
    for (const auto& [count, at] : live.clients[0]->given) {
        counts.push_back(count);
    }
    CHECK(counts == std::vector<std::uint32_t>{4, 8, 10});
    CHECK(live.clients[0]->given.front().second == times.at(0).first);
}

TEST_CASE("serving: a client that leaves gives its place to others, whether it waits, runs or has not come yet") {
    ServiceSpec spec = spec_of("chunked-prefill", 256, 1, 400);  // one at a time
    spec.software.frontend.value = 0.05;
    LiveRun live;
    live.send(request(0.1, 10, 1000));  // 10 s and more, were it not cancelled at 0.5 s
    live.send(request(0.2, 10, 1000));  // leaves while it waits
    live.cancel(0.4, 1);
    live.cancel(0.5, 0);
    live.send(request(0.6, 10, 5));
    live.send(request(0.601, 10, 5));
    live.cancel(0.602, 3);  // still in the front end
    live.cancel(5, 2);      // long gone
    live.close(6);
    ServiceResult result;
    const auto times = times_of(spec, live.live, &result);
    REQUIRE(times.size() == 1);
    CHECK(times.at(2).last < SimTime::from_seconds(0.8));
    CHECK(result.timed_out == 3);
    for (const std::size_t gone : {0U, 1U, 3U}) {
        REQUIRE(live.clients[gone]->ends.size() == 1);
        CHECK(live.clients[gone]->ends[0].first == Ending::timed_out);
        CHECK(live.clients[gone]->ends[0].second < SimTime::from_seconds(0.8));
    }
    CHECK(live.clients[0]->given.size() > 20);
    CHECK(live.clients[1]->given.empty());
    CHECK(live.live.load().running == 0);
    CHECK(live.live.load().used_blocks == 0);
}

TEST_CASE("serving: who asks for more than the cache holds is refused at once, and nobody after the close is let in") {
    LiveRun live;
    live.send(request(1, 5000, 10));
    live.close(2);
    const auto times = times_of(spec_of("chunked-prefill", 256, 16, 400), live.live);
    CHECK(times.empty());
    CHECK(live.clients[0]->given.empty());
    CHECK(live.clients[0]->ends == std::vector{std::pair(Ending::refused, SimTime::from_seconds(1))});
    CHECK_FALSE(live.live.send(request(3, 1, 1), live.clients[0]).has_value());
}

TEST_CASE("serving: sequences of a live service that lose their replica go on elsewhere") {
    ServiceSpec spec = spec_of("chunked-prefill", 256, 16, 400);
    spec.pools[0].replicas = 2;
    spec.faults.given = true;
    spec.faults.timed = {loss(0, 0.3, 1)};
    const std::vector<Request> requests = poisson(3, 40, 60);
    ListSource list(requests);
    const auto expected = times_of(spec, list);
    LiveRun live;
    for (const Request& one : requests) {
        live.send(one);
    }
    live.close(20);
    CHECK(times_of(spec, live.live) == expected);
    for (std::size_t i = 0; i < requests.size(); ++i) {
        CHECK(live.clients[i]->given.back().first == requests[i].output);
    }
}
