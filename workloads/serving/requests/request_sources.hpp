#pragma once
// The sources of requests behind make_requests (arrivals.hpp), and what they have in common.

#include "sim/base/math.hpp"
#include "sim/base/random.hpp"
#include "workloads/serving/requests/arrivals.hpp"

#include <algorithm>
#include <iterator>

namespace orrery::serving {

inline constexpr double kMostTokens = 1 << 24;       ///< of a prompt or an output
inline constexpr std::int64_t kGenerated = 1000;     ///< requests, where nobody says how many
inline constexpr std::int64_t kLeastWatched = 6400;  ///< that a run watched for its steady state may need at least
/// s from the first request on: 64-bit picoseconds end after 9.22e6, and the last ones are to be answered before that.
inline constexpr double kLatestArrival = 9e6;

/// A generator by the specification, or a mix of them where it lists clients.
[[nodiscard]] std::unique_ptr<RequestSource> make_generator(const RequestsSpec& spec, std::uint64_t seed);
/// Reads `file` a line at a time, in any format of formats/. Throws ConfigError with file and line.
[[nodiscard]] std::unique_ptr<RequestSource> make_trace_reader(const RequestsSpec& spec, const std::string& file,
                                                               std::uint64_t seed);

/// Reads `file`, a JSON document of recorded/, whole. Throws ConfigError with file and line.
[[nodiscard]] std::unique_ptr<RequestSource> make_recorded_requests(const RequestsSpec& spec, const std::string& file,
                                                                    std::uint64_t seed);

/// Clients of a closed loop; 0: requests come at their own times.
[[nodiscard]] inline std::uint64_t clients_of(const RequestsSpec& spec) {
    const auto clients = static_cast<std::uint64_t>(std::max<std::int64_t>(1, spec.clients));
    return spec.arrivals == ArrivalKind::closed ? clients : 0;
}

/// Adapters by popularity: the k-th of them in proportion to 1 / k^skew (Zipf).
class Popularity {
  public:
    Popularity(std::int64_t count, double skew, std::uint64_t seed, const std::string& name)
        : random_(seed, name + "/adapters") {
        double sum = 0;
        for (std::int64_t k = 1; k <= count; ++k) {
            sum += exp_pinned(-skew * log_pinned(static_cast<double>(k)));
            up_to_.push_back(sum);
        }
    }
    /// From 1 on; 0 when there are none.
    [[nodiscard]] std::uint32_t draw() {
        if (up_to_.empty()) {
            return 0;
        }
        const auto found = std::upper_bound(up_to_.begin(), up_to_.end(), random_.uniform() * up_to_.back());
        return static_cast<std::uint32_t>(std::min(found, std::prev(up_to_.end())) - up_to_.begin()) + 1;
    }

  private:
    RandomStream random_;
    std::vector<double> up_to_;
};

}  // namespace orrery::serving
