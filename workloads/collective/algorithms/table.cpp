#include "workloads/collective/algorithms/algorithm.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {

extern const CollectiveAlgorithm kRingAlgorithm;
extern const CollectiveAlgorithm kTreeAlgorithm;
extern const CollectiveAlgorithm kDoubleTreeAlgorithm;
extern const CollectiveAlgorithm kHalvingDoublingAlgorithm;
extern const CollectiveAlgorithm kHierarchicalAlgorithm;
extern const CollectiveAlgorithm kInSwitchAlgorithm;
extern const CollectiveAlgorithm kDirectAlgorithm;
extern const CollectiveAlgorithm kBruckAlgorithm;

const std::vector<const CollectiveAlgorithm*>& algorithm_table() {
    static const std::vector<const CollectiveAlgorithm*> kTable = {
        &kRingAlgorithm,         &kTreeAlgorithm,     &kDoubleTreeAlgorithm, &kHalvingDoublingAlgorithm,
        &kHierarchicalAlgorithm, &kInSwitchAlgorithm, &kDirectAlgorithm, &kBruckAlgorithm,
    };
    return kTable;
}

const CollectiveAlgorithm& algorithm(const std::string& name) {
    const auto& table = algorithm_table();
    const auto row = std::find_if(table.begin(), table.end(), [&](const auto* one) { return one->name == name; });
    ORRERY_ASSERT(row != table.end());
    return **row;
}

void require_all_reduce(const CollectiveSpec& spec) {
    if (spec.op != CollectiveOp::all_reduce) {
        throw InfeasibleError(fmt::format("algorithm {} serves all-reduce only", spec.algorithm->name));
    }
}

}  // namespace orrery
