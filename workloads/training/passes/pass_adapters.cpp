// Products of frozen weights: low-rank adapters beside them (adapters.hpp), slices of them that are trained (slices.hpp).

#include "workloads/training/features/adapters.hpp"
#include "workloads/training/features/low_rank_states.hpp"
#include "workloads/training/features/slices.hpp"
#include "workloads/training/passes/pass_writer.hpp"

namespace orrery::training {

// Frozen weights that are held in fewer bits than the product takes are written out before it.
Alone PassCost::widening(const Product& product) const {
    const bool narrow = product.held < std::min(2.0, bytes_of(product.gemm.precision));
    return narrow ? streaming(product.times * product.gemm.n * product.gemm.k * (product.held + 2)) : Alone();
}

// Each gradient has as many as the product itself.
void PassCost::add_flops(Writer& out, const Block& block, bool backward, Part part) const {
    const int gradients = backward && part == Part::whole ? 2 : 1;
    const int products = !frozen() ? gradients : part == Part::weights ? 0 : 1;
    for (const std::vector<Product>* side : {&block.in, &block.out}) {
        for (const Product& each : *side) {
            out.program().add_flops(products * each.times * each.gemm.flops());
        }
    }
    const auto rank = static_cast<double>(plan_.feature<AdapterPlan>().rank);
    for (const std::vector<AdapterShape>* side : {&block.in_adapters, &block.out_adapters}) {
        for (const AdapterShape& each : *side) {
            if (plan_.has<SlicePlan>()) {
                const bool weights = backward && part != Part::input;
                out.program().add_flops(weights ? 2 * tokens_ * each.inputs * each.outputs : 0);
                continue;
            }
            out.program().add_flops(gradients * 2 * tokens_ * rank * (each.inputs + each.outputs));
        }
    }
}

void PassCost::add_adapters(Block& block, LayerProduct in, LayerProduct out) const {
    const bool narrow = plan_.has<LowRankStates>() && plan_.feature<LowRankStates>().weight_bits < 16;
    if (!frozen() && !narrow) {
        return;
    }
    const auto shapes = plan_.has<SlicePlan>() ? slices_of : adapters_of;
    block.in_adapters = shapes(model_, plan_, in);
    block.out_adapters = shapes(model_, plan_, out);
    for (std::vector<Product>* side : {&block.in, &block.out}) {
        for (Product& each : *side) {
            each.held =
                narrow ? plan_.feature<LowRankStates>().weight_bytes() : base_bytes(plan_.feature<AdapterPlan>());
        }
    }
}

// Down to the rank and up again. A sum reads two and writes one, in 16 bits.
void PassCost::write_adapters(Writer& out, std::span<const Block> blocks, bool inner, PassWork work) const {
    const auto rank = static_cast<double>(plan_.feature<AdapterPlan>().rank);
    for (const Block& block : blocks) {
        for (const AdapterShape& each : inner ? block.in_adapters : block.out_adapters) {
            if (plan_.has<SlicePlan>()) {
                if (work == PassWork::weight_gradient) {
                    const Product slice{product(tokens_, each.outputs, each.inputs, false), false, false};
                    out.kernel("weight gradient, slice", weight_gradient(slice), 1);
                }
                continue;
            }
            const Product down{product(tokens_, rank, each.inputs, false), false, false};
            const Product up{product(tokens_, each.outputs, rank, false), false, false};
            const auto sum = [&](double width) { return stream_slowdown_ * streaming(tokens_ * width * 6); };
            if (work == PassWork::forward) {
                out.kernel("adapter", forward_product(down, 1) + forward_product(up, 1) + sum(each.outputs), 3);
            } else if (work == PassWork::input_gradient) {
                out.kernel("data gradient, adapter", data_gradient(up, 1) + data_gradient(down, 1) + sum(each.inputs),
                           3);
            } else {
                out.kernel("weight gradient, adapter", weight_gradient(up) + weight_gradient(down), 2);
            }
        }
    }
}

Price PassCost::gradient_sum(double weights) const {
    Price price;
    price.launches = 1;
    price[Category::tensor_communication] =
        tensor_collective(CollectiveOp::all_reduce, weights * bytes_of(plan_.gradient_precision)).seconds;
    return price;
}

}  // namespace orrery::training
