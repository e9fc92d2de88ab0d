#include "models/calibration/kriging.hpp"
#include "models/calibration/points.hpp"
#include "sim/base/math.hpp"
#include "sim/base/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace orrery;

namespace {

// A smooth function of two of three coordinates, with a kink.
double truth(const Kriging::Place& at) {
    return 0.3 * at[0] + 0.2 * std::abs(at[1] - 3);
}

std::vector<Kriging::Row> rows_of(std::size_t count, double noise) {
    RandomStream random(7, "kriging");
    std::vector<Kriging::Row> rows(count);
    for (Kriging::Row& row : rows) {
        row.at = {8 * random.uniform(), 6 * random.uniform(), 4 * random.uniform()};
        row.residual = truth(row.at) + noise * (2 * random.uniform() - 1);
    }
    return rows;
}

double mean_error(const Kriging& kriging) {
    double sum = 0;
    std::size_t count = 0;
    for (double x = 0.5; x < 8; x += 1) {
        for (double y = 0.5; y < 6; y += 1, ++count) {
            sum += std::abs(kriging.at({x, y, 2}) - truth({x, y, 2}));
        }
    }
    return sum / static_cast<double>(count);
}

}  // namespace

TEST_CASE("kriging goes through rows without noise, and finds which coordinate does not matter") {
    const std::vector<Kriging::Row> rows = rows_of(160, 0);
    const Kriging kriging(rows, 3);
    for (const Kriging::Row& row : rows) {
        CHECK(kriging.at(row.at) == doctest::Approx(row.residual).epsilon(0.03));
    }
    CHECK(mean_error(kriging) < 0.02);
    CHECK(kriging.lengths()[2] > 3 * kriging.lengths()[0]);
    CHECK(kriging.lengths()[2] > 3 * kriging.lengths()[1]);
}

TEST_CASE("kriging averages the noise of rows, by the nearest of many as by all of few") {
    constexpr double kNoise = 0.2;  // a mean deviation of 0.1
    CHECK(mean_error(Kriging(rows_of(380, kNoise), 3)) < 0.05);
    CHECK(mean_error(Kriging(rows_of(2000, kNoise), 3)) < 0.035);
}

TEST_CASE("far from all rows kriging falls back on their mean") {
    std::vector<Kriging::Row> rows = rows_of(100, 0);
    double mean = 0;
    for (Kriging::Row& row : rows) {
        row.residual = std::sin(3 * row.at[0]) * std::cos(3 * row.at[1]);
        mean += row.residual / static_cast<double>(rows.size());
    }
    CHECK(std::abs(Kriging(rows, 2).at({1e4, 1e4}) - mean) < 0.2);
}

TEST_CASE("attention is kriged: steps along the keys, which are no axis, are found from few rows") {
    const KernelRates rates{1e15, 4e12, 50e6, 132};
    std::vector<MeasuredPoint> points;
    for (double batch = 1; batch <= 256; batch *= 2) {
        for (double keys = 64; keys <= 65536; keys *= 2) {
            for (const double group : {1.0, 4.0, 8.0}) {
                Attention attention;
                attention.queries = 1;
                attention.keys = keys;
                attention.batch_heads = 8 * batch * group;
                attention.group = group;
                attention.head_dim = 128;
                attention.causal = false;
                const KernelPoint point = *kernel_point(attention);
                const double slow = 1.1 + 0.4 * std::clamp(log2_pinned(keys) / 4 - 2.5, -1.0, 1.0);
                points.push_back({point, 5e-6 + slow * point.bytes / (0.8 * rates.bandwidth), 0, 0});
            }
        }
    }
    const std::vector<char> in = spread_points(points, 0.2);
    std::vector<MeasuredPoint> seen;
    std::vector<MeasuredPoint> held;
    for (std::size_t i = 0; i < points.size(); ++i) {
        (in[i] != 0 ? seen : held).push_back(points[i]);
    }
    const KernelFit fit = fit_kernel(seen, rates, FitOptions{});
    CHECK(fit.surface == KernelFit::Surface::kriging);
    CHECK(errors_on(fit, held, rates).mape < 0.04);
    KernelFit again = parse_fit(format_fit(fit), "test");
    CHECK(again.surface == KernelFit::Surface::kriging);
}
