// The ends of a model in a pass: final norm, output layer and loss, on one stage or cut over all of them.

#include "workloads/training/passes/pass_writer.hpp"

namespace orrery::training {

Alone PassCost::loss_pass(double logits, bool backward) const {
    return stream_slowdown_ * (backward ? streaming(logits * loss_.backward_bytes, loss_.backward_kernels)
                                        : streaming(logits * loss_.forward_bytes, loss_.forward_kernels));
}

PassProgram PassCost::head(Direction direction, Part part) const {
    const bool backward = direction == Direction::backward;
    Writer out(backward ? Category::backward : Category::forward, *this);
    out.capture(false);
    const double h = static_cast<double>(model_.hidden);
    const double vocabulary = static_cast<double>(model_.vocabulary) / t_;
    const double bytes = tokens_ * h * 2;
    const Product logits{product(tokens_, vocabulary, h, false), false, false};
    const auto communicate = [&](const char* name, CollectiveOp op, double size, double times = 1) {
        if (plan_.tensor > 1) {
            out.wait(out.collective(name, PassStream::tensor, times * tensor_collective(op, size)));
        }
    };
    const int gradients = backward && part == Part::whole ? 2 : 1;
    out.program().add_flops((!frozen() ? gradients : part == Part::weights ? 0 : 1) * logits.gemm.flops());
    if (!backward) {
        out.kernel("norm", stream_slowdown_ * streaming(bytes * 3));
        if (plan_.sequence_parallel) {
            communicate("gather input", CollectiveOp::all_gather, bytes);
        }
        out.kernel("logits", forward_product(logits, 1));
        out.kernel("loss", loss_pass(tokens_ * vocabulary, false), loss_.forward_kernels);
        communicate("maximum, sum and target of each token", CollectiveOp::all_reduce, tokens_ * 4, 3);
    } else {
        if (part != Part::weights) {
            out.kernel("loss", loss_pass(tokens_ * vocabulary, true), loss_.backward_kernels);
            out.kernel("data gradient of logits", data_gradient(logits, 1));
            communicate("sum gradient",
                        plan_.sequence_parallel ? CollectiveOp::reduce_scatter : CollectiveOp::all_reduce, bytes);
        }
        if (part != Part::input && !frozen()) {
            out.kernel("weight gradient of logits", weight_gradient(logits));
        }
        if (part != Part::weights) {
            out.kernel("norm", stream_slowdown_ * streaming(bytes * 4));
        }
    }
    return out.program();
}

Price PassCost::vocabulary_pass(PassWork work) const {
    const bool gradients = work == PassWork::score_gradients;
    const bool one_barrier = plan_.vocabulary == VocabularyParallel::one_barrier;
    Writer out(gradients ? Category::backward : Category::forward, *this);
    out.capture(false);
    const auto stages = static_cast<double>(plan_.pipeline);
    const double vocabulary = static_cast<double>(model_.vocabulary) / t_ / stages;
    const Product logits{product(tokens_, vocabulary, static_cast<double>(model_.hidden), false), false, false};
    // With one barrier the gradient of the input is taken by the softmax of a stage's own scores, and put right as it is summed.
    const bool input = gradients != one_barrier;
    const bool weights = gradients && !frozen();
    out.program().add_flops(((weights ? 1 : 0) + (input ? 1 : 0) + (gradients ? 0 : 1)) * logits.gemm.flops());
    if (!gradients) {
        out.kernel("logits", forward_product(logits, 1));
        out.kernel("loss", loss_pass(tokens_ * vocabulary, false), loss_.forward_kernels);
        if (one_barrier) {
            out.kernel("cast", stream_slowdown_ * streaming(tokens_ * vocabulary * 6));  // for the next product
        }
    } else {
        out.kernel("loss", loss_pass(tokens_ * vocabulary, true), loss_.backward_kernels);
    }
    if (input) {
        out.kernel("data gradient of logits", data_gradient(logits, 1));
    }
    if (gradients && one_barrier) {
        // What was taken by the stage's own sum: scaled, and less the rows of the targets.
        out.kernel("gradient by the sum of all", stream_slowdown_ * streaming(hidden_bytes() * 6, 2), 2);
    }
    if (weights) {
        out.kernel("weight gradient of logits", weight_gradient(logits));
    }
    Price price = out.program().price();
    // Its rows of the embedding, or their gradients.
    return price += (gradients ? embedding_backward_ : embedding_forward_) * (1 / stages);
}

Price PassCost::final_norm(bool backward) const {
    Writer out(backward ? Category::backward : Category::forward, *this);
    out.capture(false);
    out.kernel("norm", stream_slowdown_ * streaming(hidden_bytes() * (backward ? 4 : 3)));
    return out.program().price();
}

}  // namespace orrery::training
