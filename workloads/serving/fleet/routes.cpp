#include "workloads/serving/fleet/routes.hpp"

#include <algorithm>
#include <iterator>

namespace orrery::serving {

void Routes::add(std::uint32_t replica) {
    all_.push_back(replica);
}

void Routes::update() {
    const auto take = [&](auto wanted) {
        among_.clear();
        std::copy_if(all_.begin(), all_.end(), std::back_inserter(among_),
                     [&](std::uint32_t i) { return wanted(fleet_[i]); });
        return !among_.empty();
    };
    if (take([](const Replica& replica) { return replica.power == Power::on && replica.listed; })) {
        return;
    }
    // Nobody takes requests: they queue at those that will. Who would stop is quicker than who starts.
    for (const Power power : {Power::on, Power::draining, Power::starting, Power::off}) {
        if (take([&](const Replica& replica) { return replica.power == power; })) {
            return;
        }
    }
}

}  // namespace orrery::serving
