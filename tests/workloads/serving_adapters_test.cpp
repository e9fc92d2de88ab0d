// LoRA adapters: their slots, their way from host memory, their weight and their price.

#include "models/roofline.hpp"
#include "sim/base/random.hpp"
#include "tests/support/fabrics.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tests/workloads/serving_support.hpp"
#include "tools/driver/kinds/serving.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;
using namespace orrery::test;

namespace {

// A replica of eight places with `slots` slots; an adapter takes two seconds to come.
ServiceSpec with_slots(std::uint32_t slots) {
    ServiceSpec spec = spec_of("chunked-prefill", 100, 8, 1000);
    spec.pools[0].limits.adapter_slots = slots;
    spec.pools[0].limits.adapter_bytes = 2;
    spec.pools[0].host_bandwidth = 1;
    return spec;
}

Request naming(std::uint32_t adapter, double arrival_s, std::uint32_t output) {
    Request one = request(arrival_s, 4, output);
    one.adapter = adapter;
    return one;
}

double e2e(const ServiceResult& result, std::size_t index) {
    return static_cast<double>(result.requests[index].e2e);
}

// A second for each FLOP of a product.
class Flops final : public CostModel {
  public:
    Cost cost(const Operation& operation) const override {
        Cost cost;
        cost.seconds = Seconds(std::holds_alternative<Gemm>(operation) ? flops_of(operation) : 0);
        return cost;
    }
};

}  // namespace

TEST_CASE("serving: the adapter that nobody has used for longest gives its slot up, and one in use never does") {
    AdapterSlots slots(2);
    using Answer = AdapterSlots::Answer;
    CHECK(slots.pin(1) == Answer::taken);
    CHECK(slots.pin(1) == Answer::coming);
    slots.loaded(1);
    CHECK(slots.pin(2) == Answer::taken);
    slots.loaded(2);
    CHECK(!slots.has_slot());
    CHECK(slots.pin(3) == Answer::full);
    slots.unpin(2);
    slots.unpin(1);  // its first user keeps it
    CHECK(slots.pin(3) == Answer::taken);
    slots.loaded(3);
    slots.unpin(3);
    slots.unpin(1);
    CHECK(slots.pin(2) == Answer::taken);  // in place of 3, which was released before 1
    CHECK(slots.pin(1) == Answer::here);
}

TEST_CASE("serving: a request waits for a slot and for its adapter, and shares both with others that name it") {
    ListSource source({naming(1, 0, 2), naming(2, 0.5, 1), naming(1, 1, 2), naming(0, 1, 1), naming(2, 7.5, 1)});
    AffineStep cost(1, 0, 0);
    const ServiceResult result = serve_with(with_slots(1), source, cost);
    REQUIRE(result.requests.size() == 5);
    CHECK(e2e(result, 0) == 4);        // two seconds of loading, two iterations
    CHECK(e2e(result, 1) == 7 - 0.5);  // its slot is free at 4, its adapter there at 6
    CHECK(e2e(result, 2) == 1);        // no adapter: at once
    CHECK(e2e(result, 3) == 4 - 1);    // with the first
    CHECK(e2e(result, 4) == 1);        // still there
    CHECK(result.adapter_requests == 4);
    CHECK(result.adapter_hits == 1);
    CHECK(result.adapter_loads == 2);
    CHECK(result.adapter_wait_s == doctest::Approx(2 + (6 - 0.5) + (2 - 1)));
    // With two slots both come at once over one link, in twice the time, and are in one batch; who wants one token ends first.
    ListSource again({naming(1, 0, 2), naming(2, 0, 1)});
    const ServiceResult both = serve_with(with_slots(2), again, cost);
    CHECK(e2e(both, 0) == 5);
    CHECK(e2e(both, 1) == 6);
}

TEST_CASE("serving: adapters weigh both factors of each product, and their products cost as many FLOPs") {
    const Scenario s = test::scenario(R"(orrery: 1
kind: serving
cluster: {nodes: 1, node: dgx-h100}
model: llama-2-7b
engine: {lora: {rank: 16, slots: 4, targets: all}}
requests: {adapters: 3, count: 10}
)");
    const auto& serving = s.as<ServingKind>();
    const double attention = 4 * (4096 + 4096);
    const double ffn = 3 * (4096 + 11008);
    CHECK(adapter_bytes_per_rank(serving.model, serving.engine.adapters, 1, 32) ==
          doctest::Approx(2 * 16 * 32 * (attention + ffn)));
    AdapterSpec narrow = serving.engine.adapters;
    narrow.targets = AdapterTargets::attention;
    CHECK(adapter_bytes_per_rank(serving.model, narrow, 1, 32) == doctest::Approx(2 * 16 * 32 * attention));
    // Two ranks halve the factor on the split side of each product and repeat the other.
    CHECK(adapter_bytes_per_rank(serving.model, narrow, 2, 32) == doctest::Approx(2 * 16 * 32 * 0.75 * attention));
    // Slots are taken from the cache.
    EngineSpec without = serving.engine;
    without.adapters.rank = 0;
    const auto blocks = [&](const EngineSpec& engine) {
        return static_cast<double>(limits_of(engine, engine.mixed, serving.model, s.cluster.node.gpu).blocks);
    };
    CHECK((blocks(without) - blocks(serving.engine)) * 16 * cache_bytes_per_token(serving.model, Precision::bf16) ==
          doctest::Approx(4 * 2 * 16 * 32 * (attention + ffn)).epsilon(0.01));

    const Fabric fabric(test::rail_nodes(1));
    const Flops device;
    const IdealCollectives collectives;
    ModelStep step(ServingModel{.model = serving.model,
                                .device = device,
                                .fabric = fabric,
                                .collectives = collectives,
                                .gpus = {GpuId(0)},
                                .adapters = serving.engine.adapters});
    // Factors of queries, keys and values are stacked: three down, three up; likewise gate and up.
    const double per_token = 2.0 * 16 * 32 * (attention + ffn);
    CHECK(step.adapter_seconds(64, 1) == doctest::Approx(64 * per_token));
    CHECK(step.adapter_seconds(64, 8) == doctest::Approx(64 * per_token));
    const Summary summary = run_scenario(s, test::model_cache(), {}).summary;
    CHECK(summary.find("adapter_misses")->value >= 3);
    CHECK(summary.find("adapter_loads")->value == 3);
    CHECK(summary.find("adapter_hit_fraction")->value ==
          doctest::Approx(1 - summary.find("adapter_misses")->value / 10));
}

TEST_CASE("serving: what does not go with adapters is refused where it stands") {
    const auto text = [](const char* engine, const char* requests) {
        return fmt::format(
            "orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: {}\nengine: {}\nrequests: {}\n",
            std::string(engine).find("expert") != std::string::npos ? "deepseek-v3" : "llama-2-7b", engine, requests);
    };
    CHECK(refusal(text("{tensor: 1}", "{adapters: 3}")).find("test.yaml:5:9") != std::string::npos);
    CHECK(refusal(text("{lora: {rank: 8}, prefill: {tensor: 1}, decode: {tensor: 1}}", "{adapters: 3}")) != "");
    CHECK(refusal(text("{tensor: 8, expert: 8, lora: {rank: 8}}", "{count: 1}")).find("latent") != std::string::npos);
    CHECK(refusal(text("{lora: {slots: 8}}", "{count: 1}")).find("'rank' is missing") != std::string::npos);
    CHECK(refusal(text("{lora: {rank: 8}}", "{adapters: 3, adapter_skew: 1}")).empty());
}

TEST_CASE("serving: every request is accounted for while adapters come, replicas fail and clients give up") {
    RandomStream random(23, "adapters");
    for (int round = 0; round < 100 * test::scale(); ++round) {
        ServiceSpec spec = with_slots(1 + static_cast<std::uint32_t>(random.below(3)));
        PoolSpec& pool = spec.pools[0];
        pool.scheduler.policy.choose(any_of(scheduler_table(), random));
        pool.limits.blocks = 8 + random.below(40);
        pool.limits.max_sequences = 1 + static_cast<std::uint32_t>(random.below(6));
        pool.limits.prefix_cache = random.below(2) == 0;
        pool.limits.host_cache = pool.limits.prefix_cache ? random.below(50) : 0;
        pool.replicas = 1 + static_cast<std::uint32_t>(random.below(3));
        spec.router.choose("least-requests");
        spec.timeout = random.below(2) == 0 ? 0 : 6;
        if (random.below(2) == 0) {
            spec.faults.timed = {loss(0, 3, 2), loss(0, 9.5, 1)};
        }
        std::vector<Request> requests;
        double at = 0;
        for (int i = 0; i < 40; ++i) {
            at += random.exponential(0.7);
            Request one = request(at, 1 + static_cast<std::uint32_t>(random.below(20)),
                                  1 + static_cast<std::uint32_t>(random.below(8)));
            one.adapter = static_cast<std::uint32_t>(random.below(6));
            one.content.conversation = 1 + random.below(3);
            requests.push_back(one);
        }
        ListSource source(requests);
        AffineStep cost(0.3, 0.01, 0.001);
        const ServiceResult result = serve_with(spec, source, cost);
        CHECK(result.requests.size() + result.refused + result.timed_out + result.failed == 40);
        CHECK(result.adapter_hits <= result.adapter_requests);
    }
}

TEST_CASE("serving: a whole model comes over what the host's path carries, and waits where it has no slot") {
    // Two GPUs behind one link of eight lanes of generation 3, whose rate both share.
    const auto summary = [](const char* shared, const char* requests) {
        return run_scenario(
                   scenario(fmt::format(
                       "orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: {{preset: dgx-a100-80g, gpus: 2, "
                       "pcie_bandwidth: 0 B/s, host: {{pcie_generation: 3, pcie_lanes: 8, {}tiers: [{{name: dram, "
                       "capacity: 64 "
                       "GB, read: 1 TB/s}}]}}}}}}\nmodel: {{preset: llama-2-7b, layers: 2}}\nengine: {{tensor: 2, "
                       "scheduler: "
                       "{{kind: orca, max_sequences: 1}}, models: {{slots: 1}}}}\nrequests: {{arrivals: closed, "
                       "clients: 1, "
                       "count: 40, prompt: {{kind: fixed, mean: 16}}, output: {{kind: fixed, mean: 2}}, {}}}\n",
                       shared, requests)),
                   model_cache(), {})
            .summary;
    };
    const auto wait = [](const Summary& of) {
        return of.find("adapter_wait_s.mean")->value / (1 - of.find("adapter_hit_fraction")->value);
    };
    const Scenario s = scenario(
        "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-a100-80g}\nmodel: {preset: llama-2-7b, layers: 2}\n"
        "engine: {tensor: 2}\nrequests: {count: 1}\n");
    const double bytes = 2 * weight_bytes_per_rank(s.as<ServingKind>().model,
                                                   s.as<ServingKind>().engine.quantisation(s.cluster.node.gpu), 2);
    const double link = PcieLink{3, 8}.rate();
    CHECK(wait(summary("devices_per_switch: 2, ", "adapters: 6")) == doctest::Approx(bytes / link).epsilon(1e-6));
    CHECK(wait(summary("", "adapters: 6")) == doctest::Approx(bytes / link / 2).epsilon(1e-6));
    // One model stays where it is.
    CHECK(summary("", "adapters: 1").find("adapter_misses")->value == 1);
    const auto refuses = [](const char* engine) {
        return refusal(
            fmt::format("orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: "
                        "llama-2-7b\nengine: {}\nrequests: {{adapters: 3}}\n",
                        engine));
    };
    CHECK(refuses("{models: {slots: 2}}").find("max_sequences: 1") != std::string::npos);
    CHECK(refuses("{models: {slots: 2}, lora: {rank: 8}, scheduler: {max_sequences: 1}}").find("give one") !=
          std::string::npos);
    CHECK(refuses("{models: {slots: 2}, scheduler: {max_sequences: 1}}").empty());
}
