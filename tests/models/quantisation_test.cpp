#include "models/calibration/quantisation.hpp"
#include "models/calibration/points.hpp"
#include "tests/support/support.hpp"
#include "topologies/device_preset.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

using namespace orrery;

namespace {

constexpr double kRow = 3.2e-9, kValue = 2.3e-12;  // s

// Seconds of a 16-bit product, of no particular law.
double wide(double m, double n, double k) {
    return 4e-6 + m * n * k / 3e14 + (m * k + n * k + m * n) * 2 / 3e12;
}

Trace sweep_case(const std::vector<int>& widths) {
    std::string text =
        "# orrery-trace: 1\n# device: h100-sxm\n# source: test\n# date: 2026-11-23\n"
        "op,dtype,shape,median_ns,kernels\n";
    for (const int m : {512, 1024, 4096, 16384}) {
        for (const int n : widths) {
            for (const int k : {512, 1024, 2048, 4096, 8192, 16384}) {
                const double product = wide(m, n, k);
                const double quantised = 3e-6 + 0.6 * product + m * (kRow + k * kValue);
                text += fmt::format("gemm,bf16,m={} n={} k={},{:.6f},1\n", m, n, k, product * 1e9);
                text += fmt::format("gemm,fp8,m={} n={} k={},{:.6f},2\n", m, n, k, quantised * 1e9);
            }
        }
    }
    return parse_trace(text, "t.csv");
}

std::vector<const TraceRow*> rows_of(const Trace& trace) {
    std::vector<const TraceRow*> out;
    for (const TraceRow& row : trace.rows) {
        out.push_back(&row);
    }
    return out;
}

}  // namespace

TEST_CASE("quantisation: thin products show its law, and every row is cleared of it") {
    const Trace trace = sweep_case({32, 64, 128, 4096});
    const DeviceSpec device = read_device("h100-sxm", test::data());
    const Quantisations found(rows_of(trace), device);
    REQUIRE(found.laws().size() == 1);
    CHECK(found.laws().at("fp8").row == doctest::Approx(kRow).epsilon(1e-6));
    CHECK(found.laws().at("fp8").value == doctest::Approx(kValue).epsilon(1e-6));
    const auto kept =
        static_cast<std::size_t>(std::count_if(trace.rows.begin(), trace.rows.end(), [&](const TraceRow& row) {
            return row.kernels == 2 && found.seconds(row) <= 0.6 * row.median_ns * 1e-9;
        }));
    CHECK(kept > 0);
    CHECK(kept < trace.rows.size() / 2);
    for (const PointSet& set : point_sets(trace, device, "t.csv")) {
        CHECK(set.points.size() == (set.format == KernelFormat::fp8 ? kept : trace.rows.size() / 2));
        for (const MeasuredPoint& one : set.points) {
            const double product = wide(one.point.rows, one.point.columns, one.point.depth);
            const double expected = set.format == KernelFormat::fp8 ? 3e-6 + 0.6 * product : product;
            CHECK(one.seconds == doctest::Approx(expected).epsilon(1e-6));
        }
    }
}

TEST_CASE(
    "quantisation: without thin products it takes the bytes of a streaming kernel, and one kernel alone nothing") {
    const Trace trace = sweep_case({4096});
    const DeviceSpec device = read_device("h100-sxm", test::data());
    const Quantisations found(rows_of(trace), device);
    CHECK(found.laws().empty());
    const double rate = device.memory_bandwidth.value * device.memory_efficiency.value;
    for (const TraceRow& row : trace.rows) {
        const double bytes = row.kernels == 2 ? 3 * row.dim("m") * row.dim("k") : 0;
        CHECK(found.seconds(row) == doctest::Approx(bytes / rate));
    }
}
