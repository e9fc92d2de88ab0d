// What the features of a plan do not go together with: other features, forms of models and schedules.

#include "sim/base/error.hpp"
#include "workloads/training/plan/spec.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::training {

namespace {

/// What a model or a plan may be beside its features.
struct Trait {
    const char* key;
    const char* words;
    bool (*holds)(const ModelSpec& model, const PlanSpec& plan);
};

constexpr Trait kTraits[] = {
    {"pipeline", "pipeline above 1", [](const ModelSpec&, const PlanSpec& plan) { return plan.pipeline > 1; }},
    {"both-ways", "a schedule that starts from both ends",
     [](const ModelSpec&, const PlanSpec& plan) { return plan.copies() > 1; }},
    {"experts", "a model with experts",
     [](const ModelSpec& model, const PlanSpec&) { return model.experts.count > 0; }},
    {"latent", "latent attention", [](const ModelSpec& model, const PlanSpec&) { return model.latent.kv_rank > 0; }},
    {"pattern", "a model that has a 'pattern'", [](const ModelSpec& model, const PlanSpec&) { return model.hybrid(); }},
    {"encoder", "a model that has an 'encoder'",
     [](const ModelSpec& model, const PlanSpec&) { return model.encoder.given(); }},
};

/// A feature, what it is not modelled with (features by their keys, or traits), and what to write instead.
struct Row {
    const char* feature;
    std::vector<const char*> others;
    const char* instead = "";
};

const std::vector<Row>& rows() {
    static const std::vector<Row> kRows = {
        {"offload", {"pipeline"}, "use tensor and data with zero"},
        {"offload", {"sharding", "outer", "compression", "adapters", "documents"}},
        {"offload", {"experts", "pattern", "encoder"}},
        {"zeroth_order", {"pipeline"}, "use tensor and data"},
        {"zeroth_order", {"sharding", "outer", "compression", "adapters", "documents"}},
        {"zeroth_order", {"experts", "pattern", "encoder"}},
        {"sharding", {"experts"}, "use zero: 3 over all ranks"},
        {"sharding", {"adapters"}, "use zero: 3, with shard where nodes gather alone"},
        {"outer", {"adapters", "experts", "both-ways"}},
        {"compression", {"adapters", "experts", "both-ways"}},
        {"adapters", {"latent", "pattern", "encoder"}},
        {"documents", {"pattern", "encoder", "both-ways"}},
        {"host_checkpoints", {"offload", "zeroth_order", "encoder"}},
        {"low_rank_states", {"offload", "zeroth_order", "sharding", "outer", "compression", "adapters", "signatures"}},
        {"optimizer_types", {"offload", "zeroth_order", "adapters", "low_rank_states", "slices"}},
        {"slices", {"offload", "zeroth_order", "sharding", "outer", "compression", "adapters", "low_rank_states"}},
        {"slices", {"experts", "latent", "pattern", "encoder"}},
        {"low_rank_states", {"pipeline", "experts", "latent", "pattern", "encoder"}},
    };
    return kRows;
}

}  // namespace

std::vector<std::string> combination_problems(const ModelSpec& model, const PlanSpec& plan) {
    const std::vector<std::string> given = plan.features.keys();
    const auto has = [&](const char* key) { return std::find(given.begin(), given.end(), key) != given.end(); };
    std::vector<std::string> out;
    for (const Row& row : rows()) {
        for (const char* other : row.others) {
            const Trait* const trait = std::find_if(std::begin(kTraits), std::end(kTraits),
                                                    [&](const Trait& one) { return one.key == std::string(other); });
            const bool is_trait = trait != std::end(kTraits);
            ORRERY_ASSERT(is_trait ||
                          std::any_of(feature_table().begin(), feature_table().end(),
                                      [&](const FeatureRow* one) { return std::string_view(other) == one->key; }));
            if (has(row.feature) && (is_trait ? trait->holds(model, plan) : has(other))) {
                out.push_back(fmt::format("{} cannot be combined with {}{}{}", row.feature,
                                          is_trait ? trait->words : other, *row.instead == '\0' ? "" : ": ",
                                          row.instead));
            }
        }
    }
    return out;
}

}  // namespace orrery::training
