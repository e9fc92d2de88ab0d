#include "sim/engine/resource_model.hpp"

namespace orrery::engine {

ResourceId ResourceModel::add_resources(std::span<const double> capacities) {
    ORRERY_ASSERT(!capacities.empty());
    const ResourceId first = add_resource(capacities[0]);
    for (const double capacity : capacities.subspan(1)) {
        (void)add_resource(capacity);
    }
    return first;
}

double ResourceModel::cancel(const ActivityHandle& activity) {
    if (const auto entry = suspended_.find(activity); entry != suspended_.end()) {
        const double left = entry->second;
        suspended_.erase(entry);
        release(activity.of);
        return left;
    }
    return withdraw(activity);
}

void ResourceModel::suspend(const ActivityHandle& activity) {
    hold_again(activity.of);
    const bool fresh = suspended_.try_emplace(activity, withdraw(activity)).second;
    ORRERY_ASSERT(fresh);
}

void ResourceModel::resume(const ActivityHandle& activity) {
    const auto entry = suspended_.find(activity);
    ORRERY_ASSERT(entry != suspended_.end());
    const double left = entry->second;
    suspended_.erase(entry);
    start(activity.of, left, activity.listener, activity.token);
    release(activity.of);
}

ActivityHandle ResourceModel::set_bound(const ActivityHandle& activity, double rate_bound) {
    const double left = withdraw(activity);
    const ClassId bounded = hold_bounded(activity.of, rate_bound);
    start(bounded, left, activity.listener, activity.token);
    release(bounded);
    return {bounded, activity.listener, activity.token};
}

void ResourceModel::require_conserved() const {
    if (started_ != ended_ || !suspended_.empty()) {
        throw InternalError(std::to_string(started_ - ended_) + " of " + std::to_string(started_) +
                            " activities never ended, " + std::to_string(suspended_.size()) + " are suspended");
    }
}

}  // namespace orrery::engine
