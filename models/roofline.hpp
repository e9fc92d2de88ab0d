#pragma once
// Roofline with tile and wave quantisation: the compute model of operations without measured kernels.
//
// Claims: t = launch + max(compute, memory). Compute time counts whole output tiles of 128 x 256 (smaller tiles for
// small problems, down to the 16 rows of an instruction, so that a token of decoding is no compute of 64 rows) in whole
// waves over the compute units, at the device's best measured matrix rate inside a tile (92 % of the peak where nobody
// measured one); memory time moves every operand once at the device's measured streaming rate. Few outputs of a long sum
// are computed in parts, whose sums move through the memory once more, where that is faster. Experts are products of their
// own, with the average rows of an active one. Fused attention takes some microseconds however little it is. Scores of an indexer, its
// choice and the delta rule of prompts run at shares of the peaks that they reach where they were measured (models/data/kernels).
// Scope: every operation of sim/device/operation.hpp.
// Limits: no L2 reuse, no clock model. Its spread is what a roofline with waves shows when it is carried to a
// device it was not fitted on.
// Sources: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009; NVIDIA, "Matrix Multiplication Background
// User's Guide" (tiles and waves). The 92 % is the rate of the largest GEMM in the A100 table (293 of 312 TFLOP/s)
// less 2 %.
// Validated by tests/models/cost_model_test.cpp and `orrery validate training`.

#include "sim/base/namespaces.hpp"
#include "sim/device/cost_model.hpp"

namespace orrery::models {

class Roofline final : public CostModel {
  public:
    explicit Roofline(const DeviceSpec& device) : device_(device) {}
    [[nodiscard]] Cost cost(const Operation& operation) const override;

    /// Streaming rate of the main memory in B/s.
    [[nodiscard]] double memory_rate() const {
        return device_.memory_bandwidth.value * device_.memory_efficiency.value;
    }

  private:
    [[nodiscard]] double seconds_of(const Gemm& gemm) const;
    [[nodiscard]] double seconds_of(const GroupedGemm& gemm) const;
    [[nodiscard]] double seconds_of(const FusedExperts& experts) const;
    [[nodiscard]] double seconds_of(const ExpertRouting& routing) const;
    [[nodiscard]] double seconds_of(const Attention& attention) const;
    [[nodiscard]] double seconds_of(const LatentAttention& attention) const;
    [[nodiscard]] double seconds_of(const IndexScores& scores) const;
    [[nodiscard]] double seconds_of(const TopChoice& choice) const;
    [[nodiscard]] double seconds_of(const DeltaScan& scan) const;
    [[nodiscard]] double attention_start() const;
    [[nodiscard]] double streaming_start() const;
    [[nodiscard]] double seconds_of(const Streaming& streaming) const;
    [[nodiscard]] double seconds_of(const Copy& copy) const;
    [[nodiscard]] double seconds_of(const Launch& launch) const;
    [[nodiscard]] double product(double m, double n, double k, double batch, Precision precision) const;

    DeviceSpec device_;
};

/// How many times the arithmetic of a product takes for its accumulator's sake: at least 1. Transformer Engine, torchao and XLA use fast
/// accumulation in forward products alone (openxla/xla issue 6168, pytorch/ao issue 2377).
[[nodiscard]] double split_accumulator(const DeviceSpec& device, const Gemm& gemm);

/// How many times as long as the measured kernels of the device a generation of fused attention takes in training: FlashAttention-2 by the
/// device's figure, which the newest kernels never fall short of, at every length (0.61 to 0.63 of cuDNN's rate from 512 to 16,384 tokens in heads of 128 on H100: Shah et al.,
/// "FlashAttention-3", arXiv:2407.08608, figures 5 and 6).
[[nodiscard]] double earlier_attention(const DeviceSpec& device, const Attention& attention);

/// FLOPs and bytes through the main memory of any operation.
[[nodiscard]] double flops_of(const Operation& operation);
[[nodiscard]] double bytes_of(const Operation& operation);

}  // namespace orrery::models
