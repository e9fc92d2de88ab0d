// Scenarios that name a checkpoint in place of a preset.

#include "tests/support/scenarios.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/kinds/training.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

using namespace orrery;

namespace {

std::string served(const std::string& model, const std::string& engine) {
    return fmt::format(
        "orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: {}\nengine: {{tensor: 8{}}}\n"
        "requests: {{rate: 1, count: 2, prompt: 64, output: 4}}\n",
        model, engine);
}

bool notes(const Scenario& scenario, const std::string& text) {
    const std::vector<std::string>& all = scenario.without_effect;
    return std::any_of(all.begin(), all.end(),
                       [&](const std::string& note) { return note.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("a served checkpoint brings its preset and its precision, unless the engine has another") {
    const Scenario dense = test::scenario(served("Qwen/Qwen3-32B-FP8", ""));
    CHECK(dense.as<ServingKind>().model.name == "qwen3-32b");
    CHECK(dense.as<ServingKind>().engine.weights == Precision::fp8);
    CHECK(!dense.as<ServingKind>().engine.experts.has_value());
    CHECK(test::scenario(served("Qwen/Qwen3-32B-FP8", ", weights: bf16")).as<ServingKind>().engine.weights ==
          Precision::bf16);
    CHECK(test::scenario(served("Qwen/Qwen3-32B", "")).as<ServingKind>().engine.weights == Precision::bf16);
    CHECK(test::scenario(served("{preset: Qwen/Qwen3-14B-AWQ, sequence: 1024}", "")).as<ServingKind>().engine.weights ==
          Precision::int4);
    const Scenario experts = test::scenario(served("openai/gpt-oss-120b", ""));
    CHECK(experts.as<ServingKind>().engine.weights == Precision::bf16);
    CHECK(experts.as<ServingKind>().engine.experts == Precision::fp4);
    const Scenario blocks = test::scenario(served("deepseek-ai/DeepSeek-R1-0528", ""));
    CHECK(blocks.as<ServingKind>().engine.weights == Precision::fp8);
    CHECK(blocks.as<ServingKind>().engine.scaling == Scaling::block);
    // The name of a preset says nothing of precision.
    CHECK(test::scenario(served("gpt-oss-120b", ", weights: fp8")).as<ServingKind>().engine.weights == Precision::fp8);
    CHECK(!test::scenario(served("gpt-oss-120b", "")).as<ServingKind>().engine.experts.has_value());
}

TEST_CASE("what a preset leaves out of a model is a note of its runs") {
    CHECK(notes(test::scenario(served("MiniMaxAI/MiniMax-M3", "")), "not modelled of minimax-m3-428b-a23b: that the"));
    CHECK(
        notes(test::scenario(served("Qwen/Qwen2.5-VL-72B-Instruct", "")), "'qwen2.5-72b', without its vision encoder"));
    CHECK(!notes(test::scenario(served("Qwen/Qwen3-32B-FP8", "")), "qwen3"));
}

TEST_CASE("training takes checkpoints in 16 bits by their names and refuses others") {
    const auto training = [](const std::string& model) {
        return fmt::format(
            "orrery: 1\nkind: training\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: {{preset: {}, sequence: 1024}}\n"
            "plan: {{tensor: 8, micro_batch: 1, global_batch: 1}}\n",
            model);
    };
    CHECK(test::scenario(training("meta-llama/Llama-3.1-8B-Instruct")).as<TrainingKind>().model.name == "llama-3.1-8b");
    const std::string said = test::refusal(training("Qwen/Qwen3-32B-FP8"));
    CHECK_MESSAGE(said.find("'Qwen/Qwen3-32B-FP8' is a checkpoint in fp8, and training starts from weights in 16 bits: "
                            "name the preset 'qwen3-32b'") != std::string::npos,
                  said);
}

TEST_CASE("every preset of a model survives its resolved scenario, served and trained") {
    int served = 0;
    for (const std::string& name : test::data().names(kModelPresets)) {
        for (const char* rest :
             {"kind: serving\nmodel: {}\n", "kind: training\nmodel: {}\nplan: {{global_batch: 8}}\n"}) {
            const std::string text =
                "orrery: 1\ncluster: {nodes: 1, node: dgx-h100}\n" + fmt::format(fmt::runtime(rest), name);
            std::string once;
            try {
                once = resolved_json(test::scenario(text));
            } catch (const ConfigError&) {
                continue;  // a kind may not have what the model is made of
            }
            ++served;
            std::string twice;
            CHECK_NOTHROW_MESSAGE(twice = resolved_json(test::scenario(once)), name);
            CHECK_MESSAGE(twice == once, name);
        }
    }
    CHECK(served > 200);
}
