#include "workloads/serving/fleet/routes.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <iterator>

namespace orrery::serving {

void Routes::add(std::uint32_t replica) {
    all_.push_back(replica);
    router_->watch(replica, fleet_[replica].state, [this] { return fleet_.now(); });
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

Routing::Routing(Fleet& fleet, const RouterChoice& router) : entries(fleet, router), decoders(fleet, router) {
    bool computes_prompts_only = false;
    for (std::uint32_t i = 0; i < fleet.size(); ++i) {
        (fleet[i].pool.role == Role::decode ? decoders : entries).add(i);
        computes_prompts_only = computes_prompts_only || fleet[i].pool.role == Role::prefill;
    }
    ORRERY_ASSERT(!entries.empty() && computes_prompts_only == !decoders.empty());
    if (fleet.policies() != nullptr) {
        entries.attach(*fleet.policies(), 0);
        decoders.attach(*fleet.policies(), 1);
    }
}

}  // namespace orrery::serving
