#include "sim/device/compute_unit.hpp"

#include <algorithm>

namespace orrery::device {

double ComputeUnit::peak() const {
    const auto per_cycle = static_cast<double>(kind == UnitKind::systolic ? 2 * rows * columns * count : lanes * count);
    return per_cycle * clock.value;
}

double PimSpec::peak(double element_bytes) const {
    return 2 * static_cast<double>(channels * banks) * access.value / element_bytes / column.value;
}

static void describe(Fields& fields, ComputeUnit& unit) {
    fields.text({"name", "vendor's name of the unit"}, unit.name);
    fields.enumeration({"kind", "work that the unit does: products, or everything else"}, {"systolic", "vector"},
                       unit.kind);
    fields.integer({"count", "number of units that share the work", false, 1, 1e6}, unit.count);
    fields.sourced({"clock", "clock of the unit", true, 1e6, 1e11}, Dimension::frequency, unit.clock);
    if (unit.kind == UnitKind::systolic || fields.names_all()) {
        fields.integer({"rows", "rows of the array", false, 1, 1e5}, unit.rows);
        fields.integer({"columns", "columns of the array", false, 1, 1e5}, unit.columns);
        fields.enumeration({"dataflow", "operand that stays in the array"}, dataflow_names(), unit.dataflow);
        fields.enumeration({"folds",
                            "work that successive tiles of a product overlap: none, loading of the stationary operand, "
                            "or filling and draining too"},
                           folds_names(), unit.folds);
        fields.number({"density", "share of pruned weights that is left, where products skip the rest (0.5: 2 of 4)",
                       false, 1e-3, 1},
                      unit.density);
        fields.integer(
            {"stretch", "times that one side of the array may be as long, and the other as short", false, 1, 64},
            unit.stretch);
    }
    if (unit.kind == UnitKind::vector || fields.names_all()) {
        fields.integer({"lanes", "32-bit operations a cycle", false, 1, 1e9}, unit.lanes);
    }
}

static void describe(Fields& fields, PimSpec& pim) {
    fields.integer({"channels", "channels of the memory with units in their banks (0: none)", false, 0, 1e5},
                   pim.channels);
    fields.integer({"banks", "banks of a channel, which work in step", false, 1, 4096}, pim.banks);
    fields.integer(
        {"row_buffers", "row buffers of a bank; with 2 memory is read and written beside the units", false, 1, 2},
        pim.row_buffers);
    fields.boolean({"products", "weights lie in the banks too, which multiply them by one vector at a time"},
                   pim.products);
    fields.boolean({"attention", "keys and values lie in the banks, which do the attention of decoding"}, pim.attends);
    fields.enumeration({"key_rows", "content of a row of keys: several tokens of a head, or the heads of a token"},
                       {"tokens", "heads"}, pim.key_rows);
    fields.boolean({"packed_values", "dimensions of sequences shorter than a row share it"}, pim.packed_values);
    fields.sourced({"row", "bytes of a row of a bank", true, 32, 1e6}, Dimension::bytes, pim.row);
    fields.sourced({"access", "bytes that a bank's unit takes in a command", true, 1, 1e4}, Dimension::bytes,
                   pim.access);
    fields.sourced({"clock", "clock of commands", true, 1e6, 1e11}, Dimension::frequency, pim.clock);
    const auto time = [&](const char* key, const char* doc, Sourced<double>& value) {
        fields.sourced({key, doc, false, 0, 1e-3}, Dimension::time, value);
    };
    time("activate", "from activating a row to its first column (tRCD)", pim.activate);
    time("precharge", "from closing a row to opening the next (tRP)", pim.precharge);
    time("row_active", "a row stays open for at least this (tRAS)", pim.row_active);
    time("column", "between commands of the units (tCCD)", pim.column);
    time("to_precharge", "from the last column to closing the row (tRTP)", pim.to_precharge);
    time("activation_window", "in which window_banks banks may be activated (tFAW)", pim.activation_window);
    fields.integer({"window_banks", "banks that may be activated in the window (0: all at once)", false, 0, 4096},
                   pim.window_banks);
    time("result", "from the last command of a sum until its results are out", pim.result);
    time("input", "to write a row of inputs beside the units", pim.input);
    time("turnaround", "between reading results and writing inputs (tRTW)", pim.turnaround);
    time("refresh", "of all banks (tRFC)", pim.refresh);
    time("refresh_interval", "between refreshes (tREFI; 0: none)", pim.refresh_interval);
    fields.sourced(
        {"energy", "pJ of a byte that the units take, with opening its row, beside energy_per_flop (0: not known)",
         false, 0, 1e6},
        Dimension::number, pim.energy);
}

void describe(Fields& fields, DeviceParts& parts) {
    fields.items({"units", "compute units, which price what no kernel was measured for", true}, parts.units,
                 [](Fields& inner, ComputeUnit& unit) { describe(inner, unit); });
    fields.sourced(
        {"scratchpad", "memory beside the units that holds what they work on and what comes next", false, 0, 1e12},
        Dimension::bytes, parts.scratchpad);
    fields.optional({"pim", "units in the banks of the main memory"}, parts.has_pim,
                    [&](Fields& inner) { describe(inner, parts.pim); });
    fields.optional({"drive", "drives that hold keys and values of served models"}, parts.has_drive,
                    [&](Fields& inner) { describe(inner, parts.drive); });
}

}  // namespace orrery::device
