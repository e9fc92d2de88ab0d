#pragma once
// What a serving run says: latencies, rates, costs, and what only some engines have.

#include "sim/record/summary.hpp"
#include "tools/driver/scenario.hpp"
#include "workloads/serving/metrics/outcome.hpp"
#include "workloads/serving/service_spec.hpp"

#include <vector>

namespace orrery::driver {

/// Devices of a pool, and the clock that they run at.
struct PoolDevices {
    const DeviceSpec* gpu;
    double count;
    double clock;
};

/// Where the time of a pool's batches goes, from when they are put together to when they are done.
struct PhaseTime {
    double batch_s = 0;   ///< of all batches,
    double prompt_s = 0;  ///< and their part for prompts: by tokens where a batch has prompts and decoding sequences
};

/// What was built to serve a scenario.
struct ServingTotals {
    const Scenario& scenario;
    const ServiceSpec& service;
    std::vector<PoolDevices> devices;  ///< by pool
    std::uint32_t pool_gpus = 0;
    double price = 0;  ///< USD per hour of all GPUs
    bool priced = true;
    std::vector<PhaseTime> phases = {};                  ///< by pool, where the devices have prices
    std::uint64_t prompt_tokens = 0, answer_tokens = 0;  ///< of the measured requests that were answered
    bool piped = false;                                  ///< some replica has pipeline stages
    bool scales = false;
    bool scaled_clock = false;
};

void summarise_service(const ServingTotals& totals, const ServiceResult& result, Summary& summary);
/// What a reader of the figures has to know. `turned_away`: requests that an admission of the user's own did not take.
void note_service(const ServiceResult& result, std::uint64_t turned_away, Summary& summary);

}  // namespace orrery::driver
