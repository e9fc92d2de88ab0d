#include "workloads/serving/transfer/kv_restores.hpp"

namespace orrery::serving {

void KvRestores::begin(Dispatcher& dispatcher) {
    Part::begin(dispatcher);
    for (std::uint32_t i = 0; spec_.faults.restores && i < fleet_.size(); ++i) {
        const Demand whole{dispatcher.resources().add_resource(spec_.faults.restore_rate), 1};
        links_.push_back(dispatcher.keep(std::span(&whole, 1)));
    }
}

std::optional<std::uint32_t> KvRestores::start(std::uint32_t index, const Sequence& sequence) {
    Replica& replica = fleet_[index];
    const std::uint32_t here = replica.state.adopt(sequence);
    Sequence& adopted = replica.state.sequence(here);
    adopted.admitted = 0;
    adopted.in_flight = false;
    adopted.claims = false;
    adopted.level = 0;
    adopted.service = 0;
    if (!replica.state.reserve(here, replica.room_of(adopted))) {
        replica.state.finish(here);
        return std::nullopt;
    }
    const std::uint32_t id = restores_.take({index, here, true, false});
    result_.restored_tokens += adopted.cached;
    dispatcher_->share(links_[index], adopted.cached * spec_.cache_token_bytes, SimTime(), index + 1, id);
    return here;
}

void KvRestores::on_done(std::uint64_t token, Dispatcher&) {
    const auto id = static_cast<std::uint32_t>(token);
    Restore& restore = restores_[id];
    restore.under_way = false;
    restores_.give(id);
    if (restore.lost) {
        return;
    }
    EngineState& state = fleet_[restore.replica].state;
    if (state.sequence(restore.sequence).abandoned) {
        state.finish(restore.sequence);
    } else {
        state.arrived(restore.sequence);
    }
    fleet_.wake(restore.replica);
}

void KvRestores::fail(std::uint32_t replica) {
    for (Restore& restore : restores_) {
        restore.lost = restore.lost || (restore.under_way && restore.replica == replica);
    }
}

}  // namespace orrery::serving
