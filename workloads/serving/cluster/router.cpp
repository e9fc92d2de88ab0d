#include "workloads/serving/cluster/router.hpp"

#include "sim/base/random.hpp"

#include <algorithm>
#include <iterator>

namespace orrery {

namespace {

constexpr std::size_t kImbalance = 64;
constexpr double kRelativeImbalance = 1.5;
constexpr double kEnoughCached = 0.5;

std::size_t load(const Replica& replica) {
    return replica.state.outstanding() + replica.state.aside() + replica.without_room.size();
}

}  // namespace

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

std::uint32_t Routes::choose(std::uint32_t session, const PromptContent& content, std::uint32_t prompt) {
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
            return least(load);
        case Router::least_cache:
            return least([](const Replica& r) { return r.state.used_blocks(); });
        case Router::session:
            return among_[mix64(session) % among_.size()];
        case Router::prefix: {
            const std::uint32_t idlest = least(load);
            std::uint32_t best = idlest;
            std::uint32_t most = 0;
            std::size_t busiest = 0;
            for (const std::uint32_t i : among_) {
                const std::uint32_t cached = fleet_[i].state.cached_prefix(content, prompt);
                if (cached > most) {
                    most = cached;
                    best = i;
                }
                busiest = std::max(busiest, load(fleet_[i]));
            }
            const std::size_t idle = load(fleet_[idlest]);
            const bool uneven = busiest > idle + kImbalance &&
                                static_cast<double>(busiest) > kRelativeImbalance * static_cast<double>(idle);
            return !uneven && most > kEnoughCached * prompt ? best : idlest;
        }
    }
    return among_[turn_++ % among_.size()];
}

}  // namespace orrery
