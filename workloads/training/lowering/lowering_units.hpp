#pragma once
// Units of weights that are gathered before their passes and whose gradients are reduced behind them: layers and tables under
// ZeRO-2 and 3. Internal to workloads/training.
//
// Claims: weights, gradients and optimizer states are each shared by neighbours of a number of their own (PlanSpec::sharding). A
// unit's weights are gathered among the ranks that share them, for backward passes among those that share the second copy where there
// is one; its gradients are reduced among theirs after every micro-batch, and after the last one on towards the ranks that share the
// optimizer states, who gather the new weights behind the first forward passes. Quantised gradients go by all-to-all, inside nodes
// first and then between them, rounded anew for each (ZeRO++, section 3.3), and what rounds and adds them is memory traffic.
// Limits: kernels that add up between the two exchanges are booked with the pass before.

#include "workloads/training/features/sharding.hpp"
#include "workloads/training/lowering/lowering.hpp"

#include <map>
#include <tuple>

namespace orrery::training {

class UnitLowering : public Lowering {
  protected:
    UnitLowering(const TrainingInput& input, RankCopies ranks);

    struct Unit {
        RankWeights weights;
        bool table = false;  ///< of the vocabulary: one tensor
    };

    /// Weights or gradients move unit by unit, and not all of a pass at once.
    [[nodiscard]] bool by_unit() const { return in_.plan.zero == 3 || in_.plan.by_layer(); }
    [[nodiscard]] bool gathers(bool backward, bool first_micro_batch) const {
        return in_.plan.zero >= 3 || (first_micro_batch && !backward);
    }
    /// B that bring a unit's weights to a rank: frozen ones as they are held, where ranks share them.
    [[nodiscard]] double gathered_bytes(const Unit& unit) const {
        return weight_wire_bytes(in_.plan) * unit.weights.dense + (in_.plan.zero >= 3 ? unit.weights.frozen : 0);
    }
    /// What transfers beside a unit's pass and the host take of it, and what rounds and copies its weights and gradients.
    /// `gathered`: its weights are; `reduced`: its gradients are.
    void add_costs(Price& price, std::uint32_t stage, const Unit& unit, bool backward, bool gathered, bool reduced);
    /// The weights of a unit to all ranks of a stage. `after`: by member of each group; `inputs`: takes what its passes wait for.
    template <class After>
    void gather(std::uint32_t stage, const Unit& unit, bool backward, bool first_micro_batch, const After& after,
                TaskLists& inputs);
    /// Its gradients, of one micro-batch. `after`: as above; `scattered`: takes what a next pass waits for without overlap.
    template <class After>
    void reduce(std::uint32_t stage, const Unit& unit, bool last_micro_batch, const After& after, TaskLists& scattered);
    /// Units that may be gathered ahead.
    [[nodiscard]] std::uint32_t ahead() const {
        return in_.plan.overlap_data ? static_cast<std::uint32_t>(gathered_layers(in_.plan)) : 1;
    }
    /// Host seconds of one collective over a list with a tensor for every rank: 0 where buffers are flat.
    [[nodiscard]] double pieces() const { return share_ * in_.software.piece_time.value; }

    TaskLists reduced_;  ///< by simulated rank: what the norm of gradients waits for

  private:
    /// Who exchanges what in a stage.
    struct StageGroups {
        std::vector<Group> weights;
        std::vector<Group> second;   ///< for backward passes; as `weights` without a second copy
        std::vector<Group> scatter;  ///< of gradients; of quantised ones inside a node
        std::vector<Group> between;  ///< of quantised ones, the places of nodes in that
        std::vector<Group> states;   ///< that share the optimizer states of one share of gradients
        std::vector<Group> replicas;
        std::vector<Group> updates;  ///< that share the optimizer states of one share of weights
        std::vector<Group> experts;
    };
    [[nodiscard]] bool quantises() const { return in_.plan.feature<ShardingPlan>().gradient_bits > 0; }
    [[nodiscard]] double rounds(bool backward) const {
        const bool again = backward && in_.software.regathers && in_.plan.recompute == Recompute::full;
        return again ? 1 + in_.plan.recomputed(static_cast<double>(in_.model.layers)) : 1;
    }
    [[nodiscard]] Alone transfers_of(std::uint32_t stage, const Unit& unit, bool backward, bool reduced) const;
    [[nodiscard]] double host_time(const Unit& unit, bool backward, bool reduced) const;
    [[nodiscard]] double copy_time(const Unit& unit, bool backward, bool gathered, bool reduced) const;
    [[nodiscard]] double quantise_traffic(const Unit& unit, bool backward, bool gathered, bool reduced) const;
    TaskId launch(const Group& group, std::uint8_t stream, const char* name, CollectiveOp op, double bytes,
                  std::int64_t collectives, const std::vector<TaskId>& after);
    [[nodiscard]] static std::vector<TaskId> all_of(const Group& group, const TaskLists& tasks);

    std::uint32_t share_;  ///< ranks that share the weights or, where all have them, the gradients
    std::uint32_t scatter_, states_, first_hop_;
    std::vector<StageGroups> stages_of_;
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::size_t, int, double>,
             std::pair<std::uint32_t, GroupTransfer>>
        planned_;
};

template <class After>
void UnitLowering::gather(std::uint32_t stage, const Unit& unit, bool backward, bool first_micro_batch,
                          const After& after, TaskLists& inputs) {
    const StageGroups& groups = stages_of_[stage];
    static const std::vector<Group> kNobody;
    const auto launch_all = [&](const std::vector<Group>& all, const char* name, double bytes, double times) {
        for (const Group& group : bytes > 0 ? all : kNobody) {
            const TaskId id = launch(group, kGatherStream, name, CollectiveOp::all_gather, bytes,
                                     static_cast<std::int64_t>(times) * in_.software.gathers_per_layer, after(group));
            for (const std::uint32_t member : group.members) {
                inputs[member].push_back(id);
            }
        }
    };
    if (first_micro_batch && !backward) {
        // The shares of the weights that others have brought up to date.
        launch_all(groups.updates, "gather new weights", 2 * unit.weights.dense / share_, 1);
    }
    const double times = rounds(backward);
    launch_all(backward ? groups.second : groups.weights, "gather weights", times * gathered_bytes(unit), times);
    if (unit.weights.experts > 0) {
        launch_all(groups.experts, "gather weights", 2 * times * unit.weights.experts, times);
    }
}

template <class After>
void UnitLowering::reduce(std::uint32_t stage, const Unit& unit, bool last_micro_batch, const After& after,
                          TaskLists& scattered) {
    if (unit.weights.total() == 0) {
        return;  // all of it is frozen
    }
    const StageGroups& groups = stages_of_[stage];
    const double wire = gradient_wire_bytes(in_.plan);
    const auto launch_all = [&](const std::vector<Group>& all, const char* name, CollectiveOp op, double bytes,
                                bool first, const auto& behind) {
        for (const Group& group : all) {
            const TaskId id =
                launch(group, kReduceStream, name, op, bytes, in_.software.reductions_per_layer, behind(group));
            for (const std::uint32_t member : group.members) {
                if (first) {
                    scattered[member].clear();
                }
                scattered[member].push_back(id);
                if (last_micro_batch) {
                    reduced_[member].push_back(id);
                }
            }
        }
    };
    const auto behind_scatter = [&](const Group& group) {
        return groups.scatter.empty() ? after(group) : all_of(group, scattered);
    };
    launch_all(groups.scatter, "reduce gradients",
               quantises() ? CollectiveOp::all_to_all : CollectiveOp::reduce_scatter, wire * unit.weights.dense, true,
               after);
    launch_all(groups.between, "reduce gradients", CollectiveOp::all_to_all, wire * unit.weights.dense / first_hop_,
               false, behind_scatter);
    if (unit.weights.experts > 0) {
        launch_all(groups.experts, "reduce gradients", CollectiveOp::reduce_scatter,
                   bytes_of(in_.plan.gradient_precision) * unit.weights.experts, false, after);
    }
    if (!last_micro_batch) {
        return;
    }
    // In the gradients' own precision on towards the optimizer states, and over the ranks that hold the same.
    const double bytes = bytes_of(in_.plan.gradient_precision) * unit.weights.dense;
    for (const auto& [all, op, share] : {std::tuple{&groups.states, CollectiveOp::reduce_scatter, scatter_},
                                         {&groups.replicas, CollectiveOp::all_reduce, states_}}) {
        for (const Group& group : *all) {
            const TaskId id = launch(group, kReduceStream, "reduce over replicas", op, bytes / share,
                                     in_.software.reductions_per_layer, behind_scatter(group));
            for (const std::uint32_t member : group.members) {
                reduced_[member].push_back(id);
            }
        }
    }
}

}  // namespace orrery::training
