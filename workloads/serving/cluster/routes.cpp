#include "workloads/serving/cluster/routes.hpp"

#include <algorithm>
#include <iterator>

namespace orrery::inline serving {

void Routes::add(std::uint32_t replica) {
    all_.push_back(replica);
}

void Routes::update() {
    const auto take = [&](auto wanted) {
        among_.clear();
        std::copy_if(all_.begin(), all_.end(), std::back_inserter(among_),
                     [&](std::uint32_t i) { return fleet_[i].power == Power::on && wanted(fleet_[i]); });
    };
    take([](const Replica& replica) { return replica.up; });
    if (among_.empty()) {
        take([](const Replica&) { return true; });
    }
}

}  // namespace orrery::inline serving
