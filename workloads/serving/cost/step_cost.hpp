#pragma once
// How long an iteration of an engine replica takes.
//
// Claims: an iteration runs its new tokens through every layer once: products over all tokens together, attention for each
// prompt piece over its own context and for all decoding sequences at their mean context; the head for every sequence. The
// ranks of a tensor-parallel group meet twice a layer in an all-reduce. Experts: a router sends each token to `topk` of them,
// evenly but for `expert_load`; a replica holds whole experts in `expert` groups and cuts each over the ranks of a group. With
// one attention group the tokens are on every rank and an all-reduce adds the experts' parts; with several (each attends to its
// own sequences, and the one with most prompt tokens holds up the others) tokens are gathered or sent to their experts and come
// back. Context-coherent groups hold the cache of all sequences on every rank: in iterations that only decode a token is sent to
// its expert once, with its residual in 16 bits, and attends there, those alone whose expert is elsewhere; each iteration ends
// with an all-gather of its keys and values. Prompts, whose tokens attend to each other within a layer, go there and back.
// Adapters add their low-rank products beside the dense ones, those of one kind in one launch over all adapters of the batch.
// Prefixes that are read once: shared_attention.cpp. Weights that are elsewhere: streamed_weights.hpp. Host work and launches:
// host_cost.hpp. Drafts of the model's own layers (multi-token prediction) take a pass for each token, a mean layer and the head for
// one token of every decoding sequence; the pass that reads what was verified is the first of them.
// On a share of the compute units a kernel takes as much longer as it would keep more than that share busy.
// Scope: dense transformers and mixtures of experts; MHA, GQA and latent attention, windows in some or all layers; 16-bit,
// fp8, int8, fp4 products and 4-bit weights alone, caches of 16 and 8 bits, as the device's cost model prices them.
// Queries and keys may be normed, over all heads with an all-reduce; a router may be in 32 bits; blocks whose
// attention and feed-forward stand side by side share a norm and an all-reduce.
// Limits: decoding sequences are priced at their mean context (attention time is nearly linear in it); prompt pieces run as
// one kernel whose parts are as efficient as pieces of their own length; attention groups share decodes evenly; latent
// attention expands or absorbs its projections at the same cost; a pipeline stage has its share of every kind of layer; the
// busiest of several expert-parallel devices takes no longer than the mean but for `expert_load`; dense products with block
// scales cost what those with one scale a tensor do (the public tables of the former were measured launch by launch and hold
// 60 to 400 us of host time).
// Sources: as workloads/training/passes/pass_cost.hpp; Agrawal et al., "Vidur", MLSys 2024 (operations of an iteration); DeepSeek-AI,
// "DeepSeek-V3", arXiv:2412.19437 (latent attention, attention groups, dispatch and combination); Yao et al., "Exploiting
// Inter-Layer Expert Affinity", IPDPS 2024, arXiv:2401.08383 (context-coherent expert parallelism).
// Compressed caches: kv_compression.hpp; nano-batches: co_schedule.hpp.
// Validated by tests/workloads/serving_price_test.cpp and `orrery validate serving`.

#include "sim/device/cost_model.hpp"
#include "sim/network/collective.hpp"
#include "workloads/model/layer_program.hpp"
#include "workloads/serving/cost/co_schedule.hpp"
#include "workloads/serving/cost/host_cost.hpp"
#include "workloads/serving/cost/kv_compression.hpp"
#include "workloads/serving/cost/step_program.hpp"
#include "workloads/serving/engine/adapters.hpp"
#include "workloads/serving/engine/sequence.hpp"

#include <array>
#include <memory>
#include <unordered_map>

namespace orrery::serving {

class StepCost {
  public:
    virtual ~StepCost() = default;
    [[nodiscard]] virtual StepWork work(const Batch& batch) = 0;
    [[nodiscard]] double seconds(const Batch& batch) { return work(batch).seconds; }
    /// The same by operation. Their times add up to that of work(), with the host's where the device waits for it; operations that run
    /// beside each other share the time that they take together.
    [[nodiscard]] virtual StepProgram program(const Batch& batch) {
        StepProgram out;
        out.add("iteration", StepClass::given, work(batch));
        return out;
    }
};

/// fixed + token x new tokens + context x tokens that decoding sequences look back on; for closed forms.
class AffineStep final : public StepCost {
  public:
    AffineStep(double fixed_s, double token_s, double context_s)
        : fixed_(fixed_s), token_(token_s), context_(context_s) {}
    [[nodiscard]] StepWork work(const Batch& batch) override;

  private:
    double fixed_, token_, context_;
};

struct GivenStepSpec;

/// Number formats of a served model.
struct Quantisation {
    Precision weights = Precision::bf16;  ///< of dense products; int4: the weights alone
    Precision experts = Precision::bf16;  ///< of routed experts
    Precision cache = Precision::bf16;
    Scaling scaling = Scaling::tensor;  ///< of the experts
    bool fp4_units = true;              ///< the device multiplies 4-bit numbers; otherwise fp4 is of the weights alone
};

/// How tokens reach experts on other attention groups, and come back. coherent: every rank holds the cache of all tokens, so that a
/// decoding token stays with its expert and attends there (one all-to-all a layer). hierarchical: tokens of prompts go once to each
/// node that has one of their experts, over the NIC of their own rail, and from there once to each GPU that has one, the two side by
/// side (DeepEP's normal kernels); where an iteration only decodes they go straight to each rank (its low-latency kernels), as
/// always with all_to_all.
enum class Dispatch { gather, all_to_all, coherent, hierarchical };

/// Weights that come to a device when an iteration needs them (streamed_weights.hpp).
struct StreamedSpec {
    bool given = false;
    double bandwidth = 0;     ///< B/s to each device
    std::int64_t window = 2;  ///< layers that a device holds
};

/// How sums over tensor-parallel ranks go: as the library has them, or by messages through the first rank or round all of them.
enum class SumRoute { library, star, ring };

struct ServingModel {
    const ModelSpec& model;
    const CostModel& device;
    const Fabric& fabric;
    const CollectiveModel& collectives;
    PathChoice paths = PathChoice::spray;
    std::vector<GpuId> gpus;  ///< of a pipeline stage, attention group by attention group
    Quantisation quantisation{};
    std::uint32_t groups = 1;             ///< of attention; the tensor-parallel degree is gpus / groups
    std::uint32_t expert = 1;             ///< expert-parallel degree
    std::uint32_t redundant_experts = 0;  ///< copies of experts, in a layer, that the expert groups share out too
    double expert_load = 1;               ///< tokens of the busiest expert group over their mean
    Dispatch dispatch = Dispatch::gather;
    double affinity = 0;  ///< share of the tokens whose next expert is on their rank (coherent); 0: by chance
    double block = 16;    ///< tokens of a cache block
    HostSpec host{};
    double step_overhead = 0;                 ///< s of the host an iteration, on top
    double sequence_overhead = 0;             ///< s of the host a sequence and iteration, on top
    std::int64_t layers = 0;                  ///< of a pipeline stage; 0: all
    bool embedding = true;                    ///< the stage has the embedding
    bool head = true;                         ///< the stage has the LM head
    AdapterSpec adapters{};                   ///< that requests may name; rank 0: none
    const DeviceSpec* partitioned = nullptr;  ///< the device, where kernels have a part of its compute units alone:
    double units = 1;                         ///< this share
    const DeviceSpec* spec = nullptr;         ///< the device; needed for the two that follow
    KvCompressionSpec compression{};
    std::uint32_t draft_tokens = 0;  ///< of a sequence in an iteration that verifies drafts,
    std::int64_t draft_layers = 0;   ///< each made by a pass through so many layers like the model's, and its head
    std::int64_t nano_batches = 1;   ///< parts of an iteration that run beside each other
    StreamedSpec streamed{};
    SumRoute sums = SumRoute::library;
    const GivenStepSpec* given = nullptr;  ///< what iterations take, where the scenario says it
};

/// Prices with a device's cost model; every product is priced once for each number of tokens.
class ModelStep final : public StepCost {
  public:
    explicit ModelStep(const ServingModel& model);
    [[nodiscard]] StepWork work(const Batch& batch) override;
    [[nodiscard]] StepProgram program(const Batch& batch) override;

    /// Parts of an iteration, for checks: products, small kernels and communication over all layers for this many tokens ...
    [[nodiscard]] double dense_seconds(std::uint32_t tokens) { return dense(tokens, Mode::decodes).seconds; }
    /// ... those of one dense layer without attention and communication ...
    [[nodiscard]] double dense_layer_seconds(double tokens) const { return dense_layer(tokens).total().seconds; }
    /// ... attention of one sequence's piece, or of `sequences` decoding ones, over all layers ...
    [[nodiscard]] double attention_seconds(double sequences, double queries, double keys) const {
        return attention(sequences, queries, keys).seconds;
    }
    /// Kernels of a batch, without the host.
    [[nodiscard]] double kernel_seconds(const Batch& batch) { return kernels(batch).seconds; }
    /// The low-rank products of this many tokens with as many adapters, over all layers.
    [[nodiscard]] double adapter_seconds(double tokens, double adapters) const {
        return price_adapters(tokens, adapters).seconds;
    }

  private:
    // `stays`: tokens stay with their experts, in a context-coherent group that only decodes.
    [[nodiscard]] bool coherent() const { return m_.groups > 1 && m_.dispatch == Dispatch::coherent; }
    [[nodiscard]] double rank_tokens(double tokens, bool stays) const;
    /// How the tokens of an iteration meet their experts.
    enum class Mode : std::uint8_t { decodes, stays, prompts };
    [[nodiscard]] StepWork dense(std::uint32_t tokens, Mode mode);
    /// The same where the busiest group has `own` of the tokens.
    [[nodiscard]] StepWork uneven(std::uint32_t tokens, std::uint32_t own);
    [[nodiscard]] StepWork head(std::uint32_t sequences, bool stays);
    [[nodiscard]] StepWork adapters(const Batch& batch);
    /// `out`: takes the operations, where somebody asks for them.
    [[nodiscard]] StepWork kernels(const Batch& batch, StepProgram* out = nullptr);
    [[nodiscard]] StepWork with_host(const Batch& batch, StepWork kernels) const;
    [[nodiscard]] StepWork compressed(const Attention& attention, const StepWork& usual) const;
    [[nodiscard]] StepWork compress(double tokens, bool prompts) const;
    /// Of an iteration that is cut into nano-batches.
    struct NanoBatch {
        double tokens = 0;
        double decoding = 0;        ///< sequences,
        double keys = 0;            ///< of so many tokens each
        StepWork prompt_attention;  ///< over all layers
        Mode mode = Mode::decodes;
    };
    /// Operations of a layer for the tokens of a nano-batch; the products before attention, and after it.
    struct NanoLayer {
        StepWork in, out, reduce, dispatch, feed_forward, combine;
    };
    [[nodiscard]] const NanoLayer& nano_layer(std::uint32_t tokens, Mode mode);
    /// All layers, without embedding, head and adapters.
    [[nodiscard]] StepWork nano_batched(const NanoBatch& batch);
    [[nodiscard]] StepWork attention(double sequences, double queries, double keys) const;
    [[nodiscard]] StepWork priced(const Operation& operation, Precision precision = Precision::bf16) const;
    [[nodiscard]] StepWork product(double m, double n, double k) const;
    [[nodiscard]] StepWork streaming(double values, double kernels, StreamingKind kind) const;
    [[nodiscard]] StepWork before_product(double values, StreamingKind kind) const;
    [[nodiscard]] StepWork collective(CollectiveOp op, const std::vector<GpuId>& ranks, double bytes) const;
    [[nodiscard]] StepWork reduce(double tokens) const;
    [[nodiscard]] StepWork between(CollectiveOp op, double bytes) const;
    /// A layer of the model for so many tokens of an attention group.
    [[nodiscard]] LayerContext layer(double rows) const;
    [[nodiscard]] StepWork priced(const LayerOperation& one) const;
    [[nodiscard]] StepProgram program_of(const LayerOperations& operations) const;
    [[nodiscard]] StepProgram norm(double tokens) const;
    /// `windowed`: of the layers that attend through the window, or linearly.
    [[nodiscard]] StepProgram attention_products(double tokens, bool windowed) const;
    [[nodiscard]] StepProgram feed_forward(double tokens, double width) const;
    [[nodiscard]] StepProgram experts(double tokens, double group_tokens) const;
    /// To the experts of a layer on other attention groups, and back.
    struct Exchange {
        StepWork dispatch, combine;
    };
    [[nodiscard]] Exchange price_exchange(double tokens, double group_tokens, Mode mode) const;
    /// Of `token` bytes for each token, by node first.
    [[nodiscard]] StepWork by_node(double group_tokens, double token) const;
    [[nodiscard]] StepProgram dense_layer(double tokens) const;
    /// All layers but for the cores of attention, and the embedding where the stage has it.
    [[nodiscard]] StepProgram layers(double tokens, double own, Mode mode) const;
    [[nodiscard]] StepProgram embedding(double tokens) const;
    [[nodiscard]] StepProgram output_layer(double own) const;
    [[nodiscard]] StepWork price_adapters(double tokens, double adapters) const;
    [[nodiscard]] StepWork one_attention(double sequences, double queries, double keys, bool windowed) const;
    /// Of decoding sequences of which some read a prefix together: shared_attention.cpp.
    [[nodiscard]] StepWork shared_attention(const Batch& batch, double decoding, double context) const;
    /// Of all such layers; a part of attention().
    [[nodiscard]] StepWork windowed_attention(double sequences, double queries, double keys) const;

    ServingModel m_;
    double t_;                                              ///< tensor-parallel degree
    double share_;                                          ///< of the model's layers of every kind
    bool beside_;                                           ///< decoding attention leaves the other units free
    std::vector<GpuId> tensor_group_;                       ///< the first attention group
    std::vector<GpuId> across_groups_;                      ///< the first rank of every attention group
    std::vector<GpuId> rail_;                               ///< equal places on the nodes of the stage,
    std::vector<GpuId> node_;                               ///< and its GPUs on the first of them
    double nic_sharers_ = 1;                                ///< GPUs of a node that send over one NIC
    std::array<std::vector<StepWork>, 3> dense_;            ///< by mode and tokens; seconds below 0: not priced yet
    std::unordered_map<std::uint64_t, StepWork> uneven_;    ///< by tokens and those of the busiest group
    std::array<std::vector<StepWork>, 2> head_;             ///< by `stays` and sequences
    std::unordered_map<std::uint64_t, NanoLayer> nano_;     ///< by tokens and mode; only looked up
    std::unordered_map<std::uint64_t, StepWork> adapters_;  ///< by tokens and adapters; only looked up
};

/// Prices iterations as the scenario gives them, or by the device's cost model.
[[nodiscard]] std::unique_ptr<StepCost> make_step(const ServingModel& model);

/// Bytes of keys and values of one token over all layers on all ranks of an attention group.
[[nodiscard]] double cache_bytes_per_token(const ModelSpec& model, Precision cache,
                                           const KvCompressionSpec& compression = {});
/// Ranks of a group of `tensor` that hold different parts of the cache; the others repeat them.
[[nodiscard]] double cache_ranks(const ModelSpec& model, std::int64_t tensor);
/// Layers of a pipeline stage: as even as can be, the first stages have one more where it does not divide.
[[nodiscard]] constexpr std::int64_t stage_layers(std::int64_t layers, std::int64_t stage, std::int64_t stages) {
    return layers / stages + (stage < layers % stages ? 1 : 0);
}
/// Bytes of weights on one rank of a pipeline stage of `groups` x `tensor` ranks: the first stage has the embedding, the last
/// the LM head.
[[nodiscard]] double weight_bytes_per_rank(const ModelSpec& model, const Quantisation& quantisation,
                                           std::int64_t tensor, std::int64_t groups = 1, std::int64_t stage = 0,
                                           std::int64_t stages = 1);

}  // namespace orrery::serving
