#include "workloads/training/lowering.hpp"

#include <map>

namespace orrery {

namespace {

// Virtual stage v = chunk * stages + stage holds the v-th part of the model; a micro-batch visits them in order.
class PipelineLowering final : public Lowering {
  public:
    explicit PipelineLowering(const TrainingInput& input)
        : Lowering(input),
          virtual_stages_(stages_ * chunks_),
          layers_(split_layers(input.model.layers, virtual_stages_)),
          reduced_(rank_count()),
          last_backward_(rank_count(), std::vector<TaskId>(chunks_)) {
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            schedules_.push_back(input.plan.schedule->passes(input.plan.shape(), stage));
            groups_.push_back(groups(stage, width(), false));
        }
    }

  private:
    void add_tasks() override {
        price_passes();
        start_step();
        const bool gathers = in_.plan.zero >= 1;
        if (gathers && in_.plan.overlap_parameters) {
            gather_early();
        }
        add_passes();
        add_sends();
        reduce_gradients();
        if (stages_ > 1 && in_.model.tied_embeddings) {
            reduce_embeddings();
        }
        std::vector<double> totals;
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            totals.push_back(stage_parameters(stage));
        }
        finish_step(reduced_, totals);
        if (gathers && !in_.plan.overlap_parameters) {
            gather_late();
        }
    }

    [[nodiscard]] std::size_t slot(std::uint32_t member, std::uint32_t v, std::uint32_t micro_batch) const {
        return (static_cast<std::size_t>(member) * virtual_stages_ + v) * micro_batches_ + micro_batch;
    }
    [[nodiscard]] double chunk_parameters(std::uint32_t stage, std::uint32_t chunk) const {
        const std::uint32_t v = chunk * stages_ + stage;
        return parameters(layers_[v], v == 0, v + 1 == virtual_stages_);
    }
    [[nodiscard]] double stage_parameters(std::uint32_t stage) const {
        double sum = 0;
        for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
            sum += chunk_parameters(stage, chunk);
        }
        return sum;
    }

    // A chunk's layers, the tables at the ends of the model, and completing a scattered input.
    void price_passes() {
        const double gather = cost_.boundary_gather();
        for (const bool backward : {false, true}) {
            for (std::uint32_t v = 0; v < virtual_stages_; ++v) {
                const bool first = v == 0;
                const bool last = v + 1 == virtual_stages_;
                Price price = chunk_price(layers_[v], first, last, backward);
                if (virtual_stages_ > 1 && !(backward ? last : first)) {
                    price[Category::pipeline_communication] += gather;
                }
                if (stages_ > 1 && in_.software.pipeline_sync) {
                    price[Category::overhead] += std::max(0.0, host_seconds(price) - price.total());
                }
                out_.hardware_flops += price.flops * micro_batches_ / stages_;
                prices_[backward ? 1 : 0].push_back(add_price(price));
            }
        }
    }

    // Weights of the step before are gathered behind the first forward passes, chunk by chunk.
    void gather_early() {
        const std::uint16_t name = out_.graph.name("gather weights");
        gathered_.assign(rank_count(), std::vector<TaskId>(chunks_));
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
                for (const Group& group : groups_[stage]) {
                    const TaskId id = collective(group, kGatherStream, name, CollectiveOp::all_gather,
                                                 2 * chunk_parameters(stage, chunk), {});
                    for (const std::uint32_t member : group.members) {
                        gathered_[member][chunk] = id;
                    }
                }
            }
        }
    }

    void gather_late() {
        const std::uint16_t name = out_.graph.name("gather weights");
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            for (const Group& group : groups_[stage]) {
                std::vector<TaskId> after;
                after.reserve(group.members.size());
                for (const std::uint32_t member : group.members) {
                    after.push_back(out_.compute[member].back());
                }
                collective(group, kGatherStream, name, CollectiveOp::all_gather, 2 * stage_parameters(stage), after);
            }
        }
    }

    void add_passes() {
        const std::uint16_t names[2] = {out_.graph.name("forward"), out_.graph.name("backward")};
        for (std::vector<TaskId>& tasks : pass_tasks_) {
            tasks.resize(static_cast<std::size_t>(per_stage()) * virtual_stages_ * micro_batches_);
        }
        for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
            const std::uint32_t stage = rank / per_stage();
            std::vector<bool> waited(chunks_, gathered_.empty());
            for (const Pass& pass : schedules_[stage]) {
                const std::uint32_t v = pass.chunk * stages_ + stage;
                const int way = pass.backward ? 1 : 0;
                const TaskId id =
                    compute(rank, names[way], pass.backward ? Category::backward : Category::forward, prices_[way][v]);
                pass_tasks_[way][slot(rank % per_stage(), v, pass.micro_batch)] = id;
                if (pass.backward) {
                    last_backward_[rank][pass.chunk] = id;
                } else if (!waited[pass.chunk] && gathered_[rank][pass.chunk].valid()) {
                    out_.graph.add_edge(gathered_[rank][pass.chunk], id);
                    waited[pass.chunk] = true;
                }
            }
        }
    }

    // Between neighbouring virtual stages; the tasks of both ends exist by now.
    void add_sends() {
        const std::uint16_t names[2] = {out_.graph.name("send activations"), out_.graph.name("send gradients")};
        for (std::uint32_t rank = 0; stages_ > 1 && rank < rank_count(); ++rank) {
            const std::uint32_t stage = rank / per_stage();
            const std::uint32_t member = rank % per_stage();
            const std::vector<TaskId>& own = out_.compute[rank];  // own[0] is the start of the step
            for (std::size_t i = 0; i < schedules_[stage].size(); ++i) {
                const Pass& pass = schedules_[stage][i];
                const std::uint32_t v = pass.chunk * stages_ + stage;
                if (pass.backward ? v == 0 : v + 1 == virtual_stages_) {
                    continue;
                }
                const std::uint32_t next = pass.backward ? v - 1 : v + 1;
                const int way = pass.backward ? 1 : 0;
                const TaskId id = send(rank, next % stages_ * per_stage() + member, names[way]);
                out_.graph.add_edge(own[i + 1], id);
                out_.graph.add_edge(id, pass_tasks_[way][slot(member, next, pass.micro_batch)]);
                if (!in_.plan.overlap_pipeline && i + 2 < own.size()) {
                    out_.graph.add_edge(id, own[i + 2]);  // the sender waits for its send
                }
            }
        }
    }

    TaskId send(std::uint32_t from, std::uint32_t to, std::uint16_t name) {
        auto [entry, fresh] = sends_.try_emplace({from, to});
        auto& [set, planned] = entry->second;
        if (fresh) {
            planned = make_send(in_.fabric, in_.collectives, in_.placement.gpu(out_.ranks[from]),
                                in_.placement.gpu(out_.ranks[to]), Bytes(cost_.boundary_bytes()), in_.paths,
                                (static_cast<std::uint64_t>(from) << 32) | to);
            set = out_.graph.add_demands(planned.demands, ResourceModel::kUnbounded, planned.flows);
        }
        return transfer(from, kSendStream, name, Category::pipeline_communication,
                        planned.latency_before(in_.routes_flows).value(), set, planned.bytes.value());
    }

    // By chunk behind the remaining passes, or all at the end.
    void reduce_gradients() {
        const std::uint16_t name = out_.graph.name("reduce gradients");
        const CollectiveOp op = in_.plan.zero >= 1 ? CollectiveOp::reduce_scatter : CollectiveOp::all_reduce;
        const double bytes = bytes_of(in_.plan.gradient_precision);
        const auto reduce = [&](const Group& group, std::uint32_t chunk, double weights) {
            std::vector<TaskId> after;
            after.reserve(group.members.size());
            for (const std::uint32_t member : group.members) {
                after.push_back(last_backward_[member][chunk]);
            }
            const TaskId id = collective(group, kReduceStream, name, op, bytes * weights, after);
            for (const std::uint32_t member : group.members) {
                reduced_[member].push_back(id);
            }
        };
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            for (const Group& group : groups_[stage]) {
                if (!in_.plan.overlap_data) {
                    reduce(group, 0, stage_parameters(stage));  // chunk 0 is the last whose gradients are final
                    continue;
                }
                for (std::uint32_t chunk = chunks_; chunk-- > 0;) {
                    reduce(group, chunk, chunk_parameters(stage, chunk));
                }
            }
        }
    }

    // The two ends of a pipeline keep their copies of a shared embedding equal.
    void reduce_embeddings() {
        const std::uint16_t name = out_.graph.name("reduce embedding gradients");
        const double bytes = bytes_of(in_.plan.gradient_precision) * in_.model.embedding_parameters() / tensor_;
        for (std::uint32_t first = 0; first < per_stage(); ++first) {
            const std::uint32_t last = (stages_ - 1) * per_stage() + first;
            const Group group{{first, last},
                              {in_.placement.gpu(out_.ranks[first]), in_.placement.gpu(out_.ranks[last])}};
            std::vector<TaskId> after = {out_.compute[first].back(), out_.compute[last].back()};
            for (const std::uint32_t rank : group.members) {
                after.insert(after.end(), reduced_[rank].begin(), reduced_[rank].end());
            }
            const TaskId id = collective(group, kReduceStream, name, CollectiveOp::all_reduce, bytes, after);
            reduced_[first].push_back(id);
            reduced_[last].push_back(id);
        }
    }

    std::uint32_t virtual_stages_;
    std::vector<std::uint32_t> layers_;         ///< by virtual stage
    std::vector<std::vector<Pass>> schedules_;  ///< by stage
    std::vector<std::vector<Group>> groups_;    ///< by stage: who holds the same weights
    std::vector<std::uint32_t> prices_[2];      ///< forward, backward: by virtual stage
    std::vector<TaskId> pass_tasks_[2];         ///< forward, backward: by slot()
    TaskLists gathered_;                        ///< by rank and chunk; empty without early gathers
    TaskLists reduced_;
    TaskLists last_backward_;  ///< by rank and chunk
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::uint32_t, GroupTransfer>> sends_;
};

}  // namespace

TrainingGraph lower_pipeline(const TrainingInput& input) {
    return PipelineLowering(input).build();
}

}  // namespace orrery
