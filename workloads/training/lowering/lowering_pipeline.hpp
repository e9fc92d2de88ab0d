#pragma once
// The tasks of a pipeline: passes of every stage in the order of its schedule, what travels between stages, and gradients and weights
// among the ranks that hold the same. Internal to workloads/training: passes in lower_pipeline.cpp, exchanges in
// lower_pipeline_exchanges.cpp, a cut vocabulary in lower_pipeline_vocabulary.cpp.

#include "workloads/training/lowering/lowering_units.hpp"

#include <array>
#include <map>
#include <utility>
#include <vector>

namespace orrery::training {

// A micro-batch visits the parts of the model in order. Place chunk * stages + stage holds one; of the parts, each is in one place or,
// where micro-batches come from both ends, in two.
class PipelineLowering final : public UnitLowering {
  public:
    PipelineLowering(const TrainingInput& input, RankCopies ranks);

  private:
    void add_tasks() override;

    /// Layers of a chunk whose weights and gradients travel together.
    struct Bucket {
        std::uint32_t price;  ///< of their part of the pass
        RankWeights weights;
        TaskLabel label;
        std::uint32_t compress = TrainingGraph::kNoPrice;  ///< of choosing what is sent of their gradients
    };
    /// A layer of a chunk, with the tables beside it, under ZeRO-3: its part of a pass.
    struct UnitPass {
        std::uint32_t price;
        Unit unit;
        TaskLabel label;
    };
    /// One of them in the order of a rank's passes.
    struct UnitStep {
        const Unit* unit;
        PassWork work;
        bool first;  ///< of the chunk's forward passes
        bool last;   ///< of those that make gradients
        TaskLabel label;
    };
    /// A bucket of weights that a forward pass waits for.
    struct Gathered {
        std::uint32_t bucket;
        TaskId id;
    };
    /// Stages that hold the same parts, and who holds the same weights there.
    struct Holders {
        std::vector<std::uint32_t> stages;
        std::vector<std::uint32_t> parts;  ///< in the order in which their gradients are final
        std::vector<Group> groups;
        std::vector<Group> experts;
    };

    void find_holders();
    static void join(std::vector<Group>& groups, const std::vector<Group>& others);
    [[nodiscard]] const Holders& holders_of(std::uint32_t stage) const {
        return holders_[map_ == StageMap::both_ways ? std::min(stage, stages_ - 1 - stage) : stage];
    }
    [[nodiscard]] std::uint32_t copies() const { return static_cast<std::uint32_t>(in_.plan.copies()); }
    [[nodiscard]] bool cuts_vocabulary() const { return in_.plan.vocabulary != VocabularyParallel::none; }

    /// Index of what a pass does in prices_.
    [[nodiscard]] static std::size_t index_of(PassWork work) { return static_cast<std::size_t>(work); }
    [[nodiscard]] std::uint32_t part_of(std::uint32_t place) const { return parts_of_places_[place]; }
    /// The chunk of a stage that holds this part, which it does.
    [[nodiscard]] std::uint32_t chunk_of(std::uint32_t part, std::uint32_t stage) const {
        return map_ == StageMap::both_ways ? (part == stage ? 0 : 1) : place_of_part(map_, shape_, part, 0).chunk;
    }
    [[nodiscard]] std::size_t slot(std::uint32_t member, ChunkPlace place, std::uint32_t micro_batch) const {
        return (static_cast<std::size_t>(member) * places_ + place.chunk * stages_ + place.stage) * micro_batches_ +
               micro_batch;
    }
    /// The part of a cut vocabulary that a stage holds goes with its last layers' weights.
    [[nodiscard]] RankWeights part_parameters(Layers layers, bool first, bool last, bool any_end = true) const;
    [[nodiscard]] RankWeights chunk_parameters(std::uint32_t stage, std::uint32_t chunk) const;
    [[nodiscard]] RankWeights stage_parameters(std::uint32_t stage) const;

    // Passes.

    /// Prices of a chunk's layers, the tables at the ends of the model, and completing a scattered input.
    void price_passes();
    /// What a pass through some of the layers of a chunk works on; see pass_price.
    [[nodiscard]] TaskLabel label_of(std::uint32_t place, Layers layers, bool begins, bool ends, PassWork work) const;
    /// The same of what moves the weights or gradients of these layers.
    [[nodiscard]] TaskLabel transfer_label(std::uint32_t place, Layers layers) const;
    /// The first or the last pass of a chunk in the pieces whose weights travel together: gradients leave as soon as those of a bucket
    /// are final, and the first forward pass waits for the weights of its next layers alone.
    [[nodiscard]] std::vector<Bucket> buckets_of(std::uint32_t place, bool backward);
    /// Layer by layer in the order of the pass.
    [[nodiscard]] std::vector<UnitPass> units_of(std::uint32_t place, PassWork work);
    [[nodiscard]] static bool needs_weights(PassWork work) { return work != PassWork::weight_gradient; }
    [[nodiscard]] static bool makes_gradients(PassWork work) {
        return work == PassWork::backward || work == PassWork::weight_gradient;
    }
    void add_passes();
    void add_pass(std::uint32_t rank, const Pass& pass, std::uint16_t name, bool in_buckets);

    // Exchanges of weights and gradients.

    /// The weights of each unit before its part of every pass, its gradients behind it.
    void move_units();
    /// Weights of the step before are gathered behind the first forward passes, bucket by bucket.
    void gather_early();
    void gather_late();
    /// By bucket behind what remains of the passes, or all at the end.
    void reduce_gradients();
    /// The two ends of a pipeline keep their copies of a shared embedding equal.
    void reduce_embeddings();
    /// Of what all ranks have sent.
    void add_up_gradients();
    /// Kernels that only move bytes, for an exchange of gradients.
    [[nodiscard]] Price traffic(double bytes) const;
    [[nodiscard]] Alone bucket_alone(std::uint32_t stage, const RankWeights& weights, bool backward) const;
    /// Of a piece of a pass: the layers alone.
    [[nodiscard]] static TaskLabel without_pass(const TaskLabel& of);
    /// The chunk whose gradients are final last.
    [[nodiscard]] std::uint32_t last_chunk(std::uint32_t stage) const;
    /// Calls `one(group, weights)` for the groups that hold the same weights: of all layers, and of experts.
    template <class One>
    void for_groups(const Holders& holders, const RankWeights& weights, const One& one) const {
        for (const Group& group : holders.groups) {
            one(group, weights.dense);
        }
        for (const Group& group : holders.experts) {
            if (weights.experts > 0) {
                one(group, weights.experts);
            }
        }
    }

    // Between stages.

    /// Between neighbouring parts on different stages; the tasks of both ends exist by now.
    void add_sends();
    /// Passes of a stage whose sends nothing waits for, from the first to before the second: where a forward and a backward pass take
    /// turns, the pipeline neither fills nor drains.
    [[nodiscard]] std::pair<std::size_t, std::size_t> sends_freely(std::uint32_t stage) const;
    TaskId send(std::uint32_t from, std::uint32_t to, std::uint16_t name);

    // A vocabulary that is cut over the stages.

    struct Meeting {
        std::uint16_t name;
        std::pair<std::uint32_t, GroupTransfer> planned;
    };
    /// Among the stages of a pipeline, over the parts of a vocabulary: what the output layer needs of a micro-batch, what its parts
    /// have to agree on, and the input and its gradient at the other end. They hide behind passes, on a communicator of their own.
    /// Source: Yeung et al., arXiv:2411.05288, sections 4 and 5.
    void add_meetings();
    [[nodiscard]] std::pair<std::uint32_t, GroupTransfer> plan_meeting(CollectiveOp op, const Group& group,
                                                                       double bytes);
    TaskId meet(const Group& group, const Meeting& meeting, const std::vector<TaskId>& after,
                const std::vector<TaskId>& before);
    [[nodiscard]] TaskId end_of(std::uint32_t rank, PassWork work, std::uint32_t micro_batch);

    StageMap map_;
    PipelineShape shape_;
    std::uint32_t parts_, places_;
    std::vector<std::uint32_t> parts_of_places_;
    std::vector<Layers> layers_;  ///< by part
    PipelineOrder schedules_;
    std::vector<Holders> holders_;
    std::vector<std::uint32_t> prices_[kPassWorks];  ///< by part; empty: there are none
    std::vector<PassWork> last_works_;               ///< by place: of the pass that makes its gradients final
    std::vector<std::vector<Bucket>> buckets_[2];    ///< of the first forward pass and the last backward one: by place
    std::vector<std::vector<UnitPass>> unit_passes_[kPassWorks];  ///< under ZeRO-3: by place
    std::vector<std::vector<UnitStep>> unit_steps_;               ///< of a rank of each stage, in order
    TaskLists unit_tasks_;                                        ///< of these, by rank
    std::uint16_t chosen_ = 0;                                    ///< name of the kernels that compress gradients
    std::vector<TaskId> pass_starts_[2];                          ///< forward, backward: by slot()
    std::vector<TaskId> vocabulary_[2];  ///< scores and their gradients: by rank and micro-batch
    std::map<std::pair<std::uint32_t, PassWork>, std::size_t> searched_;
    TaskLists starts_, ends_;                                   ///< by rank, of each pass of its schedule
    std::vector<std::vector<std::vector<Gathered>>> gathered_;  ///< by rank and chunk; empty without early gathers
    std::vector<TaskLists> final_;  ///< by rank and chunk: the pieces of the last backward pass
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::uint32_t, GroupTransfer>> sends_;
};

}  // namespace orrery::training
