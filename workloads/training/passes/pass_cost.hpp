#pragma once
// What one pass of one micro-batch through one layer costs a rank: its kernels and its tensor-parallel communication.
//
// Claims: a layer is the list of its matrix products, attention kernels and streaming kernels, each priced by the
// device's cost model; tensor- and context-parallel collectives are priced on the fabric with those of all other
// groups, which are in the same place of the same program (sim/network/concurrent_groups.hpp). Both are operations of a program (pass_program.hpp) on streams of
// their own, in the order and with the waits that the plan's overlap switches say.
// A layer with experts routes tokens, exchanges them with their experts (experts.hpp), computes these one product after another
// as the busiest rank does, and brings results back; its shared experts are a feed-forward beside it.
// A layer of a hybrid is one of the parts of a layer, or a state-space layer, whose scan is a list of batched products and streaming
// kernels as well (pass_state_space.cpp).
// An encoder's layers are those of a model without tables whose tokens attend to all of their image, priced as any layer under the
// encoder's own plan (encoder.hpp); its first product and its projector are products between them (pass_encoder.cpp).
// Scope: transformers, MHA, GQA and latent attention, windows, plain or gated feed-forward, mixtures of experts, unfused or flash
// attention, fp16/bf16/fp8/fp4.
// Matrix kernels run at the speed of the job's slowest device (DeviceSpec::slowest_of), since all wait for it in every step.
// Products of experts are priced one by one by the device's products, as training libraries run them (Transformer Engine:
// one cuBLAS product an expert); the fused kernels of inference engines that tables hold reach half of the peak where these reach 70 %.
// Limits: fp8 and fp4 keep attention, norms, routers and the LM head in 16 bits; products with a scale a row are priced as those with one a
// tensor.
// Sources: Narayanan et al., SC21 (tensor parallelism, recomputation); Korthikanti et al., arXiv:2205.05198
// (sequence parallelism, selective recomputation, activation memory); NVIDIA Transformer Engine documentation (fp8
// casts).
// Validated by tests/workloads/training_test.cpp (FLOPs against 6ND and the causal formula) and `orrery validate
// training`.

#include "sim/device/cost_model.hpp"
#include "sim/network/collective.hpp"
#include "workloads/model/layer_program.hpp"
#include "workloads/training/features/adapters.hpp"
#include "workloads/training/features/documents.hpp"
#include "workloads/training/plan/experts.hpp"
#include "workloads/training/plan/spec.hpp"
#include "workloads/training/programs/pass_program.hpp"

#include <memory>
#include <optional>
#include <span>

namespace orrery::training {

/// What the loss moves per logit, and in how many kernels.
struct LossTraffic {
    double forward_bytes, forward_kernels, backward_bytes, backward_kernels;
};

/// What an encoder runs: its first product with the positions, a layer, and the projector with what is around it.
enum class EncoderPart : std::uint8_t { patches, layer, projector };

class PassCost {
  public:
    /// `of`: the replica whose pass it is, and where the ranks are. `load`: the documents of a micro-batch, where the plan has some;
    /// outlives this. `sequences`: of a micro-batch; 0: as the plan says. A model without a vocabulary has no tables.
    PassCost(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software, const CostModel& device,
             const DeviceSpec& gpu, const Fabric& fabric, const CollectiveModel& collectives, PathChoice paths,
             const PricedReplica& of = {}, const MicroBatchLoad* load = nullptr, double sequences = 0);

    /// What a layer runs, in order; the backward program begins with what is recomputed. Of a kind that the model has.
    [[nodiscard]] const PassProgram& forward_program(LayerKind kind) const { return of(kind).forward_program; }
    [[nodiscard]] const PassProgram& backward_program(LayerKind kind) const { return of(kind).backward_program; }
    /// Of any pass that has layers; the parts of a backward pass where the schedule splits it.
    [[nodiscard]] const PassProgram& program(LayerKind kind, PassWork work) const;
    /// The same of the tables at the ends of the model; empty where a pass leaves them out.
    [[nodiscard]] PassProgram embedding_program(PassWork work) const;
    [[nodiscard]] PassProgram head_program(PassWork work) const;
    /// The same of the encoder, which the model has: of all images of a micro-batch.
    [[nodiscard]] const PassProgram& encoder_program(EncoderPart part, PassWork work) const;
    [[nodiscard]] const Price& encoder(EncoderPart part, PassWork work) const;
    /// Seconds of its forward and backward passes; 0: there is none.
    [[nodiscard]] double encoder_seconds() const;
    [[nodiscard]] const Price& layer_forward(LayerKind kind) const { return of(kind).forward; }
    /// Includes what is recomputed before it.
    [[nodiscard]] const Price& layer_backward(LayerKind kind) const { return of(kind).backward; }
    /// The backward pass of a layer, a table or the head in two: the gradient of the input (and what is recomputed), and the
    /// gradients of the weights.
    [[nodiscard]] const Price& layer_input_gradient(LayerKind kind) const { return of(kind).input; }
    [[nodiscard]] const Price& layer_weight_gradient(LayerKind kind) const { return of(kind).weight; }
    [[nodiscard]] const Price& head_input_gradient() const { return head_input_; }
    [[nodiscard]] const Price& head_weight_gradient() const { return head_weight_; }
    [[nodiscard]] const Price& embedding_forward() const { return embedding_forward_; }
    [[nodiscard]] const Price& embedding_backward() const { return embedding_backward_; }
    /// Final norm, logits and loss.
    [[nodiscard]] const Price& head_forward() const { return head_forward_; }
    [[nodiscard]] const Price& head_backward() const { return head_backward_; }
    /// A stage's part of the output layer, where the vocabulary is cut over all stages: its scores and their largest value and sum
    /// (and, with one barrier, the gradient of the input as if its own sum were that of all), or what comes after the barrier.
    [[nodiscard]] Price vocabulary_pass(PassWork work) const;
    /// The norm before the output layer.
    [[nodiscard]] Price final_norm(bool backward) const;
    /// Bytes of a micro-batch's input of the output layer on a rank, and of a number in 32 bits for each of its tokens.
    [[nodiscard]] double hidden_bytes() const;
    [[nodiscard]] double token_bytes() const;
    /// The optimizer step over this many weights of a rank, which has the gradients of `held`.
    [[nodiscard]] Price optimizer(double updated, double held) const;
    /// The sum over tensor-parallel ranks of the gradients of this many weights that each has whole.
    [[nodiscard]] Price gradient_sum(double weights) const;
    /// A visit of zeroth-order steps to this many weights of a rank: their update and perturbations, for each matrix of a layer.
    [[nodiscard]] Price zeroth_order(double weights) const;
    /// Seconds that kernels which only move this many bytes take.
    [[nodiscard]] double memory_traffic(double bytes) const { return streaming(bytes).seconds; }
    /// Share of the compute units that a collective takes from kernels beside it.
    [[nodiscard]] double communication_share() const { return units_; }
    /// Of the main memory, as streaming kernels reach it, B/s.
    [[nodiscard]] double memory_rate() const { return memory_rate_; }
    /// Bytes that a rank sends to the next stage for one micro-batch.
    [[nodiscard]] double boundary_bytes() const;
    /// All-gather inside the tensor-parallel group that completes a scattered boundary; 0 when there is none.
    [[nodiscard]] double boundary_gather() const;

  private:
    enum class Direction { forward, backward };
    /// Of a backward pass: all, the gradient of the input, or those of the weights.
    enum class Part { whole, input, weights };
    class Writer;
    /// Bytes that each streaming kernel of a layer moves; norm and residual: of one block.
    struct LayerTraffic {
        double norm = 0, residual = 0, activation = 0, rotary = 0;
        double transposes = 0;  ///< strided copies between tokens and heads
        double joins = 0;       ///< that put gradients of queries, keys and values beside each other
        double scales = 0;      ///< the factor of the scores, on gradients of queries and keys
        double vectors = 0;     ///< gradients of biases and norms, added to what earlier micro-batches left
        double query_key_norm = 0;
        double repeats = 0;           ///< of keys and values, for every query head
        double attention_biases = 0;  ///< where products do not fuse them
        double ffn_biases = 0;
    };
    /// A product of a layer, and whether the kernels before its passes can cast what they write.
    struct Product {
        Gemm gemm;
        bool fused_input;              ///< after a norm or an activation function
        bool fused_gradient;           ///< after the backward pass of an activation function
        double times = 1;              ///< of the same shape, one after another
        double held = 2;               ///< B of a weight in memory
        bool together = false;         ///< all of these in one kernel
        bool written_narrow = false;   ///< the kernel before its forward pass wrote its input in its precision
        bool gradient_narrow = false;  ///< likewise the gradient of what it makes
    };
    /// Products before and after what is in the middle of half a layer.
    struct Block {
        std::vector<Product> in, out;
        std::vector<AdapterShape> in_adapters, out_adapters;
    };
    struct LayerPrices {
        bool priced = false;
        PassProgram forward_program, backward_program, input_program, weight_program;
        Price forward, backward, input, weight;
    };
    [[nodiscard]] const LayerPrices& of(LayerKind kind) const {
        ORRERY_ASSERT(layers_[kind.index()].priced);
        return layers_[kind.index()];
    }
    void price_layer(LayerKind kind);
    /// What a layer computes again before its backward pass, of all layers in the mean; `forward`: its forward pass.
    [[nodiscard]] PassProgram recomputed(LayerKind kind, const PassProgram& forward) const;
    [[nodiscard]] PassProgram recomputed_modules(LayerKind kind) const;
    [[nodiscard]] bool frozen() const { return plan_.frozen(); }  ///< all weights but those of adapters
    void add_adapters(Block& block, LayerProduct in, LayerProduct out) const;
    /// The products of the adapters into or out of the middle of blocks, and their sums with what the frozen weights make.
    void write_adapters(Writer& out, std::span<const Block> blocks, bool inner, PassWork work) const;
    [[nodiscard]] LayerContext layer_context(LayerKind kind) const;
    /// Products among the operations of half a layer; `fused`: the function between them can cast what it writes.
    [[nodiscard]] Block block_of(const LayerOperations& operations, bool fused) const;
    [[nodiscard]] Block attention_block(LayerKind kind) const;
    /// Values that the function between two products of this width moves for a token.
    [[nodiscard]] double activation_values(double width, bool backward) const;
    // State-space layers: pass_state_space.cpp.
    void write_state_space(Writer& out, bool backward) const;
    void write_scan_forward(Writer& out, bool whole) const;
    void write_scan_backward(Writer& out) const;
    struct ScanShape;
    [[nodiscard]] ScanShape scan_shape() const;
    [[nodiscard]] Gemm scan_product(double m, double n, double k, double batch, double extra_bytes = 0) const;
    void write_scan(Writer& out, const char* name, std::span<const Gemm> products) const;
    void write_stream(Writer& out, const char* name, double bytes, double kernels = 1) const;
    // The encoder: pass_encoder.cpp.
    struct Encoder;
    void price_encoder(const CostModel& device, const DeviceSpec& gpu);
    [[nodiscard]] PassProgram encoder_patches(PassWork work) const;
    [[nodiscard]] PassProgram encoder_projector(PassWork work) const;
    [[nodiscard]] Block feed_forward(double width) const;
    void add_flops(Writer& out, const Block& block, bool backward, Part part) const;
    /// From the norm before the router to the sum of what the experts made.
    [[nodiscard]] PassProgram expert_feed_forward(Direction direction, Part part, bool paired) const;
    /// What the function between the experts' products moves.
    [[nodiscard]] double expert_activation_bytes(bool backward) const;
    void write_expert_forward(Writer& out, bool paired) const;
    void write_expert_backward(Writer& out, Part part, bool paired) const;
    void write_expert_wait(Writer& out) const;
    void write_expert_activation(Writer& out, double share, bool backward) const;
    void write_expert_biases(Writer& out, double share, bool backward) const;
    [[nodiscard]] static double launches_of(const Product& product) { return product.together ? 1 : product.times; }
    [[nodiscard]] double start_of_exchange() const;
    void write_shared(Writer& out, Direction direction, Part part) const;
    [[nodiscard]] Block expert_products() const;
    [[nodiscard]] static Product part_of_rows(Product product, double share);
    // Of one of the pieces that a micro-batch's tokens are cut into.
    [[nodiscard]] Alone dispatch(Precision precision) const;
    [[nodiscard]] Alone combine(Precision precision) const;
    [[nodiscard]] Alone exchange_of(double seconds, double tokens, Precision precision) const;
    [[nodiscard]] double shadow_bytes() const;  ///< of the weights of shadowed experts, on a rank
    [[nodiscard]] Alone shadow_exchange(bool gradients) const;
    [[nodiscard]] Alone exchange_of_tokens() const;  ///< of a layer's tokens, there and back
    /// A rank sends a token once for each of its choices: in an order, and what comes back is added up there.
    [[nodiscard]] bool sends_choices() const;
    /// Puts the rows of a rank's experts in their order, or back: so many bytes a value read and written.
    void write_sort(Writer& out, double bytes = 4) const;
    [[nodiscard]] Product router(bool backward) const;
    [[nodiscard]] bool router_by_transformer_engine() const;
    [[nodiscard]] Alone router_casts() const;
    [[nodiscard]] PassProgram layer(LayerKind kind, Direction direction, Part part = Part::whole) const;
    /// `paired`: a pass of another micro-batch runs beside it where experts overlap by batches.
    [[nodiscard]] PassProgram layer_of(LayerKind kind, Direction direction, Part part, bool paired) const;
    /// Of the passes of a stage, those that are paired.
    [[nodiscard]] static double share_of_pairs(const PlanSpec& plan);
    [[nodiscard]] PassProgram attention_core(LayerKind kind, Direction direction) const;
    void write_beside_attention(Writer& out, LayerKind kind, bool backward) const;
    [[nodiscard]] PassProgram embedding(Direction direction) const;
    [[nodiscard]] PassProgram head(Direction direction, Part part = Part::whole) const;
    // Of one block, or of all blocks that run side by side.
    void write_input_products(Writer& out, std::span<const Block> blocks) const;
    void write_output_products(Writer& out, std::span<const Block> blocks) const;
    void write_output_gradients(Writer& out, std::span<const Block> blocks, Part part) const;
    void write_input_gradients(Writer& out, std::span<const Block> blocks, Part part) const;
    void write_triggered(Writer& out, const char* sum, const char* product, const Alone& alone) const;

    [[nodiscard]] static Gemm part_of(const Gemm& gemm, int parts);
    /// All products of these shapes, one after another or in one kernel.
    [[nodiscard]] Alone times_alone(const Product& product, Gemm gemm) const;
    [[nodiscard]] Gemm product(double m, double n, double k, bool low_precision = true) const;
    [[nodiscard]] Alone casts_before(const Gemm& gemm, double values, bool fused) const;
    [[nodiscard]] Alone widening(const Product& product) const;
    [[nodiscard]] Alone row_casts(const Gemm& gemm, double along, double across) const;
    [[nodiscard]] Alone rescaling(const Gemm& gemm) const;
    [[nodiscard]] Alone forward_product(const Product& product, int parts) const;
    [[nodiscard]] Alone data_gradient(const Product& product, int parts) const;
    [[nodiscard]] Alone weight_gradient(const Product& product) const;
    // Attention over the ranks of a sequence: pass_context.cpp.
    void write_context(Writer& out, LayerKind kind, bool backward) const;
    void write_ring(Writer& out, const ConcurrentGroups& ring, const Alone& kernel, double rows, bool backward) const;
    void write_two_way(Writer& out, const Alone& kernel, bool backward) const;
    void write_gathered_ring(Writer& out, const Alone& kernel, bool backward) const;
    void write_gathered(Writer& out, LayerKind kind, bool backward) const;
    void write_key_gather(Writer& out) const;
    void write_key_scatter(Writer& out) const;
    void write_head_exchange(Writer& out, const char* name, double width) const;
    void write_merge(Writer& out, double rows, bool wide, bool backward) const;
    [[nodiscard]] double exchanged_keys() const;  ///< width of the keys of a token on a rank, as ranks exchange them
    [[nodiscard]] Alone exchange(CollectiveOp op, const ConcurrentGroups& groups, double bytes) const;
    void write_documents(Writer& out, LayerKind kind, bool backward) const;
    [[nodiscard]] Attention flash(LayerKind kind, double heads, double length, bool backward) const;
    void write_attention_casts(Writer& out, bool backward) const;
    [[nodiscard]] double norm_kernels() const;
    [[nodiscard]] LayerTraffic traffic(bool backward) const;
    [[nodiscard]] Alone alone(const Operation& operation) const;
    [[nodiscard]] Alone streaming(double bytes, double kernels = 1) const;
    [[nodiscard]] Alone loss_pass(double logits, bool backward) const;
    [[nodiscard]] Alone tensor_collective(CollectiveOp op, double bytes) const;
    [[nodiscard]] Alone input_gather() const;     ///< of a block's input, under sequence parallelism
    [[nodiscard]] double gathered_bytes() const;  ///< a value of it
    /// Between a whole collective and a product: the sequence is put beside or apart from the batch, where the software does that.
    [[nodiscard]] bool copies_sequences() const {
        return software_.copies_sequences && plan_.sequence_parallel && plan_.tensor > 1;
    }
    [[nodiscard]] Alone sequence_copy(double bytes_a_value) const;
    [[nodiscard]] Alone output_sum() const;   ///< of a block's output
    [[nodiscard]] int pieces() const;         ///< that a product and its collective are cut into
    [[nodiscard]] int gather_pieces() const;  ///< of gathers before products
    [[nodiscard]] bool triggers() const;      ///< tiles of a product start the reduction after it

    const ModelSpec& model_;
    const PlanSpec& plan_;
    const SoftwareSpec& software_;
    const CostModel& device_;
    const Fabric& fabric_;
    const CollectiveModel& collectives_;
    RankGroups ranks_;
    const MicroBatchLoad* documents_;  ///< of documents that attend to themselves alone; null: of whole sequences
    double sequences_;                 ///< of a micro-batch
    double tokens_;                    ///< of a micro-batch on a rank, after context parallelism
    double t_;                         ///< tensor-parallel degree
    double stream_slowdown_;           ///< of kernels that move bytes
    double matrix_slowdown_;           ///< of products and attention
    double units_;                     ///< share of the compute units that a collective holds
    double tensor_units_;              ///< the same of a tensor-parallel one
    double memory_rate_;               ///< of the main memory, as streaming kernels reach it, B/s
    double scan_rate_;                 ///< FLOP/s that kernels of a scan reach at most; 0: no such limit
    bool scales_blocks_;  ///< the matrix units apply the scales of blocks, as all that have formats of 4 bits
    LossTraffic loss_;
    ConcurrentGroups tensor_groups_;
    ConcurrentGroups context_groups_;
    ConcurrentGroups head_groups_;  ///< of ranks that exchange tokens for heads, where they do
    ConcurrentGroups outer_rings_;  ///< of ranks at equal places in those
    std::optional<ExpertExchange> exchange_;
    ExpertLoad load_;
    std::array<LayerPrices, LayerKind::kCount> layers_;
    Price head_input_, head_weight_;
    Price embedding_forward_, embedding_backward_, head_forward_, head_backward_;
    std::shared_ptr<const Encoder> encoder_;  ///< null: there is none
};

}  // namespace orrery::training
