#pragma once
// Training of low-rank adapters: the model's weights are frozen, and beside some of them two thin matrices are trained.
//
// Claims: a product y = W x of n outputs and k inputs becomes W x + B (A x) with A of rank x k and B of n x rank. Trained are A and B
// alone: gradients, their reduction, optimizer states and checkpoints are theirs. Of a frozen weight the backward pass takes the gradient of
// the input and no gradient of the weight, and keeps its input only where an adapter needs it. A and B are products of their own in 16
// bits, and their output is added by a kernel. Where tensor parallelism cuts W's outputs, B is cut and each rank has A whole, where it
// cuts W's inputs, A is cut and each rank has B whole: partial sums join those of W, and ranks sum the gradients of what all have
// once a step. Frozen weights of layers may be held in 8 bits (fp8) or 4 (NF4 with double quantisation; GPTQ in groups of 128): they are gathered as they
// are held, and widened in memory before each product in 16 bits. Tables and norms stay in 16 bits.
// Scope: models with plain attention; experts stay frozen and have no adapters. Limits: no dropout before an adapter; the gradient of the first layer's input is
// computed though nothing needs it, as with recomputation.
// Sources: Hu et al., "LoRA", arXiv:2106.09685, section 4; Dettmers et al., "QLoRA", arXiv:2305.14314, sections 2 and 3 (NF4 in
// blocks of 64 with 8-bit scales, which have a 32-bit scale per 256: 4.127 bits a weight).
// Validated by tests/workloads/training_adapters_test.cpp (closed forms) and `orrery validate energy`.

#include "workloads/training/plan/feature.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::training {

/// How frozen weights of layers are held.
enum class BaseWeights { whole, fp8, nf4, gptq };

struct AdapterPlan final : FeatureOf<AdapterPlan> {
    std::int64_t rank = 16;
    std::string modules = "query, key, value, output";  ///< products with an adapter, by commas
    BaseWeights base = BaseWeights::whole;
    bool wide_inputs = false;  ///< inputs of layers are kept in 32 bits

    void describe(Fields& fields) override;
    void check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const override;
    [[nodiscard]] bool freezes() const override { return true; }
    [[nodiscard]] std::optional<RankWeights> own_weights(const ModelSpec& model, const PlanSpec& plan,
                                                         const LayerMix& layers, double tables) const override;
    [[nodiscard]] std::optional<double> flops_per_token(const ModelSpec& model, const PlanSpec& plan) const override;
};

/// Products of a layer, in the order of the forward pass: into attention's core, out of it, into the activation function, out of it.
enum class LayerProduct { attention_in, attention_out, ffn_in, ffn_out };

/// An adapter as a rank has it: `inputs` x rank and rank x `outputs`.
struct AdapterShape {
    double inputs = 0;
    double outputs = 0;
};
[[nodiscard]] std::vector<AdapterShape> adapters_of(const ModelSpec& model, const PlanSpec& plan, LayerProduct product);

/// Trained weights of a layer on a rank, and those of them that all its tensor-parallel ranks have.
struct AdapterWeights {
    double all = 0;
    double shared = 0;
};
[[nodiscard]] AdapterWeights adapter_weights(const ModelSpec& model, const PlanSpec& plan);
/// Trained weights of the whole model, each once.
[[nodiscard]] double trained_parameters(const ModelSpec& model, const PlanSpec& plan);

/// B of a frozen weight of a layer's products.
[[nodiscard]] double base_bytes(const AdapterPlan& adapters);
/// B of the frozen weights of so many layers and tables on a rank.
[[nodiscard]] double frozen_bytes(const ModelSpec& model, const PlanSpec& plan, const LayerMix& layers, double tables);

}  // namespace orrery::training
