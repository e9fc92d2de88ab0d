#include "workloads/training/features/offload.hpp"
#include "workloads/training/features/zeroth_order.hpp"
#include "workloads/training/lowering/lower_offload.hpp"

namespace orrery::training {

namespace {

// Gathers and reductions unit by unit: first the encoder's layers, where there are some, then the embedding with the rest of the
// encoder, the layers, and the head.
class ShardedLowering final : public OffloadLowering {
  public:
    ShardedLowering(const TrainingInput& input, const NodeMemories* memory, RankCopies ranks)
        : OffloadLowering(input, memory, ranks),
          front_(static_cast<std::uint32_t>(input.model.encoder.layers)),
          units_(front_ + static_cast<std::uint32_t>(input.model.layers) + 2) {}

  private:
    void add_tasks() override {
        if (in_.plan.has<ZerothOrderPlan>()) {
            add_zeroth_order();
            return;
        }
        for (const bool backward : {false, true}) {
            for (std::uint32_t unit = 0; unit < units_; ++unit) {
                const std::uint32_t first = add_prices([&] { return full_price(unit, backward); });
                out_.hardware_flops += mean_flops(first) * micro_batches_;
                prices_[backward ? 1 : 0].push_back(first);
            }
        }
        start_step();
        begin_offload(unit_shares());
        for (std::uint32_t m = 0; m < micro_batches_; ++m) {
            sweep(m, false);
            sweep(m, true);
        }
        const RankWeights held =
            parameters(with_encoder({0, static_cast<std::uint32_t>(in_.model.layers)}), tables_of(true, true));
        if (in_.plan.has<OffloadPlan>()) {
            finish_offloaded(reduced_, updated_weights(in_.plan, held));
        } else {
            finish_step(reduced_, {held});
        }
        if (pieces() > 0) {
            gather_kept();
        }
    }

    // zeroth_order.hpp. A unit's visit is one task: its update, its perturbations and its passes.
    void add_zeroth_order() {
        start_step();
        begin_offload(unit_shares());
        TaskLists done(rank_count());
        for (std::uint32_t index = 0; index < units_; ++index) {
            const std::uint32_t price = add_prices([&] { return visit_price(index); });
            out_.hardware_flops += out_.prices[price].flops;
            TaskLabel label_of_visit;
            label_of_visit.micro_batch = 0;
            label_of_visit.layer = is_table(index) ? -1 : static_cast<std::int32_t>(layers_of(index).first);
            label(label_of_visit);
            TaskLists inputs(rank_count());
            await_weights(index, index, false, true, done, inputs);
            run("passes", Category::forward, price, inputs, done);
            store_parameters(index);
        }
        label({});
        // The difference of the losses, in 32 bits; or that of each replica, in as many as the plan says.
        const auto& steps = in_.plan.feature<ZerothOrderPlan>();
        const bool own = steps.directions == Directions::own;
        const double bytes = steps.payload() * static_cast<double>(own ? width() : 1);
        TaskLists told(rank_count());
        for (const Group& group : spans(0, 1, width())) {
            const TaskId id = collective(group, kReduceStream, out_.graph.name("exchange losses"),
                                         own ? CollectiveOp::all_gather : CollectiveOp::all_reduce, bytes,
                                         of_members(group, done, units_ - 1));
            for (const std::uint32_t member : group.members) {
                told[member].push_back(id);
            }
        }
        end_step(told);
    }

    [[nodiscard]] Price visit_price(std::uint32_t index) {
        const Unit unit = unit_of(index);
        Price price = chunk_price(layers_of(index), index == front_, index + 1 == units_, PassWork::forward) *
                      static_cast<double>(in_.plan.feature<ZerothOrderPlan>().passes());
        price += cost().zeroth_order(unit.weights.total());
        add_costs(price, 0, unit, false, true, false);
        return price;
    }

    // What the pass of a unit waits for, as number `step` of its sweep: its weights, fetched and gathered.
    void await_weights(std::uint32_t index, std::uint32_t step, bool backward, bool first_micro_batch,
                       const TaskLists& done, TaskLists& inputs) {
        const Unit unit = unit_of(index);
        fetch_parameters(index, inputs);
        if (!gathers(backward, first_micro_batch) || gathered_bytes(unit) <= 0) {
            return;
        }
        // With overlap, some gathered units ahead of the computation; without, a unit is gathered when the one before it
        // is done. What is fetched is there first.
        gather(
            0, unit, backward, first_micro_batch,
            [&](const Group& group) {
                std::vector<TaskId> after =
                    step >= ahead() ? of_members(group, done, step - ahead()) : std::vector<TaskId>();
                for (const std::uint32_t member : group.members) {
                    after.insert(after.end(), fetched(member).begin(), fetched(member).end());
                }
                return after;
            },
            inputs);
    }

    void run(const char* name, Category category, std::uint32_t price, const TaskLists& inputs, TaskLists& done) {
        for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
            const TaskId id = compute(rank, out_.graph.name(name), category, price);
            for (const TaskId input : inputs[rank]) {
                out_.graph.add_edge(input, begin_of(id));
            }
            done[rank].push_back(id);
        }
    }

    [[nodiscard]] bool is_table(std::uint32_t unit) const { return unit == front_ || unit + 1 == units_; }
    [[nodiscard]] Layers layers_of(std::uint32_t unit) const {
        if (is_table(unit)) {
            return {0, 0, 0, unit == front_ && front_ > 0};
        }
        return unit < front_ ? Layers{0, 0, 1, false} : Layers{unit - front_ - 1, 1};
    }

    [[nodiscard]] Unit unit_of(std::uint32_t unit) const {
        if (!is_table(unit)) {
            return {parameters(layers_of(unit), 0)};
        }
        return {parameters(layers_of(unit), unit > front_ && in_.model.tied_embeddings ? 0 : 1), true};
    }

    // Weights of each unit that a rank updates.
    [[nodiscard]] std::vector<double> unit_shares() const {
        std::vector<double> out;
        for (std::uint32_t unit = 0; unit < units_; ++unit) {
            out.push_back(updated_weights(in_.plan, unit_of(unit).weights));
        }
        return out;
    }

    // With what the transfers beside it and the host take.
    [[nodiscard]] Price full_price(std::uint32_t unit, bool backward) {
        Price price = chunk_price(layers_of(unit), unit == front_, unit + 1 == units_,
                                  backward ? PassWork::backward : PassWork::forward);
        add_costs(price, 0, unit_of(unit), backward, true, backward);
        return price;
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

    // One micro-batch through all units, forward or backward.
    void sweep(std::uint32_t micro_batch, bool backward) {
        TaskLists done(rank_count());       // passes of this sweep, in order
        TaskLists scattered(rank_count());  // reduction of the unit before
        // A frozen encoder's layers have no backward pass.
        const std::uint32_t steps = units_ - (backward && !in_.model.encoder.trained ? front_ : 0);
        for (std::uint32_t step = 0; step < steps; ++step) {
            const std::uint32_t index = backward ? units_ - 1 - step : step;
            const Unit unit = unit_of(index);
            label(label_of(micro_batch, index, backward));
            // Without overlap a pass waits for the reduction of the unit before it.
            TaskLists inputs = in_.plan.overlap_data ? TaskLists(rank_count()) : scattered;
            await_weights(index, step, backward, micro_batch == 0, done, inputs);
            if (backward) {
                fetch_activations(index, inputs);
            }
            run(backward ? "backward" : "forward", backward ? Category::backward : Category::forward,
                prices_[backward ? 1 : 0][index], inputs, done);
            if (!backward) {
                store_activations(index);
            } else if (unit.weights.total() > 0) {
                reduce(
                    0, unit, micro_batch + 1 == micro_batches_,
                    [&](const Group& group) { return of_members(group, done, step); }, scattered);
                store_gradients(index, micro_batch, scattered);
            }
        }
        label({});
    }

    [[nodiscard]] TaskLabel label_of(std::uint32_t micro_batch, std::uint32_t unit, bool backward) const {
        TaskLabel out;
        out.micro_batch = static_cast<std::int32_t>(micro_batch);
        const Layers layers = layers_of(unit);
        out.layer = layers.count > 0 ? static_cast<std::int32_t>(layers.first) : -1;
        out.layers = layers.count;
        out.encoder = layers.encoder;
        out.projector = layers.projector;
        out.pass = true;
        out.work = backward ? PassWork::backward : PassWork::forward;
        out.embedding = unit == front_;
        out.head = unit + 1 == units_;
        return out;
    }

    [[nodiscard]] static std::vector<TaskId> of_members(const Group& group, const TaskLists& tasks, std::size_t index) {
        std::vector<TaskId> out;
        out.reserve(group.members.size());
        for (const std::uint32_t member : group.members) {
            out.push_back(tasks[member][index]);
        }
        return out;
    }

    std::uint32_t front_;  ///< layers of the encoder, which are the first units
    std::uint32_t units_;
    std::vector<std::uint32_t> prices_[2];  ///< forward, backward: by unit
};

}  // namespace

std::optional<TrainingGraph> lower_sharded(const TrainingInput& input, const NodeMemories* memory, RankCopies ranks) {
    return ShardedLowering(input, memory, ranks).build();
}

}  // namespace orrery::training
