#pragma once
// Experts on the ranks of a stage: how unequal their loads are, and what exchanging tokens with them takes.
//
// Claims: attention's ranks of a stage (tensor fastest, then context, data) are divided anew for experts: expert-tensor ranks
// are neighbours, then expert ranks, then those that hold the same experts (parallel folding). All groups exchange at
// once, so links that several groups cross carry all of them (sim/network/concurrent_groups.hpp). The slowest rank, with the most wanted experts, decides.
//   all-to-all: each rank sends every token once for each of its choices;
//   all-gather: each rank gets every token of the group, and results are reduced and scattered;
//   hierarchical: every token goes once to each node that has one of its experts, over the NIC of its own rail, and from there
//   once to each GPU of that node that has one, by NVLink; the two go on side by side, so the slower one decides.
// Values of 8 bits and less bring a scale of 8 bits for each 32 of them, or of 32 bits for 128, which is as much.
// How many nodes and GPUs a token reaches is the mean over choices without repetition, evenly over experts or, where a router
// is limited to groups of experts, over those of the chosen groups.
// Shadowed experts (He et al., "FasterMoE", PPoPP 2022; Hecate, arXiv:2502.02581): every rank of an expert group gathers the weights of
// the most wanted ones, computes them for its own tokens, and their gradients are summed where they belong.
// Scope: loads are those of a layer, the same in all layers. Experts that are chosen more often are dealt out to the ranks in turn.
// Limits: what a dropless layer waits for its host is a constant of the software (expert_wait); capacities are per expert and micro-batch.
// Sources: Liu et al., "MoE Parallel Folding", arXiv:2504.14960, sections 3 and 4; DeepSeek-V3, arXiv:2412.19437, section 3.2.2
// and DeepEP (hierarchical dispatch); Lepikhin et al., "GShard", arXiv:2006.16668, section 2.2 (capacity).
// Validated by tests/workloads/experts_test.cpp: bytes of every mode, folded = unfolded.

#include "sim/network/concurrent_groups.hpp"
#include "workloads/training/plan/rank_groups.hpp"
#include "workloads/training/plan/spec.hpp"

namespace orrery::training {

/// Over the mean of all choices, had each expert as many.
struct ExpertLoad {
    double hottest = 1;  ///< rows of the rank with the most
    double kept = 1;     ///< rows that are sent, of all ranks together
};
[[nodiscard]] ExpertLoad load_of(const ExpertsSpec& experts, const PlanSpec& plan);

/// Rows that the busiest rank's experts compute, where each rank of attention has `tokens` of its own.
[[nodiscard]] double expert_rows(const ExpertsSpec& experts, const PlanSpec& plan, double tokens,
                                 const ExpertLoad& load);

/// The exchanges of one layer's tokens with their experts.
class ExpertExchange {
  public:
    /// Of the experts' group of the first rank of the replica that `ranks` price.
    ExpertExchange(const ModelSpec& model, const PlanSpec& plan, const CollectiveModel& collectives,
                   const RankGroups& ranks);

    /// Seconds in which the stage's ranks, with `tokens` each, send them to experts in `precision`, or get back what these make.
    [[nodiscard]] double dispatch(double tokens, Precision precision) const;
    [[nodiscard]] double combine(double tokens, Precision precision) const;
    /// Seconds in which ranks gather so many bytes of weights that they have shares of, or sum and scatter their gradients.
    [[nodiscard]] double gather(double bytes) const { return seconds(CollectiveOp::all_gather, expert_groups_, bytes); }
    [[nodiscard]] double scatter(double bytes) const {
        return seconds(CollectiveOp::reduce_scatter, expert_groups_, bytes);
    }
    /// Bytes that a rank sends over all its links (all-to-all, all-gather), or over its NIC and over NVLink.
    struct Sent {
        double across = 0;  ///< between nodes; of the modes with one step: all
        double inside = 0;
    };
    [[nodiscard]] Sent bytes_sent(double tokens, Precision precision) const;
    /// Tokens that a rank sends to other nodes, once for each node (hierarchical), choice or rank.
    [[nodiscard]] double tokens_sent(double tokens) const {
        return bytes_sent(tokens, Precision::bf16).across / token_bytes(Precision::bf16);
    }
    /// Bytes of its main memory that a rank reads to send them and writes as it receives.
    [[nodiscard]] double memory_bytes(double tokens, Precision precision) const {
        const Sent sent = bytes_sent(tokens, precision);
        return 2 * (sent.across + sent.inside);
    }

  private:
    void add_groups(const RankGroups& ranks);
    [[nodiscard]] double exchange(double tokens, Precision precision, bool back) const;
    [[nodiscard]] double token_bytes(Precision precision) const;
    [[nodiscard]] double seconds(CollectiveOp op, const ConcurrentGroups& groups, double payload) const {
        return groups.seconds(collectives_, op, Bytes(payload)).value();
    }

    const ModelSpec& model_;
    const PlanSpec& plan_;
    const CollectiveModel& collectives_;
    ExpertLoad load_;
    ConcurrentGroups expert_groups_;  ///< ranks among which a layer's experts are divided
    ConcurrentGroups tensor_groups_;  ///< ranks among which an expert is cut
    ConcurrentGroups whole_groups_;   ///< both
    ConcurrentGroups rails_, nodes_;  ///< of expert groups: equal places on their nodes, and those of one node
};

}  // namespace orrery::training
