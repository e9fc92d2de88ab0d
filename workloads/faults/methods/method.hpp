#pragma once
// How a checkpoint is taken: one method per file, one row each.
//
// Claims: a method moves bytes through PCIe, NICs and storage at their bandwidths; what stalls the job and what goes on behind it
// follow from sizes and rates. Limits: rates are constants of the scenario, not of a simulated file system.

#include "sim/config/policy.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace orrery::faults {

/// Where checkpoints go and what it takes.
struct StorageSpec {
    double write = 100e9;    ///< B/s of the whole store
    double read = 100e9;     ///< B/s of the whole store
    double per_node = 0;     ///< B/s of a node to and from the store; 0: not limiting
    double latency = 0;      ///< s of a save or load beside its bytes: planning, metadata, closing files
    double capacity = 0;     ///< B; 0: not limiting
    std::int64_t keep = 2;   ///< checkpoints that are kept
    bool broadcast = false;  ///< one node reads and sends to the others over the fabric
};

struct CheckpointSetting {
    double bytes = 0;   ///< of the job's state, each part once
    double frozen = 0;  ///< B that never change: no checkpoint holds them, and every load reads them from the store
    std::uint32_t nodes = 1;
    std::uint32_t gpus_per_node = 8;
    double pcie = 0;  ///< B/s of a GPU to its host; 0: not limiting
    double nic = 0;   ///< B/s of all NICs of a node
    StorageSpec storage;

    [[nodiscard]] double bytes_per_node() const { return bytes / nodes; }
    /// Seconds in which all nodes copy their part from devices to hosts.
    [[nodiscard]] double to_host_s() const { return pcie > 0 ? bytes_per_node() / (pcie * gpus_per_node) : 0; }
    [[nodiscard]] double save_s() const;
    [[nodiscard]] double load_s() const { return load_s(bytes + frozen); }
    [[nodiscard]] double load_s(double of) const;  ///< of so many bytes from the store
};

/// What checkpoints of a method take.
struct CheckpointCost {
    double stall_s = 0;       ///< of training, each
    double background_s = 0;  ///< from its end until the checkpoint can be used
    double nic_share = 0;     ///< of the NICs' bandwidth, in the background
    double load_s = 0;
    bool in_memory = false;  ///< held by the nodes themselves
    /// In memory: of `group` neighbouring nodes, so many may be lost.
    std::uint32_t group = 1, parity = 0;
    std::uint32_t persist_every = 1;  ///< in memory: every n-th goes to the store as well ...
    double persist_s = 0;             ///< ... in the background
    double persisted_load_s = 0;
};

class CheckpointMethod {
  public:
    virtual ~CheckpointMethod() = default;
    [[nodiscard]] virtual CheckpointCost cost(const CheckpointSetting& setting) const = 0;
    /// What its parameters contradict each other in; empty: nothing.
    [[nodiscard]] virtual std::string problem() const { return {}; }
};

[[nodiscard]] const PolicyTable<CheckpointMethod>& checkpoint_method_table();
using CheckpointMethodChoice = PolicyChoice<CheckpointMethod>;

/// Whether a checkpoint in the memory of groups of `group` neighbouring nodes, the last one with what is left, outlives the loss of
/// these nodes (each named once): no group may lose more than `parity`.
[[nodiscard]] bool survives(const std::vector<std::uint32_t>& lost, std::uint32_t group, std::uint32_t parity);

}  // namespace orrery::faults
