#include "models/scaled_device.hpp"

#include <algorithm>

namespace orrery::models {

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

Cost scaled(Cost cost, const Operation& operation, const DeviceSpec& device, double arithmetic, double memory) {
    const double computing = cost.flops / peak_of(operation, device);
    const double moving = cost.bytes / (device.memory_bandwidth.value * device.memory_efficiency.value);
    const double bound = std::max(computing, moving);
    const double launches = launches_of(operation) * device.launch.value;
    const double kernels = cost.seconds.value() - launches;
    if (bound > 0 && kernels > 0) {
        cost.seconds = Seconds(launches + kernels * std::max(computing / arithmetic, moving / memory) / bound);
    }
    return cost;
}

Cost ScaledDevice::cost(const Operation& operation) const {
    return scaled(base_.cost(operation), operation, device_, arithmetic_, memory_);
}

bool ScaledDevice::runs_beside(const Operation& operation) const {
    const auto* units = dynamic_cast<const SeparateUnits*>(&base_);
    return units != nullptr && units->runs_beside(operation);
}

}  // namespace orrery::models
