#pragma once
// How long copies take in a node where nothing else is under way.
//
// Claims: chains of steps begin at once and share what they have in common; a chain's steps follow one another. For
// measured copies and tests of sim/network/node_memory.hpp: a run has the same resources beside everything else.
// Validated by tests/sim/device/memory_tier_test.cpp.

#include "sim/network/node_memory.hpp"

#include <memory>

namespace orrery::validation {

class LoneNode {
  public:
    /// `device_link`: B/s of the PCIe link of each of its GPUs.
    LoneNode(NodeHost host, std::uint32_t gpus, double device_link);
    ~LoneNode();
    [[nodiscard]] const NodeMemory& memory() const;
    /// Until the last of the chains is over, each of so many bytes. Once.
    [[nodiscard]] double seconds(const std::vector<std::vector<NodeMemory::Hop>>& chains, double bytes);

  private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace orrery::validation
