// Matrix products of a layer: their formats and casts, and the collectives of tensor-parallel ranks before and after them.

#include "workloads/training/passes/pass_writer.hpp"

#include <algorithm>

namespace orrery::training {

namespace {

// Bytes per weight of a sum that is not part of its product: the gradient is read, the sum read and written. A gradient that stays in
// 16 bits is added to the one before, widened, added to the sum in 32 bits and cleared.
double sum_bytes(bool wide, bool keeps_gradients) {
    constexpr double kNarrow = 2 + 2 + 2;
    constexpr double kWide = 2 + 4 + 4;
    constexpr double kKept = kNarrow + (2 + 4) + (4 + 4 + 4) + 2;
    if (!wide) {
        return kNarrow;
    }
    return keeps_gradients ? kKept : kWide;
}

}  // namespace

Gemm PassCost::product(double m, double n, double k, bool low_precision) const {
    Gemm gemm{m, n, k, 1, low_precision ? plan_.precision : Precision::bf16, 0};
    if (plan_.precision == Precision::fp16) {
        gemm.precision = Precision::fp16;
    }
    if (gemm.precision == Precision::fp8 && plan_.fp8_scaling == Fp8Scaling::block && !scales_blocks_) {
        gemm.scaling = Scaling::block;
    }
    return gemm;
}

// Of `values` activations or gradients before a product: read in 16 bits, written in 8, and transposed for the products of the
// backward pass. A scale of this step needs the largest value first: one more reading, which a compiler that writes its casts
// itself joins to the kernel before. Scales of blocks lie along a row, so that the transposed copy is narrowed from 16 bits too.
Alone PassCost::casts_before(const Gemm& gemm, double values, bool fused) const {
    if (gemm.precision == Precision::fp4) {
        return streaming(values * (2 + 2 + 2 * plan_.operand_bytes()), 2);
    }
    if (gemm.precision != Precision::fp8 || plan_.fp8_scaling == Fp8Scaling::row) {
        return {};
    }
    if (plan_.fp8_scaling == Fp8Scaling::block) {
        return streaming(values * (2 + 2 * plan_.operand_bytes()));
    }
    if (plan_.fp8_scaling == Fp8Scaling::delayed && fused && software_.fused_casts) {
        return {};
    }
    const bool reads_again = plan_.fp8_scaling == Fp8Scaling::current && software_.fused_casts;
    return streaming(values * (reads_again ? 6 : 4));
}

// Scales a row serve one product: both its operands are read in 16 bits and written in 8 for it alone.
// `along`: values whose scales are of rows as they lie in memory; `across`: of columns.
Alone PassCost::row_casts(const Gemm& gemm, double along, double across) const {
    if (gemm.precision != Precision::fp8 || plan_.fp8_scaling != Fp8Scaling::row) {
        return {};
    }
    const double rate = software_.column_casts.value > 0 ? software_.column_casts.value : 1;
    return streaming((along + across / rate) * 3);
}

// A product of one scale a tensor stands for one with scales of rows where sums are promoted, and these are applied to its output.
Alone PassCost::rescaling(const Gemm& gemm) const {
    const bool scaled =
        software_.rescales_products && gemm.precision == Precision::fp8 && plan_.fp8_scaling == Fp8Scaling::row;
    return scaled ? streaming(gemm.m * gemm.n * 4) : Alone();
}

// In one kernel they are as many tiles as together, and read the operands that each has of its own: of a product over rows, the weights.
Alone PassCost::times_alone(const Product& product, Gemm gemm) const {
    if (!product.together || product.times <= 1) {
        return product.times * alone(gemm);
    }
    gemm.extra_bytes =
        product.times * gemm.extra_bytes + (product.times - 1) * bytes_of(gemm.precision) * gemm.k * gemm.n;
    gemm.m *= product.times;
    return alone(gemm);
}

// In parts: products of some of the rows each, which use less of the device where they are short. Of several alike, one after
// another, the casts are one kernel.
Alone PassCost::forward_product(const Product& product, int parts) const {
    const Gemm& gemm = product.gemm;
    const Alone casts =
        (product.written_narrow ? Alone() : casts_before(gemm, product.times * gemm.m * gemm.k, product.fused_input)) +
        product.times * row_casts(gemm, gemm.m * gemm.k + (product.held >= 2 ? gemm.n * gemm.k : 0), 0) +
        widening(product);
    return matrix_slowdown_ * parts * times_alone(product, part_of(gemm, parts)) + stream_slowdown_ * casts;
}

// The gradient of the product's input.
Alone PassCost::data_gradient(const Product& product, int parts) const {
    const Gemm& gemm = product.gemm;
    const Alone casts =
        (product.gradient_narrow ? Alone()
                                 : casts_before(gemm, product.times * gemm.m * gemm.n, product.fused_gradient)) +
        product.times * row_casts(gemm, gemm.m * gemm.n, product.held >= 2 ? gemm.n * gemm.k : 0) + widening(product);
    const Gemm part = part_of(gemm, parts);
    Gemm turned{part.m, part.k, part.n, 1, part.precision, 0};
    turned.scaling = gemm.scaling;
    turned.split_accumulator = gemm.scaling != Scaling::block;  // whose products always promote their sums
    return matrix_slowdown_ * parts * times_alone(product, turned) +
           stream_slowdown_ * (casts + product.times * parts * rescaling(turned));
}

// Gradients add up over the micro-batches in the format in which ranks exchange them, that of their buffer (Megatron-LM's
// main_grad): in the epilogue, or in a kernel of its own.
Alone PassCost::weight_gradient(const Product& product) const {
    const Gemm& gemm = product.gemm;
    Gemm weight{gemm.n, gemm.k, gemm.m, 1, gemm.precision, 0};
    weight.scaling = gemm.scaling;
    weight.split_accumulator = gemm.scaling != Scaling::block;
    // ZeRO-2 and 3 reduce them after each micro-batch and add up what they keep of them.
    const bool reduced = plan_.zero >= 2 && plan_.pipeline == 1;
    const bool wide = plan_.gradient_precision == Precision::fp32;
    const bool accumulates = !reduced && (plan_.micro_batches() > 1 || wide);
    Alone streamed = row_casts(gemm, 0, gemm.m * (gemm.n + gemm.k)) + rescaling(weight);
    if (accumulates && software_.fused_gradient_accumulation) {
        weight.extra_bytes = gemm.n * gemm.k * (wide ? kSumBytes : kNarrowSumBytes) * kSumsBesideProduct;
    } else if (accumulates) {
        streamed += streaming(gemm.n * gemm.k * sum_bytes(wide, software_.keeps_gradients));
    }
    return matrix_slowdown_ * times_alone(product, weight) + product.times * stream_slowdown_ * streamed;
}

// Operands that are cast before they travel, as Transformer Engine does, and torchao's Float8ColwiseParallel and
// Float8RowwiseParallel for products with one scale a tensor; sums stay in 16 bits.
double PassCost::gathered_bytes() const {
    return !plan_.gather_precision && software_.fused_casts
               ? plan_.operand_bytes()
               : bytes_of(plan_.gather_precision.value_or(Precision::bf16));
}

Alone PassCost::input_gather() const {
    const double bytes = tokens_ * static_cast<double>(model_.hidden) * gathered_bytes();
    return plan_.sequence_parallel ? tensor_collective(CollectiveOp::all_gather, bytes) : Alone();
}

// Read and written once. Collectives put the parts of ranks one after another; of [batch, sequence, hidden] that is another order.
Alone PassCost::sequence_copy(double bytes_a_value) const {
    return stream_slowdown_ * streaming(2 * tokens_ * static_cast<double>(model_.hidden) * bytes_a_value);
}

Alone PassCost::output_sum() const {
    return tensor_collective(plan_.sequence_parallel ? CollectiveOp::reduce_scatter : CollectiveOp::all_reduce,
                             tokens_ * static_cast<double>(model_.hidden) * 2);
}

int PassCost::pieces() const {
    return plan_.overlap_tensor == TensorOverlap::full ? static_cast<int>(plan_.tensor) : 1;
}

// Where a gather stays whole the product behind it is not cut either.
int PassCost::gather_pieces() const {
    const bool rows = plan_.precision == Precision::fp8 && plan_.fp8_scaling == Fp8Scaling::row;
    return software_.whole_row_gathers && rows ? 1 : pieces();
}

bool PassCost::triggers() const {
    return plan_.overlap_tensor == TensorOverlap::tiles && plan_.tensor > 1;
}

// The product stays one kernel: each rank's share of its output, once complete, starts that share's step of the ring. Copy engines
// do the steps, so that no compute units are taken. Summing reads what arrived and what is held, and writes; memory that adds
// arrivals itself writes those and reads what is sent on. What a rank needs whole is gathered afterwards, behind nothing.
void PassCost::write_triggered(Writer& out, const char* sum, const char* product, const Alone& alone) const {
    const double bytes = tokens_ * static_cast<double>(model_.hidden) * 2;
    Alone scatter = tensor_collective(CollectiveOp::reduce_scatter, bytes);
    if (plan_.near_memory_sums) {
        constexpr double kPasses = 2;
        scatter.bytes =
            kPasses *
            wire_bytes(CollectiveOp::reduce_scatter, static_cast<std::uint32_t>(plan_.tensor), Bytes(bytes)).value();
    }
    out.scattered(sum, scatter, product, alone, static_cast<int>(plan_.tensor));
    if (!plan_.sequence_parallel) {
        out.wait(out.collective("gather sum", PassStream::tensor, tensor_collective(CollectiveOp::all_gather, bytes)));
    }
}

// A product over some of its rows; short ones use less of the device.
Gemm PassCost::part_of(const Gemm& gemm, int parts) {
    Gemm out = gemm;
    out.m = std::max(1.0, gemm.m / parts);
    return out;
}

void PassCost::write_input_products(Writer& out, std::span<const Block> blocks) const {
    const bool gathers = plan_.tensor > 1 && plan_.sequence_parallel;
    const int parts = gathers ? gather_pieces() : 1;
    Alone products;
    for (const Block& block : blocks) {
        for (const Product& each : block.in) {
            products += forward_product(each, parts);
        }
    }
    if (gathers && copies_sequences() && parts == 1) {
        out.kernel("unpack input", sequence_copy(gathered_bytes()), 1,
                   out.collective("gather input", PassStream::tensor, input_gather()));
        out.kernel("product, in", products);
    } else if (gathers) {
        out.gathered("gather input", input_gather(), "product, in", products, parts);
    } else {
        out.kernel("product, in", products);
    }
    write_adapters(out, blocks, true, PassWork::forward);
}

void PassCost::write_output_products(Writer& out, std::span<const Block> blocks) const {
    const int parts = plan_.tensor > 1 ? pieces() : 1;
    Alone products;
    for (const Block& block : blocks) {
        for (const Product& each : block.out) {
            products += forward_product(each, parts);
        }
    }
    write_adapters(out, blocks, false, PassWork::forward);  // before the sum over ranks, of which it is a part
    if (triggers()) {
        write_triggered(out, "sum output", "product, out", products);
    } else if (copies_sequences() && parts == 1) {
        out.kernel("product, out", products);
        out.kernel("pack output", sequence_copy(2));
        out.wait(out.collective("sum output", PassStream::tensor, output_sum()));
    } else if (plan_.tensor > 1) {
        out.scattered("sum output", output_sum(), "product, out", products, parts);
    } else {
        out.kernel("product, out", products);
    }
}

// The gradient is gathered before the last product's gradients.
void PassCost::write_output_gradients(Writer& out, std::span<const Block> blocks, Part part) const {
    const bool gathers = plan_.tensor > 1 && plan_.sequence_parallel;
    const int parts = gathers ? gather_pieces() : 1;
    Alone data;
    Alone weight;
    for (const Block& block : blocks) {
        for (const Product& each : block.out) {
            data += data_gradient(each, parts);
            weight += weight_gradient(each);
        }
    }
    if (part != Part::weights && gathers && copies_sequences() && parts == 1) {
        out.kernel("unpack gradient", sequence_copy(gathered_bytes()), 1,
                   out.collective("gather gradient", PassStream::tensor, input_gather()));
        out.kernel("data gradient, out", data);
    } else if (part != Part::weights && gathers) {
        out.gathered("gather gradient", input_gather(), "data gradient, out", data, parts);
    } else if (part != Part::weights) {
        out.kernel("data gradient, out", data);
    }
    if (part != Part::weights) {
        write_adapters(out, blocks, false, PassWork::input_gradient);
    }
    if (part != Part::input && !frozen()) {
        out.kernel("weight gradient, out", weight);
    }
    if (part != Part::input) {
        write_adapters(out, blocks, false, PassWork::weight_gradient);
    }
}

// The input is gathered again behind the data gradient, which is summed behind the weight gradient.
void PassCost::write_input_gradients(Writer& out, std::span<const Block> blocks, Part part) const {
    Alone data;
    Alone weight;
    for (const Block& block : blocks) {
        for (const Product& each : block.in) {
            data += data_gradient(each, 1);
            weight += weight_gradient(each);
        }
    }
    const bool cut = plan_.overlap_tensor == TensorOverlap::full && software_.cuts_only;
    const bool hides = part == Part::whole && plan_.overlap_tensor != TensorOverlap::none && !triggers() && !cut;
    const bool grouped = plan_.tensor > 1;
    PassProgram::Id gathered = PassProgram::kNone;
    const bool needs_input = !frozen() || std::any_of(blocks.begin(), blocks.end(),
                                                      [](const Block& block) { return !block.in_adapters.empty(); });
    if (part != Part::input && grouped && plan_.sequence_parallel && needs_input) {
        gathered = out.collective("gather input", PassStream::tensor, input_gather());
    }
    PassProgram::Id summed = PassProgram::kNone;
    if (part != Part::weights) {
        if (!hides) {
            out.wait(gathered);
        }
        if (triggers()) {
            write_adapters(out, blocks, true, PassWork::input_gradient);
            write_triggered(out, "sum gradient", "data gradient, in", data);
        } else {
            out.kernel("data gradient, in", data);
            write_adapters(out, blocks, true, PassWork::input_gradient);
            if (copies_sequences()) {
                out.kernel("pack gradient", sequence_copy(2));
            }
            summed = grouped ? out.collective("sum gradient", PassStream::tensor, output_sum()) : PassProgram::kNone;
        }
        if (!hides) {
            out.wait(summed);
        }
    }
    if (gathered != PassProgram::kNone && copies_sequences()) {
        out.kernel("unpack input", sequence_copy(gathered_bytes()), 1, gathered);
    }
    if (part != Part::input && !frozen()) {
        out.kernel("weight gradient, in", weight, 1, gathered);
    }
    if (part != Part::input && frozen() && needs_input) {
        out.wait(gathered);
        write_adapters(out, blocks, true, PassWork::weight_gradient);
    }
    if (hides) {
        out.wait(summed);
    }
}

}  // namespace orrery::training
