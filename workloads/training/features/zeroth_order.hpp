#pragma once
// The `zeroth_order` section of a training plan: steps of two forward passes and no backward pass.
//
// Claims: weights are perturbed by a random direction, once forwards and once backwards; the difference of both losses is the step
// along it. The direction is drawn again from its seed wherever it is needed, so that ranks exchange one number a step. There are no
// gradients, no states of an optimizer and no kept activations. Weights are visited once a step, layer by layer: a layer is updated by
// the loss of the step before, perturbed, passed through, perturbed the other way, passed through and restored. Where ranks share the
// weights (zero: 3) each fetches and keeps its share, and updates and perturbs what it has gathered, as all others do.
// directions: own gives each replica a direction of its own, so that a step has as many gradients as replicas; each tells all others its
// loss difference in `bits`, and every rank applies the update of every direction.
// `perturbation` ranks divide the two passes of a micro-batch, so that data / perturbation replicas have batches of their own.
// Sources: Malladi et al., "Fine-Tuning Language Models with Just Forward Passes" (MeZO), NeurIPS 2023; Wang et al., "ZO2",
// arXiv:2503.12668 (layers fetched once a step), and "DistZO2", arXiv:2507.03211 (passes and shares divided over ranks);
// Zelikman et al., "Just One Byte (per gradient)", arXiv:2306.10015 (own directions, a byte a gradient);
// liangyuwang/zo2@694a136, zo2/optimizer/mezo_sgd/zo.py (kernels of an update and of a perturbation).
// Validated by tests/workloads/zeroth_order_test.cpp (closed forms).

#include "workloads/training/plan/feature.hpp"

#include <string>
#include <vector>

namespace orrery::training {

/// Whose direction a step takes: one of all replicas, or one of each.
enum class Directions { shared, own };

struct ZerothOrderPlan final : FeatureOf<ZerothOrderPlan> {
    std::int64_t perturbation = 1;  ///< ranks that the two passes are divided over
    Directions directions = Directions::shared;
    std::int64_t bits = 32;  ///< of a loss difference, as ranks tell it

    /// Forward passes of a micro-batch on a rank.
    [[nodiscard]] std::int64_t passes() const { return given ? 2 / perturbation : 1; }
    /// Times that a rank changes a weight by the random direction of this step: once before each pass, and back.
    [[nodiscard]] std::int64_t perturbations() const { return passes() + 1; }

    /// Directions that a step moves weights along.
    [[nodiscard]] std::int64_t gradients(std::int64_t data) const {
        return directions == Directions::own ? data / perturbation : 1;
    }
    /// B that a replica tells the others in a step.
    [[nodiscard]] double payload() const { return static_cast<double>(bits) / 8; }

    void describe(Fields& fields) override;
    void check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const override;
    [[nodiscard]] std::int64_t sharers() const override { return perturbation; }
    [[nodiscard]] double passes_share() const override { return 2.0 / 3; }
    [[nodiscard]] bool sums_gradients() const override { return false; }
    [[nodiscard]] bool by_layer(const PlanSpec&) const override { return true; }
    void states(const ModelSpec& model, const PlanSpec& plan, const RankWeights& held, MemoryUse& use) const override;
    void keep(const PlanSpec& plan, KeptActivations& use) const override;
};

/// B that one change of a weight by a random direction moves, and the kernels of it; `update`: with weight decay.
struct DirectionKernels {
    double bytes;
    double kernels;
};
[[nodiscard]] DirectionKernels direction_kernels(const PlanSpec& plan, bool update);

}  // namespace orrery::training
