#pragma once
// What is known of a device: capacities, each with its source. Immutable; read from models/data/devices/*.yaml.

#include "sim/config/fields.hpp"

#include <string>

namespace orrery::device {

/// Number formats of operands. Order matters: it indexes tables and names.
enum class Precision { fp32, tf32, fp16, bf16, fp8, fp4, int8, int4 };
[[nodiscard]] const std::vector<std::string>& precision_names();
/// The formats that training knows: the first six.
[[nodiscard]] const std::vector<std::string>& training_precision_names();
/// Bytes of one element.
[[nodiscard]] double bytes_of(Precision precision);

struct DeviceSpec {
    std::string name;
    Sourced<double> memory;             ///< B, of the main memory (HBM)
    Sourced<double> memory_bandwidth;   ///< B/s, vendor figure
    Sourced<double> memory_efficiency;  ///< fraction of it that streaming kernels reach
    Sourced<double> cache;              ///< B, of the last-level cache; 0: not known
    Sourced<double> flops_fp32;         ///< FLOP/s of the vector units
    Sourced<double> flops_bf16;         ///< dense tensor FLOP/s (fp16 and bf16)
    Sourced<double> flops_fp8;          ///< dense; absent on devices without
    Sourced<double> flops_int8;         ///< dense; absent: as fp8
    Sourced<double> flops_fp4;          ///< dense; absent on devices without
    Sourced<double> matrix_efficiency;  ///< best matrix product over flops_bf16; 0: 0.92
    Sourced<double> power_knee;  ///< fraction of flops_bf16 from where the power limit slows long runs; 0: nowhere
    /// s, after which the power limit acted in the sweep behind the fitted kernels; 0: never
    Sourced<double> power_delay;
    Sourced<double> launch;           ///< s, from one kernel's end to the next one's start in a stream
    Sourced<double> streaming_start;  ///< s, of a streaming kernel that follows another, beside its bytes; 0: as launch
    Sourced<double> graph_launch;     ///< s, the same inside a replayed graph; 0: as launch
    Sourced<double> host_bandwidth;   ///< B/s, pinned host memory each way; 0: not known
    Sourced<double> tdp;              ///< W
    Sourced<double> idle_power;       ///< W
    Sourced<double> matrix_power;     ///< W while matrix products run without pause; 0: tdp
    Sourced<double> memory_power;     ///< W while streaming kernels run without pause; 0: 0.8 tdp
    Sourced<double> active_power;     ///< W with kernels under way, before what they compute and move; 0: not known
    Sourced<double> energy_per_flop;  ///< pJ of a FLOP, whatever its format
    Sourced<double> energy_per_byte;  ///< pJ of a byte through the main memory
    Sourced<double> power_limit;      ///< W that the board is held to by its clock; 0: tdp
    Sourced<double> price;            ///< USD per hour, rented
    Sourced<double> flash2;           ///< rate of FlashAttention-2 over that of the measured kernels of training; 0: 1
    /// Time of 8-bit products bound by arithmetic with a split accumulator over that with fast accumulation; 0: 1.
    Sourced<double> split_accumulator;
    std::int64_t compute_units = 0;  ///< SMs or CUs
    /// Standard deviation of the matrix rate among devices of one kind; 0 where not given: kSpeedSpread.
    Sourced<double> speed_spread;
    std::string kernels;            ///< folder of fitted kernels in models/data/kernels; empty: roofline only
    std::string sibling_kernels;    ///< the same of a sibling, for kinds that `kernels` lacks
    std::string attention_kernels;  ///< the same for attention, where it differs

    /// How much longer than the median device's the matrix kernels of the slowest of this many devices take: at least 1.
    [[nodiscard]] double slowest_of(double devices) const;
    /// Dense matrix FLOP/s for a precision; 0 when the device has no unit for it.
    [[nodiscard]] double matrix_flops(Precision precision) const;
};

/// Names the fields of a device for reading, writing, schema and explanation.
void describe(Fields& fields, DeviceSpec& device);

}  // namespace orrery::device
