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
    const std::uint32_t id = fetches_.take({index, sequence, 0, false});
    const double copied = bytes.host + bytes.nvme;
    const std::uint32_t run = replica.state.limits().copy_blocks;
    const auto blocks = static_cast<std::uint64_t>(copied / replica.state.limits().block_bytes + 0.5);
    if (const SimTime calls = replica.calls_time((blocks + run - 1) / run, copied); calls > SimTime()) {
        ++fetches_[id].transfers;
        dispatcher_->delay(calls, index + 1, id);
    }
    // From NVMe through host memory, as a stream: both links at once.
    for (const auto& [amount, link] :
         {std::pair{bytes.host + bytes.nvme, replica.from_host}, {bytes.nvme, replica.from_nvme}}) {
        if (amount > 0) {
            ++fetches_[id].transfers;
            if (link.valid()) {
                dispatcher_->share(link, amount, SimTime(), index + 1, id);
            } else {
                dispatcher_->delay(SimTime(), index + 1, id);
            }
        }
    }
    return true;
}

void Fetches::on_done(std::uint64_t token, Dispatcher&) {
    const auto id = static_cast<std::uint32_t>(token);
    Fetch& fetch = fetches_[id];
    if (--fetch.transfers > 0) {
        return;
    }
    fetches_.give(id);
    if (fetch.lost) {
        return;
    }
    const std::uint32_t replica = fetch.replica;
    EngineState& state = fleet_[replica].state;
    if (state.sequence(fetch.sequence).abandoned) {
        state.finish(fetch.sequence);
    } else {
        state.end_fetch(fetch.sequence);
    }
    fleet_.wake(replica);
}

void Fetches::fail(std::uint32_t replica) {
    for (Fetch& fetch : fetches_) {
        fetch.lost = fetch.lost || (fetch.transfers > 0 && fetch.replica == replica);
    }
}

}  // namespace orrery::serving
