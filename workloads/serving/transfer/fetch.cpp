#include "workloads/serving/transfer/fetch.hpp"

namespace orrery::serving {

bool Fetches::start(std::uint32_t index, std::uint32_t sequence) {
    Replica& replica = fleet_[index];
    const EngineState::Fetch bytes =
        replica.state.begin_fetch(sequence, replica.room_of(replica.state.sequence(sequence)));
    if (bytes.host + bytes.nvme <= 0) {
        return false;
    }
    result_.fetched_host_bytes += bytes.host;
    result_.fetched_nvme_bytes += bytes.nvme;
    const std::uint32_t id = add(index, sequence);
    const double copied = bytes.host + bytes.nvme;
    const std::uint32_t run = replica.state.limits().copy_blocks;
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
