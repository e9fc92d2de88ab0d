#pragma once
// What importers of a node's inside share: GPUs, what joins them and the NICs, as a scenario with this node.

#include "workloads/imports/importer.hpp"

#include <string>
#include <vector>

namespace orrery::imports {

/// What a file says of a node.
struct NodeFacts {
    std::size_t gpus = 0;
    double links = 0;       ///< NVLinks that every GPU has to the others, by way of switches or not; 0: PCIe
    bool switched = false;  ///< the file says that they go to switches
    bool mesh = false;      ///< `links` join each pair, without a switch
    std::size_t nics = 0;
    double nic_gbps = 0;   ///< 0: not said
    double pcie_GBps = 0;  ///< of a GPU's slot, each way; 0: not said
    std::string gpu;       ///< preset, where the file tells it; empty: by the links
    std::string source;    ///< what the file is, for people
};

[[nodiscard]] std::vector<ImportOption> node_options();
/// Throws ConfigError where the device is neither said nor follows from the links.
[[nodiscard]] Imported node_scenario(const ImportInput& input, const NodeFacts& facts, const char* format,
                                     ImportNotes notes);

}  // namespace orrery::imports
