#include "models/collective_fit.hpp"
#include "models/calibration/collectives.hpp"
#include "models/collective_library.hpp"
#include "tests/support/support.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

using namespace orrery;

namespace {

// Two algorithms that change at 1 MiB: 5 us + S / 20 GB/s, then 12 us + S / 100 GB/s + 8 ns sqrt(S).
double two_algorithms(double bytes) {
    return bytes < 1048576 ? 5e-6 + bytes / 20e9 : 12e-6 + bytes / 100e9 + 8e-9 * std::sqrt(bytes);
}

std::vector<CollectivePoint> sweep_case(double (*seconds)(double)) {
    std::vector<CollectivePoint> points;
    for (double bytes = 512; bytes < 1e9; bytes *= 2) {
        points.push_back({bytes, seconds(bytes), ""});
    }
    return points;
}

}  // namespace

TEST_CASE("a fit of collectives finds the switch point and the constants of both algorithms") {
    const CollectiveCurve curve = fit_collective(sweep_case(two_algorithms));
    REQUIRE(curve.pieces.size() == 2);
    CHECK(curve.pieces[0].from == 0);
    CHECK(curve.pieces[1].from == doctest::Approx(std::sqrt(524288.0 * 1048576.0)));
    CHECK(1e6 * curve.pieces[0].alpha == doctest::Approx(5));
    CHECK(1e-9 / curve.pieces[0].per_byte == doctest::Approx(20));
    CHECK(1e9 * curve.pieces[0].gamma == doctest::Approx(0));
    CHECK(1e6 * curve.pieces[1].alpha == doctest::Approx(12));
    CHECK(1e-9 / curve.pieces[1].per_byte == doctest::Approx(100));
    CHECK(1e9 * curve.pieces[1].gamma == doctest::Approx(8));
    CHECK(curve.error < 1e-6);
    // Half of the sizes leave the switch point within a factor of two, so only sizes beside it err.
    CHECK(curve.held_back < 0.05);
}

TEST_CASE("no piece spans two algorithms that the trace names, however alike they are") {
    std::vector<CollectivePoint> points = sweep_case([](double bytes) { return 5e-6 + bytes / 20e9; });
    for (CollectivePoint& point : points) {
        point.algorithm = point.bytes < 65536 ? "tree" : "ring";
    }
    const CollectiveCurve curve = fit_collective(points);
    REQUIRE(curve.pieces.size() == 2);
    CHECK(curve.pieces[0].algorithm == "tree");
    CHECK(curve.pieces[1].algorithm == "ring");
    CHECK(curve.pieces[1].from == doctest::Approx(std::sqrt(32768.0 * 65536.0)));
}

TEST_CASE("ranks between the measured ones lie between their times, and links of another rate stretch them") {
    const std::string text =
        "# orrery-collectives: 1\n# source: by hand\nbandwidth_GBps 100\n"
        "curve nccl all-reduce 2 3 0 0\npiece 0 10 10 0 -\n"
        "curve nccl all-reduce 8 3 0 0\npiece 0 20 17.5 0 ring\n";
    const CollectiveFit fit = parse_collective_fit(text, "hand.fit");
    CHECK(fit.has("nccl", CollectiveOp::all_reduce));
    CHECK_FALSE(fit.has("nccl", CollectiveOp::all_gather));
    CHECK_FALSE(fit.has("vllm", CollectiveOp::all_reduce));
    const auto us = [&](double ranks, double bytes, double bandwidth) {
        return 1e6 * fit.seconds("nccl", CollectiveOp::all_reduce, ranks, bytes, bandwidth);
    };
    CHECK(us(2, 1e6, 100e9) == doctest::Approx(20));
    CHECK(us(8, 1e6, 100e9) == doctest::Approx(37.5));
    CHECK(us(4, 1e6, 100e9) > 20);
    CHECK(us(4, 1e6, 100e9) < 37.5);
    CHECK(us(16, 1e6, 100e9) > 37.5);
    // Large messages go with the links, small ones do not.
    CHECK(us(8, 1e9, 50e9) / us(8, 1e9, 100e9) == doctest::Approx(2).epsilon(0.001));
    CHECK(us(8, 1, 50e9) / us(8, 1, 100e9) == doctest::Approx(1).epsilon(0.001));
    // The text reads back.
    CHECK(format_collective_fit(parse_collective_fit(format_collective_fit(fit), "again")) ==
          format_collective_fit(fit));
    CHECK(fit.curves[1].pieces[0].algorithm == "ring");
}

TEST_CASE("a malformed fit of collectives is refused with all its lines") {
    const std::string text =
        "# orrery-collectives: 1\nbandwidth_GBps 0\ncurve nccl all-reduse 2 3 0 0\npiece 4 10 10 0 -\npiece 2 x 10 0 "
        "-\n"
        "curve nccl all-gather 8 3 0 0\npiece 0 0 0 0 -\nnonsense\ncurve nccl all-gather 4 3 0 0\n";
    try {
        (void)parse_collective_fit(text, "bad.fit");
        FAIL("accepted");
    } catch (const ConfigError& error) {
        std::vector<int> lines;
        for (const Diagnostic& one : error.diagnostics()) {
            lines.push_back(one.line);
        }
        CHECK(lines == std::vector<int>{2, 3, 4, 5, 5, 7, 8, 9, 0});
        CHECK(error.diagnostics()[1].to_string().find("did you mean 'all-reduce'?") != std::string::npos);
    }
}

TEST_CASE("rows of a trace become curves by library, operation and ranks; between nodes they are another question") {
    std::string text =
        "# orrery-trace: 1\n# device: h100-sxm\n# source: by hand\n# date: "
        "2026-11-21\nop,dtype,shape,library,median_ns\n";
    for (const char* library : {"nccl-2.29.2", "vllm-0.24.0"}) {
        for (const int bytes : {1024, 2048, 4096, 8192}) {
            text += std::string("all_reduce,bf16,bytes=") + std::to_string(bytes) + " ranks=4," + library + ",5000\n";
        }
    }
    text += "all_reduce,bf16,bytes=1024 ranks=16 nodes=2,nccl-2.29.2,20000\n";
    const std::vector<CollectiveCurve> curves = collective_curves(parse_trace(text, "t.csv"));
    REQUIRE(curves.size() == 2);
    CHECK(curves[0].library == "nccl");
    CHECK(curves[1].library == "vllm");
    CHECK(curves[1].points == 4);
    CHECK(1e6 * curves[1].seconds(3000) == doctest::Approx(5));
}

TEST_CASE("a size that met something else bends no curve, and a switch of algorithms does") {
    const auto curve = [](double spike, double after) {
        std::string text =
            "# orrery-trace: 1\n# device: h100-sxm\n# source: by hand\n# date: 2026-11-26\nop,dtype,shape,median_ns\n";
        for (int power = 16; power < 32; ++power) {
            const double ns = 5000 + 0.01 * std::exp2(power);
            const double times = power == 24 ? spike : power > 24 ? after : 1;
            text += fmt::format("all_reduce,bf16,bytes={} ranks=8,{}\n", 1LL << power, times * ns);
        }
        return collective_curves(parse_trace(text, "t.csv")).at(0);
    };
    const CollectiveCurve plain = curve(1, 1);
    const CollectiveCurve alone = curve(1.9, 1);
    CHECK(plain.points == 16);
    CHECK(alone.points == 15);
    CHECK(alone.seconds(1 << 24) == doctest::Approx(plain.seconds(1 << 24)).epsilon(1e-6));
    const CollectiveCurve slower = curve(1.9, 1.9);
    CHECK(slower.points == 16);
    CHECK(slower.seconds(1 << 28) == doctest::Approx(1.9 * plain.seconds(1 << 28)).epsilon(0.02));
}

TEST_CASE("a serving engine's own all-reduce is far below NCCL's where decode steps need it, and all else is NCCL's") {
    const auto nccl = make_collectives("nvlink4", "nccl", test::data());
    const auto vllm = make_collectives("nvlink4", "vllm", test::data());
    const GroupLayout node{8, 1, {}};
    const auto latency = [&](const CollectiveModel& model, CollectiveOp op) {
        return 1e6 * model.price(op, node, Bytes(65536), BytesPerSecond(450e9)).latency.value();
    };
    CHECK(latency(*vllm, CollectiveOp::all_reduce) < 0.6 * latency(*nccl, CollectiveOp::all_reduce));
    CHECK(latency(*vllm, CollectiveOp::all_gather) == latency(*nccl, CollectiveOp::all_gather));
    CHECK_THROWS_WITH_AS((void)make_collectives("nvlnk4", "nccl", test::data()),
                         doctest::Contains("did you mean 'nvlink4'?"), ConfigError);
}
