#include "sim/device/device.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::device {

namespace {

constexpr double kHostBandwidth = 25e9;  // B/s, where nobody measured pinned copies: 16 lanes of PCIe generation 4

}  // namespace

double best_flops(const DeviceSpec& spec, Precision precision) {
    constexpr double kBestMatrix = 0.92;  // of the peak, where no best product was measured (models/roofline.hpp)
    const double peak = spec.matrix_flops(precision);
    const double efficiency = spec.matrix_efficiency.value > 0 ? spec.matrix_efficiency.value : kBestMatrix;
    return (peak > 0 ? peak : spec.flops_bf16.value) * efficiency;
}

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
    ORRERY_ASSERT(activity.bound > 0);
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

}  // namespace orrery::device
