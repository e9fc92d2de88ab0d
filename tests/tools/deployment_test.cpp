// Files of a deployment, read back by the importers of their engines: the same replicas, degrees, precision and budgets.

#include "tools/plan/deployment.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/support.hpp"
#include "tools/driver/kinds/serving.hpp"
#include "tools/driver/scenario_trial.hpp"
#include "workloads/imports/importer.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

using namespace orrery;
using namespace orrery::test;

namespace {

struct Deployed {
    const char* model;
    const char* node;
    std::int64_t nodes;
    const char* engine;
};

Scenario deployed(const Deployed& one) {
    return scenario(
        fmt::format("orrery: 1\nkind: serving\ncluster: {{nodes: {}, node: {}}}\nmodel: {}\nengine: {{{}}}\n"
                    "requests: {{rate: 1, prompt: {{mean: 500}}, output: {{mean: 100}}}}\n",
                    one.nodes, one.node, one.model, one.engine));
}

Scenario read_back(const DeploymentFile& file, const std::string& node) {
    static ModelCache models(data().read_once());
    const Imported out = import_file(
        file.importer,
        ImportInput::of_bytes(file.name, file.text, {{"node", node}}).with(models.data(), [](const std::string& text) {
            return trial_problem(text, models);
        }));
    for (const auto& [note, count] : out.notes.left_out()) {
        CHECK_MESSAGE(note.find("not understood") == std::string::npos, file.text << "\n" << note);
    }
    return scenario(out.text);
}

void check_phase(const PhaseSpec& is, const PhaseSpec& wanted, bool replicas) {
    CHECK(is.tensor == wanted.tensor);
    CHECK(is.pipeline == wanted.pipeline);
    CHECK(is.groups == wanted.groups);
    CHECK(is.expert == wanted.expert);
    if (replicas) {
        CHECK(is.replicas == wanted.replicas);
    }
    CHECK(is.scheduler.token_budget == wanted.scheduler.token_budget);
    CHECK(is.scheduler.max_sequences == wanted.scheduler.max_sequences);
    CHECK(is.scheduler.policy.name() == wanted.scheduler.policy.name());
}

}  // namespace

TEST_CASE("deployment: importers read every file back as the same arrangement") {
    const Deployed cases[] = {
        {"llama-3.1-70b", "dgx-h100", 1,
         "tensor: 4, replicas: 2, scheduler: {token_budget: 4096, max_sequences: 256}, kv: {memory: 0.85}"},
        {"llama-3.1-70b", "dgx-b200", 1,
         "tensor: 1, replicas: 3, weights: fp8, kv: {precision: fp8, prefix: {}}, scheduler: {max_sequences: 512}"},
        {"Qwen/Qwen3-8B", "p5en-h200", 1, "tensor: 1, replicas: 1, max_context: 16384"},
        {"llama-3.1-70b", "dgx-h200", 2,
         "prefill: {tensor: 2, replicas: 3, scheduler: {token_budget: 8192}}, decode: {tensor: 4, replicas: 1}, "
         "weights: fp8"},
        {"llama-3.1-70b", "dgx-h100", 2, "tensor: 8, pipeline: 2, max_context: 8192"},
        {"qwen3-235b-a22b", "dgx-h200", 1,
         "tensor: 1, groups: 8, expert: 8, weights: fp8, scheduler: {token_budget: 16384, max_sequences: 1024}"}};
    for (const Deployed& one : cases) {
        const Scenario wanted = deployed(one);
        const EngineSpec& engine = wanted.as<ServingKind>().engine;
        const auto files = deployment_files(wanted, one.model, one.node, data());
        CHECK(files.size() == 5);
        for (const DeploymentFile& file : files) {
            CAPTURE(file.text);
            const Scenario back = read_back(file, one.node);
            const EngineSpec& is = back.as<ServingKind>().engine;
            CHECK(is.split == engine.split);
            const bool alone = std::any_of(file.left_out.begin(), file.left_out.end(), [](const std::string& note) {
                return note.find("replicas: start the command") != std::string::npos;
            });
            // Only a server without a flag for them leaves replicas out.
            CHECK((!alone || file.name.find(".sh") != std::string::npos));
            if (engine.split) {
                check_phase(is.prefill, engine.prefill, !alone);
                check_phase(is.decode, engine.decode, !alone);
            } else {
                check_phase(is.mixed, engine.mixed, !alone);
            }
            CHECK(is.weights == engine.weights);
            CHECK(is.cache == engine.cache);
            CHECK(is.prefix_cache == engine.prefix_cache);
            CHECK(is.memory_fraction == doctest::Approx(engine.memory_fraction));
            CHECK((engine.max_context == 0 || is.max_context == engine.max_context));
            CHECK(back.cluster.node.gpu.name == wanted.cluster.node.gpu.name);
            CHECK(back.as<ServingKind>().model.layers == wanted.as<ServingKind>().model.layers);
            // What an engine brings with it: its own scheduler's host, collectives and size of the cache.
            CHECK(is.has_software);
            CHECK(is.of_free == (file.importer == "trtllm-args"));
        }
    }
}

TEST_CASE("deployment: what a file cannot say is said") {
    const Scenario speculating = deployed({"llama-3.1-8b", "dgx-h100", 1, "replicas: 2, speculation: {tokens: 3}"});
    for (const DeploymentFile& file : deployment_files(speculating, "llama-3.1-8b", "dgx-h100", data())) {
        CHECK(std::find(file.left_out.begin(), file.left_out.end(), "speculation") != file.left_out.end());
    }
    CHECK(published_name("llama-3.1-8b", data()).find("meta-llama/") == 0);
    CHECK(published_name("deepseek-v3", data()) == "deepseek-ai/DeepSeek-V3");  // in fp8, as it is published
    CHECK(published_name("Qwen/Qwen3-8B", data()) == "Qwen/Qwen3-8B");
}
