#include "workloads/serving/step_cost.hpp"

#include <algorithm>

namespace orrery {

double AffineStep::seconds(const Batch& batch) {
    double tokens = batch.padded + batch.drafted;
    double context = 0;
    for (const BatchItem& item : batch.items) {
        tokens += item.tokens;
        context += item.tokens == 1 ? item.context : 0;
    }
    return fixed_ + token_ * tokens + context_ * context;
}

double cache_bytes_per_token(const ModelSpec& model, Precision cache) {
    return 2 * model.kv_width() * bytes_of(cache) * static_cast<double>(model.layers);
}

double weight_bytes_per_rank(const ModelSpec& model, Precision weights, std::int64_t tensor, std::int64_t stage,
                             std::int64_t stages) {
    // Embedding and LM head stay in 16 bits; tied ones are one table where one stage has both.
    const bool both = stages == 1 && !model.tied_embeddings;
    const double tables = (both ? 2 : stage == 0 || stage == stages - 1 ? 1 : 0) * model.embedding_parameters();
    const double layers = static_cast<double>(stage_layers(model.layers, stage, stages)) * model.layer_parameters();
    return (layers * bytes_of(weights) + 2 * tables) / static_cast<double>(tensor);
}

ModelStep::ModelStep(const ServingModel& model)
    : m_(model),
      t_(static_cast<double>(model.gpus.size())),
      layers_(static_cast<double>(model.layers > 0 ? model.layers : model.model.layers)) {}

double ModelStep::product(double m, double n, double k) const {
    Gemm gemm;
    gemm.m = m;
    gemm.n = n;
    gemm.k = k;
    gemm.precision = m_.weights;
    return m_.device.seconds(gemm).value();
}

double ModelStep::price_dense(double tokens) const {
    const ModelSpec& model = m_.model;
    const auto hidden = static_cast<double>(model.hidden);
    const auto ffn = static_cast<double>(model.ffn);
    const double q = model.q_width();
    const double qkv = (q + 2 * model.kv_width()) / t_;
    const auto streaming = [&](double values, double kernels, StreamingKind kind) {
        Streaming kernel;
        kernel.bytes = 2 * values * tokens;
        kernel.kernels = kernels;
        kernel.kind = kind;
        return m_.device.seconds(kernel).value();
    };
    double seconds = product(tokens, qkv, hidden) + product(tokens, hidden, q / t_) +
                     product(tokens, (model.gated ? 2 : 1) * ffn / t_, hidden) + product(tokens, hidden, ffn / t_);
    // Two norms with their residual additions, rotary embedding and cache write, activation.
    seconds += streaming(8 * hidden, 2, StreamingKind::norm) +
               streaming(2 * qkv + 2 * model.kv_width() / t_, model.rotary ? 2 : 1, StreamingKind::rotary) +
               streaming((model.gated ? 3 : 2) * ffn / t_, 1, StreamingKind::activation);
    if (t_ > 1) {
        const GroupTransfer reduce =
            make_transfer(m_.fabric, m_.collectives, CollectiveOp::all_reduce, m_.gpus, Bytes(2 * hidden * tokens));
        seconds += 2 * seconds_alone(m_.fabric, reduce).value();
    }
    return seconds * layers_;
}

double ModelStep::dense_seconds(std::uint32_t tokens) {
    if (dense_.size() <= tokens) {
        dense_.resize(std::size_t{tokens} + 1, -1);
    }
    if (dense_[tokens] < 0) {
        dense_[tokens] = price_dense(tokens);
    }
    return dense_[tokens];
}

double ModelStep::attention_seconds(double sequences, double queries, double keys) const {
    const ModelSpec& model = m_.model;
    Attention attention;
    attention.batch_heads = sequences * static_cast<double>(model.heads) / t_;
    attention.queries = queries;
    attention.keys = keys;
    attention.head_dim = static_cast<double>(model.head_dim);
    attention.causal = queries > 1;
    attention.window = static_cast<double>(model.window);
    attention.group = static_cast<double>(model.heads) / static_cast<double>(model.kv_heads);
    attention.cache = m_.cache;
    attention.block = m_.block;
    return m_.device.seconds(attention).value() * layers_;
}

double ModelStep::head_seconds(std::uint32_t sequences) {
    if (head_.size() <= sequences) {
        head_.resize(std::size_t{sequences} + 1, -1);
    }
    if (head_[sequences] < 0) {
        Gemm gemm;
        gemm.m = sequences;
        gemm.n = static_cast<double>(m_.model.vocabulary) / t_;
        gemm.k = static_cast<double>(m_.model.hidden);
        head_[sequences] = m_.device.seconds(gemm).value();
    }
    return head_[sequences];
}

double ModelStep::seconds(const Batch& batch) {
    std::uint32_t tokens = batch.padded;
    double decoding = batch.padded;
    double context = 0;
    double seconds = 0;
    for (const BatchItem& item : batch.items) {
        tokens += item.tokens;
        if (item.tokens == 1) {
            ++decoding;
            context += item.context;
        } else {
            seconds += attention_seconds(1, item.tokens, item.context);
        }
    }
    if (decoding > 0) {
        const double running = std::max(1.0, decoding - batch.padded);
        seconds += attention_seconds(decoding, 1, std::max(1.0, context / running));
    }
    const auto sequences = static_cast<std::uint32_t>(batch.items.size()) + batch.padded;
    seconds += dense_seconds(tokens + batch.drafted) + (m_.head ? head_seconds(sequences + batch.drafted) : 0);
    seconds += m_.step_overhead + m_.sequence_overhead * sequences;
    return seconds;
}

}  // namespace orrery
