// Published systems that were added last: what each depends on, one independent figure, and where it gains more or less.

#include "sim/base/error.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;
using namespace orrery::test;

namespace {

double metric(const std::string& file, const std::vector<std::string>& set, const char* name) {
    const Scenario s = load_scenario(std::string(ORRERY_SOURCE_DIR) + "/scenarios/papers/" + file, set, data());
    const Summary summary = run_scenario(s, model_cache(), {}).summary;
    const Metric* found = summary.find(name);
    REQUIRE_MESSAGE(found != nullptr, name);
    return found->value;
}

}  // namespace

TEST_CASE("APE: contexts come over PCIe at its rate, and save more the longer they are") {
    const auto saved = [](int context) {
        const double computed =
            metric("ape/computed.yaml", {fmt::format("requests.prompt.mean={}", context + 256)}, "ttft_s.max");
        // A cache on the device for a little more than one context.
        return computed / metric("ape/cached.yaml",
                                 {fmt::format("requests.common={}", context),
                                  fmt::format("engine.kv.blocks={}", context / 16 * 11 / 9),
                                  fmt::format("engine.max_context={}", context + 768), "measure.from=20 s"},
                                 "ttft_s.max");
    };
    // 32 layers, keys and values of eight heads of 128 in 16 bits, over a PCIe 5 link of 16 lanes (63 GB/s before its packets).
    const double bytes = 131072.0 * 32 * 2 * 8 * 128 * 2;
    const double first = metric("ape/cached.yaml", {}, "ttft_s.max");
    CHECK(first > bytes / 63e9);
    CHECK(first < 1.3 * bytes / 63e9);
    // Attention grows with the square of the context and copies with the context.
    CHECK(saved(131072) > 1.2 * saved(65536));
}

TEST_CASE("ParaThinker: paths share the reading of weights, and each reads its own cache, which grows") {
    const auto paths = [](int count, int tokens) {
        return metric("parathinker/eight-paths.yaml",
                      {fmt::format("requests.samples={}", count), fmt::format("requests.count={}", count),
                       fmt::format("requests.output.mean={}", tokens)},
                      "tpot_s.mean");
    };
    // 28 layers, keys and values of two heads of 128 in 16 bits: 28 kB a token, of half the path's tokens on average.
    const double cache = 7 * 8192.0 * 28 * 2 * 2 * 128 * 2;
    const double added = paths(8, 16384) - paths(1, 16384);
    CHECK(added > cache / 2039e9);
    CHECK(paths(8, 4096) / paths(1, 4096) < paths(8, 16384) / paths(1, 16384));
    CHECK(paths(2, 4096) < paths(8, 4096));
}

TEST_CASE("ParScale: streams add compute to a prompt and hardly any time to a token") {
    const std::vector<std::string> one = {"requests.count=1"};
    const double token =
        metric("parscale/streams.yaml", {}, "tpot_s.mean") - metric("parscale/streams.yaml", one, "tpot_s.mean");
    CHECK(token > 0);
    // The larger model reads 2.8 billion weights more for each token.
    const double larger =
        metric("parscale/larger.yaml", {}, "tpot_s.mean") - metric("parscale/streams.yaml", one, "tpot_s.mean");
    CHECK(larger == doctest::Approx(2 * 2.8e9 / 2039e9).epsilon(0.25));
    CHECK(larger > 20 * token);
    // More streams than the ridge of the roofline has tokens are bound by products.
    CHECK(metric("parscale/streams.yaml", {"requests.count=512", "engine.scheduler.max_sequences=512"}, "tpot_s.mean") >
          1.5 * metric("parscale/streams.yaml", {}, "tpot_s.mean"));
}

TEST_CASE("GPUSQ-ViT: half of the gain is 8-bit products, the rest sparsity, and a narrower model gains less") {
    const auto gain = [](const std::vector<std::string>& set) {
        std::vector<std::string> dense = set;
        dense.emplace_back("engine.weights=bf16");
        return metric("gpusq-vit/deit-base.yaml", set, "requests_per_s") /
               metric("gpusq-vit/deit-base.yaml", dense, "requests_per_s");
    };
    const double both = gain({});
    const double bits = gain({"cluster.node.gpu.flops_int8=624 TFLOP/s"});
    CHECK(bits > 1.3);
    CHECK(both > 1.1 * bits);
    CHECK(both < 4);  // four times the rate of 16-bit products
    // DeiT-Small: products have half the work for each byte that other kernels move.
    CHECK(gain({"model.hidden=384", "model.heads=6", "model.ffn=1536"}) < both);
}

TEST_CASE("Multiverse: branches read half as long contexts each, so that many requests gain more than few") {
    const auto gain = [](int requests) {
        return metric("multiverse-engine/branches.yaml",
                      {"requests.samples=1", fmt::format("requests.count={}", requests), "requests.output.mean=8192"},
                      "e2e_s.max") /
               metric("multiverse-engine/branches.yaml", {fmt::format("requests.count={}", 2 * requests)}, "e2e_s.max");
    };
    const double one = gain(1);
    CHECK(one < 2);  // the tokens of one sequence take no longer than those of two
    CHECK(one > 1.8);
    CHECK(gain(16) > one);
}

TEST_CASE("Just Read Twice: linear attention gains with the length of prompts, and never more than attention takes") {
    const auto gain = [](int tokens) {
        const std::vector<std::string> set = {fmt::format("requests.prompt.mean={}", tokens), "requests.count=1"};
        return metric("jrt/softmax.yaml", set, "ttft_s.mean") / metric("jrt/linear.yaml", set, "ttft_s.mean");
    };
    CHECK(gain(8192) < gain(32768));
    CHECK(gain(32768) < gain(65535));
    // The products of 1.3 billion weights at no more than 989 TFLOP/s are in both.
    const double softmax = metric("jrt/softmax.yaml", {"requests.count=1"}, "ttft_s.mean");
    const double weights = 24 * (4.0 * 2048 * 2048 + 3.0 * 2048 * 5632);
    CHECK(gain(32768) < softmax / (2 * weights * 32768 / 989e12));
}

TEST_CASE(
    "ReMax: its actor stays on the GPUs, where PPO's actor and critic have no room, and short answers gain most") {
    CHECK(metric("remax/remax-7b.yaml", {"jobs.3.offload=false"}, "samples_per_s") >
          metric("remax/remax-7b.yaml", {}, "samples_per_s"));
    CHECK_THROWS_WITH_AS(metric("remax/ppo-7b.yaml", {"jobs.3.offload=false", "jobs.4.offload=false"}, "samples_per_s"),
                         doctest::Contains("'generator' needs 40.0 of the 80.0 GiB of a GPU beside"), InfeasibleError);
    // ReMax generates one answer more a prompt, and has no critic to train: what generation takes decides.
    const auto gain = [](int tokens) {
        const std::vector<std::string> set = {fmt::format("jobs.0.scenario.requests.output.mean={}", tokens)};
        return metric("remax/remax-7b.yaml", set, "samples_per_s") / metric("remax/ppo-7b.yaml", set, "samples_per_s");
    };
    CHECK(gain(32) > gain(256));
    CHECK(gain(256) > 1);
}

TEST_CASE("vision servers: an image waits for its own decoding, and many large ones for the cores alone") {
    const char* file = "vision-server-overheads/medium.yaml";
    const double tensors = metric(file, {"engine.front_end.request=1 us"}, "e2e_s.mean");
    CHECK(metric(file, {}, "e2e_s.mean") - tensors == doctest::Approx(1.9e-3 - 1e-6).epsilon(1e-6));
    // 24 cores of 103 ms an image.
    const std::vector<std::string> large = {"engine.front_end.request=103 ms", "requests.count=2000"};
    CHECK(metric(file, large, "requests_per_s") == doctest::Approx(24 / 0.103).epsilon(0.02));
    // Twice the cores decode twice as many, as long as the GPU keeps up.
    std::vector<std::string> more = large;
    more.emplace_back("engine.front_end.cores=48");
    CHECK(metric(file, more, "requests_per_s") == doctest::Approx(48 / 0.103).epsilon(0.03));
}
