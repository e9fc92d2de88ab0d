#pragma once
// A device whose arithmetic or memory is faster or slower than the one a cost model describes: what would help, or a clock
// held down by a cap on power.
//
// Claims: a kernel is bound by the larger of FLOPs over peak and bytes over memory rate; its measured time shrinks as that
// bound does, so tables of measured kernels answer too.
// Limits: a kernel that is bound by neither (launches, small sizes) is taken to scale as well; caches do not change.
// Validated by tests/tools/explain_test.cpp.

#include "sim/base/namespaces.hpp"
#include "sim/device/cost_model.hpp"
#include "sim/device/separate_units.hpp"

#include <memory>

namespace orrery::models {

/// `cost` of an operation with arithmetic and memory this much faster.
[[nodiscard]] Cost scaled(Cost cost, const Operation& operation, const DeviceSpec& device, double arithmetic,
                          double memory);

class ScaledDevice final : public CostModel, public SeparateUnits {
  public:
    /// `arithmetic`, `memory`: factors of the rates, above 0. `base` outlives this ...
    ScaledDevice(const CostModel& base, DeviceSpec device, double arithmetic, double memory)
        : base_(base), device_(std::move(device)), arithmetic_(arithmetic), memory_(memory) {}
    /// ... or belongs to it.
    ScaledDevice(std::unique_ptr<CostModel> base, DeviceSpec device, double arithmetic, double memory)
        : owned_(std::move(base)),
          base_(*owned_),
          device_(std::move(device)),
          arithmetic_(arithmetic),
          memory_(memory) {}
    [[nodiscard]] Cost cost(const Operation& operation) const override;
    [[nodiscard]] bool runs_beside(const Operation& operation) const override;

  private:
    std::unique_ptr<CostModel> owned_;
    const CostModel& base_;
    DeviceSpec device_;
    double arithmetic_, memory_;
};

}  // namespace orrery::models
