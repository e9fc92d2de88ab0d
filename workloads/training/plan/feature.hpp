#pragma once
// The interface of optional features of a plan (features/): what each adds to the plan's keys, weights, memory and passes. One feature
// per file, one row each.
//
// Claims: whoever asks the features of a plan asks all that it has, in the order of the table, so that sums do not depend on who asks. A
// feature that a plan does not have changes nothing. Which features, models and schedules do not go together is one list
// (features/combinations.cpp). A feature that needs tasks of its own adds them where iterations are lowered.
// Validated by tests/workloads/plan_features_test.cpp.

#include "sim/config/fields.hpp"
#include "workloads/model/model_spec.hpp"
#include "workloads/training/plan/rank_weights.hpp"
#include "workloads/training/schedules/schedule.hpp"

#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

namespace orrery::training {

class PassProgram;
struct MemoryUse;
struct PlanSpec;

/// What is wrong with a plan: what can never be right, and where degrees do not divide.
struct PlanProblems {
    std::vector<std::string> refused;
    std::vector<std::string> unfit;

    void refuse(bool wrong, const std::string& text) {
        if (wrong) {
            refused.push_back(text);
        }
    }
    void require(bool fits, const std::string& text) {
        if (!fits) {
            unfit.push_back(text);
        }
    }
};

/// Ranks that share each kind of state, as ZeRO or `sharding` says; 1: each has it whole.
struct ShardDegrees {
    std::int64_t weights = 1;
    std::int64_t gradients = 1;
    std::int64_t optimizer = 1;
    std::int64_t secondary = 0;  ///< of the second copy of the weights; 0: there is none
};

/// What the layers of a stage keep for their backward passes, B on a rank.
struct KeptActivations {
    double layers = 0;   ///< of the stage
    double layer = 0;    ///< that a whole layer keeps of a micro-batch
    double input = 0;    ///< that a layer is given of a micro-batch
    double inputs = 0;   ///< micro-batches under way in each layer, over all layers
    double kept = 0;     ///< by all layers of all micro-batches under way
    double working = 0;  ///< beside it, by the layer that computes
};

/// A pass of a micro-batch through a layer.
struct LayerPass {
    const PlanSpec& plan;
    PassWork work;
    double layers;       ///< of a part of the model, in the mean
    double input;        ///< B that the layer is given, on a rank
    double host_link;    ///< B/s between a device and the memory of its host, each way; 0: not known
    double memory_rate;  ///< B/s of the device's main memory
};

class PlanFeature {
  public:
    bool given = false;  ///< the plan has it

    virtual ~PlanFeature() = default;
    [[nodiscard]] virtual std::unique_ptr<PlanFeature> copy() const = 0;
    /// The keys of its section.
    virtual void describe(Fields& fields) = 0;

    // All below is asked of features that a plan has.
    /// Gives a plan that was read what follows from the feature; returns what stops it, by sentence.
    [[nodiscard]] virtual std::vector<std::string> resolve(PlanSpec&) const { return {}; }
    virtual void check(const ModelSpec&, const PlanSpec&, PlanProblems&) const {}

    /// Groups of replicas that agree on their weights in every step among themselves alone.
    [[nodiscard]] virtual std::int64_t islands() const { return 1; }
    /// Ranks that divide the passes of each micro-batch.
    [[nodiscard]] virtual std::int64_t sharers() const { return 1; }
    /// Passes of a micro-batch over those of a forward and a backward pass.
    [[nodiscard]] virtual double passes_share() const { return 1; }
    /// Something of it goes on beside the kernels of a pass or of a step.
    [[nodiscard]] virtual bool overlaps() const { return false; }
    /// Steps sum gradients.
    [[nodiscard]] virtual bool sums_gradients() const { return true; }
    /// Passes move weights and gradients layer by layer.
    [[nodiscard]] virtual bool by_layer(const PlanSpec&) const { return false; }
    /// All weights but its own are frozen.
    [[nodiscard]] virtual bool freezes() const { return false; }
    virtual void share(const PlanSpec&, ShardDegrees&) const {}

    /// Weights of layers and tables on a rank, in place of the model's.
    [[nodiscard]] virtual std::optional<RankWeights> own_weights(const ModelSpec&, const PlanSpec&, const LayerMix&,
                                                                 double /*tables*/) const {
        return std::nullopt;
    }
    /// Model FLOPs of a token, in place of the model's.
    [[nodiscard]] virtual std::optional<double> flops_per_token(const ModelSpec&, const PlanSpec&) const {
        return std::nullopt;
    }
    /// Changes what a rank holds of states; `held`: the weights of its stage before they are shared.
    virtual void states(const ModelSpec&, const PlanSpec&, const RankWeights& /*held*/, MemoryUse&) const {}
    virtual void keep(const PlanSpec&, KeptActivations&) const {}
    /// Adds operations to a pass.
    virtual void pass(const LayerPass&, PassProgram&) const {}
};

/// What makes a class a feature.
template <class T>
class FeatureOf : public PlanFeature {
  public:
    [[nodiscard]] std::unique_ptr<PlanFeature> copy() const final {
        return std::make_unique<T>(static_cast<const T&>(*this));
    }
};

struct FeatureRow {
    const char* key;
    const char* description;
    std::unique_ptr<PlanFeature> (*make)();
};
template <class T>
std::unique_ptr<PlanFeature> make_feature() {
    return std::make_unique<T>();
}
/// features/table.cpp.
[[nodiscard]] const std::vector<const FeatureRow*>& feature_table();

/// All features of a plan, given or not.
class FeatureSet {
  public:
    FeatureSet();
    FeatureSet(const FeatureSet& other);
    FeatureSet(FeatureSet&&) noexcept = default;
    FeatureSet& operator=(const FeatureSet& other) { return *this = FeatureSet(other); }
    FeatureSet& operator=(FeatureSet&&) noexcept = default;
    ~FeatureSet() = default;

    /// Precondition: the table has a row of this type.
    template <class T>
    [[nodiscard]] const T& get() const {
        return static_cast<const T&>(*all_[place<T>()]);
    }
    template <class T>
    [[nodiscard]] T& get() {
        return static_cast<T&>(*all_[place<T>()]);
    }
    void describe(Fields& fields);
    /// Calls `use(feature)` for each that is given, in the order of the table.
    template <class Use>
    void each(const Use& use) const {
        for (const auto& feature : all_) {
            if (feature->given) {
                use(static_cast<const PlanFeature&>(*feature));
            }
        }
    }
    template <class Test>
    [[nodiscard]] bool any(const Test& test) const {
        bool found = false;
        each([&](const PlanFeature& one) { found = found || test(one); });
        return found;
    }
    /// Keys of those that are given.
    [[nodiscard]] std::vector<std::string> keys() const;

  private:
    template <class T>
    [[nodiscard]] static std::size_t place() {
        static const std::size_t kPlace = place_of(typeid(T));
        return kPlace;
    }
    [[nodiscard]] static std::size_t place_of(const std::type_info& type);

    std::vector<std::unique_ptr<PlanFeature>> all_;
};

/// What does not go together in a plan and its model, by sentence.
[[nodiscard]] std::vector<std::string> combination_problems(const ModelSpec& model, const PlanSpec& plan);

}  // namespace orrery::training
