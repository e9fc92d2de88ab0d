#include "workloads/training/plan/feature.hpp"

#include "sim/base/error.hpp"

namespace orrery::training {

FeatureSet::FeatureSet() {
    for (const FeatureRow* row : feature_table()) {
        all_.push_back(row->make());
    }
}

FeatureSet::FeatureSet(const FeatureSet& other) {
    for (const auto& feature : other.all_) {
        all_.push_back(feature->copy());
    }
}

std::size_t FeatureSet::place_of(const std::type_info& type) {
    const FeatureSet some;
    for (std::size_t i = 0; i < some.all_.size(); ++i) {
        const PlanFeature& feature = *some.all_[i];
        if (typeid(feature) == type) {
            return i;
        }
    }
    ORRERY_ASSERT(false);
    return 0;
}

void FeatureSet::describe(Fields& fields) {
    const auto& rows = feature_table();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        PlanFeature& feature = *all_[i];
        fields.optional({rows[i]->key, rows[i]->description}, feature.given,
                        [&](Fields& inner) { feature.describe(inner); });
    }
}

std::vector<std::string> FeatureSet::keys() const {
    std::vector<std::string> out;
    for (std::size_t i = 0; i < all_.size(); ++i) {
        if (all_[i]->given) {
            out.emplace_back(feature_table()[i]->key);
        }
    }
    return out;
}

}  // namespace orrery::training
