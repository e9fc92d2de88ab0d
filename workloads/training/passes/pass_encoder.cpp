// The encoder in front of a model: its first product, its layers and its projector in a pass.

#include "workloads/training/passes/pass_writer.hpp"
#include "workloads/training/plan/encoder.hpp"

#include <array>

namespace orrery::training {

namespace {

constexpr std::array<PassWork, 4> kWorks = {PassWork::forward, PassWork::backward, PassWork::input_gradient,
                                            PassWork::weight_gradient};
constexpr std::size_t kParts = 3;

std::size_t index_of(PassWork work) {
    std::size_t i = 0;
    while (kWorks[i] != work) {
        ++i;
    }
    return i;
}

bool takes_input(PassWork work) {
    return work == PassWork::backward || work == PassWork::input_gradient;
}
bool takes_weights(PassWork work) {
    return work == PassWork::backward || work == PassWork::weight_gradient;
}

}  // namespace

/// The model and the plan of its layers, which their prices refer to, and what each part of it runs.
struct PassCost::Encoder {
    ModelSpec model;
    PlanSpec plan;
    PassCost layers;
    std::array<std::array<PassProgram, kWorks.size()>, kParts> programs{};
    std::array<std::array<Price, kWorks.size()>, kParts> prices{};

    Encoder(const PassCost& of, const CostModel& device, const DeviceSpec& gpu)
        : model(encoder_layers(of.model_.encoder)),
          plan(plan_of_encoder(of.model_, of.plan_)),
          layers(model, plan, of.software_, device, gpu, of.fabric_, of.collectives_, of.ranks_.paths(), of.ranks_.of(),
                 nullptr, images_of(of.model_, of.plan_)) {}
    Encoder(const Encoder&) = delete;
    Encoder& operator=(const Encoder&) = delete;
};

void PassCost::price_encoder(const CostModel& device, const DeviceSpec& gpu) {
    const auto encoder = std::make_shared<Encoder>(*this, device, gpu);
    for (const PassWork work : kWorks) {
        const bool part = work == PassWork::input_gradient || work == PassWork::weight_gradient;
        if (part && !plan_.schedule->splits) {
            continue;
        }
        const std::size_t w = index_of(work);
        if (work == PassWork::forward || model_.encoder.trained) {
            encoder->programs[static_cast<std::size_t>(EncoderPart::patches)][w] = encoder_patches(work);
            encoder->programs[static_cast<std::size_t>(EncoderPart::layer)][w] =
                encoder->layers.program(LayerKind(), work);
        }
        encoder->programs[static_cast<std::size_t>(EncoderPart::projector)][w] = encoder_projector(work);
        for (std::size_t p = 0; p < kParts; ++p) {
            encoder->prices[p][w] = encoder->programs[p][w].price();
        }
    }
    encoder_ = encoder;
}

const PassProgram& PassCost::encoder_program(EncoderPart part, PassWork work) const {
    ORRERY_ASSERT(encoder_ != nullptr);
    return encoder_->programs[static_cast<std::size_t>(part)][index_of(work)];
}

const Price& PassCost::encoder(EncoderPart part, PassWork work) const {
    ORRERY_ASSERT(encoder_ != nullptr);
    return encoder_->prices[static_cast<std::size_t>(part)][index_of(work)];
}

double PassCost::encoder_seconds() const {
    double seconds = 0;
    for (const PassWork work : {PassWork::forward, PassWork::backward}) {
        if (encoder_ != nullptr) {
            seconds += encoder(EncoderPart::patches, work).total() + encoder(EncoderPart::projector, work).total() +
                       static_cast<double>(model_.encoder.layers) * encoder(EncoderPart::layer, work).total();
        }
    }
    return seconds;
}

// A convolution whose steps are as long as it is wide, as a product of patches; every tensor-parallel rank does all of it. Then class
// tokens and positions are put to what it made. Pixels need no gradient.
PassProgram PassCost::encoder_patches(PassWork work) const {
    const EncoderSpec& encoder = model_.encoder;
    const bool backward = work != PassWork::forward;
    Writer out(backward ? Category::backward : Category::forward, *this);
    out.capture(false);
    if (work == PassWork::input_gradient) {
        return out.program();
    }
    const double images = images_of(model_, plan_);
    const auto hidden = static_cast<double>(encoder.hidden);
    const double values = images * static_cast<double>(encoder.tokens) * hidden;
    const Product patches{product(images * encoder.patches(), hidden, static_cast<double>(encoder.patch_width), false),
                          false, false};
    const bool has_product = encoder.patch_width > 0;
    const auto positions = [&] {
        if (!encoder.rotary || encoder.dropped > 0) {
            out.kernel("class tokens and positions", stream_slowdown_ * streaming(values * (backward ? 4 : 6)));
        }
    };
    if (backward) {
        positions();
    }
    if (has_product) {
        out.kernel(backward ? "weight gradient of patches" : "patches",
                   backward ? weight_gradient(patches) : forward_product(patches, 1));
        out.program().add_flops(patches.gemm.flops());
    }
    if (!backward) {
        positions();
    }
    return out.program();
}

// Norm, neighbours side by side, one or two products cut over tensor-parallel ranks as those of a feed-forward, and what they made
// into the sequences of the language model. A frozen encoder needs no gradient of what comes in.
PassProgram PassCost::encoder_projector(PassWork work) const {
    const EncoderSpec& encoder = model_.encoder;
    const bool backward = work != PassWork::forward;
    Writer out(backward ? Category::backward : Category::forward, *this);
    out.capture(false);
    const double rows = images_of(model_, plan_) * encoder.places();
    const auto h = static_cast<double>(model_.hidden);
    const double in = encoder.merged_width();
    const bool two = encoder.projector > 0;
    const double width = (two ? static_cast<double>(encoder.projector) : h) / t_;
    const Product first{product(rows, width, in), false, false};
    const Product second{product(rows, h, two ? width : 0), false, false};
    const bool grouped = plan_.tensor > 1;
    const auto stream = [&](const char* name, double bytes) { out.kernel(name, stream_slowdown_ * streaming(bytes)); };
    const auto meet = [&](const char* name, CollectiveOp op, double bytes) {
        if (grouped) {
            out.wait(out.collective(name, PassStream::tensor, tensor_collective(op, bytes)));
        }
    };
    const auto flops = [&](const Product& of) { out.program().add_flops(of.gemm.flops()); };
    if (!backward) {
        stream("norm", rows * in * 6);
        if (encoder.merged > 1) {
            stream("merge of tokens", rows * in * 4);
        }
        out.kernel("projector, in", forward_product(first, 1));
        flops(first);
        if (two) {
            stream("activation function", rows * width * 4);
            out.kernel("projector, out", forward_product(second, 1));
            flops(second);
            meet("sum output", CollectiveOp::all_reduce, rows * h * 2);
        } else {
            meet("gather output", CollectiveOp::all_gather, rows * h * 2);
        }
        stream("tokens of images", rows * h * 4);
        return out.program();
    }
    const bool input = takes_input(work);
    const bool weights = takes_weights(work);
    if (input) {
        stream("gradient of tokens of images", rows * h * 4);
    }
    if (two && input) {
        out.kernel("data gradient of projector, out", data_gradient(second, 1));
        flops(second);
        stream("activation function", rows * width * 6);
    }
    if (two && weights) {
        out.kernel("weight gradient of projector, out", weight_gradient(second));
        flops(second);
    }
    if (input && encoder.trained) {
        out.kernel("data gradient of projector, in", data_gradient(first, 1));
        flops(first);
        meet("sum gradient", CollectiveOp::all_reduce, rows * in * 2);
    }
    if (weights) {
        out.kernel("weight gradient of projector, in", weight_gradient(first));
        flops(first);
    }
    if (input && encoder.trained) {
        if (encoder.merged > 1) {
            stream("merge of tokens", rows * in * 4);
        }
        stream("norm", rows * in * 8);
    }
    return out.program();
}

}  // namespace orrery::training
