#include "models/scaled_device.hpp"

#include <algorithm>

namespace orrery::inline cost {

namespace {

// FLOP/s of the units that an operation runs on.
double peak_of(const Operation& operation, const DeviceSpec& device) {
    const double peak = std::visit(
        [&](const auto& one) {
            if constexpr (requires { one.precision; }) {
                return device.matrix_flops(one.precision);
            } else {
                return device.flops_bf16.value;
            }
        },
        operation);
    return peak > 0 ? peak : device.flops_bf16.value;
}

double launches_of(const Operation& operation) {
    return std::visit(
        [](const auto& one) {
            if constexpr (requires { one.kernels; }) {
                return one.kernels;
            } else {
                return 1.0;
            }
        },
        operation);
}

}  // namespace

Cost ScaledDevice::cost(const Operation& operation) const {
    Cost cost = base_.cost(operation);
    const double arithmetic = cost.flops / peak_of(operation, device_);
    const double memory = cost.bytes / (device_.memory_bandwidth.value * device_.memory_efficiency.value);
    const double bound = std::max(arithmetic, memory);
    const double launches = launches_of(operation) * device_.launch.value;
    const double kernels = cost.seconds.value() - launches;
    if (bound > 0 && kernels > 0) {
        cost.seconds = Seconds(launches + kernels * std::max(arithmetic / arithmetic_, memory / memory_) / bound);
    }
    return cost;
}

bool ScaledDevice::runs_beside(const Operation& operation) const {
    const auto* units = dynamic_cast<const SeparateUnits*>(&base_);
    return units != nullptr && units->runs_beside(operation);
}

}  // namespace orrery::inline cost
