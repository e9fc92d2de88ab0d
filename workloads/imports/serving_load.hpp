#pragma once
// The load of a benchmark client of a serving engine: its arrivals and the lengths of its requests.

#include "workloads/imports/serving_command.hpp"

#include <optional>

namespace orrery::imports {

/// One client.
struct LoadClient {
    std::vector<const char*> programs;  ///< words that start it
    const char* table;                  ///< of its flags
    bool shorter = false;      ///< lengths range from a share of the given ones up to them, and not around them
    const char* data_set;      ///< where it names none
    std::int64_t clients = 0;  ///< in a closed loop where no flag says it; 0: all requests come at once
};
[[nodiscard]] const std::vector<LoadClient>& load_clients();

/// Sets the keys of `requests`. `flags`: of the client; null: there is none, and a load is assumed. `longest`: tokens of a request that
/// the engine takes; 0: what fits. Throws ConfigError for lengths that it never takes.
void set_load(GivenFlags* flags, const LoadClient* client, std::int64_t longest, const DataDirectory& data,
              ScenarioKeys& keys, ImportNotes& notes);

}  // namespace orrery::imports
