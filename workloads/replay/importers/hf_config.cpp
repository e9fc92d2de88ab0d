// Hugging Face's config.json (transformers, PretrainedConfig and the configurations of its models) as a model.
//
// Claims: the dimensions that decide times and memory. Not claimed: activations beyond whether the feed-forward is gated, which
// follows from the type of the model; how evenly experts are chosen.

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "workloads/replay/importers/command_text.hpp"
#include "workloads/replay/importers/json_text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace orrery::inline replay {

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
    std::string text(const char* key) const {
        const auto found = json_.find(key);
        return found != json_.end() && found->is_string() ? found->get<std::string>() : "";
    }
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
    const std::int64_t count = config.whole({"num_local_experts", "n_routed_experts", "num_experts"});
    if (count == 0) {
        return "";
    }
    const std::int64_t width = config.whole({"moe_intermediate_size", "intermediate_size"});
    std::int64_t shared = config.whole({"shared_expert_intermediate_size"});
    if (shared == 0) {
        shared = config.whole({"n_shared_experts"}) * width;
    }
    return fmt::format(
        "{{count: {}, topk: {}, ffn: {}{}{}}}", count, config.needed({"num_experts_per_tok", "moe_topk"}), width,
        shared > 0 ? fmt::format(", shared: {}", shared) : "",
        config.has("first_k_dense_replace") ? fmt::format(", dense_layers: {}", config.whole({"first_k_dense_replace"}))
                                            : "");
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

Json parsed(const std::string& text, const std::string& file) {
    require_shallow_json(text, file);
    try {
        return Json::parse(text);
    } catch (const Json::exception& problem) {
        throw ConfigError({json_problem(file, problem)});
    }
}

Imported read_config(const ImportInput& input) {
    const std::string bytes = input.bytes();
    const Json root = parsed(bytes, input.path());
    if (!root.is_object()) {
        throw ConfigError({Diagnostic{input.path(), 1, 1, "is no JSON object, as a config.json is"}});
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
    std::string full_every;
    if (window > 0 && config.has("sliding_window_pattern")) {
        full_every = number(config.whole({"sliding_window_pattern"}));
    } else if (window > 0 && type == "gpt_oss") {
        full_every = "2";
    }
    const std::string experts = experts_of(config);
    YamlLines lines = {
        {"name", name.empty() ? "imported" : name},
        {"layers", number(config.needed({"num_hidden_layers", "n_layer", "num_layers", "n_layers"}))},
        {"hidden", number(config.needed({"hidden_size", "n_embd", "d_model"}))},
        {"heads", number(config.needed({"num_attention_heads", "n_head", "n_heads"}))},
        {"kv_heads", latent.empty() ? number(config.whole({"num_key_value_heads", "num_kv_heads"})) : ""},
        {"head_dim", number(config.whole({"qk_nope_head_dim", "head_dim", "attention_head_dim"}))},
        {"ffn", number(config.whole({"intermediate_size", "n_inner", "ffn_dim"}))},
        {"gated", plain ? "" : "true"},
        {"vocabulary", number(config.needed({"vocab_size"}))},
        {"sequence", number(config.whole({"max_position_embeddings", "n_positions", "max_seq_len", "seq_length"}))},
        {"tied_embeddings", config.flag("tie_word_embeddings", true) ? "true" : "false"},
        {"rotary", positions ? "" : "true"},
        {"parallel_block", config.flag("parallel_attn", type == "gptj") ? "true" : ""},
        {"window", number(window)},
        {"full_every", full_every},
        {"query_key_norm", one_of(type, {"qwen3", "qwen3_moe"}) ? "heads" : ""},
        {"experts", experts},
        {"latent", latent}};
    const YamlLines hybrid = hybrid_of(config);
    lines.insert(lines.end(), hybrid.begin(), hybrid.end());
    lines.emplace_back("encoder",
                       encoder_of(root, config_in(""), config_in("vision_config"), lines[2].second, out.notes));
    out.text =
        "# The model of a Hugging Face config.json, by 'orrery import hf-config'.\n" + yaml_section("model", lines);
    out.use = "these lines in place of its 'model:'";
    out.notes.read("keys", config.read());
    out.notes.left_out("keys that change neither time nor memory here",
                       config.keys() - std::min(config.keys(), config.read()));
    out.facts.push_back({"model", name});
    return out;
}

}  // namespace

extern const Importer kHuggingFaceImporter = {"hf-config",
                                              "a Hugging Face config.json, as the model of a scenario",
                                              {{"name", "NAME", "of the model, where the file does not say it"}},
                                              read_config,
                                              "yaml"};

}  // namespace orrery::inline replay
