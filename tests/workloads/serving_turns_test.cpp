// Conversations whose questions wait for answers, mixes of clients, and the lives of requests on a timeline.

#include "sim/base/random.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tests/workloads/serving_support.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "workloads/serving/requests/arrivals.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <map>

using namespace orrery;
using namespace orrery::test;

namespace {

RequestsSpec talking(double turns, double think, std::int64_t count) {
    RequestsSpec spec;
    spec.arrivals = ArrivalKind::at_once;
    spec.turns = turns;
    spec.think = think;
    spec.count = count;
    spec.prompt.mean = 10;
    spec.output.mean = 5;
    return spec;
}

// Sees every request on its way.
class Spy final : public RequestSource {
  public:
    explicit Spy(std::unique_ptr<RequestSource> source) : source_(std::move(source)) {}
    bool next(Request& request) override {
        const bool found = source_->next(request);
        if (found) {
            seen.push_back(request);
        }
        return found;
    }
    bool follow_up(std::uint32_t turn, SimTime now, bool served, Request& request) override {
        const bool found = source_->follow_up(turn, now, served, request);
        if (found) {
            seen.push_back(request);
            answers.push_back(now);
        }
        return found;
    }
    std::vector<Request> seen;
    std::vector<SimTime> answers;

  private:
    std::unique_ptr<RequestSource> source_;
};

}  // namespace

TEST_CASE("serving: the next question of a conversation comes its time to think after the answer") {
    // No time to think: each of 20 questions of one conversation takes a prompt and five tokens, one after another.
    Spy spy(make_requests(talking(1e6, 0, 20), "", 1));
    // The source would start 19 more conversations; one replica with one place takes them in turn.
    ServiceSpec spec = spec_of("chunked-prefill", 10000, 1, 10000);
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(spec, spy, cost);
    CHECK(result.requests.size() == 20);
    CHECK(result.end_s == doctest::Approx(100));

    RequestsSpec slow = talking(3, 7, 3000);
    slow.arrivals = ArrivalKind::poisson;
    slow.rate = 0.1;
    Spy thinking(make_requests(slow, "", 4));
    spec.pools[0].limits.max_sequences = 256;
    const ServiceResult talks = serve_with(spec, thinking, cost);
    CHECK(talks.requests.size() == 3000);
    // A third of the questions begin a conversation, and clients think 7 s in the mean.
    CHECK(static_cast<double>(thinking.answers.size()) / 3000 == doctest::Approx(2.0 / 3).epsilon(0.04));
    double think = 0;
    std::size_t answer = 0;
    std::map<std::uint32_t, std::uint32_t> said;  // tokens by conversation
    for (const Request& one : thinking.seen) {
        REQUIRE(one.turn > 0);
        if (said.count(one.turn) > 0) {
            think += (one.arrival - thinking.answers[answer++]).seconds();
            CHECK(one.prompt == said[one.turn] + 10);
        }
        said[one.turn] = one.prompt + one.output;
    }
    CHECK(think / static_cast<double>(answer) == doctest::Approx(7).epsilon(0.06));
}

TEST_CASE("serving: a conversation ends when its client gives up, when it is refused, and at the longest prompt") {
    RequestsSpec spec = talking(1e6, 1, 1000);
    spec.arrivals = ArrivalKind::fixed;
    spec.rate = 0.001;
    spec.prompt.most = 40;  // 10, 25, 40: the fourth would be 55
    AffineStep cost(1, 0, 0);
    ServiceSpec service = spec_of("chunked-prefill", 10000, 8, 10000);
    std::map<std::uint32_t, int> questions;
    Spy spy(make_requests(spec, "", 1));
    CHECK(serve_with(service, spy, cost).requests.size() == 1000);
    for (const Request& one : spy.seen) {
        ++questions[one.turn];
    }
    for (const auto& [turn, count] : questions) {
        CHECK((count == 3 || turn == questions.rbegin()->first));
    }
    service.timeout = 0.5;
    const auto impatient = make_requests(spec, "", 1);
    const ServiceResult gone = serve_with(service, *impatient, cost);
    CHECK(gone.timed_out == 1000);
    service.timeout = 0;
    service.pools[0].limits.max_context = 20;
    const auto refused = make_requests(spec, "", 1);
    const ServiceResult half = serve_with(service, *refused, cost);
    CHECK(half.refused == 499);  // the last second question would be one too many
    CHECK(half.requests.size() == 501);
}

TEST_CASE("serving: a mix of clients has each client's share, lengths, burstiness and adapter") {
    const Scenario s = test::scenario(R"(orrery: 1
kind: serving
cluster: {nodes: 1, node: dgx-h100}
model: llama-3-8b
engine: {lora: {rank: 16}}
requests:
  rate: 10
  count: 40000
  mix:
    - {share: 3, burstiness: 1, prompt: {mean: 100}, output: {mean: 10}}
    - {share: 1, burstiness: 4, prompt: {mean: 700}, output: {mean: 20}, adapter: 5}
)");
    const auto source = make_requests(s.as<ServingKind>().requests, "", 3);
    std::vector<std::vector<double>> arrivals(2);
    Request request;
    SimTime before;
    while (source->next(request)) {
        CHECK(request.arrival >= before);
        before = request.arrival;
        const std::size_t client = request.session;
        REQUIRE(client < 2);
        arrivals[client].push_back(request.arrival.seconds());
        CHECK(request.prompt == (client == 0 ? 100 : 700));
        CHECK(request.adapter == (client == 0 ? 0 : 5));
        request = Request();
    }
    CHECK(arrivals[0].size() + arrivals[1].size() == 40000);
    CHECK(static_cast<double>(arrivals[0].size()) / 40000 == doctest::Approx(0.75).epsilon(0.05));
    CHECK(before.seconds() == doctest::Approx(4000).epsilon(0.05));
    const double burstiness[] = {1, 4};
    for (std::size_t client = 0; client < 2; ++client) {
        double sum = 0;
        double squares = 0;
        const std::vector<double>& times = arrivals[client];
        for (std::size_t i = 1; i < times.size(); ++i) {
            sum += times[i] - times[i - 1];
            squares += (times[i] - times[i - 1]) * (times[i] - times[i - 1]);
        }
        const double mean = sum / static_cast<double>(times.size() - 1);
        const double variance = squares / static_cast<double>(times.size() - 1) - mean * mean;
        CHECK(std::sqrt(variance) / mean == doctest::Approx(burstiness[client]).epsilon(0.1));
    }
    // What is written reads back to the same.
    RequestsSpec given = s.as<ServingKind>().requests;
    const auto written = [](RequestsSpec& spec) { return write_fields([&](Fields& f) { describe(f, spec); }); };
    RequestsSpec read;
    std::vector<Diagnostic> errors;
    read_fields(parse_yaml(written(given), "written"), data(), errors, [&](Fields& f) { describe(f, read); });
    CHECK(errors.empty());
    CHECK(written(read) == written(given));
}

TEST_CASE("serving: errors of a mix and of turns are given with their places, all at once") {
    const std::string text = R"(orrery: 1
kind: serving
cluster: {nodes: 1, node: dgx-h100}
model: llama-3-8b
requests:
  arrivals: closed
  turns: 3
  mix:
    - {share: 0, prompt: {mean: 100}}
    - {burstyness: 2}
    - 7
)";
    const std::string errors = refusal(text);
    CAPTURE(errors);
    CHECK(errors.find("test.yaml:9:15") != std::string::npos);
    CHECK(errors.find("test.yaml:10:8: error: unknown key 'burstyness' (did you mean 'burstiness'?)") !=
          std::string::npos);
    CHECK(errors.find("test.yaml:11:7") != std::string::npos);
    CHECK(errors.find("no closed loop") != std::string::npos);
}

TEST_CASE("serving: popular adapters are named in proportion to a power of their rank") {
    RequestsSpec spec;
    spec.adapters = 4;
    spec.adapter_skew = 1;
    spec.count = 50000;
    const auto source = make_requests(spec, "", 9);
    std::vector<double> named(5);
    Request request;
    while (source->next(request)) {
        ++named.at(request.adapter);
    }
    CHECK(named[0] == 0);
    for (std::size_t k = 1; k <= 4; ++k) {
        CHECK(named[k] / 50000 == doctest::Approx(1 / static_cast<double>(k) / (25.0 / 12)).epsilon(0.03));
    }
}

TEST_CASE("serving: the parts of a request's life on the timeline are its time, from arrival to its last token") {
    ServiceSpec spec = spec_of("vllm-v0", 8, 4, 12);
    spec.timeline = true;
    std::vector<Request> requests;
    RandomStream random(3, "lives");
    double at = 0;
    for (int i = 0; i < 60; ++i) {
        at += random.exponential(2);
        requests.push_back(request(at, 1 + static_cast<std::uint32_t>(random.below(12)),
                                   1 + static_cast<std::uint32_t>(random.below(8))));
    }
    ListSource source(requests);
    AffineStep cost(0.3, 0.01, 0.001);
    const ServiceResult result = serve_with(spec, source, cost);
    CHECK(result.preemptions > 0);
    REQUIRE(result.requests.size() == 60);
    std::map<std::uint64_t, SimTime> until;
    std::map<std::uint64_t, double> computed;
    for (const LifeRecord& part : result.lives) {
        const auto [found, fresh] = until.try_emplace(part.request, requests[part.request].arrival);
        CHECK(part.start == found->second);
        CHECK(part.end > part.start);
        found->second = part.end;
        computed[part.request] += part.phase == LifePhase::waiting ? 0 : (part.end - part.start).seconds();
    }
    REQUIRE(until.size() == 60);
    for (const auto& [id, end] : until) {
        CHECK(static_cast<double>(result.requests[id].e2e) ==
              doctest::Approx((end - requests[id].arrival).seconds()).epsilon(1e-5));
        CHECK(computed[id] >= 0.3);
    }
}

TEST_CASE("serving: a trace has iterations, requests and cache blocks, and is JSON") {
    const Scenario s = test::scenario(R"(orrery: 1
kind: serving
cluster: {nodes: 1, node: dgx-h100}
model: llama-3-8b
requests: {rate: 20, count: 50}
)");
    RunOptions options;
    options.timeline = true;
    const RunOutput out = run_scenario(s, test::model_cache(), options);
    std::map<std::string, std::size_t> counters;
    double waiting = 0;  // requests times seconds
    std::pair<double, double> before{0, 0};
    for (const CounterPoint& point : out.timeline.counters) {
        ++counters[point.name];
        if (point.name == "requests waiting") {
            waiting += before.second * (point.at_us - before.first) * 1e-6;
            before = {point.at_us, point.value};
        }
    }
    CHECK(counters["cache blocks"] == out.timeline.spans.size());
    CHECK(counters["sequences in the batch"] == out.timeline.spans.size());
    CHECK(before.second == 0);  // at the end nobody waits
    double lives = 0;
    for (const Lifeline& part : out.timeline.lifelines) {
        lives += part.phase == "waiting" ? part.duration_us * 1e-6 : 0;
    }
    CHECK(waiting == doctest::Approx(lives));
    const auto json = nlohmann::json::parse(to_chrome_trace(out.timeline));
    std::map<std::string, int> letters;
    for (const auto& event : json["traceEvents"]) {
        ++letters[event["ph"].get<std::string>()];
        if (event["ph"] == "X") {
            // Figures are arguments, so that a viewer groups equal names.
            CHECK((event["name"] == "prefill" || event["name"] == "decode"));
            CHECK(event["args"]["tokens"].get<double>() >= event["args"]["sequences"].get<double>());
            CHECK(event["args"]["cache blocks"].get<double>() > 0);
        }
    }
    CHECK(letters["b"] == letters["e"]);
    CHECK(letters["b"] >= 100);
    CHECK(letters["C"] == static_cast<int>(out.timeline.counters.size()));
}

TEST_CASE("serving: a trace shows caches on their way between replicas, and at which rate") {
    const Scenario s = test::scenario(R"(orrery: 1
kind: serving
cluster: {nodes: 2, node: dgx-h100}
model: llama-2-70b
engine: {transfer: layers, prefill: {replicas: 1, tensor: 8}, decode: {replicas: 1, tensor: 8}}
requests: {rate: 2, count: 20, prompt: {mean: 1024}, output: {mean: 16}}
)");
    RunOptions options;
    options.timeline = true;
    const RunOutput out = run_scenario(s, test::model_cache(), options);
    std::size_t transfers = 0;
    for (const Lifeline& part : out.timeline.lifelines) {
        transfers += part.name == "KV transfers" ? 1 : 0;
        CHECK((part.name != "KV transfers" || (part.process == 0 && part.phase == "to replica 1")));
    }
    CHECK(transfers == 2 * 20);             // layer by layer while the prompt is computed, and the last layer
    std::map<std::string, double> carried;  // Gb
    std::map<std::string, std::pair<double, double>> before;
    for (const CounterPoint& point : out.timeline.counters) {
        if (point.name.rfind("KV ", 0) == 0) {
            CHECK(point.process == (point.name == "KV sent, Gb/s" ? 0 : 1));
            auto& [at, rate] = before[point.name];
            carried[point.name] += rate * (point.at_us - at) * 1e-6;
            before[point.name] = {point.at_us, point.value};
        }
    }
    // 80 layers of 8 heads of 128, keys and values of two bytes, 1,024 tokens.
    const double bytes = 20.0 * 1024 * 80 * 2 * 8 * 128 * 2;
    CHECK(carried["KV sent, Gb/s"] == doctest::Approx(bytes * 8e-9).epsilon(1e-3));
    CHECK(carried["KV received, Gb/s"] == doctest::Approx(bytes * 8e-9).epsilon(1e-3));
}

TEST_CASE("serving: energy lies between idle and full power, and is that of the tokens") {
    const char* text = R"(orrery: 1
kind: serving
cluster: {nodes: 1, node: dgx-h100}
model: llama-3-8b
engine: {clock: 100 %}
requests: {rate: 20, count: 400}
)";
    Scenario s = test::scenario(text);
    const auto value = [](const Summary& summary, const char* name) { return summary.find(name)->value; };
    const Summary busy = run_scenario(s, test::model_cache(), {}).summary;
    const DeviceSpec& gpu = s.cluster.node.gpu;
    const double seconds = value(busy, "requests") / value(busy, "requests_per_s");
    CHECK(value(busy, "energy_j") > gpu.idle_power.value * seconds);
    CHECK(value(busy, "energy_j") < gpu.tdp.value * seconds);
    CHECK(value(busy, "energy_per_token_j") * value(busy, "output_tokens_per_s") * seconds ==
          doctest::Approx(value(busy, "energy_j")));
    CHECK(value(busy, "energy_per_million_tokens_kwh") == doctest::Approx(value(busy, "energy_per_token_j") / 3.6));
    // The same requests over a longer time: the added time is idle.
    s.as<ServingKind>().requests.rate = 2;
    const Summary calm = run_scenario(s, test::model_cache(), {}).summary;
    CHECK(value(calm, "energy_per_token_j") > 1.5 * value(busy, "energy_per_token_j"));
    CHECK(!busy.find("energy_j")->low);
    // Another clock: between what a voltage gives that stays and one that falls with the clock.
    s.as<ServingKind>().requests.rate = 20;
    s.as<ServingKind>().engine.mixed.clock = 0.8;
    const Metric slow = *run_scenario(s, test::model_cache(), {}).summary.find("energy_j");
    REQUIRE(slow.low);
    CHECK(*slow.low < slow.value);
    CHECK(slow.value < *slow.high);
    CHECK(slow.value < value(busy, "energy_j"));
    CHECK(*slow.high < 1.1 * value(busy, "energy_j"));
}
