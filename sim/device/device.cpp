#include "sim/device/device.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::inline device {

namespace {

constexpr double kBestMatrix = 0.92;     // of the peak, where no best product was measured (models/roofline.hpp)
constexpr double kHostBandwidth = 25e9;  // B/s, where nobody measured pinned copies: 16 lanes of PCIe generation 4
constexpr double kStreamingPower = 0.8;  // of the limit (H200: 578 of 700 W, te42kyfo/gpu-benches@1c36d50)
constexpr double kIdlePower = 0.12;      // of the limit (H100, H200: 70 to 80 of 700 W)

double best_flops(const DeviceSpec& spec, Precision precision) {
    const double peak = spec.matrix_flops(precision);
    const double efficiency = spec.matrix_efficiency.value > 0 ? spec.matrix_efficiency.value : kBestMatrix;
    return (peak > 0 ? peak : spec.flops_bf16.value) * efficiency;
}

Precision precision_of(const Operation& operation) {
    return std::visit(
        [](const auto& one) {
            if constexpr (requires { one.precision; }) {
                return one.precision;
            } else {
                return Precision::bf16;
            }
        },
        operation);
}

}  // namespace

Device::Device(ResourceModel& sharing, const DeviceSpec& spec)
    : best_bytes_(spec.memory_bandwidth.value * spec.memory_efficiency.value), spec_(spec) {
    const double host = spec.host_bandwidth.value > 0 ? spec.host_bandwidth.value : kHostBandwidth;
    units_ = sharing.add_resource(1);
    memory_ = sharing.add_resource(best_bytes_);
    to_device_ = sharing.add_resource(host);
    to_host_ = sharing.add_resource(host);
}

DeviceActivity Device::kernel(const Operation& operation, const Cost& cost, double partition) const {
    ORRERY_ASSERT(partition > 0 && partition <= 1);
    DeviceActivity activity;
    const double seconds = cost.seconds.value();
    activity.amount = seconds;
    if (seconds <= 0) {
        return activity;
    }
    // A kernel alone never uses more than there is, even where its cost is better than the streaming rate (caches).
    const double bytes = std::min(cost.bytes / seconds, best_bytes_);
    if (const auto* copy = std::get_if<Copy>(&operation);
        copy != nullptr && copy->direction != CopyDirection::on_device) {
        const ResourceId engine = copy->direction == CopyDirection::host_to_device ? to_device_ : to_host_;
        const double host = spec_.host_bandwidth.value > 0 ? spec_.host_bandwidth.value : kHostBandwidth;
        activity.demands.push_back({engine, std::min(copy->bytes / seconds, host)});
        activity.demands.push_back({memory_, bytes});
        return activity;
    }
    const double share =
        std::clamp(cost.flops / seconds / best_flops(spec_, precision_of(operation)), kLeastUnits, 1.0);
    activity.demands.push_back({units_, share});
    if (bytes > 0) {
        activity.demands.push_back({memory_, bytes});
    }
    activity.bound = std::min(1.0, partition / share);
    return activity;
}

DeviceActivity Device::work(double seconds, double flops, double bytes, double partition) const {
    ORRERY_ASSERT(partition > 0 && partition <= 1);
    DeviceActivity activity;
    activity.amount = seconds;
    if (seconds > 0) {
        activity.demands.push_back({units_, std::min(partition, units_share(spec_, flops / seconds))});
        if (bytes > 0) {
            activity.demands.push_back({memory_, std::min(bytes / seconds, best_bytes_)});
        }
    }
    return activity;
}

double units_share(const DeviceSpec& spec, double rate) {
    return std::clamp(rate / best_flops(spec, Precision::bf16), Device::kLeastUnits, 1.0);
}

namespace {
// The levels that a board's power moves between, in W, and the 16-bit rate at which products reach theirs.
struct PowerLevels {
    double idle, matrix, streaming, full_rate;
};

PowerLevels power_levels(const DeviceSpec& spec) {
    const double limit = spec.tdp.value;
    PowerLevels levels{};
    levels.idle = spec.idle_power.value > 0 ? spec.idle_power.value : kIdlePower * limit;
    levels.matrix = spec.matrix_power.value > 0 ? spec.matrix_power.value : limit;
    levels.streaming = spec.memory_power.value > 0 ? spec.memory_power.value : kStreamingPower * limit;
    // Products reach their power from the knee on: above it the clock gives way instead.
    levels.full_rate =
        spec.power_knee.value > 0 ? spec.power_knee.value * spec.flops_bf16.value : best_flops(spec, Precision::bf16);
    return levels;
}
}  // namespace

double power_of(const DeviceSpec& spec, const Cost& cost) {
    const PowerLevels levels = power_levels(spec);
    const double limit = spec.tdp.value;
    const double seconds = cost.seconds.value();
    if (seconds <= 0 || limit <= 0) {
        return levels.idle;
    }
    const double idle = levels.idle;
    const double matrix = levels.matrix - idle;
    const double memory = levels.streaming - idle;
    const double compute = std::min(1.0, cost.flops / seconds / levels.full_rate);
    const double streaming =
        std::min(1.0, cost.bytes / seconds / (spec.memory_bandwidth.value * spec.memory_efficiency.value));
    return std::min(limit, idle + std::max(compute * matrix, streaming * memory) +
                               std::min(compute * matrix, streaming * memory) * 0.5);
}

double energy_of(const DeviceSpec& spec, const Cost& cost) {
    return power_of(spec, cost) * cost.seconds.value();
}

double energy_of(const DeviceSpec& spec, const DeviceWork& work) {
    return energy_of(spec, work, 1).value;
}

Bounded energy_of(const DeviceSpec& spec, const DeviceWork& work, double clock) {
    ORRERY_ASSERT(clock > 0);
    const PowerLevels levels = power_levels(spec);
    const double busy = std::min(work.busy_seconds, work.seconds);
    const double matrix = std::min(busy, work.flops / (clock * levels.full_rate));
    // `products`, `streaming`: power above idle over that at the usual clock.
    const auto energy = [&](double products, double streaming) {
        const auto above = [&](double level, double factor) {
            return std::min(level * factor, std::max(level, spec.tdp.value - levels.idle));
        };
        return levels.idle * work.seconds + above(levels.matrix - levels.idle, products) * matrix +
               above(levels.streaming - levels.idle, streaming) * (busy - matrix);
    };
    const double cubed = clock * clock * clock;
    Bounded out{energy(cubed, cubed), energy(clock * clock, clock * std::sqrt(clock)), energy(clock, 1)};
    if (clock > 1) {
        std::swap(out.low, out.high);
    }
    return out;
}

}  // namespace orrery::inline device
