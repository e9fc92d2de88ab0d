#include "workloads/training/lower_offload.hpp"

#include <map>

namespace orrery::inline training {

namespace {

// Gathers and reductions unit by unit: unit 0 is the embedding, the last one the head, between them the layers.
class ShardedLowering final : public OffloadLowering {
  public:
    ShardedLowering(const TrainingInput& input, const NodeMemory* memory)
        : OffloadLowering(input, memory),
          units_(static_cast<std::uint32_t>(input.model.layers) + 2),
          shard_(input.plan.shard > 0 ? static_cast<std::uint32_t>(input.plan.shard) : width()),
          shards_(groups(0, shard_, false)),
          expert_shards_(expert_groups(0)),
          replicas_(shard_ < width() ? groups(0, shard_, true) : std::vector<Group>()),
          reduced_(rank_count()) {}

  private:
    void add_tasks() override {
        for (const bool backward : {false, true}) {
            for (std::uint32_t unit = 0; unit < units_; ++unit) {
                const std::uint32_t first = add_prices([&] { return full_price(unit, backward); });
                out_.hardware_flops += out_.prices[first].flops * micro_batches_;
                prices_[backward ? 1 : 0].push_back(first);
            }
        }
        start_step();
        begin_offload(unit_shares());
        for (std::uint32_t m = 0; m < micro_batches_; ++m) {
            sweep(m, false);
            sweep(m, true);
        }
        const RankWeights held = parameters({0, static_cast<std::uint32_t>(in_.model.layers)}, tables_of(true, true));
        if (in_.plan.offload.given) {
            finish_offloaded(reduced_, updated_weights(in_.plan, held));
        } else {
            finish_step(reduced_, {held});
        }
        if (pieces() > 0) {
            gather_kept();
        }
    }

    [[nodiscard]] bool is_table(std::uint32_t unit) const { return unit == 0 || unit + 1 == units_; }

    [[nodiscard]] RankWeights unit_weights(std::uint32_t unit) const {
        if (!is_table(unit)) {
            return weights_of(in_.model, in_.plan, mix_of(in_.model, unit - 1, 1), 0);
        }
        return weights_of(in_.model, in_.plan, {}, unit > 0 && in_.model.tied_embeddings ? 0 : 1);
    }
    [[nodiscard]] double unit_parameters(std::uint32_t unit) const { return unit_weights(unit).total(); }
    // Weights of each unit that a rank updates.
    [[nodiscard]] std::vector<double> unit_shares() const {
        std::vector<double> out;
        for (std::uint32_t unit = 0; unit < units_; ++unit) {
            out.push_back(updated_weights(in_.plan, unit_weights(unit)));
        }
        return out;
    }

    [[nodiscard]] Price unit_price(std::uint32_t unit, bool backward) const {
        return chunk_price({is_table(unit) ? 0 : unit - 1, is_table(unit) ? 0U : 1U}, unit == 0, unit + 1 == units_,
                           forward_or(backward));
    }

    // With what the transfers beside it and the host take.
    [[nodiscard]] Price full_price(std::uint32_t unit, bool backward) const {
        Price price = unit_price(unit, backward);
        if (in_.plan.overlap_data && unit_parameters(unit) > 0 && !shards_.empty()) {
            price[backward ? Category::backward : Category::forward] += lost_to(transfer_time(unit, backward), price);
        }
        price[Category::overhead] += host_time(unit, backward);
        price[Category::data_communication] += copy_time(unit, backward);
        return price;
    }

    // Host seconds of one collective over a list with a tensor for every rank: 0 where buffers are flat.
    [[nodiscard]] double pieces() const { return shard_ * in_.software.piece_time.value; }
    [[nodiscard]] bool gathers(bool backward, std::uint32_t micro_batch) const {
        return in_.plan.zero >= 3 || (micro_batch == 0 && !backward);
    }
    [[nodiscard]] double gather_rounds(bool backward) const {
        return backward && in_.software.regathers && in_.plan.recompute == Recompute::full ? 2 : 1;
    }

    // What travels while about one unit computes, alone.
    [[nodiscard]] double transfer_time(std::uint32_t unit, bool backward) const {
        const RankWeights weights = unit_weights(unit);
        double seconds = 0;
        const auto add = [&](const std::vector<Group>& alike, double held) {
            if (alike.empty() || held <= 0) {
                return;
            }
            if (in_.plan.zero >= 3) {
                seconds += seconds_of(CollectiveOp::all_gather, alike[0], 2 * gather_rounds(backward) * held);
            }
            if (backward) {
                seconds +=
                    seconds_of(CollectiveOp::reduce_scatter, alike[0], bytes_of(in_.plan.gradient_precision) * held);
            }
        };
        add(shards_, weights.dense);
        add(expert_shards_, weights.experts);
        return seconds;
    }

    // DeepSpeed waits for the device before it cuts a buffer into its list, so no kernel hides this time.
    [[nodiscard]] double host_time(std::uint32_t unit, bool backward) const {
        if (unit_parameters(unit) == 0) {
            return 0;
        }
        const auto of_layer = [&](std::int64_t count) { return is_table(unit) ? 1.0 : static_cast<double>(count); };
        const double gathered =
            in_.plan.zero >= 3 ? gather_rounds(backward) * of_layer(in_.software.gathers_per_layer) : 0;
        return pieces() * (gathered + (backward ? of_layer(in_.software.reductions_per_layer) : 0));
    }

    // Weights of 16 bits out of the buffer that they were gathered into, gradients of 16 bits into the one that is reduced.
    [[nodiscard]] double copy_time(std::uint32_t unit, bool backward) const {
        double bytes = 0;
        if (in_.software.unpacks_gathers && in_.plan.zero >= 3) {
            bytes += 4 * gather_rounds(backward);
        }
        if (in_.software.packs_gradients && backward) {
            bytes += 2 + bytes_of(in_.plan.gradient_precision);
        }
        const double moved = bytes * unit_parameters(unit);
        return moved > 0 ? in_.software.kernel_slowdown.value * cost().memory_traffic(moved) : 0;
    }

    // Tensors too small to be sharded in the passes (norms, biases) are gathered once a step, in pieces as well.
    void gather_kept() {
        const double kept = static_cast<double>(in_.model.layers) *
                            static_cast<double>(in_.software.reductions_per_layer - in_.software.gathers_per_layer);
        Price price;
        price[Category::overhead] = std::max(0.0, kept) * pieces();
        const std::uint32_t index = add_prices([&] { return price; });
        for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
            compute(rank, out_.graph.name("gather kept weights"), Category::overhead, index);
        }
    }

    // A transfer of each group, operation and size is planned once. A list is copied piece by piece from or to the flat
    // buffer that the library needs (read and written), and a gather's buffer is cleared first.
    TaskId launch(const Group& group, std::uint8_t stream, const char* name, CollectiveOp op, double bytes,
                  std::int64_t collectives, const std::vector<TaskId>& after) {
        auto [entry, fresh] = planned_.try_emplace({group.gpus[0].value(), {static_cast<int>(op), bytes}});
        auto& [set, planned] = entry->second;
        if (fresh) {
            planned = plan_transfer(op, group, bytes);
            planned.latency = planned.latency * static_cast<double>(collectives);
            if (pieces() > 0 && op != CollectiveOp::all_reduce) {
                const double copies = op == CollectiveOp::all_gather ? 3 : 2;
                planned.latency = planned.latency + Seconds(cost().memory_traffic(copies * bytes));
            }
            set = out_.graph.add_demands(planned.demands, ResourceModel::kUnbounded, planned.flows);
        }
        return collective(group, stream, out_.graph.name(name), planned, set, after);
    }

    // One micro-batch through all units, forward or backward.
    void sweep(std::uint32_t micro_batch, bool backward) {
        const std::uint16_t name = out_.graph.name(backward ? "backward" : "forward");
        TaskLists done(rank_count());       // passes of this sweep, in order
        TaskLists scattered(rank_count());  // reduction of the unit before
        for (std::uint32_t step = 0; step < units_; ++step) {
            const std::uint32_t unit = backward ? units_ - 1 - step : step;
            // Without overlap a pass waits for the reduction of the unit before it.
            TaskLists inputs = in_.plan.overlap_data ? TaskLists(rank_count()) : scattered;
            fetch_parameters(unit, inputs);
            if (gathers(backward, micro_batch) && unit_parameters(unit) > 0) {
                gather(unit, step, gather_rounds(backward), done, inputs);
            }
            if (backward) {
                fetch_activations(unit, inputs);
            }
            for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
                const TaskId id = compute(rank, name, backward ? Category::backward : Category::forward,
                                          prices_[backward ? 1 : 0][unit]);
                for (const TaskId input : inputs[rank]) {
                    out_.graph.add_edge(input, id);
                }
                done[rank].push_back(id);
            }
            if (!backward) {
                store_activations(unit);
            } else if (unit_parameters(unit) > 0) {
                reduce(unit, step, micro_batch + 1 == micro_batches_, done, scattered);
                store_gradients(unit, micro_batch, scattered);
            }
        }
    }

    [[nodiscard]] static std::vector<TaskId> of_members(const Group& group, const TaskLists& tasks, std::size_t index) {
        std::vector<TaskId> out;
        out.reserve(group.members.size());
        for (const std::uint32_t member : group.members) {
            out.push_back(tasks[member][index]);
        }
        return out;
    }

    // With overlap, at most two gathered units ahead of the computation (rate limiter of FSDP); without, a unit is
    // gathered when the one before it is done.
    void gather(std::uint32_t unit, std::uint32_t step, double rounds, const TaskLists& done, TaskLists& inputs) {
        const std::uint32_t ahead = in_.plan.overlap_data ? 2 : 1;
        const RankWeights weights = unit_weights(unit);
        const auto launch_one = [&](const Group& group, double held) {
            std::vector<TaskId> after = step >= ahead ? of_members(group, done, step - ahead) : std::vector<TaskId>();
            for (const std::uint32_t member : group.members) {
                after.insert(after.end(), fetched(member).begin(), fetched(member).end());
            }
            const TaskId id =
                launch(group, kGatherStream, "gather weights", CollectiveOp::all_gather, 2 * rounds * held,
                       static_cast<std::int64_t>(rounds) * in_.software.gathers_per_layer, after);
            for (const std::uint32_t member : group.members) {
                inputs[member].push_back(id);
            }
        };
        for (const Group& group : shards_) {
            launch_one(group, weights.dense);
        }
        for (std::size_t i = 0; weights.experts > 0 && i < expert_shards_.size(); ++i) {
            launch_one(expert_shards_[i], weights.experts);
        }
    }

    // Over the shards after every micro-batch, over their replicas after the last one.
    void reduce(std::uint32_t unit, std::uint32_t step, bool last, const TaskLists& done, TaskLists& scattered) {
        const RankWeights weights = unit_weights(unit);
        const double bytes = bytes_of(in_.plan.gradient_precision) * weights.dense;
        const auto launch_one = [&](const Group& group, double held, bool first) {
            const TaskId id = launch(group, kReduceStream, "reduce gradients", CollectiveOp::reduce_scatter,
                                     bytes_of(in_.plan.gradient_precision) * held, in_.software.reductions_per_layer,
                                     of_members(group, done, step));
            for (const std::uint32_t member : group.members) {
                if (first) {
                    scattered[member].clear();
                }
                scattered[member].push_back(id);
                if (last) {
                    reduced_[member].push_back(id);
                }
            }
        };
        for (const Group& group : shards_) {
            launch_one(group, weights.dense, true);
        }
        for (std::size_t i = 0; weights.experts > 0 && i < expert_shards_.size(); ++i) {
            launch_one(expert_shards_[i], weights.experts, false);
        }
        for (const Group& group : replicas_) {
            if (!last) {
                break;
            }
            const TaskId id =
                launch(group, kReduceStream, "reduce over replicas", CollectiveOp::all_reduce, bytes / shard_,
                       in_.software.reductions_per_layer, of_members(group, scattered, 0));
            for (const std::uint32_t member : group.members) {
                reduced_[member].push_back(id);
            }
        }
    }

    std::uint32_t units_;
    std::uint32_t shard_;  ///< ranks that share the weights
    std::vector<Group> shards_;
    std::vector<Group> expert_shards_;  ///< ranks that hold the same experts and share these
    std::vector<Group> replicas_;
    std::vector<std::uint32_t> prices_[2];  ///< forward, backward: by unit
    TaskLists reduced_;
    std::map<std::pair<std::uint32_t, std::pair<int, double>>, std::pair<std::uint32_t, GroupTransfer>> planned_;
};

}  // namespace

TrainingGraph lower_sharded(const TrainingInput& input, const NodeMemory* memory) {
    return ShardedLowering(input, memory).build();
}

}  // namespace orrery::inline training
