// A state-space layer (Mamba-2): its two products and what is between them.
//
// Claims: the kernels of mamba_ssm's MambaSplitConv1dScanCombinedFn (mamba_split_conv1d_scan_combined of state-spaces/mamba) in
// their order, one launch each, and of Megatron-Core's MambaMixer, which norms by itself after it. The scan (SSD, arXiv:2405.21060)
// is products of matrices: what a chunk adds to the states, the states that a chunk starts with, what is read of them, and inside
// a chunk as attention without a softmax. Heads of a group share operands, so that a group's heads are one product where their
// decays can be put into what they do not share. The backward pass computes the convolution, the scores and the states again.
// Products are in 16 bits, states and scores that stay in memory in 32, whatever the format of the layer's own two products.
// A fused kernel scales what it multiplies by decays of pairs of tokens, so that the vector units bind it before the matrix units
// do (scan_efficiency of the software; state_space.hpp has mamba_ssm's).
// Limits: decays and steps of heads are counted where they are streamed alone; a product reads each operand once.

#include "workloads/training/passes/pass_writer.hpp"

#include <algorithm>
#include <array>

namespace orrery::training {

/// Sizes of a rank's scan.
struct PassCost::ScanShape {
    double tokens, inner, convolved, heads, groups, head_dim, state, chunk, chunks;
    double shared;  ///< width of a group's heads
    double values;  ///< of all states at the ends of chunks
};

PassCost::ScanShape PassCost::scan_shape() const {
    const StateSpaceSpec& space = model_.state_space;
    ScanShape s{};
    s.tokens = tokens_;
    s.inner = space.inner() / t_;
    s.convolved = space.convolved() / t_;
    s.heads = static_cast<double>(space.heads) / t_;
    s.groups = static_cast<double>(space.groups) / t_;
    s.head_dim = static_cast<double>(space.head_dim);
    s.state = static_cast<double>(space.state);
    s.chunk = static_cast<double>(std::min(space.chunk, model_.sequence));
    s.chunks = tokens_ / s.chunk;
    s.shared = s.inner / s.groups;
    s.values = s.chunks * s.inner * s.state;
    return s;
}

Gemm PassCost::scan_product(double m, double n, double k, double batch, double extra_bytes) const {
    Gemm gemm = product(m, n, k, false);
    gemm.batch = batch;
    gemm.extra_bytes = extra_bytes;
    return gemm;
}

// One kernel of these products.
void PassCost::write_scan(Writer& out, const char* name, std::span<const Gemm> products) const {
    Alone kernel;
    double flops = 0;
    for (const Gemm& each : products) {
        kernel += alone(each);
        flops += each.flops();
    }
    if (scan_rate_ > 0) {
        kernel.seconds = std::max(kernel.seconds, flops / scan_rate_);
    }
    out.program().add_flops(flops);
    out.kernel(name, matrix_slowdown_ * kernel);
}

void PassCost::write_stream(Writer& out, const char* name, double bytes, double kernels) const {
    out.kernel(name, stream_slowdown_ * streaming(bytes, kernels), kernels);
}

// The operations between the layer's products, each a kernel; `whole`: else those that the backward pass does again, up to the scores of
// chunks.
void PassCost::write_scan_forward(Writer& out, bool whole) const {
    const LayerOperations operations = before_attention(layer_context({false, false, LayerPart::state_space}));
    std::vector<Gemm> products;
    std::size_t written = 0;
    for (std::size_t i = 0; i < operations.size() && (whole || written < 2); ++i) {
        const LayerOperation& one = operations[i];
        if (one.role == LayerRole::inner_norm) {
            write_stream(out, one.name, 2 * one.values(), one.launches);
        } else if (one.role == LayerRole::core) {
            const auto& gemm = std::get<Gemm>(*one.kernel);
            products.push_back(scan_product(gemm.m, gemm.n, gemm.k, gemm.batch, gemm.extra_bytes));
            const bool goes_on = i + 1 < operations.size() && operations[i + 1].launches == 0;
            if (!goes_on) {
                write_scan(out, one.name, products);
                products.clear();
                ++written;
            }
        }
    }
}

void PassCost::write_scan_backward(Writer& out) const {
    const ScanShape s = scan_shape();
    const double batch = s.chunks * s.groups;
    const double by_head = s.chunks * s.heads;
    const double each = s.tokens * s.inner;
    const double half = s.chunk / 2;  // of a chunk's tokens are before one, in the mean
    write_stream(out, "norm after the scan", each * 8, 2);
    write_scan_forward(out, false);
    write_stream(out, "passing of states", s.values * (4 + 4));
    write_stream(out, "gradient of the gate", each * 2 * 6);
    const std::array states{scan_product(s.state, s.shared, s.chunk, batch, 2 * s.values)};
    write_scan(out, "gradient of states", states);
    write_stream(out, "passing of states", s.values * (4 + 4 + 2 + 2));
    const std::array inputs{scan_product(s.chunk, s.shared, s.state, batch, 2 * each),
                            scan_product(s.chunk, s.head_dim, half, by_head)};
    write_scan(out, "gradient of inputs", inputs);
    // Of what writes states and of what reads them: by the states, and by the scores.
    const std::array shared{scan_product(s.chunk, s.state, s.shared, batch)};
    write_scan(out, "gradient of what writes states", shared);
    write_scan(out, "gradient of what reads states", shared);
    const std::array scores{scan_product(s.chunk, half, s.shared, batch, s.chunk * s.chunk * batch)};
    write_scan(out, "gradient of scores", scores);
    const std::array through{scan_product(s.chunk, s.state, s.chunk, batch, 2 * s.chunk * s.state * batch)};
    write_scan(out, "gradient of what writes states", through);
    write_scan(out, "gradient of what reads states", through);
    const std::array decays{scan_product(s.chunk, s.head_dim, half, by_head)};
    write_scan(out, "gradient of decays", decays);
    // Sums along chunks and over heads of gradients of decays and steps, a number in 32 bits for each head and token.
    constexpr double kSums = 10;
    write_stream(out, "steps and decays", s.tokens * s.heads * 4 * 2 * kSums, kSums);
    write_stream(out, "causal convolution", s.tokens * s.convolved * 6);
}

void PassCost::write_state_space(Writer& out, bool backward) const {
    if (backward) {
        write_scan_backward(out);
        return;
    }
    write_scan_forward(out, true);
}

}  // namespace orrery::training
