#pragma once
// A device as resources that kernels and copies share.
//
// Claims: a kernel alone runs for its cost's seconds. Beside others it is an activity of that many seconds at a rate of at
// most 1, which at rate 1 keeps busy
//   * the compute units with its FLOPs over what they deliver at best in that time (at least `kLeastUnits`: issuing loads
//     takes units too);
//   * the main memory with its bytes per second;
//   * the copy engine of its direction, for copies from and to the host.
// So two products share the units and take as long as one after the other, a product hides a memory-bound kernel as far
// as the memory allows, and a host copy costs a product only its share of memory bandwidth. A kernel confined to a
// partition of the units runs at the rate that its share of them allows.
// Scope: one device. Limits: no interference in caches and schedulers beyond these shares; partitions are not isolated
// in memory.
// Sources: the fluid view of resources (sim/engine/resource_model.hpp). kLeastUnits is assumed: streaming kernels reach 90 % of
// the memory's rate from about a fifth of the units on (te42kyfo/gpu-benches@1c36d50, gpu-stream by occupancy).
// Validated by tests/sim/device/device_test.cpp.

#include "sim/device/cost_model.hpp"
#include "sim/engine/resource_model.hpp"

#include <vector>

namespace orrery::device {

/// Demands of one activity, its amount and its bound, ready for `ResourceModel::hold` and `start`.
struct DeviceActivity {
    std::vector<Demand> demands;
    double amount = 0;  ///< s alone
    double bound = 1;   ///< rate at most
};

class Device {
  public:
    /// Adds the device's resources to `sharing`, which outlives this.
    Device(ResourceModel& sharing, const DeviceSpec& spec);

    /// A kernel with this cost on a `partition` of the compute units (a fraction above 0, at most 1).
    [[nodiscard]] DeviceActivity kernel(const Operation& operation, const Cost& cost, double partition = 1) const;

    /// Other work, of `seconds` on the `partition` alone, in which the units do `flops` (16 bits) and `bytes` pass the memory.
    [[nodiscard]] DeviceActivity work(double seconds, double flops, double bytes, double partition = 1) const;

    [[nodiscard]] ResourceId units() const { return units_; }
    [[nodiscard]] ResourceId memory() const { return memory_; }
    [[nodiscard]] ResourceId to_device() const { return to_device_; }
    [[nodiscard]] ResourceId to_host() const { return to_host_; }

    static constexpr double kLeastUnits = 0.2;

  private:
    double best_bytes_;  ///< B/s of the memory at best
    DeviceSpec spec_;
    ResourceId units_, memory_, to_device_, to_host_;
};

/// FLOP/s of the best measured product in a format; in 16 bits where the device has no unit for it.
[[nodiscard]] double best_flops(const DeviceSpec& spec, Precision precision);

/// Share of the compute units that is busy at this rate in FLOP/s of 16-bit products, at least `Device::kLeastUnits`.
[[nodiscard]] double units_share(const DeviceSpec& spec, double rate);

}  // namespace orrery::device
