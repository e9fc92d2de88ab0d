#pragma once
// How an arrangement is started: command lines and manifests of serving engines.
//
// Claims: what the importers (workloads/imports) read back is the same replicas, degrees, precision of weights and cache, budgets and
// prefix cache on the same node. Engines differ in what they can be told, so that their files bring the engine's own scheduler, version
// and collectives with them. `left_out` says what a file cannot say: several replicas of a server that has no flag for them, say.
// Scope: mixed replicas that cut prompts to a budget, or whose scheduler goes by sequences alone; prefill beside decode of vLLM, SGLang,
// Dynamo and llm-d. Nothing else of a scenario (adapters, speculation, tiers of the cache) is written, and that is said.
// Sources: vLLM's documentation of `vllm serve` (0.19), SGLang's server_args.py (0.5), trtllm-serve's options (1.0), NVIDIA's Dynamo
// (DynamoGraphDeployment, v1alpha1), llm-d's guides (Deployments of vllm/vllm-openai by role).
// Validated by tests/tools/deployment_test.cpp.

#include "tools/driver/scenario.hpp"

#include <string>
#include <vector>

namespace orrery::plan {

struct DeploymentFile {
    std::string name;      ///< "vllm-serve.sh"
    std::string importer;  ///< "vllm-args"
    std::string text;
    std::vector<std::string> left_out;
};

/// Names of the files.
[[nodiscard]] std::vector<std::string> deployment_names();
/// The first line of one, which tells it from files of people.
[[nodiscard]] std::string deployment_mark(const std::string& name);

/// The files of a serving scenario whose model is called `model` (a preset or a name of a checkpoint), on nodes of the preset `node`
/// (empty: of no preset).
[[nodiscard]] std::vector<DeploymentFile> deployment_files(const Scenario& scenario, const std::string& model,
                                                           const std::string& node, const DataDirectory& data);

/// The name by which an engine downloads a model: that of a checkpoint as it is, and of a preset where its description comes from.
[[nodiscard]] std::string published_name(const std::string& model, const DataDirectory& data);

}  // namespace orrery::plan
