// Other tools' words for the keys of a scenario.

#include "tests/support/command.hpp"
#include "tests/support/scenarios.hpp"

#include <doctest/doctest.h>

using namespace orrery;
using namespace orrery::test;

TEST_CASE("words of other tools lead to the key, and unknown keys that are near none list those that there are") {
    const Folder folder;
    const std::string training = folder.file("training.yaml", kSmallTraining);
    const std::string serving = std::string(ORRERY_SOURCE_DIR) + "/scenarios/serving/llama-2-70b-conversations.yaml";
    const std::vector<std::pair<std::string, std::string>> cases = {
        {training + " --set plan.tp=2", "did you mean 'tensor'?"},
        {training + " --set plan.ep=2", "did you mean 'expert'?"},
        {training + " --set tp=2", "did you mean 'plan.tensor'?"},
        {training + " --set plan.gbs=64", "did you mean 'global_batch'?"},
        {training + " --set plan.micro-batch-size=64", "did you mean 'micro_batch'?"},
        {training + " --set parallelism.tp=2", "did you mean 'plan'?"},
        {training + " --set cluster.gpus=64", "did you mean 'nodes'?"},
        {training + " --set model.seq_len=4096", "did you mean 'sequence'?"},
        {training + " --set plan.seq_len=4096", "its place is model.sequence"},
        {serving + " --set engine.tensor-parallel-size=4", "did you mean 'tensor'?"},
        {serving + " --set engine.gpu_memory_utilization=0.8", "did you mean 'kv.memory'?"},
        {serving + " --set max_num_batched_tokens=512", "did you mean 'engine.scheduler.token_budget'?"},
        {serving + " --set requests.qps=4", "did you mean 'rate'?"},
        {training + " --set zzzzzz=2", "the keys here are cluster, compute, expect, faults"},
        {training + " --set plan.zzzzzz=2",
         "the keys here are adapters, attention, capacity, chunks, combine_precision, compression"},
    };
    // Keys that nothing is like are answered with the list of those that there are, once.
    const Outcome several = orrery_command("run " + training + " --set plan.zzzzzz=2 --set plan.qqqqqq=2");
    const auto first = several.text.find("the keys here are");
    CHECK(first != std::string::npos);
    CHECK_MESSAGE(several.text.find("the keys here are", first + 1) == std::string::npos, several.text);
    for (const auto& [arguments, expected] : cases) {
        const Outcome out = orrery_command("run " + arguments);
        CHECK_MESSAGE(out.code == 2, arguments);
        CHECK_MESSAGE(out.text.find(expected) != std::string::npos, arguments << "\n" << out.text);
    }
}
