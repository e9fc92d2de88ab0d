// CENT: layers of a decoding step whose products and attention run in the banks of CXL devices.

#include "models/unit_model.hpp"
#include "sim/record/facts_table.hpp"
#include "tools/calibration/collections.hpp"
#include "validation/devices/devices.hpp"
#include "validation/statistics.hpp"

#include <fmt/format.h>

#include <cmath>

namespace orrery::validation {

namespace {

// The weights of a layer are cut over the devices of a tensor-parallel group; one of them attends, query heads dealt to its channels
// in turn. Norms, activations and what goes over CXL are not asked.
double microseconds(const FactsRow& row, PimSpec pim) {
    pim.channels = static_cast<std::int64_t>(row.number("channels"));
    const double hidden = row.number("hidden");
    const double ffn = row.number("ffn");
    const double heads = row.number("heads");
    const double head_dim = hidden / heads;
    const double kv = head_dim * row.number("kv_heads");
    const auto product = [&](double n, double k) {
        return product_cycles(pim, 1, std::ceil(n / row.number("tensor")), k, 2);
    };
    const double products = product(hidden, hidden) + 2 * product(kv, hidden) + product(hidden, hidden) +
                            2 * product(ffn, hidden) + product(hidden, ffn);
    const PimAttention attention =
        attention_cycles(pim, std::ceil(heads / static_cast<double>(pim.channels)), row.number("tokens"), head_dim, 2);
    return (products + attention.logits + attention.values) / pim.clock.value * 1e6;
}

}  // namespace

void compare_cent(const DataDirectory& data, const Terminal& terminal, DeviceScores& out) {
    const PimSpec pim =
        read_parts(data.path("models/data/kernels/cent/units.yaml"), read_device("cent", data), data).pim;
    std::map<std::string, std::vector<double>> groups;
    for (const FactsRow& row : read_facts_table(data.path("validation/devices/cent.csv"))) {
        const double simulated = row.number("pim_us");
        const double predicted = microseconds(row, pim);
        const bool scored = row.text("use") == "score";
        if (scored) {
            out.score("cent",
                      fmt::format("{}, pipeline {}, tensor {}, {} tokens", row.text("model"), row.text("pipeline"),
                                  row.text("tensor"), row.text("tokens")),
                      simulated, predicted);
        }
        groups[fmt::format("{}, pipeline {}, tensor {}{}", row.text("model"), row.text("pipeline"), row.text("tensor"),
                           scored ? "" : " (gave a constant)")]
            .push_back(predicted / simulated - 1);
    }
    std::vector<std::vector<std::string>> table;
    for (const auto& [name, errors] : groups) {
        const ErrorStatistics s = statistics_of(errors);
        table.push_back({name, std::to_string(s.count), fmt::format("{:.1f} %", s.mape),
                         fmt::format("{:+.1f} %", s.median_bias), fmt::format("{:.1f} %", s.worst)});
    }
    out.table(terminal, "layers of a decoding step in the banks (CENT's simulator)",
              {"layers", "points", "MAPE", "median bias", "worst"}, std::move(table));
}

}  // namespace orrery::validation
