// Products on devices that are priced from their units.

#include "models/calibrated.hpp"
#include "sim/config/units.hpp"
#include "validation/compute/collections.hpp"
#include "validation/devices/devices.hpp"
#include "validation/facts_table.hpp"

#include <fmt/format.h>

namespace orrery::inline validation {

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
}

}  // namespace orrery::inline validation
