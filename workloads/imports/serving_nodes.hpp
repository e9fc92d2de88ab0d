#pragma once
// Nodes that a command line of a serving engine may run on.

#include "sim/config/data_directory.hpp"

#include <string>
#include <vector>

namespace orrery::imports {

/// A node, as far as engines choose defaults by it.
struct ServingNode {
    std::string name;
    std::int64_t gpus = 8;
    std::string device;  ///< name of its preset
    double memory = 0;   ///< of a device, in bytes
};

/// A preset of topologies/data/nodes. Throws ConfigError with the nearest name for one that is not there.
[[nodiscard]] ServingNode serving_node(const std::string& name, const DataDirectory& data);

/// The node of the one device that comments, a page's prose or the selector of a manifest name; empty where there are none or several.
[[nodiscard]] std::string node_in_text(const std::string& text);

/// What a command line without a node is tried on, in this order: by whether one of its words is of AMD's software, and whether the
/// name of its model says NVIDIA's 4 bits.
[[nodiscard]] std::vector<std::string> usual_nodes(const std::vector<std::string>& words, const std::string& model);

}  // namespace orrery::imports
