#pragma once
// What a device computes with, where that is known in parts: systolic arrays, vector units, and units in the banks of its memory.
// Read from units.yaml in the folder of a device's kernels; prices come from models/unit_model.hpp.

#include "sim/config/fields.hpp"
#include "sim/device/storage_drive.hpp"
#include "sim/device/systolic.hpp"

#include <string>
#include <vector>

namespace orrery::device {

/// The kinds differ by what they can do: systolic arrays products, vector units everything else.
enum class UnitKind { systolic, vector };

struct ComputeUnit {
    std::string name;
    UnitKind kind = UnitKind::systolic;
    std::int64_t count = 1;
    std::int64_t rows = 128, columns = 128;  ///< of a systolic array
    Dataflow dataflow = Dataflow::weights;
    Folds folds = Folds::streamed;
    double density = 1;         ///< share of pruned weights that is left, where products skip the rest
    std::int64_t stretch = 1;   ///< times that one side of an array may be as long, and the other as short
    std::int64_t lanes = 1024;  ///< of a vector unit: 32-bit operations a cycle
    Sourced<double> clock;      ///< Hz

    /// For products of two activations, of which nothing is pruned.
    [[nodiscard]] SystolicArrays arrays() const { return {rows, columns, count, dataflow, folds, 1, stretch}; }
    /// FLOP/s: a multiplication and an addition a cycle and element of an array, an operation a cycle and lane.
    [[nodiscard]] double peak() const;
};

/// What a row of keys holds: several tokens of one head, or all heads of a token.
enum class KeyRows { tokens, heads };

/// Multiplying units in the banks of a memory, and the timing of its commands (JESD235 and its kin call the times tRCD, tRP, ...).
/// Times count in whole cycles of the command clock, rounded to the nearest.
struct PimSpec {
    std::int64_t channels = 0;     ///< of the device; 0: no such units
    std::int64_t banks = 16;       ///< of a channel, which work in step
    std::int64_t row_buffers = 1;  ///< a bank; 2: memory is read and written beside the units
    bool products = false;         ///< weights lie in the banks, which multiply them by vectors
    bool attends = true;           ///< so do keys and values
    KeyRows key_rows = KeyRows::tokens;
    bool packed_values = false;         ///< dimensions of short sequences share a row
    Sourced<double> row;                ///< B of a row of a bank
    Sourced<double> access;             ///< B that a bank's unit takes in a command
    Sourced<double> clock;              ///< Hz, of commands
    Sourced<double> activate;           ///< s, tRCD
    Sourced<double> precharge;          ///< s, tRP
    Sourced<double> row_active;         ///< s, tRAS
    Sourced<double> column;             ///< s between commands of the units, tCCD
    Sourced<double> to_precharge;       ///< s, tRTP
    Sourced<double> activation_window;  ///< s, in which `window_banks` may be activated, tFAW
    std::int64_t window_banks = 0;      ///< 0: all at once
    Sourced<double> result;             ///< s from the last command of a sum until its results are out
    Sourced<double> input;              ///< s to write a row of inputs beside the units
    Sourced<double> turnaround;         ///< s between reading results and writing inputs, tRTW
    Sourced<double> refresh;            ///< s, tRFC
    Sourced<double> refresh_interval;   ///< s, tREFI; 0: none
    Sourced<double> energy;             ///< pJ of a byte that the units take, with opening its row

    [[nodiscard]] bool present() const { return channels > 0; }
    /// FLOP/s of all units, with rows open.
    [[nodiscard]] double peak(double element_bytes) const;
};

/// All of a device.
struct DeviceParts {
    std::vector<ComputeUnit> units;
    Sourced<double> scratchpad;  ///< B beside the units, which holds what they work on and what comes next; 0: none
    bool has_pim = false;        ///< the next is given
    PimSpec pim;                 ///< units in the banks of the main memory
    bool has_drive = false;      ///< the next is given
    DriveSpec drive;             ///< that holds keys and values
};

void describe(Fields& fields, DeviceParts& parts);

}  // namespace orrery::device
