#include "workloads/serving/transfer/kv_restores.hpp"

#include "sim/base/error.hpp"

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
    ORRERY_ASSERT(index < links_.size());
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
    const std::uint32_t id = add(index, here);
    result_.restored_tokens += adopted.cached;
    load(id, links_[index], adopted.cached * spec_.cache_token_bytes);
    return here;
}

}  // namespace orrery::serving
