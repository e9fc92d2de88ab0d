#include "sim/device/device_spec.hpp"

namespace orrery {

const std::vector<std::string>& precision_names() {
    static const std::vector<std::string> kNames = {"fp32", "tf32", "fp16", "bf16", "fp8"};
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
            return 1;
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
    }
    return 0;
}

void describe(Fields& fields, DeviceSpec& device) {
    fields.text({"name", "marketing name of the device"}, device.name);
    fields.sourced({"memory", "capacity of the main memory", true, 1e6, 1e15}, Dimension::bytes, device.memory);
    fields.sourced({"memory_bandwidth", "bandwidth of the main memory", true, 1e9, 1e15}, Dimension::rate,
                   device.memory_bandwidth);
    fields.sourced({"memory_efficiency", "fraction of it that streaming kernels reach", true, 0.01, 1},
                   Dimension::fraction, device.memory_efficiency);
    fields.sourced({"flops_fp32", "vector rate in fp32", true, 1e9, 1e18}, Dimension::flops, device.flops_fp32);
    fields.sourced({"flops_bf16", "dense matrix rate in fp16 and bf16", true, 1e9, 1e18}, Dimension::flops,
                   device.flops_bf16);
    fields.sourced({"flops_fp8", "dense matrix rate in fp8; leave out where there is none", false, 0, 1e18},
                   Dimension::flops, device.flops_fp8);
    fields.sourced({"sustained", "sustained over burst rate of large GEMMs under the power limit", true, 0.1, 1},
                   Dimension::fraction, device.sustained);
    fields.sourced({"launch", "gap between kernels of one stream", true, 0, 1e-3}, Dimension::time, device.launch);
    fields.sourced({"tdp", "board power limit", false, 0, 1e5}, Dimension::power, device.tdp);
    fields.sourced({"idle_power", "power when idle", false, 0, 1e5}, Dimension::power, device.idle_power);
    fields.sourced({"flash2", "rate of FlashAttention-2 over that of the measured attention kernels", false, 0, 2},
                   Dimension::fraction, device.flash2);
    fields.integer({"compute_units", "SMs or CUs", true, 1, 100000}, device.compute_units);
    fields.text({"kernels", "table of measured kernels (a folder of models/data/kernels)"}, device.kernels);
    fields.text({"attention_kernels", "the same for attention, where it differs"}, device.attention_kernels);
}

}  // namespace orrery
