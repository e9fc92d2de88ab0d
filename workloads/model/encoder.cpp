// Encoders of images or sound in front of a language model: weights, FLOPs and what is wrong with one.

#include "workloads/model/model_spec.hpp"

#include <fmt/format.h>

namespace orrery::model {

void describe(Fields& fields, EncoderSpec& encoder) {
    fields.integer({"layers", "transformer layers", true, 1, 10000}, encoder.layers);
    fields.integer({"hidden", "width of the residual stream", true, 1, 1'000'000}, encoder.hidden);
    fields.integer({"heads", "attention heads", true, 1, 100'000}, encoder.heads);
    fields.integer({"head_dim", "width of a head; 0: hidden / heads", false, 0, 100'000}, encoder.head_dim);
    fields.integer({"ffn", "width of the feed-forward layer; 0: 4 x hidden", false, 0, 10'000'000}, encoder.ffn);
    fields.boolean({"gated", "gated feed-forward (SwiGLU and the like)"}, encoder.gated);
    fields.boolean({"rotary", "rotary position embedding; false: a learned position for each token"}, encoder.rotary);
    fields.integer({"patch_width",
                    "values of a patch, which the first product takes (14 x 14 x 3 = 588); 0: there is no such product",
                    false, 0, 10'000'000},
                   encoder.patch_width);
    fields.integer({"tokens", "tokens of an image, class tokens among them", true, 1, 10'000'000}, encoder.tokens);
    fields.integer(
        {"dropped", "class tokens among these, which are no patches and go no further", false, 0, 10'000'000},
        encoder.dropped);
    fields.integer({"merged", "tokens of the encoder that become one of the language model (4 under pixel shuffle)",
                    false, 1, 10'000},
                   encoder.merged);
    fields.number({"images", "images of a sequence, in the mean", false, 1e-6, 1'000'000}, encoder.images);
    fields.integer({"projector", "width between the two products to the language model's width; 0: it is one product",
                    false, 0, 10'000'000},
                   encoder.projector);
    fields.boolean({"trained",
                    "false: its weights stay as they are, without a backward pass, gradients and optimizer states; the "
                    "projector is trained all the same"},
                   encoder.trained);
    fields.when(encoder.trained, "a backward pass (trained: true)", [&](Fields& same) {
        same.boolean(
            {"recompute", "recompute the encoder's layers as plan.recompute says; false: they keep all activations"},
            encoder.recompute);
    });
}

ModelSpec encoder_layers(const EncoderSpec& encoder) {
    ModelSpec out;
    out.layers = encoder.layers;
    out.hidden = encoder.hidden;
    out.heads = out.kv_heads = encoder.heads;
    out.head_dim = encoder.head_dim;
    out.ffn = encoder.ffn;
    out.gated = encoder.gated;
    out.rotary = encoder.rotary;
    out.sequence = encoder.tokens;
    out.causal = false;
    complete(out);
    return out;
}

double EncoderSpec::patch_parameters() const {
    return static_cast<double>(hidden) * static_cast<double>(patch_width + (rotary ? 0 : tokens));
}

double EncoderSpec::layer_parameters() const {
    return static_cast<double>(layers) * encoder_layers(*this).layer_parameters();
}

double EncoderSpec::projector_parameters(std::int64_t to) const {
    const auto width = static_cast<double>(to);
    const auto between = static_cast<double>(projector);
    return projector > 0 ? merged_width() * between + between * width : merged_width() * width;
}

double ModelSpec::encoder_parameters() const {
    return encoder.given()
               ? encoder.patch_parameters() + encoder.layer_parameters() + encoder.projector_parameters(hidden)
               : 0;
}

double ModelSpec::trained_encoder_parameters() const {
    return !encoder.given() ? 0 : encoder.trained ? encoder_parameters() : encoder.projector_parameters(hidden);
}

// 2 FLOPs a weight and token for each pass through it: forward, the gradient of the input, that of the weights. Pixels need no
// gradient, nor does what a frozen encoder makes.
double ModelSpec::encoder_flops() const {
    if (!encoder.given()) {
        return 0;
    }
    const double patches = encoder.patches() * static_cast<double>(encoder.patch_width * encoder.hidden);
    const double inside = static_cast<double>(encoder.tokens) * encoder_layers(encoder).flops_per_token() / 6;
    const double first =
        encoder.merged_width() * static_cast<double>(encoder.projector > 0 ? encoder.projector : hidden);
    const double projected = encoder.places() * encoder.projector_parameters(hidden);
    const double frozen = encoder.trained ? 0 : 2 * encoder.places() * first;
    return encoder.images *
           ((encoder.trained ? 4 : 2) * patches + (encoder.trained ? 6 : 2) * inside + 6 * projected - frozen);
}

std::vector<ModelProblem> encoder_problems(const ModelSpec& model) {
    std::vector<ModelProblem> out;
    const EncoderSpec& encoder = model.encoder;
    if (!encoder.given() || encoder.heads == 0 || encoder.merged == 0) {
        return out;  // no encoder, or said already
    }
    const auto refuse = [&](bool wrong, const char* key, const std::string& text) {
        if (wrong) {
            out.push_back({key, text});
        }
    };
    const bool derived = encoder.head_dim == 0 || encoder.head_dim == encoder.hidden / encoder.heads;
    refuse(
        derived && encoder.hidden % encoder.heads != 0, "encoder.heads",
        fmt::format("{} heads do not divide the encoder's width {}: write 'head_dim'", encoder.heads, encoder.hidden));
    refuse(encoder.tokens > 0 && encoder.dropped >= encoder.tokens, "encoder.dropped",
           fmt::format("dropped {} leaves nothing of the {} tokens of an image", encoder.dropped, encoder.tokens));
    const std::int64_t left = encoder.tokens - encoder.dropped;
    refuse(left > 0 && left % encoder.merged != 0, "encoder.merged",
           fmt::format("merged {} must divide the {} tokens of an image that go on (tokens less 'dropped')",
                       encoder.merged, left));
    const double places = encoder.images * encoder.places();
    refuse(left > 0 && places > static_cast<double>(model.sequence), "encoder.images",
           fmt::format("{:g} images of {:g} tokens each take {:g} places, and a sequence has {}, text among them",
                       encoder.images, encoder.places(), places, model.sequence));
    return out;
}

}  // namespace orrery::model
