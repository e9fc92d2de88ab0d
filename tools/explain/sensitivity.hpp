#pragma once
// What rests on constants that nobody has published: the run again with each of them a fifth lower and higher.
//
// Claims: a constant counts as unsure where its file says "assumed", "estimated" or "recalled". Each is changed alone.
// Limits: constants inside fits and policies are not seen, only values of the scenario's description that carry a source.
// Validated by tests/tools/explain_test.cpp.

#include "tools/driver/scenario.hpp"

#include <string>
#include <vector>

namespace orrery::explain {

/// What an unsure constant does to the headline.
struct ConstantEffect {
    std::string path;   ///< such as "cluster.node.nic_latency"
    std::string value;  ///< as it is, with its unit
    std::string how;    ///< what its file says of it
    double lower = 0;   ///< relative change of the headline with the constant 20 % lower, or at its least value
    double higher = 0;  ///< 20 % higher, or at its greatest value
};

struct Sensitivity {
    std::string headline;                ///< name of the metric
    double seconds = 0;                  ///< as it is
    std::vector<ConstantEffect> moving;  ///< constants that change it, strongest first
    std::size_t without_effect = 0;      ///< unsure constants that this run does not go by
};

/// Runs the scenario twice for each unsure constant, on the same seed. Throws as run() does.
[[nodiscard]] Sensitivity sensitivity_of(const Scenario& scenario, const DataDirectory& data);

}  // namespace orrery::explain
