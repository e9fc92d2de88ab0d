#pragma once
// The requests of a serving run one by one, as a table.

#include "workloads/serving/engine/sequence.hpp"
#include "workloads/serving/metrics/outcome.hpp"

#include <string>
#include <vector>

namespace orrery::driver {

/// One request, however it ended. Times in s; those of what did not happen are 0.
struct RequestRow {
    std::uint64_t id = 0;  ///< in order of arrival at the engines
    Ending ending = Ending::finished;
    double arrival = 0;
    double ttft = 0;
    double tpot = 0;
    double e2e = 0;  ///< until it was accounted for
    std::uint32_t prompt = 0;
    std::uint32_t output = 0;  ///< tokens given
    std::uint32_t adapter = 0;
    std::uint32_t retries = 0;
};

/// The row of a request that is accounted for now.
[[nodiscard]] RequestRow row_of(const Sequence& sequence, Ending ending, SimTime now);
/// As CSV, by request; with a column of adapters where asked for.
[[nodiscard]] std::string requests_csv(std::vector<RequestRow> rows, bool adapters);

}  // namespace orrery::driver
