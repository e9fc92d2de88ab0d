#include "sim/record/batch_means.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace orrery::record {

double student_t(double confidence, std::size_t freedom) {
    // At 95 % and 97.5 %, for 1 to 30 degrees of freedom; beyond, the normal distribution is within 2 %.
    static constexpr std::array<double, 30> kNinety = {
        6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753,
        1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697};
    static constexpr std::array<double, 30> kNinetyFive = {
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120,  2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
    ORRERY_ASSERT(freedom >= 1 && (confidence == 0.9 || confidence == 0.95));
    return (confidence == 0.9 ? kNinety : kNinetyFive)[std::min(freedom, kNinety.size()) - 1];
}

std::optional<std::size_t> warm_up_of(std::span<const double> series) {
    // From the back: sums of what is left after a cut.
    const std::size_t n = series.size();
    double sum = 0;
    double squares = 0;
    double least = std::numeric_limits<double>::infinity();
    std::size_t cut = 0;
    for (std::size_t left = 1; left <= n; ++left) {
        const double value = series[n - left];
        const double before = sum;
        sum += value;
        // Welford's update, so that a large mean does not swallow the variance.
        if (left > 1) {
            const double step = value - before / static_cast<double>(left - 1);
            squares += step * step * static_cast<double>(left - 1) / static_cast<double>(left);
        }
        // The last few values are alike by chance.
        constexpr std::size_t kFewest = 5;
        const double statistic = squares / (static_cast<double>(left) * static_cast<double>(left));
        if (left >= std::min(n, kFewest) && statistic <= least) {
            least = statistic;
            cut = n - left;
        }
    }
    return cut > n / 2 ? std::nullopt : std::optional(cut);
}

bool BatchEstimate::independent(std::size_t batches) const {
    constexpr double kNormal95 = 1.645;
    return correlation <= kNormal95 / std::sqrt(static_cast<double>(batches));
}

double BatchEstimate::relative() const {
    return half_width == 0 ? 0 : half_width / std::fabs(value);
}

BatchEstimate ratio_of_batches(std::span<const double> counted, std::span<const double> reference, double confidence) {
    const std::size_t n = counted.size();
    ORRERY_ASSERT(n >= 2 && reference.size() == n);
    double above = 0;
    double below = 0;
    for (std::size_t i = 0; i < n; ++i) {
        above += counted[i];
        below += reference[i];
    }
    ORRERY_ASSERT(below > 0);
    BatchEstimate out;
    out.value = above / below;
    double squares = 0;
    double products = 0;
    double last = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const double residual = counted[i] - out.value * reference[i];
        squares += residual * residual;
        products += residual * last;
        last = residual;
    }
    const auto batches = static_cast<double>(n);
    out.half_width = student_t(confidence, n - 1) * std::sqrt(squares / (batches - 1) / batches) / (below / batches);
    out.correlation = squares > 0 ? products / squares : 0;
    return out;
}

std::vector<double> grouped(std::span<const double> series, std::size_t groups) {
    const std::size_t size = series.size() / groups;
    ORRERY_ASSERT(size > 0);
    std::vector<double> out(groups, 0);
    const std::size_t first = series.size() - size * groups;
    for (std::size_t i = first; i < series.size(); ++i) {
        out[(i - first) / size] += series[i];
    }
    return out;
}

}  // namespace orrery::record
