#include "workloads/training/passes/pass_cost.hpp"

#include "sim/base/error.hpp"
#include "workloads/model/attention_form.hpp"
#include "workloads/training/features/dispatcher.hpp"
#include "workloads/training/features/documents.hpp"
#include "workloads/training/features/low_rank_states.hpp"
#include "workloads/training/features/optimizer_types.hpp"
#include "workloads/training/features/zeroth_order.hpp"
#include "workloads/training/passes/pass_writer.hpp"

#include <algorithm>

namespace orrery::training {

namespace {

bool attends(LayerKind kind) {
    return kind.part == LayerPart::whole || kind.part == LayerPart::attention;
}

double share_of(const Sourced<double>& units, const DeviceSpec& gpu) {
    constexpr double kMost = 0.5;
    return std::min(kMost, units.value / static_cast<double>(gpu.compute_units));
}

// Of the memory's rate: PyTorch's kernels that walk strided tensors or add a vector to all rows (0.38 to 0.55), and the one that joins
// three tensors along their last dimension (0.20 to 0.34), on H100 and H200 (validation/measured, 2026-11-27b, `unfused` and the
// kernels of `megatron`).
constexpr double kStrided = 0.48;
constexpr double kJoined = 0.27;

// Bytes that the loss moves per logit, and its kernels. Forward and backward, in turn:
//   separate  cast 2 + 4, maximum 4, difference 8, exponentials 8, sum 4, quotient 8, rows of the targets; product with the
//             gradient of the loss 8, cast 4 + 2
//   compiled  cast with maximum 2 + 4, exponentials of differences with their sum 4 + 4, quotients 4 (over them); product and
//             cast 4 + 4 + 2
//   online    a reading of 2 that exponentials bound, as long as 5 take at the memory's rate; gradients 2 + 2, as long as 4.7 (steps
//             on an H100 and an H200, validation/measured: 4.2 to 4.8 and 4.4 to 4.5; 5.7 and 5.1)
//   fused     maximum and sum 2, gradients over the logits 2 + 2; scaled by the gradient of the loss 2 + 2
LossTraffic loss_traffic(LossKernels kernels) {
    switch (kernels) {
        case LossKernels::separate:
            return {38, 8, 14, 2};
        case LossKernels::online:
            return {5, 3, 4.7, 1};
        case LossKernels::fused:
        case LossKernels::chunked:
            return {6, 2, 4, 1};
        default:
            return {18, 4, 10, 2};
    }
}

}  // namespace

PassCost::PassCost(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software, const CostModel& device,
                   const DeviceSpec& gpu, const Fabric& fabric, const CollectiveModel& collectives, PathChoice paths,
                   const PricedReplica& of, const MicroBatchLoad* load, double sequences)
    : model_(model),
      plan_(plan),
      software_(software),
      device_(device),
      fabric_(fabric),
      collectives_(collectives),
      ranks_(plan, fabric, paths, of),
      documents_(plan.feature<DocumentsPlan>().fill == DocumentFill::padded ? nullptr : load),
      sequences_(sequences > 0 ? sequences : static_cast<double>(plan.micro_batch)),
      tokens_(load != nullptr ? load->rows
                              : sequences_ * static_cast<double>(model.sequence) / static_cast<double>(plan.context)),
      t_(static_cast<double>(plan.tensor)),
      stream_slowdown_(software.kernel_slowdown.value),
      matrix_slowdown_(stream_slowdown_ * gpu.slowest_of(static_cast<double>(plan.ranks()))),
      units_(share_of(software.communication_units, gpu)),
      tensor_units_(plan.overlap_tensor == TensorOverlap::full    ? share_of(software.tensor_communication_units, gpu)
                    : plan.overlap_tensor == TensorOverlap::tiles ? 0
                                                                  : units_),
      memory_rate_(gpu.memory_bandwidth.value * gpu.memory_efficiency.value),
      scan_rate_(software.scan_efficiency.value * gpu.flops_fp32.value),
      scales_blocks_(gpu.flops_fp4.value > 0),
      loss_(loss_traffic(loss_kernels(plan, software))) {
    // A device that does no backward pass says so when it is asked for the price of one, fused or not.
    Attention backward;
    backward.backward = true;
    (void)device.seconds(backward);
    ORRERY_ASSERT(tokens_ > 0 && t_ >= 1);
    if (plan.tensor > 1) {
        tensor_groups_ = ranks_.every(1, plan.tensor);
    }
    if (plan.context > 1) {
        const std::int64_t inner = plan.head_ranks();
        context_groups_ = ranks_.every(plan.tensor, plan.context);
        head_groups_ = ranks_.every(plan.tensor, inner);
        outer_rings_ = ranks_.every(plan.tensor * inner, plan.context / inner);
    }
    if (model.experts.count > 0) {
        exchange_.emplace(model, plan, collectives, ranks_);
        load_ = load_of(model.experts, plan);
    }
    for (std::int64_t first = 0; first < model.layers; ++first) {
        const LayerKind kind = model.kind_of(first);
        if (!layers_[kind.index()].priced) {
            price_layer(kind);
        }
    }
    if (model.encoder.given()) {
        price_encoder(device, gpu);
    }
    if (model.vocabulary == 0) {
        return;
    }
    embedding_forward_ = embedding(Direction::forward).price();
    embedding_backward_ = embedding(Direction::backward).price();
    head_forward_ = head(Direction::forward).price();
    head_backward_ = head(Direction::backward).price();
    if (plan.schedule->splits) {
        head_input_ = head(Direction::backward, Part::input).price();
        head_weight_ = head(Direction::backward, Part::weights).price();
    }
}

void PassCost::price_layer(LayerKind kind) {
    LayerPrices& out = layers_[kind.index()];
    out.priced = true;
    out.forward_program = layer(kind, Direction::forward);
    const PassProgram again = recomputed(kind, out.forward_program);
    out.backward_program = again;
    out.backward_program.append(layer(kind, Direction::backward));
    const auto add_features = [&](PassWork work, PassProgram& program) {
        const double layers = static_cast<double>(model_.layers) / static_cast<double>(plan_.parts());
        const double input = hidden_bytes() / (plan_.sequence_parallel ? t_ : 1);
        plan_.features.each([&](const PlanFeature& one) {
            one.pass({plan_, work, layers, input, fabric_.shape().pcie_bandwidth, memory_rate_}, program);
        });
    };
    add_features(PassWork::forward, out.forward_program);
    add_features(PassWork::backward, out.backward_program);
    out.forward = out.forward_program.price();
    out.backward = out.backward_program.price();
    if (plan_.schedule->splits) {
        out.input_program = again;
        out.input_program.append(layer(kind, Direction::backward, Part::input));
        out.weight_program = layer(kind, Direction::backward, Part::weights);
        add_features(PassWork::input_gradient, out.input_program);
        add_features(PassWork::weight_gradient, out.weight_program);
        out.input = out.input_program.price();
        out.weight = out.weight_program.price();
    }
}

PassProgram PassCost::recomputed(LayerKind kind, const PassProgram& forward) const {
    PassProgram found;
    double share = 1;  // of the layers
    switch (plan_.recompute) {
        case Recompute::none:
            return found;
        case Recompute::selective:
            // Fused attention recomputes its scores by itself: there is nothing left to do.
            if (plan_.attention == AttentionKernel::unfused && attends(kind)) {
                found = attention_core(kind, Direction::forward);
            }
            break;
        case Recompute::experts:
            if (kind.experts) {
                found = expert_feed_forward(Direction::forward, Part::whole, true);
            }
            break;
        case Recompute::modules:
            found = recomputed_modules(kind);
            break;
        case Recompute::half:
            found = forward;
            share = 0.5;
            break;
        case Recompute::full:
            found = forward;
            share = plan_.recomputed(static_cast<double>(model_.layers) / static_cast<double>(plan_.parts()));
            break;
    }
    found.book_kernels(Category::recompute);
    PassProgram out;
    out.append(found, share);
    return out;
}

PassProgram PassCost::recomputed_modules(LayerKind kind) const {
    const RecomputeModules modules = plan_.modules();
    const LayerTraffic bytes = traffic(false);
    const bool eager = plan_.fusion == Fusion::eager;
    Writer out(Category::recompute, *this);
    const bool whole = kind.part == LayerPart::whole;
    const bool feeds = whole || kind.part == LayerPart::feed_forward;
    if (modules.norm) {
        const double norms = whole ? 2 : 1;
        const double kernels = norms * norm_kernels();
        out.kernel("norm", stream_slowdown_ * streaming(norms * bytes.norm, kernels), kernels);
    }
    if (modules.attention && attends(kind)) {
        out.program().append(attention_core(kind, Direction::forward));
    }
    if (modules.activation && kind.experts) {
        write_expert_activation(out, 1, false);
    } else if (modules.activation && feeds) {
        const double kernels = eager ? 2 : 1;
        out.kernel("activation function", stream_slowdown_ * streaming(bytes.activation, kernels), kernels);
    }
    if (modules.ffn && kind.experts) {
        out.program().append(expert_feed_forward(Direction::forward, Part::whole, true));
    } else if (modules.ffn && feeds) {
        const Block block = feed_forward(static_cast<double>(model_.ffn) / t_);
        const std::span<const Block> both(&block, 1);
        write_input_products(out, both);
        const double kernels = eager ? 2 : 1;
        out.kernel("activation function", stream_slowdown_ * streaming(bytes.activation, kernels), kernels);
        write_output_products(out, both);
        add_flops(out, block, false, Part::whole);
    }
    return out.program();
}

const PassProgram& PassCost::program(LayerKind kind, PassWork work) const {
    const LayerPrices& layer = of(kind);
    return work == PassWork::forward           ? layer.forward_program
           : work == PassWork::input_gradient  ? layer.input_program
           : work == PassWork::weight_gradient ? layer.weight_program
                                               : layer.backward_program;
}

PassProgram PassCost::embedding_program(PassWork work) const {
    // The gradient of a table is one of weights alone.
    return work == PassWork::input_gradient
               ? PassProgram()
               : embedding(work == PassWork::forward ? Direction::forward : Direction::backward);
}

PassProgram PassCost::head_program(PassWork work) const {
    return work == PassWork::forward           ? head(Direction::forward)
           : work == PassWork::input_gradient  ? head(Direction::backward, Part::input)
           : work == PassWork::weight_gradient ? head(Direction::backward, Part::weights)
                                               : head(Direction::backward);
}

Alone PassCost::streaming(double bytes, double kernels) const {
    return alone(Streaming{bytes, kernels});
}

Alone PassCost::alone(const Operation& operation) const {
    const Cost cost = device_.cost(operation);
    return {cost.seconds.value(), cost.bytes};
}

Alone PassCost::tensor_collective(CollectiveOp op, double bytes) const {
    return exchange(op, tensor_groups_, bytes);
}

// Bytes of 16-bit activations that the streaming kernels of a layer move. Norms read twice; a residual addition reads two and
// writes one (with a one-byte mask under dropout); the backward pass of each also reads what its forward pass read. Biases and heads
// are those of Megatron-LM (core/tensor_parallel/layers.py, FlashSelfAttention).
double PassCost::norm_kernels() const {
    return plan_.fusion == Fusion::eager && !software_.fused_norms ? 6 : 1;
}

double PassCost::activation_values(double width, bool backward) const {
    return width * (model_.gated ? (backward ? 5 : 3) : (backward ? 3 : 2));
}

PassCost::LayerTraffic PassCost::traffic(bool backward) const {
    const double h = static_cast<double>(model_.hidden);
    const double ffn = static_cast<double>(model_.ffn) / t_;
    const double q = model_.q_width() / t_;
    const double qkv = (model_.q_width() + 2 * model_.kv_width()) / t_;
    const double sharded = plan_.sequence_parallel ? t_ : 1;
    const double dropout = model_.dropout ? 1 : 0;
    // RMS norm step by step: cast to fp32, square, mean, scale, cast back, weight: 36 bytes a value instead of 6.
    const bool eager = plan_.fusion == Fusion::eager;
    const bool steps = norm_kernels() > 1;
    LayerTraffic out;
    out.norm = tokens_ * h / sharded * (backward ? (steps ? 48 : 8) : (steps ? 36 : 6));
    out.residual = tokens_ * h / sharded * (backward ? 4 + 3 * dropout : 6 + 3 * dropout);
    out.activation = tokens_ * 2 * (activation_values(ffn, backward) + (model_.gated && eager ? 2 * ffn : 0));
    const bool apart = model_.form != nullptr && model_.form->by_kind();  // write_beside_attention()
    for (const LayerOperation& one : apart ? LayerOperations() : before_attention(layer_context({}))) {
        // Eager rotary embedding multiplies complex numbers in fp32: four casts and a product.
        const bool casts = eager && model_.latent.kv_rank == 0;
        if (one.role == LayerRole::position) {
            out.rotary = 2 * one.values() * (casts ? 7 : 1);
        } else if (one.role == LayerRole::inner_norm && one.out > 0) {
            out.query_key_norm = one.rows * one.in * (backward ? 8 : 6);
        }
    }
    // Batched products read queries, keys and values where the projection wrote them, and their result is put in the tokens' order;
    // fused attention gets copies. The gradients of the three are joined.
    const bool unfused = plan_.attention == AttentionKernel::unfused;
    const bool splits = !unfused && software_.splits_heads;
    out.transposes = tokens_ * 4 * (unfused ? q : splits && !backward ? qkv : 0);
    out.joins = backward && (unfused || splits) ? tokens_ * 4 * qkv : 0;
    out.scales = backward && unfused ? tokens_ * 4 * 2 * q : 0;
    const bool grouped = model_.kv_heads < model_.heads;
    out.repeats = software_.repeats_keys && grouped ? tokens_ * 2 * (q + model_.kv_width() / t_) * 2 : 0;
    if (model_.biases && !software_.fused_biases && !(backward && frozen())) {
        // The other three are added by the activation function and the residual; the gradients of all four are summed.
        const double ffn_in = ffn * (model_.gated ? 2 : 1);
        out.attention_biases = tokens_ * (backward ? 2 * (qkv + h / sharded) : 4 * qkv);
        out.ffn_biases = backward ? tokens_ * 2 * (ffn_in + h / sharded) : 0;
        out.vectors = backward ? 6 * (qkv + ffn_in + 6 * h) : 0;
    }
    return out;
}

LayerContext PassCost::layer_context(LayerKind kind) const {
    return {model_, kind, {t_, t_, plan_.sequence_parallel ? t_ : 1}, LayerPhase::training, tokens_};
}

PassCost::Block PassCost::block_of(const LayerOperations& operations, bool fused) const {
    Block out;
    for (const LayerOperation& one : operations) {
        if (one.role == LayerRole::input) {
            out.in.push_back({product(one.rows, one.out, one.in), true, fused});
        } else if (one.role == LayerRole::output) {
            out.out.push_back({product(one.rows, one.out, one.in), fused, false});
        }
    }
    return out;
}

// The products into and out of the core of attention, or of a scan.
PassCost::Block PassCost::attention_block(LayerKind kind) const {
    LayerOperations operations = before_attention(layer_context(kind));
    const LayerOperations after = after_attention(layer_context(kind));
    operations.insert(operations.end(), after.begin(), after.end());
    Block block = block_of(operations, false);
    add_adapters(block, LayerProduct::attention_in, LayerProduct::attention_out);
    return block;
}

PassCost::Block PassCost::feed_forward(double width) const {
    Block block = block_of(dense_feed_forward(layer_context({}), width), software_.fused_activation_casts);
    add_adapters(block, LayerProduct::ffn_in, LayerProduct::ffn_out);
    return block;
}

PassProgram PassCost::layer(LayerKind kind, Direction direction, Part part) const {
    if (!kind.experts || plan_.experts.overlap != ExpertOverlap::batches || part == Part::weights) {
        return layer_of(kind, direction, part, false);
    }
    // A mean of both kinds of passes.
    const double paired = share_of_pairs(plan_);
    PassProgram out;
    if (paired < 1) {
        out.append(layer_of(kind, direction, part, false), 1 - paired);
    }
    if (paired > 0) {
        out.append(layer_of(kind, direction, part, true), paired);
    }
    return out;
}

PassProgram PassCost::layer_of(LayerKind kind, Direction direction, Part part, bool paired) const {
    const bool backward = direction == Direction::backward;
    Writer out(backward ? Category::backward : Category::forward, *this);
    const bool scans = kind.part == LayerPart::state_space;
    const Block products[2] = {attention_block(kind), feed_forward(static_cast<double>(model_.ffn) / t_)};
    const LayerTraffic bytes = traffic(backward);
    const bool eager = plan_.fusion == Fusion::eager;
    const bool unfused = plan_.attention == AttentionKernel::unfused;
    // `rate`: of the memory's, that such kernels reach.
    const auto stream = [&](const char* name, double moved, double kernels, double rate = 1) {
        if (moved > 0) {
            out.kernel(name, stream_slowdown_ * streaming(moved / rate, kernels), kernels);
        }
    };
    const auto core = [&](int block) {
        if (block == 0 && scans) {
            write_state_space(out, backward);
        } else if (block == 0 && model_.is_linear(kind)) {
            out.program().append(attention_core(kind, direction));
        } else if (block == 0) {
            stream("rotary embedding", bytes.rotary, 2);
            stream("norm of queries and keys", bytes.query_key_norm, 2);
            stream("biases", bytes.attention_biases, backward ? 2 : 1, backward ? 1 : kStrided);
            stream("transposes", bytes.transposes, bytes.joins > 0 || unfused ? 1 : 3, kStrided);
            stream("scaled gradients", bytes.scales, 2);
            stream("join of gradients", bytes.joins, 1, kJoined);
            stream("gradients of vectors", bytes.vectors, 8);
            stream("keys and values for every head", bytes.repeats, 2);
            out.program().append(attention_core(kind, direction));
        } else {
            stream("activation function", bytes.activation, eager ? 2 : 1);
            stream("biases", bytes.ffn_biases, 2);
        }
    };
    if (paired) {
        // While this micro-batch computes, another one, half a layer behind, exchanges as many tokens in a pass the other way.
        const bool shows = backward && plan_.feature<DispatcherPlan>().blocks();
        out.collective("exchange of the other micro-batch", PassStream::expert,
                       shows ? combine(plan_.experts.combine_precision) : exchange_of_tokens(), PassProgram::kNone);
    }
    if (kind.experts && plan_.experts.shadowed > 0 && part != Part::weights) {
        // On their way behind attention; tokens of other experts follow on the same communicator.
        out.collective("weights of shadowed experts", PassStream::expert, shadow_exchange(false), PassProgram::kNone);
    }
    // Per block: one collective into its first product and one out of its last. A parallel block has one of each for both.
    const bool whole = kind.part == LayerPart::whole;
    const int blocks = model_.parallel_block || !whole ? 1 : 2;
    const int joined = model_.parallel_block ? 2 : 1;
    const int first = kind.part == LayerPart::feed_forward ? 1 : 0;
    for (int i = 0; i < blocks; ++i) {
        const int block = first + (backward ? blocks - 1 - i : i);
        const std::span<const Block> both(products + block, static_cast<std::size_t>(joined));
        const bool routed = block == 1 && kind.experts;
        if (routed && part != Part::weights) {
            stream(backward ? "residual" : "norm", backward ? bytes.residual : bytes.norm,
                   backward ? 1 : norm_kernels());
            out.program().append(expert_feed_forward(direction, part, paired));
            stream(backward ? "norm" : "residual", backward ? bytes.norm : bytes.residual,
                   backward ? norm_kernels() : 1);
        } else if (routed) {
            out.program().append(expert_feed_forward(direction, part, paired));
        } else if (part == Part::weights) {
            write_output_gradients(out, both, part);
            write_input_gradients(out, both, part);
        } else if (backward) {
            stream("residual", bytes.residual, 1);
            write_output_gradients(out, both, part);
            for (int b = block + joined; b-- > block;) {
                core(b);
            }
            write_input_gradients(out, both, part);
            stream("norm", bytes.norm, norm_kernels());
        } else {
            stream("norm", bytes.norm, norm_kernels());
            write_input_products(out, both);
            for (int b = block; b < block + joined; ++b) {
                core(b);
            }
            write_output_products(out, both);
            stream("residual", bytes.residual, 1);
        }
    }
    for (int block = first; block < (kind.experts || (!whole && first == 0) ? 1 : 2); ++block) {
        add_flops(out, products[block], backward, part);
    }
    return out.program();
}

PassProgram PassCost::embedding(Direction direction) const {
    const bool backward = direction == Direction::backward;
    Writer out(backward ? Category::backward : Category::forward, *this);
    out.capture(false);
    const double h = static_cast<double>(model_.hidden);
    if (backward && frozen()) {
        return out.program();
    }
    if (backward) {
        if (plan_.sequence_parallel) {
            out.wait(out.collective("gather gradient", PassStream::tensor,
                                    tensor_collective(CollectiveOp::all_gather, tokens_ * h * 2)));
        }
        if (copies_sequences()) {
            out.kernel("unpack gradient", sequence_copy(2));
        }
        out.kernel("add to the table's gradient", streaming(tokens_ * h * (2 + 2 * 4), 2), 2);
    } else {
        // Gathers rows, writes activations (and the sum over the tensor-parallel group).
        out.kernel("embedding", streaming(tokens_ * h * 2 * 3, 2), 2);
        if (copies_sequences()) {
            out.kernel("pack output", sequence_copy(2));
        }
        out.wait(out.collective("sum output", PassStream::tensor, output_sum()));
    }
    return out.program();
}

double PassCost::hidden_bytes() const {
    return tokens_ * static_cast<double>(model_.hidden) * 2;
}

double PassCost::token_bytes() const {
    return tokens_ * 4;
}

Price PassCost::optimizer(double updated, double held) const {
    // Adam: reads gradient, weight, both moments (fp32), writes weight, both moments and the 16-bit copy; before it one
    // pass each to unscale or check, to take the norm of and to zero the gradients.
    constexpr double kAdam = 16 + 12 + 2 + 12;
    constexpr double kWidened = 2 + 4;  // a gradient of 16 bits
    const double gradient = bytes_of(plan_.gradient_precision);
    const double counted = software_.update_bytes.value;
    double each = counted > 0 ? counted + (gradient < 4 ? kWidened : 0) : kAdam;
    if (plan_.has<OptimizerTypes>()) {
        each = std::max(kWidened, each - plan_.feature<OptimizerTypes>().unmoved());
    }
    if (plan_.has<LowRankStates>()) {
        constexpr double kMoments = 16;  // read and written
        each = std::max(kWidened, each - kMoments * (1 - plan_.feature<LowRankStates>().share(model_)));
    }
    const double bytes = updated * each + held * software_.gradient_sweeps.value * gradient;
    Price price;
    price.launches = 8;
    price[Category::optimizer] = stream_slowdown_ * streaming(bytes, 8).seconds;
    if (!plan_.has<LowRankStates>()) {
        return price;
    }
    // The projections of the gradients of so large a share of the model: low_rank_states.hpp.
    const auto rank = static_cast<double>(plan_.feature<LowRankStates>().rank);
    const double times = updated / model_.parameters() * static_cast<double>(model_.layers);
    for (const WeightMatrix& one : layer_matrices(model_)) {
        if (rank < one.shorter()) {
            price.launches += times;
            price[Category::optimizer] +=
                times * matrix_slowdown_ * alone(product(rank, one.longer(), one.shorter(), false)).seconds;
        }
    }
    return price;
}

Price PassCost::zeroth_order(double weights) const {
    Price price;
    if (weights <= 0) {
        return price;
    }
    const double matrices = model_.gated ? 7 : 6;
    for (const bool update : {false, true}) {
        const DirectionKernels one = direction_kernels(plan_, update);
        const auto& steps = plan_.feature<ZerothOrderPlan>();
        const auto times = static_cast<double>(update ? steps.gradients(plan_.data) : steps.perturbations());
        const double kernels = times * one.kernels * matrices;
        price.launches += kernels;
        price[Category::optimizer] += stream_slowdown_ * streaming(times * one.bytes * weights, kernels).seconds;
    }
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
    return tensor_collective(CollectiveOp::all_gather, tokens_ * static_cast<double>(model_.hidden) * 2).seconds;
}

}  // namespace orrery::training
