#include "sim/network/packet/flow_log.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <utility>

namespace orrery::network::packet {

void FlowLog::begin(std::uint32_t flow, std::uint32_t message) {
    if (flow >= message_of_.size()) {
        message_of_.resize(std::size_t{flow} + 1);
    }
    if (message >= messages_.size()) {
        messages_.resize(std::size_t{message} + 1);
        ways_.resize(messages_.size());
        flows_.resize(messages_.size(), 0);
    }
    message_of_[flow] = message;
    ++flows_[message];
}

// The number of ways stays, the ways themselves take memory.
void FlowLog::end(std::uint32_t flow) {
    const std::uint32_t message = message_of_[flow];
    ORRERY_ASSERT(flows_[message] > 0);
    if (--flows_[message] == 0) {
        ways_[message] = {};
    }
}

void FlowLog::arrived(std::uint32_t flow, std::uint64_t way, bool marked) {
    const std::uint32_t message = message_of_[flow];
    FlowCounts& counts = messages_[message];
    ++counts.arrived;
    counts.arrived_marked += marked ? 1 : 0;
    std::vector<std::uint64_t>& ways = ways_[message];
    const auto at = std::lower_bound(ways.begin(), ways.end(), way);
    if (at == ways.end() || *at != way) {
        ways.insert(at, way);
        ++counts.paths;
    }
}

std::size_t FlowLog::memory() const {
    std::size_t out = message_of_.capacity() * sizeof(std::uint32_t) + messages_.capacity() * sizeof(FlowCounts) +
                      ways_.capacity() * sizeof(ways_[0]) + flows_.capacity() * sizeof(std::uint32_t);
    for (const std::vector<std::uint64_t>& ways : ways_) {
        out += ways.capacity() * sizeof(std::uint64_t);
    }
    return out;
}

}  // namespace orrery::network::packet
