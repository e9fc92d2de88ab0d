#include "workloads/imports/hf_layers.hpp"

#include "sim/base/text.hpp"
#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string_view>

namespace orrery::imports {

namespace {

/// What a layer does with the tokens before it.
enum class Use : std::uint8_t { full, window, linear, space, convolution };

bool is_state(Use use) {
    return use == Use::linear || use == Use::space || use == Use::convolution;
}

std::optional<Use> use_of(const std::string& word) {
    const auto has = [&](const char* part) { return word.find(part) != std::string::npos; };
    return has("sliding") || has("local") || has("chunked") ? std::optional(Use::window)
           : has("linear") || has("delta") || has("kda")    ? std::optional(Use::linear)
           : has("mamba") || has("recurrent") || has("ssm") ? std::optional(Use::space)
           : has("conv")                                    ? std::optional(Use::convolution)
           : has("full") || has("global") || has("sparse") || word == "attention" || word == "hybrid"
               ? std::optional(Use::full)
               : std::nullopt;
}

class Layers {
  public:
    Layers(HfValues& config, std::int64_t latent, HfSizes& sizes, ImportNotes& notes)
        : config_(config), latent_(latent), sizes_(sizes), notes_(notes) {}

    void read() {
        if (read_blocks() || read_parallel() || read_hybrid()) {
            return;
        }
        const std::vector<Use> uses = uses_of_layers();
        config_.pass({"full_attention_interval", "global_attn_every_n_layers", "sliding_window",
                      "sliding_window_pattern", "no_rope_layers", "no_rope_layer_interval", "nope_layer_interval",
                      "max_window_layers"});
        sizes_.window = width_of_window(uses);
        const auto full = std::count(uses.begin(), uses.end(), Use::full);
        const bool gated = latent_ == 0 && config_.flag("attn_output_gate", config_.text("model_type") == "qwen3_next");
        if (read_linear(uses, full)) {
            sizes_.output_gate = gated;
            return;
        }
        if (full == sizes_.layers || sizes_.window == 0) {
            sizes_.window = 0;
        } else if (full > 0) {
            place_full(uses, full);
        }
        if (std::any_of(uses.begin(), uses.end(), is_state)) {
            double weights = 0;
            for (const Use use : uses) {
                weights += is_state(use) ? state_weights(use) : attention_weights();
            }
            note_states(uses);
            match_weights(weights / static_cast<double>(sizes_.layers));
        } else {
            sizes_.output_gate = gated;
        }
    }

  private:
    [[nodiscard]] double hidden() const { return static_cast<double>(sizes_.hidden); }
    [[nodiscard]] std::int64_t head_dim() const {
        return sizes_.head_dim > 0 ? sizes_.head_dim : sizes_.hidden / std::max<std::int64_t>(1, sizes_.heads);
    }
    [[nodiscard]] std::int64_t kv_heads() const { return sizes_.kv_heads > 0 ? sizes_.kv_heads : sizes_.heads; }
    [[nodiscard]] double cached_bytes() const {  // of a token in a layer, in 16 bits
        return 2.0 * static_cast<double>(latent_ > 0 ? latent_ : 2 * kv_heads() * head_dim());
    }

    // Words of the list, cut or repeated to the number of layers.
    [[nodiscard]] std::vector<Use> of_words(const char* key, const std::vector<std::string>& words) const {
        std::vector<Use> out;
        for (const std::string& word : words) {
            const std::optional<Use> use = use_of(word);
            if (!use) {
                throw ConfigError({config_.error(
                    key, fmt::format("'{}' has layers of kind '{}', which is not known: full_attention, "
                                     "sliding_attention, chunked_attention, linear_attention, mamba and conv are",
                                     key, printable(word, 60)))});
            }
            out.push_back(*use);
        }
        if (static_cast<std::int64_t>(out.size()) < sizes_.layers) {
            throw ConfigError({config_.error(
                key, fmt::format("'{}' has {} layers, and the model {}", key, out.size(), sizes_.layers))});
        }
        out.resize(static_cast<std::size_t>(sizes_.layers));
        return out;
    }

    // Every layer but the last of so many is `other`.
    [[nodiscard]] std::vector<Use> every(std::int64_t n, Use other, std::int64_t from = 0) const {
        std::vector<Use> out;
        for (std::int64_t layer = 0; layer < sizes_.layers; ++layer) {
            out.push_back(n > 0 && (layer + 1 + from) % n == 0 ? Use::full : other);
        }
        return out;
    }

    // A width of state-space layers, or what transformers takes where the file does not say.
    std::int64_t or_usual(const std::vector<const char*>& keys, std::int64_t usual) {
        const std::int64_t given = config_.whole(keys);
        return given > 0 ? given : usual;
    }

    // The layers of a list, counted from 0, see everything; the others are `other`.
    [[nodiscard]] std::vector<Use> at(const std::vector<std::int64_t>& full, Use other) const {
        std::vector<Use> out(static_cast<std::size_t>(sizes_.layers), other);
        for (const std::int64_t layer : full) {
            if (layer >= 0 && layer < sizes_.layers) {
                out[static_cast<std::size_t>(layer)] = Use::full;
            }
        }
        return out;
    }

    // 1 stands for `one`, everything else for `other`.
    [[nodiscard]] std::vector<Use> of_numbers(std::vector<std::int64_t> numbers, Use one, Use other) const {
        numbers.resize(static_cast<std::size_t>(sizes_.layers), numbers.back());
        std::vector<Use> out;
        for (const std::int64_t number : numbers) {
            out.push_back(number == 1 ? one : other);
        }
        return out;
    }

    std::vector<Use> uses_of_layers() {
        for (const char* key : {"layer_types", "layers_block_type", "attention_types"}) {
            if (const std::vector<std::string> words = config_.words(key); !words.empty()) {
                return of_words(key, words);
            }
        }
        if (const auto list = config_.numbers("attn_type_list"); !list.empty()) {
            return of_numbers(list, Use::full, Use::linear);
        }
        if (const auto list = config_.numbers("attn_layer_indices"); !list.empty()) {
            return at(list, Use::space);
        }
        if (const auto list = config_.numbers("full_attn_idxs"); !list.empty()) {
            return at(list, Use::convolution);
        }
        if (const std::int64_t n = config_.whole({"layer_group_size"}); n > 1) {
            return every(n, Use::linear);
        }
        if (const std::int64_t n = config_.whole({"full_attention_interval"}); n > 0) {
            return every(n, Use::linear);
        }
        if (const std::int64_t n = config_.whole({"global_attn_every_n_layers"}); n > 0) {  // AFMoE
            return every(n, Use::window);
        }
        if (std::optional<HfValues> linear = config_.map("linear_attn_config")) {
            std::vector<Use> out(static_cast<std::size_t>(sizes_.layers), Use::linear);
            for (const std::int64_t layer : linear->numbers("full_attn_layers")) {
                if (layer >= 1 && layer <= sizes_.layers) {
                    out[static_cast<std::size_t>(layer) - 1] = Use::full;
                }
            }
            return out;
        }
        if (const std::int64_t n = config_.whole({"attn_layer_period"}); n > 0) {
            return every(n, Use::space, n - 1 - config_.whole({"attn_layer_offset"}) % n);
        }
        if (const auto list = config_.numbers("hybrid_layer_pattern"); !list.empty()) {
            return of_numbers(list, Use::window, Use::full);
        }
        if (config_.whole({"attention_chunk_size"}) > 0) {
            const auto list = config_.numbers("no_rope_layers");
            const std::int64_t n = list.empty() ? config_.whole({"no_rope_layer_interval"}) : 0;
            return list.empty() ? every(n > 0 ? n : 4, Use::window) : of_numbers(list, Use::window, Use::full);
        }
        return sliding();
    }

    std::vector<Use> sliding() {
        const bool window = config_.whole({"sliding_window"}) > 0 && config_.flag("use_sliding_window", true);
        std::vector<Use> all(static_cast<std::size_t>(sizes_.layers), window ? Use::window : Use::full);
        if (!window) {
            return all;
        }
        if (const std::string letters = config_.text("sliding_window_pattern"); !letters.empty()) {  // LLLG
            for (std::size_t i = 0; i < all.size(); ++i) {
                all[i] = letters[i % letters.size()] == 'G' ? Use::full : Use::window;
            }
            return all;
        }
        const std::string type = config_.text("model_type");
        const bool alternate = type == "gpt_oss" || type == "gemma2";
        const std::int64_t n = config_.has_number("sliding_window_pattern") ? config_.whole({"sliding_window_pattern"})
                               : alternate                                  ? 2
                                                                            : 0;
        if (n > 0) {
            return every(n, Use::window);
        }
        if (config_.has("use_sliding_window")) {  // Qwen: those from max_window_layers on
            const std::int64_t first = std::min(config_.whole({"max_window_layers"}), sizes_.layers);
            std::fill(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first), Use::full);
        }
        return all;
    }

    std::int64_t width_of_window(const std::vector<Use>& uses) {
        const auto has = [&](Use use) { return std::find(uses.begin(), uses.end(), use) != uses.end(); };
        std::int64_t width = 0;
        if (has(Use::window)) {
            const std::int64_t chunk = config_.whole({"attention_chunk_size"});
            width = config_.whole({"sliding_window", "sliding_window_size", "attention_window_size"});
            if (chunk > 0) {
                width = chunk;
                notes_.assumed(
                    fmt::format("attention in chunks of {} tokens as a window of as many, of which a chunk "
                                "holds half on average",
                                chunk));
            }
        }
        for (const Use use : {Use::linear, Use::space, Use::convolution}) {
            if (has(use)) {
                width = std::max(width, state_window(use));
            }
        }
        return width;
    }

    // Tokens whose keys and values take the bytes of a layer's state.
    std::int64_t state_window(Use use) {
        if (use == Use::convolution) {
            return std::max<std::int64_t>(1, config_.whole({"conv_L_cache", "conv_kernel"}));
        }
        const double bytes = use == Use::linear
                                 ? 4.0 * static_cast<double>(linear_heads() * linear_key() * linear_value())
                                 : 4.0 * static_cast<double>(space_inner() * space_state());
        return std::max<std::int64_t>(1, std::llround(bytes / cached_bytes()));
    }

    // Sizes of linear attention: a delta net's, Kimi's, or as attention's.
    std::int64_t of_linear(const char* key, const char* in_map, std::int64_t otherwise) {
        const std::int64_t own = config_.whole({key});
        std::optional<HfValues> map = own > 0 ? std::nullopt : config_.map("linear_attn_config");
        const std::int64_t nested = map ? map->whole({in_map}) : 0;
        return own > 0 ? own : nested > 0 ? nested : otherwise;
    }
    std::int64_t linear_heads() { return of_linear("linear_num_value_heads", "num_heads", sizes_.heads); }
    std::int64_t linear_key_heads() { return of_linear("linear_num_key_heads", "num_heads", linear_heads()); }
    std::int64_t linear_key() { return of_linear("linear_key_head_dim", "head_dim", head_dim()); }
    std::int64_t linear_value() { return of_linear("linear_value_head_dim", "head_dim", head_dim()); }

    std::int64_t space_heads() { return config_.whole({"mamba_num_heads", "mamba_n_heads"}); }
    std::int64_t space_inner() {
        const std::int64_t width = config_.whole({"mamba_head_dim", "mamba_d_head"});
        const std::int64_t expand = config_.whole({"mamba_expand", "expand"});
        return space_heads() > 0 && width > 0 ? space_heads() * width
                                              : std::max<std::int64_t>(1, expand) * sizes_.hidden;
    }
    std::int64_t space_state() { return std::max<std::int64_t>(1, config_.whole({"ssm_state_size", "mamba_d_state"})); }

    double attention_weights() {
        const double q = static_cast<double>(sizes_.heads * head_dim());
        const double gate = config_.flag("attn_output_gate", false) ? q : 0;
        return hidden() * (2 * q + gate + 2 * static_cast<double>(kv_heads() * head_dim()));
    }

    double state_weights(Use use) {
        if (use == Use::convolution) {
            return 4 * hidden() * hidden();
        }
        if (use == Use::linear) {
            const double keys = static_cast<double>(linear_key_heads() * linear_key());
            const double values = static_cast<double>(linear_heads() * linear_value());
            return hidden() * (2 * keys + 3 * values + 2 * static_cast<double>(linear_heads()));
        }
        const auto width = static_cast<double>(space_inner());
        const auto state = static_cast<double>(space_state());
        if (space_heads() > 0) {
            const std::int64_t groups = std::max<std::int64_t>(1, config_.whole({"n_groups", "mamba_n_groups"}));
            return hidden() *
                   (3 * width + 2 * static_cast<double>(groups) * state + static_cast<double>(space_heads()));
        }
        const std::int64_t named = config_.whole({"mamba_dt_rank"});
        const double rank = named > 0 ? static_cast<double>(named) : std::ceil(hidden() / 16);
        return 3 * hidden() * width + width * (2 * rank + 2 * state);
    }

    // Gated delta nets (Qwen3-Next) and Kimi delta attention, beside layers of full attention.
    bool read_linear(const std::vector<Use>& uses, std::int64_t full) {
        const bool net = config_.whole({"linear_num_value_heads"}) > 0;
        const bool kimi = !net && config_.map("linear_attn_config").has_value();
        const auto linear = std::count(uses.begin(), uses.end(), Use::linear);
        if ((!net && !kimi) || full == 0 || linear == 0 || linear + full != sizes_.layers) {
            return false;
        }
        place_full(uses, full);
        const std::int64_t width = of_linear("linear_conv_kernel_dim", "short_conv_kernel_size", 4);
        // vLLM keeps states in the format of activations where the file names none.
        const std::string format = config_.text("mamba_ssm_dtype");
        sizes_.linear =
            fmt::format("{{kind: {}, key_heads: {}, value_heads: {}, key_dim: {}, value_dim: {}, convolution: {}{}}}",
                        net ? "gated-delta" : "kimi-delta", linear_key_heads(), linear_heads(), linear_key(),
                        linear_value(), width, format == "float32" || kimi ? "" : ", state: bf16");
        sizes_.window = 0;
        return true;
    }

    // Takes as many query heads as give a layer these weights; tensor-parallel degrees that divide the model's heads divide them too.
    void match_weights(double weights) {
        if (latent_ > 0 || sizes_.heads == 0) {
            return;  // the latent vectors have their own
        }
        const std::int64_t step = std::lcm(std::gcd<std::int64_t>(sizes_.heads, 8), kv_heads());
        const double heads = (weights / hidden() - 2 * static_cast<double>(kv_heads() * head_dim())) /
                             (2 * static_cast<double>(head_dim()));
        sizes_.head_dim = head_dim();
        sizes_.kv_heads = kv_heads();
        sizes_.heads = std::max<std::int64_t>(1, std::llround(heads / static_cast<double>(step))) * step;
    }

    void note_states(const std::vector<Use>& uses) {
        const auto states = std::count_if(uses.begin(), uses.end(), is_state);
        const bool linear = std::find(uses.begin(), uses.end(), Use::linear) != uses.end();
        const bool space = std::find(uses.begin(), uses.end(), Use::space) != uses.end();
        notes_.left_out(
            fmt::format("{} {} layers, which are not modelled: they are priced as attention through a window of {} "
                        "tokens, whose keys and values are as large as their state{}",
                        states,
                        linear  ? "linear-attention"
                        : space ? "state-space"
                                : "convolution",
                        sizes_.window, latent_ > 0 ? "; their own projections are left out" : ""),
            static_cast<std::size_t>(states));
    }

    // Full layers are the last of every so many here.
    void place_full(const std::vector<Use>& uses, std::int64_t full) {
        const auto is_placed = [&](std::int64_t n) {
            const std::vector<Use> placed = every(n, Use::window);
            return std::equal(uses.begin(), uses.end(), placed.begin(),
                              [](Use a, Use b) { return (a == Use::full) == (b == Use::full); });
        };
        const auto first = std::find(uses.begin(), uses.end(), Use::full) - uses.begin();
        sizes_.full_every = std::max<std::int64_t>(2, first + 1);
        const bool same = is_placed(sizes_.full_every);
        if (!same) {
            sizes_.full_every =
                std::max<std::int64_t>(2, std::llround(static_cast<double>(sizes_.layers) / static_cast<double>(full)));
        }
        const std::vector<Use> said = every(sizes_.full_every, Use::window);
        if (!same) {
            notes_.assumed(
                fmt::format("full attention in the last of every {} layers ({} of {}), where the model has "
                            "it in {} others",
                            sizes_.full_every, std::count(said.begin(), said.end(), Use::full), sizes_.layers, full));
        }
    }

    // Layers of a letter each, and the state-space ones among them (NemotronHConfig).
    bool read_hybrid() {
        std::string pattern = config_.text("hybrid_override_pattern");
        if (pattern.empty()) {
            for (const std::string& word : config_.words("layers_block_type")) {
                pattern += word == "mamba"       ? 'M'
                           : word == "attention" ? '*'
                           : word == "mlp"       ? '-'
                           : word == "moe"       ? 'E'
                                                 : '?';
            }
            if (pattern.find_first_of("-E") == std::string::npos) {
                return read_mixers();
            }
        }
        if (pattern.find_first_not_of("M-*E") != std::string::npos) {
            throw ConfigError({config_.error(
                config_.has("hybrid_override_pattern") ? "hybrid_override_pattern" : "layers_block_type",
                "the pattern of layers has others than state-space (M), attention (*), feed-forward (-) and experts "
                "(E), which are not modelled")});
        }
        sizes_.pattern = pattern;
        sizes_.layers = static_cast<std::int64_t>(pattern.size());
        read_space();
        return true;
    }

    // Layers that each have a feed-forward of their own or experts, behind attention or a state-space layer (Granite 4, Bamba): two
    // letters each. With experts in some of them, or state-space layers of before Mamba-2, no pattern says it.
    bool read_mixers() {
        const bool experts = config_.whole({"num_local_experts", "num_experts"}) > 0;
        const bool some = config_.whole({"expert_layer_period"}) > 1;
        if (some || space_heads() == 0 || config_.whole({"n_groups", "mamba_n_groups"}) == 0) {
            return false;
        }
        std::vector<Use> uses = uses_of_layers();
        const auto count = [&](Use use) { return std::count(uses.begin(), uses.end(), use); };
        if (count(Use::space) == 0 || count(Use::space) + count(Use::full) != sizes_.layers) {
            return false;
        }
        for (const Use use : uses) {
            sizes_.pattern += use == Use::space ? 'M' : '*';
            sizes_.pattern += experts ? 'E' : '-';
        }
        sizes_.layers *= 2;
        notes_.assumed("each layer as two: what mixes tokens, and its feed-forward or experts");
        read_space();
        return true;
    }

    // State-space layers of a pattern.
    void read_space() {
        if (sizes_.pattern.find('M') != std::string::npos) {
            sizes_.state_space = fmt::format(
                "{{heads: {}, head_dim: {}, state: {}, groups: {}, convolution: {}, chunk: {}}}",
                config_.needed({"mamba_num_heads", "mamba_n_heads"}),
                config_.needed({"mamba_head_dim", "mamba_d_head"}), config_.needed({"ssm_state_size", "mamba_d_state"}),
                config_.needed({"n_groups", "mamba_n_groups"}), or_usual({"conv_kernel", "mamba_d_conv"}, 4),
                or_usual({"chunk_size", "mamba_chunk_size"}, 256));
        }
    }

    // Attention and a state space side by side, then a feed-forward (Falcon-H1): three letters for each layer.
    bool read_parallel() {
        if (config_.text("model_type") != "falcon_h1") {
            return false;
        }
        config_.pass({"mamba_d_ssm"});
        for (std::int64_t i = 0; i < sizes_.layers; ++i) {
            sizes_.pattern += "M*-";
        }
        sizes_.layers *= 3;
        notes_.assumed("each layer as three: its state space, its attention and its feed-forward, one after another");
        read_space();
        return true;
    }

    // Layers that a search has thinned out (Llama-Nemotron): some have no attention, and feed-forwards have many widths.
    bool read_blocks() {
        std::vector<HfValues> blocks = config_.maps("block_configs");
        if (blocks.empty()) {
            return false;
        }
        std::int64_t attends = 0;
        std::int64_t shared = 0;
        double width = 0;
        for (HfValues& block : blocks) {
            std::optional<HfValues> attention = block.map("attention");
            std::optional<HfValues> ffn = block.map("ffn");
            if (!attention || !ffn) {
                throw ConfigError(
                    {config_.error("block_configs", "each of 'block_configs' must have an 'attention' and an 'ffn'")});
            }
            if (!attention->flag("no_op", false) && !attention->flag("replace_with_linear", false)) {
                ++attends;
                const std::int64_t heads = attention->whole({"num_key_value_heads"});
                const std::int64_t in_group = attention->whole({"n_heads_in_group"});
                shared = heads > 0 ? heads : in_group > 0 ? sizes_.heads / in_group : shared;
            }
            if (!ffn->flag("no_op", false) && !ffn->flag("replace_with_linear", false)) {
                const std::int64_t own = ffn->whole({"intermediate_size"});
                width += own > 0 ? static_cast<double>(own)
                                 : std::ceil(std::floor(2 * ffn->real("ffn_mult") * hidden() / 3) / 256) * 256;
            }
        }
        if (attends == 0 || width <= 0) {
            throw ConfigError(
                {config_.error("block_configs", "'block_configs' leaves no attention or no feed-forward")});
        }
        sizes_.layers = attends;
        sizes_.kv_heads = shared > 0 ? shared : sizes_.kv_heads;
        sizes_.ffn = std::llround(width / static_cast<double>(attends));
        notes_.assumed(
            fmt::format("{} layers with the mean of all feed-forwards, of {} blocks of which {} have attention",
                        attends, blocks.size(), attends));
        return true;
    }

    HfValues& config_;
    std::int64_t latent_;
    HfSizes& sizes_;
    ImportNotes& notes_;
};

// Whether each layer has experts, by the first of the ways to say it that the file has; empty: it says nothing, or all have.
std::vector<bool> layers_with_experts(HfValues& config, std::int64_t layers) {
    const auto count = static_cast<std::size_t>(layers);
    std::vector<bool> out;
    for (const std::string& word : config.words("mlp_layer_types")) {
        out.push_back(word != "dense");
    }
    if (!out.empty()) {
        out.resize(count, out.back());
        return out;
    }
    if (const auto list = config.numbers("moe_layer_freq"); !list.empty()) {
        for (const std::int64_t one : list) {
            out.push_back(one == 1);
        }
        out.resize(count, out.back());
        return out;
    }
    const auto chosen = [&](const std::vector<std::int64_t>& list, bool experts) {
        out.assign(count, !experts);
        for (const std::int64_t layer : list) {
            if (layer >= 0 && layer < layers) {
                out[static_cast<std::size_t>(layer)] = experts;
            }
        }
    };
    if (const auto list = config.numbers("moe_layers"); !list.empty()) {
        chosen(list, true);
        return out;
    }
    if (const std::string text = config.text("moe_layers_enum"); !text.empty()) {  // "3,4,5"
        std::vector<std::int64_t> list;
        for (const std::string_view one : split(std::string_view(text), ',')) {
            double number = -1;
            list.push_back(parse_number(one, number) && number < 1e6 ? static_cast<std::int64_t>(number) : -1);
        }
        chosen(list, true);
        return out;
    }
    // From `first` on the layers of every `every` whose number leaves `offset`.
    std::int64_t first =
        config.whole({"first_k_dense_replace", "moe_layer_start_index", "num_dense_layers", "moe_layer_offset"});
    std::int64_t every = config.whole({"interleave_moe_layer_step", "moe_layer_interval", "decoder_sparse_step",
                                       "moe_every_n_layers", "moe_layer_freq"});
    std::int64_t offset = every - 1;
    if (const std::int64_t period = config.whole({"expert_layer_period"}); period > 0) {
        every = period;
        offset = config.whole({"expert_layer_offset"}) % period;
    }
    every = std::max<std::int64_t>(1, every);
    out.assign(count, false);
    for (std::int64_t layer = first; layer < layers; ++layer) {
        out[static_cast<std::size_t>(layer)] = every == 1 || layer % every == offset;
    }
    for (const std::int64_t layer : config.numbers("mlp_only_layers")) {
        if (layer >= 0 && layer < layers) {
            out[static_cast<std::size_t>(layer)] = false;
        }
    }
    return out;
}

}  // namespace

void read_layers(HfValues& config, std::int64_t latent, HfSizes& sizes, ImportNotes& notes) {
    Layers(config, latent, sizes, notes).read();
}

std::string read_expert_layers(HfValues& config, std::int64_t layers, ImportNotes& notes) {
    const std::vector<bool> has = layers_with_experts(config, layers);
    config.pass({"first_k_dense_replace", "moe_layer_freq", "interleave_moe_layer_step", "decoder_sparse_step"});
    const std::int64_t all = std::count(has.begin(), has.end(), true);
    if (all == 0) {
        throw ConfigError({config.error("", "no layer has experts, and the file has some")});
    }
    const auto text = [](std::int64_t dense, std::int64_t every) {
        return (dense > 0 ? fmt::format(", dense_layers: {}", dense) : "") +
               (every > 1 ? fmt::format(", every: {}", every) : "");
    };
    const std::int64_t first = std::find(has.begin(), has.end(), true) - has.begin();
    for (std::int64_t every = 1; every <= layers; ++every) {
        for (const std::int64_t dense : {std::int64_t{0}, first}) {
            bool same = true;
            for (std::int64_t layer = 0; layer < layers && same; ++layer) {
                same = (layer >= dense && (layer + 1) % every == 0) == has[static_cast<std::size_t>(layer)];
            }
            if (same) {
                return text(dense, every);
            }
        }
    }
    // As many as the model has, in other places.
    const std::int64_t every =
        std::max<std::int64_t>(1, std::llround(static_cast<double>(layers - first) / static_cast<double>(all)));
    const std::int64_t dense = every == 1 ? layers - all : 0;
    notes.assumed(
        fmt::format("experts in {} of {} layers, {}, which is not where the model has them", all, layers,
                    dense > 0 ? "those behind the first without" : fmt::format("the last of every {}", every)));
    return text(dense, every);
}

}  // namespace orrery::imports
