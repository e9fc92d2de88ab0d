#pragma once
// The common parts of lowering an iteration: which ranks are simulated, in-order streams, groups and collectives.
// Internal to workloads/training; lower.hpp is the interface.

#include "workloads/training/lowering/label_table.hpp"
#include "workloads/training/lowering/lower.hpp"
#include "workloads/training/lowering/rank_folding.hpp"

#include <array>
#include <map>
#include <optional>
#include <unordered_map>

namespace orrery::training {

/// Streams of a rank.
inline constexpr std::uint8_t kComputeStream = 0;
inline constexpr std::uint8_t kSendStream = 1;
inline constexpr std::uint8_t kGatherStream = 2;
inline constexpr std::uint8_t kReduceStream = 3;
inline constexpr std::uint8_t kHostStream = 4;
inline constexpr std::uint8_t kVocabularyStream = 5;
/// Of copies between memories and of the host that updates weights. What passes wait for, and what an update waits for.
inline constexpr std::uint8_t kFetchStream = 6;
inline constexpr std::uint8_t kStoreStream = 7;
inline constexpr std::uint8_t kLoadStream = 8;
inline constexpr std::uint8_t kWriteBackStream = 9;
inline constexpr std::uint8_t kStateLoadStream = 10;
inline constexpr std::uint8_t kUpdateStream = 11;
inline constexpr std::uint8_t kStateWriteBackStream = 12;
inline constexpr std::uint8_t kUploadStream = 13;
inline constexpr std::uint8_t kStreamCount = 14;
/// Behind these, of exchanges of passes on the fabric: lower_pass_exchanges.cpp.
[[nodiscard]] inline std::uint8_t exchange_stream(PassStream of) {
    return static_cast<std::uint8_t>(kStreamCount + static_cast<std::uint8_t>(of));
}

/// How the ranks of a stage, of the simulated replicas, are in the graph.
enum class RankCopies {
    one_for_all,  ///< one of them stands for all: rank_folding.hpp
    copies,       ///< as copies of one: all do the same, and their transfers demand resources of their own
    each
};

/// Rank r of the job sits on GPU r: tensor-parallel ranks are neighbours, then context, data and pipeline (Megatron's
/// order). `block_` replicas are simulated; lower.hpp says when they can stand for all.
class Lowering {
  public:
    Lowering(const TrainingInput& input, RankCopies ranks);
    virtual ~Lowering() = default;
    Lowering(const Lowering&) = delete;
    Lowering& operator=(const Lowering&) = delete;

    /// Adds all tasks and freezes the graph; nothing where the ranks of a stage are not alike enough. Call once.
    [[nodiscard]] std::optional<TrainingGraph> build();

  protected:
    /// A collective of the replicas that hold the same weights.
    struct Group {
        std::vector<std::uint32_t> members;  ///< simulated ranks
        std::vector<GpuId> gpus;             ///< all ranks, in ring order
        /// Where the graph has one rank of a stage: the GPUs of this and of all groups like it.
        std::vector<std::vector<GpuId>> alike = {};
        std::vector<std::uint32_t> cell_of = {};  ///< of these, by rank of a stage; empty: each rank has its own
        std::uint16_t partition = TaskGraph::kEach;
    };
    using TaskLists = std::vector<std::vector<TaskId>>;  ///< by simulated rank

    virtual void add_tasks() = 0;

    [[nodiscard]] std::uint32_t per_replica() const { return order_.per_replica(); }
    [[nodiscard]] std::uint32_t per_stage() const { return one_rank_ ? 1 : ranks_of_block(); }
    /// Ranks that each of these stands for or has copies of.
    [[nodiscard]] std::uint32_t ranks_in_one() const { return one_rank_ ? ranks_of_block() : 1; }
    /// Ranks of a stage in the simulated replicas.
    [[nodiscard]] std::uint32_t ranks_of_block() const { return block_ * per_replica(); }
    /// The GPU of the stage's rank number `i` in these.
    [[nodiscard]] GpuId gpu_of(std::uint32_t stage, std::uint32_t i) const {
        return in_.placement.gpu(order_.rank({stage, i / per_replica(), i % per_replica()}));
    }
    [[nodiscard]] std::uint32_t rank_count() const { return static_cast<std::uint32_t>(out_.ranks.size()); }
    /// Ranks that hold the same weights and agree on them in every step: data-parallel replicas (of a worker, where a plan has
    /// outer steps) and, with them, context-parallel ranks.
    [[nodiscard]] std::uint32_t width() const {
        return data_ * context_ / static_cast<std::uint32_t>(in_.plan.islands());
    }

    /// Adds a price for each kind of rank, made while cost() is that of the kind; compute() takes that of its rank.
    template <class Make>
    std::uint32_t add_prices(const Make& make) {
        const auto first = static_cast<std::uint32_t>(out_.prices.size());
        for (kind_ = 0; kind_ < costs_.size(); ++kind_) {
            out_.prices.push_back(make());
        }
        kind_ = 0;
        return first;
    }
    /// What passes cost the kind of rank whose prices are being made.
    [[nodiscard]] const PassCost& cost() const { return costs_[kind_]; }
    /// Of what `make` prices for each kind of rank that a stage has, the longest.
    template <class Make>
    [[nodiscard]] SimTime slowest(std::uint32_t stage, const Make& make) {
        double seconds = 0;
        for (std::uint32_t rank = stage * per_stage(); rank < (stage + 1) * per_stage(); ++rank) {
            if (rank == stage * per_stage() || rank_kind_[rank] != kind_) {
                kind_ = rank_kind_[rank];
                seconds = std::max(seconds, make().total());
            }
        }
        kind_ = 0;
        return SimTime::from_seconds(seconds);
    }
    /// What the tasks that are added from now on work on.
    void label(const TaskLabel& of);
    /// Appends a task to the compute stream of a simulated rank; `price`: of add_prices. Of a pass whose exchanges run on the fabric,
    /// several, of which it returns the last.
    TaskId compute(std::uint32_t rank, std::uint16_t name, Category category, std::uint32_t price);
    /// The first task of what compute() returned the last of: what it waits for comes before this.
    [[nodiscard]] TaskId begin_of(TaskId end) const {
        const auto found = begun_.find(end.value());
        return found == begun_.end() ? end : found->second;
    }
    /// Adds an activity that belongs to no stream yet.
    TaskId transfer(std::uint32_t rank, std::uint8_t stream, std::uint16_t name, Category category, double latency,
                    std::uint32_t demand_set, double bytes);
    /// Puts a task behind the last one of a stream.
    TaskId in_order(std::uint32_t rank, std::uint8_t stream, TaskId id);
    /// A transfer of a group whose demands are in the graph already, in order on a stream of each member.
    TaskId collective(const Group& group, std::uint8_t stream, std::uint16_t name, const GroupTransfer& planned,
                      std::uint32_t demand_set, const std::vector<TaskId>& after);
    /// The same, planned here: for transfers that occur once.
    TaskId collective(const Group& group, std::uint8_t stream, std::uint16_t name, CollectiveOp op, double bytes,
                      const std::vector<TaskId>& after);
    [[nodiscard]] GroupTransfer plan_transfer(CollectiveOp op, const Group& group, double bytes) const;
    /// What a transfer of plan_transfer demands, as a set of the graph.
    std::uint32_t demands_of(CollectiveOp op, const Group& group, double bytes, const GroupTransfer& planned);
    /// The same of a send between simulated ranks, which may stand for those of all ranks of their stages.
    std::uint32_t demands_of_send(std::uint32_t from, std::uint32_t to, const GroupTransfer& planned);
    /// A group of simulated ranks with the same place in several stages.
    [[nodiscard]] Group across_stages(std::vector<std::uint32_t> ranks) const;
    /// Seconds that collectives, which take so long alone, add to the kernels of a pass that they run beside: they take of its units
    /// and of its memory. The passes of a rank and the transfers of its groups share nothing else, and these are not slowed in turn.
    [[nodiscard]] double lost_to(const Alone& busy, const Price& pass) const;
    /// What a collective takes alone.
    [[nodiscard]] Alone alone(CollectiveOp op, const Group& group, double bytes) const;

    /// Groups among the ranks of a stage that hold the same weights: those `from` apart within `to` neighbours, `to / from` ranks
    /// each (`from` divides `to`). `alone`: also those of one rank.
    [[nodiscard]] std::vector<Group> spans(std::uint32_t stage, std::uint32_t from, std::uint32_t to,
                                           bool alone = false);
    /// Those of a stage that hold the same experts; none where all are different, unless those of one rank count.
    [[nodiscard]] std::vector<Group> expert_groups(std::uint32_t stage, bool alone = false);

    /// Layers of the model, in order.
    struct Layers {
        std::uint32_t first = 0;
        std::uint32_t count = 0;
        std::uint32_t encoder = 0;  ///< layers of the encoder before them
        bool projector = false;     ///< and the rest of it: patches and projector
    };
    /// The same with all of the encoder, where they begin the model and it has one.
    [[nodiscard]] Layers with_encoder(Layers layers, bool front = true) const;
    /// Weights of layers on a rank, with so many tables of the vocabulary.
    [[nodiscard]] RankWeights parameters(Layers layers, double tables) const;
    /// Tables that a part of the model brings: the embedding of the first, the output layer of the last.
    [[nodiscard]] double tables_of(bool first, bool last) const;
    /// FLOPs of what this price (of add_prices) is for, on the mean rank and micro-batch.
    [[nodiscard]] double mean_flops(std::uint32_t price) const;
    /// The host waits for its device between passes, and launches each from an empty queue.
    [[nodiscard]] bool host_waits() const {
        return stages_ > 1 && in_.software.pipeline_sync && !in_.plan.overlap_pipeline;
    }
    /// With the time in which its device waits for a host that launches one kernel after the end of another.
    [[nodiscard]] Price launched(Price price) const {
        price[Category::overhead] += in_.software.blocking_launches ? host_seconds(price) : 0;
        return price;
    }
    /// Seconds in which the host launches what a pass runs.
    [[nodiscard]] double host_seconds(const Price& price) const { return price.launches * in_.software.launch.value; }
    /// What a pass takes, with what stands at the ends of the model.
    [[nodiscard]] Price chunk_price(Layers layers, bool first, bool last, PassWork work) const;

    /// A pass through some of the layers of part `v` of the model, with what comes before the first of the part and after the last
    /// where they begin or end it.
    [[nodiscard]] Price pass_price(std::uint32_t v, Layers layers, bool begins, bool ends, PassWork work) const;
    /// What a simulated rank sends to another one of the next stage or the one before.
    [[nodiscard]] GroupTransfer planned_send(std::uint32_t from, std::uint32_t to) const;
    /// The same between GPUs, of any rank. `hash` picks among paths.
    [[nodiscard]] GroupTransfer planned_send(GpuId from, GpuId to, std::uint64_t hash) const;
    [[nodiscard]] std::uint64_t send_hash(std::uint32_t from, std::uint32_t to, std::uint32_t copy) const;
    /// What an order is searched for, of stages that hold these layers: whole passes, sends that have the fabric for themselves, and
    /// each stage's update.
    [[nodiscard]] MeasuredPipeline measure(const std::vector<Layers>& layers);

    /// Starts every rank's compute stream with the overhead of a step.
    void start_step();
    void sum_adapters(const std::vector<RankWeights>& stage_parameters);
    /// The norm of all gradients is a barrier; then each rank updates its weights.
    void finish_step(const TaskLists& reduced, const std::vector<RankWeights>& stage_parameters);

    TrainingInput in_;
    bool one_rank_;        ///< of each stage is in the graph
    bool copies_;          ///< then: has copies, and does not stand for all
    RankFolding folding_;  ///< where it does
    RankMap order_;        ///< of all ranks
    std::uint32_t tensor_, context_, data_, stages_, chunks_, micro_batches_;
    std::uint32_t block_ = 1;  ///< simulated replicas
    TrainingGraph out_;

  private:
    // Exchanges of passes on the fabric: lower_pass_exchanges.cpp.

    /// A part of a pass's exchanges on a communicator, in seconds alone.
    struct PassExchange {
        std::size_t crossing;  ///< index in crossings_
        double hidden;         ///< by kernels of the pass
        double exposed;
        double latency;  ///< s for each of these seconds before bytes move
        double bytes;    ///< B that a rank then sends, for each of these seconds
    };
    struct PassParts {
        std::uint32_t kernels = 0;  ///< price of the rest
        std::vector<PassExchange> exchanges;
    };
    struct CrossingGroup {
        Group group;
        std::uint32_t set;              ///< of demands
        std::vector<TaskId> exchanges;  ///< so far, in order
    };
    /// A communicator whose groups are on several nodes.
    struct Crossing {
        PassStream stream = PassStream::compute;
        Category category = Category::other;
        std::uint16_t name = 0;
        std::vector<double> bytes_per_second;  ///< that a rank sends while it exchanges: by kind of rank
        double seconds_per_byte = 0;           ///< on the most loaded link, under all groups at once
        std::vector<CrossingGroup> groups;
        std::vector<std::uint32_t> group_of;  ///< by rank
        std::vector<std::uint32_t> next;      ///< by rank: how many exchanges it has had
    };
    void add_crossings();
    [[nodiscard]] std::vector<Group> crossing_groups(PassStream stream, std::uint32_t stage);
    [[nodiscard]] double crossing_rate(PassStream stream, std::uint32_t kind) const;
    [[nodiscard]] std::array<double, kPassStreams> exchanged(std::uint32_t kind) const;
    [[nodiscard]] std::vector<Group> tensor_groups(std::uint32_t stage);
    [[nodiscard]] std::vector<Group> exchanging_groups(std::uint32_t stage);
    [[nodiscard]] GroupTransfer planned_crossing(PassStream stream, const std::vector<GpuId>& group) const;
    std::uint32_t demands_of_crossing(PassStream stream, const Group& group, std::vector<double>& loads);
    const PassParts& parts_of(std::uint32_t price, std::uint32_t kind);
    TaskId exchange(std::uint32_t rank, const PassExchange& of, double seconds, TaskId after);
    /// A task of no length where exchanges begin or have ended.
    TaskId mark(std::uint32_t rank, Category category);
    TaskId compute_beside(std::uint32_t rank, std::uint16_t name, Category category, const PassParts& parts);
    TaskId add_compute(std::uint32_t rank, std::uint16_t name, Category category, std::uint32_t price);

    void add_costs();
    void choose_block();
    void require_size() const;
    void list_ranks();
    void add_simulated(std::vector<Group>& groups, Group group) const;
    /// The partitions of the ranks of a stage into such groups.
    void add_partitions(std::vector<Group>& groups);
    /// A set of the graph for each of alike transfers, one behind the other; the first. `known`: those of earlier ones between the
    /// same GPUs.
    std::uint32_t demands_of_copies(const std::vector<GroupTransfer>& all, std::vector<std::uint32_t>& known);
    [[nodiscard]] bool fold_ranks();
    void add_hosts();

    [[nodiscard]] std::uint32_t price_on(std::uint32_t rank, std::uint32_t price);
    /// The kind of rank, or, where documents make micro-batches unlike, what this rank has in the micro-batch of the label.
    [[nodiscard]] std::uint32_t kind_on(std::uint32_t rank) const;
    /// Passes of ranks that share a document begin together.
    void join_rings();

    std::vector<PassCost> costs_;           ///< by kind of rank: of each group that has some
    std::size_t kind_ = 0;                  ///< of which prices are being made
    std::vector<std::uint32_t> kind_of_;    ///< by group of the fabric
    std::vector<std::uint32_t> rank_kind_;  ///< by simulated rank
    bool alike_ = true;                     ///< the ranks of each stage are of one kind, and so are their transfers
    std::vector<bool> kept_nodes_;
    /// With copies: sets of demands of the first of a group's alike transfers, by its first GPU and what it does.
    std::map<std::pair<std::uint32_t, int>, std::vector<std::uint32_t>> known_demands_;
    std::map<std::pair<std::uint32_t, double>, std::uint32_t> slow_prices_;  ///< by price and factor
    std::vector<TaskId> last_;                                               ///< by simulated rank and stream
    std::vector<Crossing> crossings_;
    std::map<std::uint32_t, PassParts> parts_;           ///< by price
    std::unordered_map<std::uint32_t, TaskId> begun_;    ///< by the last task of a pass with exchanges
    std::unordered_map<std::uint32_t, double> exposed_;  ///< s, by the kernels of such a pass
    std::uint32_t nothing_ = 0;                          ///< price of marks
    LabelTable known_labels_;
    std::uint32_t label_ = 0;  ///< of tasks that are added now
};

/// Pipelines and plain data parallelism: the granularity is a stage's chunk.
[[nodiscard]] std::optional<TrainingGraph> lower_pipeline(const TrainingInput& input, RankCopies ranks);
/// ZeRO-2/3 without a pipeline, and offloading: the granularity is a layer.
[[nodiscard]] std::optional<TrainingGraph> lower_sharded(const TrainingInput& input, const NodeMemories* memory,
                                                         RankCopies ranks);

}  // namespace orrery::training
