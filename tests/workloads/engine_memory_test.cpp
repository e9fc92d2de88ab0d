// Memory of engines at start: pages of hybrid caches by hand, what the share covers, and contexts that are refused.

#include "workloads/serving/engine_memory.hpp"
#include "sim/base/error.hpp"
#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/run.hpp"

#include <doctest/doctest.h>

#include <fmt/format.h>
#include <cmath>

#include <algorithm>

using namespace orrery;

namespace {

Scenario served(const std::string& model, const std::string& engine, const char* node = "dgx-h100") {
    return test::scenario(
        fmt::format("orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: {}}}\nmodel: {}\n"
                    "engine: {{{}}}\n"
                    "requests: {{rate: 1, count: 3, prompt: {{mean: 64}}, output: {{mean: 4}}}}\n",
                    node, model, engine));
}

EngineCache cache_of(const Scenario& s) {
    const auto& serving = s.as<ServingKind>();
    return engine_cache(serving.engine, serving.engine.mixed, serving.model, s.cluster.node.gpu);
}

CachePages pages(const Scenario& s) {
    const auto& serving = s.as<ServingKind>();
    return pages_of(serving.engine, serving.engine.mixed, serving.model, 1);
}

std::uint64_t blocks(const Scenario& s) {
    const auto& serving = s.as<ServingKind>();
    return limits_of(serving.engine, serving.engine.mixed, serving.model, s.cluster.node.gpu).blocks;
}

}  // namespace

TEST_CASE("engine memory: layers of a hybrid cache make groups as large as the rarer kind has layers") {
    // Gemma 3 27B: 10 of 62 layers attend to everything, so that the others make six groups of at most 10.
    const CachePages gemma = pages(served("gemma-3-27b", "software: vllm-0.19"));
    CHECK(gemma.full == 1);
    CHECK(gemma.windowed == 6);
    CHECK(gemma.bytes == 16 * 10 * 2 * 16 * 128 * 2);
    // Half of gpt-oss' layers have a window: 300 tokens are 19 blocks, and a window of 128 with a batch of 64 reaches 191 of them.
    const CachePages oss = pages(served("gpt-oss-20b", "software: vllm-0.19, scheduler: {token_budget: 64}"));
    CHECK(oss.groups() == 2);
    CHECK(oss.of_sequence(300) == 19 + 12 + 1);
    CHECK(oss.of_sequence(16) == 2);
    // A version without groups keeps the whole length in every layer.
    const CachePages whole = pages(served("gpt-oss-20b", "software: vllm-0.6"));
    CHECK(whole.groups() == 1);
    CHECK(whole.bytes == 2 * oss.bytes);
}

TEST_CASE("engine memory: a block of attention grows to the size of a state, and a prefix cache keeps another state") {
    const Scenario plain = served("qwen3.5-35b-a3b", "software: vllm-0.21");
    const Scenario kept = served("qwen3.5-35b-a3b", "software: vllm-0.21, kv: {prefix: {}}");
    const CachePages page = pages(plain);
    // 32 states of 128 x 128 in 32 bits, and three tokens of 8,192 values of the convolution in 16; 2 heads of 256 for keys and for values
    // in 16 bits; blocks are multiples of 16 tokens.
    const double state = 32.0 * 128 * 128 * 4 + 3.0 * 8192 * 2;
    CHECK(page.tokens == 16 * std::ceil(state / (2 * 2 * 256 * 2) / 16));
    CHECK(page.states == 3);
    CHECK(page.of_sequence(10 * page.tokens) == 10 + 3);
    CHECK(pages(kept).of_sequence(10 * page.tokens) == 10 + 3 * 2);
    // Ranks share out states and key heads alike.
    CHECK(pages(served("qwen3.5-35b-a3b", "software: vllm-0.21, tensor: 2")).tokens == page.tokens);
}

TEST_CASE("engine memory: the peak is that of sampling or that of a layer, and batches of either make it larger") {
    const auto peak = [](const char* model, int tokens, int sequences) {
        return cache_of(
                   served(model, fmt::format("software: vllm-0.19, scheduler: {{token_budget: {}, max_sequences: {}}}",
                                             tokens, sequences)))
            .rank.peak;
    };
    // 14.8 B of each logit and 1.14 widths of 16 bits of each token.
    CHECK(peak("qwen2.5-7b", 8192, 1024) == doctest::Approx(14.8 * 1024 * 152064 + 1.14 * 2 * 8192 * 3584));
    CHECK(peak("qwen2.5-7b", 8192, 2048) > 1.9 * peak("qwen2.5-7b", 8192, 1024));
    // A small vocabulary leaves the feed-forward on top.
    CHECK(peak("codellama-7b", 8192, 1024) == doctest::Approx(2 * 8192.0 * (4.2 * 4096 + 3 * 11008)));
    // Sequences of a batch have a token each at least.
    CHECK(peak("qwen2.5-7b", 128, 4096) == peak("qwen2.5-7b", 128, 128));
}

TEST_CASE("engine memory: shares are of the device, of free memory, or of what weights leave") {
    const auto rank = [](const char* engine) { return cache_of(served("llama-3.1-8b", engine)).rank; };
    const RankMemory vllm = rank("software: vllm-0.19, kv: {memory: 80 %}");
    CHECK(vllm.pool == doctest::Approx(0.8 * vllm.total - vllm.weights - vllm.other - vllm.peak));
    const RankMemory later = rank("software: vllm-0.21, kv: {memory: 80 %}");
    CHECK(later.pool == doctest::Approx(vllm.pool - later.graphs));
    CHECK(later.graphs > 0);
    const RankMemory free = rank("software: trtllm-1.0, kv: {memory: 80 %}");
    CHECK(free.pool == doctest::Approx(0.8 * (free.total - free.weights - free.other - free.peak)));
    const RankMemory sglang = rank("software: sglang-0.5, kv: {memory: 80 %}");
    // Activations are outside of its share.
    CHECK(sglang.pool ==
          doctest::Approx(0.8 * (sglang.total - sglang.other) - sglang.weights - 0.8 * 1024 * 1024 * 1024));
    // What a scenario reserves itself goes before.
    const Scenario given = served("llama-3.1-8b", "software: vllm-0.19, reserved_memory: 2 GiB");
    CHECK(!given.as<ServingKind>().engine.sized_by_engine());
    CHECK(blocks(given) == blocks(served("llama-3.1-8b", "reserved_memory: 2 GiB")));
    CHECK(blocks(served("llama-3.1-8b", "software: vllm-0.19, other_weights: 8 GiB")) <
          blocks(served("llama-3.1-8b", "software: vllm-0.19")));
}

TEST_CASE("engine memory: vLLM does not start with a context that its cache has no room for") {
    const char* fits = "software: vllm-0.19, kv: {memory: 60 %}, max_context: 16384";
    CHECK(blocks(served("qwen2.5-14b", fits)) > 0);
    const Scenario longer = served("qwen2.5-14b", "software: vllm-0.19, kv: {memory: 50 %}, max_context: 131072");
    std::string message;
    try {
        (void)blocks(longer);
    } catch (const InfeasibleError& problem) {
        message = problem.what();
    }
    CHECK(message.find("vllm-0.19 does not start: a sequence of 131072 tokens (max_context) needs 24.00 GiB") == 0);
    // The longest that it names does start, and one more block does not.
    const std::size_t at = message.find("that fits has ") + 14;
    const auto longest = std::stoll(message.substr(at));
    const auto with = [&](std::int64_t context) {
        return served("qwen2.5-14b",
                      fmt::format("software: vllm-0.19, kv: {{memory: 50 %}}, max_context: {}", context));
    };
    CHECK(blocks(with(longest)) > 0);
    CHECK_THROWS_AS((void)blocks(with(longest + 16)), InfeasibleError);
}

TEST_CASE("engine memory: a run prints tokens, blocks and concurrency as the engine does") {
    const Scenario s = served("llama-3.1-8b", "software: vllm-0.19, max_context: 4096");
    const Summary summary = run_scenario(s, test::model_cache(), RunOptions()).summary;
    const EngineCache cache = cache_of(s);
    CHECK(summary.find("kv_cache_tokens")->value == cache.tokens);
    CHECK(summary.find("kv_cache_blocks")->value == cache.tokens / 16);
    CHECK(summary.find("kv_max_concurrency")->value == doctest::Approx(cache.tokens / 4096));
    const std::string line = log_line(s.as<ServingKind>().engine, cache);
    CHECK(line.find("GPU KV cache size: ") == 0);
    CHECK(line.find(" tokens; maximum concurrency for 4,096 tokens per request: ") != std::string::npos);
    CHECK(std::count(summary.notes.begin(), summary.notes.end(), line) == 1);
    CHECK(line.find("does not start") == std::string::npos);
    // A model's own context that has no room is said, as the engine refuses it where nobody lowers it.
    const Scenario long_context = served("llama-3.1-8b", "software: vllm-0.19, kv: {blocks: 1000}");
    CHECK(log_line(long_context.as<ServingKind>().engine, cache_of(long_context))
              .find("the engine itself does not start") != std::string::npos);
    CHECK(cache_of(served("deepseek-v3", "software: vllm-0.19, weights: fp8, kv: {blocks: 1000}")).capacity < 16);
    const Summary unnamed =
        run_scenario(served("llama-3.1-8b", "max_context: 4096"), test::model_cache(), RunOptions()).summary;
    CHECK(unnamed.find("kv_cache_tokens") == nullptr);
}
