#pragma once
// The `offload` section of a training plan: which states and activations are kept in memories of the node, and when they move.
//
// Claims: what is away leaves room for the layers under way: those fetched ahead with the one that computes, and the gradients of
// two. memory/tiers.hpp says what nodes then hold.
// Sources: Ren et al., "ZeRO-Offload", ATC 2021 (optimizer on the host, delayed update); Rajbhandari et al., "ZeRO-Infinity", SC21
// (parameters and states on drives, prefetching); Liao et al., "Fuyou", arXiv:2403.06504 (updates behind the backward pass,
// activations on drives).

#include "workloads/training/plan/feature.hpp"

#include <string>
#include <vector>

namespace orrery::training {

/// What is kept where: `fraction` of it in `tier`, what is left in `rest`, or on the device where there is no `rest`.
struct OffloadPlace {
    bool given = false;
    std::string tier;
    double fraction = 1;
    std::string rest;

    /// Share that is not on the device.
    [[nodiscard]] double away() const { return !given ? 0 : rest.empty() ? fraction : 1; }
    /// Calls `use(tier, share)` for each tier that holds some of it.
    template <class Use>
    void each(const Use& use) const {
        if (given && fraction > 0) {
            use(tier, fraction);
        }
        if (given && !rest.empty() && fraction < 1) {
            use(rest, 1 - fraction);
        }
    }
};

/// When the host updates weights. synchronous: once the norm of all gradients is known; pipelined: a layer's as soon as its gradients
/// have come, behind the backward pass of the layers before it; delayed: with the gradients of the step before, behind all passes.
enum class OptimizerStep { synchronous, pipelined, delayed };

struct OffloadPlan final : FeatureOf<OffloadPlan> {
    OffloadPlace optimizer, gradients, parameters, activations;
    OptimizerStep step = OptimizerStep::synchronous;
    std::int64_t prefetch = 2;  ///< layers that are fetched ahead of the one that computes

    void describe(Fields& fields) override;
    void check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const override;
    [[nodiscard]] bool by_layer(const PlanSpec& plan) const override;
    void states(const ModelSpec& model, const PlanSpec& plan, const RankWeights& held, MemoryUse& use) const override;
    void keep(const PlanSpec& plan, KeptActivations& use) const override;
};

/// A place of the section and its key.
struct OffloadPart {
    const char* what;
    const OffloadPlace* place;
};
[[nodiscard]] std::vector<OffloadPart> places_of(const OffloadPlan& offload);

}  // namespace orrery::training
