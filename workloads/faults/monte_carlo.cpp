#include "workloads/faults/campaign.hpp"

#include <atomic>
#include <cmath>
#include <exception>
#include <thread>

namespace orrery::faults {

std::vector<CampaignResult> run_campaigns(const CampaignPlan& plan, JobModel& job, std::uint64_t seed,
                                          std::uint64_t runs, unsigned threads) {
    std::vector<CampaignResult> out(runs);
    std::vector<std::exception_ptr> failed(runs);
    std::atomic<std::uint64_t> next{0};
    const auto work = [&] {
        for (std::uint64_t run = next++; run < runs; run = next++) {
            try {
                out[run] = run_campaign(plan, job, seed + run, run == 0);
            } catch (...) {
                failed[run] = std::current_exception();
            }
        }
    };
    std::vector<std::thread> others;
    for (unsigned i = 1; i < threads && i < runs; ++i) {
        others.emplace_back(work);
    }
    work();
    for (std::thread& other : others) {
        other.join();
    }
    for (const std::exception_ptr& one : failed) {
        if (one) {
            std::rethrow_exception(one);  // the first of the runs, whoever came first
        }
    }
    return out;
}

namespace {

// Quantiles of Student's t (two-sided 90 % and 95 %) for 1 to 30 degrees of freedom; beyond, the expansion of Abramowitz and Stegun,
// 26.7.5, in the normal quantile.
constexpr double kStudent90[] = {6.3138, 2.9200, 2.3534, 2.1318, 2.0150, 1.9432, 1.8946, 1.8595, 1.8331, 1.8125,
                                 1.7959, 1.7823, 1.7709, 1.7613, 1.7531, 1.7459, 1.7396, 1.7341, 1.7291, 1.7247,
                                 1.7207, 1.7171, 1.7139, 1.7109, 1.7081, 1.7056, 1.7033, 1.7011, 1.6991, 1.6973};
constexpr double kStudent95[] = {12.706, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
                                 2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
                                 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423};

double student(std::size_t freedom, double level) {
    ORRERY_ASSERT(freedom >= 1);
    const bool wide = level > 0.92;
    if (freedom <= 30) {
        return (wide ? kStudent95 : kStudent90)[freedom - 1];
    }
    const double z = wide ? 1.959964 : 1.644854;
    const auto v = static_cast<double>(freedom);
    return z + (z * z * z + z) / (4 * v) + (5 * z * z * z * z * z + 16 * z * z * z + 3 * z) / (96 * v * v);
}

}  // namespace

MeanInterval mean_interval(const std::vector<double>& samples, double level) {
    MeanInterval out;
    const auto count = static_cast<double>(samples.size());
    for (const double one : samples) {
        out.mean += one / count;
    }
    if (samples.size() < 2) {
        return out;
    }
    double squares = 0;
    for (const double one : samples) {
        squares += (one - out.mean) * (one - out.mean);
    }
    out.sd = std::sqrt(squares / (count - 1));
    out.half_width = student(samples.size() - 1, level) * out.sd / std::sqrt(count);
    return out;
}

}  // namespace orrery::faults
