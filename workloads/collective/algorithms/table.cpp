#include "workloads/collective/algorithms/algorithm.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::collective {

extern const CollectiveAlgorithm kAutoAlgorithm;
extern const CollectiveAlgorithm kRingAlgorithm;
extern const CollectiveAlgorithm kTreeAlgorithm;
extern const CollectiveAlgorithm kDoubleTreeAlgorithm;
extern const CollectiveAlgorithm kHalvingDoublingAlgorithm;
extern const CollectiveAlgorithm kHierarchicalAlgorithm;
extern const CollectiveAlgorithm kInSwitchAlgorithm;
extern const CollectiveAlgorithm kDirectAlgorithm;
extern const CollectiveAlgorithm kBruckAlgorithm;
extern const CollectiveAlgorithm kMultiRingAlgorithm;
extern const CollectiveAlgorithm kBidirectionalRingAlgorithm;
extern const CollectiveAlgorithm kPerDimensionAlgorithm;
extern const CollectiveAlgorithm kBinomialAlgorithm;
extern const CollectiveAlgorithm kChainAlgorithm;
extern const CollectiveAlgorithm kProgramAlgorithm;

const std::vector<const CollectiveAlgorithm*>& algorithm_table() {
    static const std::vector<const CollectiveAlgorithm*> kTable = {
        &kAutoAlgorithm,     &kRingAlgorithm,       &kMultiRingAlgorithm,       &kBidirectionalRingAlgorithm,
        &kTreeAlgorithm,     &kDoubleTreeAlgorithm, &kHalvingDoublingAlgorithm, &kHierarchicalAlgorithm,
        &kInSwitchAlgorithm, &kDirectAlgorithm,     &kBruckAlgorithm,           &kPerDimensionAlgorithm,
        &kBinomialAlgorithm, &kChainAlgorithm,      &kProgramAlgorithm,
    };
    return kTable;
}

const CollectiveAlgorithm& algorithm(const std::string& name) {
    const auto& table = algorithm_table();
    const auto row = std::find_if(table.begin(), table.end(), [&](const auto* one) { return one->name == name; });
    ORRERY_ASSERT(row != table.end());
    return **row;
}

bool reduces_or_gathers(CollectiveOp op) {
    return op == CollectiveOp::all_reduce || op == CollectiveOp::all_gather || op == CollectiveOp::reduce_scatter;
}

void require_served(const CollectiveSpec& spec, bool served, const char* what) {
    if (!served) {
        throw InfeasibleError(fmt::format("algorithm {} serves {}, not {}", spec.algorithm->name, what,
                                          collective_op_names()[static_cast<std::size_t>(spec.op)]));
    }
}

void require_all_reduce(const CollectiveSpec& spec) {
    if (spec.op != CollectiveOp::all_reduce) {
        throw InfeasibleError(fmt::format("algorithm {} serves all-reduce only", spec.algorithm->name));
    }
}

double GroupLinks::ring_step(double bytes) const {
    const double inside = per_node > 1 ? inside_latency + bytes / inside_rate : 0;
    return nodes() > 1 ? std::max(inside, outside_latency + bytes / flow_rate) : inside;
}

double GroupLinks::rail_step(double bytes) const {
    return outside_latency + bytes * per_node / node_rate;
}

double GroupLinks::step(double bytes, double distance) const {
    return distance < per_node ? inside_latency + bytes / inside_rate
                               : outside_latency + bytes * per_node / (distance < 2 * per_node ? node_rate : all_rate);
}

}  // namespace orrery::collective
