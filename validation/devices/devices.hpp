#pragma once
// The tables of `orrery validate devices`, one a file.

#include "sim/config/data_directory.hpp"
#include "tools/driver/model_cache.hpp"
#include "tools/driver/scenario.hpp"
#include "tools/terminal/terminal.hpp"
#include "validation/scatter.hpp"

#include <map>
#include <string>
#include <vector>

namespace orrery::validation {

/// What the tables add to: points by group, and the relative errors of what is scored.
struct DeviceScores {
    Comparison comparison;
    std::map<std::string, std::vector<double>> errors;  ///< by group
    bool print_points = false;

    /// A scored point; values in s, or in what `unit` says.
    void score(const std::string& group, const std::string& label, double measured, double predicted);
    /// Prints and keeps a table.
    void table(const Terminal& terminal, const std::string& title, const std::vector<std::string>& columns,
               std::vector<std::vector<std::string>> rows);
};

/// Products on systolic arrays: SCALE-Sim scored, MAESTRO printed.
void compare_systolic(const DataDirectory& data, const Terminal& terminal, DeviceScores& out);
/// Products on devices priced from their units, and of AMD's tuned tables by device and format.
void compare_products(const DataDirectory& data, const Terminal& terminal, DeviceScores& out);
/// Training on TPUs.
void compare_training(ModelCache& models, const Terminal& terminal, DeviceScores& out);
/// Served models on NPUs: Gaudi's scored, others printed.
void compare_served(ModelCache& models, const Terminal& terminal, DeviceScores& out);
/// Units in the banks of memory: NeuPIMs and AttAcc.
void compare_pim(const DataDirectory& data, const Terminal& terminal, DeviceScores& out);
/// Layers whose weights lie in the banks: CENT.
void compare_cent(const DataDirectory& data, const Terminal& terminal, DeviceScores& out);
/// Copies to UPMEM's cores and their launches.
void compare_upmem(const DataDirectory& data, const Terminal& terminal, DeviceScores& out);
/// Tokens of mixtures whose experts live in host memory: printed, not scored.
void compare_experts(ModelCache& models, const Terminal& terminal, DeviceScores& out);

/// Copies between devices, DRAM, CXL and drives.
void compare_tiers(const DataDirectory& data, const Terminal& terminal, DeviceScores& out);

}  // namespace orrery::validation
