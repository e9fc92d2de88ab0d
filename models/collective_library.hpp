#pragma once
// A library of collectives as measured: the time beyond what the links alone take.
//
// Claims: inside one node the fitted pieces of models/collective_fit, so algorithm switches (NVLS, trees, LL protocols)
// appear where the library makes them; an operation without a curve takes its share of the all-reduce's time by what it sends (a
// ring all-reduce is a reduce-scatter and an all-gather). Between nodes, of the time x that a ring's bytes take on the NICs of a
// node: latency + steps x step_latency + level_latency x log2(nodes) + fill x nodes x / (x + ramp x nodes) + x / efficiency. The fill is
// the pipeline of rings and trees, whose chunks and channels grow with the message until they are all in use.
// Where a tree is known beside the ring, an all-reduce takes the faster: 2 x ((GPUs of a node - 1) x tree_inside + log2(nodes) x
// tree_level) + x in place of the ring's steps: trees send small messages in chunks as large as they are, so that
// filling them takes up to another x.
// All-gathers and reduce-scatters have the ring alone in NCCL (trees came for one GPU a node with 2.23), so that they may pay for each of
// its steps: ring_latency x steps + ring_fill x steps x x / (x + ramp x nodes).
// Serving engines bring an all-reduce of their own (one- and two-shot over peer memory); all else is NCCL, or RCCL.
// Scope: NVLink 3 to 5 with NVSwitch, PCIe 4 and 5, xGMI meshes; InfiniBand, RoCE, EFA, Slingshot between nodes.
// Limits: one version of each library a generation; where a library picks a slow algorithm for some sizes (NCCL on Slingshot), the
// curve goes through the middle; small messages between nodes carry the largest error.
// Sources: header lines of models/data/collectives/*.fit; between nodes models/data/collectives/between/*.yaml.
// Validated by `orrery validate collectives`, which prints the error by system.

#include "models/collective_fit.hpp"
#include "sim/config/fields.hpp"
#include "sim/network/collective.hpp"

#include <memory>
#include <string>

namespace orrery::models {

/// Constants of collectives between nodes; see models/data/collectives/between for their fits.
struct BetweenNodes {
    Sourced<double> latency;        ///< s, start of a collective
    Sourced<double> step_latency;   ///< s, a step of the ring
    Sourced<double> level_latency;  ///< s, for each doubling of the nodes, of an all-reduce; of the others half
    Sourced<double> tree_inside;    ///< s, each further GPU of a node on a tree, there and back each
    Sourced<double> tree_level;     ///< s, each doubling of the nodes, there and back each; 0: no tree is known
    Sourced<double> fill;           ///< s a node: by how much the largest messages are later for the ramp
    Sourced<double> ramp;           ///< s a node on the wire until half of that is lost
    bool exchange = false;       ///< two nodes exchange the payload once, by trees, where a ring sends it almost twice
    Sourced<double> efficiency;  ///< of the NICs' rate
    Sourced<double> ring_latency;     ///< s, a step of those operations that have a ring and no tree
    Sourced<double> ring_fill;        ///< s per step of theirs: by how much the largest messages are later for the ramp
    Sourced<double> send_latency;     ///< s, a point-to-point message
    Sourced<double> send_efficiency;  ///< of one NIC's rate that it reaches
};
void describe(Fields& fields, BetweenNodes& between);

class MeasuredCollectives final : public CollectiveModel {
  public:
    /// `library`: whose curves to use where it has any; NCCL's or RCCL's otherwise. Precondition: `fit` has that one's all-reduce.
    MeasuredCollectives(CollectiveFit fit, std::string library, const BetweenNodes& between);
    [[nodiscard]] CollectivePrice price(CollectiveOp op, const GroupLayout& layout, Bytes payload,
                                        BytesPerSecond intra_bandwidth) const override;

  private:
    [[nodiscard]] double time_in_node(CollectiveOp op, double ranks, double bytes, double bandwidth) const;

    BetweenNodes between_;
    CollectiveFit fit_;
    std::string library_;
    std::string vendor_;  ///< whose curves stand in for those that the library lacks
};

/// `library` ("nccl", "vllm", "sglang", "trtllm") on an interconnect: the name of a fit in models/data/collectives, and of constants
/// in its folder `between`. Throws ConfigError for an unknown name, with the nearest.
[[nodiscard]] std::unique_ptr<CollectiveModel> make_collectives(const std::string& interconnect,
                                                                const std::string& library, const DataDirectory& data,
                                                                const std::string& between = "infiniband");

}  // namespace orrery::models
