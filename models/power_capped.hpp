#pragma once
// A device held to a power limit by the clock of its units.
//
// Claims: a kernel that would draw more than the limit (sim/device/power.hpp) runs at the highest clock that keeps it there: arithmetic
// slows with the clock, memory keeps its own. What the units draw goes with clock times voltage squared, which does not fall to
// nothing with the clock: measured boards at their limit keep 0.36 of it, and the rest goes with clock^2.54 (Zeus, `orrery validate
// energy`) until the voltage is as low as it gets and power goes with the clock. What memory and idle draw stays at any clock.
// Scope: devices with active_power, energy_per_flop and energy_per_byte.
// Limits: each kernel has its own clock, where boards average over some milliseconds; a board that lowers its clock for kernels
// of many kinds slows those below the limit, too.
// Validated by tests/models/power_test.cpp; the law of clock and limit on other devices by `orrery validate energy`.

#include "sim/base/namespaces.hpp"
#include "sim/device/cost_model.hpp"
#include "sim/device/device_spec.hpp"
#include "sim/device/separate_units.hpp"

#include <memory>

namespace orrery::models {

class PowerCapped final : public CostModel, public SeparateUnits {
  public:
    /// `device`: has a power law and a power_limit above 0.
    PowerCapped(std::unique_ptr<CostModel> base, DeviceSpec device);
    [[nodiscard]] Cost cost(const Operation& operation) const override;
    [[nodiscard]] bool runs_beside(const Operation& operation) const override;
    /// The clock at which an operation runs, over the usual one.
    [[nodiscard]] double clock(const Operation& operation) const;

  private:
    [[nodiscard]] double clock(const Operation& operation, const Cost& cost) const;

    std::unique_ptr<CostModel> base_;
    DeviceSpec device_;
};

}  // namespace orrery::models
