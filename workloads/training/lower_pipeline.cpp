#include "workloads/training/lowering.hpp"

#include <cmath>
#include <map>

namespace orrery::inline training {

namespace {

// Virtual stage v = chunk * stages + stage holds the v-th part of the model; a micro-batch visits them in order.
class PipelineLowering final : public Lowering {
  public:
    explicit PipelineLowering(const TrainingInput& input)
        : Lowering(input),
          virtual_stages_(stages_ * chunks_),
          works_(input.plan.schedule->splits
                     ? std::vector<Work>{Work::forward, Work::input_gradient, Work::weight_gradient}
                     : std::vector<Work>{Work::forward, Work::backward}),
          reduced_(rank_count()) {
        std::uint32_t first = 0;
        for (const std::uint32_t count : split_layers(input.model.layers, virtual_stages_)) {
            layers_.push_back({first, count});
            first += count;
        }
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            schedules_.push_back(input.plan.schedule->passes(input.plan.shape(), stage));
            groups_.push_back(groups(stage, width(), false));
            expert_groups_.push_back(expert_groups(stage));
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
        std::vector<RankWeights> totals;
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            totals.push_back(stage_parameters(stage));
        }
        finish_step(reduced_, totals);
        if (gathers && !in_.plan.overlap_parameters) {
            gather_late();
        }
    }

    /// Layers of a chunk whose weights and gradients travel together.
    struct Bucket {
        std::uint32_t price;  ///< of their part of the pass
        RankWeights weights;
    };

    /// Index of what a pass does in works_ and prices_.
    [[nodiscard]] static std::size_t way_of(const Pass& pass) {
        return static_cast<std::size_t>(pass.backward) + static_cast<std::size_t>(pass.weights);
    }
    [[nodiscard]] std::size_t slot(std::uint32_t member, std::uint32_t v, std::uint32_t micro_batch) const {
        return (static_cast<std::size_t>(member) * virtual_stages_ + v) * micro_batches_ + micro_batch;
    }
    [[nodiscard]] RankWeights chunk_parameters(std::uint32_t stage, std::uint32_t chunk) const {
        const std::uint32_t v = chunk * stages_ + stage;
        return parameters(layers_[v], v == 0, v + 1 == virtual_stages_);
    }
    [[nodiscard]] RankWeights stage_parameters(std::uint32_t stage) const {
        RankWeights sum;
        for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
            sum += chunk_parameters(stage, chunk);
        }
        return sum;
    }

    // A chunk's layers, the tables at the ends of the model, and completing a scattered input.
    void price_passes() {
        for (std::size_t way = 0; way < works_.size(); ++way) {
            for (std::uint32_t v = 0; v < virtual_stages_; ++v) {
                const Price price = pass_price(v, layers_[v], true, true, works_[way]);
                out_.hardware_flops += price.flops * micro_batches_ / stages_;
                prices_[way].push_back(add_price(price));
            }
        }
        for (std::uint32_t v = 0; v < virtual_stages_; ++v) {
            buckets_[0].push_back(buckets_of(v, false));
            buckets_[1].push_back(buckets_of(v, true));
        }
    }

    // Some of the layers of a chunk, in the order of their pass: with what comes before the first and after the last.
    [[nodiscard]] Price pass_price(std::uint32_t v, Layers layers, bool begins, bool ends, Work work) {
        const bool backward = work != Work::forward;
        const bool first = v == 0 && (backward ? ends : begins);
        const bool last = v + 1 == virtual_stages_ && (backward ? begins : ends);
        Price price = chunk_price(layers, first, last, work);
        if (begins && virtual_stages_ > 1 && work != Work::weight_gradient && !(backward ? last : first)) {
            price[Category::pipeline_communication] += cost_.boundary_gather();
        }
        if (stages_ > 1 && in_.software.pipeline_sync) {
            price[Category::overhead] += std::max(0.0, host_seconds(price) - price.total());
        }
        return price;
    }

    // The first or the last pass of a chunk in the pieces whose weights travel together: gradients leave as soon as those of a bucket are final, and the
    // first forward pass waits for the weights of its next layers alone.
    [[nodiscard]] std::vector<Bucket> buckets_of(std::uint32_t v, bool backward) {
        const bool first = v == 0;
        const bool last = v + 1 == virtual_stages_;
        const RankWeights weights = parameters(layers_[v], first, last);
        const double least = std::ceil(weights.total() / in_.software.bucket_weights(static_cast<double>(width())));
        const bool hidden = backward ? in_.plan.overlap_data : in_.plan.overlap_parameters && in_.plan.zero >= 1;
        const auto most = static_cast<double>(std::max(1U, layers_[v].count));
        const auto count = static_cast<std::uint32_t>(hidden && width() > 1 ? std::clamp(least, 1.0, most) : 1.0);
        std::vector<Bucket> out;
        for (std::uint32_t i = 0; i < count; ++i) {
            const std::uint32_t all = layers_[v].count;
            const std::uint32_t before = all * i / count;
            Layers layers{layers_[v].first + before, all * (i + 1) / count - before};
            if (backward) {
                layers.first = layers_[v].first + all - before - layers.count;
            }
            const bool begins = i == 0;
            const bool ends = i + 1 == count;
            const RankWeights held = count == 1 ? weights
                                                : parameters(layers, first && (backward ? ends : begins),
                                                             last && (backward ? begins : ends));
            std::uint32_t price = (backward ? prices_[works_.size() - 1] : prices_[0])[v];
            if (count > 1) {
                Price part = pass_price(v, layers, begins, ends, backward ? works_.back() : Work::forward);
                // Beside a piece of the backward pass the gradients of the one before travel, beside one of the forward pass
                // the weights of the next.
                if (backward ? !begins : !ends) {
                    part[backward ? Category::backward : Category::forward] +=
                        lost_to(bucket_seconds(v % stages_, held, backward), part);
                }
                price = add_price(part);
            }
            out.push_back({price, held});
        }
        return out;
    }

    [[nodiscard]] double bucket_seconds(std::uint32_t stage, const RankWeights& weights, bool backward) const {
        const CollectiveOp op = !backward            ? CollectiveOp::all_gather
                                : in_.plan.zero >= 1 ? CollectiveOp::reduce_scatter
                                                     : CollectiveOp::all_reduce;
        const double bytes = backward ? bytes_of(in_.plan.gradient_precision) : 2;
        const auto seconds = [&](const std::vector<Group>& alike, double held) {
            return alike.empty() || held <= 0 ? 0 : seconds_of(op, alike[0], bytes * held);
        };
        return seconds(groups_[stage], weights.dense) + seconds(expert_groups_[stage], weights.experts);
    }

    // Calls `one(group, weights)` for the groups of a stage that hold the same weights: of all layers, and of experts.
    template <class One>
    void for_groups(std::uint32_t stage, const RankWeights& weights, const One& one) const {
        for (const Group& group : groups_[stage]) {
            one(group, weights.dense);
        }
        for (const Group& group : expert_groups_[stage]) {
            if (weights.experts > 0) {
                one(group, weights.experts);
            }
        }
    }

    // Weights of the step before are gathered behind the first forward passes, bucket by bucket.
    void gather_early() {
        const std::uint16_t name = out_.graph.name("gather weights");
        gathered_.assign(rank_count(), std::vector<std::vector<Gathered>>(chunks_));
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
                const std::vector<Bucket>& buckets = buckets_[0][chunk * stages_ + stage];
                for (std::uint32_t i = 0; i < buckets.size(); ++i) {
                    for_groups(stage, buckets[i].weights, [&](const Group& group, double weights) {
                        const TaskId id =
                            collective(group, kGatherStream, name, CollectiveOp::all_gather, 2 * weights, {});
                        for (const std::uint32_t member : group.members) {
                            gathered_[member][chunk].push_back({i, id});
                        }
                    });
                }
            }
        }
    }

    void gather_late() {
        const std::uint16_t name = out_.graph.name("gather weights");
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            for_groups(stage, stage_parameters(stage), [&](const Group& group, double weights) {
                std::vector<TaskId> after;
                after.reserve(group.members.size());
                for (const std::uint32_t member : group.members) {
                    after.push_back(out_.compute[member].back());
                }
                collective(group, kGatherStream, name, CollectiveOp::all_gather, 2 * weights, after);
            });
        }
    }

    void add_passes() {
        const bool splits = works_.size() > 2;
        const std::uint16_t names[3] = {out_.graph.name("forward"),
                                        out_.graph.name(splits ? "input gradients" : "backward"),
                                        splits ? out_.graph.name("weight gradients") : std::uint16_t{0}};
        for (std::vector<TaskId>& tasks : pass_starts_) {
            tasks.resize(static_cast<std::size_t>(per_stage()) * virtual_stages_ * micro_batches_);
        }
        starts_.resize(rank_count());
        ends_.resize(rank_count());
        final_.assign(rank_count(), std::vector<std::vector<TaskId>>(chunks_));
        for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
            const std::uint32_t stage = rank / per_stage();
            // Whole passes but for the first forward pass of a chunk and its last backward pass.
            std::vector<std::size_t> first(chunks_, schedules_[stage].size());
            std::vector<std::size_t> last(chunks_, 0);
            for (std::size_t i = schedules_[stage].size(); i-- > 0;) {
                const Pass& pass = schedules_[stage][i];
                std::size_t& place = pass.backward ? last[pass.chunk] : first[pass.chunk];
                place = pass.backward ? std::max(place, i) : i;  // of those that split, weight gradients come last
            }
            for (std::size_t i = 0; i < schedules_[stage].size(); ++i) {
                const Pass& pass = schedules_[stage][i];
                const bool in_buckets = i == (pass.backward ? last : first)[pass.chunk];
                add_pass(rank, pass, names[way_of(pass)], in_buckets);
            }
        }
    }

    void add_pass(std::uint32_t rank, const Pass& pass, std::uint16_t name, bool in_buckets) {
        const std::size_t way = way_of(pass);
        const std::uint32_t v = pass.chunk * stages_ + rank / per_stage();
        const Category category = pass.backward ? Category::backward : Category::forward;
        std::vector<TaskId> pieces;
        if (in_buckets) {
            for (const Bucket& bucket : buckets_[pass.backward ? 1 : 0][v]) {
                pieces.push_back(compute(rank, name, category, bucket.price));
            }
        } else {
            pieces.push_back(compute(rank, name, category, prices_[way][v]));
        }
        if (!pass.weights) {
            pass_starts_[way][slot(rank % per_stage(), v, pass.micro_batch)] = pieces.front();
        }
        starts_[rank].push_back(pieces.front());
        ends_[rank].push_back(pieces.back());
        if (in_buckets && pass.backward) {
            final_[rank][pass.chunk] = std::move(pieces);
        } else if (in_buckets && !gathered_.empty()) {
            for (const Gathered& gathered : gathered_[rank][pass.chunk]) {
                out_.graph.add_edge(gathered.id, pieces[gathered.bucket]);
            }
        }
    }

    // Between neighbouring virtual stages; the tasks of both ends exist by now.
    void add_sends() {
        const std::uint16_t names[2] = {out_.graph.name("send activations"), out_.graph.name("send gradients")};
        for (std::uint32_t rank = 0; stages_ > 1 && rank < rank_count(); ++rank) {
            const std::uint32_t stage = rank / per_stage();
            const std::uint32_t member = rank % per_stage();
            for (std::size_t i = 0; i < schedules_[stage].size(); ++i) {
                const Pass& pass = schedules_[stage][i];
                const std::uint32_t v = pass.chunk * stages_ + stage;
                if (pass.weights || (pass.backward ? v == 0 : v + 1 == virtual_stages_)) {
                    continue;
                }
                const std::uint32_t next = pass.backward ? v - 1 : v + 1;
                const int way = pass.backward ? 1 : 0;
                const TaskId id = send(rank, next % stages_ * per_stage() + member, names[way]);
                out_.graph.add_edge(ends_[rank][i], id);
                out_.graph.add_edge(id, pass_starts_[way][slot(member, next, pass.micro_batch)]);
                if (!in_.plan.overlap_pipeline && i + 1 < starts_[rank].size()) {
                    out_.graph.add_edge(id, starts_[rank][i + 1]);  // the sender waits for its send
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

    // By bucket behind what remains of the passes, or all at the end.
    void reduce_gradients() {
        const std::uint16_t name = out_.graph.name("reduce gradients");
        const CollectiveOp op = in_.plan.zero >= 1 ? CollectiveOp::reduce_scatter : CollectiveOp::all_reduce;
        const double bytes = bytes_of(in_.plan.gradient_precision);
        const auto reduce = [&](const Group& group, std::uint32_t chunk, std::size_t bucket, double weights) {
            std::vector<TaskId> after;
            after.reserve(group.members.size());
            for (const std::uint32_t member : group.members) {
                after.push_back(final_[member][chunk][bucket]);
            }
            const TaskId id = collective(group, kReduceStream, name, op, bytes * weights, after);
            for (const std::uint32_t member : group.members) {
                reduced_[member].push_back(id);
            }
        };
        for (std::uint32_t stage = 0; stage < stages_; ++stage) {
            if (!in_.plan.overlap_data) {
                // Chunk 0 is the last whose gradients are final.
                for_groups(stage, stage_parameters(stage),
                           [&](const Group& group, double weights) { reduce(group, 0, 0, weights); });
                continue;
            }
            for (std::uint32_t chunk = chunks_; chunk-- > 0;) {
                const std::vector<Bucket>& buckets = buckets_[1][chunk * stages_ + stage];
                for (std::size_t i = 0; i < buckets.size(); ++i) {
                    for_groups(stage, buckets[i].weights,
                               [&](const Group& group, double weights) { reduce(group, chunk, i, weights); });
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
    std::vector<Layers> layers_;                ///< by virtual stage
    std::vector<std::vector<Pass>> schedules_;  ///< by stage
    std::vector<std::vector<Group>> groups_;    ///< by stage: who holds the same weights
    std::vector<std::vector<Group>> expert_groups_;
    std::vector<Work> works_;               ///< of a micro-batch on a stage
    std::vector<std::uint32_t> prices_[3];  ///< of works_: by virtual stage
    std::vector<std::vector<Bucket>>
        buckets_[2];                      ///< of the first forward pass and the last backward one: by virtual stage
    std::vector<TaskId> pass_starts_[2];  ///< forward, backward: by slot()
    TaskLists starts_, ends_;             ///< by rank, of each pass of its schedule
    struct Gathered {
        std::uint32_t bucket;
        TaskId id;
    };
    std::vector<std::vector<std::vector<Gathered>>> gathered_;  ///< by rank and chunk; empty without early gathers
    std::vector<TaskLists> final_;  ///< by rank and chunk: the pieces of the last backward pass
    TaskLists reduced_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::uint32_t, GroupTransfer>> sends_;
};

}  // namespace

TrainingGraph lower_pipeline(const TrainingInput& input) {
    return PipelineLowering(input).build();
}

}  // namespace orrery::inline training
