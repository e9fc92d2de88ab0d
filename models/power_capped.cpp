#include "models/power_capped.hpp"

#include "models/scaled_device.hpp"
#include "sim/device/power.hpp"

#include <algorithm>

namespace orrery::inline cost {

namespace {

constexpr double kLowestClock = 0.1;  // of the usual one (NVIDIA boards: 210 of some 2,000 MHz)

}  // namespace

PowerCapped::PowerCapped(std::unique_ptr<CostModel> base, DeviceSpec device)
    : base_(std::move(base)), device_(std::move(device)) {
    ORRERY_ASSERT(has_power_law(device_) && device_.power_limit.value > 0);
}

double PowerCapped::clock(const Operation& operation, const Cost& cost) const {
    const double limit = board_limit(device_);
    const double idle = idle_power(device_);
    // The board's own limit holds at the usual clock.
    const double seconds = cost.seconds.value();
    const double memory = energy_of_bytes(device_, cost.bytes) / seconds;
    const double wanted =
        std::max(0.0, device_.active_power.value - idle) + energy_of_flops(device_, cost.flops) / seconds;
    const double units = std::min(wanted, std::max(0.0, device_.tdp.value - idle - memory));
    const auto power = [&](double clock) {
        const double slower = scaled(cost, operation, device_, clock, 1).seconds.value() / seconds;
        return idle + units * clock * clock * clock + memory / slower;
    };
    if (power(1) <= limit) {
        return 1;
    }
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

}  // namespace orrery::inline cost
