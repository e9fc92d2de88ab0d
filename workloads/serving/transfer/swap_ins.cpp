#include "workloads/serving/transfer/swap_ins.hpp"

#include "workloads/serving/fleet/fleet.hpp"

namespace orrery::serving {

SimTime calls_time(const Replica& replica, std::uint64_t copies, double bytes) {
    const SwapSpec& swap = replica.pool.swap;
    const double calls = static_cast<double>(copies) * swap.calls;
    if (swap.call_s <= 0 || calls <= 0) {
        return {};
    }
    const double last = replica.pool.host_bandwidth > 0 ? bytes / calls / replica.pool.host_bandwidth : 0;
    return SimTime::from_seconds(calls * swap.call_s + last);
}

void SwapIns::start(std::uint32_t index) {
    Replica& replica = fleet_[index];
    for (const EngineState::Return& one : replica.state.take_returning()) {
        if (free_.empty()) {
            free_.push_back(static_cast<std::uint32_t>(all_.size()));
            all_.emplace_back();
        }
        const std::uint32_t id = free_.back();
        free_.pop_back();
        all_[id] = {index, one.sequence, 1, false};
        result_.swap_in_bytes += one.bytes;
        const std::uint64_t token = Token{ServiceTask::swap_in, id, 0}.pack();
        dispatcher_->delay(calls_time(replica, one.copies, one.bytes), index + 1, token);
        if (replica.from_host.valid()) {
            ++all_[id].pending;
            dispatcher_->share(replica.from_host, one.bytes, SimTime::from_seconds(replica.pool.swap.call_s), index + 1,
                               token);
        }
    }
}

void SwapIns::on_task(std::uint32_t id) {
    One& one = all_[id];
    if (--one.pending > 0) {
        return;
    }
    free_.push_back(id);
    if (one.lost) {
        return;
    }
    EngineState& state = fleet_[one.replica].state;
    if (state.sequence(one.sequence).abandoned) {
        state.finish(one.sequence);
    } else {
        state.arrived(one.sequence);
    }
    fleet_.wake(one.replica);
}

void SwapIns::fail(std::uint32_t replica) {
    for (One& one : all_) {
        one.lost = one.lost || (one.pending > 0 && one.replica == replica);
    }
}

}  // namespace orrery::serving
