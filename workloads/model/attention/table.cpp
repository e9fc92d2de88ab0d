// The table of forms of attention, one row each, and which form a layer has.

#include "workloads/model/attention/standard.hpp"

namespace orrery::model {

extern const PolicyRow<AttentionForm> kStandardAttention;
extern const PolicyRow<AttentionForm> kSinkAttention;
extern const PolicyRow<AttentionForm> kBlockSparseAttention;
extern const PolicyRow<AttentionForm> kIndexedBlocks;
extern const PolicyRow<AttentionForm> kCompressedAttention;
extern const PolicyRow<AttentionForm> kGemmaAttention;
extern const AttentionForm& kLatentAttention;
extern const AttentionForm& kLinearAttention;
extern const AttentionForm& kStateSpaceScan;

const PolicyTable<AttentionForm>& attention_table() {
    static const PolicyTable<AttentionForm> kTable = {&kStandardAttention,    &kSinkAttention,
                                                      &kBlockSparseAttention, &kIndexedBlocks,
                                                      &kCompressedAttention,  &kGemmaAttention};
    return kTable;
}

static const StandardAttention kUsual;

double computed_share(const ModelSpec& model, LayerKind kind) {
    const AttentionForm& form = attention_form(model, kind);
    if (model.form == nullptr || &form != model.form.get()) {
        return 1;
    }
    CoreShape shape;
    shape.heads = static_cast<double>(model.heads);
    shape.queries = shape.keys = static_cast<double>(model.sequence);
    const LayerContext at{model, kind, {}, LayerPhase::training, shape.queries};
    const auto flops = [](const Operation& core) { return std::get<Attention>(core).flops(); };
    double sum = flops(form.core(at, shape));
    for (const LayerOperation& one : form.beside(at, shape)) {
        sum += one.flops();
    }
    return sum / flops(kUsual.core(at, shape));
}

std::int64_t other_layers(const ModelSpec& model) {
    if (model.hybrid()) {
        return model.layers_with(LayerPart::state_space);
    }
    const bool differ = model.linear.given() || (model.form != nullptr && model.form->by_kind());
    return differ ? model.windowed_layers() : 0;
}

LayerKind mixing_kind(const ModelSpec& model, bool experts, bool other) {
    return model.hybrid() ? LayerKind{experts, false, other ? LayerPart::state_space : LayerPart::attention}
                          : LayerKind{experts, other};
}

const AttentionForm& attention_form(const ModelSpec& model, LayerKind kind) {
    if (kind.part == LayerPart::state_space) {
        return kStateSpaceScan;
    }
    if (model.is_linear(kind)) {
        return kLinearAttention;
    }
    return model.latent.kv_rank > 0 ? kLatentAttention : model.form != nullptr ? *model.form : kUsual;
}

}  // namespace orrery::model
