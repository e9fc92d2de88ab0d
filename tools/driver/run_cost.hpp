#pragma once
// What a run will take of this machine, before it takes it.
//
// Claims: counts what is simulated (packets over links, messages, operations, requests) from the scenario alone, times what each
// takes on one core (README.md, Speed). Scope: to tell seconds from hours and megabytes from more than there is; within a factor
// of three for what folds as expected and is not congested. Limits: files are counted by their size; sums over the jobs of a
// cluster are those of the jobs alone. Validated by tests/tools/hostile_input_test.cpp.

#include "tools/driver/scenario_spec.hpp"

#include <string>

namespace orrery::driver {

struct RunCost {
    double seconds = 0;
    double bytes = 0;  ///< of memory at the peak
    std::string what;  ///< "2.7e+08 packet-hops"
};

// For the kinds, which count what they simulate.

/// Time and memory of one of what is counted; tests/bench measures them.
struct UnitPrice {
    double seconds;
    double bytes;
};
inline constexpr UnitPrice kPacketHop = {2e-7, 0};
inline constexpr UnitPrice kMessage = {4e-6, 500};  // of a fluid or analytic run, with what it waits for
inline constexpr UnitPrice kTask = {4e-7, 70};      // of a training iteration or a replay
inline constexpr double kHops = 4;                  // links of a path through a fabric of two tiers
inline constexpr double kBytesPerRow = 60;          // of a trace of operations
inline constexpr double kBytesPerLine = 30;         // of a trace of requests or flows

[[nodiscard]] RunCost cost_of(double count, UnitPrice price, const char* what);
/// Bytes of a file; 0 where it cannot be seen.
[[nodiscard]] double size_of(const std::string& path);
[[nodiscard]] double endpoints(const ClusterSpec& cluster);
/// `crossing`: the share of bytes that leave their node.
[[nodiscard]] RunCost cost_of_messages(const Scenario& s, double messages, double bytes, const UnitPrice& each,
                                       double crossing = 1);

}  // namespace orrery::driver
