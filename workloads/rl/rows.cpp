#include "workloads/rl/rows.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

namespace orrery::rl {

namespace {

// Sequences that the samples fill. `lengths`: the longest first.
std::size_t packed(const std::vector<std::int64_t>& lengths, std::int64_t sequence) {
    std::multiset<std::int64_t> room;  // of sequences that have some
    std::size_t count = 0;
    for (const std::int64_t length : lengths) {
        const auto found = room.lower_bound(length);
        std::int64_t left = sequence;
        if (found == room.end()) {
            ++count;
        } else {
            left = *found;
            room.erase(found);
        }
        ORRERY_ASSERT(length <= left);
        if (left > length) {
            room.insert(left - length);
        }
    }
    return count;
}

}  // namespace

Rows rows_of(std::vector<std::int64_t> lengths, RowLayout layout, std::int64_t sequence, bool pipelined,
             std::int64_t unit) {
    ORRERY_ASSERT(!lengths.empty() && unit > 0 && sequence >= unit);
    const auto samples = static_cast<double>(lengths.size());
    if (layout == RowLayout::padded) {
        return {samples, sequence, 0};
    }
    std::sort(lengths.begin(), lengths.end(), std::greater<>());
    double tokens = 0;
    double squares = 0;
    for (const std::int64_t length : lengths) {
        tokens += static_cast<double>(length);
        squares += static_cast<double>(length) * static_cast<double>(length);
    }
    const double sequences = layout == RowLayout::single ? samples : static_cast<double>(packed(lengths, sequence));
    const double computed =
        layout == RowLayout::packed && pipelined ? sequences * static_cast<double>(sequence) : tokens;
    const auto units = static_cast<double>(unit);
    const double most = std::floor(static_cast<double>(sequence) / units);
    const double each = units * std::clamp(std::round(squares / tokens / units), 1.0, most);
    const double inside = std::max(1.0, std::round(computed / sequences / each));
    Rows out;
    out.sample = static_cast<std::int64_t>(each);
    out.tokens = static_cast<std::int64_t>(inside * each);
    out.count = computed / (inside * each);
    ORRERY_ASSERT(out.count > 0 && out.sample <= sequence);
    return out;
}

double busiest_replica(const std::vector<std::int64_t>& lengths, std::int64_t update, std::int64_t replicas) {
    ORRERY_ASSERT(update > 0 && replicas > 0);
    double most = 0;
    double mean = 0;
    const auto count = static_cast<std::int64_t>(lengths.size());
    for (std::int64_t first = 0; first < count; first += update) {
        const std::int64_t size = std::min(update, count - first);
        double busiest = 0;
        double all = 0;
        for (std::int64_t replica = 0; replica < replicas; ++replica) {
            double own = 0;
            for (std::int64_t i = replica * size / replicas; i < (replica + 1) * size / replicas; ++i) {
                own += static_cast<double>(lengths[static_cast<std::size_t>(first + i)]);
            }
            busiest = std::max(busiest, own);
            all += own;
        }
        most += busiest;
        mean += all / static_cast<double>(replicas);
    }
    return mean > 0 ? most / mean : 1;
}

}  // namespace orrery::rl
