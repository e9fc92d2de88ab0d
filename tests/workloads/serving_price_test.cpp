#include "sim/record/facts_table.hpp"
#include "tests/support/fabrics.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tests/workloads/serving_support.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "validation/serving/serving_points.hpp"
#include "workloads/serving/cluster/service.hpp"
#include "workloads/serving/cost/host_cost.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

using namespace orrery;

namespace {

Request request(double arrival_s, std::uint32_t prompt, std::uint32_t output) {
    Request out;
    out.arrival = SimTime::from_seconds(arrival_s);
    out.prompt = prompt;
    out.output = output;
    return out;
}

/// Requests from a list, of a closed loop when there are clients.
class ListSource final : public RequestSource {
  public:
    ListSource(std::vector<Request> requests, std::uint64_t clients)
        : requests_(std::move(requests)), clients_(clients) {}
    bool next(Request& one) override {
        if (at_ == requests_.size()) {
            return false;
        }
        one = requests_[at_++];
        return true;
    }
    std::uint64_t clients() const override { return clients_; }

  private:
    std::vector<Request> requests_;
    std::uint64_t clients_;
    std::size_t at_ = 0;
};

struct Run {
    std::vector<std::string> iterations;  ///< "0:4 1:1": four new tokens of request 0 and one of request 1
    ServiceResult result;
};

// Iterations of one second each.
Run run_list(SchedulerSpec scheduler, std::uint32_t budget, std::uint64_t blocks, std::vector<Request> requests,
             std::uint64_t clients = 0, double frontend = 0, double way = 0, double prompt_token = 0) {
    ListSource source(std::move(requests), clients);
    AffineStep cost(1, 0, 0);
    PoolSpec pool;
    pool.scheduler = scheduler;
    pool.limits.token_budget = budget;
    pool.limits.max_sequences = 8;
    pool.limits.blocks = blocks;
    pool.limits.block = 4;
    pool.limits.watermark = 0;
    pool.cost = {&cost};
    ServiceSpec spec;
    spec.pools = {pool};
    spec.software.frontend.value = frontend;
    spec.software.prompt_token.value = prompt_token;
    spec.software.request.value = way;
    Run out;
    ServiceHooks hooks;
    hooks.iteration = [&](std::uint32_t, const Batch& batch, const EngineState& state) {
        std::string line;
        for (const BatchItem& item : batch.items) {
            line += fmt::format("{}{}:{}", line.empty() ? "" : " ", state.sequence(item.sequence).id, item.tokens);
        }
        out.iterations.push_back(line);
    };
    out.result = serve(spec, source, hooks);
    return out;
}

SchedulerSpec scheduler_named(const std::string& kind) {
    return test::scheduler("{kind: " + kind + "}");
}

using Lines = std::vector<std::string>;

/// A device whose operations take a second for each of what is counted.
class Counter final : public CostModel {
  public:
    enum class What { expert_flops, latent_keys, attention_heads, product_columns, product_rows };
    explicit Counter(What what) : what_(what) {}
    Cost cost(const Operation& operation) const override {
        Cost cost;
        cost.seconds = Seconds(value(operation));
        return cost;
    }

  private:
    [[nodiscard]] double value(const Operation& operation) const {
        if (const auto* experts = std::get_if<FusedExperts>(&operation)) {
            return what_ == What::expert_flops ? experts->flops() : 0;
        }
        if (const auto* latent = std::get_if<LatentAttention>(&operation)) {
            return what_ == What::latent_keys ? latent->batch * latent->keys * latent->heads : 0;
        }
        if (const auto* attention = std::get_if<Attention>(&operation)) {
            return what_ == What::attention_heads ? attention->batch_heads * attention->keys_read() : 0;
        }
        if (const auto* gemm = std::get_if<Gemm>(&operation)) {
            return what_ == What::product_columns ? gemm->n : what_ == What::product_rows ? gemm->m : 0;
        }
        return 0;
    }
    What what_;
};

ModelSpec preset(const std::string& name) {
    return test::scenario(
               fmt::format("orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: {}\n", name))
        .as<ServingKind>()
        .model;
}

/// A replica of `groups` x `tensor` GPUs of one machine over links that cost nothing.
struct Replica {
    Replica(const std::string& model_name, Counter::What what, std::uint32_t tensor, std::uint32_t groups,
            std::uint32_t expert, double load = 1, std::uint32_t draft_tokens = 0)
        : model(preset(model_name)),
          device(what),
          fabric(test::rail_nodes(1)),
          step(ServingModel{.model = model,
                            .device = device,
                            .fabric = fabric,
                            .collectives = collectives,
                            .gpus = gpus(tensor * groups),
                            .groups = groups,
                            .expert = expert,
                            .expert_load = load,
                            .draft_tokens = draft_tokens,
                            .draft_layers = draft_tokens > 0 ? 1 : 0}) {}

    static std::vector<GpuId> gpus(std::uint32_t count) {
        std::vector<GpuId> out;
        for (std::uint32_t i = 0; i < count; ++i) {
            out.emplace_back(i);
        }
        return out;
    }

    ModelSpec model;
    Counter device;
    Fabric fabric;
    IdealCollectives collectives;
    ModelStep step;
};

}  // namespace

TEST_CASE("serving: clients of a closed loop send their next request when the last one is answered") {
    const std::vector<Request> four(4, request(0, 4, 2));
    const Run run = run_list(scheduler_named("chunked-prefill"), 100, 100, four, 2);
    // Both start together; at 2 s they end, and the next two come in the same instant.
    CHECK(run.iterations == Lines{"0:4 1:4", "0:1 1:1", "2:4 3:4", "2:1 3:1"});
    REQUIRE(run.result.requests.size() == 4);
    CHECK(run.result.requests[2].arrival.seconds() == doctest::Approx(2));
    CHECK(run.result.requests[3].arrival.seconds() == doctest::Approx(2));
    // One client: one after another.
    CHECK(run_list(scheduler_named("chunked-prefill"), 100, 100, four, 1).result.end_s == doctest::Approx(8));
    // More clients than requests: all at once.
    CHECK(run_list(scheduler_named("chunked-prefill"), 100, 100, four, 9).iterations ==
          Lines{"0:4 1:4 2:4 3:4", "0:1 1:1 2:1 3:1"});
}

TEST_CASE("serving: a closed loop keeps as many requests under way as it has clients") {
    const Summary summary = run_scenario(test::scenario(R"(orrery: 1
kind: serving
cluster: {nodes: 1, node: dgx-h100}
model: llama-3-8b
requests: {arrivals: closed, clients: 4, count: 80, prompt: {mean: 200}, output: {kind: uniform, mean: 100, spread: 0.3}}
)"),
                                         test::model_cache(), {})
                                .summary;
    // Little's law; the last requests have fewer and fewer beside them.
    const double under_way = summary.find("requests_per_s")->value * summary.find("e2e_s.mean")->value;
    CHECK(under_way <= 4.0001);
    CHECK(under_way > 3.7);
}

TEST_CASE("serving: a refused request frees its client for the next one") {
    const Run run = run_list(scheduler_named("chunked-prefill"), 100, 4,
                             {request(0, 99, 2), request(0, 98, 2), request(0, 4, 2)}, 1);
    CHECK(run.result.refused == 2);
    CHECK(run.result.requests.size() == 1);
}

TEST_CASE("serving: the front end works on one request after another, and the way to the engine adds to each") {
    // Work of 2 s each, way of 0.5 s: at the engine after 2.5, 4.5 and 6.5 s, where each takes an iteration of a second.
    const Run run =
        run_list(scheduler_named("chunked-prefill"), 100, 100, std::vector<Request>(3, request(0, 4, 1)), 3, 2, 0.5);
    REQUIRE(run.result.requests.size() == 3);
    std::vector<double> ttft;
    for (const RequestOutcome& outcome : run.result.requests) {
        ttft.push_back(outcome.ttft);
    }
    std::sort(ttft.begin(), ttft.end());
    CHECK(ttft[0] == doctest::Approx(3.5));
    CHECK(ttft[1] == doctest::Approx(5.5));
    CHECK(ttft[2] == doctest::Approx(7.5));
    // Half a second a token: prompts of 4 and 2 tokens leave it at 4 and 5 s.
    const std::vector<Request> two = {request(0, 4, 1), request(0, 2, 1)};
    const Run long_first = run_list(scheduler_named("chunked-prefill"), 100, 100, two, 0, 2, 0.5, 0.5);
    REQUIRE(long_first.result.requests.size() == 2);
    CHECK(long_first.result.requests[0].ttft == doctest::Approx(2 + 4 * 0.5 + 0.5 + 1));
    CHECK(long_first.result.requests[1].ttft == doctest::Approx(2 * 2 + 6 * 0.5 + 0.5 + 1));
    // Requests of a trace that come apart wait for nobody.
    const Run apart =
        run_list(scheduler_named("chunked-prefill"), 100, 100, {request(0, 4, 1), request(10, 4, 1)}, 0, 2, 0.5);
    CHECK(apart.result.requests[0].ttft == doctest::Approx(3.5));
    CHECK(apart.result.requests[1].ttft == doctest::Approx(3.5));
}

TEST_CASE("serving: in-flight batching takes whole prompts within the budget and sets their longest output aside") {
    // Budget 12: a decode and a prompt of 8 leave no room for another of 8.
    CHECK(run_list(scheduler_named("in-flight"), 12, 100, {request(0, 4, 3), request(0.5, 8, 2), request(0.5, 8, 1)})
              .iterations == Lines{"0:4", "0:1 1:8", "0:1 1:1 2:8"});
    // Three blocks of four: 4 + 4 tokens hold two of them, so the second waits for the first one's end.
    CHECK(run_list(scheduler_named("in-flight"), 12, 3, {request(0, 4, 4), request(0, 4, 4)}).iterations ==
          Lines{"0:4", "0:1", "0:1", "0:1", "1:4", "1:1", "1:1", "1:1"});
    // A prompt beyond the budget runs alone, once nothing else runs, and the result says so.
    const Run alone =
        run_list(scheduler_named("in-flight"), 12, 100, {request(0, 4, 3), request(0.5, 13, 2), request(0.5, 4, 1)});
    CHECK(alone.iterations == Lines{"0:4", "0:1", "0:1", "1:13", "1:1 2:4"});
    CHECK(alone.result.lone_prompts == 1);
    CHECK(run_list(scheduler_named("in-flight"), 13, 100, {request(0, 13, 2)}).result.lone_prompts == 0);
}

TEST_CASE("serving: prompts beyond the token budget that run alone are counted") {
    for (const char* kind : {"vllm-v0", "priority"}) {
        const Run alone =
            run_list(scheduler_named(kind), 12, 100, {request(0, 13, 2), request(0, 4, 1), request(0, 12, 1)});
        CHECK_MESSAGE(alone.result.lone_prompts == 1, kind);
        CHECK_MESSAGE(std::count(alone.iterations.begin(), alone.iterations.end(), "0:13") == 1, kind);
        CHECK(run_list(scheduler_named(kind), 13, 100, {request(0, 13, 2), request(0, 4, 1)}).result.lone_prompts == 0);
    }
}

TEST_CASE("serving: in-flight prompts wait for company while others decode, and not longer") {
    SchedulerSpec waits = test::scheduler("{kind: in-flight, wait_iterations: 2, wait_share: 100 %}");
    CHECK(run_list(waits, 12, 100, {request(0, 4, 5), request(0.5, 4, 1)}).iterations ==
          Lines{"0:4", "0:1", "0:1", "0:1 1:4", "0:1"});
    // Enough tokens to fill the share: nobody waits.
    waits = test::scheduler("{kind: in-flight, wait_iterations: 2, wait_share: 40 %}");
    CHECK(run_list(waits, 12, 100, {request(0, 4, 5), request(0.5, 4, 1)}).iterations ==
          Lines{"0:4", "0:1 1:4", "0:1", "0:1", "0:1"});
}

TEST_CASE("serving: the host adds to an iteration, hides behind it, or holds it up") {
    HostSpec host;
    host.step.value = 2e-3;
    host.sequence.value = 1e-4;
    CHECK(iteration_seconds(host, 10e-3, {10, 0, 20, 20, false}) == doctest::Approx(14e-3));
    host.overlap = true;
    CHECK(iteration_seconds(host, 10e-3, {10, 0, 20, 20, false}) == doctest::Approx(10e-3));
    CHECK(iteration_seconds(host, 3e-3, {10, 0, 20, 20, false}) == doctest::Approx(4e-3));
    host.slowdown.value = 1.1;
    host.layer_gap.value = 1e-4;
    CHECK(iteration_seconds(host, 10e-3, {10, 0, 20, 20, false}) == doctest::Approx(12e-3));
}

TEST_CASE("serving: only decodes up to the captured size replay a graph, all else is launched layer by layer") {
    HostSpec host;
    host.layer_launch.value = 1e-3;
    host.graph_sequences = 8;
    CHECK(iteration_seconds(host, 5e-3, {10, 0, 8, 8, false}) == doctest::Approx(5e-3));
    CHECK(iteration_seconds(host, 5e-3, {10, 0, 9, 9, false}) == doctest::Approx(10e-3));
    CHECK(iteration_seconds(host, 5e-3, {10, 0, 1, 1, true}) == doctest::Approx(10e-3));
    CHECK(iteration_seconds(host, 15e-3, {10, 0, 1, 1, true}) == doctest::Approx(15e-3));
    // Latent attention and routed experts of a layer take launches of their own.
    host.latent_launch.value = 2e-3;
    host.experts_launch.value = 4e-3;
    CHECK(iteration_seconds(host, 5e-3, {10, 7, 1, 1, true, 10}) == doctest::Approx(10e-3 + 20e-3 + 28e-3));
    CHECK(iteration_seconds(host, 5e-3, {10, 7, 8, 8, false, 10}) == doctest::Approx(5e-3));
}

TEST_CASE("serving: a graph computes as many sequences as it was captured for") {
    HostSpec host;
    host.graph_sequences = 1000;
    CHECK(graph_size(host, 131) == 131);
    host.graph_regular = 128;
    for (const auto& [sequences, size] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
             {1, 1}, {3, 4}, {5, 8}, {8, 8}, {9, 16}, {121, 128}, {129, 256}, {257, 512}, {513, 1000}, {1001, 1001}}) {
        CAPTURE(sequences);
        CHECK(graph_size(host, sequences) == size);
    }
}

namespace {

/// Kernels bound by memory take 5 s as measured and 2 s by their bytes; products 3 s, but of 17 to 32 rows 7 s.
class Steps final : public CostModel {
  public:
    Cost cost(const Operation& operation) const override {
        Cost cost;
        if (const auto* streaming = std::get_if<Streaming>(&operation)) {
            cost.seconds = Seconds(streaming->kind == StreamingKind::any ? 2 : 5);
        } else if (const auto* gemm = std::get_if<Gemm>(&operation)) {
            cost.seconds = Seconds(gemm->m > 16 && gemm->m <= 32 ? 7 : 3);
        }
        return cost;
    }
};

double layer_seconds(double tokens, bool compiled, bool tuned) {
    const ModelSpec model = preset("llama-3-70b");
    const Steps device;
    const Fabric fabric(test::rail_nodes(1));
    const IdealCollectives collectives;
    HostSpec host;
    host.compiled = compiled;
    host.tuned = tuned;
    ModelStep step(ServingModel{.model = model,
                                .device = device,
                                .fabric = fabric,
                                .collectives = collectives,
                                .gpus = {GpuId(0)},
                                .host = host});
    return step.dense_layer_seconds(tokens);
}

}  // namespace

TEST_CASE(
    "serving: compiled kernels take no longer than their bytes, tuned products no longer than those of more rows") {
    // Two norms, one rotary kernel for queries and keys, one activation; four products.
    CHECK(layer_seconds(16, false, false) == doctest::Approx(4 * 5 + 4 * 3));
    CHECK(layer_seconds(16, true, false) == doctest::Approx(4 * 2 + 4 * 3));
    CHECK(layer_seconds(17, false, false) == doctest::Approx(4 * 5 + 4 * 7));
    CHECK(layer_seconds(17, true, true) == doctest::Approx(4 * 2 + 4 * 3));
    CHECK(layer_seconds(5, false, true) == doctest::Approx(4 * 5 + 4 * 3));
    // Only kernels of up to four times the rows are tried, and a longer one is not taken.
    CHECK(layer_seconds(32, false, true) == doctest::Approx(4 * 5 + 4 * 3));
    CHECK(layer_seconds(9, false, true) == doctest::Approx(4 * 5 + 4 * 3));
}

TEST_CASE("serving: presets have the published numbers of parameters") {
    const std::vector<std::pair<const char*, double>> published = {
        {"deepseek-v3", 671e9},     {"kimi-k2", 1.026e12},     {"gpt-oss-120b", 116.8e9},      {"minimax-m2", 229e9},
        {"qwen3-32b", 32.8e9},      {"qwen3-30b-a3b", 30.5e9}, {"qwen3-235b-a22b", 235e9},     {"mixtral-8x7b", 46.7e9},
        {"mixtral-8x22b", 140.6e9}, {"bloom-176b", 176.2e9},   {"mistral-large-2407", 122.6e9}};
    for (const auto& [name, parameters] : published) {
        CAPTURE(name);
        CHECK(preset(name).parameters() == doctest::Approx(parameters).epsilon(0.01));
    }
}

TEST_CASE("serving: ranks share out the experts' work however it is cut, and the busiest holds up the others") {
    const double tokens = 512;
    const ModelSpec model = preset("qwen3-30b-a3b");
    const double work = 2 * 3 * tokens * static_cast<double>(model.experts.topk * model.hidden * model.experts.ffn) *
                        static_cast<double>(model.layers);
    for (const auto& [tensor, groups, expert] :
         {std::array<std::uint32_t, 3>{1, 1, 1}, {4, 1, 1}, {4, 1, 4}, {4, 1, 2}, {2, 4, 8}, {1, 8, 4}}) {
        CAPTURE(tensor);
        CAPTURE(expert);
        Replica replica("qwen3-30b-a3b", Counter::What::expert_flops, tensor, groups, expert);
        CHECK(replica.step.dense_seconds(static_cast<std::uint32_t>(tokens)) * tensor * groups ==
              doctest::Approx(work).epsilon(1e-6));
    }
    Replica skewed("qwen3-30b-a3b", Counter::What::expert_flops, 4, 1, 4, 1.5);
    CHECK(skewed.step.dense_seconds(static_cast<std::uint32_t>(tokens)) * 4 ==
          doctest::Approx(1.5 * work).epsilon(1e-6));
}

TEST_CASE("serving: attention groups attend to their own sequences with all of a group's heads") {
    const auto decode = [](std::uint32_t sequences, std::uint32_t context) {
        Batch batch;
        for (std::uint32_t i = 0; i < sequences; ++i) {
            batch.items.push_back(BatchItem{i, 1, context});
        }
        return batch;
    };
    Replica together("deepseek-v3", Counter::What::latent_keys, 8, 1, 8);
    Replica apart("deepseek-v3", Counter::What::latent_keys, 1, 8, 8);
    // 64 sequences: eight ranks with 16 of 128 heads each, or eight with 8 of the sequences each: the same work.
    CHECK(together.step.kernel_seconds(decode(64, 1000)) ==
          doctest::Approx(apart.step.kernel_seconds(decode(64, 1000))));
    CHECK(together.step.kernel_seconds(decode(64, 1000)) == doctest::Approx(61.0 * 64 * 1000 * 16));
    // Nine sequences over eight groups: one has two.
    CHECK(apart.step.kernel_seconds(decode(9, 1000)) == doctest::Approx(61.0 * 2 * 1000 * 128));
}

TEST_CASE("serving: a draft of the model's own layers attends once for each of its tokens") {
    Batch batch;
    batch.items = {BatchItem{0, 1, 1000}, BatchItem{1, 1, 1000}};
    Replica verifying("deepseek-v3", Counter::What::latent_keys, 8, 1, 8);
    Replica drafting("deepseek-v3", Counter::What::latent_keys, 8, 1, 8, 1, 3);
    const double plain = verifying.step.kernel_seconds(batch);
    CHECK(drafting.step.kernel_seconds(batch) == doctest::Approx(plain));  // nothing was drafted
    batch.drafted = 6;
    CHECK(verifying.step.kernel_seconds(batch) == doctest::Approx(plain));
    CHECK(drafting.step.kernel_seconds(batch) == doctest::Approx(plain * (1 + 3.0 / 61)));
}

TEST_CASE("serving: a prompt is on one attention group, and the busiest group holds up the others") {
    const auto prompts = [](Replica& replica, std::uint32_t count) {
        Batch batch;
        for (std::uint32_t i = 0; i < count; ++i) {
            batch.items.push_back(BatchItem{i, 1000, 1000});
        }
        return replica.step.kernel_seconds(batch);
    };
    for (const Counter::What what : {Counter::What::latent_keys, Counter::What::product_rows}) {
        Replica one("deepseek-v3", what, 1, 1, 1);
        Replica eight("deepseek-v3", what, 1, 8, 8);
        const double alone = prompts(eight, 1);
        // As on a single rank; seven more prompts wait for nothing, and one more for a second on its group.
        CHECK(alone == doctest::Approx(prompts(one, 1)).epsilon(1e-3));
        CHECK(prompts(eight, 8) == doctest::Approx(alone).epsilon(1e-3));
        CHECK(prompts(eight, 9) == doctest::Approx(2 * alone).epsilon(1e-3));
    }
}

TEST_CASE("serving: the host of an attention group works on its own sequences alone") {
    const auto host = [](std::uint32_t groups, std::size_t sequences) {
        Replica replica("qwen3-30b-a3b", Counter::What::latent_keys, 1, groups, groups);
        HostSpec busy;
        busy.sequence.value = 1e-3;
        Batch batch;
        batch.items.assign(sequences, BatchItem{0, 1, 100});
        ModelStep step(ServingModel{.model = replica.model,
                                    .device = replica.device,
                                    .fabric = replica.fabric,
                                    .collectives = replica.collectives,
                                    .gpus = Replica::gpus(groups),
                                    .groups = groups,
                                    .expert = groups,
                                    .host = busy});
        return step.seconds(batch) - step.kernel_seconds(batch);
    };
    CHECK(host(1, 16) == doctest::Approx(16e-3));
    CHECK(host(8, 16) == doctest::Approx(2e-3));
    CHECK(host(8, 17) == doctest::Approx(3e-3));  // one group has three
}

TEST_CASE("serving: tokens of prompts go once to each node and from there to GPUs, decoded ones straight to these") {
    const ModelSpec model = preset("deepseek-v3");
    const Counter nothing(Counter::What::attention_heads);  // latent attention has none
    const Fabric one_each(test::rail_nodes(2));
    FabricShape fewer = test::rail_nodes(2);
    fewer.nics_per_node = fewer.rails = 4;
    const Fabric shared(fewer);
    const IdealCollectives collectives;
    const auto seconds = [&](Dispatch dispatch, std::uint32_t tokens, const Fabric& fabric) {
        Batch batch;
        for (std::uint32_t i = 0; i < 16; ++i) {
            batch.items.push_back(BatchItem{i, tokens, tokens});
        }
        ModelStep step(ServingModel{.model = model,
                                    .device = nothing,
                                    .fabric = fabric,
                                    .collectives = collectives,
                                    .gpus = Replica::gpus(16),
                                    .groups = 16,
                                    .expert = 16,
                                    .dispatch = dispatch});
        return step.kernel_seconds(batch);
    };
    CHECK(seconds(Dispatch::hierarchical, 1, one_each) == doctest::Approx(seconds(Dispatch::all_to_all, 1, one_each)));
    // There and back, in 16 bits: half of what goes to both nodes leaves over the NIC, beside 15 of 16 parts of what each GPU gets.
    const double nodes = holders_reached(model.experts, 2);
    const double layers = 58 * 2;
    const double bytes = 100'000.0 * 7168 * 2;
    CHECK(nodes > 1.9);
    const double by_node = seconds(Dispatch::hierarchical, 100'000, one_each);
    CHECK(by_node == doctest::Approx(layers * bytes * nodes / 2 / one_each.shape().nic_bandwidth).epsilon(0.01));
    CHECK(seconds(Dispatch::all_to_all, 100'000, one_each) > 3 * by_node);
    // Two GPUs on a NIC.
    CHECK(seconds(Dispatch::hierarchical, 100'000, shared) == doctest::Approx(2 * by_node).epsilon(0.01));
}

TEST_CASE("serving: windows bound the keys of their layers alone") {
    Replica replica("gpt-oss-120b", Counter::What::attention_heads, 1, 1, 1);
    // Pages of 16: 18 layers read all 4,096 keys, 18 the 128 of the window.
    CHECK(replica.step.attention_seconds(1, 1, 4096) == doctest::Approx(64.0 * (18 * 4096 + 18 * 128)));
}

TEST_CASE("serving: caches and weights take the bytes of their formats") {
    const ModelSpec deepseek = preset("deepseek-v3");
    CHECK(cache_bytes_per_token(deepseek, Precision::bf16) == doctest::Approx(61.0 * (512 + 64) * 2));
    CHECK(cache_ranks(deepseek, 8) == 1);
    const ModelSpec llama = preset("llama-3-70b");
    CHECK(cache_bytes_per_token(llama, Precision::fp8) == doctest::Approx(80.0 * 2 * 8 * 128));
    CHECK(cache_ranks(llama, 4) == 4);
    CHECK(cache_ranks(llama, 16) == 8);
    const Quantisation fp8{.weights = Precision::fp8, .experts = Precision::fp8};
    const double tables = 4 * llama.embedding_parameters();
    CHECK(weight_bytes_per_rank(llama, fp8, 8) ==
          doctest::Approx((80 * llama.layer_parameters() + tables) / 8).epsilon(1e-9));
    // Experts are shared out over all ranks, the rest over those of a group.
    const Quantisation mixed{.weights = Precision::bf16, .experts = Precision::int4};
    const double apart = weight_bytes_per_rank(deepseek, mixed, 1, 8);
    const double together = weight_bytes_per_rank(deepseek, mixed, 8, 1);
    CHECK(apart > together);
    CHECK(together * 8 == doctest::Approx(weight_bytes_per_rank(deepseek, mixed, 1)).epsilon(1e-9));
    // An eighth of the experts twice, in 4 bits, shared out over eight ranks.
    PhaseSpec phase;
    phase.tensor = 1;
    phase.groups = phase.expert = 8;
    phase.redundant_experts = 32;
    const double copied = weight_bytes(deepseek, mixed, phase, 0) - apart;
    CHECK(copied == doctest::Approx(58 * deepseek.routed_parameters() / 2 / 8 / 8).epsilon(1e-9));
}

TEST_CASE("serving: degrees that do not divide a mixture of experts are refused with the numbers") {
    const auto problem = [](const std::string& engine, const std::string& model = "qwen3-30b-a3b") {
        try {
            (void)run_scenario(
                test::scenario(fmt::format("orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\n"
                                           "model: {}\nengine: {}\nrequests: {{count: 5}}\n",
                                           model, engine)),
                test::model_cache(), {});
        } catch (const Error& error) {
            return fmt::format("{} {}", error.exit_code(), error.what());
        }
        return std::string();
    };
    CHECK(problem("{tensor: 4, expert: 3}").find("3 expert 3 must divide the 4 ranks of a stage") != std::string::npos);
    CHECK(problem("{tensor: 2, groups: 2}", "llama-3-8b").find("of which this model has none") != std::string::npos);
    CHECK(problem("{tensor: 4, groups: 4}").find("replicas of 16 ranks") != std::string::npos);
    CHECK(problem("{tensor: 2, groups: 2, expert: 4}").empty());
    CHECK(problem("{tensor: 1, groups: 3, expert: 3}").find("'redundant_experts' adds copies of some") !=
          std::string::npos);
    CHECK(problem("{tensor: 1, groups: 3, expert: 3, redundant_experts: 3}").find("128 experts with their 3 copies") !=
          std::string::npos);
    CHECK(problem("{tensor: 1, groups: 3, expert: 3, redundant_experts: 4}").empty());
    CHECK(problem("{redundant_experts: 4}").find("'expert' is 1") != std::string::npos);
    CHECK(problem("{tensor: 2, groups: 2, expert: 4, dispatch: all-to-all, weights: fp8, experts: int4}").empty());
    // 671 GB of weights over eight devices of 80 GiB.
    CHECK(problem("{tensor: 8, weights: fp8}", "deepseek-v3").find("3 the model does not fit") == 0);
}

TEST_CASE("serving: training refuses what only serving knows") {
    const std::string text = test::kSmallTraining;
    const std::string changed = [&] {
        std::string out = text;
        const std::string model = "model: {layers: 4, hidden: 1024, heads: 16, vocabulary: 1000}";
        out.replace(out.find(model), model.size(), "model: mixtral-8x7b");
        return out;
    }();
    CHECK_THROWS_AS((void)run_scenario(test::scenario(changed), test::model_cache(), {}), ConfigError);
}

TEST_CASE("serving: all measured points read as scenarios, most of the dense ones are in, and halves are even") {
    const std::vector<ServingPoint> points = load_serving_points(test::data());
    double dense = 0;
    double fitted = 0;
    for (const ServingPoint& point : points) {
        dense += point.dense ? 1 : 0;
        fitted += point.fitted_half ? 1 : 0;
        CHECK((point.ttft > 0 || point.source == "splitwise"));
        CHECK(point.tpot > 0);
    }
    for (const ServingPoint& point : load_offline_points(test::data())) {
        CHECK(point.tokens_per_s > 0);
        CHECK_FALSE(point.fitted_half);
    }
    for (const ServingPoint& point : load_points_apart(test::data())) {
        CHECK(point.scenario.as<ServingKind>().engine.mixed.ranks() <= 8);
        CHECK_FALSE(point.fitted_half);
    }
    for (const ServingPoint& point : load_disaggregated_points(test::data())) {
        CHECK(point.scenario.as<ServingKind>().engine.split);
        CHECK(point.scenario.as<ServingKind>().engine.first_token == FirstToken::decode);
        CHECK_FALSE(point.fitted_half);
    }
    double out = 0;
    for (const FactsRow& row : read_facts_table(test::data().path("validation/serving/excluded.csv"))) {
        out += row.number("dense") * row.number("points");
    }
    CHECK(dense / (dense + out) > 0.6);
    CHECK(fitted / static_cast<double>(points.size()) == doctest::Approx(0.5).epsilon(0.05));
}

TEST_CASE("serving: every setup of the validation runs by itself") {
    std::size_t ran = 0;
    for (const auto& file :
         std::filesystem::directory_iterator(std::string(ORRERY_SOURCE_DIR) + "/validation/serving/setups")) {
        CAPTURE(file.path().string());
        const Scenario one = load_scenario(file.path().string(), {"requests.count=2"}, test::model_cache().data());
        CHECK(run_scenario(one, test::model_cache(), {}).summary.find("requests")->value == doctest::Approx(2));
        ++ran;
    }
    CHECK(ran > 40);
}
