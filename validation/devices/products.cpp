// Products on devices that are priced from their units, and products that AMD's tuner timed.

#include "models/calibrated.hpp"
#include "models/calibration/points.hpp"
#include "sim/config/units.hpp"
#include "sim/record/facts_table.hpp"
#include "tools/calibration/collections.hpp"
#include "validation/devices/devices.hpp"
#include "validation/statistics.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::validation {

namespace {

std::string underscored(std::string name) {
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

// By device and format, the half of the products that no fit saw. Formats without enough rows for a fit are printed and not scored.
void compare_tuned_products(const DataDirectory& data, const Terminal& terminal, DeviceScores& out) {
    std::vector<std::vector<std::string>> table;
    struct Table {
        const char* name;
        const char* device;
        const char* set;  ///< of kernels
    };
    for (const Table& tuned : {Table{"mi300x", "mi300x", ""}, Table{"mi308x", "mi308x", ""},
                               Table{"mi355x", "mi355x", ""}, Table{"mi355x-fp32", "mi355x", "float32-out"}}) {
        const std::string name = tuned.name;
        const Trace trace = read_trace(data.path(fmt::format("validation/devices/amd/{}.csv", name)));
        KernelSets kernels;
        kernels.all = tuned.set;
        const Calibrated model(read_device(tuned.device, data), data, kTransformer, kernels);
        std::map<std::string, std::vector<double>> held_back;
        std::map<std::string, std::vector<double>> seen;
        for (const TraceRow& row : trace.rows) {
            const Operation operation = *operation_of(row);
            const double measured = row.median_ns * 1e-9;
            const double predicted = model.seconds(operation).value();
            const bool other = row.library.find('/') != std::string::npos;  // kernels that no fit is of
            const bool scored =
                row.split == "holdout" && !other && model.has(KernelKind::gemm, kernel_point(operation)->format);
            if (scored) {
                const auto& gemm = std::get<Gemm>(operation);
                out.score(underscored(fmt::format("{}_{}", name, row.dtype)),
                          fmt::format("{:.0f} x {:.0f} x {:.0f}", gemm.m, gemm.n, gemm.k), measured, predicted);
            }
            (row.split == "holdout" ? held_back : seen)[row.dtype + (other ? ", other kernels" : "")].push_back(
                predicted / measured - 1);
        }
        for (const auto& [dtype, errors] : held_back) {
            const ErrorStatistics s = statistics_of(errors);
            table.push_back({fmt::format("{}, {}", name, dtype), std::to_string(seen[dtype].size()),
                             std::to_string(s.count), fmt::format("{:.1f} %", s.mape),
                             fmt::format("{:+.1f} %", s.median_bias), fmt::format("{:.1f} %", s.worst),
                             seen[dtype].empty() ? "no fit of these, not scored" : ""});
        }
    }
    out.table(terminal, "products of AMD's tuned tables, those that no fit saw",
              {"device and format", "fitted on", "held back", "MAPE", "median bias", "worst", ""}, std::move(table));
}

}  // namespace

void compare_products(const DataDirectory& data, const Terminal& terminal, DeviceScores& out) {
    std::vector<std::vector<std::string>> table;
    std::map<std::string, std::unique_ptr<CostModel>> models;
    for (const FactsRow& row : read_facts_table(data.path("validation/devices/products.csv"))) {
        const std::string& device = row.text("device");
        if (!models.contains(device)) {
            models[device] = make_calibrated_model(read_device(device, data), data);
        }
        const Gemm gemm{row.number("m"), row.number("n"), row.number("k")};
        const double measured = row.number("microseconds") * 1e-6;
        const double predicted = models[device]->seconds(gemm).value();
        const bool scored = row.text("use") == "score";
        const std::string label = fmt::format("{} {:.0f} x {:.0f} x {:.0f}", device, gemm.m, gemm.n, gemm.k);
        if (scored) {
            out.score("products", label, measured, predicted);
        }
        table.push_back({label, pretty_quantity(measured, Dimension::time), pretty_quantity(predicted, Dimension::time),
                         fmt::format("{:+.1f} %", 100 * (predicted / measured - 1)),
                         scored ? "scored" : "gave a constant"});
    }
    out.table(terminal, "products in bf16 from units", {"product", "measured", "predicted", "error", ""},
              std::move(table));
    compare_tuned_products(data, terminal, out);
}

}  // namespace orrery::validation
