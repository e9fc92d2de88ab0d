#pragma once
// First scenarios: a commented file of any kind that runs, from a few facts.
//
// A starter is one row of a table for each kind. What it writes is a place to start from and no recommendation: the plan of a
// training run is the first of a fixed order that fits into memory, and `orrery plan` searches for the best.

#include "sim/config/data_directory.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::init {

/// What is known. Empty and 0: taken from the kind's own example.
struct StarterFacts {
    std::int64_t gpus = 0;
    std::string device;   ///< preset of a device or of a node
    std::string model;    ///< preset of a model
    std::string base;     ///< of a sweep: the scenario to vary
    std::string trace;    ///< of a replay: what 'orrery import' wrote
    std::string command;  ///< as typed, for the first comment
};

struct StarterRow {
    const char* kind;                ///< of scenario, or a variant of one
    const char* asks;                ///< what such a scenario answers
    std::vector<const char*> facts;  ///< options that it takes, without dashes
    std::string (*write)(const StarterFacts& facts, const DataDirectory& data);
};

/// In the order of `orrery list`.
[[nodiscard]] const std::vector<StarterRow>& starter_table();

/// The text of a scenario of this kind, read once to see that it is valid. Throws ConfigError for a kind, device or model that
/// there is not, with the nearest that is, and InfeasibleError where nothing fits.
[[nodiscard]] std::string write_starter(const std::string& kind, const StarterFacts& facts, const DataDirectory& data);

}  // namespace orrery::init
