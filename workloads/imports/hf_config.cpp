// Hugging Face's config.json (transformers, PretrainedConfig and the configurations of its models) as a model.
//
// Claims: the dimensions that decide times and memory. Not claimed: activations beyond whether the feed-forward is gated, which
// follows from the type of the model; how evenly experts are chosen.

#include "sim/base/error.hpp"
#include "sim/base/text.hpp"
#include "sim/config/fields.hpp"
#include "sim/record/json_text.hpp"
#include "workloads/imports/command_text.hpp"
#include "workloads/imports/hf_families.hpp"
#include "workloads/imports/hf_keys.hpp"
#include "workloads/imports/hf_layers.hpp"
#include "workloads/imports/hf_values.hpp"
#include "workloads/model/model_names.hpp"
#include "workloads/model/model_spec.hpp"
#include "workloads/serving/cost/step_cost.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>

namespace orrery::imports {

namespace {

using Json = nlohmann::json;

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

std::string experts_of(HfValues& config, std::int64_t hidden, std::int64_t layers, ImportNotes& notes) {
    const std::int64_t count =
        config.whole({"num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts", "num_moe_experts"});
    if (count < 2) {
        return "";  // Jamba's and Hunyuan's dense models have one
    }
    std::int64_t width = config.whole({"moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size",
                                       "expert_intermediate_size", "intermediate_size", "ffn_hidden_size"});
    std::int64_t shared = config.whole({"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
                                        "share_expert_dim", "shared_intermediate_size"});
    if (shared == 0) {
        shared =
            config.whole({"n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"}) *
            width;
    }
    config.pass({"n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"});
    if (config.flag("residual_moe", false)) {  // Grok 2: a dense feed-forward beside the experts
        shared += config.whole({"intermediate_size"});
    }
    if (config.flag("parallel_attn_mlp_res", false)) {  // Arctic: one as wide as the model
        shared += hidden;
    }
    if (config.text("model_type") == "llama4_text") {
        shared = width;  // one that every token sees, of which its configuration says nothing
    }
    if (const std::int64_t narrow = config.whole({"routed_expert_hidden_size", "moe_latent_size"});
        narrow > 0 && narrow < hidden) {
        width = std::max<std::int64_t>(1, width * narrow / hidden);
        notes.left_out(
            fmt::format("products into and out of the experts' stream of {}, which are not modelled: the "
                        "experts have their weights with a width of {}",
                        narrow, width));
    }
    std::int64_t topk =
        config.needed({"num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts", "moe_topk",
                       "moe_top_k", "moe_k", "moe_router_topk", "num_selected_experts"});
    if (const std::int64_t idle = config.whole({"zero_expert_num"}); idle > 0) {
        const std::int64_t all = topk;
        topk = std::max<std::int64_t>(1, topk * count / (count + idle));
        notes.assumed(fmt::format("{} of a token's {} choices on experts with weights, on average", topk, all));
    }
    const std::int64_t groups = config.whole({"n_group", "num_expert_group"});
    const std::int64_t of_groups = config.whole({"topk_group"});
    const bool grouped = groups > 1 && of_groups > 0 && of_groups < groups;
    return fmt::format("{{count: {}, topk: {}, ffn: {}{}{}{}}}", count, topk, width,
                       shared > 0 ? fmt::format(", shared: {}", shared) : "", read_expert_layers(config, layers, notes),
                       grouped ? fmt::format(", groups: {}, group_topk: {}", groups, of_groups) : "");
}

/// Latent attention: its YAML value, values of a token in its cache, and the width of a head without position.
struct Latent {
    std::string text;
    std::int64_t cached = 0;
    std::int64_t head_dim = 0;
};

Latent latent_of(HfValues& config) {
    const std::int64_t rank = config.whole({"kv_lora_rank"});
    const std::int64_t query = config.whole({"q_lora_rank"});
    if (rank > 0) {
        const std::int64_t rotary = config.needed({"qk_rope_head_dim"});
        const std::int64_t without = config.whole({"qk_nope_head_dim", "head_dim"});
        // Where the file does not say (MiniCPM3), values are as wide as keys without position.
        const std::int64_t values = config.has("v_head_dim") || without == 0 ? config.needed({"v_head_dim"}) : without;
        return {fmt::format("{{kv_rank: {}, q_rank: {}, rotary: {}, value_dim: {}}}", rank, query, rotary, values),
                rank + rotary, without};
    }
    return {};
}

// Attention to compressed keys (DeepSeek-V4), and the sizes that go with it; empty: the model has none.
std::string compressed_of(HfValues& config, HfSizes& sizes, ImportNotes& notes) {
    constexpr const char* kSparse = "compressed_sparse_attention";
    constexpr const char* kHeavy = "heavily_compressed_attention";
    std::vector<std::int64_t> ratios = config.numbers("compress_ratios");
    if (ratios.empty()) {  // as transformers writes it
        std::optional<HfValues> rates = config.map("compress_rates");
        const auto rate = [&](const char* kind, std::int64_t usual) {
            const std::int64_t given = rates ? rates->whole({kind}) : 0;
            return given > 0 ? given : usual;
        };
        const std::vector<std::string> words = config.words("layer_types");
        if (config.text("model_type") == "deepseek_v4" && words.empty()) {
            for (std::int64_t layer = 0; layer < sizes.layers; ++layer) {
                ratios.push_back(layer < 2 || layer % 2 == 0 ? rate(kHeavy, 128) : rate(kSparse, 4));
            }
            notes.assumed(
                "an indexer in every second layer behind the first three, as transformers has it for "
                "'deepseek_v4' where a file does not say");
        } else if (std::find(words.begin(), words.end(), kHeavy) == words.end()) {
            return "";
        }
        for (const std::string& word : words) {
            ratios.push_back(word == kSparse ? rate(kSparse, 4) : word == kHeavy ? rate(kHeavy, 128) : 0);
        }
    }
    const auto layers = static_cast<std::size_t>(sizes.layers);
    if (ratios.size() < layers) {
        throw ConfigError(
            {config.error("compress_ratios",
                          fmt::format("'compress_ratios' has {} layers, and the model {}", ratios.size(), layers))});
    }
    ratios.resize(layers);  // those behind are drafting layers
    std::int64_t heavy = 0;
    std::int64_t light = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t ratio : ratios) {
        heavy = std::max(heavy, ratio);
        light = ratio > 0 ? std::min(light, ratio) : light;
    }
    const auto indexed = std::count(ratios.begin(), ratios.end(), light);
    const auto windows = std::count(ratios.begin(), ratios.end(), 0);
    const auto heavily = std::count(ratios.begin(), ratios.end(), heavy);
    if (indexed + windows + heavily != sizes.layers || heavy <= light) {
        throw ConfigError({config.error("compress_ratios",
                                        "'compress_ratios' has layers of other than two ratios and none, which are not "
                                        "modelled")});
    }
    sizes.kv_heads = 1;
    sizes.head_dim = config.needed({"head_dim"});
    sizes.window = config.needed({"sliding_window"});
    sizes.full_every = std::max<std::int64_t>(2, sizes.layers / indexed);
    if (const std::int64_t said = sizes.layers / sizes.full_every; said != indexed) {
        notes.assumed(fmt::format("an indexer in the last of every {} layers ({} of {}), where the model has it in {}",
                                  sizes.full_every, said, sizes.layers, indexed));
    }
    if (windows > 0) {
        notes.assumed(fmt::format("{} of {} layers, which have the window alone, as heavily compressed ones", windows,
                                  sizes.layers));
    }
    config.pass({"hc_sinkhorn_iters", "qk_nope_head_dim"});
    const std::int64_t rotary = config.whole({"qk_rope_head_dim"});
    return fmt::format(
        "{{kind: compressed, q_rank: {}, rotary: {}, out_rank: {}, groups: {}, ratio: {}, heavy_ratio: {}, "
        "topk: {}, heads: {}, dim: {}, streams: {}}}",
        config.needed({"q_lora_rank"}),
        rotary > 0 ? rotary : std::llround(config.real("partial_rotary_factor") * static_cast<double>(sizes.head_dim)),
        config.needed({"o_lora_rank"}), config.needed({"o_groups"}), light, heavy, config.needed({"index_topk"}),
        config.needed({"index_n_heads"}), config.needed({"index_head_dim"}),
        std::max<std::int64_t>(1, config.whole({"hc_mult"})));
}

// What Gemma 2 to 4 have beside attention with a window; empty: the model is none of these.
std::string gemma_of(HfValues& config, const std::string& type, const HfSizes& sizes) {
    if (type != "gemma2" && type.rfind("gemma3", 0) != 0 && type.rfind("gemma4", 0) != 0) {
        return "";
    }
    std::string out = "{kind: gemma";
    const auto add = [&](const char* name, std::int64_t value) {
        out += value > 0 ? fmt::format(", {}: {}", name, value) : "";
    };
    if (sizes.window > 0) {
        add("full_head_dim", config.whole({"global_head_dim"}));
        add("full_kv_heads", config.whole({"num_global_key_value_heads"}));
        out += config.flag("attention_k_eq_v", false) ? ", keys_as_values: true" : "";
    }
    add("shared_layers", config.whole({"num_kv_shared_layers"}));
    add("embedding", config.whole({"hidden_size_per_layer_input"}));
    return out + "}";
}

// The indexer of DeepSeek-V3.2 and GLM-5.
std::string indexer_of(HfValues& config, bool latent) {
    if (!latent || config.whole({"kv_lora_rank"}) == 0 || config.whole({"index_topk"}) == 0) {
        return "";
    }
    return fmt::format("{{topk: {}, heads: {}, dim: {}}}", config.whole({"index_topk"}),
                       config.needed({"index_n_heads"}), config.needed({"index_head_dim"}));
}

// The encoder of models whose images have one size (LLaVA, InternVL): patches and, of all but SigLIP, a class token; InternVL puts
// four patches side by side; the projector is as wide as the language model between its two products.
std::string encoder_of(const Json& root, HfValues& all, HfValues vision, const std::string& hidden,
                       ImportNotes& notes) {
    if (!root.contains("vision_config") || !root["vision_config"].is_object()) {
        return "";
    }
    const Json& json = root["vision_config"];
    const std::string of = all.text("model_type");
    const bool interns = one_of(of, {"internvl_chat", "internvl"});
    bool sized = true;
    for (const char* key :
         {"image_size", "patch_size", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"}) {
        sized = sized && json.contains(key) && json[key].is_number_integer();
    }
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

// Names what was not read: known keys by what they do, others as not understood.
void note_unread(const Json& json, const std::set<std::string>& read, ImportNotes& notes) {
    std::map<std::string_view, const FlagGroup*> known;
    for (const FlagGroup& group : hf_key_groups()) {
        for (const std::string_view key : split(std::string_view(group.flags), ' ')) {
            known.emplace(key, &group);
        }
    }
    constexpr std::size_t kNamed = 40;
    std::size_t without_effect = 0;
    std::size_t named = 0;
    std::map<const FlagGroup*, std::vector<std::string>> left;
    for (const auto& [key, value] : json.items()) {
        const bool nothing = value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
                             (value.is_number() && value == 0) || (value.is_array() && value.empty());
        if (read.contains(key) || nothing) {
            continue;
        }
        const auto found = known.find(key);
        if (found != known.end() && found->second->without_effect) {
            ++without_effect;
        } else if (found != known.end()) {
            left[found->second].push_back(key);
        } else if (named++ < kNamed) {
            notes.left_out(fmt::format("'{}', which is not understood: the model may differ from this description",
                                       printable(key, 60)));
        } else {
            notes.left_out("further keys, which are not understood");
        }
    }
    for (const auto& [group, keys] : left) {
        notes.left_out(fmt::format("'{}', which is not modelled: {}", fmt::join(keys, "', '"), group->why),
                       keys.size());
    }
    if (without_effect > 0) {
        notes.left_out("keys that change neither time nor memory here", without_effect);
    }
}

/// The precision that a checkpoint stores.
struct StoredPrecision {
    std::string words;  ///< empty where the file says nothing of it
    std::vector<std::pair<std::string, std::string>> engine;
    std::string cache;  ///< of keys and values; empty: that of the model
};

// `beside`: hf_quant_config.json of the same folder, as NVIDIA's ModelOpt writes it.
StoredPrecision precision_of(const Json& root, const Json& language, const Json& beside, bool experts) {
    const Json* found = nullptr;
    for (const Json* map : {&root, &language, &beside}) {
        for (const char* key : {"quantization_config", "quantization", "compression_config"}) {
            if (found == nullptr && map->is_object() && map->contains(key) && map->at(key).is_object()) {
                found = &map->at(key);
            }
        }
    }
    if (found == nullptr) {
        return {};
    }
    const Json* beside_weights =
        beside.is_object() && beside.contains("quantization") ? &beside["quantization"] : nullptr;
    const auto word = [&](const char* key) {
        return found->contains(key) && (*found)[key].is_string() ? (*found)[key].get<std::string>() : "";
    };
    // What they say of keys and values, apart from what they say of weights.
    Json weights = *found;
    bool narrow_cache = false;
    for (const char* key : {"kv_cache_scheme", "kv_cache_quant_algo"}) {
        for (const Json* map : {found, beside_weights}) {
            const std::string cache = map != nullptr && map->contains(key) ? map->at(key).dump() : "";
            narrow_cache = narrow_cache || cache.find("FP8") != std::string::npos ||
                           (cache.find("\"float\"") != std::string::npos && cache.find(":8") != std::string::npos);
        }
        weights.erase(key);
    }
    const std::string text = weights.dump();
    const auto says = [&](const char* part) { return text.find(part) != std::string::npos; };
    bool attends = false;  // modules of attention stay in 16 bits
    for (const char* key : {"ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers"}) {
        attends = attends || (found->contains(key) && (*found)[key].dump().find("attn") != std::string::npos);
    }
    // A number of bits is followed by something else than more digits.
    const auto bits = [&](const char* number) {
        for (const char* key : {"\"bits\":", "\"num_bits\":", "\"nbits\":"}) {
            for (const char* end : {",", "}"}) {
                if (says((std::string(key) + number + end).c_str())) {
                    return true;
                }
            }
        }
        return false;
    };
    const auto any = [&](const std::vector<const char*>& parts) {
        return std::any_of(parts.begin(), parts.end(), says);
    };
    const std::string how = word("quant_method");
    StoredPrecision out;
    if (how == "mxfp4") {
        out.engine = {{"weights", "bf16"}, {"experts", "fp4"}};
    } else if (experts && any({"MIXED_PRECISION"}) && any({"NVFP4"}) && any({"FP8"})) {
        out.engine = {{"weights", "fp8"}, {"experts", "fp4"}};
    } else if (any({"NVFP4", "mxfp4", "nvfp4", "MXFP4", "\"dtype\":\"fp4\"", "\"num_bits\":4,\"type\":\"float\""})) {
        out.engine = {{"weights", experts && attends ? "bf16" : "fp4"}, {"experts", experts ? "fp4" : ""}};
    } else if (how == "awq" || how == "awq_marlin" || how == "w4afp8" || bits("4") ||
               any({"W4A16", "W4A8", "INT4", "load_in_4bit\":true", "Int4Weight", "int4_weight", "\"dtype\":\"int4\"",
                    "\"dtype\":\"uint4\""})) {
        const bool alone = experts && attends;  // of the experts alone, as Kimi K2's
        out.engine = {{"weights", alone ? "bf16" : "int4"}, {"experts", alone ? "int4" : ""}};
    } else if (how == "fp8" || how == "fbgemm_fp8" ||
               any({"FP8", "\"type\":\"float\"", "fp8_e4m3", "float8", "Float8", "\"dtype\":\"fp8"})) {
        out.engine = {{"weights", "fp8"}, {"scaling", experts && says("weight_block_size") ? "block" : ""}};
    } else if (how == "eetq" || bits("8") ||
               any({"W8A8", "INT8", "load_in_8bit\":true", "Int8Weight", "int8_weight", "Int8Dynamic",
                    "\"dtype\":\"int8\"", "\"weights\":\"int8\""})) {
        out.engine = {{"weights", "int8"}};
    }
    out.cache = narrow_cache ? "fp8" : "";
    std::erase_if(out.engine, [](const auto& key) { return key.second.empty(); });
    std::vector<std::string> keys;
    for (const auto& [key, value] : out.engine) {
        keys.push_back(fmt::format("{}: {}", key, value));
    }
    const std::string algorithm = word("quant_algo");
    out.words = fmt::format("{} ({})",
                            !how.empty()         ? how
                            : !algorithm.empty() ? algorithm
                                                 : "quantised",
                            keys.empty() ? "not known here: weights count with 16 bits (engine.weights)"
                                         : fmt::format("engine: {{{}}}", fmt::join(keys, ", ")));
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
    const double total = model.parameters();
    out.facts.push_back(
        {"parameters", fmt::format("{:.2f} B ({:.2f} B active)", total / 1e9, active_parameters(model) / 1e9)});
    constexpr double kGibibyte = 1024.0 * 1024 * 1024;
    const auto bytes = [&](const char* key, double otherwise) {
        double out_bytes = otherwise;
        for (const auto& [name, value] : out.engine) {
            const bool four = value == "fp4" || value == "int4";
            out_bytes = name != key ? out_bytes : four ? 0.5 : value == "fp8" || value == "int8" ? 1 : 2;
        }
        return out_bytes;
    };
    const double dense = bytes("weights", 2);
    const double routed = static_cast<double>(model.expert_layers()) * model.routed_parameters();
    const double stored = routed * bytes("experts", dense) + (total - routed - model.embedding_parameters()) * dense +
                          2 * model.embedding_parameters();
    out.facts.push_back(
        {"weights", fmt::format("{:.1f} GiB in 16 bits{}", 2 * total / kGibibyte,
                                out.engine.empty() ? ""
                                                   : fmt::format(", {:.1f} GiB as stored, without their scales",
                                                                 stored / kGibibyte))});
    const bool window = model.window > 0 && model.attention.name() != "compressed";
    out.facts.push_back(
        {"cache", fmt::format("{:.1f} KiB a token in 16 bits{}", cache_bytes_per_token(model, Precision::bf16) / 1024,
                              window ? ", of layers with a window up to its width" : "")});
}

// The file of this name in the folder of another, or one whose name has the same words before it; nothing where there is none.
Json beside(const ImportInput& input, const std::string& from, const std::string& to) {
    if (input.in_memory() || !input.path().ends_with(from)) {
        return {};
    }
    const std::string path = input.path().substr(0, input.path().size() - from.size()) + to;
    std::ifstream file(path);
    return file ? parsed(std::string(std::istreambuf_iterator<char>(file), {}), path) : Json();
}

Imported read_config(const ImportInput& input) {
    const std::string bytes = input.bytes();
    Json root = parsed(bytes, input.path());
    if (!root.is_object()) {
        throw ConfigError(
            {Diagnostic{input.path(), 1, 1, "is no JSON object, as a config.json is", ErrorCode::malformed_trace}});
    }
    if (root.contains("quantization") && root.contains("producer") && !root.contains("model_type")) {
        throw ConfigError({Diagnostic{input.path(), 1, 1,
                                      "is an hf_quant_config.json, which says how weights are stored: give the "
                                      "config.json of its folder, with which it is read",
                                      ErrorCode::malformed_trace}});
    }
    Imported out;
    use_config_keys(root, out.notes);
    // Models that see and hear too keep their language part inside, some of them inside of another part.
    Json part = root;
    Json outer;  // what stands around the language part
    std::string language;
    for (bool found = true; found;) {
        found = false;
        for (const char* key : {"thinker_config", "llm_config", "language_config", "text_config"}) {
            if (!found && part.contains(key) && part[key].is_object() && language != key) {
                found = true;
                language = key;
                Json inside = part[key];
                outer = outer.is_null() ? Json::object() : outer;
                outer.update(part);
                part = std::move(inside);
            }
        }
    }
    const bool inside = !language.empty();
    const std::string type =
        part.contains("model_type") && part["model_type"].is_string()   ? part["model_type"].get<std::string>()
        : root.contains("model_type") && root["model_type"].is_string() ? root["model_type"].get<std::string>()
                                                                        : "";
    add_class_defaults(type, part, outer, out.notes);
    HfValues config(part, inside ? &outer : nullptr, input.path(), bytes, language);
    HfValues outside(root, nullptr, input.path(), bytes, "");
    refuse_other_models(config, type);
    const bool plain = is_plain(config, type);
    const bool positions = has_other_positions(type);
    if (type.empty()) {
        out.notes.assumed("a gated feed-forward and rotary positions: the file names no model_type");
    }
    std::string name =
        input.option("name").empty() ? word_of(config.text("_name_or_path")) : word_of(input.option("name"));
    name = name.empty() ? word_of(type) : name;
    HfSizes sizes;
    sizes.layers = config.needed({"num_hidden_layers", "n_layer", "num_layers", "n_layers"});
    if (sizes.layers > 10'000) {
        throw ConfigError({config.error("num_hidden_layers", "a model has at most 10,000 layers")});
    }
    sizes.hidden = config.needed({"hidden_size", "n_embd", "d_model", "n_embed"});
    sizes.heads = config.needed({"num_attention_heads", "n_head", "n_heads"});
    sizes.kv_heads = config.whole({"num_key_value_heads", "num_kv_heads", "num_attention_groups", "n_head_kv",
                                   "kv_n_heads", "multi_query_group_num"});
    sizes.kv_heads = config.flag("multi_query", false) && sizes.kv_heads == 0 ? 1 : sizes.kv_heads;
    sizes.ffn = config.whole({"intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size",
                              "ff_intermediate_size"});
    if (type == "qwen") {
        sizes.ffn /= 2;  // the file gives the width of both products into it
    }
    if (type == "granitemoehybrid" && config.whole({"num_local_experts"}) == 0) {
        sizes.ffn = config.whole({"shared_intermediate_size", "intermediate_size"});
    }
    if (sizes.ffn == 0) {
        sizes.ffn = config.whole({"expansion_ratio"}) * sizes.hidden;
    }
    const std::string compressed = compressed_of(config, sizes, out.notes);
    const Latent latent = latent_of(config);
    sizes.head_dim =
        latent.cached > 0 ? latent.head_dim : config.whole({"head_dim", "attention_head_dim", "kv_channels"});
    std::string experts;
    if (type.rfind("longcat_flash", 0) == 0) {
        // A layer has two attentions and two dense feed-forwards, beside one of experts.
        sizes.layers *= 2;
        experts = experts_of(config, sizes.hidden, sizes.layers, out.notes);
        experts.insert(experts.size() - 1, fmt::format(", shared: {}, every: 2", sizes.ffn));
        out.notes.assumed("each layer as two, of which the second has experts beside its feed-forward");
    } else {
        experts = experts_of(config, sizes.hidden, sizes.layers, out.notes);
    }
    if (compressed.empty()) {
        read_layers(config, latent.cached, sizes, out.notes);
    }
    for (const std::string& key : config.means()) {
        out.notes.assumed(fmt::format("the mean of '{}' for every layer, where layers differ", key));
    }
    const bool tied = config.flag("tie_word_embeddings", config.flag("tie_embedding", !is_untied(type)));
    const std::string hidden = number(sizes.hidden);
    YamlLines lines = {
        {"name", name.empty() ? "imported" : name},
        {"layers", number(sizes.layers)},
        {"hidden", hidden},
        {"heads", number(sizes.heads)},
        {"kv_heads", latent.text.empty() ? number(sizes.kv_heads) : ""},
        {"head_dim", number(sizes.head_dim)},
        {"ffn", number(sizes.ffn)},
        {"gated", plain ? "" : "true"},
        {"vocabulary", number(config.needed({"vocab_size", "padded_vocab_size"}))},
        {"sequence", number(config.whole({"max_position_embeddings", "n_positions", "max_seq_len", "seq_length",
                                          "max_sequence_length", "model_max_length"}))},
        {"tied_embeddings", tied ? "true" : "false"},
        {"rotary", positions ? "" : "true"},
        {"parallel_block", config.flag("parallel_attn", type == "gptj" || type.rfind("cohere", 0) == 0) ? "true" : ""},
        {"window", number(sizes.window)},
        {"full_every", number(sizes.full_every)},
        {"output_gate", sizes.output_gate ? "true" : ""},
        {"query_key_norm", one_of(type, {"qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_next",
                                         "qwen3_5_text", "qwen3_5_moe_text"})
                               ? "heads"
                               : ""},
        {"attention", compressed.empty() ? gemma_of(config, type, sizes) : compressed},
        {"experts", experts},
        {"latent", latent.text},
        {"indexer", indexer_of(config, latent.cached > 0)},
        {"linear", sizes.linear}};
    if (!sizes.pattern.empty()) {
        lines.emplace_back("pattern", fmt::format("\"{}\"", sizes.pattern));
        lines.emplace_back("state_space", sizes.state_space);
    }
    if (root.contains("vision_config") && root["vision_config"].is_object()) {
        lines.emplace_back(
            "encoder",
            encoder_of(root, outside, HfValues(root.at("vision_config"), nullptr, input.path(), bytes, "vision_config"),
                       hidden, out.notes));
    }
    note_unread(part, config.read(), out.notes);
    if (inside) {
        note_unread(outer, config.read(), out.notes);
    }
    const Json stored = beside(input, "config.json", "hf_quant_config.json");
    if (StoredPrecision precision = precision_of(root, part, stored, !experts.empty()); !precision.words.empty()) {
        out.notes.left_out(
            fmt::format("'quantization_config', which the engine of a scenario says: {}", precision.words));
        out.engine = std::move(precision.engine);
        if (!precision.cache.empty()) {
            out.engine.emplace_back("cache", precision.cache);
            out.notes.left_out(
                fmt::format("the precision of keys and values, which the engine of a scenario says: {} "
                            "(engine: {{kv: {{precision: {}}}}})",
                            precision.cache, precision.cache));
        }
    }
    out.text =
        "# The model of a Hugging Face config.json, by 'orrery import hf-config'.\n" + yaml_section("model", lines);
    out.use = "these lines in place of its 'model:'";
    out.notes.read("keys", config.read().size());
    out.facts.push_back({"model", name});
    add_size(out);
    return out;
}

}  // namespace

extern const Importer kHuggingFaceImporter = {"hf-config",
                                              "a Hugging Face config.json, as the model of a scenario",
                                              {{"name", "NAME", "name of the model, where the file does not say it"}},
                                              read_config,
                                              "yaml"};

}  // namespace orrery::imports
