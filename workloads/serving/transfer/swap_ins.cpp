#include "workloads/serving/transfer/swap_ins.hpp"

namespace orrery::serving {

void SwapIns::start(std::uint32_t index) {
    Replica& replica = fleet_[index];
    for (const EngineState::Return& one : replica.state.take_returning()) {
        const std::uint32_t id = all_.take({index, one.sequence, 1, false});
        result_.swap_in_bytes += one.bytes;
        dispatcher_->delay(replica.calls_time(one.copies, one.bytes), index + 1, id);
        if (replica.from_host.valid()) {
            ++all_[id].pending;
            dispatcher_->share(replica.from_host, one.bytes, SimTime::from_seconds(replica.pool.swap.call_s), index + 1,
                               id);
        }
    }
}

void SwapIns::on_done(std::uint64_t token, Dispatcher&) {
    const auto id = static_cast<std::uint32_t>(token);
    One& one = all_[id];
    if (--one.pending > 0) {
        return;
    }
    all_.give(id);
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
