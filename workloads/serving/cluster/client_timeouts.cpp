#include "workloads/serving/cluster/client_timeouts.hpp"

#include "sim/base/error.hpp"

namespace orrery::serving {

void ClientTimeouts::start(std::uint64_t request) {
    if (seconds_ > 0) {
        const SimTime wait = SimTime::from_seconds(seconds_);
        deadlines_.emplace_back(now() + wait, request);
        if (deadlines_.size() == 1) {
            dispatcher_->delay(wait, 0, 0);
        }
    }
}

void ClientTimeouts::on_done(std::uint64_t, Dispatcher&) {
    ORRERY_ASSERT(!deadlines_.empty() && deadlines_.front().first <= now());
    const std::uint64_t request = deadlines_.front().second;
    deadlines_.pop_front();
    cancel(request);
    while (!deadlines_.empty() && !places_.contains(deadlines_.front().second)) {
        deadlines_.pop_front();
    }
    if (!deadlines_.empty()) {
        dispatcher_->delay(deadlines_.front().first - now(), 0, 0);
    }
}

void ClientTimeouts::cancel(std::uint64_t request) {
    if (const auto place = places_.end(request); place) {
        leave(place->first, place->second);
    }
}

// What computes or travels is freed when that ends, everything else at once.
void ClientTimeouts::leave(std::uint32_t index, std::uint32_t id) {
    Replica& replica = fleet_[index];
    Sequence& sequence = replica.state.sequence(id);
    const Sequence left = sequence;
    sequence.abandoned = true;
    const bool waits = sequence.stage == Stage::waiting || sequence.stage == Stage::swapped ||
                       (sequence.stage == Stage::running && replica.under_way == 0 && !sequence.in_flight);
    if (waits) {
        replica.state.withdraw(id);
        transfers_.make_room(index);
        fleet_.wake(index);
    }
    accounts_.give_up(index, left, Ending::timed_out);
}

}  // namespace orrery::serving
