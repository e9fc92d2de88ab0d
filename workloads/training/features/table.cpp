// The table of optional features of a plan, one row each, in the order in which they change what a rank holds.

#include "workloads/training/plan/feature.hpp"

namespace orrery::training {

extern const FeatureRow kOffload;
extern const FeatureRow kZerothOrder;
extern const FeatureRow kSharding;
extern const FeatureRow kOuter;
extern const FeatureRow kCompression;
extern const FeatureRow kAdapters;
extern const FeatureRow kDocuments;
extern const FeatureRow kSignatures;
extern const FeatureRow kHostCheckpoints;
extern const FeatureRow kDispatcher;
extern const FeatureRow kLowRankStates;
extern const FeatureRow kOptimizerTypes;
extern const FeatureRow kSlices;
extern const FeatureRow kKernels;
extern const FeatureRow kExpertPlacement;

const std::vector<const FeatureRow*>& feature_table() {
    static const std::vector<const FeatureRow*> kTable = {
        &kOffload,       &kZerothOrder,    &kSharding,   &kOuter,           &kCompression,
        &kAdapters,      &kDocuments,      &kSignatures, &kHostCheckpoints, &kDispatcher,
        &kLowRankStates, &kOptimizerTypes, &kSlices,     &kKernels,         &kExpertPlacement};
    return kTable;
}

}  // namespace orrery::training
