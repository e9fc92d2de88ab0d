#include "workloads/imports/megatron_model.hpp"

#include "sim/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

namespace orrery::imports {

namespace {

// A list as Python writes it, of numbers: "[1,0]*3+[0]", "([0]*3+[1]*58)".
class ListText {
  public:
    explicit ListText(std::string_view text) : text_(text) {}
    /// Nothing where the text is no such list, or one of more than 10,000 numbers.
    std::optional<std::vector<int>> read() {
        std::optional<std::vector<int>> out = sum(0);
        return i_ == text_.size() ? out : std::nullopt;
    }

  private:
    bool take(char c) {
        while (i_ < text_.size() && text_[i_] == ' ') {
            ++i_;
        }
        const bool found = i_ < text_.size() && text_[i_] == c;
        i_ += found ? 1 : 0;
        return found;
    }
    std::optional<int> whole() {
        std::size_t digits = 0;
        int value = 0;
        for (take('+'); i_ < text_.size() && text_[i_] >= '0' && text_[i_] <= '9' && digits < 5; ++i_, ++digits) {
            value = 10 * value + (text_[i_] - '0');
        }
        return digits > 0 ? std::optional(value) : std::nullopt;
    }
    std::optional<std::vector<int>> sum(int depth) {
        std::optional<std::vector<int>> out = product(depth);
        while (out && take('+')) {
            const std::optional<std::vector<int>> more = product(depth);
            if (!more || out->size() + more->size() > kMost) {
                return std::nullopt;
            }
            out->insert(out->end(), more->begin(), more->end());
        }
        return out;
    }
    std::optional<std::vector<int>> product(int depth) {
        std::optional<std::vector<int>> one;
        if (depth < 16 && take('(')) {
            one = sum(depth + 1);
            if (!take(')')) {
                return std::nullopt;
            }
        } else if (take('[')) {
            one.emplace();
            do {
                const std::optional<int> value = whole();
                if (!value || one->size() == kMost) {
                    return std::nullopt;
                }
                one->push_back(*value);
            } while (take(','));
            if (!take(']')) {
                return std::nullopt;
            }
        }
        while (one && take('*')) {
            const std::optional<int> times = whole();
            if (!times || one->size() * static_cast<std::size_t>(*times) > kMost) {
                return std::nullopt;
            }
            std::vector<int> all;
            for (int k = 0; k < *times; ++k) {
                all.insert(all.end(), one->begin(), one->end());
            }
            one = all;
        }
        return one;
    }

    static constexpr std::size_t kMost = 10'000;
    std::string_view text_;
    std::size_t i_ = 0;
};

// Which layers a flag chooses: after `first` layers without, each last of `every`.
struct Chosen {
    std::int64_t first = 0;
    std::int64_t every = 1;
};

// Layers with a 1 in the list of a flag such as --moe-layer-freq.
Chosen chosen_layers(CommandText& flags, const std::string& flag, std::int64_t layers) {
    const std::string text = flags.text({flag});
    const std::optional<std::vector<int>> list = ListText(text).read();
    if (!list) {
        throw ConfigError(
            {flags.error({flag}, fmt::format("--{} must be a whole number or a list such as ([0]*3+[1]*58), "
                                             "not '{}'",
                                             flag, text))});
    }
    if (static_cast<std::int64_t>(list->size()) != layers) {
        throw ConfigError({flags.error(
            {flag}, fmt::format("--{} lists {} layers, and the model has {}", flag, list->size(), layers))});
    }
    const std::int64_t first = std::find(list->begin(), list->end(), 1) - list->begin();
    for (std::int64_t every = 1; every <= layers; ++every) {
        for (const std::int64_t dense : {std::int64_t{0}, first}) {
            bool same = true;
            for (std::int64_t layer = 0; layer < layers && same; ++layer) {
                same = (layer >= dense && (layer + 1) % every == 0) == ((*list)[static_cast<std::size_t>(layer)] == 1);
            }
            if (same) {
                return {dense, every};
            }
        }
    }
    throw ConfigError({flags.error(
        {flag},
        fmt::format("--{}: only first layers without, and then the last of every so many layers, can be described",
                    flag))});
}

// Routed experts of a layer, as one YAML value; empty when there are none.
std::string experts_of(CommandText& flags, std::int64_t layers, ImportNotes& notes) {
    const std::optional<std::int64_t> count = flags.whole({"num-experts"});
    if (!count || *count == 1) {  // one expert: to Megatron-DeepSpeed a layer without
        return "";
    }
    std::optional<std::int64_t> width = flags.whole({"moe-ffn-hidden-size"});
    if (!width) {
        width = flags.whole({"ffn-hidden-size"});
    }
    if (!width) {
        notes.assumed("experts four times as wide as the model, as Megatron-LM does without --ffn-hidden-size");
        width = 4 * flags.whole({"hidden-size"}).value_or(0);
    }
    std::string text = fmt::format("{{count: {}, topk: {}, ffn: {}", *count,
                                   flags.whole({"moe-router-topk", "topk"}).value_or(2), *width);
    const std::pair<const char*, const char*> others[] = {{"shared", "moe-shared-expert-intermediate-size"},
                                                          {"groups", "moe-router-num-groups"},
                                                          {"group_topk", "moe-router-group-topk"}};
    for (const auto& [key, flag] : others) {
        if (const auto value = flags.whole({flag})) {
            text += fmt::format(", {}: {}", key, *value);
        }
    }
    if (const std::string freq = flags.text({"moe-layer-freq"}); freq.find('[') != std::string::npos) {
        const Chosen chosen = chosen_layers(flags, "moe-layer-freq", layers);
        text += chosen.first > 0 ? fmt::format(", dense_layers: {}", chosen.first) : "";
        text += chosen.every > 1 ? fmt::format(", every: {}", chosen.every) : "";
    } else if (const auto every = flags.whole({"moe-layer-freq"}); every && *every > 1) {
        text += fmt::format(", every: {}", *every);
        notes.assumed(
            fmt::format("experts in the last of every {} layers, where Megatron-LM has them in the first", *every));
    }
    return text + (flags.text({"moe-router-dtype"}) == "fp32" ? ", gate: fp32}" : "}");
}

// Multi-head latent attention, as one YAML value.
std::string latent_of(CommandText& flags) {
    if (!flags.has("multi-latent-attention")) {
        return "";
    }
    const std::optional<std::int64_t> query = flags.whole({"q-lora-rank"});
    return fmt::format("{{kv_rank: {}{}, rotary: {}, value_dim: {}}}", flags.whole({"kv-lora-rank"}).value_or(32),
                       query ? fmt::format(", q_rank: {}", *query) : "",
                       flags.whole({"qk-pos-emb-head-dim"}).value_or(64), flags.whole({"v-head-dim"}).value_or(128));
}

// Layers of a hybrid and its state-space layers, as two YAML values.
std::pair<std::string, std::string> hybrid_of(CommandText& flags, std::int64_t hidden) {
    const std::string pattern = flags.text({"hybrid-override-pattern", "hybrid-layer-pattern"});
    if (pattern.empty()) {
        return {};
    }
    if (pattern.find_first_not_of("M*-") != std::string::npos) {
        throw ConfigError({flags.error({"hybrid-override-pattern", "hybrid-layer-pattern"},
                                       fmt::format("a pattern of M, * and - can be described, not '{}'", pattern))});
    }
    const std::int64_t width = flags.whole({"mamba-head-dim"}).value_or(64);
    return {fmt::format("\"{}\"", pattern),
            fmt::format("{{heads: {}, head_dim: {}, state: {}, groups: {}}}",
                        flags.whole({"mamba-num-heads"}).value_or(2 * hidden / width), width,
                        flags.whole({"mamba-state-dim"}).value_or(128), flags.whole({"mamba-num-groups"}).value_or(8))};
}

// Tokens of the tokenizers that scripts name, by a part of the name in lower case.
struct Tokenizer {
    const char* part;
    const char* name;
    std::int64_t tokens;
};
constexpr Tokenizer kTokenizers[] = {
    {"gpt-oss", "gpt-oss", 201088},         {"llama-4", "Llama 4", 202048},
    {"llama-3", "Llama 3", 128256},         {"llama3", "Llama 3", 128256},
    {"llama-2", "Llama 2", 32000},          {"llama2", "Llama 2", 32000},
    {"mixtral", "Mixtral", 32000},          {"mistral", "Mistral", 32000},
    {"qwen3.5", "Qwen 3.5", 248320},        {"qwen", "Qwen", 151643},
    {"deepseek-v3", "DeepSeek-V3", 129280}, {"deepseek-v2", "DeepSeek-V2", 102400},
    {"deepseekv2", "DeepSeek-V2", 100002},  {"gpt2bpe", "GPT-2", 50257},
};
const Tokenizer* tokenizer_of(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const auto found = std::find_if(std::begin(kTokenizers), std::end(kTokenizers),
                                    [&](const Tokenizer& row) { return text.find(row.part) != std::string::npos; });
    return found == std::end(kTokenizers) ? nullptr : found;
}

// Tokens that the tokenizer has, padded as Megatron-LM pads them: to a multiple of 128 for each tensor rank.
std::int64_t vocabulary_of(CommandText& flags, std::int64_t tensor, ImportNotes& notes) {
    if (const auto padded = flags.whole({"padded-vocab-size"}, 1e8)) {
        return *padded;
    }
    std::optional<std::int64_t> tokens = flags.whole({"vocab-size"}, 1e8);
    const std::int64_t extra = flags.whole({"extra-vocab-size"}, 1e8).value_or(0);
    const std::string tokenizer = flags.text({"patch-tokenizer-type"}) + " " + flags.text({"tokenizer-model"}) + " " +
                                  flags.text({"tokenizer-type"});
    if (tokens && flags.text({"tokenizer-type"}) == "NullTokenizer") {
        tokens = *tokens + 1;
    }
    if (const Tokenizer* known = tokenizer_of(tokenizer); !tokens && known != nullptr) {
        tokens = known->tokens + extra;
        notes.assumed(fmt::format("a vocabulary of {} tokens, as {}'s tokenizer has", *tokens, known->name));
    }
    if (!tokens) {
        notes.assumed("a vocabulary of GPT-2's 50,257 tokens: the tokenizer is in a file that the command line names");
        tokens = 50257;
    }
    const std::int64_t multiple = flags.whole({"make-vocab-size-divisible-by"}, 1e6).value_or(128) * tensor;
    return (*tokens + multiple - 1) / multiple * multiple;
}

// The window of attention and how often a layer does without, as YAML values.
std::pair<std::string, std::string> window_of(CommandText& flags, std::int64_t layers, ImportNotes& notes) {
    const std::vector<std::string> window = flags.values("window-size");
    if (window.empty() || window[0] == "-1" || window[0] == "None") {
        return {};
    }
    std::string every;
    const std::string skipped = flags.text({"window-attn-skip-freq"});
    if (skipped.find('[') != std::string::npos) {
        // 1 stands for a layer with the window.
        std::optional<std::vector<int>> list = ListText(skipped).read();
        std::int64_t period = 0;
        for (std::int64_t n = 1; list && n <= layers && period == 0; ++n) {
            bool same = static_cast<std::int64_t>(list->size()) == layers;
            for (std::int64_t layer = 0; layer < layers && same; ++layer) {
                same = ((layer + 1) % n == 0) == ((*list)[static_cast<std::size_t>(layer)] == 0);
            }
            period = same ? n : 0;
        }
        if (period == 0 && (!list || std::find(list->begin(), list->end(), 0) != list->end())) {
            throw ConfigError({flags.error({"window-attn-skip-freq"},
                                           "--window-attn-skip-freq: only full attention in the last of every so many "
                                           "layers can be described")});
        }
        every = period > 0 ? std::to_string(period) : "";
    } else {
        every = yaml_number(flags.whole({"window-attn-skip-freq"}, 1e4));
    }
    if (window.size() > 1 && window[1] != "0" && window[1] != "-1") {
        notes.assumed("a window behind each token only (--window-size names one on both sides)");
    }
    return {window[0], every};
}

}  // namespace

YamlLines megatron_model(CommandText& flags, std::int64_t tensor, ImportNotes& notes) {
    const auto needed = [&](const std::vector<std::string>& names) {
        const std::optional<std::int64_t> value = flags.whole(names);
        if (!value) {
            throw ConfigError(
                {flags.error({}, fmt::format("--{} is missing: the model is not known without it", names[0]))});
        }
        return *value;
    };
    if (flags.has("decoder-num-layers")) {
        throw ConfigError({flags.error({"decoder-num-layers"},
                                       "--decoder-num-layers is of an encoder with a decoder, which is not modelled: "
                                       "expected --num-layers of a decoder")});
    }
    const std::int64_t layers = needed({"num-layers", "encoder-num-layers"});
    // Where the layout has a place for it, a layer that predicts further tokens is one more.
    const std::string layout = flags.text({"pipeline-model-parallel-layout"});
    const std::int64_t further = std::count(layout.begin(), layout.end(), 'm');
    if (further > 0) {
        notes.assumed(
            fmt::format("{} more layers of the model for those that predict further tokens (m in "
                        "--pipeline-model-parallel-layout)",
                        further));
    }
    const std::int64_t hidden = needed({"hidden-size"});
    const std::int64_t heads = needed({"num-attention-heads"});
    const std::string latent = latent_of(flags);
    const auto [pattern, state_space] = hybrid_of(flags, hidden);
    const auto [window, full_every] = window_of(flags, layers, notes);
    const bool grouped = flags.has("group-query-attention");
    const std::string groups = yaml_number(flags.whole({"num-query-groups"}));
    const std::string position = flags.text({"position-embedding-type"});
    const bool drops = flags.text({"hidden-dropout"}).find_first_of("123456789") != std::string::npos ||
                       flags.text({"attention-dropout"}).find_first_of("123456789") != std::string::npos;
    const bool names_dropout = flags.has("hidden-dropout") || flags.has("attention-dropout");
    if (!names_dropout) {
        notes.assumed("dropout of 0.1, as Megatron-LM has without --hidden-dropout 0 --attention-dropout 0");
    }
    return {{"name", "imported"},
            {"layers", std::to_string(layers + further)},
            {"hidden", std::to_string(hidden)},
            {"heads", std::to_string(heads)},
            {"kv_heads", grouped && latent.empty() ? groups : ""},
            {"head_dim", latent.empty() ? yaml_number(flags.whole({"kv-channels"}))
                                        : std::to_string(flags.whole({"qk-head-dim"}).value_or(128))},
            {"ffn", yaml_number(flags.whole({"ffn-hidden-size"}))},
            {"latent", latent},
            {"pattern", pattern},
            {"state_space", state_space},
            {"experts", experts_of(flags, layers, notes)},
            {"gated", flags.has("swiglu") || flags.has("quick-geglu") ? "true" : ""},
            {"window", window},
            {"full_every", full_every},
            {"query_key_norm", flags.has("qk-layernorm") || flags.has("qk-l2-norm") ? "heads" : ""},
            {"dropout", drops || !names_dropout ? "true" : ""},
            {"biases", flags.has("disable-bias-linear") ? "" : "true"},
            {"vocabulary", std::to_string(vocabulary_of(flags, tensor, notes))},
            {"sequence", std::to_string(needed({"seq-length", "encoder-seq-length"}))},
            {"tied_embeddings", flags.has("untie-embeddings-and-output-weights") ? "false" : "true"},
            {"rotary", flags.has("use-rotary-position-embeddings") || position == "rope" || position == "mrope" ||
                               position == "yarn"
                           ? "true"
                           : ""}};
}

}  // namespace orrery::imports
