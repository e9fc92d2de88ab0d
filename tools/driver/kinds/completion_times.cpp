#include "tools/driver/kinds/completion_times.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <numeric>

namespace orrery::driver {

void add_spread(const std::string& name, std::vector<double> values, const char* unit, Summary& summary) {
    ORRERY_ASSERT(!values.empty());
    std::sort(values.begin(), values.end());
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    summary.add(name + ".mean", sum / static_cast<double>(values.size()), unit);
    for (const auto& [suffix, q] : {std::pair{".p50", 0.5}, {".p95", 0.95}, {".p99", 0.99}}) {
        const auto place = static_cast<std::size_t>(q * static_cast<double>(values.size()));
        summary.add(name + suffix, values[std::min(values.size() - 1, place)], unit);
    }
    summary.add(name + ".max", values.back(), unit);
}

}  // namespace orrery::driver
