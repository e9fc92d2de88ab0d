// Hugging Face's config.json (transformers, PretrainedConfig and the configurations of its models) as a model.
//
// Claims: the dimensions that decide times and memory. Not claimed: activations beyond whether the feed-forward is gated, which
// follows from the type of the model; how evenly experts are chosen.

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/fields.hpp"
#include "sim/record/json_text.hpp"
#include "workloads/imports/command_text.hpp"
#include "workloads/model/model_names.hpp"
#include "workloads/model/model_spec.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace orrery::imports {

namespace {

using Json = nlohmann::json;

class Config {
  public:
    // `text`: the file's, of which the map is the value of `key`, or all of it where that is empty.
    Config(const Json& json, const std::string& file, const std::string& text, const std::string& key)
        : json_(json),
          file_(file),
          text_(text),
          start_(key.empty() ? 0 : std::min(text.find('"' + key + '"'), text.size())) {}

    // The first of these keys that is there and not null, as a whole number; 0 where none is.
    std::int64_t whole(const std::vector<const char*>& keys) {
        for (const char* key : keys) {
            const auto found = json_.find(key);
            if (found == json_.end() || found->is_null()) {
                continue;
            }
            if (!found->is_number_integer() || *found < 0 || *found > 1'000'000'000) {
                throw ConfigError({error(key, fmt::format("'{}' must be a whole number", key))});
            }
            ++read_;
            return found->get<std::int64_t>();
        }
        return 0;
    }
    std::int64_t needed(const std::vector<const char*>& keys) {
        const std::int64_t value = whole(keys);
        if (value == 0) {
            throw ConfigError(
                {error("", fmt::format("'{}' is missing: a config.json of a language model has it", keys[0]))});
        }
        return value;
    }
    bool flag(const char* key, bool otherwise) const {
        const auto found = json_.find(key);
        return found != json_.end() && found->is_boolean() ? found->get<bool>() : otherwise;
    }
    // The items of a list of words, such as the kinds of layers; empty where the key is none.
    std::vector<std::string> words(const char* key) {
        std::vector<std::string> out;
        const auto found = json_.find(key);
        if (found != json_.end() && found->is_array() &&
            std::all_of(found->begin(), found->end(), [](const Json& item) { return item.is_string(); })) {
            out = found->get<std::vector<std::string>>();
        }
        return out;
    }
    std::string text(const char* key) const {
        const auto found = json_.find(key);
        return found != json_.end() && found->is_string() ? found->get<std::string>() : "";
    }
    [[nodiscard]] bool numbered(const char* key) const { return json_.contains(key) && json_.at(key).is_number(); }
    [[nodiscard]] bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }
    void count_text() { ++read_; }
    // Something wrong with the value of a key, or where it is empty with the map.
    [[nodiscard]] Diagnostic error(const std::string& key, const std::string& problem) const {
        const std::size_t at = key.empty() ? std::string::npos : text_.find('"' + key + '"', start_);
        return diagnostic_at(file_, text_, at == std::string::npos ? start_ : at, problem);
    }
    [[nodiscard]] std::size_t read() const { return read_; }
    [[nodiscard]] std::size_t keys() const { return json_.size(); }

  private:
    const Json& json_;
    const std::string& file_;
    const std::string& text_;
    std::size_t start_;
    std::size_t read_ = 0;
};

bool one_of(const std::string& word, const std::vector<const char*>& words) {
    return std::any_of(words.begin(), words.end(), [&](const char* one) { return word == one; });
}

std::string number(std::int64_t value) {
    return value == 0 ? "" : std::to_string(value);
}

// Names are text of a file: only what a plain YAML word may hold is kept.
std::string word_of(const std::string& text) {
    std::string out;
    for (const char c : text) {
        if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_') {
            out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        } else if (c == '/') {
            out.clear();
        }
    }
    return out.substr(0, 80);
}

std::string experts_of(Config& config) {
    const std::int64_t count =
        config.whole({"num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"});
    if (count == 0) {
        return "";
    }
    const std::int64_t width = config.whole({"moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size"});
    std::int64_t shared =
        config.whole({"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "share_expert_dim"});
    if (shared == 0) {
        shared = config.whole({"n_shared_experts", "num_shared_experts", "moe_num_shared_experts"}) * width;
    }
    if (config.text("model_type") == "llama4_text") {
        shared = width;  // one that every token sees, of which its configuration says nothing
    }
    const std::int64_t dense = config.whole({"first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"});
    const std::int64_t every = config.whole({"interleave_moe_layer_step", "moe_layer_interval"});
    return fmt::format("{{count: {}, topk: {}, ffn: {}{}{}{}}}", count,
                       config.needed({"num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk",
                                      "moe_top_k", "moe_k"}),
                       width, shared > 0 ? fmt::format(", shared: {}", shared) : "",
                       dense > 0 ? fmt::format(", dense_layers: {}", dense) : "",
                       every > 1 ? fmt::format(", every: {}", every) : "");
}

std::string latent_of(Config& config) {
    const std::int64_t rank = config.whole({"kv_lora_rank"});
    return rank == 0 ? ""
                     : fmt::format("{{kv_rank: {}, q_rank: {}, rotary: {}, value_dim: {}}}", rank,
                                   config.whole({"q_lora_rank"}), config.needed({"qk_rope_head_dim"}),
                                   config.needed({"v_head_dim"}));
}

// Layers of a letter each, and the state-space ones among them (NemotronHConfig).
YamlLines hybrid_of(Config& config) {
    const std::string pattern = config.text("hybrid_override_pattern");
    if (pattern.empty()) {
        return {};
    }
    config.count_text();
    if (pattern.find_first_not_of("M-*") != std::string::npos) {
        throw ConfigError({config.error("hybrid_override_pattern",
                                        "'hybrid_override_pattern' has letters beside M, - and *, which are not "
                                        "modelled")});
    }
    const std::string space =
        pattern.find('M') == std::string::npos
            ? ""
            : fmt::format("{{heads: {}, head_dim: {}, state: {}, groups: {}, convolution: {}, chunk: {}}}",
                          config.needed({"mamba_num_heads"}), config.needed({"mamba_head_dim"}),
                          config.needed({"ssm_state_size"}), config.needed({"n_groups", "mamba_n_groups"}),
                          config.needed({"conv_kernel", "mamba_d_conv"}),
                          config.needed({"chunk_size", "mamba_chunk_size"}));
    return {{"pattern", fmt::format("\"{}\"", pattern)}, {"state_space", space}};
}

// The encoder of models whose images have one size (LLaVA, InternVL): patches and, of all but SigLIP, a class token; InternVL puts
// four patches side by side; the projector is as wide as the language model between its two products.
std::string encoder_of(const Json& root, const Config& all, Config vision, const std::string& hidden,
                       ImportNotes& notes) {
    if (!root.contains("vision_config") || !root["vision_config"].is_object()) {
        return "";
    }
    const Json& json = root["vision_config"];
    const std::string of = all.text("model_type");
    const bool interns = one_of(of, {"internvl_chat", "internvl"});
    const bool sized = json.contains("image_size") && json["image_size"].is_number_integer() &&
                       json.contains("patch_size") && json["patch_size"].is_number_integer();
    if (!sized || (!interns && !one_of(of, {"llava", "llava_next"}))) {
        notes.assumed(
            "the language model alone: the encoder in 'vision_config' is of another family than LLaVA's and "
            "InternVL's, "
            "or of images of any size (write 'model.encoder')");
        return "";
    }
    const std::int64_t patch = vision.needed({"patch_size"});
    const std::int64_t side = vision.needed({"image_size"}) / patch;
    const std::int64_t classes = vision.text("model_type") == "siglip_vision_model" ? 0 : 1;
    notes.assumed("one image in a sequence, and that its encoder is trained (model.encoder: images, trained)");
    return fmt::format(
        "{{layers: {}, hidden: {}, heads: {}, ffn: {}, patch_width: {}, tokens: {}, dropped: {}, merged: {}, "
        "projector: "
        "{}}}",
        vision.needed({"num_hidden_layers"}), vision.needed({"hidden_size"}), vision.needed({"num_attention_heads"}),
        vision.needed({"intermediate_size"}), 3 * patch * patch, side * side + classes, classes, interns ? 4 : 1,
        hidden);
}

// Every how many layers one attends to everything, where the kinds of layers repeat so; 0: there is no such number.
std::int64_t full_layer_of(const std::vector<std::string>& kinds) {
    const auto full = [](const std::string& kind) { return kind == "full_attention"; };
    const auto first = std::find_if(kinds.begin(), kinds.end(), full);
    const std::int64_t every = first - kinds.begin() + 1;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        const bool last = (static_cast<std::int64_t>(i) + 1) % every == 0;
        if (full(kinds[i]) != last || (!last && kinds[i] != "sliding_attention")) {
            return 0;
        }
    }
    return first == kinds.end() ? 0 : every;
}

// What decides the layers of a model and has no key here.
void note_unread_plans(const Json& json, bool kinds_read, ImportNotes& notes) {
    const auto starts = [](const std::string& key, const char* with) { return key.rfind(with, 0) == 0; };
    for (const auto& [key, value] : json.items()) {
        const bool plan = starts(key, "layer_types")
                              ? !kinds_read
                              : one_of(key, {"layers_block_type", "block_configs", "attn_type_list", "compress_ratios",
                                             "hybrid_layer_pattern", "full_attention_interval", "attention_chunk_size",
                                             "routed_expert_hidden_size", "moe_latent_size", "moe_layers_enum",
                                             "attn_output_gate", "hc_mult"}) ||
                                    starts(key, "linear_") || starts(key, "index_");
        if (plan && !value.is_null()) {
            notes.left_out(fmt::format("'{}', which is not modelled: the model differs from this description", key));
        }
    }
}

/// The precision that a checkpoint stores.
struct StoredPrecision {
    std::string words;  ///< empty where the file says nothing of it
    std::vector<std::pair<std::string, std::string>> engine;
};

StoredPrecision precision_of(const Json& root, const Json& language, bool experts) {
    const Json* found = root.contains("quantization_config") ? &root["quantization_config"] : nullptr;
    found = found == nullptr && language.contains("quantization_config") ? &language["quantization_config"] : found;
    if (found == nullptr || !found->is_object()) {
        return {};
    }
    const auto word = [&](const char* key) {
        return found->contains(key) && (*found)[key].is_string() ? (*found)[key].get<std::string>() : "";
    };
    const std::string text = found->dump();
    const auto says = [&](const char* part) { return text.find(part) != std::string::npos; };
    const std::string how = word("quant_method");
    StoredPrecision out;
    std::string keys = "not known here";
    if (how == "mxfp4") {
        keys = "engine: {weights: bf16, experts: fp4}";
        out.engine = {{"weights", "bf16"}, {"experts", "fp4"}};
    } else if (says("NVFP4") || says("mxfp4") || says("\"num_bits\":4,\"type\":\"float\"")) {
        keys = "engine: {experts: fp4} or {weights: fp4}, by what it leaves out";
        out.engine = {{"weights", experts ? "bf16" : "fp4"}, {"experts", experts ? "fp4" : ""}};
    } else if (how == "fp8" || says("FP8") || says("\"type\":\"float\"")) {
        keys = "engine: {weights: fp8}";
        out.engine = {{"weights", "fp8"}, {"scaling", experts && says("weight_block_size") ? "block" : ""}};
    } else if (says("\"bits\":4") || says("\"num_bits\":4") || how == "awq") {
        keys = "engine: {weights: int4}";
        out.engine = {{"weights", "int4"}};
    } else if (says("\"bits\":8") || says("\"num_bits\":8")) {
        keys = "engine: {weights: int8}";
        out.engine = {{"weights", "int8"}};
    }
    out.words = fmt::format("{} ({})", how.empty() ? "quantised" : how, keys);
    return out;
}

// Python writes numbers that JSON has not. In their place stands as much text, so that errors are where they were.
std::string without_python_numbers(std::string text) {
    bool quoted = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '"' && (i == 0 || text[i - 1] != '\\')) {
            quoted = !quoted;
        }
        for (const auto& [number, instead] : {std::pair("Infinity", "1e308   "), std::pair("NaN", "0.0")}) {
            const std::size_t length = std::string_view(number).size();
            if (!quoted && text.compare(i, length, number) == 0) {
                text.replace(i, length, instead);
            }
        }
    }
    return text;
}

Json parsed(const std::string& text, const std::string& file) {
    require_shallow_json(text, file);
    try {
        return Json::parse(without_python_numbers(text));
    } catch (const Json::exception& problem) {
        throw ConfigError({json_problem(file, problem)});
    }
}

// What a reader sees at once of a model that was misunderstood.
void add_size(Imported& out) {
    ModelSpec model;
    std::vector<Diagnostic> errors;
    const YamlNode root = parse_yaml(out.text, "model");
    read_fields(*root.find("model"), DataDirectory(""), errors, [&](Fields& fields) { describe(fields, model); });
    if (!errors.empty()) {
        return;  // said where a scenario reads it
    }
    complete(model);
    out.facts.push_back({"parameters", fmt::format("{:.2f} B ({:.2f} B active)", model.parameters() / 1e9,
                                                   active_parameters(model) / 1e9)});
}

Imported read_config(const ImportInput& input) {
    const std::string bytes = input.bytes();
    const Json root = parsed(bytes, input.path());
    if (!root.is_object()) {
        throw ConfigError(
            {Diagnostic{input.path(), 1, 1, "is no JSON object, as a config.json is", ErrorCode::malformed_trace}});
    }
    // Models that see and hear too keep their language part inside.
    const auto holds = [&](const char* key) { return root.contains(key) && root[key].is_object(); };
    const char* language = holds("text_config") ? "text_config" : holds("llm_config") ? "llm_config" : "";
    const auto config_in = [&](const char* key) {
        return Config(*key != 0 && holds(key) ? root.at(key) : root, input.path(), bytes, key);
    };
    Config config = config_in(language);
    Imported out;
    const std::string type = config.text("model_type");
    const bool plain = one_of(type, {"gpt2", "gpt_neo", "gpt_neox", "gptj", "gpt_bigcode", "bloom", "opt", "falcon",
                                     "mpt", "phi", "starcoder2", "nemotron_h"});
    const bool positions = one_of(type, {"gpt2", "gpt_neo", "bloom", "opt", "mpt", "gpt_bigcode", "nemotron_h"});
    if (type.empty()) {
        out.notes.assumed("a gated feed-forward and rotary positions: the file names no model_type");
    }
    std::string name =
        input.option("name").empty() ? word_of(config.text("_name_or_path")) : word_of(input.option("name"));
    name = name.empty() ? word_of(type) : name;
    const std::string latent = latent_of(config);
    std::int64_t window = config.whole({"sliding_window"});
    window = config.flag("use_sliding_window", true) ? window : 0;
    const std::int64_t repeated = full_layer_of(config.words("layer_types"));
    const bool all_full = repeated == 1;
    window = all_full ? 0 : window;
    std::string full_every;
    if (window > 0 && repeated > 1) {
        full_every = number(repeated);
    } else if (window > 0 && config.numbered("sliding_window_pattern")) {
        full_every = number(config.whole({"sliding_window_pattern"}));
    } else if (window > 0 && type == "gpt_oss") {
        full_every = "2";
    }
    const std::string experts = experts_of(config);
    // Values of the whole model stand in the root, or beside those of its language part.
    const bool untied = one_of(type, {"llama", "llama4_text", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3",
                                      "qwen3_moe", "deepseek_v2", "deepseek_v3", "deepseek_v32", "gpt_oss", "glm4_moe",
                                      "kimi_k2", "phi3"});  // where transformers says so of a file that does not
    const bool tied = config.flag("tie_word_embeddings", config_in("").flag("tie_word_embeddings", !untied));
    YamlLines lines = {
        {"name", name.empty() ? "imported" : name},
        {"layers", number(config.needed({"num_hidden_layers", "n_layer", "num_layers", "n_layers"}))},
        {"hidden", number(config.needed({"hidden_size", "n_embd", "d_model"}))},
        {"heads", number(config.needed({"num_attention_heads", "n_head", "n_heads"}))},
        {"kv_heads", latent.empty() ? number(config.whole({"num_key_value_heads", "num_kv_heads"})) : ""},
        {"head_dim", number(config.whole({"qk_nope_head_dim", "head_dim", "attention_head_dim"}))},
        {"ffn",
         number(config.whole({"intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"}))},
        {"gated", plain ? "" : "true"},
        {"vocabulary", number(config.needed({"vocab_size"}))},
        {"sequence", number(config.whole({"max_position_embeddings", "n_positions", "max_seq_len", "seq_length"}))},
        {"tied_embeddings", tied ? "true" : "false"},
        {"rotary", positions ? "" : "true"},
        {"parallel_block", config.flag("parallel_attn", type == "gptj") ? "true" : ""},
        {"window", number(window)},
        {"full_every", full_every},
        {"query_key_norm", one_of(type, {"qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text"}) ? "heads" : ""},
        {"experts", experts},
        {"latent", latent}};
    const YamlLines hybrid = hybrid_of(config);
    lines.insert(lines.end(), hybrid.begin(), hybrid.end());
    lines.emplace_back("encoder",
                       encoder_of(root, config_in(""), config_in("vision_config"), lines[2].second, out.notes));
    const Json& part = *language != 0 ? root.at(language) : root;
    note_unread_plans(part, window > 0 ? !full_every.empty() : all_full, out.notes);
    if (StoredPrecision precision = precision_of(root, part, !experts.empty()); !precision.words.empty()) {
        out.notes.left_out(
            fmt::format("'quantization_config', which the engine of a scenario says: {}", precision.words));
        out.engine = std::move(precision.engine);
    }
    out.text =
        "# The model of a Hugging Face config.json, by 'orrery import hf-config'.\n" + yaml_section("model", lines);
    out.use = "these lines in place of its 'model:'";
    out.notes.read("keys", config.read());
    out.notes.left_out("keys that change neither time nor memory here",
                       config.keys() - std::min(config.keys(), config.read()));
    out.facts.push_back({"model", name});
    add_size(out);
    return out;
}

}  // namespace

extern const Importer kHuggingFaceImporter = {"hf-config",
                                              "a Hugging Face config.json, as the model of a scenario",
                                              {{"name", "NAME", "of the model, where the file does not say it"}},
                                              read_config,
                                              "yaml"};

}  // namespace orrery::imports
