#pragma once
// What one pass of one micro-batch through one layer costs a rank: its kernels and its tensor-parallel communication.
//
// Claims: a layer is the list of its matrix products, attention kernels and streaming kernels, each priced by the
// device's cost model; tensor- and context-parallel collectives are priced on the fabric, alone, because every rank
// of a group is in the same place of the same program. Both are operations of a program (pass_program.hpp) on streams of
// their own, in the order and with the waits that the plan's overlap switches say.
// Scope: dense transformers, MHA and GQA, plain or gated feed-forward, unfused or flash attention, fp16/bf16/fp8.
// Matrix kernels run at the speed of the job's slowest device (DeviceSpec::slowest_of), since all wait for it in every step.
// Limits: fp8 keeps attention, norms and the LM head in 16 bits; products with a scale a row are priced as those with one a
// tensor.
// Sources: Narayanan et al., SC21 (tensor parallelism, recomputation); Korthikanti et al., arXiv:2205.05198
// (sequence parallelism, selective recomputation, activation memory); NVIDIA Transformer Engine documentation (fp8
// casts).
// Validated by tests/workloads/training_test.cpp (FLOPs against 6ND and the causal formula) and `orrery validate
// training`.

#include "sim/device/cost_model.hpp"
#include "sim/network/collective.hpp"
#include "workloads/training/pass_program.hpp"
#include "workloads/training/spec.hpp"

#include <span>

namespace orrery::inline training {

class PassCost {
  public:
    PassCost(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software, const CostModel& device,
             const DeviceSpec& gpu, const Fabric& fabric, const CollectiveModel& collectives, PathChoice paths);

    /// What a layer runs, in order; the backward program begins with what is recomputed.
    [[nodiscard]] const PassProgram& forward_program() const { return forward_; }
    [[nodiscard]] const PassProgram& backward_program() const { return backward_; }
    [[nodiscard]] const Price& layer_forward() const { return layer_forward_; }
    /// Includes what is recomputed before it.
    [[nodiscard]] const Price& layer_backward() const { return layer_backward_; }
    /// The backward pass of a layer, a table or the head in two: the gradient of the input (and what is recomputed), and the
    /// gradients of the weights.
    [[nodiscard]] const Price& layer_input_gradient() const { return layer_input_; }
    [[nodiscard]] const Price& layer_weight_gradient() const { return layer_weight_; }
    [[nodiscard]] const Price& head_input_gradient() const { return head_input_; }
    [[nodiscard]] const Price& head_weight_gradient() const { return head_weight_; }
    [[nodiscard]] const Price& embedding_forward() const { return embedding_forward_; }
    [[nodiscard]] const Price& embedding_backward() const { return embedding_backward_; }
    /// Final norm, logits and loss.
    [[nodiscard]] const Price& head_forward() const { return head_forward_; }
    [[nodiscard]] const Price& head_backward() const { return head_backward_; }
    /// The optimizer step over this many weights of a rank.
    [[nodiscard]] Price optimizer(double parameters) const;
    /// Seconds that kernels which only move this many bytes take.
    [[nodiscard]] double memory_traffic(double bytes) const { return streaming(bytes); }
    /// Share of the compute units that a collective takes from kernels beside it.
    [[nodiscard]] double communication_share() const { return units_; }
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
        double norm, residual, activation, rotary, transposes;
    };
    /// A product of a layer, and whether the kernels before its passes can cast what they write.
    struct Product {
        Gemm gemm;
        bool fused_input;     ///< after a norm or an activation function
        bool fused_gradient;  ///< after the backward pass of an activation function
    };
    [[nodiscard]] PassProgram layer(Direction direction, Part part = Part::whole) const;
    [[nodiscard]] PassProgram attention_core(Direction direction) const;
    [[nodiscard]] PassProgram embedding(Direction direction) const;
    [[nodiscard]] PassProgram head(Direction direction, Part part = Part::whole) const;
    // Of one block, or of all blocks that run side by side: a pair of products each, in and out.
    void write_input_products(Writer& out, std::span<const Product[2]> blocks) const;
    void write_output_products(Writer& out, std::span<const Product[2]> blocks) const;
    void write_output_gradients(Writer& out, std::span<const Product[2]> blocks, Part part) const;
    void write_input_gradients(Writer& out, std::span<const Product[2]> blocks, Part part) const;

    [[nodiscard]] static Gemm part_of(const Gemm& gemm, int parts);
    [[nodiscard]] Gemm product(double m, double n, double k, bool low_precision = true) const;
    [[nodiscard]] double cast_seconds(const Gemm& gemm, double values, bool fused) const;
    [[nodiscard]] double row_casts(const Gemm& gemm, double values, bool weights) const;
    [[nodiscard]] double forward_seconds(const Product& product, int parts) const;
    [[nodiscard]] double data_gradient_seconds(const Product& product, int parts) const;
    [[nodiscard]] double weight_gradient_seconds(const Gemm& gemm) const;
    [[nodiscard]] Attention flash(double heads, double length, bool backward) const;
    [[nodiscard]] LayerTraffic traffic(bool backward) const;
    [[nodiscard]] double streaming(double bytes, double kernels = 1) const;
    [[nodiscard]] double tensor_collective(CollectiveOp op, double bytes) const;
    [[nodiscard]] double gather_seconds() const;  ///< of a block's input, under sequence parallelism
    [[nodiscard]] double sum_seconds() const;     ///< of a block's output
    [[nodiscard]] int pieces() const;             ///< that a product and its collective are cut into

    const ModelSpec& model_;
    const PlanSpec& plan_;
    const SoftwareSpec& software_;
    const CostModel& device_;
    const Fabric& fabric_;
    const CollectiveModel& collectives_;
    PathChoice paths_;
    double tokens_;           ///< of a micro-batch on a rank, after context parallelism
    double t_;                ///< tensor-parallel degree
    double stream_slowdown_;  ///< of kernels that move bytes
    double matrix_slowdown_;  ///< of products and attention
    double units_;            ///< share of the compute units that a collective holds
    double tensor_units_;     ///< the same of a tensor-parallel one
    std::vector<GpuId> tensor_group_;
    std::vector<GpuId> context_group_;
    PassProgram forward_, backward_;  ///< of a layer
    Price layer_input_, layer_weight_, head_input_, head_weight_;
    Price layer_forward_, layer_backward_, embedding_forward_, embedding_backward_, head_forward_, head_backward_;
};

}  // namespace orrery::inline training
