#pragma once
// Roofline with tile and wave quantisation: the compute model of devices without measured kernels.
//
// Claims: t = launch + max(compute, memory). Compute time counts whole output tiles of 128 x 256 (smaller tiles for
// small problems) in whole waves over the compute units, at 92 % of the tensor peak inside a tile; memory time
// moves every operand once at the device's measured streaming rate.
// Scope: dense matrix products, flash attention, streaming kernels.
// Limits: no split-K, no L2 reuse, no clock model.
// Sources: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009; NVIDIA, "Matrix Multiplication Background
// User's Guide" (tiles and waves). The 92 % is the rate of the largest GEMM in the A100 table (293 of 312 TFLOP/s)
// less 2 %.
// Validated by tests/models/cost_model_test.cpp and `orrery validate training`.

#include "sim/device/cost_model.hpp"

namespace orrery {

class Roofline final : public CostModel {
  public:
    explicit Roofline(const DeviceSpec& device) : device_(device) {}
    [[nodiscard]] Seconds seconds(const Gemm& gemm) const override;
    [[nodiscard]] Seconds seconds(const Attention& attention) const override;
    [[nodiscard]] Seconds seconds(const Streaming& streaming) const override;

    /// Streaming rate of the main memory in B/s.
    [[nodiscard]] double memory_rate() const {
        return device_.memory_bandwidth.value * device_.memory_efficiency.value;
    }

  private:
    DeviceSpec device_;
};

}  // namespace orrery
