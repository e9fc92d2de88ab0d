// Presets of models against what is published of them, and the names that lead to them.

#include "workloads/model/model_names.hpp"

#include "sim/base/error.hpp"
#include "sim/config/fields.hpp"
#include "workloads/model/model_spec.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

using namespace orrery;

namespace {

DataDirectory data() {
    return DataDirectory(ORRERY_SOURCE_DIR);
}

ModelSpec preset(const std::string& name) {
    ModelSpec model;
    std::vector<Diagnostic> errors;
    read_fields(load_yaml(data().path(kModelPresets, name)), data(), errors,
                [&](Fields& fields) { describe(fields, model); });
    REQUIRE_MESSAGE(errors.empty(), name);
    complete(model);
    return model;
}

}  // namespace

TEST_CASE("every preset of a model has a source and the parameters that are published") {
    std::map<std::string, ModelSource> sources;
    for (const ModelSource& row : model_sources(data())) {
        CHECK_MESSAGE(sources.emplace(row.preset, row).second, row.preset << " has two rows");
    }
    for (const std::string& name : data().names(kModelPresets)) {
        const auto found = sources.find(name);
        REQUIRE_MESSAGE(found != sources.end(), name << " has no row in model_sources.csv");
        const ModelSource& source = found->second;
        const ModelSpec model = preset(name);
        CHECK_MESSAGE(model.name == name, name);
        CHECK_MESSAGE(!source.source.empty(), name);
        const double total = model.parameters() / 1e9;
        const double error = std::abs(total / source.total - 1) * 100;
        CHECK_MESSAGE(error <= source.tolerance, name << ": " << total << " B, published " << source.total << " B");
        // A wider tolerance is for what the description leaves out, or for a published figure in whole billions.
        CHECK_MESSAGE((source.tolerance <= 2 || !source.not_modelled.empty()), name);
        // Of published active parameters some count the embedding, some the head alone, and some neither.
        const double active = active_parameters(model) / 1e9;
        const double tables = 2 * model.embedding_parameters() / 1e9;
        const bool near = active - tables < source.active * 1.1 && active > source.active * 0.9;
        CHECK_MESSAGE((near || source.active == 0 || !source.not_modelled.empty()),
                      name << ": " << active << " B active, published " << source.active << " B");
        sources.erase(found);
    }
    for (const auto& [name, source] : sources) {
        FAIL_CHECK(name << " has a row in model_sources.csv and is no preset");
    }
}

TEST_CASE("names that command lines use lead to a preset and the precision of the checkpoint") {
    struct Case {
        std::string name;
        const char* preset;
        const char* precision;
    };
    for (const Case& c : std::initializer_list<Case>{
             // Recipes of vLLM.
             {"arcee-ai/Trinity-Large-Thinking", "trinity-large", ""},
             {"PaddlePaddle/PaddleOCR-VL", "ernie-4.5-0.3b", ""},
             {"Qwen/Qwen3-ASR-1.7B", "qwen3-1.7b", ""},
             {"jinaai/jina-reranker-m0", "qwen2.5-1.5b", ""},
             {"tencent/HunyuanOCR", "hunyuan-0.5b", ""},
             {"/path/to/Trinity-Large-Thinking", "trinity-large", ""},
             {"deepseek-ai/DeepSeek-R1-0528", "deepseek-v3", "fp8"},
             {"nvidia/DeepSeek-R1-FP4", "deepseek-v3", "bf16, experts in fp4"},
             {"deepseek-ai/DeepSeek-V3.1", "deepseek-v3", "fp8"},
             {"deepseek-ai/DeepSeek-V3.2-Exp", "deepseek-v3.2", "fp8"},
             {"deepseek-ai/DeepSeek-V3.2", "deepseek-v3.2", "fp8"},
             {"baidu/ERNIE-4.5-VL-28B-A3B-PT", "ernie-4.5-21b-a3b", ""},
             {"baidu/ERNIE-4.5-VL-424B-A47B-PT", "ernie-4.5-300b-a47b", ""},
             {"baidu/ERNIE-4.5-21B-A3B-PT", "ernie-4.5-21b-a3b", ""},
             {"baidu/ERNIE-4.5-300B-A47B-PT", "ernie-4.5-300b-a47b", ""},
             {"internlm/Intern-S1", "qwen3-235b-a22b", ""},
             {"internlm/Intern-S1-FP8", "qwen3-235b-a22b", "fp8"},
             {"OpenGVLab/InternVL3_5-8B", "qwen3-8b", ""},
             {"LiquidAI/LFM2.5-1.2B-Instruct", "lfm2-1.2b", ""},
             {"LiquidAI/LFM2.5-8B-A1B", "lfm2.5-8b-a1b", ""},
             {"nvidia/Llama-3.3-70B-Instruct-FP4", "llama-3.1-70b", "fp4"},
             {"nvidia/Llama-3.3-70B-Instruct-FP8", "llama-3.1-70b", "fp8"},
             {"nvidia/Llama-4-Scout-17B-16E-Instruct-FP4", "llama-4-scout", "bf16, experts in fp4"},
             {"XiaomiMiMo/MiMo-V2-Flash", "mimo-v2-flash", "fp8"},
             {"microsoft/Phi-4-mini-instruct", "phi-4-mini", ""},
             {"openai/gpt-oss-20b", "gpt-oss-20b", "bf16, experts in fp4"},
             {"openai/gpt-oss-120b", "gpt-oss-120b", "bf16, experts in fp4"},
             {"amd/gpt-oss-120b-w-mxfp4-a-fp8", "gpt-oss-120b", "bf16, experts in fp4"},
             {"Qwen/Qwen2.5-VL-72B-Instruct", "qwen2.5-72b", ""},
             {"Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5-7b", ""},
             {"Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen3-coder-480b-a35b", ""},
             {"Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", "qwen3-coder-480b-a35b", "fp8"},
             {"Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3-next-80b-a3b", ""},
             {"Qwen/Qwen3-Next-80B-A3B-Instruct-FP8", "qwen3-next-80b-a3b", "fp8"},
             {"Qwen/Qwen3-VL-235B-A22B-Instruct-FP8", "qwen3-235b-a22b", "fp8"},
             {"Qwen/Qwen3-VL-235B-A22B-Instruct", "qwen3-235b-a22b", ""},
             {"Qwen/Qwen3.6-35B-A3B", "qwen3.5-35b-a3b", ""},
             {"Qwen/Qwen3.5-397B-A17B", "qwen3.5-397b-a17b", ""},
             {"Qwen/Qwen3.5-397B-A17B-FP8", "qwen3.5-397b-a17b", "fp8"},
             {"nvidia/Qwen3.5-397B-A17B-NVFP4", "qwen3.5-397b-a17b", "bf16, experts in fp4"},
             {"Qwen/Qwen3Guard-Gen-0.6B", "qwen3-0.6b", ""},
             {"ByteDance-Seed/Seed-OSS-36B-Instruct", "seed-oss-36b", ""},
             {"stepfun-ai/Step-3.5-Flash", "step-3.5-flash", ""},
             {"stepfun-ai/Step-3.7-Flash-FP8", "step-3.5-flash", "fp8"},
             {"stepfun-ai/Step-3.7-Flash-NVFP4", "step-3.5-flash", "bf16, experts in fp4"},
             {"inclusionAI/Ring-1T-FP8", "ling-1t", "fp8"},
             {"moonshotai/Kimi-K2-Thinking", "kimi-k2", "bf16, experts in int4"},
             // Checkpoints that others trained or stored anew.
             {"OpenGVLab/InternVL3-78B-Instruct", "qwen2.5-72b", ""},
             {"nvidia/DeepSeek-R1-0528-NVFP4-v2", "deepseek-v3", "bf16, experts in fp4"},
             {"nvidia/Llama-3_3-Nemotron-Super-49B-v1_5-FP8", "llama-3.3-nemotron-super-49b", "fp8"},
             {"PrimeIntellect/INTELLECT-3-FP8", "glm-4.5-air", "fp8"},
             {"allenai/Olmo-3.1-32B-Think", "olmo-3-32b", ""},
             {"ISTA-DASLab/gemma-3-27b-it-GPTQ-4b-128g", "gemma-3-27b", "int4"},
             {"bartowski/Llama-3.3-70B-Instruct-GGUF", "llama-3.1-70b", "int4"},
             {"openai/gpt-oss-safeguard-20b", "gpt-oss-20b", "bf16, experts in fp4"},
             {"tencent/Hunyuan-MT-7B-fp8", "hunyuan-7b", "fp8"},
             {"google/gemma-3n-E4B-it", "gemma-3n-e4b", ""},
             {"moonshotai/Kimi-K2.5", "kimi-k2", "bf16, experts in int4"},
             {"nvidia/Kimi-K2.5-NVFP4", "kimi-k2", "bf16, experts in fp4"},
             {"moonshotai/Kimi-K2-Instruct", "kimi-k2", "fp8"},
             {"moonshotai/Kimi-Linear-48B-A3B-Instruct", "kimi-linear-48b-a3b", ""},
             // Published configurations.
             {"MiniMaxAI/MiniMax-M2.7", "minimax-m2", "fp8"},
             {"nvidia/MiniMax-M2.5-NVFP4", "minimax-m2", "bf16, experts in fp4"},
             {"Qwen/Qwen3-32B-FP8-Static-PerTensor", "qwen3-32b", "fp8"},
             {"Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b", "fp8"},
             {"nvidia/Qwen3-235B-A22B-NVFP4", "qwen3-235b-a22b", "fp4"},
             {"nvidia/Qwen3.5-122B-A10B-NVFP4", "qwen3.5-122b-a10b", "bf16, experts in fp4"},
             {"XiaomiMiMo/MiMo-7B-Base", "mimo-7b", ""},
             {"deepseek-ai/DeepSeek-V4-Flash", "deepseek-v4-flash", "fp8, experts in fp4"},
             {"sgl-project/DeepSeek-V4-Flash-FP8", "deepseek-v4-flash", "fp8"},
             {"nvidia/DeepSeek-V3.1-NVFP4", "deepseek-v3", "bf16, experts in fp4"},
             {"meta-llama/Llama-4-Maverick-17B-128E-Instruct", "llama-4-maverick", ""},
             {"meta-llama/Meta-Llama-3.1-405B", "llama-3.1-405b", ""},
             {"nvidia/Llama-3.1-70B-Instruct-FP8", "llama-3.1-70b", "fp8"},
             {"mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b", ""},
             {"moonshotai/Kimi-K3", "kimi-k3", "bf16, experts in fp4"},
             {"nvidia/Kimi-K2.7-Code-NVFP4", "kimi-k2", "bf16, experts in fp4"},
             {"nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4", "nemotron-3-nano-30b-a3b", "bf16, experts in fp4"},
             {"nvidia/Nemotron-H-56B-Base-8K", "nemotron-h-56b", ""},
             {"zai-org/GLM-5.1-FP8", "glm-5", "fp8"},
             {"nvidia/GLM-5-NVFP4", "glm-5", "bf16, experts in fp4"},
             {"mistralai/Ministral-3-14B-Instruct-2512", "ministral-3-14b", "fp8"},
             {"mistralai/Ministral-3-3B-Reasoning-2512", "ministral-3-3b", ""},
             {"MiniMaxAI/MiniMax-M3", "minimax-m3-428b-a23b", ""},
             {"ai21labs/Jamba-v0.1", "jamba-52b-a12b", ""},
             {"ibm-granite/granite-4.0-h-small", "granite-4.0-h-small", ""},
             {"xai-org/grok-1", "grok-1", ""},
             // Names that no row has.
             {"qwen/qwen3-14b-awq", "qwen3-14b", "int4"},
             {"JunHowie/Qwen3-32B-GPTQ-Int4", "qwen3-32b", "int4"},
             {"RedHatAI/Qwen2.5-7B-Instruct-quantized.w8a8", "qwen2.5-7b", "int8"},
             {"meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b", ""},
             {"meta-llama/Llama-2-7b-chat-hf", "llama-2-7b", ""},
             {"mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b", ""},
             {"mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral-small-24b", ""},
             {"google/gemma-3-27b-it", "gemma-3-27b", ""},
             {"deepseek-ai/DeepSeek-V3-0324", "deepseek-v3", "fp8"},
             {"unsloth/DeepSeek-V3-BF16", "deepseek-v3", "bf16"},
             {"Qwen/Qwen3-30B-A3B-Thinking-2507-FP8", "qwen3-30b-a3b", "fp8"},
             {"zai-org/GLM-4.6-FP8", "glm-4.5", "fp8"},
             // The name of a preset is that preset, in whatever precision the engine has.
             {"deepseek-v3", "deepseek-v3", ""},
             {"gpt-oss-120b", "gpt-oss-120b", ""},
         }) {
        const std::optional<NamedCheckpoint> found = find_checkpoint(c.name, data());
        REQUIRE_MESSAGE(found.has_value(), c.name);
        CHECK_MESSAGE(found->preset == c.preset, c.name);
        CHECK_MESSAGE(found->precision() == c.precision, c.name);
    }
    CHECK(find_checkpoint("OpenGVLab/InternVL3_5-8B", data())->left_out == "vision encoder");
    CHECK(find_checkpoint("Qwen/Qwen3-30B-A3B-FP8", data())->scaling == "block");
    CHECK(find_checkpoint("nvidia/Qwen3-30B-A3B-FP8", data())->scaling == "tensor");
    CHECK(find_checkpoint("Qwen/Qwen3-32B-FP8", data())->scaling.empty());  // it has no experts
    for (const std::string unknown : {"somebody/else-7b", "-fp8", "", "/", "Qwen/", "qwen/-instruct", "meta-"}) {
        CHECK_MESSAGE(!find_checkpoint(unknown, data()).has_value(), unknown);
    }
}

TEST_CASE("every name in the table of names leads to a preset") {
    std::ifstream table(data().path("workloads/data/model_names.csv"));
    std::string line;
    std::getline(table, line);
    int rows = 0;
    while (std::getline(table, line)) {
        const std::string name = line.substr(0, line.find(','));
        if (line.empty() || line[0] == '#' || name.find('*') != std::string::npos) {
            continue;
        }
        ++rows;
        CHECK_MESSAGE(find_checkpoint(name, data()).has_value(), name);
    }
    CHECK(rows > 100);
}

TEST_CASE("a table of names in a folder of the user's own goes first") {
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("orrery-names-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder / "workloads" / "data");
    const std::string table = (folder / "workloads" / "data" / "model_names.csv").string();
    std::ofstream(table) << "name,preset,weights,experts,scaling,left_out\nours/chat-large,qwen3-32b,int8,,,\n"
                            "qwen/qwq-32b,qwen3-32b,,,,\n";
    const DataDirectory own = data().with_own(folder.string());
    CHECK(find_checkpoint("ours/Chat-Large", own)->precision() == "int8");
    CHECK(find_checkpoint("Qwen/QwQ-32B", own)->preset == "qwen3-32b");
    CHECK(find_checkpoint("Qwen/Qwen3-8B-AWQ", own)->preset == "qwen3-8b");
    std::ofstream(table) << "name\nours/chat-large,qwen3-32b\n";
    CHECK_THROWS_WITH_AS((void)find_checkpoint("x", own), doctest::Contains(":2:1: error: has 2 columns"), ConfigError);
    std::ofstream(table) << "name\nours/chat,qwen3-33b,,,,\n";
    CHECK_THROWS_WITH_AS((void)find_checkpoint("ours/chat", own),
                         doctest::Contains(":2:1: error: 'qwen3-33b' is no preset"), ConfigError);
    std::ofstream(table) << "name\n*,qwen3-32b,,,,\n";
    CHECK_THROWS_WITH_AS((void)find_checkpoint("ours/chat", own), doctest::Contains(":2:1: error: names nothing"),
                         ConfigError);
    std::filesystem::remove_all(folder);
}

TEST_CASE("checkpoints say how long a sequence they take and how they store keys and values") {
    struct Case {
        const char* name;
        std::int64_t context;
        const char* cache;
    };
    const Case cases[] = {{"deepseek-ai/DeepSeek-R1-0528", 163840, ""},
                          {"deepseek-v3", 163840, ""},
                          {"nvidia/DeepSeek-V3.1-NVFP4", 163840, "fp8"},
                          {"nvidia/DeepSeek-R1-FP4", 163840, ""},
                          {"moonshotai/Kimi-K2-Instruct", 131072, ""},
                          {"moonshotai/Kimi-K2-Thinking", 262144, ""},
                          {"Qwen/Qwen2.5-7B", 0, ""},
                          {"Qwen/Qwen2.5-7B-Instruct-AWQ", 32768, ""},
                          {"Qwen/Qwen3-235B-A22B-FP8", 40960, ""},
                          {"Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", 262144, ""},
                          {"nvidia/Qwen3-235B-A22B-NVFP4", 40960, "fp8"},
                          {"nvidia/Llama-3.3-70B-Instruct-FP8", 0, "fp8"},
                          {"RedHatAI/Llama-3.3-70B-Instruct-FP8", 0, ""}};
    for (const Case& one : cases) {
        CAPTURE(one.name);
        const std::optional<NamedCheckpoint> found = find_checkpoint(one.name, data());
        REQUIRE(found.has_value());
        CHECK(found->context == one.context);
        CHECK(found->cache == one.cache);
    }
}
