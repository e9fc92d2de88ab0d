// A state-space layer's scan (Mamba-2, Dao and Gu, arXiv:2405.21060) in the place of attention: what a token writes to the state of
// its heads and what they read of it, in chunks.
//
// Served, a decoding step reads and writes the states of its heads and the convolution's last tokens, and a prompt
// passes in the same chunks.
// Claims: the kernels of mamba_ssm's MambaSplitConv1dScanCombinedFn in their order, one launch each. Heads of a group share operands, so
// that a group's heads are one product where their decays can be put into what they do not share. Products are in 16 bits,
// states and scores that stay in memory in 32, also between decoding steps. Limits: decays and steps of heads are
// counted where they are streamed alone; a
// product reads each operand once.

#include "workloads/model/attention_form.hpp"

#include <algorithm>

namespace orrery::model {

namespace {

LayerOperation scan_product(const char* name, const Gemm& gemm, double launches = 1) {
    LayerOperation out{name, LayerRole::core};
    out.launches = launches;
    out.kernel = gemm;
    return out;
}

class StateSpaceScan : public AttentionForm {
  public:
    [[nodiscard]] LayerOperations before(const LayerContext& at) const override {
        const StateSpaceSpec& space = at.model.state_space;
        const double t = at.shard.tensor;
        const double inner = space.inner() / t;
        const double convolved = space.convolved() / t;
        const double heads = static_cast<double>(space.heads) / t;
        LayerOperations out;
        out.push_back(product_of("state-space input", LayerRole::input, at.rows, static_cast<double>(at.model.hidden),
                                 space.projected() / t));
        // The convolution has a bias.
        LayerOperation convolution{"causal convolution", LayerRole::inner_norm, at.rows, convolved, convolved};
        convolution.weights = convolved * static_cast<double>(space.convolution + 1);
        out.push_back(convolution);
        // Read in 16 bits, written in 32; a head has a decay, a step and a skip.
        LayerOperation steps{"steps and decays", LayerRole::inner_norm, at.rows, heads, 2 * 2 * heads};
        steps.weights = 3 * heads;
        out.push_back(steps);
        if (at.phase == LayerPhase::training) {
            const LayerOperations kernels = scan(at, at.rows, static_cast<double>(at.model.sequence));
            out.insert(out.end(), kernels.begin(), kernels.end());
        }
        LayerOperation norm{"norm after the scan", LayerRole::inner_norm, at.rows, 2 * inner, inner};
        norm.weights = inner;
        norm.kept = 2 * inner;  // what the scan made, and what it is after the gate
        norm.operands = inner;
        out.push_back(norm);
        return out;
    }

    [[nodiscard]] LayerOperations after(const LayerContext& at) const override {
        return {product_of("state-space output", LayerRole::output, at.rows,
                           at.model.state_space.inner() / at.shard.tensor, static_cast<double>(at.model.hidden))};
    }

    /// Of a prompt's scan all kernels but the last.
    [[nodiscard]] LayerOperations beside(const LayerContext& at, const CoreShape& shape) const override {
        if (shape.queries <= 1) {
            return {};
        }
        LayerOperations out = scan(at, shape.sequences * shape.queries, shape.queries);
        out.pop_back();
        for (LayerOperation& one : out) {
            if (!one.kernel) {
                one.kernel = Streaming{2 * one.values(), one.launches};
                one.role = LayerRole::core;
            }
        }
        return out;
    }

    [[nodiscard]] const char* name() const override { return "state-space scan"; }

    /// Served: in training the scan's kernels stand among the operations before the output.
    [[nodiscard]] Operation core(const LayerContext& at, const CoreShape& shape) const override {
        ORRERY_ASSERT(at.phase != LayerPhase::training);
        if (shape.queries > 1) {
            return *scan(at, shape.sequences * shape.queries, shape.queries).back().kernel;
        }
        const StateSpaceSpec& space = at.model.state_space;
        const double moved = 2 * (space.convolved() + 2 * space.inner()) / at.shard.tensor;
        return Streaming{shape.sequences * (2 * state_bytes(space) / at.shard.tensor + moved), 2};
    }

    [[nodiscard]] double cached(const ModelSpec&, LayerKind) const override { return 0; }
    [[nodiscard]] double sequence_bytes(const ModelSpec& model, LayerKind, Precision, double tensor) const override {
        return state_bytes(model.state_space) / tensor;
    }

  private:
    [[nodiscard]] static double state_bytes(const StateSpaceSpec& space) {
        constexpr double kState = 4;
        return kState * space.inner() * static_cast<double>(space.state) +
               2 * space.convolved() * static_cast<double>(space.convolution - 1);
    }

    // The scan of `rows` tokens of sequences of `length`, in chunks.
    [[nodiscard]] static LayerOperations scan(const LayerContext& at, double rows, double length) {
        const StateSpaceSpec& space = at.model.state_space;
        const double t = at.shard.tensor;
        const double inner = space.inner() / t;
        const double heads = static_cast<double>(space.heads) / t;
        const double groups = static_cast<double>(space.groups) / t;
        const auto state = static_cast<double>(space.state);
        const double chunk = std::min(static_cast<double>(space.chunk), length);
        const double chunks = rows / chunk;
        const double batch = chunks * groups;
        const double values = chunks * inner * state;  // of all states at the ends of chunks
        const double shared = inner / groups;          // width of a group's heads
        LayerOperations out;
        out.push_back(scan_product("states of chunks", Gemm{state, shared, chunk, batch, Precision::bf16, 2 * values}));
        out.push_back(scan_product("scores inside chunks",
                                   Gemm{chunk, chunk, state, batch, Precision::bf16, 2 * chunk * chunk * batch}));
        out.push_back({"passing of states", LayerRole::inner_norm, chunks, 2 * inner * state, inner * state});
        // Reads the gate as well, and writes what it was before the gate for the backward pass. Of a chunk's tokens half are before
        // one, in the mean.
        out.push_back(
            scan_product("scan inside chunks", Gemm{chunk, shared, state, batch, Precision::bf16, 2 * rows * inner}));
        out.push_back(scan_product("scan inside chunks",
                                   Gemm{chunk, static_cast<double>(space.head_dim), chunk / 2, chunks * heads}, 0));
        return out;
    }
};

const StateSpaceScan kStateSpace;

}  // namespace

extern const AttentionForm& kStateSpaceScan;
const AttentionForm& kStateSpaceScan = kStateSpace;

}  // namespace orrery::model
