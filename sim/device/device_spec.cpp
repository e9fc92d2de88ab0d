#include "sim/device/device_spec.hpp"

#include "sim/base/math.hpp"

#include <cmath>

namespace orrery::device {

namespace {

// Sinha et al., "Not All GPUs Are Created Equal", SC22: 8 % average variation between the GPUs of a cluster, as the span of a
// box plot's whiskers, which is 5.4 standard deviations of a normal distribution.
constexpr double kSpeedSpread = 0.08 / 5.4;

// Expected largest of n draws of a standard normal distribution: Blom's plotting position through the rational approximation
// 26.2.23 of Abramowitz and Stegun (absolute error below 0.00045 of the quantile).
double largest_of(double n) {
    if (n <= 1) {
        return 0;
    }
    const double t = std::sqrt(-2 * log_pinned(0.625 / (n + 0.25)));
    return t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
}

}  // namespace

double DeviceSpec::slowest_of(double devices) const {
    return 1 + (speed_spread.value > 0 ? speed_spread.value : kSpeedSpread) * largest_of(devices);
}

const std::vector<std::string>& precision_names() {
    static const std::vector<std::string> kNames = {"fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8", "int4"};
    return kNames;
}

const std::vector<std::string>& training_precision_names() {
    static const std::vector<std::string> kNames(precision_names().begin(), precision_names().begin() + 6);
    return kNames;
}

double bytes_of(Precision precision) {
    switch (precision) {
        case Precision::fp32:
        case Precision::tf32:
            return 4;
        case Precision::fp16:
        case Precision::bf16:
            return 2;
        case Precision::fp8:
        case Precision::int8:
            return 1;
        case Precision::fp4:
        case Precision::int4:
            return 0.5;
    }
    return 4;
}

double DeviceSpec::matrix_flops(Precision precision) const {
    switch (precision) {
        case Precision::fp32:
            return flops_fp32.value;
        case Precision::tf32:
            return flops_bf16.value / 2;
        case Precision::fp16:
        case Precision::bf16:
            return flops_bf16.value;
        case Precision::fp8:
            return flops_fp8.value;
        case Precision::int8:
            return flops_int8.value > 0 ? flops_int8.value : flops_fp8.value;
        case Precision::fp4:
            return flops_fp4.value;
        case Precision::int4:  // no such matrix unit since Hopper: weights are expanded to 16 bits
            return flops_bf16.value;
    }
    return 0;
}

void describe(Fields& fields, DeviceSpec& device) {
    fields.text({"name", "marketing name of the device"}, device.name);
    fields.sourced({"memory", "capacity of the main memory", true, 1e6, 1e15}, Dimension::bytes, device.memory);
    fields.sourced({"memory_bandwidth", "bandwidth of the main memory", true, 1e9, 1e15}, Dimension::rate,
                   device.memory_bandwidth);
    fields.sourced(
        {"memory_efficiency", "fraction of the memory bandwidth that streaming kernels reach", true, 0.01, 1},
        Dimension::fraction, device.memory_efficiency);
    fields.sourced({"flops_fp32", "vector rate in fp32", true, 1e9, 1e18}, Dimension::flops, device.flops_fp32);
    fields.sourced({"flops_bf16", "dense matrix rate in fp16 and bf16", true, 1e9, 1e18}, Dimension::flops,
                   device.flops_bf16);
    fields.sourced({"flops_fp8", "dense matrix rate in fp8; leave out where there is none", false, 0, 1e18},
                   Dimension::flops, device.flops_fp8);
    fields.sourced({"flops_int8", "dense matrix rate in int8; default: as fp8", false, 0, 1e18}, Dimension::flops,
                   device.flops_int8);
    fields.sourced({"flops_fp4", "dense matrix rate in 4 bits; leave out where there is none", false, 0, 1e18},
                   Dimension::flops, device.flops_fp4);
    fields.sourced({"matrix_efficiency", "best measured matrix product over flops_bf16 (0: 0.92)", false, 0, 1},
                   Dimension::fraction, device.matrix_efficiency);
    fields.sourced(
        {"power_knee", "fraction of flops_bf16 from where the power limit slows long runs (0: nowhere)", false, 0, 1},
        Dimension::fraction, device.power_knee);
    fields.sourced(
        {"power_delay", "time after which the power limit acted in the sweep behind the fitted kernels (0: never)",
         false, 0, 1},
        Dimension::time, device.power_delay);
    fields.sourced({"cache", "capacity of the last-level cache", false, 0, 1e12}, Dimension::bytes, device.cache);
    fields.sourced({"launch", "gap between kernels of one stream", true, 0, 1e-3}, Dimension::time, device.launch);
    fields.sourced(
        {"streaming_start", "start of a streaming kernel that follows another (0: as launch)", false, 0, 1e-3},
        Dimension::time, device.streaming_start);
    fields.sourced({"graph_launch", "gap between kernels of a replayed graph (0: as launch)", false, 0, 1e-3},
                   Dimension::time, device.graph_launch);
    fields.sourced({"host_bandwidth", "copies from and to pinned host memory, each way", false, 0, 1e13},
                   Dimension::rate, device.host_bandwidth);
    fields.sourced({"tdp", "board power limit", false, 0, 1e5}, Dimension::power, device.tdp);
    fields.sourced({"idle_power", "power when idle", false, 0, 1e5}, Dimension::power, device.idle_power);
    fields.sourced({"matrix_power", "power under matrix products without pause (0: tdp)", false, 0, 1e5},
                   Dimension::power, device.matrix_power);
    fields.sourced({"memory_power", "power under streaming kernels without pause (0: 0.8 tdp)", false, 0, 1e5},
                   Dimension::power, device.memory_power);
    fields.sourced(
        {"active_power", "power while kernels run, without the energy of their FLOPs and bytes", false, 0, 1e5},
        Dimension::power, device.active_power);
    fields.sourced({"energy_per_flop", "pJ of a FLOP of matrix units in any format, above active_power", false, 0, 1e4},
                   Dimension::number, device.energy_per_flop);
    fields.sourced({"energy_per_byte", "pJ of a byte through the main memory, above active_power", false, 0, 1e6},
                   Dimension::number, device.energy_per_byte);
    fields.sourced({"power_limit",
                    "power to which the clock of the units is lowered, while memory keeps its own; needs active_power, "
                    "energy_per_flop and energy_per_byte (0: tdp)",
                    false, 0, 1e5},
                   Dimension::power, device.power_limit);
    fields.sourced(
        {"price", "USD per GPU hour, or its class: on-demand, reserved, spot or owned (models/data/prices.yaml)", false,
         0, 1e4},
        Dimension::number, device.price);
    fields.sourced(
        {"flash2", "rate of FlashAttention-2 over that of the measured attention kernels of training", false, 0, 2},
        Dimension::fraction, device.flash2);
    fields.sourced({"split_accumulator",
                    "time of 8-bit products with split accumulation (promoted to 32 bits), relative to fast "
                    "accumulation (0: the same)",
                    false, 0, 4},
                   Dimension::number, device.split_accumulator);
    fields.integer({"compute_units", "SMs or CUs", true, 1, 100000}, device.compute_units);
    fields.sourced(
        {"speed_spread",
         "standard deviation of the matrix rate among devices of one kind, of which a job's slowest one counts "
         "(0: 1.5 %)",
         false, 0, 0.2},
        Dimension::fraction, device.speed_spread);
    constexpr TableKind kKernels{"models/data/kernels", ""};
    fields.table({"kernels", "fitted kernels (a folder of models/data/kernels)"}, kKernels, device.kernels);
    fields.table(
        {"sibling_kernels", "fitted kernels of a related device, used where the device's own folder lacks a kernel"},
        kKernels, device.sibling_kernels);
    fields.table(
        {"attention_kernels", "fitted kernels of attention, where they are not those of the device's own folder"},
        kKernels, device.attention_kernels);
}

}  // namespace orrery::device
