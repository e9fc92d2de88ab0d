#include "workloads/serving/metrics/outcome.hpp"

#include "sim/base/math.hpp"

#include <algorithm>

namespace orrery::serving {

namespace {

constexpr double kLeast = 1e-6;
constexpr double kRatio = 1.01;

}  // namespace

void LogHistogram::find(double seconds) {
    static const double kScale = 1 / log_pinned(kRatio);
    const double place = seconds > kLeast ? log_pinned(seconds / kLeast) * kScale : 0;
    last_ = seconds;
    last_bin_ = static_cast<std::size_t>(std::min(place, 3000.0));
    max_ = std::max(max_, seconds);
    if (bins_.size() <= last_bin_) {
        bins_.resize(last_bin_ + 1);
    }
}

void LogHistogram::add(const LogHistogram& other) {
    bins_.resize(std::max(bins_.size(), other.bins_.size()));
    for (std::size_t bin = 0; bin < other.bins_.size(); ++bin) {
        bins_[bin] += other.bins_[bin];
    }
    total_ += other.total_;
    sum_ += other.sum_;
    max_ = std::max(max_, other.max_);
}

double LogHistogram::quantile(double q) const {
    const auto wanted = static_cast<std::uint64_t>(q * static_cast<double>(total_));
    std::uint64_t seen = 0;
    for (std::size_t bin = 0; bin < bins_.size(); ++bin) {
        seen += bins_[bin];
        if (seen > wanted) {
            // The middle of the bin on the logarithmic scale.
            return std::min(max_, kLeast * exp_pinned((static_cast<double>(bin) + 0.5) * log_pinned(kRatio)));
        }
    }
    return max_;
}

void WindowCounts::add(const WindowCounts& other) {
    unserved += other.unserved;
    finished += other.finished;
    output_tokens += other.output_tokens;
    tbt.add(other.tbt);
    pools.resize(std::max(pools.size(), other.pools.size()));
    for (std::size_t i = 0; i < other.pools.size(); ++i) {
        pools[i].kernel_s += other.pools[i].kernel_s;
        pools[i].flops += other.pools[i].flops;
        pools[i].bytes += other.pools[i].bytes;
    }
}

}  // namespace orrery::serving
