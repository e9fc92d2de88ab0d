#pragma once
// NCCL as measured: the time of collectives beyond what the links alone take.
//
// Claims: inside one node the time of (operation, ranks, bytes) is interpolated in log2 from a measured table as a
// correction of latency + wire/bandwidth, so algorithm switches (NVLS, trees, LL protocols) appear where the library
// makes them. Across nodes: a fixed time, a latency for each step of the ring, and a fraction of the NICs' rate.
// Scope: NVLink 3 to 5 with NVSwitch; xGMI and PCIe nodes use the NVLink 3 table scaled to their bandwidth.
// Limits: one NCCL version a generation; trees across nodes are not told from rings (large messages are what training
// sends); small messages across nodes carry the largest error.
// Sources: header lines of models/data/collectives/*.csv; across nodes models/data/collectives/across_nodes.yaml.
// Validated by `orrery validate collectives`, which prints the error by system.

#include "models/residual_grid.hpp"
#include "sim/config/fields.hpp"
#include "sim/network/collective.hpp"

#include <memory>

namespace orrery {

/// Constants of collectives between nodes; see models/data/collectives/across_nodes.yaml for their fit.
struct AcrossNodes {
    Sourced<double> latency;          ///< s, start of a collective
    Sourced<double> step_latency;     ///< s, a step of the ring
    Sourced<double> efficiency;       ///< of the NICs' rate
    Sourced<double> send_latency;     ///< s, a point-to-point message
    Sourced<double> send_efficiency;  ///< of one NIC's rate that it reaches
};
void describe(Fields& fields, AcrossNodes& across);

class NcclModel final : public CollectiveModel {
  public:
    /// `table`: path of the CSV; `reference_bandwidth`: B/s a GPU of the system it was measured on.
    NcclModel(const std::string& table, double reference_bandwidth, const AcrossNodes& across);
    [[nodiscard]] CollectivePrice price(CollectiveOp op, const GroupLayout& layout, Bytes payload,
                                        BytesPerSecond intra_bandwidth) const override;

  private:
    [[nodiscard]] double time_in_node(CollectiveOp op, double ranks, double bytes, double bandwidth) const;

    AcrossNodes across_;
    ResidualGrid grid_;
};

/// The library for an interconnect: "nvlink3", "nvlink4" or "nvlink5". Reads its constants from `directory`.
[[nodiscard]] std::unique_ptr<CollectiveModel> make_nccl(const std::string& generation, const DataDirectory& data);

}  // namespace orrery
