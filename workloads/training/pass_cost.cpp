#include "workloads/training/pass_cost.hpp"

#include <algorithm>

namespace orrery {

double Price::total() const {
    double sum = 0;
    for (const double s : seconds) {
        sum += s;
    }
    return sum;
}

Price& Price::operator+=(const Price& other) {
    for (std::size_t i = 0; i < seconds.size(); ++i) {
        seconds[i] += other.seconds[i];
    }
    flops += other.flops;
    return *this;
}

Price operator*(Price price, double k) {
    for (double& s : price.seconds) {
        s *= k;
    }
    price.flops *= k;
    return price;
}

PassCost::PassCost(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software, const CostModel& device,
                   const Fabric& fabric, const CollectiveModel& collectives, PathChoice paths)
    : model_(model),
      plan_(plan),
      software_(software),
      device_(device),
      fabric_(fabric),
      collectives_(collectives),
      paths_(paths),
      tokens_(static_cast<double>(plan.micro_batch * model.sequence) / static_cast<double>(plan.context)),
      t_(static_cast<double>(plan.tensor)) {
    for (std::int64_t i = 0; i < plan.tensor; ++i) {
        tensor_group_.emplace_back(static_cast<std::uint32_t>(i));
    }
    for (std::int64_t i = 0; i < plan.context; ++i) {
        context_group_.emplace_back(static_cast<std::uint32_t>(i * plan.tensor));
    }
    layer_forward_ = price_layer(Direction::forward, false);
    layer_backward_ = price_layer(Direction::backward, false);
    if (plan.recompute != Recompute::none) {
        // Fused attention recomputes its scores by itself: selective recomputation has nothing left to do.
        const bool selective = plan.recompute == Recompute::selective;
        if (!selective || plan.attention == AttentionKernel::unfused) {
            const double share = plan.recompute == Recompute::half ? 0.5 : 1;
            const Price again = price_layer(Direction::forward, selective) * share;
            layer_backward_.flops += again.flops;
            layer_backward_[Category::tensor_communication] += again[Category::tensor_communication];
            layer_backward_[Category::context_communication] += again[Category::context_communication];
            layer_backward_[Category::recompute] += again[Category::forward] + again[Category::overhead];
        }
    }
    const double h = static_cast<double>(model.hidden);
    // Lookup: gathers rows, writes activations (and the sum over the tensor-parallel group).
    embedding_forward_[Category::forward] = streaming(tokens_ * h * 2 * 3, 2);
    embedding_forward_[Category::tensor_communication] = tensor_collective(
        plan.sequence_parallel ? CollectiveOp::reduce_scatter : CollectiveOp::all_reduce, tokens_ * h * 2);
    // Scatter-add into the weight gradient.
    embedding_backward_[Category::backward] = streaming(tokens_ * h * (2 + 2 * 4), 2);
    if (plan.sequence_parallel) {
        embedding_backward_[Category::tensor_communication] =
            tensor_collective(CollectiveOp::all_gather, tokens_ * h * 2);
    }
    head_forward_ = price_head(Direction::forward);
    head_backward_ = price_head(Direction::backward);
}

double PassCost::streaming(double bytes, double kernels) const {
    return device_.seconds(Streaming{bytes, kernels}).value();
}

double PassCost::tensor_collective(CollectiveOp op, double bytes) const {
    if (tensor_group_.size() < 2) {
        return 0;
    }
    return seconds_alone(fabric_, make_transfer(fabric_, collectives_, op, tensor_group_, Bytes(bytes), paths_))
        .value();
}

// Communication left over after hiding it behind `cover` seconds of kernels. Chunked overlap (a collective cut into as
// many pieces as ranks and interleaved with the GEMM that makes or uses it) always exposes one piece.
double PassCost::exposed(double communication, double cover, bool hidden, bool chunked) const {
    if (hidden) {
        return std::max(0.0, communication - cover);
    }
    if (chunked) {
        return std::max(communication / t_, communication - cover * (1 - 1 / t_));
    }
    return communication;
}

double PassCost::product(double m, double n, double k, bool low_precision, Price& price) const {
    Gemm gemm{m, n, k, 1, low_precision ? plan_.precision : Precision::bf16, 0};
    if (plan_.precision == Precision::fp16) {
        gemm.precision = Precision::fp16;
    }
    price.flops += gemm.flops();
    double seconds = device_.seconds(gemm).value();
    if (gemm.precision == Precision::fp8) {
        seconds += streaming(m * k * 4);  // cast of the activations, kept transposed for the backward pass too
    }
    return seconds;
}

double PassCost::product_backward(double m, double n, double k, bool low_precision, Price& price) const {
    Gemm data{m, k, n, 1, low_precision ? plan_.precision : Precision::bf16, 0};
    Gemm weight{n, k, m, 1, data.precision, 0};
    if (plan_.precision == Precision::fp16) {
        data.precision = weight.precision = Precision::fp16;
    }
    price.flops += data.flops() + weight.flops();
    double seconds = 0;
    // Gradients add up in fp32 over the micro-batches: in the epilogue (reads and writes 4 bytes instead of writing 2),
    // or in a kernel of its own.
    const bool accumulates = plan_.micro_batches() > 1 || plan_.gradient_precision == Precision::fp32;
    if (accumulates && software_.fused_gradient_accumulation) {
        weight.extra_bytes = n * k * 6;
    } else if (accumulates) {
        seconds += streaming(n * k * 10);
    }
    seconds += device_.seconds(data).value() + device_.seconds(weight).value();
    if (data.precision == Precision::fp8) {
        seconds += streaming(m * n * 4);
    }
    return seconds;
}

// Scores, softmax, weighted sum. Unfused: three passes over the s x s matrix; fused: one kernel.
Price PassCost::price_attention(Direction direction) const {
    Price price;
    const bool backward = direction == Direction::backward;
    const Category kind = backward ? Category::backward : Category::forward;
    const double s = static_cast<double>(model_.sequence);
    const double heads = static_cast<double>(plan_.micro_batch) * static_cast<double>(model_.heads) / t_;
    const auto d = static_cast<double>(model_.head_dim);
    if (plan_.attention == AttentionKernel::unfused) {
        const double queries = s / static_cast<double>(plan_.context);
        const Gemm scores{queries, s, d, heads, Precision::fp16, 0};
        const Gemm values{queries, d, s, heads, Precision::fp16, 0};
        const double elements = heads * queries * s;
        const double dropout = model_.dropout ? 1 : 0;
        if (backward) {
            // Each product has two gradients of its own size.
            price[kind] += 2 * device_.seconds(scores).value() + 2 * device_.seconds(values).value();
            price[kind] += streaming(elements * (6 + 5 * dropout), 1 + dropout);
        } else {
            price[kind] += device_.seconds(scores).value() + device_.seconds(values).value();
            price[kind] += streaming(elements * (4 + 5 * dropout), 1 + dropout);
        }
        price.flops += (backward ? 2 : 1) * (scores.flops() + values.flops());
        return price;
    }
    Attention attention{
        heads, s, s, d, true, static_cast<double>(model_.window), backward, plan_.attention == AttentionKernel::flash2};
    price.flops += attention.flops() / static_cast<double>(plan_.context);
    if (plan_.context == 1) {
        price[kind] += device_.seconds(attention).value();
        return price;
    }
    // Ring attention with balanced (zigzag) halves: in each of c steps a rank attends to half of one rank's keys on
    // average, while the next keys and values are on their way.
    const auto c = static_cast<double>(plan_.context);
    Attention piece{heads, s / c, s / c, d, false, 0, backward, attention.flash2};
    const double kernel = device_.seconds(piece).value() * c / 2;
    const double bytes = (backward ? 2 : 1) * 2 * tokens_ * model_.kv_width() / t_ * 2;
    const double step = seconds_alone(fabric_, make_transfer(fabric_, collectives_, CollectiveOp::send_recv,
                                                             context_group_, Bytes(bytes), paths_))
                            .value();
    price[kind] += kernel;
    price[Category::context_communication] += std::max(0.0, (c - 1) * (step - kernel / c));
    return price;
}

Price PassCost::price_layer(Direction direction, bool attention_only) const {
    const bool backward = direction == Direction::backward;
    const Category kind = backward ? Category::backward : Category::forward;
    Price price = price_attention(direction);
    if (attention_only) {
        return price * software_.kernel_slowdown.value;
    }
    const double h = static_cast<double>(model_.hidden);
    const double ffn = static_cast<double>(model_.ffn) / t_;
    const double q = model_.q_width() / t_;
    const double qkv = (model_.q_width() + 2 * model_.kv_width()) / t_;
    const double up = ffn * (model_.gated ? 2 : 1);
    const double sharded = plan_.sequence_parallel ? t_ : 1;
    const double dropout = model_.dropout ? 1 : 0;
    const auto gemm = [&](double m, double n, double k) {
        return backward ? product_backward(m, n, k, true, price) : product(m, n, k, true, price);
    };
    const double attention_in = gemm(tokens_, qkv, h);
    const double attention_out = gemm(tokens_, h, q);
    const double ffn_in = gemm(tokens_, up, h);
    const double ffn_out = gemm(tokens_, h, ffn);
    price[kind] += attention_in + attention_out + ffn_in + ffn_out;

    // Streaming kernels, in bytes of 16-bit activations. Norms read twice; a residual addition reads two and writes one
    // (with a one-byte mask under dropout); the backward pass of each also reads what its forward pass read.
    const double norms = model_.parallel_block ? 1 : 2;
    // Eager RMS norm: cast to fp32, square, mean, scale, cast back, weight: 36 bytes a value instead of 6.
    const bool eager = plan_.fusion == Fusion::eager;
    const double norm_bytes = norms * tokens_ * h / sharded * (backward ? (eager ? 48 : 8) : (eager ? 36 : 6));
    const double residual_bytes = norms * tokens_ * h / sharded * (backward ? 4 + 3 * dropout : 6 + 3 * dropout);
    const double gate = model_.gated ? (backward ? 5 : 3) + (eager ? 2 : 0) : (backward ? 3 : 2);
    const double activation_bytes = tokens_ * gate * ffn * 2;
    // Eager rotary embedding multiplies complex numbers in fp32: four casts and a product.
    const double rotary_bytes = model_.rotary ? tokens_ * (q + model_.kv_width() / t_) * (eager ? 28 : 4) : 0;
    price[kind] += streaming(norm_bytes, norms * (eager ? 6 : 1)) + streaming(residual_bytes, norms) +
                   streaming(activation_bytes, eager ? 2 : 1);
    if (rotary_bytes > 0) {
        price[kind] += streaming(rotary_bytes, 2);
    }
    // Splitting and transposing q, k, v and the context for the heads' layout.
    price[kind] += plan_.attention == AttentionKernel::unfused ? streaming(tokens_ * (qkv + q) * 2 * 2, 2) : 0;
    price[kind] *= software_.kernel_slowdown.value;
    price[Category::overhead] += software_.layer_overhead.value;

    if (tensor_group_.size() > 1) {
        const double bytes = tokens_ * h * 2;
        const bool chunked = plan_.overlap_tensor == TensorOverlap::full;
        const bool behind_weights = backward && plan_.overlap_tensor != TensorOverlap::none;
        double left = 0;
        // Per block: one collective into its first product and one out of its last (two blocks, or one when parallel).
        const double blocks[2][2] = {{attention_in, attention_out}, {ffn_in, ffn_out}};
        for (int block = 0; block < (model_.parallel_block ? 1 : 2); ++block) {
            const double in = model_.parallel_block ? attention_in + ffn_in : blocks[block][0];
            const double out = model_.parallel_block ? attention_out + ffn_out : blocks[block][1];
            if (plan_.sequence_parallel) {
                // Operands that are cast before they travel, as torchao's Float8ColwiseParallel and Float8RowwiseParallel
                // do for products with one scale a tensor; sums stay in 16 bits.
                const double gather =
                    tensor_collective(CollectiveOp::all_gather, bytes / 2 * bytes_of(plan_.gather_precision));
                const double scatter = tensor_collective(CollectiveOp::reduce_scatter, bytes);
                if (!backward) {
                    left += exposed(gather, in, false, chunked) + exposed(scatter, out, false, chunked);
                } else {
                    // The gradient is gathered before the last product's gradients; the input is gathered again behind
                    // the data gradient; the data gradient is scattered behind the weight gradient.
                    left += exposed(gather, out / 2, false, chunked);
                    left += exposed(gather, in / 2, behind_weights, false);
                    left += exposed(scatter, in / 2, behind_weights, false);
                }
            } else {
                const double reduce = tensor_collective(CollectiveOp::all_reduce, bytes);
                left +=
                    backward ? exposed(reduce, in / 2, behind_weights, false) : exposed(reduce, out, false, chunked);
            }
        }
        price[Category::tensor_communication] += left;
    }
    return price;
}

Price PassCost::price_head(Direction direction) const {
    const bool backward = direction == Direction::backward;
    const Category kind = backward ? Category::backward : Category::forward;
    const double h = static_cast<double>(model_.hidden);
    const double vocabulary = static_cast<double>(model_.vocabulary) / t_;
    Price price;
    price[kind] += backward ? product_backward(tokens_, vocabulary, h, false, price)
                            : product(tokens_, vocabulary, h, false, price);
    // Loss in fp32: cast, maximum, exponentials and sum forward; gradient backward.
    price[kind] += streaming(tokens_ * vocabulary * (backward ? 10 : 18), backward ? 2 : 4);
    price[kind] += streaming(tokens_ * h * 2 * (backward ? 4 : 3));
    price[kind] *= software_.kernel_slowdown.value;
    if (tensor_group_.size() > 1) {
        const double bytes = tokens_ * h * 2;
        if (plan_.sequence_parallel) {
            price[Category::tensor_communication] +=
                tensor_collective(backward ? CollectiveOp::reduce_scatter : CollectiveOp::all_gather, bytes);
        } else if (backward) {
            price[Category::tensor_communication] += tensor_collective(CollectiveOp::all_reduce, bytes);
        }
        if (!backward) {  // maximum, sum and target logit of each token, fp32
            price[Category::tensor_communication] += 3 * tensor_collective(CollectiveOp::all_reduce, tokens_ * 4);
        }
    }
    return price;
}

Price PassCost::optimizer(double parameters) const {
    Price price;
    // Adam: reads gradient, weight, both moments (fp32), writes weight, both moments and the 16-bit copy; before it one
    // pass each to unscale or check, to take the norm of and to zero the gradients.
    price[Category::optimizer] = streaming(parameters * (16 + 12 + 2 + 12), 8) * software_.kernel_slowdown.value;
    return price;
}

double PassCost::boundary_bytes() const {
    const double bytes = tokens_ * static_cast<double>(model_.hidden) * 2;
    const bool scattered = plan_.sequence_parallel || software_.scatter_gather_pipeline;
    return scattered ? bytes / t_ : bytes;
}

double PassCost::boundary_gather() const {
    if (plan_.sequence_parallel || !software_.scatter_gather_pipeline) {
        return 0;
    }
    return tensor_collective(CollectiveOp::all_gather, tokens_ * static_cast<double>(model_.hidden) * 2);
}

}  // namespace orrery
