// The command line of vLLM (vllm serve, vllm/engine/arg_utils.py; its benchmarks' --request-rate and the like) as a serving
// scenario: the engine, and requests where the line says them.
//
// Claims: the flags that decide times and memory here, with vLLM's own defaults where they differ from Orrery's. The model
// keeps its name, by which scenarios find its preset and precision; 'orrery import hf-config' describes others.

#include "sim/base/error.hpp"
#include "workloads/imports/command_text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::imports {

namespace {

std::string written(const std::optional<std::int64_t>& value) {
    return value ? std::to_string(*value) : "";
}

// The name as it stands, as a YAML word: scenarios find presets by the names of checkpoints. Empty where it is none, such as "...".
std::string model_word(const std::string& name) {
    const auto plain = [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_' || c == '/';
    };
    const bool named = std::any_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
    return named && std::all_of(name.begin(), name.end(), plain) ? name.substr(0, 200) : "";
}

std::string weights_of(CommandText& flags) {
    const std::string how = flags.text({"quantization", "q"});
    return how.rfind("fp8", 0) == 0                                                        ? "fp8"
           : how.find("awq") != std::string::npos || how.find("gptq") != std::string::npos ? "int4"
                                                                                           : "";
}

std::string scheduler_of(CommandText& flags) {
    const auto tokens = flags.whole({"max-num-batched-tokens"});
    const auto sequences = flags.whole({"max-num-seqs"});
    const bool whole = flags.has("no-enable-chunked-prefill") || flags.text({"enable-chunked-prefill"}) == "false";
    return fmt::format("{{kind: {}{}{}}}", whole ? "vllm-v0" : "chunked-prefill",
                       tokens ? fmt::format(", token_budget: {}", *tokens) : "",
                       sequences ? fmt::format(", max_sequences: {}", *sequences) : "");
}

std::string cache_of(CommandText& flags) {
    const std::string memory = flags.text({"gpu-memory-utilization"});
    const auto block = flags.whole({"block-size"});
    const auto blocks = flags.whole({"num-gpu-blocks-override"});
    const bool eight = flags.text({"kv-cache-dtype"}).rfind("fp8", 0) == 0;
    const bool prefix = !flags.has("no-enable-prefix-caching") && flags.has("enable-prefix-caching");
    return fmt::format("{{memory: {}{}{}{}{}}}", memory.empty() ? "0.9" : memory,
                       block ? fmt::format(", block: {}", *block) : "",
                       blocks ? fmt::format(", blocks: {}", *blocks) : "", eight ? ", precision: fp8" : "",
                       prefix ? ", prefix: {}" : "");
}

YamlLines engine_of(CommandText& flags, std::int64_t tensor, std::int64_t pipeline, std::int64_t replicas) {
    const auto loras = flags.whole({"max-loras"});
    return {
        {"replicas", std::to_string(replicas)},
        {"tensor", std::to_string(tensor)},
        {"pipeline", pipeline > 1 ? std::to_string(pipeline) : ""},
        {"expert", flags.has("enable-expert-parallel") ? std::to_string(tensor) : ""},
        {"scheduler", scheduler_of(flags)},
        {"kv", cache_of(flags)},
        {"weights", weights_of(flags)},
        {"max_context", written(flags.whole({"max-model-len"}))},
        {"lora", flags.has("enable-lora") ? fmt::format("{{rank: {}, slots: {}}}",
                                                        flags.whole({"max-lora-rank"}).value_or(16), loras.value_or(1))
                                          : ""},
        {"software", "vllm-0.11"}};
}

YamlLines requests_of(CommandText& flags, ImportNotes& notes) {
    const std::string rate = flags.text({"request-rate"});
    const auto prompt = flags.whole({"random-input-len", "input-len"});
    const auto output = flags.whole({"random-output-len", "output-len"});
    if (rate.empty() || rate == "inf") {
        notes.assumed("a rate of 1 request per second (requests.rate)");
    }
    if (!prompt || !output) {
        notes.assumed(
            "prompts of 1,024 and outputs of 256 tokens on average, where the text has none (requests.prompt, "
            "requests.output)");
    }
    return {{"rate", rate.empty() || rate == "inf" ? "1" : rate},
            {"count", written(flags.whole({"num-prompts"}))},
            {"prompt", fmt::format("{{kind: {}, mean: {}}}", prompt ? "fixed" : "lognormal", prompt.value_or(1024))},
            {"output", fmt::format("{{kind: {}, mean: {}}}", output ? "fixed" : "lognormal", output.value_or(256))}};
}

Imported read_vllm_arguments(const ImportInput& input) {
    CommandText flags(input.bytes(), input.path());
    Imported out;
    std::string model = flags.text({"model"});
    const auto& words = flags.words();
    const auto serve = std::find(words.begin(), words.end(), "serve");
    if (model.empty() && serve != words.end() && serve + 1 != words.end()) {
        model = *(serve + 1);
    }
    model = model_word(model);
    if (model.empty()) {
        throw ConfigError({Diagnostic{input.path(), 1, 1, "names no model: --model NAME, or vllm serve NAME",
                                      ErrorCode::malformed_trace}});
    }
    out.notes.assumed(
        fmt::format("'{}' leads to a preset and the precision of its checkpoint (orrery list models; orrery import "
                    "hf-config describes others)",
                    model));
    const std::int64_t tensor = flags.degree({"tensor-parallel-size", "tp"});
    const std::int64_t pipeline = flags.degree({"pipeline-parallel-size", "pp"});
    const std::int64_t replicas = flags.degree({"data-parallel-size", "dp"});
    const std::int64_t gpus = tensor * pipeline * replicas;
    std::string node = input.option("node");
    if (node.empty()) {
        node = "dgx-h100";
        out.notes.assumed("nodes of dgx-h100 (--node NAME; orrery list nodes)");
    }
    out.notes.assumed("host costs of vLLM 0.11 (engine.software; orrery list engines)");
    const YamlLines engine = engine_of(flags, tensor, pipeline, replicas);
    out.text =
        "# What do clients of this vLLM see? Written by 'orrery import vllm-args'.\norrery: 1\nkind: serving\n" +
        yaml_section("cluster", {{"nodes", std::to_string((gpus + 7) / 8)},
                                 {"node", gpus < 8 ? fmt::format("{{preset: {}, gpus: {}}}", node, gpus) : node}}) +
        fmt::format("model: {}\n", model) + yaml_section("engine", engine) +
        yaml_section("requests", requests_of(flags, out.notes));
    out.use = "'orrery run' as it is";
    flags.count(out.notes);
    out.facts.push_back({"GPUs", std::to_string(gpus)});
    return out;
}

}  // namespace

extern const Importer kVllmImporter = {"vllm-args",
                                       "a vLLM command line, as a serving scenario",
                                       {{"node", "NAME", "what a node is (orrery list nodes)"}},
                                       read_vllm_arguments,
                                       "yaml"};

}  // namespace orrery::imports
