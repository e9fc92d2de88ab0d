// A prefix that decoding sequences share is read once for all of them: closed forms of its traffic, and what is refused.

#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/serving.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace orrery;

namespace {

std::string text_of(int sequences, int prefix, const std::string& reads, const std::string& more = "",
                    const std::string& model = "{layers: 8, hidden: 4096, heads: 32, vocabulary: 32000}",
                    int kinds = 1) {
    return fmt::format(
        "orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: {{preset: dgx-a100-80g, gpus: 1}}}}\n"
        "model: {}\ncompute: {{model: roofline}}\n"
        "engine: {{scheduler: {{kind: vllm-v0, token_budget: 65536, max_sequences: 512}}, "
        "kv: {{prefix: {{reads: {}}}}}{}}}\n"
        "requests: {{arrivals: at-once, count: {}, common: {}, common_kinds: {}, prompt: {{mean: 64}}, "
        "output: {{mean: 17}}}}\n",
        model, reads, more, sequences, prefix, kinds);
}
// Of an iteration that decodes.
double step(const std::string& text) {
    return run_scenario(test::scenario(text), test::model_cache(), {}).summary.find("tpot_s.p50")->value;
}
std::string errors_of(const std::string& text) {
    try {
        (void)test::scenario(text);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

// Keys and values of a token: eight layers, 32 heads of 128, 16 bits.
constexpr double kToken = 2.0 * 2 * 8 * 4096;
constexpr double kRate = 2039e9;  // an A100 80 GB's memory, B/s

}  // namespace

TEST_CASE("a prefix that is read once saves its keys and values for all sequences but one") {
    const int sequences = 64;
    const double each = step(text_of(sequences, 16000, "each"));
    const double once = step(text_of(sequences, 16000, "once"));
    const double saved = (sequences - 1) * 16000 * kToken / kRate;
    CHECK(each - once > 0.9 * saved);
    CHECK(each - once < 1.3 * saved);  // streaming kernels reach less than the memory's rate
    // Twice as long a prefix costs each sequence twice as much, and all together the reading of its keys and values, or the products of
    // 64 queries with them.
    const double longer = step(text_of(sequences, 32000, "once"));
    CHECK(longer - once < 1.5 * 16000 * kToken / kRate);
    CHECK(longer > once);
}

TEST_CASE("sequences with prefixes of their own, or alone, read what they read before") {
    CHECK(step(text_of(1, 16000, "once")) == step(text_of(1, 16000, "each")));
    CHECK(step(text_of(32, 0, "once")) == step(text_of(32, 0, "each")));
    // Of four prefixes each is read once: between one for all and one each.
    const double one = step(text_of(64, 8000, "once"));
    const double four =
        step(text_of(64, 8000, "once", "", "{layers: 8, hidden: 4096, heads: 32, vocabulary: 32000}", 4));
    CHECK(four > one);
    CHECK(four < step(text_of(64, 8000, "each")));
}

TEST_CASE("what does not go with a prefix that is read once is refused") {
    CHECK(errors_of(text_of(4, 100, "once", ", nano_batches: 2")).find("does not go with 'nano_batches'") !=
          std::string::npos);
    CHECK(errors_of(text_of(4, 100, "once", "", "deepseek-v2-lite")).find("no latent attention") != std::string::npos);
    CHECK(errors_of(text_of(4, 100, "once", ", groups: 2")).find("one attention group") != std::string::npos);
    CHECK(errors_of(text_of(4, 100, "once", ", groups: 2, nano_batches: 2")).find("nano_batches") != std::string::npos);
}
