#include "workloads/serving/cluster/client_timeouts.hpp"

namespace orrery::serving {

void ClientTimeouts::start(std::uint64_t request) {
    if (seconds_ > 0) {
        const SimTime wait = SimTime::from_seconds(seconds_);
        deadlines_.emplace_back(dispatcher_->now() + wait, request);
        if (deadlines_.size() == 1) {
            dispatcher_->delay(wait, 0, Token{ServiceTask::timeout, 0, 0}.pack());
        }
    }
}

void ClientTimeouts::on_deadline() {
    const std::uint64_t request = deadlines_.front().second;
    deadlines_.pop_front();
    if (const auto found = live_.find(request); found != live_.end()) {
        const auto [replica, sequence] = found->second;
        live_.erase(found);
        listener_.client_leaves(replica, sequence);
    }
    while (!deadlines_.empty() && live_.count(deadlines_.front().second) == 0) {
        deadlines_.pop_front();
    }
    if (!deadlines_.empty()) {
        dispatcher_->delay(deadlines_.front().first - dispatcher_->now(), 0, Token{ServiceTask::timeout, 0, 0}.pack());
    }
}

}  // namespace orrery::serving
