#include "tests/support/fabrics.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/calibration/collections.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "workloads/serving/cluster/service.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

/// A device on which every operation takes no time, and that remembers what it was asked.
class Recorder final : public CostModel {
  public:
    Cost cost(const Operation& operation) const override {
        asked.push_back(operation);
        return {};
    }
    template <class Type, class Test>
    [[nodiscard]] std::size_t count(const Test& test) const {
        std::size_t found = 0;
        for (const Operation& operation : asked) {
            const auto* one = std::get_if<Type>(&operation);
            found += one != nullptr && test(*one) ? 1 : 0;
        }
        return found;
    }
    mutable std::vector<Operation> asked;
};

/// Collectives of a second each.
class CountedCollectives final : public CollectiveModel {
  public:
    [[nodiscard]] CollectivePrice price(CollectiveOp, const GroupLayout&, Bytes, BytesPerSecond) const override {
        CollectivePrice price;
        price.latency = Seconds(1);
        return price;
    }
};

struct Priced {
    double collectives = 0;
    Recorder device;
};

Priced priced(const std::string& more, std::uint32_t tensor) {
    const ModelSpec model = test::scenario(fmt::format(R"(orrery: 1
kind: serving
cluster: {{nodes: 1, node: dgx-h100}}
model: {{layers: 1, hidden: 256, heads: 4, kv_heads: 4, ffn: 512, vocabulary: 1000, rotary: true{}}}
)",
                                                       more))
                                .as<ServingKind>()
                                .model;
    const Fabric fabric(test::rail_nodes(1));
    const CountedCollectives collectives;
    Priced out;
    std::vector<GpuId> gpus;
    for (std::uint32_t i = 0; i < tensor; ++i) {
        gpus.emplace_back(i);
    }
    ModelStep step(
        ServingModel{.model = model, .device = out.device, .fabric = fabric, .collectives = collectives, .gpus = gpus});
    out.collectives = step.dense_seconds(8);
    return out;
}

std::size_t norms(const Priced& priced) {
    return priced.device.count<Streaming>([](const Streaming& kernel) { return kernel.kind == StreamingKind::norm; });
}

}  // namespace

TEST_CASE(
    "serving: queries and keys normed by heads take a kernel each, over all heads also a collectives of the ranks") {
    const Priced none = priced("", 2);
    const Priced heads = priced(", query_key_norm: heads", 2);
    const Priced whole = priced(", query_key_norm: whole", 2);
    CHECK(norms(heads) == norms(none) + 1);
    CHECK(norms(whole) == norms(none) + 2);
    CHECK(heads.collectives == doctest::Approx(none.collectives));
    CHECK(whole.collectives == doctest::Approx(none.collectives + 1));
    // One rank has all heads.
    CHECK(norms(priced(", query_key_norm: whole", 1)) == norms(priced(", query_key_norm: heads", 1)));
    CHECK(priced(", query_key_norm: whole", 1).collectives == doctest::Approx(0));
}

TEST_CASE("serving: a router in 32 bits multiplies in 32 bits, after its tokens are widened") {
    const auto gates = [](const Priced& priced, Precision precision) {
        return priced.device.count<Gemm>([&](const Gemm& gemm) { return gemm.n == 16 && gemm.precision == precision; });
    };
    const Priced narrow = priced(", experts: {count: 16, topk: 2, ffn: 64}", 1);
    const Priced wide = priced(", experts: {count: 16, topk: 2, ffn: 64, gate: fp32, skewed: true}", 1);
    CHECK(gates(narrow, Precision::bf16) == 1);
    CHECK(gates(wide, Precision::bf16) == 0);
    CHECK(gates(wide, Precision::fp32) == 1);
    const auto all = [](const Streaming&) { return true; };
    CHECK(wide.device.count<Streaming>(all) == narrow.device.count<Streaming>(all) + 1);
    CHECK(wide.device.count<FusedExperts>([](const FusedExperts& one) { return one.skewed; }) == 1);
    CHECK(narrow.device.count<FusedExperts>([](const FusedExperts& one) { return one.skewed; }) == 0);
}

TEST_CASE("serving: layers of routed experts take the host longer to launch") {
    HostSpec host;
    host.layer_launch.value = 1e-3;
    host.experts_launch.value = 2e-3;
    CHECK(iteration_seconds(host, 5e-3, {10, 0, 1, 1, true}) == doctest::Approx(10e-3));
    CHECK(iteration_seconds(host, 5e-3, {10, 4, 1, 1, true}) == doctest::Approx(18e-3));
    host.graph_sequences = 8;
    CHECK(iteration_seconds(host, 5e-3, {10, 4, 1, 1, false}) == doctest::Approx(5e-3));
    // Graphs between attentions cover the experts of iterations up to 100 tokens.
    host.graph_tokens = 100;
    CHECK(iteration_seconds(host, 5e-3, {10, 4, 1, 100, true}) == doctest::Approx(10e-3));
    CHECK(iteration_seconds(host, 5e-3, {10, 4, 1, 101, true}) == doctest::Approx(18e-3));
}

TEST_CASE(
    "serving: of tokens that a server gathers before it sends them, the client sees the first when all are there") {
    const char* const text = R"(orrery: 1
kind: serving
cluster: {{nodes: 1, node: dgx-h100}}
model: llama-3-8b
engine: {{stream_interval: {}}}
requests: {{arrivals: fixed, rate: 0.1, count: 1, prompt: {{kind: fixed, mean: 100}}, output: {{kind: fixed, mean: {}}}}}
)";
    const auto time = [&](int interval, int output, const char* metric) {
        return run_scenario(test::scenario(fmt::format(fmt::runtime(text), interval, output)), test::model_cache(), {})
            .summary.find(metric)
            ->value;
    };
    const double at_once = time(1, 40, "ttft_s.mean");
    CHECK(time(10, 40, "ttft_s.mean") == doctest::Approx(time(1, 10, "e2e_s.mean")));
    CHECK(time(10, 40, "ttft_s.mean") > 2 * at_once);
    CHECK(time(10, 40, "e2e_s.mean") == doctest::Approx(time(1, 40, "e2e_s.mean")));
    // A shorter answer comes whole.
    CHECK(time(10, 5, "ttft_s.mean") == doctest::Approx(time(1, 5, "e2e_s.mean")));
}

namespace {

/// Kernels of an iteration of `items` sequences that compute `tokens` each, on two ranks that attend apart.
double apart(Dispatch dispatch, double affinity, const CollectiveModel& collectives, std::uint32_t items,
             std::uint32_t tokens) {
    const ModelSpec model = test::scenario(R"(orrery: 1
kind: serving
cluster: {nodes: 1, node: dgx-h100}
model: {layers: 3, hidden: 256, heads: 4, kv_heads: 4, ffn: 512, vocabulary: 1000, rotary: true, experts: {count: 4, topk: 1, ffn: 64}}
)")
                                .as<ServingKind>()
                                .model;
    const Fabric fabric(test::rail_nodes(1));
    const Recorder device;
    ModelStep step(ServingModel{.model = model,
                                .device = device,
                                .fabric = fabric,
                                .collectives = collectives,
                                .gpus = {GpuId(0), GpuId(1)},
                                .groups = 2,
                                .expert = 2,
                                .dispatch = dispatch,
                                .affinity = affinity});
    Batch batch;
    for (std::uint32_t i = 0; i < items; ++i) {
        batch.items.push_back({i, tokens, 64});
    }
    return step.kernel_seconds(batch);
}

}  // namespace

TEST_CASE(
    "serving: in a context-coherent group a decoding token goes to its expert and stays: one all-to-all a layer") {
    const CountedCollectives counted;
    CHECK(apart(Dispatch::all_to_all, 0, counted, 8, 1) == doctest::Approx(6));
    CHECK(apart(Dispatch::coherent, 0, counted, 8, 1) ==
          doctest::Approx(3 + 1));  // keys and values, gathered at the end
    // Tokens of a prompt attend to each other: there and back.
    CHECK(apart(Dispatch::all_to_all, 0, counted, 2, 16) == doctest::Approx(6));
    CHECK(apart(Dispatch::coherent, 0, counted, 2, 16) == doctest::Approx(6 + 1));

    const IdealCollectives ideal;
    const auto seconds = [&](double affinity) { return apart(Dispatch::coherent, affinity, ideal, 1 << 14, 1); };
    // Nobody moves; by chance half do, on two ranks. What moves is in proportion to the share that does not stay.
    const double still = seconds(1);
    CHECK(seconds(0.5) == doctest::Approx(seconds(0)));
    CHECK(seconds(0.5) > still);
    CHECK(seconds(0.75) - still == doctest::Approx((seconds(0.5) - still) / 2));
    // Of 2 x 256 B a token, half the tokens of a rank go to the other one in each of three layers; 2 x 2 x 256 B of keys and values
    // a token and layer come to it.
    CHECK((seconds(0.5) - still) / still == doctest::Approx(512.0 / 2 / 1024).epsilon(1e-3));
}

TEST_CASE("serving: a context-coherent group holds every token on every rank, and takes what it can do with that") {
    const auto scenario = [](const std::string& engine, int topk) {
        return fmt::format(R"(orrery: 1
kind: serving
cluster: {{nodes: 1, node: dgx-h100}}
model: {{layers: 4, hidden: 1024, heads: 16, kv_heads: 16, ffn: 4096, vocabulary: 1000, experts: {{count: 16, topk: {}, ffn: 512}}}}
engine: {{{}}}
)",
                           topk, engine);
    };
    const auto blocks = [&](const std::string& dispatch) {
        const Scenario s = test::scenario(scenario("groups: 8, expert: 8, dispatch: " + dispatch, 1));
        return limits_of(s.as<ServingKind>().engine, s.as<ServingKind>().engine.mixed, s.as<ServingKind>().model,
                         s.cluster.node.gpu)
            .blocks;
    };
    CHECK(blocks("all-to-all") == 8 * blocks("coherent"));
    const auto refused = [&](const std::string& engine, int topk, const char* why) {
        return test::refusal(scenario(engine, topk)).find(why) != std::string::npos;
    };
    CHECK(test::refusal(scenario("groups: 8, expert: 8, dispatch: coherent, affinity: 40 %", 1)).empty());
    CHECK(refused("groups: 8, expert: 8, dispatch: all-to-all, affinity: 40 %", 1, "dispatch: coherent"));
    CHECK(refused("groups: 8, expert: 8, dispatch: coherent", 2, "sends it to several"));
    CHECK(refused("tensor: 8, expert: 8, dispatch: coherent", 1, "ranks attend alone"));
    CHECK(refused("groups: 8, expert: 4, dispatch: coherent", 1, "ranks attend alone"));
    CHECK(refused("groups: 8, expert: 8, dispatch: coherent, nano_batches: 2", 1, "repeats the cache"));
}

TEST_CASE("experts wanted by a power law: fewer are active, and the calibrated price follows rows measured so") {
    FusedExperts even;
    even.experts = 256;
    even.topk = 8;
    even.hidden = 3072;
    even.ffn = 1536;
    FusedExperts skewed = even;
    skewed.skewed = true;
    for (const double tokens : {32.0, 64.0, 256.0, 4096.0}) {
        even.tokens = skewed.tokens = tokens;
        CHECK(skewed.active_experts() <= even.active_experts());
        CHECK(skewed.active_experts() >= 8);
    }
    // By hand: 64 tokens, 8 of 256; loads from 1 to 51.2, mean 10.2, so that those below 2.55 round to none.
    even.tokens = skewed.tokens = 64;
    CHECK(skewed.active_experts() == doctest::Approx(256 * 0.6856).epsilon(0.02));
    const CostModel& device =
        test::model_cache().device(read_device("h200-sxm", test::model_cache().data()), ComputeKind::calibrated);
    const auto ratio = [&](double tokens) {
        even.tokens = skewed.tokens = tokens;
        return device.seconds(skewed) / device.seconds(even);
    };
    CHECK(ratio(1) == doctest::Approx(1).epsilon(0.05));
    CHECK(ratio(64) < 0.98);    // fewer weights are read
    CHECK(ratio(4096) > 1.02);  // the busiest experts take longest
    // Fewer choices than experts: no jump where there are as many.
    CHECK(ratio(31.99) == doctest::Approx(ratio(32)).epsilon(0.02));
}
