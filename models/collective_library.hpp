#pragma once
// A library of collectives as measured: the time beyond what the links alone take.
//
// Claims: inside one node the fitted pieces of models/collective_fit, so algorithm switches (NVLS, trees, LL protocols)
// appear where the library makes them. Across nodes: a fixed time, a latency for each step of the ring, and a fraction of the
// NICs' rate. Serving engines bring an all-reduce of their own (one- and two-shot over peer memory); all else is NCCL.
// Scope: NVLink 3 to 5 with NVSwitch, PCIe 4 and 5; xGMI nodes use the NVLink 3 fit scaled to their bandwidth.
// Limits: one version of each library a generation; trees across nodes are not told from rings (large messages are what training
// sends); small messages across nodes carry the largest error.
// Sources: header lines of models/data/collectives/*.fit; across nodes models/data/collectives/across_nodes.yaml.
// Validated by `orrery validate collectives`, which prints the error by system.

#include "models/collective_fit.hpp"
#include "sim/config/fields.hpp"
#include "sim/network/collective.hpp"

#include <memory>
#include <string>

namespace orrery::inline cost {

/// Constants of collectives between nodes; see models/data/collectives/across_nodes.yaml for their fit.
struct AcrossNodes {
    Sourced<double> latency;          ///< s, start of a collective
    Sourced<double> step_latency;     ///< s, a step of the ring
    Sourced<double> efficiency;       ///< of the NICs' rate
    Sourced<double> send_latency;     ///< s, a point-to-point message
    Sourced<double> send_efficiency;  ///< of one NIC's rate that it reaches
};
void describe(Fields& fields, AcrossNodes& across);

class MeasuredCollectives final : public CollectiveModel {
  public:
    /// `library`: whose curves to use where it has any; NCCL's otherwise. Precondition: `fit` has NCCL's all-reduce, all-gather,
    /// reduce-scatter and all-to-all.
    MeasuredCollectives(CollectiveFit fit, std::string library, const AcrossNodes& across)
        : across_(across), fit_(std::move(fit)), library_(std::move(library)) {}
    [[nodiscard]] CollectivePrice price(CollectiveOp op, const GroupLayout& layout, Bytes payload,
                                        BytesPerSecond intra_bandwidth) const override;

  private:
    [[nodiscard]] double time_in_node(CollectiveOp op, double ranks, double bytes, double bandwidth) const;

    AcrossNodes across_;
    CollectiveFit fit_;
    std::string library_;
};

/// `library` ("nccl", "vllm", "sglang", "trtllm") on an interconnect: the name of a fit in models/data/collectives. Throws ConfigError
/// for an unknown interconnect, with the nearest name.
[[nodiscard]] std::unique_ptr<CollectiveModel> make_collectives(const std::string& interconnect,
                                                                const std::string& library, const DataDirectory& data);

}  // namespace orrery::inline cost
