#include "workloads/serving/transfer/sequence_loads.hpp"

#include "sim/base/error.hpp"

namespace orrery::serving {

void SequenceLoads::wait(std::uint32_t id, SimTime time) {
    ++loads_[id].pending;
    dispatcher_->delay(time, loads_[id].replica + 1, id);
}

void SequenceLoads::load(std::uint32_t id, ClassId link, double bytes, SimTime latency) {
    if (!link.valid()) {
        return wait(id, latency);
    }
    ++loads_[id].pending;
    dispatcher_->share(link, bytes, latency, loads_[id].replica + 1, id);
}

void SequenceLoads::on_done(std::uint64_t token, Dispatcher&) {
    const auto id = static_cast<std::uint32_t>(token);
    Load& load = loads_[id];
    ORRERY_ASSERT(load.pending > 0);
    if (--load.pending > 0) {
        return;
    }
    loads_.give(id);
    if (load.lost) {
        return;
    }
    EngineState& state = fleet_[load.replica].state;
    if (state.sequence(load.sequence).abandoned) {
        state.finish(load.sequence);
    } else {
        (state.*here_)(load.sequence);
    }
    fleet_.wake(load.replica);
}

void SequenceLoads::fail(std::uint32_t replica) {
    for (Load& load : loads_) {
        load.lost = load.lost || (load.pending > 0 && load.replica == replica);
    }
}

}  // namespace orrery::serving
