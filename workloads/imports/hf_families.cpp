#include "workloads/imports/hf_families.hpp"

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::imports {

namespace {

using Json = nlohmann::json;

bool is_word(std::string_view text, std::string_view words) {
    const std::vector<std::string_view> all = split(words, ' ');
    return !text.empty() && std::find(all.begin(), all.end(), text) != all.end();
}

// Whole numbers that transformers' configurations of these types start from (models/*/configuration_*.py).
const std::map<std::string, std::vector<std::pair<const char*, std::int64_t>>>& class_defaults() {
    static const std::map<std::string, std::vector<std::pair<const char*, std::int64_t>>> kDefaults = {
        {"llama",
         {{"hidden_size", 4096},
          {"num_hidden_layers", 32},
          {"num_attention_heads", 32},
          {"intermediate_size", 11008},
          {"vocab_size", 32000}}},
        {"deepseek_v4",
         {{"head_dim", 512},
          {"q_lora_rank", 1024},
          {"o_lora_rank", 1024},
          {"o_groups", 8},
          {"sliding_window", 128},
          {"index_n_heads", 64},
          {"index_head_dim", 128},
          {"index_topk", 512},
          {"hc_mult", 4}}},
        {"mistral",
         {{"hidden_size", 4096},
          {"num_hidden_layers", 32},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"intermediate_size", 14336},
          {"vocab_size", 32000}}},
        {"mixtral",
         {{"hidden_size", 4096},
          {"num_hidden_layers", 32},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"intermediate_size", 14336},
          {"vocab_size", 32000}}},
        {"gemma",
         {{"hidden_size", 3072},
          {"num_hidden_layers", 28},
          {"num_attention_heads", 16},
          {"num_key_value_heads", 16},
          {"head_dim", 256},
          {"intermediate_size", 24576},
          {"vocab_size", 256000}}},
        {"gemma2",
         {{"hidden_size", 2304},
          {"num_hidden_layers", 26},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 4},
          {"head_dim", 256},
          {"intermediate_size", 9216},
          {"sliding_window", 4096},
          {"vocab_size", 256000}}},
        {"gemma3_text",
         {{"hidden_size", 2304},
          {"num_hidden_layers", 26},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 4},
          {"head_dim", 256},
          {"intermediate_size", 9216},
          {"sliding_window", 4096},
          {"sliding_window_pattern", 6},
          {"max_position_embeddings", 131072},
          {"vocab_size", 262208}}},
        {"qwen2",
         {{"hidden_size", 4096},
          {"num_hidden_layers", 32},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 32},
          {"intermediate_size", 22016},
          {"vocab_size", 151936}}},
        {"phi3",
         {{"hidden_size", 3072},
          {"num_hidden_layers", 32},
          {"num_attention_heads", 32},
          {"intermediate_size", 8192},
          {"vocab_size", 32064}}},
    };
    return kDefaults;
}

// The key of a config.json for one of a params.json.
const std::vector<std::pair<const char*, const char*>>& other_keys() {
    static const std::vector<std::pair<const char*, const char*>> kKeys = {
        {"dim", "hidden_size"},
        {"n_layers", "num_hidden_layers"},
        {"n_heads", "num_attention_heads"},
        {"n_kv_heads", "num_key_value_heads"},
        {"hidden_dim", "intermediate_size"},
        {"max_seq_len", "max_position_embeddings"},
        {"max_position_embeddings", "max_position_embeddings"},
        {"tied_embeddings", "tie_word_embeddings"},
        {"expert_hidden_dim", "moe_intermediate_size"},
        {"num_shared_experts", "n_shared_experts"},
        {"num_expert_groups", "n_group"},
        {"num_expert_groups_per_tok", "topk_group"},
    };
    return kKeys;
}

// Lifts the entries of a map that the root does not have itself.
void lift(Json& root, const char* key) {
    const auto found = root.find(key);
    if (found == root.end() || !found->is_object()) {
        return;
    }
    const Json inner = *found;
    root.erase(key);
    for (const auto& [name, value] : inner.items()) {
        if (!root.contains(name)) {
            root[name] = value;
        }
    }
}

// Meta's width of a feed-forward (llama/model.py): two thirds of four widths, times a factor, as a multiple.
void add_width(Json& root) {
    if (root.contains("intermediate_size") || !root["hidden_size"].is_number()) {
        return;
    }
    const auto real = [&](const char* key, double otherwise) {
        return root.contains(key) && root[key].is_number() ? std::clamp(root[key].get<double>(), 1e-3, 1e6) : otherwise;
    };
    const double hidden = std::clamp(root["hidden_size"].get<double>(), 1.0, 1e6);
    const double width = std::floor(std::floor(8 * hidden / 3) * real("ffn_dim_multiplier", 1));
    const double multiple = std::max(1.0, real("multiple_of", 256));
    root["intermediate_size"] = static_cast<std::int64_t>(std::ceil(width / multiple) * multiple);
}

}  // namespace

template <class AnyJson>
void use_config_keys(AnyJson& root, ImportNotes& notes) {
    if (root.contains("dim") && root.contains("n_layers") && !root.contains("hidden_size")) {
        lift(root, "moe");
        lift(root, "args");
        for (const auto& [from, to] : other_keys()) {
            if (root.contains(from) && std::string_view(from) != to) {
                Json value = root[from];
                root.erase(from);
                root[to] = std::move(value);
            }
        }
        add_width(root);
        for (const char* key : {"multiple_of", "ffn_dim_multiplier"}) {
            root.erase(key);
        }
        if (root.contains("vocab_size") && root["vocab_size"] == -1) {
            root["vocab_size"] = 32000;
            notes.assumed("a vocabulary of 32,000 tokens, that of Llama 2: the file leaves it to the tokeniser");
        }
        if (!root.contains("model_type")) {
            root["model_type"] = root.contains("kv_lora_rank")  ? "deepseek_v3"
                                 : root.contains("num_experts") ? "mixtral"
                                                                : "llama";
        }
        notes.assumed("the keys of a params.json, as Mistral and Meta write it, with a gated feed-forward");
    }
    if (!root.contains("text_config")) {
        lift(root, "attn_config");
        lift(root, "ffn_config");
    }
}

template <class AnyJson>
void add_class_defaults(const std::string& type, AnyJson& language, const AnyJson& outer, ImportNotes& notes) {
    const auto found = class_defaults().find(type);
    if (found == class_defaults().end()) {
        return;
    }
    constexpr std::size_t kFew = 2;  // of a file that says less than that, nothing is known
    std::size_t said = 0;
    std::vector<std::string> taken;
    Json with = language;
    for (const auto& [key, value] : found->second) {
        if (language.contains(key)) {
            ++said;
            continue;
        }
        // A width that depends on others, or that the file chose to leave empty.
        if (outer.is_object() && outer.contains(key) && !outer[key].is_null()) {
            continue;
        }
        with[key] = value;
        taken.push_back(fmt::format("{} {}", key, value));
    }
    const bool heads_given = language.contains("num_attention_heads");
    if (heads_given && !language.contains("num_key_value_heads")) {
        with.erase("num_key_value_heads");  // as many as query heads, whatever the class says of its own
        std::erase_if(taken, [](const std::string& one) { return one.rfind("num_key_value_heads", 0) == 0; });
    }
    if (said < kFew && !outer.is_object()) {
        return;
    }
    if (!taken.empty()) {
        notes.assumed(fmt::format("{}, which transformers takes for '{}' where a file does not say",
                                  fmt::join(taken, ", "), type));
    }
    language = std::move(with);
}

template void use_config_keys(Json& root, ImportNotes& notes);
template void add_class_defaults(const std::string& type, Json& language, const Json& outer, ImportNotes& notes);

void refuse_other_models(HfValues& config, const std::string& type) {
    const auto refuse = [&](const char* key, const std::string& what) {
        throw ConfigError({config.error(
            key, fmt::format("describes {}, which is not modelled: expected a decoder of transformer layers", what))});
    };
    const bool both = config.flag("is_encoder_decoder", false);
    if (both || is_word(type,
                        "t5 mt5 umt5 bart mbart whisper marian pegasus m2m_100 nllb-moe t5gemma prophetnet "
                        "speech_to_text seamless_m4t led bigbird_pegasus")) {
        refuse(type.empty() ? "is_encoder_decoder" : "model_type",
               fmt::format("'{}', an encoder with a decoder", type));
    }
    if (is_word(type,
                "bert roberta xlm-roberta deberta deberta-v2 electra albert distilbert modernbert mpnet "
                "nomic_bert vit clip siglip siglip_vision_model clip_vision_model dinov2 wav2vec2 hubert "
                "layoutlmv3 camembert ernie xlnet longformer")) {
        refuse("model_type", fmt::format("'{}', an encoder that generates nothing", type));
    }
    if (is_word(type, "mamba mamba2 falcon_mamba rwkv rwkv5 rwkv6 rwkv7 xlstm retnet")) {
        refuse("model_type", fmt::format("'{}', a model without attention", type));
    }
    if (is_word(type, "zamba zamba2")) {
        refuse("model_type", fmt::format("'{}', whose attention layers share their weights", type));
    }
    if (type == "hymba") {
        refuse("model_type", fmt::format("'{}', whose layers have attention and a state space side by side", type));
    }
    if (config.has("lru_width")) {
        refuse("lru_width", fmt::format("'{}', which has recurrent layers (RG-LRU)", type));
    }
    if (is_word(type, "diffllama diffusion_gemma llada dream sdar")) {
        refuse("model_type", fmt::format("'{}', which does not generate one token after the other", type));
    }
}

bool is_plain(HfValues& config, const std::string& type) {
    if (is_word(type,
                "gpt2 gpt_neo gpt_neox gptj gpt_bigcode bloom opt falcon mpt phi starcoder2 nemotron_h nemotron "
                "codegen xglm persimmon apertus arcee nanochat")) {
        return true;
    }
    for (const char* key : {"hidden_act", "mlp_hidden_act", "hidden_activation"}) {  // none of these has a gate
        if (config.has(key) && is_word(config.text(key), "relu2 squared_relu xielu")) {
            return true;
        }
    }
    return false;
}

bool has_other_positions(const std::string& type) {
    return is_word(type, "gpt2 gpt_neo bloom opt mpt gpt_bigcode nemotron_h xglm");
}

bool is_untied(const std::string& type) {
    return is_word(
        type,
        "llama llama4_text mistral mixtral qwen qwen2 qwen2_moe qwen2_vl qwen2_5_vl qwen2_5_vl_text qwen3 qwen3_moe "
        "qwen3_next deepseek deepseek_v2 deepseek_v3 deepseek_v32 gpt_oss glm4_moe kimi_k2 phi phi3 phimoe baichuan "
        "internlm internlm2 internlm3 chatglm glm glm4 glm4v glm4v_text olmo olmo2 olmo3 olmoe flex_olmo stablelm "
        "persimmon gpt_neox gptj codegen dbrx granite granitemoe exaone4 nemotron nemotron_h jamba bamba seed_oss "
        "arcee apertus longcat_flash dots1 minimax_m2 minimax minimax_text_01 yi");
}

}  // namespace orrery::imports
