#include "models/calibration/device_figures.hpp"

#include "models/roofline.hpp"
#include "tests/support/command.hpp"
#include "tests/support/support.hpp"
#include "tools/calibration/collections.hpp"
#include "tools/cudabench/points.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

using namespace orrery;
using namespace orrery::test;

namespace {

const std::string kHead = "# orrery-trace: 1\n# device: h200-sxm\n# source: test\n# date: 2026-11-21\n";

DeviceSpec h200() {
    return read_device("h200-sxm", data());
}

Trace trace_of(const std::string& columns, const std::string& rows) {
    return parse_trace(kHead + "op,dtype,shape,median_ns" + columns + "\n" + rows, "t.csv");
}

double figure(const TraceUse& use, const std::string& key) {
    for (const DeviceFigure& one : use.figures) {
        if (one.key == key) {
            return one.value;
        }
    }
    return -1;
}

// Products of a device that reaches this share of its peak, in ns.
std::string products(double efficiency, const std::string& rest) {
    std::string out;
    const DeviceSpec device = h200();
    for (double m = 256; m <= 8192; m *= 2) {
        for (double n = 2048; n <= 16384; n *= 2) {
            const Gemm gemm{m, n, 4096};
            const double memory = gemm.bytes() / device.memory_bandwidth.value;
            const double seconds = 2e-6 + std::max(gemm.flops() / device.flops_bf16.value, memory) / efficiency;
            out += fmt::format("gemm,bf16,m={} n={} k=4096,{}{}\n", m, n, seconds * 1e9, rest);
        }
    }
    return out;
}

}  // namespace

TEST_CASE(
    "every row that cudabench writes is fitted, behind a figure of the device file, or left out with its reason") {
    const DeviceSpec device = h200();
    const Roofline roofline(device);
    std::string text = cudabench::trace_head({{"device", "h200-sxm"}, {"source", "test"}, {"date", "2026-11-21"}});
    const auto points = cudabench::all_points();
    for (const cudabench::Point& point : points) {
        cudabench::Measured measured;
        measured.library = "test-1.0";
        measured.mode = "graph";
        measured.power_w = point.held_s > 0 ? 500 : 0;
        TraceRow row;
        row.op = point.op;
        row.dtype = point.dtype;
        row.mode = point.mode;
        row.shape = point.shape;
        const auto operation = operation_of(row);
        measured.median_ns = 1.2e9 * (operation ? roofline.seconds(*operation).value() : 10e-6);
        text += cudabench::trace_row(point, measured, false) + "\n";
    }
    const Trace trace = parse_trace(text, "cudabench.csv");
    const TraceUse use = use_of(trace, device);
    CHECK(use.rows() == static_cast<std::int64_t>(points.size()));
    CHECK(use.fitted > 1300);
    for (const char* key : {"memory_efficiency", "host_bandwidth", "launch", "graph_launch", "idle_power",
                            "matrix_power", "memory_power", "matrix_efficiency"}) {
        CHECK_MESSAGE(figure(use, key) > 0, key);
    }
    for (const UnusedRows& one : use.unused) {
        CHECK_MESSAGE(!one.why.empty(), one.what);
    }
    std::size_t fitted = 0;
    for (const PointSet& set : point_sets(trace, device, "cudabench.csv")) {
        fitted += set.points.size() + static_cast<std::size_t>(set.refused_rows);
    }
    CHECK(fitted <= static_cast<std::size_t>(use.fitted));
}

TEST_CASE("rows that show launches, a warm cache or the power limit do not move a fit of cold bursts") {
    const DeviceSpec device = h200();
    const auto fitted = [&](const std::string& rows) {
        const auto sets = point_sets(trace_of(",mode,cache,held_s", rows), device, "t.csv");
        REQUIRE(sets.size() == 1);
        return calibrate_set(sets[0], device, {});
    };
    const std::string cold = products(0.64, ",graph,cold,");
    const KernelFit plain = fitted(cold);
    const KernelFit mixed =
        fitted(cold + products(0.2, ",eager,cold,") + products(0.3, ",graph,cold,3") + products(0.9, ",graph,warm,"));
    const KernelPoint thin = *kernel_point(Gemm{256, 4096, 4096});
    const KernelRates rates = kernel_rates(device, Precision::bf16);
    CHECK(mixed.seconds(thin, rates) == doctest::Approx(plain.seconds(thin, rates)).epsilon(0.02));
}

TEST_CASE("a warm cache matters to what reads little more than the cache, and not to long arithmetic") {
    const DeviceSpec device = h200();
    const auto why = [&](const char* shape) {
        return why_not_fitted(trace_of(",cache", fmt::format("gemm,bf16,{},1000000,warm\n", shape)).rows[0], device);
    };
    CHECK(why("m=1 n=4096 k=4096").find("in the cache") != std::string::npos);
    CHECK(why("m=8192 n=8192 k=8192").empty());
    CHECK(why("m=1 n=65536 k=16384").empty());  // 2 GB through a cache of 50 MB
}

TEST_CASE("rows of training's kernels are priced as what they are, and enter no fit of other kernels") {
    const DeviceSpec device = h200();
    const Roofline roofline(device);
    const auto row = [](const std::string& op, const std::string& more, const std::string& library) {
        return trace_of(",library", op + more + ",1000000," + library + "\n").rows[0];
    };
    const auto price = [&](const TraceRow& one) { return roofline.seconds(*operation_of(one)).value(); };
    const std::string product = "gemm,fp8,m=8192 n=8192 k=8192";
    const TraceRow plain = row(product, "", "cublaslt-13.1");
    const TraceRow split = row(product, " split_accumulator=1", "cublaslt-13.1");
    const TraceRow summed = row(product, " accumulate=1", "cublaslt-13.1");
    CHECK(price(split) / price(plain) == doctest::Approx(device.split_accumulator.value).epsilon(0.01));
    const double sums = 6 * 0.71 * 8192.0 * 8192 / (device.memory_bandwidth.value * device.memory_efficiency.value);
    CHECK(price(summed) - price(plain) == doctest::Approx(sums).epsilon(1e-6));
    const std::string attention =
        "attention_training,bf16,batch=1 queries=8192 keys=8192 heads=32 kv_heads=32 head_dim=128";
    const TraceRow newest = row(attention, "", "torch-2.11.0");
    const TraceRow flash2 = row(attention, "", "torch-2.11.0/flash");
    CHECK(price(newest) / price(flash2) == doctest::Approx(device.flash2.value).epsilon(0.01));
    for (const TraceRow* one : {&split, &summed, &flash2}) {
        CHECK(!why_not_fitted(*one, device).empty());
    }
    CHECK(why_not_fitted(plain, device).empty());
    CHECK(why_not_fitted(newest, device).empty());
}

TEST_CASE("libraries that timed the same sizes are sets of their own; products shared out by shape are one") {
    const DeviceSpec device = h200();
    const std::string decode = "attention_decode,bf16,batch=8 keys={} heads=32 kv_heads=8 head_dim=128,50000,{}\n";
    const auto sets =
        point_sets(trace_of(",library", fmt::format(fmt::runtime(decode), 1024, "vllm-0.24.0/flash_attn") +
                                            fmt::format(fmt::runtime(decode), 2048, "vllm-0.24.0/flash_attn") +
                                            fmt::format(fmt::runtime(decode), 4096, "trtllm-1.3.0rc20")),
                   device, "t.csv");
    REQUIRE(sets.size() == 2);
    CHECK(sets[0].kernel_set.empty());
    CHECK(sets[0].points.size() == 2);
    CHECK(sets[1].kernel_set == "trtllm");
    const std::string shared = "gemm,bf16,m=64 n=4096 k=4096,40000,a-1\ngemm,bf16,m=128 n=4096 k=4096,40000,b-1\n";
    CHECK(point_sets(trace_of(",library", shared), device, "t.csv").size() == 1);
    const std::string rival = shared + "gemm,bf16,m=64 n=4096 k=4096,20000,b-1\n";
    CHECK(point_sets(trace_of(",library", rival), device, "t.csv").size() == 2);
    CHECK(kernel_set_name("vllm-0.24.0/flash_attn") == "vllm-flash_attn");
    CHECK(kernel_set_name("orrery-kernels") == "orrery-kernels");
}

TEST_CASE("figures of the device file come out in closed form, and the file reads back") {
    const DeviceSpec device = h200();
    const double bytes = 4.0 * (1ULL << 30U);
    const double triad = 3 * bytes / (0.85 * device.memory_bandwidth.value) * 1e9;
    const double rate = device.memory_bandwidth.value * device.memory_efficiency.value;
    const double burst = 2.0 * 8192 * 8192 * 8192 / (0.8 * device.flops_bf16.value) * 1e9;
    const std::string shape = "m=8192 n=8192 k=8192";
    const Trace trace = trace_of(
        ",mode,held_s,power_w",
        fmt::format("triad,fp32,bytes={},{},graph,,\n", bytes, triad) +
            fmt::format("triad,fp32,bytes=1048576,{},graph,,\n", 1900 + 3 * 1048576 / rate * 1e9) +
            fmt::format("h2d,,bytes=1073741824,{},stream,,\n", 1073741824 / 50.0) +
            fmt::format("d2h,,bytes=1073741824,{},stream,,\n", 1073741824 / 40.0) +
            "launch,,count=2000,2300,stream,,\nlaunch,,count=2000,1100,graph,,\nlaunch,,count=2000,9000,sync,,\n" +
            "idle,,count=1,3000000000,,3,90\n" + fmt::format("gemm,bf16,{},{},graph,,\n", shape, burst) +
            fmt::format("gemm,bf16,{},{},graph,3,690\n", shape, 1.1 * burst) +
            "pointer_chase,fp32,bytes=16384 loads=4096,163840,stream,,\n");
    const TraceUse use = use_of(trace, device);
    CHECK(figure(use, "memory_efficiency") == doctest::Approx(0.85));
    CHECK(figure(use, "host_bandwidth") == doctest::Approx(40e9));
    CHECK(figure(use, "launch") == doctest::Approx(2.3e-6));
    CHECK(figure(use, "graph_launch") == doctest::Approx(1.1e-6));
    CHECK(figure(use, "streaming_start") == doctest::Approx(1.9e-6));
    CHECK(figure(use, "idle_power") == doctest::Approx(90));
    CHECK(figure(use, "matrix_power") == doctest::Approx(690));
    CHECK(figure(use, "matrix_efficiency") == doctest::Approx(0.8));
    CHECK(figure(use, "power_knee") == doctest::Approx(0.8 / std::pow(1.1, 3)));
    REQUIRE(use.unused.size() == 2);
    CHECK(use.unused[0].what == "launch, sync");
    CHECK(use.unused[1].what == "pointer_chase");
    CHECK(use.unused[1].shows == "40 ns a load");

    const Folder folder;
    const std::string text = format_device(with_figures(device, use.figures, "a test"));
    DeviceSpec again;
    std::vector<Diagnostic> errors;
    read_fields(load_yaml(folder.file("device.yaml", text)), data(), errors, [&](Fields& f) { describe(f, again); });
    CHECK(errors.empty());
    CHECK(again.launch.value == doctest::Approx(2.3e-6));
    CHECK(again.launch.source == "a test: empty kernels on a stream");
    CHECK(again.kernels == "h200-sxm");
}

TEST_CASE("calibrate keeps fits of another library, names what it leaves out and writes the device's figures") {
    const Folder folder;
    const auto trace = [&](const char* name, const char* library) {
        return folder.file(name, kHead + "op,dtype,shape,median_ns,library\n" +
                                     products(0.6, fmt::format(",{}", library)) + "launch,,count=2000,2300,none-1\n");
    };
    const std::string first = trace("first.csv", "torch-2.8");
    const std::string second = trace("second.csv", "cublaslt-13.0");
    const std::string out = folder.file("out");
    const Outcome a = orrery_command(fmt::format("calibrate {} -o {}", first, out));
    REQUIRE_MESSAGE(a.code == 0, a.text);
    const std::string kept = read(out + "/gemm-bf16.fit");
    const Outcome b = orrery_command(fmt::format("calibrate {} -o {}", second, out));
    REQUIRE_MESSAGE(b.code == 0, b.text);
    CHECK_MESSAGE(b.text.find("goes to the set 'cublaslt'") != std::string::npos, b.text);
    CHECK(read(out + "/gemm-bf16.fit") == kept);
    CHECK(read(out + "/cublaslt/gemm-bf16.fit").find("library: cublaslt-13.0") != std::string::npos);
    CHECK(read(out + "/device.yaml").find("graph_launch: {\"value\":\"2.3e-06 s\"") != std::string::npos);
    const Outcome without = orrery_command(fmt::format("calibrate {} --without torch", first));
    CHECK_MESSAGE(without.text.find("left out: 24 rows with 'torch'") != std::string::npos, without.text);
    CHECK(orrery_command(fmt::format("calibrate {} --without none-such", first)).code == 2);
}
