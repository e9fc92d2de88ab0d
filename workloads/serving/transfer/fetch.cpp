#include "workloads/serving/transfer/fetch.hpp"

#include "sim/base/error.hpp"

namespace orrery::serving {

bool Fetches::start(std::uint32_t index, std::uint32_t sequence) {
    Replica& replica = fleet_[index];
    const Sequence& waiting = replica.state.sequence(sequence);
    const std::uint64_t room = replica.room_of(waiting);
    if (!possible(replica.state) || replica.state.blocks_for(room) > replica.state.free_blocks()) {
        return false;
    }
    const SharedCache::Source elsewhere = shared_.find(index, waiting);
    const std::vector<SharedCache::Way> ways =
        elsewhere.blocks > 0 ? shared_.bring(index, waiting, elsewhere) : std::vector<SharedCache::Way>();
    const EngineState::Fetch bytes = replica.state.begin_fetch(sequence, room, elsewhere.blocks);
    if (bytes.all() <= 0) {
        return false;
    }
    result_.fetched_host_bytes += bytes.host;
    result_.fetched_nvme_bytes += bytes.nvme;
    const std::uint32_t id = add(index, sequence);
    for (const SharedCache::Way& way : ways) {
        load(id, way.link, bytes.elsewhere, SimTime::from_seconds(way.latency));
    }
    const double copied = bytes.host + bytes.nvme;
    if (copied <= 0) {
        return true;
    }
    const std::uint32_t run = replica.state.limits().copy_blocks;
    ORRERY_ASSERT(run > 0);
    const auto blocks = static_cast<std::uint64_t>(copied / replica.state.limits().block_bytes + 0.5);
    if (const SimTime calls = replica.calls_time((blocks + run - 1) / run, copied); calls > SimTime()) {
        wait(id, calls);
    }
    // From NVMe through host memory, as a stream: both links at once.
    load(id, replica.from_host, bytes.host + bytes.nvme);
    if (bytes.nvme > 0) {
        load(id, replica.from_nvme, bytes.nvme);
    }
    return true;
}

}  // namespace orrery::serving
