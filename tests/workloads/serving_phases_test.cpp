// Prompts and decoding on the same devices, and replicas that do the work of the other phase when queues are long.

#include "sim/base/random.hpp"
#include "sim/device/device.hpp"
#include "tests/support/fabrics.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tests/workloads/serving_support.hpp"
#include "tools/calibration/collections.hpp"
#include "tools/driver/kinds/serving.hpp"

#include <doctest/doctest.h>

using namespace orrery;
using namespace orrery::test;

namespace {

// An iteration of a second that moves `share` of what the memory could.
class MemoryStep final : public StepCost {
  public:
    explicit MemoryStep(double bytes) : bytes_(bytes) {}
    StepWork work(const Batch&) override { return {1, 1, 0, bytes_}; }

  private:
    double bytes_;
};

struct TwoPhases {
    TwoPhases() : device(read_device("h200-sxm", test::data())), fabric(test::rail_nodes(1)) {
        spec = spec_of("sarathi", 100, 8, 1000);
        PoolSpec& prefill = spec.pools[0];
        prefill.role = Role::prefill;
        prefill.device = &device;
        spec.pools.push_back(prefill);
        spec.pools[1].role = Role::decode;
        spec.pools[1].first_gpu = 1;
        spec.pools[1].scheduler.policy.choose("chunked-prefill");
        spec.fabric = &fabric;
    }
    void on_same_devices(double prefill_units, double decode_units) {
        spec.same_devices = true;
        spec.pools[0].limits.ahead = 1;
        spec.pools[1].first_gpu = 0;
        spec.pools[0].units = prefill_units;
        spec.pools[1].units = decode_units;
    }
    ServiceResult serve(std::vector<Request> requests, StepCost& cost) const {
        ListSource source(std::move(requests));
        return serve_with(spec, source, cost);
    }
    DeviceSpec device;
    Fabric fabric;
    ServiceSpec spec;
};

double ttft(const ServiceResult& result, std::size_t index) {
    return static_cast<double>(result.requests[index].ttft);
}
double e2e(const ServiceResult& result, std::size_t index) {
    return static_cast<double>(result.requests[index].e2e);
}

}  // namespace

TEST_CASE("serving: on the same devices a cache stays where it is") {
    TwoPhases two;
    AffineStep cost(1, 0, 0);
    two.on_same_devices(0.5, 0.5);
    // One prompt, three tokens more, and nothing is sent.
    const ServiceResult whole = two.serve({request(0, 10, 4)}, cost);
    CHECK(ttft(whole, 0) == doctest::Approx(1));
    CHECK(e2e(whole, 0) == doctest::Approx(4));
    CHECK(whole.kv_transfers == 1);
}

TEST_CASE("serving: on a share of the units a kernel takes as much longer as it would keep more of them busy") {
    const DeviceSpec h200 = read_device("h200-sxm", test::data());
    const CostModel& model = test::model_cache().device(h200, ComputeKind::calibrated);
    const Fabric fabric(test::rail_nodes(1));
    const IdealCollectives collectives;
    const ModelSpec llama = test::scenario(
                                "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\n"
                                "model: llama-3-8b\n")
                                .as<ServingKind>()
                                .model;
    const auto step = [&](double units) {
        ServingModel parts{.model = llama,
                           .device = model,
                           .fabric = fabric,
                           .collectives = collectives,
                           .gpus = {GpuId(0)},
                           .partitioned = &h200,
                           .units = units};
        return ModelStep(parts);
    };
    // Products of a long prompt keep nearly all units busy, decodes of a few tokens none but those that load.
    CHECK(step(0.5).dense_seconds(8192) > 1.3 * step(1).dense_seconds(8192));
    CHECK(step(0.5).dense_seconds(8192) < 2 * step(1).dense_seconds(8192));
    CHECK(step(0.5).dense_seconds(4) == doctest::Approx(step(1).dense_seconds(4)));
    CHECK(step(Device::kLeastUnits).dense_seconds(4) == doctest::Approx(step(1).dense_seconds(4)));
    CHECK(step(Device::kLeastUnits / 2).dense_seconds(4) == doctest::Approx(2 * step(1).dense_seconds(4)));
}

TEST_CASE("serving: phases on the same devices share the rate of the memory while both run") {
    TwoPhases two;
    two.on_same_devices(0.5, 0.5);
    MemoryStep cost(0.75 * two.device.memory_bandwidth.value * two.device.memory_efficiency.value);
    // The second prompt runs beside the first one's tokens: 1.5 s for each of both, instead of 1.
    const ServiceResult result = two.serve({request(0, 10, 2), request(1, 10, 1)}, cost);
    CHECK(ttft(result, 0) == doctest::Approx(1));
    CHECK(e2e(result, 0) == doctest::Approx(2.5));
    CHECK(e2e(result, 1) == doctest::Approx(1.5));
}

TEST_CASE("serving: under whole prompts first, what arrives with its cache joins the tokens under way") {
    TwoPhases two;
    two.spec.pools[1].scheduler.policy.choose("vllm-v0");
    MemoryStep cost(0);
    // The second prompt's cache arrives while the first one's tokens 2 to 5 are computed: none of them waits for it.
    const ServiceResult result = two.serve({request(0, 10, 5), request(1, 10, 3)}, cost);
    CHECK(e2e(result, 0) == doctest::Approx(5).epsilon(0.01));
    CHECK(e2e(result, 1) < 4.01);  // a token later where it just missed an iteration
}

TEST_CASE("serving: phases on the same devices share the cache, and every request is accounted for") {
    RandomStream random(5, "same devices");
    for (int round = 0; round < 100 * test::scale(); ++round) {
        TwoPhases two;
        two.on_same_devices(0.6, 0.4);
        const char* const prefill[] = {"sarathi", "vllm-v0", "orca", "in-flight", "static"};
        const char* const decode[] = {"chunked-prefill", "vllm-v0", "sarathi", "splitfuse", "fastserve", "fair"};
        two.spec.pools[0].scheduler.policy.choose(prefill[random.below(5)]);
        two.spec.pools[1].scheduler.policy.choose(decode[random.below(6)]);
        two.spec.timeout = random.below(3) == 0 ? 5 : 0;
        const auto drafted = static_cast<std::uint32_t>(random.below(3));
        two.spec.pools[0].limits.ahead = 1 + drafted;
        const std::uint64_t blocks = 8 + random.below(20);
        const auto replicas = 1 + static_cast<std::uint32_t>(random.below(2));
        for (PoolSpec& pool : two.spec.pools) {
            pool.replicas = replicas;
            pool.limits.blocks = blocks;
            pool.limits.host_blocks = 20;
            pool.limits.draft_tokens = drafted;
            two.spec.speculation.tokens = drafted;
            pool.limits.token_budget = 4 + static_cast<std::uint32_t>(random.below(20));
        }
        two.spec.pools[1].limits.max_sequences = 1 + static_cast<std::uint32_t>(random.below(8));
        std::vector<Request> requests;
        double at = 0;
        for (int i = 0; i < 40; ++i) {
            at += random.exponential(0.5);
            requests.push_back(request(at, 1 + static_cast<std::uint32_t>(random.below(25)),
                                       1 + static_cast<std::uint32_t>(random.below(12))));
        }
        MemoryStep cost(0.6 * two.device.memory_bandwidth.value);
        const ServiceResult result = two.serve(requests, cost);
        CHECK(result.requests.size() + result.refused + result.timed_out == 40);
        CHECK(result.most_blocks <= blocks);
    }
}

TEST_CASE("serving: a decode replica computes prompts whole while those of the prefill replica have to wait long") {
    TwoPhases two;
    AffineStep cost(1, 0, 0);
    two.spec.cache_token_bytes = 0;
    const std::vector<Request> requests = {request(0, 90, 2), request(0.5, 90, 2), request(0.6, 90, 2),
                                           request(0.7, 90, 2)};
    two.spec.pools[0].limits.token_budget = 90;
    CHECK(two.serve(requests, cost).mixed_prompts == 0);
    // One waits at 0.5. With it the prompts of 0.6 would be 180 tokens: above 179 it goes to the other replica, whose own
    // queue is empty then; the last finds nobody waiting there either.
    two.spec.mixing.prompt_tokens = 179;
    const ServiceResult result = two.serve(requests, cost);
    CHECK(result.mixed_prompts == 2);
    CHECK(result.kv_transfers == 2);
    two.spec.mixing.prompt_tokens = 180;
    CHECK(two.serve(requests, cost).mixed_prompts == 1);
}

TEST_CASE("serving: a sequence handed over to a replica that computes a long prompt decodes in its next iteration") {
    TwoPhases two;
    AffineStep cost(1, 0, 0);
    two.spec.cache_token_bytes = 0;
    two.spec.pools[0].limits.token_budget = 90;
    two.spec.pools[1].limits.token_budget = 10;
    // The third prompt finds a long queue and takes all of the other replica's iterations, from 0.6 to 9.6 s.
    two.spec.mixing.prompt_tokens = 179;
    const std::vector<Request> requests = {request(0, 90, 2), request(0.5, 90, 2), request(0.6, 90, 2)};
    two.spec.pools[1].scheduler.policy.choose("sarathi");
    const ServiceResult result = two.serve(requests, cost);
    CHECK(result.mixed_prompts == 1);
    CHECK(e2e(result, 0) == doctest::Approx(2.6).epsilon(1e-4));  // first prompt done at 1 s, next iteration at 1.6 s
    CHECK(e2e(result, 1) == doctest::Approx(3.1).epsilon(1e-4));
    // vLLM 1 goes by the order of admission: the prompt's pieces come first.
    two.spec.pools[1].scheduler.policy.choose("chunked-prefill");
    CHECK(e2e(two.serve(requests, cost), 0) > 9);
}

TEST_CASE(
    "serving: the first token comes from the prefill replica at once, or from the decode replica with the second") {
    TwoPhases two;
    AffineStep cost(1, 0, 0);
    two.spec.cache_token_bytes = 0;
    two.spec.pools[1].limits.max_sequences = 1;
    // Both prompts are done at 1 s; the second request waits there until the first has all its three tokens, at 3 s.
    const std::vector<Request> requests = {request(0, 10, 3), request(0, 10, 3)};
    const ServiceResult at_once = two.serve(requests, cost);
    CHECK(ttft(at_once, 0) == doctest::Approx(1));
    CHECK(ttft(at_once, 1) == doctest::Approx(1));
    CHECK(at_once.requests[1].tpot == doctest::Approx(2).epsilon(1e-4));
    two.spec.first_token = FirstToken::decode;
    const ServiceResult later = two.serve(requests, cost);
    CHECK(ttft(later, 0) == doctest::Approx(2).epsilon(1e-4));
    CHECK(ttft(later, 1) == doctest::Approx(4).epsilon(1e-4));
    CHECK(later.requests[1].tpot == doctest::Approx(0.5).epsilon(1e-4));  // two tokens in a second behind the first
    CHECK(later.tbt.count() == at_once.tbt.count() - 2);
    for (const std::size_t i : {0, 1}) {
        CHECK(e2e(later, i) == e2e(at_once, i));
    }
    two.spec.handover = 0.25;
    CHECK(ttft(two.serve(requests, cost), 0) == doctest::Approx(2.25).epsilon(1e-4));
    // An output of one token ends where its prompt was computed.
    CHECK(ttft(two.serve({request(0, 10, 1)}, cost), 0) == doctest::Approx(1));
}

TEST_CASE("serving: a prefill replica gives outputs itself while the decode replicas' caches are full") {
    TwoPhases two;
    AffineStep cost(1, 0, 0);
    two.spec.pools[1].limits.blocks = 10;  // of four tokens
    const std::vector<Request> requests = {request(0, 30, 6), request(0, 4, 3)};
    two.spec.pools[0].limits.token_budget = 30;
    // At the end of the second prompt the first one's cache holds eight of ten blocks.
    two.spec.mixing.cache = 0.7;
    const ServiceResult kept = two.serve(requests, cost);
    CHECK(kept.mixed_outputs == 1);
    CHECK(kept.kv_transfers == 1);
    CHECK(e2e(kept, 0) == doctest::Approx(4));  // the second one, done first
    two.spec.mixing.cache = 0.8;
    CHECK(two.serve(requests, cost).mixed_outputs == 0);
}

TEST_CASE("serving: phases on the same devices are refused where they cannot be, and run where they can") {
    const auto text = [](const char* engine) {
        return fmt::format(
            "orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: llama-3-8b\n"
            "engine: {}\nrequests: {{rate: 4, count: 40}}\n",
            engine);
    };
    CHECK(refusal(text("{same_devices: true}")).find("both are missing") != std::string::npos);
    CHECK(refusal(text("{same_devices: true, prefill: {scheduler: {kind: sarathi}}, decode: {tensor: 2}}"))
              .find("equal replicas") != std::string::npos);
    CHECK(refusal(text("{same_devices: true, prefill: {tensor: 1}, decode: {tensor: 1}}")).find("whole prompts") !=
          std::string::npos);
    CHECK(refusal(text("{prefill: {units: 50 %}, decode: {units: 50 %}}")).find("same_devices") != std::string::npos);
    CHECK(refusal(text("{mixing: {cache: 80 %}}")).find("'mixing'") != std::string::npos);
    const auto metric = [&](const char* engine, const char* name) {
        return run_scenario(test::scenario(text(engine)), test::model_cache(), {}).summary.find(name)->value;
    };
    const char* shared =
        "{same_devices: true, prefill: {units: 60 %, scheduler: {kind: sarathi}}, decode: {units: 40 %}}";
    const char* apart = "{prefill: {scheduler: {kind: sarathi}}, decode: {tensor: 1}}";
    CHECK(metric(shared, "requests") == 40);
    // One device's price and idle power instead of two.
    CHECK(metric(shared, "cost_per_million_tokens_usd") < 0.6 * metric(apart, "cost_per_million_tokens_usd"));
    CHECK(metric(shared, "energy_j") < metric(apart, "energy_j"));
    CHECK(metric(shared, "ttft_s.mean") > metric(apart, "ttft_s.mean"));
}
