#include "tests/support/scenarios.hpp"
#include "tests/workloads/serving_support.hpp"
#include "workloads/serving/spec.hpp"

#include <doctest/doctest.h>

using namespace orrery;

namespace {

GivenStepSpec step_of(const std::string& text) {
    GivenStepSpec step;
    std::vector<Diagnostic> errors;
    read_fields(parse_yaml(text, "step"), DataDirectory(ORRERY_SOURCE_DIR), errors,
                [&](Fields& fields) { describe(fields, step); });
    if (!errors.empty()) {
        throw ConfigError(errors);
    }
    return step;
}

Batch decodes(std::uint32_t sequences, std::uint32_t context) {
    Batch batch;
    for (std::uint32_t i = 0; i < sequences; ++i) {
        batch.items.push_back({i, 1, context});
    }
    return batch;
}

double milliseconds(GivenStep& step, const Batch& batch) {
    return 1e3 * step.seconds(batch);
}

constexpr const char* kGrid =
    "{fixed: 1 ms, table: [{sequences: 4, context: 1000, time: 8 ms}, {sequences: 2, context: 100, time: 2 ms}, "
    "{sequences: 2, context: 1000, time: 4 ms}, {sequences: 4, context: 100, time: 3 ms}]}";

}  // namespace

TEST_CASE("given step: prompts, decodes and both in one iteration take what the scenario says") {
    GivenStep step(
        step_of("{fixed: 2 ms, token: 10 us, square: 1 ns, sequence: 0.1 ms, context: 20 ns, mixed: 1.5, "
                "beyond: {sequences: 3, fixed: 7 ms, sequence: 1 ms}}"));
    Batch prompt;
    prompt.items = {{0, 500, 500}};
    CHECK(milliseconds(step, prompt) == doctest::Approx(2 + 5 + 0.25));
    // A later piece attends to what came before it as well.
    prompt.items = {{0, 500, 2000}};
    CHECK(milliseconds(step, prompt) == doctest::Approx(2 + 5 + 1));
    CHECK(milliseconds(step, decodes(2, 1000)) == doctest::Approx(2 + 0.2 + 0.04));
    Batch both = decodes(2, 1000);
    both.items.push_back({2, 500, 500});
    CHECK(milliseconds(step, both) == doctest::Approx(2 + 1.5 * (5.25 + 0.24)));
    // From three decoding sequences on other constants hold; drafts and finished places count as sequences.
    CHECK(milliseconds(step, decodes(3, 1000)) == doctest::Approx(7 + 3));
    Batch padded = decodes(2, 1000);
    padded.padded = 1;
    CHECK(milliseconds(step, padded) == doctest::Approx(7 + 3));
}

TEST_CASE("given step: a table is met at its points, linear between them, and ends where it ends") {
    GivenStep step(step_of(kGrid));
    CHECK(milliseconds(step, decodes(2, 100)) == doctest::Approx(1 + 2));
    CHECK(milliseconds(step, decodes(2, 1000)) == doctest::Approx(1 + 4));
    CHECK(milliseconds(step, decodes(4, 1000)) == doctest::Approx(1 + 8));
    CHECK(milliseconds(step, decodes(3, 550)) == doctest::Approx(1 + (2 + 4 + 3 + 8) / 4.0));
    CHECK(milliseconds(step, decodes(1, 10)) == doctest::Approx(1 + 2));
    CHECK_THROWS_AS((void)step.seconds(decodes(5, 100)), InfeasibleError);
    CHECK_THROWS_AS((void)step.seconds(decodes(2, 1001)), InfeasibleError);
}

TEST_CASE("given step: gaps, repeated points, no time at all and two ways to say one thing are named together") {
    CHECK(problems_of(step_of(kGrid)).empty());
    const std::vector<std::string> gap = problems_of(
        step_of("{sequence: 1 ms, table: [{sequences: 4, context: 9, time: 8 ms}, {sequences: 2, time: 2 ms}, "
                "{sequences: 2, time: 3 ms}]}"));
    CHECK(gap == std::vector<std::string>{
                     "'step_cost' has a 'table' beside 'sequence', 'context' or 'beyond': it says what they say",
                     "'step_cost.table' has two times for 2 sequences of context 0",
                     "'step_cost.table' has a gap: no time for 2 sequences of context 9",
                     "'step_cost.table' has a gap: no time for 4 sequences of context 0"});
    CHECK(problems_of(step_of("{token: 1 ms}")).size() == 1);
    CHECK_THROWS_AS((void)step_of("{fixed: -1 ms}"), ConfigError);
    CHECK_THROWS_AS((void)step_of("{table: [{sequences: 1, time: -1 ms}]}"), ConfigError);
}

TEST_CASE("given step: 'square' counts each pair of a served prompt once, in one piece or in chunks") {
    for (const int budget : {1024, 250}) {
        test::ListSource source({test::request(1, 1000, 1)});
        GivenStep cost(step_of("{square: 1 us, fixed: 1 us}"));
        const ServiceResult result =
            test::serve_with(test::spec_of("chunked-prefill", budget, 8, 100, 16), source, cost);
        REQUIRE(result.requests.size() == 1);
        // A piece of 250 tokens attends to itself and to all pieces before it: 250 (250 + 500 + 750 + 1,000).
        CHECK(result.requests[0].ttft == doctest::Approx(budget == 1024 ? 1.0 : 0.625).epsilon(1e-4));
    }
}

TEST_CASE("given step: a lone request takes its prompt's iteration and one for each further token") {
    test::ListSource source({test::request(1, 512, 128)});
    GivenStep cost(step_of("{fixed: 2 ms, token: 10 us, sequence: 1 ms, context: 0.1 us}"));
    const ServiceResult result = test::serve_with(test::spec_of("chunked-prefill", 1024, 8, 100, 16), source, cost);
    REQUIRE(result.requests.size() == 1);
    CHECK(result.requests[0].ttft == doctest::Approx(2e-3 + 512e-5).epsilon(1e-6));
    // Token i + 1 looks back on 512 + i tokens.
    const double later = 127 * (2e-3 + 1e-3) + 1e-7 * (127 * 512 + 127 * 128 / 2.0);
    CHECK(result.requests[0].e2e == doctest::Approx(2e-3 + 512e-5 + later).epsilon(1e-6));
}

TEST_CASE("given step: what it replaces is refused beside it") {
    const std::string said = test::refusal(
        "orrery: 1\nkind: serving\ncluster: {nodes: 1, node: dgx-h100}\nmodel: llama-3-8b\n"
        "engine: {step_cost: {fixed: 1 ms}, software: vllm-0.24, lora: {rank: 8}, clock: 80 %}\n");
    for (const char* key : {"software", "lora", "clock"}) {
        CHECK_MESSAGE(
            said.find(fmt::format("'engine.{}' has no effect without prices of kernels", key)) != std::string::npos,
            said);
    }
}
