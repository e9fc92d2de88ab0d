#pragma once
// The memories of every node as resources of a run: what a copy between a device and a tier, or an update by the host, demands.
//
// Claims: a copy moves through the medium and the link of its tier, the switch that the device shares and the device's own PCIe
// link, at the rate of the tightest; what shares one of them shares its rate. Drives that devices do not reach are copied through
// DRAM in two steps, each an activity of its own. Devices' links are those that their NICs use.
// An update demands the media and links of the tiers that its bytes lie in, and cores for as long as these stream them.
// Limits: DRAM of a node is one memory (no sockets).
// Validated by tests/sim/device/memory_tier_test.cpp.

#include "sim/device/memory_tier.hpp"
#include "sim/network/fabric.hpp"

namespace orrery::network {

class NodeMemory {
  public:
    /// Adds the resources of every node to `model`, which has those of the fabric. `device_link`: B/s of a device's PCIe link.
    NodeMemory(const NodeHost& host, const Fabric& fabric, double device_link, ResourceModel& model)
        : NodeMemory(host, fabric, device_link, model, 0, fabric.shape().nodes) {}
    /// The same of `nodes` nodes from a first one on, which are alike.
    NodeMemory(const NodeHost& host, const Fabric& fabric, double device_link, ResourceModel& model,
               std::uint32_t first_node, std::uint32_t nodes);

    /// One activity of a copy, of as many units as bytes.
    struct Hop {
        std::vector<Demand> demands;
        double latency;  ///< s
    };
    /// The steps of a copy from a tier to a device, or back, in order.
    [[nodiscard]] std::vector<Hop> fetch(GpuId gpu, std::size_t tier) const;
    [[nodiscard]] std::vector<Hop> store(GpuId gpu, std::size_t tier) const;
    /// A copy of as much to each of several devices at once, its steps as one stream; latencies in a row.
    [[nodiscard]] Hop stream(const std::vector<GpuId>& gpus, std::size_t tier) const;
    /// Rows of so many bytes that lie anywhere in a tier: copied by the host's cores into DRAM, side by side, where a core waits for each
    /// row once and then streams it; or read by the device itself (PcieLink::row_weight). The tier is addressed.
    [[nodiscard]] Hop gather(GpuId gpu, std::size_t tier, double row) const;
    [[nodiscard]] Hop read_rows(GpuId gpu, std::size_t tier, double row, bool aligned) const;
    /// Between drives and DRAM of the device's node.
    [[nodiscard]] Hop load(GpuId gpu, std::size_t tier) const;
    [[nodiscard]] Hop write_back(GpuId gpu, std::size_t tier) const;

    /// B that the host reads and writes in a tier that it addresses, per unit of an update.
    struct Traffic {
        std::size_t tier;
        double read;
        double written;
    };
    /// An update on the host of the device's node: demands per unit.
    [[nodiscard]] std::vector<Demand> update(GpuId gpu, const std::vector<Traffic>& traffic) const;

    [[nodiscard]] const NodeHost& host() const { return host_; }
    [[nodiscard]] bool has(ResourceId resource) const {
        return resource.value() >= first_ && resource.value() < first_ + capacities_.size();
    }
    [[nodiscard]] double capacity(ResourceId resource) const { return capacities_[resource.value() - first_]; }
    /// Such as "nvme, node 3".
    [[nodiscard]] std::string resource_name(ResourceId resource) const;

  private:
    using Demands = std::vector<Demand>;
    [[nodiscard]] ResourceId of(std::uint32_t node, std::size_t part) const;
    void read_tier(Demands& out, std::uint32_t node, std::size_t tier, double weight) const;
    void write_tier(Demands& out, std::uint32_t node, std::size_t tier, double weight) const;
    void cross(Demands& out, GpuId gpu, bool to_device) const;
    std::size_t add(const std::string& name, double capacity);

    const NodeHost& host_;
    const Fabric& fabric_;
    std::uint32_t first_ = 0;
    // Parts of a node: numbers of its resources, which are the same in every node.
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
    std::vector<std::string> names_;
    std::vector<double> per_node_;
    std::size_t cores_ = kNone;
    std::vector<std::size_t> media_, links_out_, links_in_;  ///< by tier; out: of the tier
    std::vector<std::size_t> switch_up_, switch_down_;       ///< by switch; up: towards the host
    std::vector<std::size_t> device_up_, device_down_;       ///< by device, where the fabric has no link of its own
    std::vector<double> capacities_;                         ///< of all nodes
    std::uint32_t first_node_;
};

}  // namespace orrery::network
