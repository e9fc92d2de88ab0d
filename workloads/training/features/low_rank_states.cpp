#include "workloads/training/features/low_rank_states.hpp"

#include "workloads/training/plan/memory_use.hpp"
#include "workloads/training/plan/spec.hpp"

#include <algorithm>
#include <vector>

namespace orrery::training {

std::vector<WeightMatrix> layer_matrices(const ModelSpec& model) {
    const auto hidden = static_cast<double>(model.hidden);
    const auto width = static_cast<double>(model.ffn);
    std::vector<WeightMatrix> out = {{hidden, model.q_width()},
                                     {hidden, model.kv_width()},
                                     {hidden, model.kv_width()},
                                     {model.q_width(), hidden},
                                     {hidden, width},
                                     {width, hidden}};
    if (model.gated) {
        out.push_back({hidden, width});
    }
    return out;
}

void LowRankStates::describe(Fields& fields) {
    fields.integer({"rank", "rank of the projection of each gradient whose moments are kept", false, 1, 1'000'000},
                   rank);
    fields.boolean({"layerwise", "a parameter is updated, and its gradient freed, as soon as the gradient is final"},
                   layerwise);
    fields.integer({"weight_bits", "bits of a weight as it is held; 8: in groups of 256, widened before each product",
                    false, 8, 16},
                   weight_bits);
}

void LowRankStates::check(const ModelSpec&, const PlanSpec& plan, PlanProblems& out) const {
    out.refuse(plan.states == StateTypes::software,
               "low_rank_states needs the types of states: 16-bit, 32-bit or mixed");
    out.refuse(weight_bits != 8 && weight_bits != 16, "low_rank_states.weight_bits is 8 or 16");
    out.refuse(weight_bits == 8 && plan.states != StateTypes::narrow,
               "low_rank_states.weight_bits: 8 has no copy of the weights in 32 bits: states: 16-bit");
    out.refuse(plan.tensor > 1, "low_rank_states projects whole matrices: tensor: 1");
    out.refuse(layerwise && plan.zero > 0, "low_rank_states.layerwise frees whole gradients: zero: 0");
    out.refuse(layerwise && plan.micro_batches() > 1,
               "low_rank_states.layerwise updates in every backward pass: one micro-batch a step");
}

void LowRankStates::states(const ModelSpec& model, const PlanSpec& plan, const RankWeights& held,
                           MemoryUse& use) const {
    // A copy of the weights in 32 bits, of the 12 B of mixed states, is not of moments.
    const double copy = plan.states == StateTypes::mixed ? 4.0 / 12 : 0;
    use.optimizer *= copy + (1 - copy) * share(model);
    use.weights *= weight_bytes() / 2;
    if (layerwise && held.total() > 0) {
        double largest = model.embedding_parameters();
        for (const WeightMatrix& one : layer_matrices(model)) {
            largest = std::max(largest, one.values());
        }
        use.gradients *= std::min(1.0, largest / held.total());
    }
}

double LowRankStates::share(const ModelSpec& model) const {
    double kept = 0;
    double all = 0;
    for (const WeightMatrix& one : layer_matrices(model)) {
        kept += std::min(static_cast<double>(rank), one.shorter()) * one.longer();
        all += one.values();
    }
    const double layers = static_cast<double>(model.layers);
    const double total = model.parameters();
    return (total - layers * (all - kept)) / total;
}

double LowRankStates::weight_bytes() const {
    constexpr double kGroup = 256;
    constexpr double kScaleAndZero = 4;
    return weight_bits == 8 ? 1 + kScaleAndZero / kGroup : 2;
}

extern const FeatureRow kLowRankStates;
const FeatureRow kLowRankStates = {
    "low_rank_states", "optimizer that keeps the moments of a low-rank projection of each gradient (APOLLO)",
    make_feature<LowRankStates>};

}  // namespace orrery::training
