// The feed-forward of a layer with experts, as the rank with the most wanted experts runs it.
//
// In the order of Megatron-Core's token dispatchers (core/transformer/moe/token_dispatcher.py): route, permute, exchange, sort by
// expert, products, sort back, exchange, weigh and add up. Where a token is sent once for several of its choices (all-gather,
// hierarchical), nothing is permuted before, and what its experts on a rank make is weighed and added up there, as it is sorted back.

#include "workloads/training/features/dispatcher.hpp"
#include "workloads/training/features/kernels.hpp"
#include "workloads/training/passes/pass_writer.hpp"

#include <algorithm>

namespace orrery::training {

namespace {

// The router's softmax, choice, counts per expert and the map of the permutation: small kernels.
constexpr double kRouterKernels = 8;
constexpr double kPermuteKernels = 2;

}  // namespace

// Transformer Engine multiplies operands of 16 bits into 32 forward, and those of 32 bits as TF32 backward.
// Sources: Megatron-Core, transformer/moe/moe_utils.py, RouterGatingLinearFunction (te_general_gemm; operands are widened backward);
// Transformer Engine, common/gemm/cublaslt_gemm.cu (CUBLAS_COMPUTE_32F_FAST_TF32 for operands and results of 32 bits).
PassCost::Product PassCost::router(bool backward) const {
    const auto count = static_cast<double>(model_.experts.count);
    Gemm gemm{tokens_ / t_, count, static_cast<double>(model_.hidden), 1, model_.experts.gate, 0};
    if (router_by_transformer_engine()) {
        gemm.precision = backward ? Precision::tf32 : Precision::bf16;
        gemm.extra_bytes = backward ? 0 : gemm.m * gemm.n * 2;
    }
    return {gemm, false, false};
}

// Of 32 bits, in software whose norms cast to fp8: Transformer Engine's.
bool PassCost::router_by_transformer_engine() const {
    return model_.experts.gate == Precision::fp32 && software_.fused_casts;
}

// Its input is widened for the gradient of its weights, the gradient of its input narrowed.
Alone PassCost::router_casts() const {
    constexpr double kCast = 2 + 4;
    return router_by_transformer_engine()
               ? stream_slowdown_ * streaming(kCast * tokens_ / t_ * static_cast<double>(model_.hidden))
               : Alone();
}

// A product over so much of its rows.
PassCost::Product PassCost::part_of_rows(Product product, double share) {
    product.gemm.m *= share;
    return product;
}

PassCost::Block PassCost::expert_products() const {
    const ExpertsSpec& experts = model_.experts;
    const double h = static_cast<double>(model_.hidden);
    const double rows = expert_rows(experts, plan_, tokens_ / t_, load_);
    const auto held = static_cast<double>(experts.count / plan_.experts.expert + plan_.experts.shadowed);
    const double used = std::min(held, std::max(1.0, rows));
    const double width = static_cast<double>(experts.ffn) / static_cast<double>(plan_.expert_tensor());
    const bool fused = software_.fused_activation_casts;
    Block out = {{{product(rows / used, width * (model_.gated ? 2 : 1), h), false, fused, used}},
                 {{product(rows / used, h, width), fused, false, used}},
                 {},
                 {}};
    if (plan_.feature<KernelPlan>().fused_experts()) {
        out.in[0].together = out.out[0].together = true;
        out.out[0].written_narrow = true;
        out.in[0].gradient_narrow = true;
    }
    add_adapters(out, LayerProduct::ffn_in, LayerProduct::ffn_out);
    return out;
}

double PassCost::expert_activation_bytes(bool backward) const {
    const Block products = expert_products();
    const Product& in = products.in[0];
    return in.times * in.gemm.m * activation_values(products.out[0].gemm.k, backward) * 2;
}

// The function between the products of experts, of so much of their rows, and the clamps before it.
void PassCost::write_expert_activation(Writer& out, double share, bool backward) const {
    const KernelPlan& kernels = plan_.feature<KernelPlan>();
    if (kernels.fused_experts()) {
        return;
    }
    if (const double moved = kernels.clamp_bytes(backward); moved > 0) {
        const Product last = expert_products().out[0];
        constexpr double kClamps = 3;
        out.kernel("clamp of experts",
                   stream_slowdown_ * streaming(share * moved * last.times * last.gemm.m * last.gemm.k, kClamps),
                   kClamps);
    }
    out.kernel("activation function of experts",
               stream_slowdown_ * streaming(share * expert_activation_bytes(backward)));
}

// Each expert's bias after its last product, in kernels of its own.
void PassCost::write_expert_biases(Writer& out, double share, bool backward) const {
    if (const double moved = plan_.feature<KernelPlan>().bias_bytes(backward); moved > 0) {
        const Product last = expert_products().out[0];
        const double kernels = (backward ? 6 : 2) * last.times + 2;
        out.kernel("biases of experts",
                   stream_slowdown_ * streaming(share * moved * last.times * last.gemm.m * last.gemm.n, kernels),
                   kernels);
    }
}

// Ranks that hold all experts exchange nothing.
double PassCost::start_of_exchange() const {
    return plan_.experts.expert > 1 ? plan_.feature<DispatcherPlan>().start() : 0;
}

Alone PassCost::dispatch(Precision precision) const {
    const double tokens = tokens_ / t_ / static_cast<double>(plan_.experts.pieces);
    return exchange_of(exchange_->dispatch(tokens, precision), tokens, precision);
}

Alone PassCost::combine(Precision precision) const {
    const double tokens = tokens_ / t_ / static_cast<double>(plan_.experts.pieces);
    return exchange_of(exchange_->combine(tokens, precision), tokens, precision);
}

// Of so many tokens, whose bytes take `seconds`.
Alone PassCost::exchange_of(double seconds, double tokens, Precision precision) const {
    return {start_of_exchange() + plan_.feature<DispatcherPlan>().seconds(seconds, exchange_->tokens_sent(tokens)),
            exchange_->memory_bytes(tokens, precision)};
}

double PassCost::shadow_bytes() const {
    return static_cast<double>(plan_.experts.shadowed) * model_.routed_parameters() /
           static_cast<double>(model_.experts.count * plan_.expert_tensor()) * 2;
}

Alone PassCost::shadow_exchange(bool gradients) const {
    const double bytes = shadow_bytes();
    const auto ranks = static_cast<std::uint32_t>(plan_.experts.expert);
    const CollectiveOp op = gradients ? CollectiveOp::reduce_scatter : CollectiveOp::all_gather;
    return {gradients ? exchange_->scatter(bytes) : exchange_->gather(bytes),
            memory_bytes(op, ranks, Bytes(bytes)).value()};
}

// Passes that have a pass of another micro-batch beside them, of all of a stage: while the pipeline fills and drains they have none.
// Megatron-Core (core/pipeline_parallel/schedules.py, get_pp_rank_microbatches) fills stage r of p, with v chunks each, by
// 2 (p - r - 1) + (v - 1) p forward passes, by p - r - 1 without chunks, and by one more where exchanges overlap; here their mean over
// stages. Both ends of a pipeline that starts from both fill half of it.
double PassCost::share_of_pairs(const PlanSpec& plan) {
    const auto stages = static_cast<double>(plan.pipeline);
    const auto chunks = static_cast<double>(plan.chunks);
    double filling = stages - 1 + (chunks - 1) * stages;
    double passes = static_cast<double>(plan.micro_batches()) * chunks;
    if (plan.copies() > 1) {
        filling = stages / 2;
        passes = static_cast<double>(plan.micro_batches());
    } else if (plan.chunks == 1) {
        filling = (stages - 1) / 2;
    }
    return std::max(0.0, 1 - (filling + 1) / passes);
}

Alone PassCost::exchange_of_tokens() const {
    return dispatch(plan_.experts.dispatch_precision) + combine(plan_.experts.combine_precision);
}

PassProgram PassCost::expert_feed_forward(Direction direction, Part part, bool paired) const {
    const bool backward = direction == Direction::backward;
    Writer out(backward ? Category::backward : Category::forward, *this);
    if (backward) {
        write_expert_backward(out, part, paired);
    } else {
        write_expert_forward(out, paired);
    }
    add_flops(out, Block{{router(backward)}, {}, {}, {}}, backward, part);
    add_flops(out, expert_products(), backward, part);
    if (model_.experts.shared > 0) {
        add_flops(out, feed_forward(static_cast<double>(model_.experts.shared) / t_), backward, part);
    }
    return out.program();
}

bool PassCost::sends_choices() const {
    return plan_.experts.dispatch == TokenDispatch::all_to_all;
}

void PassCost::write_sort(Writer& out, double bytes) const {
    if (plan_.experts.expert < model_.experts.count || !sends_choices()) {
        const double rows =
            expert_rows(model_.experts, plan_, tokens_ / t_, load_) / static_cast<double>(plan_.experts.pieces);
        out.kernel("sort by expert", stream_slowdown_ * streaming(rows * static_cast<double>(model_.hidden) * bytes));
    }
}

// The sizes of what comes next are known on the device, and the host launches it by them: it waits for all that runs, and the device
// for what it launches then. Padded experts have known sizes; graphs of layers leave the host less to launch, those of an iteration nothing.
void PassCost::write_expert_wait(Writer& out) const {
    const bool beside_graphs = software_.graphs == CudaGraphs::layers;
    const double seconds = plan_.feature<DispatcherPlan>().wait(software_.expert_wait.value, beside_graphs);
    if (!plan_.experts.pad && software_.graphs != CudaGraphs::iteration && seconds > 0) {
        out.program().add({"wait for the tokens of experts",
                           Category::overhead,
                           PassStream::compute,
                           seconds,
                           0,
                           {PassProgram::kNone, PassProgram::kNone}});
    }
}

void PassCost::write_shared(Writer& out, Direction direction, Part part) const {
    if (model_.experts.shared == 0) {
        return;
    }
    const double width = static_cast<double>(model_.experts.shared) / t_;
    const Block block = feed_forward(width);
    const std::span<const Block> both(&block, 1);
    const bool backward = direction == Direction::backward;
    const auto activate = [&] {
        out.kernel("activation function",
                   stream_slowdown_ * streaming(tokens_ * activation_values(width, backward) * 2));
    };
    if (!backward) {
        write_input_products(out, both);
        activate();
        write_output_products(out, both);
        return;
    }
    write_output_gradients(out, both, part);
    if (part != Part::weights) {
        activate();
    }
    write_input_gradients(out, both, part);
}

void PassCost::write_expert_forward(Writer& out, bool paired) const {
    const double h = static_cast<double>(model_.hidden);
    const double own = tokens_ / t_;
    const double sent = own * static_cast<double>(model_.experts.topk) * load_.kept;
    const auto count = static_cast<double>(model_.experts.count);
    const Block products = expert_products();
    const double share = 1.0 / static_cast<double>(plan_.experts.pieces);
    const Product in = part_of_rows(products.in[0], share);
    const Product last = part_of_rows(products.out[0], share);
    const bool elsewhere = paired && plan_.experts.overlap == ExpertOverlap::batches;  // beside another micro-batch
    const bool beside = plan_.experts.overlap == ExpertOverlap::shared;
    if (!beside) {
        write_shared(out, Direction::forward, Part::whole);
    }
    out.kernel("router", forward_product(router(false), 1));
    out.kernel("choice of experts", stream_slowdown_ * streaming(own * count * 12, kRouterKernels), kRouterKernels);
    write_expert_wait(out);
    out.capture(false);
    if (sends_choices()) {
        out.kernel("permute", stream_slowdown_ * streaming((own + sent) * h * 2, kPermuteKernels), kPermuteKernels);
    }
    const PassProgram::Id permuted = out.program().last(PassStream::compute);
    PassProgram::Id moved = PassProgram::kNone;
    PassProgram::Id combined = PassProgram::kNone;
    const bool shows = !elsewhere || plan_.feature<DispatcherPlan>().blocks();
    const auto send = [&] {
        moved = !shows ? PassProgram::kNone
                       : out.collective("dispatch", PassStream::expert, dispatch(plan_.experts.dispatch_precision),
                                        permuted);
    };
    send();
    if (beside) {
        write_shared(out, Direction::forward, Part::whole);
    }
    for (std::int64_t i = 0; i < plan_.experts.pieces; ++i) {
        const PassProgram::Id arrived = moved;
        if (i + 1 < plan_.experts.pieces) {
            send();
        }
        out.wait(arrived);
        write_sort(out);
        out.kernel("products of experts, in", forward_product(in, 1), launches_of(in));
        write_expert_activation(out, share, false);
        out.kernel("products of experts, out", forward_product(last, 1), launches_of(last));
        write_expert_biases(out, share, false);
        write_sort(out);
        if (!elsewhere) {
            combined = out.collective("combine", PassStream::expert, combine(plan_.experts.combine_precision));
        }
    }
    out.wait(combined);
    if (sends_choices()) {
        out.kernel("add up", stream_slowdown_ * streaming((own + sent) * h * 2));
    }
}

void PassCost::write_expert_backward(Writer& out, Part part, bool paired) const {
    const double h = static_cast<double>(model_.hidden);
    const double own = tokens_ / t_;
    const double sent = own * static_cast<double>(model_.experts.topk) * load_.kept;
    const auto count = static_cast<double>(model_.experts.count);
    const Block products = expert_products();
    const double share = 1.0 / static_cast<double>(plan_.experts.pieces);
    const Product in = part_of_rows(products.in[0], share);
    const Product last = part_of_rows(products.out[0], share);
    const bool input = part != Part::weights;
    const bool weights = part != Part::input && !frozen();
    const bool elsewhere = paired && plan_.experts.overlap == ExpertOverlap::batches;
    const bool beside = plan_.experts.overlap == ExpertOverlap::shared;
    out.capture(false);
    PassProgram::Id moved = PassProgram::kNone;
    PassProgram::Id combined = PassProgram::kNone;
    PassProgram::Id summed = PassProgram::kNone;
    const auto send = [&] {
        moved = elsewhere ? PassProgram::kNone
                          : out.collective("dispatch gradients", PassStream::expert, dispatch(Precision::bf16), summed);
    };
    if (input) {
        // The gradient of each result, and of the weight that it was added with.
        if (sends_choices()) {
            out.kernel("gradient of sums", stream_slowdown_ * streaming((own + 2 * sent) * h * 2, 2), 2);
        }
        summed = out.program().last(PassStream::compute);
        send();
        if (beside) {
            write_shared(out, Direction::backward, part);
        }
    }
    for (std::int64_t i = 0; i < plan_.experts.pieces; ++i) {
        if (input) {
            const PassProgram::Id arrived = moved;
            if (i + 1 < plan_.experts.pieces) {
                send();
            }
            out.wait(arrived);
            write_sort(out, sends_choices() ? 4 : 6);  // with the results, for the gradients of their weights
            write_expert_biases(out, share, true);
            out.kernel("data gradients of experts, out", data_gradient(last, 1), launches_of(last));
        }
        if (weights) {
            out.kernel("weight gradients of experts, out", weight_gradient(last), launches_of(last));
        }
        if (input) {
            write_expert_activation(out, share, true);
            out.kernel("data gradients of experts, in", data_gradient(in, 1), launches_of(in));
        }
        if (weights) {
            out.kernel("weight gradients of experts, in", weight_gradient(in), launches_of(in));
        }
        if (input) {
            write_sort(out);
        }
        if (input && !elsewhere) {
            combined = out.collective("combine gradients", PassStream::expert, combine(Precision::bf16));
        }
    }
    out.wait(combined);
    if (weights && plan_.experts.shadowed > 0) {
        out.collective("gradients of shadowed experts", PassStream::expert, shadow_exchange(true));
    }
    if (input) {
        if (sends_choices()) {
            out.kernel("permute", stream_slowdown_ * streaming((own + sent) * h * 2));
        }
        out.capture(true);
        out.kernel("choice of experts", stream_slowdown_ * streaming(own * count * 12, kRouterKernels), kRouterKernels);
        out.kernel("data gradient of router", data_gradient(router(true), 1) + router_casts());
    }
    out.capture(true);
    if (weights) {
        out.kernel("weight gradient of router", weight_gradient(router(true)) + router_casts());
    }
    if (!beside || part == Part::weights) {
        write_shared(out, Direction::backward, part);
    }
}

}  // namespace orrery::training
