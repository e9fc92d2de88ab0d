#include "workloads/training/memory.hpp"

#include "sim/config/units.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::inline training {

MemoryUse memory_of(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software, double layers,
                    bool first_stage, bool last_stage, std::uint32_t in_flight) {
    const auto t = static_cast<double>(plan.tensor);
    const double embeddings = model.embedding_parameters() * ((first_stage ? 1 : 0) + (last_stage ? 1 : 0));
    const bool shared = first_stage && last_stage && model.tied_embeddings;
    const double parameters =
        (layers * model.layer_parameters() + (shared ? model.embedding_parameters() : embeddings)) / t;
    const double group = static_cast<double>(plan.data * plan.context);
    const double shard = plan.shard > 0 ? static_cast<double>(plan.shard) : group;
    MemoryUse use;
    use.weights = 2 * parameters / (plan.zero >= 3 ? shard : 1);
    // Gradients that add up over micro-batches or that are reduced in fp32 take 4 bytes.
    const double gradient = plan.gradient_precision == Precision::fp32 ? 4 : 2;
    use.gradients = gradient * parameters / (plan.zero >= 2 ? shard : 1);
    use.optimizer = 12 * parameters / (plan.zero >= 1 ? (plan.zero >= 3 ? shard : group) : 1);
    if (plan.zero >= 3) {
        use.buffers += 2 * 2 * model.layer_parameters() / t;  // two gathered layers
    }
    const double s = static_cast<double>(model.sequence) / static_cast<double>(plan.context);
    const double sbh = s * static_cast<double>(plan.micro_batch) * static_cast<double>(model.hidden);
    // Equation 2 counts 34 sbh for a plain FFN of 4h with dropout: 10 outside the tensor-parallel region, 24 inside.
    const double width = static_cast<double>(model.ffn) / static_cast<double>(model.hidden);
    // Under grouped queries keys and values are narrower. Operands that are cast before a product are kept in 8 bits.
    const double queries = model.q_width() / static_cast<double>(model.hidden);
    const double keys = model.kv_width() / static_cast<double>(model.hidden);
    const bool bytes_kept = plan.precision == Precision::fp8 && software.fused_casts;
    const double inside = 4 * queries + 4 * keys + (model.gated ? 6 : 4) * width - (bytes_kept ? queries + width : 0);
    const double outside = (model.dropout ? 10 : 8) - (bytes_kept ? 2 : 0);
    // Attention scores, their softmax and its dropout: kept only where nothing is recomputed.
    const double scores = plan.attention == AttentionKernel::unfused
                              ? 5 * static_cast<double>(model.heads) * static_cast<double>(model.sequence) /
                                    static_cast<double>(model.hidden)
                              : 0;
    const double kept_scores = plan.recompute == Recompute::selective ? 0 : scores;
    double layer = sbh * (outside / (plan.sequence_parallel ? t : 1) + (inside + kept_scores) / t);
    double working = 0;  // of the layer in work, under full recomputation: its scores too
    if (plan.recompute == Recompute::full) {
        working = layer;
        layer = 2 * sbh / (plan.sequence_parallel ? t : 1);
    }
    if (plan.recompute == Recompute::half) {
        layer /= 2;
    }
    const auto chunks = static_cast<double>(plan.chunks);
    use.activations = layer * layers / chunks * in_flight + working;
    if (last_stage) {
        // Logits in 16 bits and their fp32 softmax.
        use.activations += s * static_cast<double>(plan.micro_batch) * static_cast<double>(model.vocabulary) / t * 6;
    }
    use.buffers += software.reserved_memory.value;
    return use;
}

}  // namespace orrery::inline training
