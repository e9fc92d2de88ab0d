#pragma once
// Collective operations as activities of the fabric.
//
// A collective that runs in steady state is one activity: all its ranks progress in lock step, and its traffic puts a
// weight on every link it crosses. Contention with other collectives and point-to-point transfers then follows from
// sharing. What a real library adds (start-up, a latency per step, less than full links) comes from a CollectiveModel.
// Message-by-message schedules are in workloads/collective.
//
// Wire volume: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA
// 19(1), 2005; busbw conventions of nccl-tests.

#include "sim/network/fabric.hpp"

#include <memory>
#include <vector>

namespace orrery::network {

enum class CollectiveOp {
    all_reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
    send_recv,
    broadcast,
    reduce,
    gather,
    scatter
};
[[nodiscard]] const std::vector<std::string>& collective_op_names();

/// Bytes that each rank puts on the wire for a payload of `bytes` (the larger of input and output buffer of a rank); of
/// gather and scatter, that the root gets or gives. Over the time, this is the bus bandwidth of nccl-tests.
[[nodiscard]] Bytes wire_bytes(CollectiveOp op, std::uint32_t ranks, Bytes payload);

/// Bytes of its main memory that a rank reads and writes for that: each byte is read where it leaves and written where it comes,
/// and where it is summed, what it is added to is read as well.
[[nodiscard]] Bytes memory_bytes(CollectiveOp op, std::uint32_t ranks, Bytes payload);

/// How the ranks of a group lie on nodes. Regular: every node holds the same number.
struct GroupLayout {
    std::uint32_t ranks = 1;
    std::uint32_t nodes = 1;
    BytesPerSecond nics;  ///< of the NICs that the ranks of a node use, together; of the slowest node
    [[nodiscard]] std::uint32_t per_node() const { return ranks / nodes; }
};

/// The ports of a group's ranks.
struct GroupPorts {
    GroupLayout layout;
    BytesPerSecond least;    ///< of any rank towards the others on its node, one direction
    bool packages = false;   ///< the members on each node are the two dies of a package
    Seconds inside_latency;  ///< the most of any rank
    Seconds nic_latency;
    /// B/s of a GPU towards the others of the group on its node. In a mesh it has a link to each of them.
    [[nodiscard]] double rate_of(const Fabric& fabric, GpuId gpu) const;
};

/// What a library makes of the links: a fixed time, and the fraction of a link's rate that its traffic reaches.
struct CollectivePrice {
    Seconds latency;              ///< before and between the transfers, whatever the size of the links
    double intra_efficiency = 1;  ///< of the links inside a node
    double nic_efficiency = 1;    ///< of the NICs
    double outside = 1;           ///< of the bytes that a ring sends between nodes, what this algorithm sends
};

class CollectiveModel {
  public:
    virtual ~CollectiveModel() = default;
    /// `intra_bandwidth`: of a GPU inside its node, one direction.
    [[nodiscard]] virtual CollectivePrice price(CollectiveOp op, const GroupLayout& layout, Bytes payload,
                                                BytesPerSecond intra_bandwidth) const = 0;
};

/// A model of a library that costs nothing: closed forms of the wire volume over the links.
class IdealCollectives final : public CollectiveModel {
  public:
    [[nodiscard]] CollectivePrice price(CollectiveOp, const GroupLayout&, Bytes, BytesPerSecond) const override {
        return {};
    }
};

/// One collective ready to run: latency first, then an activity.
struct GroupTransfer {
    Seconds latency;      ///< of the library and of the path
    Seconds propagation;  ///< the path's part of it, where flows cross nodes
    std::vector<Demand> demands;
    std::vector<RoutedFlow> flows;  ///< between nodes; not of folded runs
    Bytes bytes;                    ///< amount of the activity: wire bytes of a rank

    /// Latency to wait before the activity starts, for a sharing model that routes flows itself or does not.
    [[nodiscard]] Seconds latency_before(bool routes_flows) const {
        return routes_flows ? latency - propagation : latency;
    }
};

/// Layout of GPUs on nodes. Throws InfeasibleError when nodes hold different numbers of them.
[[nodiscard]] GroupLayout layout_of(const Fabric& fabric, const std::vector<GpuId>& group);

/// The same with what the ranks' ports are. Throws as it.
[[nodiscard]] GroupPorts ports_of(const Fabric& fabric, const std::vector<GpuId>& group);

/// The activity of a collective over `group` (in ring order, node by node), whose flows between nodes go by `paths`; with
/// ecmp each is hashed by its ends.
/// `only_nodes`: keep the demands of these nodes alone, for folded runs; links between nodes are then
/// left out too, which Fabric::full_bisection() must have proved harmless.
[[nodiscard]] GroupTransfer make_transfer(const Fabric& fabric, const CollectiveModel& model, CollectiveOp op,
                                          const std::vector<GpuId>& group, Bytes payload, PathChoice paths,
                                          const std::vector<bool>* only_nodes = nullptr);

/// A message from one GPU to another, with what the library adds to a point-to-point transfer.
[[nodiscard]] GroupTransfer make_send(const Fabric& fabric, const CollectiveModel& model, GpuId from, GpuId to,
                                      Bytes payload, PathChoice choice, std::uint64_t hash);

/// Time that the transfer takes alone.
[[nodiscard]] Seconds seconds_alone(const Fabric& fabric, const GroupTransfer& transfer);

}  // namespace orrery::network
