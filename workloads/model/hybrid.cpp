// Models whose layers differ by what they are: attention, a feed-forward, experts or a state space, a letter each.

#include "workloads/model/attention_form.hpp"
#include "workloads/model/layer_program.hpp"
#include "workloads/model/model_spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace orrery::model {

namespace {

struct Letter {
    char letter;
    LayerPart part;
    bool experts = false;
};
constexpr std::array<Letter, 4> kLetters = {{{'M', LayerPart::state_space},
                                             {'-', LayerPart::feed_forward},
                                             {'*', LayerPart::attention},
                                             {'E', LayerPart::feed_forward, true}}};

double count_of(const ModelSpec& model, const Letter& row) {
    return static_cast<double>(std::count(model.pattern.begin(), model.pattern.end(), row.letter));
}

const Letter* letter_of(char letter) {
    const auto* const found =
        std::find_if(kLetters.begin(), kLetters.end(), [&](const Letter& row) { return row.letter == letter; });
    return found == kLetters.end() ? nullptr : found;
}

}  // namespace

double StateSpaceSpec::scan_flops() const {
    const auto n = static_cast<double>(state);
    const auto q = static_cast<double>(chunk);
    return 4 * inner() * n + inner() * q + static_cast<double>(groups) * n * q;
}

LayerPart ModelSpec::part_of(std::int64_t layer) const {
    const auto at = static_cast<std::size_t>(layer);
    const Letter* row = at < pattern.size() ? letter_of(pattern[at]) : nullptr;
    return row == nullptr ? LayerPart::whole : row->part;  // layer_problems() refuses such a pattern
}

std::int64_t ModelSpec::layers_with(LayerPart part) const {
    if (!hybrid()) {
        return part == LayerPart::state_space ? 0 : layers;
    }
    std::int64_t found = 0;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        found += part_of(layer) == part ? 1 : 0;
    }
    return found;
}

double ModelSpec::matrices_of(LayerPart part) const {
    return product_weights(layer_operations({*this, {false, false, part}}, {}));
}

double ModelSpec::parameters_of(LayerPart part) const {
    return all_weights(layer_operations({*this, {false, false, part}}, {}));
}

double ModelSpec::hybrid_parameters() const {
    double sum = 0;
    for (const Letter& row : kLetters) {
        // A layer of experts has a norm as any other.
        const double one = row.experts ? routed_parameters() + unrouted_parameters() + 2 * static_cast<double>(hidden)
                                       : parameters_of(row.part);
        sum += count_of(*this, row) * one;
    }
    return sum;
}

double ModelSpec::hybrid_matrices() const {
    double sum = 0;
    for (const Letter& row : kLetters) {
        const double used = experts.count > 0 ? routed_parameters() * static_cast<double>(experts.topk) /
                                                    static_cast<double>(experts.count)
                                              : 0;
        sum += count_of(*this, row) * (row.experts ? used + unrouted_parameters() : matrices_of(row.part));
    }
    return sum;
}

std::vector<ModelProblem> layer_problems(const ModelSpec& model) {
    std::vector<ModelProblem> out;
    const StateSpaceSpec& space = model.state_space;
    const auto refuse = [&](bool wrong, const char* key, const std::string& text) {
        if (wrong) {
            out.push_back({key, text});
        }
    };
    const std::string problem = model.attention.make()->problem(model);
    refuse(!problem.empty(), "attention", problem);
    const LinearSpec& linear = model.linear;
    if (linear.given()) {
        refuse(
            model.full_every < 2, "full_every",
            "with 'linear' every so many layers attend to everything: full_every must be at least 2 (models of linear "
            "attention alone are not modelled)");
        refuse(model.window > 0, "window", "a window beside 'linear' is not modelled");
        refuse(linear.key_heads > 0 && linear.value_heads % linear.key_heads != 0, "linear.key_heads",
               fmt::format("key_heads {} must divide the {} heads of values", linear.key_heads, linear.value_heads));
        refuse(linear.kind == LinearKind::kimi_delta && linear.key_heads > 0 && linear.key_heads != linear.value_heads,
               "linear.key_heads", "Kimi delta attention has as many heads of keys as of values");
    }
    refuse(model.indexer.given() && model.window > 0 && !linear.given(), "window",
           "a window beside an indexer is not modelled");
    const bool needed = model.pattern.find('M') != std::string::npos;
    if (!model.hybrid()) {
        return out;
    }
    refuse(model.pattern.size() != static_cast<std::size_t>(model.layers), "pattern",
           fmt::format("the pattern has {} letters, and the model {} layers: one letter each", model.pattern.size(),
                       model.layers));
    for (std::size_t i = 0; i < model.pattern.size(); ++i) {
        if (const char letter = model.pattern[i]; letter_of(letter) == nullptr) {
            const bool printed = letter > ' ' && letter < '\x7f';
            refuse(
                true, "pattern",
                fmt::format("the pattern has {} as letter {}: there are M (state space), - (feed-forward), E (experts) "
                            "and * (attention){}",
                            printed ? fmt::format("'{}'", letter) : "no plain letter", i + 1,
                            letter == 'm'   ? " (did you mean 'M'?)"
                            : letter == 'e' ? " (did you mean 'E'?)"
                                            : ""));
            break;
        }
    }
    const bool routed = model.pattern.find('E') != std::string::npos;
    refuse(routed && model.experts.count == 0, "pattern", "the pattern has layers of experts: it needs 'experts'");
    refuse(!routed && model.experts.count > 0, "experts",
           "experts beside a pattern need an E in it for each of their layers");
    refuse(model.experts.every > 1, "experts.every", "which layers have experts is said by the pattern");
    refuse(model.experts.dense_layers > 0, "experts.dense_layers", "which layers have experts is said by the pattern");
    refuse(needed && space.heads == 0, "pattern",
           "the pattern has state-space layers: it needs the heads of 'state_space'");
    refuse(needed && space.heads > 0 && space.heads % space.groups != 0, "state_space.groups",
           fmt::format("groups {} must divide the {} heads of state-space layers", space.groups, space.heads));
    for (const auto& [given, key] :
         {std::pair{model.latent.kv_rank > 0, "latent"}, std::pair{model.window > 0, "window"},
          std::pair{model.parallel_block, "parallel_block"}, std::pair{linear.given(), "linear"}}) {
        refuse(given, key, fmt::format("a pattern with '{}' is not modelled", key));
    }
    return out;
}

}  // namespace orrery::model
