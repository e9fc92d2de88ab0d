#pragma once
// What a training scenario says beside its model: the plan, and the software that runs it. Immutable once read.

#include "workloads/model/model_spec.hpp"
#include "workloads/training/plan/allocation.hpp"
#include "workloads/training/plan/feature.hpp"
#include "workloads/training/schedules/schedule.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace orrery::training {

/// selective: the attention core; half: half of each layer's products (every second one); full: whole layers; experts: the
/// feed-forward of layers with experts, its dispatch included; modules: those of RecomputeModules.
enum class Recompute { none, selective, half, full, experts, modules };
/// Parts of a layer that are computed again, as Megatron-Core's --recompute-modules names them: layernorm, moe_act, core_attn, mlp (or moe).
struct RecomputeModules {
    bool norm = false;        ///< both norms before the products
    bool activation = false;  ///< the function between the products of the feed-forward
    bool attention = false;   ///< its core, fused or not
    bool ffn = false;         ///< all of the feed-forward behind its norm
};
[[nodiscard]] const std::vector<std::string>& recompute_module_names();
/// flash: the newest fused kernel of the device; flash2: FlashAttention-2; flash1: FlashAttention of 2022, as in Triton.
enum class AttentionKernel { unfused, flash, flash2, flash1, software };
/// How the ranks that share a sequence come to attend to all of it; what each sends is in pass_context.cpp.
///   ring           keys and values go round, the next ones while a piece is attended to (Ring Attention, arXiv:2310.01889)
///   gathered_ring  piece by piece as well, but all keys and values are gathered behind the first piece (PyTorch's context_parallel)
///   all_gather     keys and values are gathered, then one kernel attends to all (Llama 3, arXiv:2407.21783)
///   all_to_all     ranks exchange tokens for heads and back (DeepSpeed-Ulysses, arXiv:2309.14509)
///   two_way        queries go round, and what they found goes home (TokenRing, arXiv:2412.20501)
///   hierarchical   tokens for heads among `context_inner` neighbours, a ring over the groups (arXiv:2405.07719)
enum class ContextExchange { ring, gathered_ring, all_gather, all_to_all, two_way, hierarchical };
[[nodiscard]] const std::vector<std::string>& context_exchange_names();
/// tiles: the tiles of a product start the reduction that follows it, by copy engines (T3, arXiv:2401.16677).
enum class TensorOverlap { none, backward, full, tiles };
/// fused: one kernel a norm, rotary embedding or gate; eager: one for each elementwise operation in them.
enum class Fusion { fused, eager };

/// Scales of fp8 operands. delayed: one a tensor, of earlier steps; current: one a tensor, of this step; row: one a row or column,
/// so that each of a layer's three products casts its operands anew; block: one for 32 values in a row (MXFP8, of Blackwell) or for
/// 128 (of Hopper), in both layouts at once. Products in fp4 (NVFP4) have a scale for 16 values and one a tensor of this step.
enum class Fp8Scaling { delayed, current, row, block };

/// How tokens get to the ranks of their experts. all_to_all: once for each choice; all_gather: every token to every rank;
/// hierarchical: once to each node that has one of its experts, and from there once to each GPU that has one.
enum class TokenDispatch { all_to_all, all_gather, hierarchical };
/// What tokens' exchanges hide behind. shared: the shared experts; batches: all kernels of a pass, as where two micro-batches
/// take turns.
enum class ExpertOverlap { none, shared, batches };

/// How the experts of a layer lie on the ranks of a stage: a mapping of its own beside that of attention, in which tensor ranks
/// are neighbours, then expert and data ranks.
struct ExpertPlan {
    std::int64_t expert = 1;  ///< ranks that a layer's experts are divided over
    std::int64_t tensor = 0;  ///< ranks that each expert is cut over; 0: as attention
    TokenDispatch dispatch = TokenDispatch::all_to_all;
    Precision dispatch_precision = Precision::bf16;  ///< of tokens on their way to experts
    Precision combine_precision = Precision::bf16;   ///< of what comes back; gradients go both ways in 16 bits
    double capacity = 0;        ///< rows that an expert takes, over the mean of all; further ones are dropped; 0: all
    bool pad = false;           ///< experts compute as many rows as their capacity
    std::int64_t shadowed = 0;  ///< most wanted experts, which every rank has a copy of for its own tokens
    std::int64_t pieces =
        1;                ///< that a micro-batch's tokens are cut into, so that exchanges of one hide behind another
    double exponent = 0;  ///< of Zipf's law of how often experts are chosen; 0: all alike
    std::vector<double> loads;  ///< how often each is chosen, in any unit; empty: by the law
    ExpertOverlap overlap = ExpertOverlap::none;

    /// Whether the plan says how experts are spread over ranks.
    [[nodiscard]] bool spread() const { return expert > 1 || tensor > 0; }
};

/// What `schedule: search` may use.
struct SearchPlan {
    std::int64_t held = 0;      ///< micro-batches whose activations a stage may hold; 0: as many as stages
    double activations = 0;     ///< B that they may take; 0: as `held` says
    std::int64_t tries = 2000;  ///< orders and nodes of the integer program

    bool operator==(const SearchPlan&) const = default;
};

/// How ranks fill the nodes: stage after stage, or replica after replica with all its stages.
enum class Spread { stages, replicas };

/// Kernels of the loss over the logits of a token, of 16 bits each:
///   separate  one for each step, in 32 bits: Megatron-LM without --cross-entropy-loss-fusion (core/tensor_parallel/cross_entropy.py)
///             casts, takes the maximum, subtracts, takes exponentials, sums and divides; PyTorch's own takes about as much
///   compiled  steps that follow each other in one kernel, as Megatron-Core's jit_fuser and XLA make them
///   online    maximum and sum in one reading, gradients in another: PyTorch's compiler of 2025 on
///   fused     reads logits twice and writes their gradients over them: Transformer Engine, FlashAttention's xentropy
///   chunked   the output layer and a fused loss for some tokens at a time, so that all logits are never in memory: Liger, torchtune
enum class LossKernels { separate, compiled, online, fused, chunked, software };

struct PlanSpec {
    std::int64_t tensor = 1;
    std::int64_t pipeline = 1;
    std::int64_t data = 1;
    std::int64_t context = 1;
    ContextExchange context_exchange = ContextExchange::ring;
    std::int64_t context_inner = 0;  ///< of ContextExchange::hierarchical
    std::int64_t micro_batch = 1;
    std::int64_t global_batch = 0;
    const PipelineSchedule* schedule = default_schedule();
    SearchPlan search;
    std::int64_t chunks = 1;           ///< of the model in a stage
    std::vector<std::int64_t> stages;  ///< layers of each part of the model, in order; empty: as even as can be
    VocabularyParallel vocabulary = VocabularyParallel::none;
    Recompute recompute = Recompute::none;
    std::int64_t recompute_layers = 0;  ///< of each part of the model, under full recomputation; 0: all
    std::string recompute_modules;      ///< names by commas
    bool sequence_parallel = false;
    std::int64_t zero = 0;   ///< ZeRO stage; 3 is FSDP
    std::int64_t shard = 0;  ///< ranks that share the weights under ZeRO-3; 0: all of the data-parallel group
    Precision precision = Precision::bf16;
    Fp8Scaling fp8_scaling = Fp8Scaling::delayed;
    AttentionKernel asked_attention = AttentionKernel::software;
    AttentionKernel attention =
        AttentionKernel::flash;  ///< what is asked for or, where that is the software's choice, what this runs
    Fusion fusion = Fusion::fused;
    LossKernels loss = LossKernels::software;
    StateTypes states = StateTypes::software;
    Precision gradient_precision = Precision::bf16;  ///< of gradients on the wire
    std::optional<Precision> gather_precision;       ///< of activations and their gradients that tensor ranks gather
    TensorOverlap overlap_tensor = TensorOverlap::none;
    bool near_memory_sums = false;  ///< memory adds what arrives to what it holds; of TensorOverlap::tiles
    bool overlap_pipeline = false;
    bool overlap_context = true;  ///< pieces are attended to while the next keys and values are on their way
    bool overlap_data = false;
    bool overlap_parameters = false;  ///< all-gather of ZeRO-1 weights behind the first forward passes
    ExpertPlan experts;
    std::string groups;  ///< of the cluster, in the order in which ranks fill them, by commas; empty: as they stand
    Spread spread = Spread::stages;
    FeatureSet features;

    template <class T>
    [[nodiscard]] bool has() const {
        return features.get<T>().given;
    }
    template <class T>
    [[nodiscard]] const T& feature() const {
        return features.get<T>();
    }
    template <class T>
    [[nodiscard]] T& feature() {
        return features.get<T>();
    }

    /// Something is to go on beside the kernels of a pass or of a step.
    [[nodiscard]] bool overlaps() const;
    /// Ranks that compute a micro-batch of a stage together.
    [[nodiscard]] std::int64_t replica_ranks() const { return tensor * context; }
    /// Ranks of a stage; how many of them cut an expert, and how many hold the same experts.
    [[nodiscard]] std::int64_t stage_ranks() const { return replica_ranks() * data; }
    [[nodiscard]] std::int64_t expert_tensor() const { return experts.tensor > 0 ? experts.tensor : tensor; }
    [[nodiscard]] std::int64_t expert_data() const { return stage_ranks() / (experts.expert * expert_tensor()); }
    /// Ranks that hold the same weights and agree on them in every step.
    [[nodiscard]] std::int64_t alike() const { return data * context * copies() / islands(); }
    /// Groups of replicas that do so among themselves alone.
    [[nodiscard]] std::int64_t islands() const;
    /// Steps sum gradients.
    [[nodiscard]] bool sums_gradients() const;
    /// All weights but those of a feature are frozen.
    [[nodiscard]] bool frozen() const;
    /// Share of a part's layers that full recomputation covers, where a part holds so many of them.
    [[nodiscard]] double recomputed(double layers) const {
        return recompute_layers > 0 ? std::min(1.0, static_cast<double>(recompute_layers) / layers) : 1;
    }
    [[nodiscard]] RecomputeModules modules() const;
    /// Of a value of the operands of products, with its share of their scales.
    [[nodiscard]] double operand_bytes() const;
    [[nodiscard]] std::int64_t ranks() const { return stage_ranks() * pipeline; }
    /// Neighbours among the ranks of a sequence that exchange tokens for heads; the others of it are in a ring.
    [[nodiscard]] std::int64_t head_ranks() const {
        return context_exchange == ContextExchange::all_to_all     ? context
               : context_exchange == ContextExchange::hierarchical ? context_inner
                                                                   : 1;
    }
    /// Keys and values of the whole sequence are in memory at once.
    [[nodiscard]] bool gathers_keys() const {
        return context > 1 &&
               (context_exchange == ContextExchange::all_gather || context_exchange == ContextExchange::gathered_ring);
    }
    [[nodiscard]] std::int64_t micro_batches() const { return global_batch * sharers() / (micro_batch * data); }
    /// Ranks that divide the passes of each micro-batch.
    [[nodiscard]] std::int64_t sharers() const;
    /// Passes move weights and gradients layer by layer and not part by part.
    [[nodiscard]] bool by_layer() const;
    [[nodiscard]] PipelineShape shape() const {
        return {static_cast<std::uint32_t>(pipeline), static_cast<std::uint32_t>(chunks),
                static_cast<std::uint32_t>(micro_batches()), vocabulary};
    }
    /// Parts that the model is cut into, and stages that hold the same part.
    [[nodiscard]] std::uint32_t parts() const { return parts_of(schedule->map, shape()); }
    [[nodiscard]] std::int64_t copies() const { return schedule->map == StageMap::both_ways ? 2 : 1; }
    /// The end parts are on one stage.
    [[nodiscard]] bool ends_meet() const { return pipeline == 1 || schedule->map != StageMap::round_robin; }
};

/// What is replayed as CUDA graphs, without the host: nothing; layers but for the exchanges and products of experts, whose sizes
/// change; or all passes.
enum class CudaGraphs : std::uint8_t { none, layers, iteration };

/// What a generation of training software adds to its kernels. kernel_slowdown, step_overhead, launch and expert_wait are the only
/// constants in Orrery that were fitted on training runs; see validation/training/README.md for the points they were fitted on.
struct SoftwareSpec {
    std::string name;
    Sourced<double> kernel_slowdown;  ///< kernels in a training step over the same kernels in a microbenchmark
    Sourced<double> launch;           ///< s of the host per kernel or collective of a pass, with the modules around it
    CudaGraphs graphs = CudaGraphs::none;
    /// s in each forward pass of a layer of experts in which the device waits, where the host needs the tokens of each expert to
    /// launch what comes next: without graphs and without a capacity that experts are padded to.
    Sourced<double> expert_wait;
    /// The host waits for the device where a stage has sent or received, unless sends overlap, and then starts the next pass anew.
    bool pipeline_sync = false;
    /// CUDA_LAUNCH_BLOCKING=1: the host launches a kernel or collective when the one before it has ended, so that nothing overlaps.
    bool blocking_launches = false;
    bool waits_at_ends = false;     ///< sends that overlap are waited for while the pipeline fills and drains
    Sourced<double> step_overhead;  ///< s per iteration: data loading, host time between steps, logging
    /// That the optimizer's kernels move per updated weight, beside those that widen gradients of 16 bits; 0: 42, those included.
    Sourced<double> update_bytes;
    /// Times per step that all gradients of a rank are read or written beside their reduction.
    Sourced<double> gradient_sweeps;
    /// Where gradients add up in 32 bits those of 16 bits stay beside the sums, and join them in kernels of their own.
    bool keeps_gradients = false;
    bool fused_norms = false;                            ///< one kernel each where a plan has no fusion, too
    LossKernels loss = LossKernels::compiled;            ///< never software
    AttentionKernel attention = AttentionKernel::flash;  ///< of plans that name none; never software
    bool fused_casts = false;             ///< casts to fp8 are part of the norm before a product, and of its gather
    bool fused_activation_casts = false;  ///< and of the activation function before it
    /// Of the memory's rate that casts with scales of rows reach where they reduce over columns, for the products of a backward pass;
    /// 0: all of it.
    Sourced<double> column_casts;
    /// With overlap.tensor: full only what is cut into one product hides: not the sums of several products' gradients, nor inputs that
    /// are gathered again for the gradients of weights.
    bool cuts_only = false;
    bool whole_row_gathers = false;  ///< overlap.tensor: full does not cut gathers before products with scales of rows
    /// Of the vector units' 32-bit rate that kernels of a state-space scan's products reach at most; 0: what batched products reach.
    Sourced<double> scan_efficiency;
    bool rescales_products =
        false;  ///< what a backward product with scales of rows makes is scaled by a kernel after it
    /// SMs or CUs that the kernels of a collective hold while they run beside other kernels; 0: none.
    Sourced<double> communication_units;
    /// The same of tensor-parallel collectives that are cut to overlap with products (overlap.tensor: full).
    Sourced<double> tensor_communication_units;
    /// Weights whose gradients are reduced (and whose values ZeRO-1 gathers) together, and per data-parallel rank if that is
    /// more; 0: 40 million, as Megatron-Core.
    Sourced<double> gradient_bucket;
    Sourced<double> gradient_bucket_per_rank;
    bool fused_gradient_accumulation = true;  ///< weight gradients are added in the GEMM's epilogue
    bool fused_biases = true;   ///< biases are added, and their gradients summed, by the kernels of products
    bool repeats_keys = false;  ///< keys and values are copied for every query head before attention
    /// Whole collectives of sequence-parallel ranks copy what they have gathered, or sum, as the sequence is not the outermost dimension.
    bool copies_sequences = false;
    bool splits_heads = false;              ///< queries, keys and values are copied apart before fused attention
    bool scatter_gather_pipeline = true;    ///< each tensor-parallel rank sends its share between stages
    std::int64_t gathers_per_layer = 1;     ///< collectives that ZeRO-3 gathers a layer's weights with
    std::int64_t reductions_per_layer = 1;  ///< collectives that ZeRO-3 reduces a layer's gradients with
    bool unpacks_gathers = false;           ///< ZeRO-3 copies gathered weights out of the buffer of the collective
    bool packs_gradients = false;           ///< ZeRO-2/3 copies gradients into the buffer of the collective
    bool regathers = false;                 ///< full recomputation gathers weights that its backward pass gathers again
    /// s of the host for each rank's piece of a collective over a list of tensors, one a rank; 0: over flat buffers.
    Sourced<double> piece_time;
    Sourced<double> interval;  ///< half-width of log(measured / predicted) that nine of ten runs keep; 0: not known
    Sourced<double> reserved_memory;  ///< B per GPU: context, library buffers, fragmentation
    AllocationSpec allocation;

    /// Weights in a bucket of gradients for this many data-parallel ranks.
    [[nodiscard]] double bucket_weights(double ranks) const;
};

inline constexpr PresetKind kSoftwarePresets{"software", "workloads/data/software"};

/// What a plan's loss takes under this software: as the plan says, one kernel for each step where it has no fusion, else as
/// the software.
[[nodiscard]] LossKernels loss_kernels(const PlanSpec& plan, const SoftwareSpec& software);

/// What features of the plan find wrong with it.
[[nodiscard]] PlanProblems feature_problems(const ModelSpec& model, const PlanSpec& plan);
/// Gives a plan that was read what follows from its features; returns what stops it, by sentence.
[[nodiscard]] std::vector<std::string> resolve_features(PlanSpec& plan);

void describe(Fields& fields, PlanSpec& plan);
void describe(Fields& fields, SoftwareSpec& software);

/// `front`: of a part that begins the model, with its encoder.
[[nodiscard]] LayerMix mix_of(const ModelSpec& model, std::int64_t first, std::int64_t count, bool front = false);

/// Layers of each part of a model, in order. Where layers + 2 divides, the embedding and the head count as layers of the first and
/// last part.
[[nodiscard]] std::vector<std::uint32_t> split_layers(std::int64_t layers, std::int64_t chunks);

/// Those of each part of the model, in order: as the plan says, or split.
[[nodiscard]] std::vector<std::uint32_t> layers_of_parts(const ModelSpec& model, const PlanSpec& plan);

/// Of so many layers and tables of the vocabulary.
[[nodiscard]] RankWeights weights_of(const ModelSpec& model, const PlanSpec& plan, const LayerMix& layers,
                                     double tables);
[[nodiscard]] ShardDegrees degrees_of(const PlanSpec& plan);
/// Model FLOPs of a token: those of the model, or as a feature changes them.
[[nodiscard]] double flops_per_token(const ModelSpec& model, const PlanSpec& plan);
/// Weights that a rank updates: its share of them under ZeRO.
[[nodiscard]] double updated_weights(const PlanSpec& plan, const RankWeights& weights);

/// Checks that the plan fits the model and the cluster. Throws ConfigError (at `mark`) for what can never be right and
/// InfeasibleError for a plan that does not divide.
void check_spec(const ModelSpec& model, const PlanSpec& plan, std::uint32_t gpus, const Mark& mark);

}  // namespace orrery::training
