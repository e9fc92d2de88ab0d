#pragma once
// A job for SimGrid, which runs in a child process: it owns its clock and has one engine a process.
//
// The job is a set of links and a schedule of messages with their paths; the result is when each message arrived. The
// child is the program `orrery-simgrid`, beside the program that asks. SimGrid is our oracle for sharing (CM02 without
// cross traffic is plain max-min) and the `simgrid` fidelity of collectives and traffic.

#include "sim/base/namespaces.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::network {

struct SimgridJob {
    struct Message {
        std::uint64_t bytes = 0;  ///< SimGrid's payloads are whole bytes
        double delay = 0;         ///< s, between the last dependency and the start of sharing
        std::uint32_t waits_for = 0;
        std::vector<std::uint32_t> links;
        std::vector<std::uint32_t> releases;
    };
    /// A change at a given time. Of messages that are under way then; others are not touched.
    struct Change {
        enum class What { capacity, suspend, resume, cancel };
        double time = 0;
        What what = What::capacity;
        std::uint32_t index = 0;  ///< link or message
        double capacity = 0;      ///< B/s
    };
    /// SimGrid errs by up to 2e-5 at its default precision; tightened it agrees with exact arithmetic.
    bool tightened = true;
    std::vector<double> capacities;  ///< B/s by link
    std::vector<Message> messages;
    std::vector<Change> changes;
};

struct SimgridResult {
    std::vector<double> completions;  ///< s by message; negative: cancelled
    double wall_seconds = 0;          ///< of the simulation alone, without reading the job
};

/// Text forms that both processes share.
[[nodiscard]] std::string write_job(const SimgridJob& job);
/// Throws InternalError on malformed text.
[[nodiscard]] SimgridJob read_job(const std::string& text);

/// Whether the program that runs jobs lies beside this one; a build without SimGrid has none.
[[nodiscard]] bool has_simgrid();
/// Runs the job in a child process. Throws InternalError when it fails. Precondition: has_simgrid().
/// Throws InfeasibleError, with the signal, when a process whose status waitpid() gave was ended by one (as the kernel does when
/// memory runs out), and InternalError when it failed by itself.
void require_finished(int status);
[[nodiscard]] SimgridResult run_simgrid(const SimgridJob& job);

}  // namespace orrery::network
