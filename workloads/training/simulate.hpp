#pragma once
// Runs a lowered training iteration and books every second of it.

#include "sim/network/packet/packet_model.hpp"
#include "sim/record/summary.hpp"
#include "workloads/training/lower.hpp"

#include <functional>

namespace orrery {

enum class Fidelity { analytic, fluid, simgrid, packet };
[[nodiscard]] const std::vector<std::string>& fidelity_names();

struct TrainingOptions {
    Fidelity fidelity = Fidelity::fluid;
    SimTime batch_window;  ///< completions grouped within it; zero: exact
    bool timeline = false;
    std::uint32_t timeline_ranks = 64;    ///< at most this many ranks are drawn
    const PacketSpec* packets = nullptr;  ///< for Fidelity::packet
    std::vector<LinkEvent> link_events;
    std::uint64_t seed = 1;
    std::function<void(double)> progress;
};

struct TrainingResult {
    double iteration_s = 0;
    /// Mean over the ranks of the time of each category on the compute stream, in seconds; with `bubble` it adds up to
    /// iteration_s.
    std::array<double, kCategoryCount> booked{};
    double bubble_s = 0;
    double exposed_communication_s = 0;
    double model_flops = 0;     ///< of the whole job, one iteration
    double hardware_flops = 0;  ///< with recomputation
    double memory_bytes = 0;    ///< of the fullest stage
    std::vector<MemoryUse> memory;
    std::uint64_t events = 0;
    std::uint64_t tasks = 0;
    std::uint32_t simulated_ranks = 0;
    std::uint32_t folded_into_one = 1;
    Timeline timeline;
    std::optional<PacketStatistics> packets;
    PacketReport ports;
};

/// Lowers and runs one iteration. Throws InfeasibleError when a stage does not fit into `memory_capacity` bytes
/// (infinity: no check).
[[nodiscard]] TrainingResult simulate(const TrainingInput& input, double memory_capacity,
                                      const TrainingOptions& options);

}  // namespace orrery
