#include "models/power_capped.hpp"

#include "models/scaled_device.hpp"
#include "sim/base/math.hpp"
#include "sim/device/power.hpp"

#include <algorithm>

namespace orrery::models {

namespace {

constexpr double kLowestClock = 0.1;  // of the usual one (NVIDIA boards: 210 of some 2,000 MHz)
// Of what a board at its limit draws: what no clock changes, and the power of the clock that the rest goes with. Means of the two
// boards of `orrery validate energy` that reach their limit (V100: 83 of 246 W and 2.45, Quadro RTX 6000: 98 of 257 W and 2.63).
constexpr double kFixed = 0.36;
constexpr double kExponent = 2.54;

// W at a share of the usual clock of kernels that draw `all` W there, of which `stays` at any. Below the clock where a line to what
// stays touches the law, power follows that line: the voltage is as low as it gets.
double power_at(double clock, double all, double stays) {
    const double fixed = std::max(stays, kFixed * all);
    ORRERY_ASSERT(all > fixed);
    const double lowest = pow_pinned((fixed - stays) / ((kExponent - 1) * (all - fixed)), 1 / kExponent);
    const auto law = [&](double c) { return fixed + (all - fixed) * pow_pinned(c, kExponent); };
    return clock >= lowest ? law(clock) : stays + (law(lowest) - stays) * clock / lowest;
}

}  // namespace

PowerCapped::PowerCapped(std::unique_ptr<CostModel> base, DeviceSpec device)
    : base_(std::move(base)), device_(std::move(device)) {
    ORRERY_ASSERT(has_power_law(device_) && device_.power_limit.value > 0);
}

double PowerCapped::clock(const Operation& operation, const Cost& cost) const {
    const double limit = board_limit(device_);
    const double idle = idle_power(device_);
    const double seconds = cost.seconds.value();
    const double memory = energy_of_bytes(device_, cost.bytes) / seconds;
    // The board's own limit holds at the usual clock.
    const double all = std::min(device_.tdp.value, std::max(idle, device_.active_power.value) + memory +
                                                       energy_of_flops(device_, cost.flops) / seconds);
    if (all <= limit || all <= idle + memory) {
        return 1;
    }
    const auto power = [&](double clock) {
        const double slower = scaled(cost, operation, device_, clock, 1).seconds.value() / seconds;
        return power_at(clock, all, idle + memory) - memory + memory / slower;
    };
    double low = kLowestClock;
    double high = 1;
    for (int i = 0; i < 40; ++i) {
        const double middle = (low + high) / 2;
        (power(middle) <= limit ? low : high) = middle;
    }
    return low;
}

double PowerCapped::clock(const Operation& operation) const {
    return clock(operation, base_->cost(operation));
}

Cost PowerCapped::cost(const Operation& operation) const {
    const Cost cost = base_->cost(operation);
    return cost.seconds.value() > 0 ? scaled(cost, operation, device_, clock(operation, cost), 1) : cost;
}

bool PowerCapped::runs_beside(const Operation& operation) const {
    const auto* units = dynamic_cast<const SeparateUnits*>(base_.get());
    return units != nullptr && units->runs_beside(operation);
}

}  // namespace orrery::models
