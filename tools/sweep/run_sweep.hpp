#pragma once
// Runs the points of a sweep on several processes into a database.

#include "tools/sweep/result_store.hpp"
#include "tools/sweep/sweep_spec.hpp"

#include <functional>
#include <string>

namespace orrery::sweep {

struct SweepOptions {
    std::string database;
    bool resume = false;  ///< continue a database that exists
    unsigned workers = 1;
    unsigned shard = 0;   ///< this part...
    unsigned shards = 1;  ///< ...of so many; a distinct scenario belongs to one shard
    double timeout = 0;   ///< s a point; 0: what the sweep file says
    std::string version;  ///< of the program, for the manifest
    std::function<void(double)> progress;
};

struct SweepCounts {
    std::uint64_t points = 0;     ///< of this shard, after `where`
    std::uint64_t resumed = 0;    ///< were finished already
    std::uint64_t simulated = 0;  ///< distinct scenarios that were run now
    std::uint64_t done = 0, infeasible = 0, invalid = 0, failed = 0, timed_out = 0;
    std::string first_invalid;  ///< message of the first invalid point
};

/// Throws ConfigError for databases that cannot be used and for metrics in `keep` that no scenario of this kind has.
SweepCounts run_sweep(const SweepSpec& sweep, const DataDirectory& data, const SweepOptions& options);

/// Hash of every preset and table below a data directory: results of other tables are not comparable.
[[nodiscard]] std::string hash_of_data(const DataDirectory& data);

}  // namespace orrery::sweep
