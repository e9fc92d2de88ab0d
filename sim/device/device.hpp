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

namespace orrery::inline device {

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

/// Share of the compute units that is busy at this rate in FLOP/s of 16-bit products, at least `Device::kLeastUnits`.
[[nodiscard]] double units_share(const DeviceSpec& spec, double rate);

/// Mean power of a device that spends `seconds` busy with this cost, in W: between idle and what matrix products or
/// streaming kernels draw, by how far the cost uses either.
[[nodiscard]] double power_of(const DeviceSpec& spec, const Cost& cost);
/// Energy in J.
[[nodiscard]] double energy_of(const DeviceSpec& spec, const Cost& cost);

/// What devices did over a run, summed over them.
struct DeviceWork {
    double seconds = 0;       ///< switched on
    double busy_seconds = 0;  ///< running kernels
    double flops = 0;         ///< of matrix products and attention, in 16 bits
};
/// Energy of a run in J: kernels draw the power of matrix products for as long as their FLOPs need at the rate where that power is
/// reached, that of streaming for the rest of their time, and all other time is idle. Boards only: no host, network or cooling.
[[nodiscard]] double energy_of(const DeviceSpec& spec, const DeviceWork& work);

/// A value of which only bounds are known.
struct Bounded {
    double low = 0, value = 0, high = 0;
};
/// The same with the units at `clock` times their usual frequency. Switching takes an energy of C V^2 (Chandrakasan et al.,
/// "Low-power CMOS digital design", IEEE JSSC 27(4), 1992), so what products take above idle follows the square of the voltage.
/// That is not known: it lies between one that stays (the regulator's floor) and one in proportion to the clock. While kernels
/// stream, the memory's share does not change with the clock and the rest does with f V^2; how they divide is not known
/// either, so the bounds are all of the one and all of the other. The value is the geometric middle of each pair of bounds.
/// A board draws no more than its limit.
[[nodiscard]] Bounded energy_of(const DeviceSpec& spec, const DeviceWork& work, double clock);

}  // namespace orrery::inline device
