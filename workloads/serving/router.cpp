#include "workloads/serving/router.hpp"

#include "sim/base/random.hpp"

namespace orrery {

std::uint32_t Routes::choose(std::uint32_t session) {
    const auto least = [&](auto measure) {
        std::uint32_t best = among_.front();
        for (const std::uint32_t i : among_) {
            if (measure(fleet_[i]) < measure(fleet_[best])) {
                best = i;
            }
        }
        return best;
    };
    switch (router_) {
        case Router::round_robin:
            break;
        case Router::least_requests:
            return least([](const Replica& r) { return r.state.outstanding() + r.without_room.size(); });
        case Router::least_cache:
            return least([](const Replica& r) { return r.state.used_blocks(); });
        case Router::session:
            return among_[mix64(session) % among_.size()];
    }
    return among_[turn_++ % among_.size()];
}

}  // namespace orrery
