// Attention of a layer over the ranks that share a sequence, each by its rule (ContextExchange), and in rings over documents.
//
// Claims: every rank holds two pieces of the sequence, one from either end, so that under a causal mask all have the same work; what
// is exchanged are keys and values (16 bits each) going in, and their gradients coming back.
// Reference: TransformerEngine, transformer_engine/pytorch/attention (rings, gathers, heads for tokens); PyTorch,
// torch/distributed/tensor/experimental/_attention.py (gathered rings: sums in 32 bits, gradients of keys and values always go round).
// Limits: a window does not shorten a ring (Transformer Engine has windows with gathers and heads for tokens alone); ranks do not differ.

#include "workloads/training/passes/pass_writer.hpp"

namespace orrery::training {

double PassCost::exchanged_keys() const {
    return (software_.repeats_keys ? model_.q_width() : model_.kv_width()) / t_;
}

Alone PassCost::exchange(CollectiveOp op, const ConcurrentGroups& groups, double bytes) const {
    if (groups.size() < 2) {
        return {};
    }
    return {groups.seconds(collectives_, op, Bytes(bytes)).value(),
            memory_bytes(op, static_cast<std::uint32_t>(groups.size()), Bytes(bytes)).value()};
}

// What a rank found in a piece is added to what it found before, each part by its weight; gradients of queries, and of keys and values
// that come round, are summed. Eager PyTorch does it in four kernels: one widens, two subtract, one weighs.
void PassCost::write_merge(Writer& out, double rows, bool wide, bool backward) const {
    const bool eager = plan_.fusion == Fusion::eager;
    const double sum = wide ? 10 : 6;  // B a value: both read, one of them in 16 bits, and one written
    const double values = rows * model_.q_width() / t_;
    const double keys = 2 * rows * exchanged_keys();
    if (backward) {
        out.kernel("sum of gradients", stream_slowdown_ * streaming((values + keys) * sum, 3), 3);
    } else {
        const double kernels = eager ? 4 : 1;
        out.kernel("sum of pieces", stream_slowdown_ * streaming(values * (eager ? 38 : sum), kernels), kernels);
    }
}

// As many pieces as ranks, of so long each, while keys and values of `rows` tokens go round.
void PassCost::write_ring(Writer& out, const ConcurrentGroups& ring, const Alone& kernel, double rows,
                          bool backward) const {
    const char* name = "keys and values";
    const Alone step = exchange(CollectiveOp::send_recv, ring, (backward ? 2 : 1) * 2 * rows * exchanged_keys() * 2);
    PassProgram::Id sent = PassProgram::kNone;
    for (std::size_t i = 0; i < ring.size(); ++i) {
        const PassProgram::Id before = out.program().last(PassStream::compute);
        PassProgram::Id arrived = sent;
        if (!plan_.overlap_context && i > 0) {
            arrived = out.collective(name, PassStream::context, step, before);
        } else if (plan_.overlap_context && i + 1 < ring.size()) {
            // The next keys leave once those of this piece have come and the piece before is done.
            sent = out.collective(name, PassStream::context, step, before);
        }
        out.kernel("attention", kernel, 1, arrived);
        if (i > 0) {
            write_merge(out, rows, false, backward);
        }
    }
}

// Queries go round (in the backward pass with what was found for them and its gradient), and what a rank found for others goes home.
void PassCost::write_two_way(Writer& out, const Alone& kernel, bool backward) const {
    const double queries = tokens_ * model_.q_width() / t_ * 2;
    const Alone away = exchange(CollectiveOp::send_recv, context_groups_, (backward ? 3 : 1) * queries);
    const Alone home = exchange(CollectiveOp::send_recv, context_groups_, queries);
    // In a mesh each pair of ranks has a link, and what goes home takes others than queries on their way to the next rank: both go at
    // once. The stream of experts is idle then.
    const GpuId first = ranks_.of().placement ? ranks_.of().placement->gpu(0) : GpuId(0);
    const bool apart = fabric_.parts_of(first).intra == IntraKind::mesh && context_groups_.size() > 2 &&
                       plan_.tensor * plan_.context <= fabric_.shape().gpus_per_node;
    const PassStream homeward = apart ? PassStream::expert : PassStream::context;
    PassProgram::Id sent = PassProgram::kNone;
    PassProgram::Id found = PassProgram::kNone;
    for (std::size_t i = 0; i < context_groups_.size(); ++i) {
        const PassProgram::Id before = out.program().last(PassStream::compute);
        PassProgram::Id arrived = sent;
        if (!plan_.overlap_context && i > 0) {
            arrived = out.collective("queries", PassStream::context, away, before);
        } else if (plan_.overlap_context && i + 1 < context_groups_.size()) {
            sent = out.collective("queries", PassStream::context, away, before);
        }
        out.kernel("attention", kernel, 1, arrived);
        if (i > 0) {
            out.wait(found);
            found = out.booked(Category::context_communication, "what was found", homeward, home,
                               out.program().last(PassStream::compute));
            if (!plan_.overlap_context || i + 1 == context_groups_.size()) {
                out.wait(found);
            }
            write_merge(out, tokens_, false, backward);
        }
    }
}

// Keys and values of all ranks come at once behind the first piece; their gradients go round in 32 bits, home at last.
void PassCost::write_gathered_ring(Writer& out, const Alone& kernel, bool backward) const {
    const std::size_t pieces = context_groups_.size();
    const double keys = 2 * tokens_ * exchanged_keys();
    const Alone gather = exchange(CollectiveOp::all_gather, context_groups_, static_cast<double>(pieces) * keys * 2);
    const Alone round = exchange(CollectiveOp::send_recv, context_groups_, keys * 4);
    const PassProgram::Id gathered =
        out.collective("keys and values", PassStream::context, gather, out.program().last(PassStream::compute));
    PassProgram::Id sent = plan_.overlap_context ? PassProgram::kNone : gathered;
    for (std::size_t i = 0; i < pieces; ++i) {
        out.kernel("attention", kernel, 1, i == 1 ? gathered : sent);
        if (i > 0) {
            out.wait(sent);
            write_merge(out, tokens_, true, backward);
        }
        if (backward) {
            // Put side by side in one buffer first.
            out.kernel("copy of gradients", stream_slowdown_ * streaming(keys * 8, 1));
            sent = out.collective("gradients of keys and values", PassStream::context, round,
                                  out.program().last(PassStream::compute));
            if (!plan_.overlap_context || i + 1 == pieces) {
                out.wait(sent);
            }
        }
    }
}

// One kernel over the rank's queries and all keys, at the rate of whole sequences.
void PassCost::write_gathered(Writer& out, LayerKind kind, bool backward) const {
    const auto c = static_cast<double>(plan_.context);
    write_key_gather(out);
    Alone kernel = (1 / c) * matrix_slowdown_ *
                   alone(flash(kind, static_cast<double>(plan_.micro_batch * model_.heads) / t_,
                               static_cast<double>(model_.sequence), backward));
    out.kernel("attention", kernel);
    if (backward) {
        write_key_scatter(out);
    }
}

void PassCost::write_key_gather(Writer& out) const {
    const double bytes = 2 * tokens_ * static_cast<double>(plan_.context) * exchanged_keys() * 2;
    out.wait(out.collective("keys and values", PassStream::context,
                            exchange(CollectiveOp::all_gather, context_groups_, bytes)));
}

void PassCost::write_key_scatter(Writer& out) const {
    const double bytes = 2 * tokens_ * static_cast<double>(plan_.context) * exchanged_keys() * 2;
    out.wait(out.collective("gradients of keys and values", PassStream::context,
                            exchange(CollectiveOp::reduce_scatter, context_groups_, bytes)));
}

// So many values of each token, put in order before they leave and again where they arrive.
void PassCost::write_head_exchange(Writer& out, const char* name, double width) const {
    const double values = tokens_ * width;
    const Alone copy = stream_slowdown_ * streaming(values * 4, 1);
    out.kernel("order of heads", copy);
    out.wait(out.collective(name, PassStream::context, exchange(CollectiveOp::all_to_all, head_groups_, values * 2)));
    out.kernel("order of heads", copy);
}

void PassCost::write_context(Writer& out, LayerKind kind, bool backward) const {
    const auto c = static_cast<double>(plan_.context);
    const auto inner = static_cast<double>(plan_.head_ranks());
    const double heads = static_cast<double>(plan_.micro_batch * model_.heads) / t_;
    const auto length = static_cast<double>(model_.sequence);
    out.program().add_flops(flash(kind, heads, length, backward).flops() / c);
    // In each of as many steps as pieces a rank attends to half of one piece's keys on average.
    const auto piece = [&](double pieces) {
        Attention part = flash(kind, heads * pieces / c, length / pieces, backward);
        part.causal = false;
        part.window = 0;
        return 0.5 * matrix_slowdown_ * alone(part);
    };
    const double q = model_.q_width() / t_;
    const double qkv = q + 2 * exchanged_keys();
    switch (plan_.context_exchange) {
        case ContextExchange::ring:
            write_ring(out, context_groups_, piece(c), tokens_, backward);
            break;
        case ContextExchange::two_way:
            write_two_way(out, piece(c), backward);
            break;
        case ContextExchange::gathered_ring:
            write_gathered_ring(out, piece(c), backward);
            break;
        case ContextExchange::all_gather:
            write_gathered(out, kind, backward);
            break;
        case ContextExchange::all_to_all:
        case ContextExchange::hierarchical: {
            write_head_exchange(out, "tokens for heads", backward ? q : qkv);
            if (inner < c) {
                // As many rows of fewer heads: what goes round is what one rank's tokens have in all heads.
                write_ring(out, outer_rings_, piece(c / inner), tokens_, backward);
            } else {
                out.kernel("attention", matrix_slowdown_ * alone(flash(kind, heads / c, length, backward)));
            }
            write_head_exchange(out, "heads for tokens", backward ? qkv : q);
            break;
        }
    }
}

}  // namespace orrery::training
