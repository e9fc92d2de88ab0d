#pragma once
// What a board draws, by what it does.
//
// Claims: with kernels under way a board draws `active_power`; every FLOP, whatever its format, and every byte through its memory takes
// an energy of its own on top, up to the board's limit (E = pi_0 T + eps_flop W + eps_mem Q: Choi, Bedard, Fowler, Vuduc, "A roofline
// model of energy", IPDPS 2013, section II). Without these three figures the levels stand for them: what products and streaming kernels without pause
// were measured to draw. Where neither is known, nothing is.
// Scope: boards; no host, network, conversion of mains or cooling.
// Limits: copies between devices draw what idle does; a FLOP in 8 or 4 bits takes what one in 16 bits does, so that narrow products
// near their peak come out at the board's limit.
// Validated by `orrery validate energy` and tests/models/power_test.cpp.

#include "sim/device/cost_model.hpp"
#include "sim/device/device_spec.hpp"

namespace orrery::device {

/// Whether the figures suffice for power and energy.
[[nodiscard]] bool knows_power(const DeviceSpec& spec);
/// Whether the law of active_power, energy_per_flop and energy_per_byte holds.
[[nodiscard]] bool has_power_law(const DeviceSpec& spec);
/// J above active_power of what a device computes and moves through its memory, by the law.
[[nodiscard]] double energy_of_flops(const DeviceSpec& spec, double flops);
[[nodiscard]] double energy_of_bytes(const DeviceSpec& spec, double bytes);
/// W with nothing under way.
[[nodiscard]] double idle_power(const DeviceSpec& spec);
/// W that the board never goes beyond: power_limit, else tdp.
[[nodiscard]] double board_limit(const DeviceSpec& spec);

/// Mean power of a device that spends `seconds` busy with this cost, in W.
[[nodiscard]] double power_of(const DeviceSpec& spec, const Cost& cost);
/// Energy in J.
[[nodiscard]] double energy_of(const DeviceSpec& spec, const Cost& cost);

/// What devices did over a run, summed over them.
struct DeviceWork {
    double seconds = 0;       ///< switched on
    double busy_seconds = 0;  ///< running kernels
    double flops = 0;         ///< of matrix products and attention, in their own formats
    double bytes = -1;        ///< through the main memory; negative: streamed in what the FLOPs leave of the busy time
};
/// Energy of a run in J. By levels: kernels draw the power of matrix products for as long as their FLOPs need at the rate where that
/// power is reached, that of streaming for the rest of their time, and all other time is idle.
[[nodiscard]] double energy_of(const DeviceSpec& spec, const DeviceWork& work);

/// A value of which only bounds are known.
struct Bounded {
    double low = 0, value = 0, high = 0;
};
/// The same with the units at `clock` times their usual frequency. Switching takes an energy of C V^2 (Chandrakasan et al.,
/// "Low-power CMOS digital design", IEEE JSSC 27(4), 1992), so what products take above idle follows the square of the voltage.
/// That is not known: it lies between one that stays (the regulator's floor) and one in proportion to the clock. By levels, the memory's
/// share while kernels stream does not change with the clock and the rest does with f V^2; how they divide is not known
/// either, so the bounds are all of the one and all of the other. The value is the geometric middle of each pair of bounds.
/// A board draws no more than its limit.
[[nodiscard]] Bounded energy_of(const DeviceSpec& spec, const DeviceWork& work, double clock);

}  // namespace orrery::device
