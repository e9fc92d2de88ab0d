#include "workloads/serving/transfer/swap_ins.hpp"

namespace orrery::serving {

void SwapIns::start(std::uint32_t index) {
    Replica& replica = fleet_[index];
    for (const EngineState::Return& one : replica.state.take_returning()) {
        const std::uint32_t id = add(index, one.sequence);
        result_.swap_in_bytes += one.bytes;
        wait(id, replica.calls_time(one.copies, one.bytes));
        if (replica.from_host.valid()) {
            load(id, replica.from_host, one.bytes, SimTime::from_seconds(replica.pool.swap.call_s));
        }
    }
}

}  // namespace orrery::serving
