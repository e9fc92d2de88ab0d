#include "models/unit_model.hpp"

#include "tests/support/support.hpp"
#include "tools/calibration/collections.hpp"

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

TEST_CASE(
    "unit model: a product of few rows runs on the vector units where the array takes longer to load what stays") {
    const DeviceSpec device = small();
    DeviceParts parts = one_array();
    const UnitModel model(device, parts);
    const Gemm row{1, 128, 128};
    CHECK(model.seconds(row).value() == doctest::Approx(row.bytes() / 1e12 + 2 * 128 * 128 / 1024e9));
    parts.units[1].lanes = 64;
    CHECK(UnitModel(device, parts).seconds(row).value() ==
          doctest::Approx(row.bytes() / 1e12 + (128 + 1 + 254) * 1e-9));
    // One query over few keys attends on the vector units alone, and its softmax comes on top.
    Attention query;
    query.keys = 64;
    const double scores = 64;
    parts.units[1].lanes = 512;
    CHECK(UnitModel(device, parts).seconds(query).value() == doctest::Approx((query.flops() + 12 * scores) / 512e9));
}

TEST_CASE("unit model: arrays that skip pruned weights do so in products with weights, and not in attention") {
    const DeviceSpec device = small();
    DeviceParts parts = one_array();
    const UnitModel dense(device, parts);
    parts.units[0].density = 0.5;
    const UnitModel pruned(device, parts);
    const Gemm large{8192, 8192, 8192};
    CHECK(pruned.seconds(large).value() == doctest::Approx(dense.seconds(large).value() / 2).epsilon(0.01));
    const Gemm thin{1, 8192, 8192};
    DeviceSpec slow = device;  // so that its memory binds, and not the arrays' filling
    slow.memory_bandwidth.value = 1e10;
    CHECK(UnitModel(slow, parts).seconds(thin).value() == doctest::Approx(8192.0 * 8192 / 1e10).epsilon(0.02));
    const Attention attention{32, 4096, 4096, 128};
    CHECK(pruned.seconds(attention).value() == dense.seconds(attention).value());
}

TEST_CASE("unit model: a split accumulator lengthens products in 8 bits that arithmetic bounds") {
    DeviceSpec device = small();
    device.flops_fp8 = device.flops_bf16;
    device.split_accumulator = {1.25, "assumed", ""};
    const UnitModel model(device, one_array());
    Gemm gradient{8192, 8192, 8192, 1, Precision::fp8, 0};
    const double fast = model.seconds(gradient).value();
    gradient.split_accumulator = true;
    CHECK(model.seconds(gradient).value() == doctest::Approx(1.25 * fast).epsilon(0.01));
    gradient.m = 1;
    Gemm thin = gradient;
    thin.split_accumulator = false;
    device.memory_bandwidth.value = 1e10;  // which binds then
    const UnitModel slow(device, one_array());
    CHECK(slow.seconds(gradient).value() == doctest::Approx(slow.seconds(thin).value()).epsilon(0.01));
}

TEST_CASE("unit model: heads narrower than the array leave a part of it idle") {
    DeviceSpec device = small();
    DeviceParts parts = one_array();
    parts.units[0].rows = parts.units[0].columns = 256;
    parts.units[1].lanes = 50000;  // the softmax takes 3 %, and products are not faster there
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

TEST_CASE(
    "unit model: weights in the banks are multiplied a vector at a time, as long as that is faster than the arrays") {
    const DeviceSpec device = small();
    DeviceParts parts = one_array();
    const double arrays = UnitModel(device, parts).seconds(Gemm{1, 8192, 8192}).value();
    parts.has_pim = true;
    parts.pim.channels = 32;
    parts.pim.products = true;
    parts.pim.row = {2048, "spec", ""};
    parts.pim.access = {32, "spec", ""};
    parts.pim.clock = {1e9, "spec", ""};
    parts.pim.column = {1e-9, "spec", ""};
    parts.pim.activate = {20e-9, "spec", ""};
    parts.pim.precharge = {16e-9, "spec", ""};
    const UnitModel banks(device, parts);
    // 512 banks have 16 outputs each, of 8 rows of 1,024: 63 cycles after the first column, 36 to open and close.
    const double tile = (20 + 63 + 16) * 1e-9;
    CHECK(banks.seconds(Gemm{1, 8192, 8192}).value() == doctest::Approx(16 * 8 * tile));
    CHECK(banks.seconds(Gemm{1, 8192, 8192}).value() < arrays / 5);
    CHECK(banks.cost(Gemm{1, 8192, 8192}).bytes == 0);  // they stay there
    CHECK(banks.seconds(Gemm{4, 8192, 8192}).value() == doctest::Approx(4 * 16 * 8 * tile));
    // 513 outputs take as long as 1,024.
    CHECK(banks.seconds(Gemm{1, 513, 8192}).value() == banks.seconds(Gemm{1, 1024, 8192}).value());
    // Narrow outputs share a row: four of 256 in one, of which two are there.
    CHECK(banks.seconds(Gemm{1, 1024, 256}).value() == doctest::Approx((20 + 31 + 16) * 1e-9));
    // Many vectors are the arrays'.
    CHECK(banks.seconds(Gemm{4096, 8192, 8192}).value() ==
          doctest::Approx(UnitModel(device, one_array()).seconds(Gemm{4096, 8192, 8192}).value()));
}

TEST_CASE("unit model: reading in the banks takes its energy, told as the bytes of main memory that take as much") {
    DeviceSpec device = small();
    device.energy_per_byte = {40, "assumed", ""};
    DeviceParts parts = one_array();
    parts.has_pim = true;
    parts.pim.channels = 32;
    parts.pim.row = {2048, "spec", ""};
    parts.pim.access = {32, "spec", ""};
    parts.pim.clock = {1e9, "spec", ""};
    parts.pim.column = {1e-9, "spec", ""};
    parts.pim.energy = {5, "assumed", ""};
    const Attention decode{64, 1, 4096, 128};
    CHECK(UnitModel(device, parts).cost(decode).bytes == doctest::Approx(64 * 2 * 4096 * 128 * 2 * 5.0 / 40));
    parts.pim.attends = false;
    CHECK(UnitModel(device, parts).cost(decode).bytes == decode.bytes());
}

TEST_CASE(
    "unit model: a device of banks alone does prompts query by query, and what does not fit is told with the numbers") {
    const DeviceSpec device = read_device("cent", test::data());
    const DeviceParts parts =
        read_parts(test::data().path("models/data/kernels/cent/units.yaml"), device, test::data());
    const UnitModel cent(device, parts);
    Attention prompt{32, 64, 64, 128};
    prompt.causal = false;
    const double one = cent.seconds(Attention{32, 1, 64, 128}).value();
    CHECK(cent.seconds(prompt).value() == doctest::Approx(64 * one).epsilon(0.01));
    prompt.backward = true;
    CHECK_THROWS_WITH_AS((void)cent.seconds(prompt), doctest::Contains("no backward pass"), InfeasibleError);
    // A layer's keys and values of one head on a channel of 500 MB: 2 x 128 x 2 B a token.
    CHECK_THROWS_WITH_AS((void)cent.seconds(Attention{32, 1, 1e6, 128}),
                         doctest::Contains("put 488.28 MiB of keys and values of a layer on one channel"),
                         InfeasibleError);
    CHECK_THROWS_WITH_AS((void)cent.seconds(Gemm{1, 131072, 131072}), doctest::Contains("(32.00 GiB) does not fit"),
                         InfeasibleError);
    DeviceParts none = parts;
    none.pim.products = false;
    REQUIRE(problems_of(none, device).size() == 1);
    CHECK(problems_of(none, device)[0].find("systolic, or 'pim' with 'products'") != std::string::npos);
}

TEST_CASE("unit model: drives attend to what they hold, or send it, and take what prompts keep") {
    const DeviceSpec device = small();
    DeviceParts parts = one_array();
    parts.has_drive = true;
    DriveSpec& drive = parts.drive;
    drive.drives = 1;
    drive.channels = 8;
    drive.dies = 64;
    drive.capacity.value = 1e12;
    drive.page.value = 4096;
    drive.page_read.value = 1e-6;
    drive.page_write.value = 1e-5;
    drive.channel_rate.value = 1e9;
    drive.compute.value = 1e15;
    drive.link.value = 2e9;
    Attention decode;
    decode.batch_heads = 256;
    decode.keys = 1024;
    const DriveAttention work{256, 1, 1024, 128, 2};
    const UnitModel inside(device, parts);
    CHECK(inside.seconds(decode).value() == doctest::Approx(attention_in_drive(drive, work)));
    CHECK(!inside.runs_beside(decode));
    // 128 MiB of pages at 8 GB/s inside, at 2 GB/s over the link.
    drive.compute.value = 0;
    const UnitModel over(device, parts);
    CHECK(over.seconds(decode).value() / inside.seconds(decode).value() == doctest::Approx(4).epsilon(0.02));
    CHECK(over.runs_beside(decode));
    Attention prompt = decode;
    prompt.queries = 1024;
    CHECK(!over.runs_beside(prompt));
    CHECK(over.seconds(prompt).value() == doctest::Approx(written(drive, work, 1024)));
    drive.capacity.value = 1e6;
    CHECK_THROWS_AS((void)UnitModel(device, parts).seconds(decode), InfeasibleError);
}

TEST_CASE("unit model: every device of banks has units that fit its figures") {
    for (const std::string name : {"cent", "gddr6-aim", "hbm-pim", "pim-gpt"}) {
        CAPTURE(name);
        const DeviceSpec device = read_device(name, test::data());
        const DeviceParts parts =
            read_parts(test::data().path("models/data/kernels/" + name + "/units.yaml"), device, test::data());
        // A vector times weights: slower than the banks' peak, faster than through the memory's pins.
        const Gemm product{1, 8192, 8192};
        const double seconds = UnitModel(device, parts).seconds(product).value();
        CHECK(seconds > product.flops() / parts.pim.peak(2));
        CHECK(seconds < product.bytes() / device.memory_bandwidth.value);
    }
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
                                   "gaudi-3", "trainium-2", "neupims", "attacc", "hbm-pim"}) {
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
