// Attention of a layer: unfused, by one fused kernel, or document by document. Over several ranks: pass_context.cpp.

#include "sim/base/error.hpp"
#include "workloads/model/attention_form.hpp"
#include "workloads/training/features/kernels.hpp"
#include "workloads/training/passes/pass_writer.hpp"

#include <map>

namespace orrery::training {

// Scores, softmax, weighted sum. Unfused: three passes over the s x s matrix; fused: one kernel.
PassProgram PassCost::attention_core(LayerKind kind, Direction direction) const {
    const bool backward = direction == Direction::backward;
    Writer out(backward ? Category::backward : Category::forward, *this);
    write_beside_attention(out, kind, backward);
    if (model_.is_linear(kind)) {
        return out.program();
    }
    write_attention_casts(out, backward);
    if (documents_ != nullptr) {
        write_documents(out, kind, backward);
        return out.program();
    }
    const double s = static_cast<double>(model_.sequence);
    const double heads = sequences_ * static_cast<double>(model_.heads) / t_;
    const auto d = static_cast<double>(model_.head_dim);
    if (plan_.attention == AttentionKernel::unfused) {
        const bool by_heads = plan_.context > 1 && plan_.context_exchange == ContextExchange::all_to_all;
        const auto c = static_cast<double>(plan_.context);
        const double queries = by_heads ? s : s / c;
        const double own = by_heads ? heads / c : heads;
        const Gemm scores{queries, s, d, own, Precision::fp16, 0};
        const Gemm values{queries, d, s, own, Precision::fp16, 0};
        const double elements = own * queries * s;
        const double q = model_.q_width() / t_;
        const double qkv = q + 2 * exchanged_keys();
        if (by_heads) {
            write_head_exchange(out, "tokens for heads", backward ? q : qkv);
        } else if (plan_.context > 1) {
            write_key_gather(out);
        }
        const double dropout = model_.dropout ? 1 : 0;
        const double times = backward ? 2 : 1;  // each product has two gradients of its own size
        out.kernel("scores", matrix_slowdown_ * times * alone(scores), times);
        out.kernel("softmax", stream_slowdown_ * streaming(elements * ((backward ? 6 : 4) + 5 * dropout), 1 + dropout),
                   1 + dropout);
        out.kernel("weighted sum", matrix_slowdown_ * times * alone(values), times);
        out.program().add_flops(times * (scores.flops() + values.flops()));
        if (by_heads) {
            write_head_exchange(out, "heads for tokens", backward ? qkv : q);
        } else if (plan_.context > 1 && backward) {
            write_key_scatter(out);
        }
    } else if (plan_.context == 1) {
        const Attention attention = flash(kind, heads, s, backward);
        out.kernel("attention", matrix_slowdown_ * alone(attention));
        out.program().add_flops(attention.flops());
    } else {
        write_context(out, kind, backward);
    }
    return out.program();
}

// An indexer's scores and choice; of linear attention all kernels. Over packed documents as over one sequence.
void PassCost::write_beside_attention(Writer& out, LayerKind kind, bool backward) const {
    const LayerContext at = layer_context(kind);
    CoreShape shape;
    shape.sequences = sequences_;
    shape.queries = shape.keys = static_cast<double>(model_.sequence);
    shape.backward = backward;
    LayerOperations kernels = beside_attention(at, shape);
    if (model_.is_linear(kind)) {
        LayerOperation scan{core_name(model_, kind), LayerRole::core};
        scan.kernel = model::attention_core(at, shape);
        kernels.push_back(scan);
    }
    const bool by_kind = model_.form != nullptr && model_.form->by_kind();
    if (model_.is_linear(kind) || by_kind) {
        LayerOperations operations = before_attention(at);
        const LayerOperations after = after_attention(at);
        operations.insert(operations.end(), after.begin(), after.end());
        for (const LayerOperation& one : operations) {
            if (one.role == LayerRole::inner_norm ||
                (by_kind && (one.role == LayerRole::choice || one.role == LayerRole::position))) {
                const double moved = 2 * one.values() * (backward ? 1.5 : 1);  // and the gradient
                out.kernel(one.name, stream_slowdown_ * streaming(moved, one.launches), one.launches);
            }
        }
    }
    for (const LayerOperation& one : kernels) {
        const bool streams = std::holds_alternative<Streaming>(*one.kernel);
        out.kernel(one.name, (streams ? stream_slowdown_ : matrix_slowdown_) * alone(*one.kernel));
        out.program().add_flops(one.flops());
    }
}

// Each document attends to itself alone: those that are cut over ranks in rings, one kernel for all others. A kernel over documents of
// unlike lengths runs each at the rate of as many tokens in documents of its length.
void PassCost::write_documents(Writer& out, LayerKind kind, bool backward) const {
    struct Ring {
        std::vector<DocumentPiece> pieces;
        double tokens = 0;  // of whole documents
    };
    std::map<std::pair<std::uint32_t, std::uint32_t>, Ring> rings;  // by ranks and the first of them
    for (const DocumentPiece& piece : documents_->pieces) {
        Ring& ring = rings[{piece.ranks, piece.column}];
        ring.pieces.push_back(piece);
        ring.tokens += piece.count * piece.length;
    }
    const double heads = static_cast<double>(model_.heads) / t_;
    for (const auto& [key, ring] : rings) {
        const double ranks = key.first;
        ORRERY_ASSERT(key.first > 0 && ring.tokens > 0);
        Alone kernels;
        for (const DocumentPiece& piece : ring.pieces) {
            Attention all = flash(kind, heads * ring.tokens / piece.length, piece.length, backward);
            const double share = piece.count * piece.length / ring.tokens;
            out.program().add_flops(share * all.flops() / ranks);
            if (ranks > 1) {
                all = flash(kind, heads * ring.tokens / piece.length, piece.length / ranks, backward);
                all.causal = false;
                all.window = 0;
            }
            kernels += share * matrix_slowdown_ * alone(all);
        }
        if (ranks == 1) {
            out.kernel("attention", kernels);
            continue;
        }
        std::vector<RankGroups::Members> members(static_cast<std::size_t>(plan_.tensor));
        for (std::uint32_t tensor = 0; tensor < members.size(); ++tensor) {
            for (std::uint32_t i = 0; i < key.first; ++i) {
                members[tensor].push_back((key.second + i) * static_cast<std::uint32_t>(plan_.tensor) + tensor);
            }
        }
        write_ring(out, ranks_.of_replica(members), 0.5 * kernels, ring.tokens / ranks, backward);
    }
}

Attention PassCost::flash(LayerKind kind, double heads, double length, bool backward) const {
    CoreShape shape;
    shape.sequences = heads;  // each head is a sequence of its own
    shape.queries = shape.keys = length;
    shape.backward = backward;
    shape.fused = plan_.attention == AttentionKernel::flash2   ? FusedAttention::flash2
                  : plan_.attention == AttentionKernel::flash1 ? FusedAttention::flash1
                                                               : FusedAttention::newest;
    Attention out = std::get<Attention>(model::attention_core(layer_context(kind), shape));
    if (plan_.feature<KernelPlan>().narrow_attention()) {
        out.cache = Precision::fp8;
        // cuDNN's kernel goes over the whole square: 1.77 and 6.28 ms for 4,096 and 8,192 tokens behind a window of 128 on GB200, where
        // that of 16 bits takes 0.46 and 0.92 (NVIDIA/cudnn-frontend@07b111f, benchmark/attention_training/results/gpt_oss/gb200).
        out.window = backward ? 0 : out.window;
    }
    return out;
}

// What attention in 8 bits reads is cast: queries, keys and values forward, the gradient of its results backward.
void PassCost::write_attention_casts(Writer& out, bool backward) const {
    if (plan_.feature<KernelPlan>().narrow_attention()) {
        constexpr double kCast = 2 + 1;
        const double width = backward ? model_.value_width() : model_.q_width() + 2 * model_.kv_width();
        out.kernel("casts of attention", stream_slowdown_ * streaming(kCast * tokens_ * width / t_));
    }
}

}  // namespace orrery::training
