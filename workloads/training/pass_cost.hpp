#pragma once
// What one pass of one micro-batch through one layer costs a rank: its kernels and its tensor-parallel communication.
//
// Claims: a layer is the list of its matrix products, attention kernels and streaming kernels, each priced by the
// device's cost model; tensor- and context-parallel collectives are priced on the fabric, alone, because every rank
// of a group is in the same place of the same program. What is hidden behind kernels is taken off, as the plan's
// overlap switches say.
// Scope: dense transformers, MHA and GQA, plain or gated feed-forward, unfused or flash attention, fp16/bf16/fp8.
// Limits: no contention between a hidden collective and the kernels that hide it; fp8 keeps attention, norms and
// the LM head in 16 bits and pays for the casts of both operands of each product, as with one scale a tensor; scales a row
// cost more (a cast for each of the three products, slower products) and are not modelled.
// Sources: Narayanan et al., SC21 (tensor parallelism, recomputation); Korthikanti et al., arXiv:2205.05198
// (sequence parallelism, selective recomputation, activation memory); NVIDIA Transformer Engine documentation (fp8
// casts).
// Validated by tests/workloads/training_test.cpp (FLOPs against 6ND and the causal formula) and `orrery validate
// training`.

#include "sim/device/cost_model.hpp"
#include "sim/engine/task_graph.hpp"
#include "sim/network/collective.hpp"
#include "workloads/training/spec.hpp"

#include <array>

namespace orrery {

/// Seconds by category.
struct Price {
    std::array<double, kCategoryCount> seconds{};
    double flops = 0;  ///< of matrix products and attention, recomputation included

    double& operator[](Category category) { return seconds[static_cast<std::size_t>(category)]; }
    [[nodiscard]] double operator[](Category category) const { return seconds[static_cast<std::size_t>(category)]; }
    [[nodiscard]] double total() const;
    Price& operator+=(const Price& other);
    friend Price operator*(Price price, double k);
};

class PassCost {
  public:
    PassCost(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software, const CostModel& device,
             const Fabric& fabric, const CollectiveModel& collectives, PathChoice paths);

    [[nodiscard]] const Price& layer_forward() const { return layer_forward_; }
    /// Includes what is recomputed before it.
    [[nodiscard]] const Price& layer_backward() const { return layer_backward_; }
    [[nodiscard]] const Price& embedding_forward() const { return embedding_forward_; }
    [[nodiscard]] const Price& embedding_backward() const { return embedding_backward_; }
    /// Final norm, logits and loss.
    [[nodiscard]] const Price& head_forward() const { return head_forward_; }
    [[nodiscard]] const Price& head_backward() const { return head_backward_; }
    /// The optimizer step over this many weights of a rank.
    [[nodiscard]] Price optimizer(double parameters) const;
    /// Seconds that kernels which only move this many bytes take.
    [[nodiscard]] double memory_traffic(double bytes) const { return streaming(bytes); }
    /// Bytes that a rank sends to the next stage for one micro-batch.
    [[nodiscard]] double boundary_bytes() const;
    /// All-gather inside the tensor-parallel group that completes a scattered boundary; 0 when there is none.
    [[nodiscard]] double boundary_gather() const;

  private:
    enum class Direction { forward, backward };
    [[nodiscard]] Price price_layer(Direction direction, bool attention_only) const;
    [[nodiscard]] Price price_attention(Direction direction) const;
    [[nodiscard]] Price price_head(Direction direction) const;
    [[nodiscard]] double product(double m, double n, double k, bool low_precision, Price& price) const;
    [[nodiscard]] double product_backward(double m, double n, double k, bool low_precision, Price& price) const;
    [[nodiscard]] double streaming(double bytes, double kernels = 1) const;
    [[nodiscard]] double tensor_collective(CollectiveOp op, double bytes) const;
    [[nodiscard]] double exposed(double communication, double cover, bool hidden, bool chunked) const;

    const ModelSpec& model_;
    const PlanSpec& plan_;
    const SoftwareSpec& software_;
    const CostModel& device_;
    const Fabric& fabric_;
    const CollectiveModel& collectives_;
    PathChoice paths_;
    double tokens_;  ///< of a micro-batch on a rank, after context parallelism
    double t_;       ///< tensor-parallel degree
    std::vector<GpuId> tensor_group_;
    std::vector<GpuId> context_group_;
    Price layer_forward_, layer_backward_, embedding_forward_, embedding_backward_, head_forward_, head_backward_;
};

}  // namespace orrery
