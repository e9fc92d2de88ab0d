// The table of checkpoint methods: one row each; and what all of them compute alike.

#include "workloads/faults/methods/method.hpp"

#include <algorithm>
#include <map>

namespace orrery::faults {

extern const PolicyRow<CheckpointMethod> kBlockingCheckpoint;
extern const PolicyRow<CheckpointMethod> kAsynchronousCheckpoint;
extern const PolicyRow<CheckpointMethod> kMemoryCheckpoint;

const PolicyTable<CheckpointMethod>& checkpoint_method_table() {
    static const PolicyTable<CheckpointMethod> kTable = {&kBlockingCheckpoint, &kAsynchronousCheckpoint,
                                                         &kMemoryCheckpoint};
    return kTable;
}

namespace {

// All nodes move their part at once: the store, a node's access to it or a node's NICs bind.
double shared_s(const CheckpointSetting& setting, double bytes, double store) {
    double seconds = bytes / store;
    for (const double rate : {setting.storage.per_node, setting.nic}) {
        seconds = rate > 0 ? std::max(seconds, bytes / setting.nodes / rate) : seconds;
    }
    return setting.storage.latency + seconds;
}

}  // namespace

double CheckpointSetting::save_s() const {
    return shared_s(*this, bytes, storage.write);
}

double CheckpointSetting::load_s(double of) const {
    if (!storage.broadcast || nodes == 1) {
        return shared_s(*this, of, storage.read);
    }
    // The bytes pass one node's access, then in a pipelined chain every NIC once.
    double rate = storage.read;
    for (const double other : {storage.per_node, nic}) {
        rate = other > 0 ? std::min(rate, other) : rate;
    }
    return storage.latency + of / rate + (nic > 0 ? of / nic : 0);
}

bool survives(const std::vector<std::uint32_t>& lost, std::uint32_t group, std::uint32_t parity) {
    std::map<std::uint32_t, std::uint32_t> gone;
    return std::all_of(lost.begin(), lost.end(), [&](std::uint32_t node) { return ++gone[node / group] <= parity; });
}

}  // namespace orrery::faults
