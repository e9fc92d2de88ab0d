#include "models/unit_model.hpp"

#include "tests/support/support.hpp"
#include "validation/compute/collections.hpp"

#include <doctest/doctest.h>

namespace orrery {

namespace {

// 1 TB/s, and one array of 128 x 128 at 1 GHz with 1,024 vector lanes.
DeviceSpec small() {
    DeviceSpec device;
    device.name = "small";
    device.memory = {32e9, "assumed", ""};
    device.memory_bandwidth = {1e12, "assumed", ""};
    device.memory_efficiency = {1, "assumed", ""};
    device.flops_bf16 = {2 * 128 * 128 * 1e9, "assumed", ""};
    return device;
}

DeviceParts one_array() {
    DeviceParts parts;
    parts.units.resize(2);
    parts.units[0].clock = {1e9, "assumed", ""};
    parts.units[1].kind = UnitKind::vector;
    parts.units[1].clock = {1e9, "assumed", ""};
    return parts;
}

}  // namespace

TEST_CASE(
    "unit model: a long product takes the arrays' cycles, a thin one the memory, a small one its load and store") {
    const DeviceSpec device = small();
    DeviceParts parts = one_array();
    parts.scratchpad = {1e6, "assumed", ""};
    const UnitModel model(device, parts);
    const Gemm large{8192, 8192, 8192};
    CHECK(model.seconds(large).value() == doctest::Approx(large.flops() / device.flops_bf16.value).epsilon(0.01));
    const Gemm thin{1, 8192, 8192};
    CHECK(model.seconds(thin).value() == doctest::Approx(thin.bytes() / 1e12).epsilon(0.02));
    const Gemm one_tile{128, 128, 128};
    CHECK(model.seconds(one_tile).value() == doctest::Approx(one_tile.bytes() / 1e12 + (128 + 128 + 254) * 1e-9));
}

TEST_CASE("unit model: heads narrower than the array leave a part of it idle") {
    DeviceSpec device = small();
    DeviceParts parts = one_array();
    parts.units[0].rows = parts.units[0].columns = 256;
    parts.units[1].lanes = 1 << 20;  // the softmax never decides
    device.flops_bf16.value *= 4;
    const Attention attention{32, 8192, 8192, 128, false};
    const double ideal = attention.flops() / device.flops_bf16.value;
    CHECK(UnitModel(device, parts).seconds(attention).value() == doctest::Approx(2 * ideal).epsilon(0.05));
}

TEST_CASE("unit model: units in the banks decode alone, and beside products with two row buffers") {
    const DeviceSpec device = small();
    DeviceParts parts = one_array();
    parts.units[1].lanes = 1 << 20;
    const Attention decode{256, 1, 4096, 128};
    const double through_memory = UnitModel(device, parts).seconds(decode).value();
    parts.pim.channels = 32;
    parts.pim.row = {1024, "spec", ""};
    parts.pim.access = {32, "spec", ""};
    parts.pim.clock = {1e9, "spec", ""};
    parts.pim.column = {1e-9, "spec", ""};
    const double banks = UnitModel(device, parts).seconds(decode).value();
    CHECK(banks < through_memory / 4);
    CHECK(!UnitModel(device, parts).runs_beside(decode));
    CHECK(UnitModel(device, parts).cost(decode).bytes == 0);
    parts.pim.row_buffers = 2;
    const UnitModel dual(device, parts);
    CHECK(dual.runs_beside(decode));
    CHECK(!dual.runs_beside(Attention{256, 4096, 4096, 128}));
    CHECK(!dual.runs_beside(Gemm{1, 4096, 4096}));
    // 33 heads on 32 channels take as long as 64.
    CHECK(dual.seconds(Attention{33, 1, 4096, 128}).value() ==
          doctest::Approx(dual.seconds(Attention{64, 1, 4096, 128}).value()).epsilon(0.05));
    // Eight query heads a key head: as many passes, though the memory would be read once.
    Attention grouped = decode;
    grouped.group = 8;
    CHECK(dual.seconds(grouped).value() == doctest::Approx(banks).epsilon(0.01));
}

TEST_CASE("unit model: units that do not do what the device's figures say are refused") {
    DeviceSpec device = small();
    DeviceParts parts = one_array();
    CHECK(problems_of(parts, device).empty());
    device.flops_bf16.value *= 1.1;
    REQUIRE(problems_of(parts, device).size() == 1);
    CHECK(problems_of(parts, device)[0].find("flops_bf16") != std::string::npos);
    device.flops_bf16.value /= 1.1;
    parts.units.pop_back();
    REQUIRE(problems_of(parts, device).size() == 1);
    CHECK(problems_of(parts, device)[0].find("vector") != std::string::npos);
}

TEST_CASE("unit model: every preset with units.yaml has units that fit it") {
    for (const std::string name : {"tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7x", "ascend-910b", "gaudi-2",
                                   "gaudi-3", "trainium-2", "neupims", "attacc"}) {
        const DeviceSpec device = read_device(name, test::data());
        CAPTURE(name);
        const DeviceParts parts =
            read_parts(test::data().path("models/data/kernels/" + name + "/units.yaml"), device, test::data());
        const double efficiency = device.matrix_efficiency.value > 0 ? device.matrix_efficiency.value : 1;
        const Gemm large{16384, 16384, 16384};
        const double ideal = large.flops() / (device.flops_bf16.value * efficiency);
        const double seconds = UnitModel(device, parts).seconds(large).value();
        CHECK(seconds > 0.96 * ideal);
        CHECK(seconds < 1.2 * ideal);
    }
}

}  // namespace orrery
