#include "sim/device/systolic.hpp"

#include "sim/base/error.hpp"
#include "sim/record/facts_table.hpp"
#include "validation/devices/devices.hpp"
#include "validation/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::validation {

namespace {

Dataflow dataflow_of(const FactsRow& row) {
    const std::string& name = row.text("dataflow");
    if (name == "ws") {
        return Dataflow::weights;
    }
    if (name == "os") {
        return Dataflow::outputs;
    }
    if (name == "is") {
        return Dataflow::inputs;
    }
    throw ConfigError(
        {Diagnostic{row.file, row.line, 1, fmt::format("'{}' is not ws, os or is", name), ErrorCode::malformed_trace}});
}

// Cycles of another dataflow over what the multiplications alone would take.
void print_spatial_arrays(const DataDirectory& data, const Terminal& terminal, DeviceScores& out) {
    std::map<std::string, std::vector<double>> shares;
    for (const FactsRow& row : read_facts_table(data.path("validation/devices/spatial_arrays.csv"))) {
        shares[row.text("series")].push_back(row.number("macs") / row.number("pes") / row.number("cycles"));
    }
    std::vector<std::vector<std::string>> table;
    for (auto& [series, values] : shares) {
        std::sort(values.begin(), values.end());
        table.push_back({series, std::to_string(values.size()), fmt::format("{:.0f} %", 100 * values.front()),
                         fmt::format("{:.0f} %", 100 * values[values.size() / 2]),
                         fmt::format("{:.0f} %", 100 * values.back())});
    }
    out.table(terminal, "other dataflows (MAESTRO), not scored: a multiplication per cycle and element over its cycles",
              {"series", "layers", "least", "median", "most"}, std::move(table));
}

}  // namespace

void compare_systolic(const DataDirectory& data, const Terminal& terminal, DeviceScores& out) {
    struct Sums {
        std::int64_t rows = 0, exact = 0;
    };
    std::map<std::string, Sums> groups;
    for (const FactsRow& row : read_facts_table(data.path("validation/devices/systolic.csv"))) {
        SystolicArrays array{static_cast<std::int64_t>(row.number("rows")),
                             static_cast<std::int64_t>(row.number("columns")), 1, dataflow_of(row), Folds::separate};
        array.density = row.number("density");
        const double cycles = systolic_cycles(array, row.number("m"), row.number("n"), row.number("k"));
        out.score("systolic", row.text("id"), row.number("cycles"), cycles);
        Sums& sums = groups[fmt::format("{} x {}, {}", row.text("rows"), row.text("columns"), row.text("dataflow"))];
        ++sums.rows;
        sums.exact += cycles == row.number("cycles") ? 1 : 0;
    }
    std::vector<std::vector<std::string>> table;
    for (const auto& [name, sums] : groups) {
        table.push_back({name, std::to_string(sums.rows), std::to_string(sums.exact)});
    }
    out.table(terminal, "systolic arrays (SCALE-Sim v3)", {"array", "products", "to the cycle"}, std::move(table));
    print_spatial_arrays(data, terminal, out);
}

}  // namespace orrery::validation
