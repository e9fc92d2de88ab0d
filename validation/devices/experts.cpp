// Tokens of mixtures whose experts live in host memory.

#include "sim/record/facts_table.hpp"
#include "tools/driver/run.hpp"
#include "validation/devices/devices.hpp"

#include <fmt/format.h>

namespace orrery::validation {

void compare_experts(ModelCache& models, const Terminal& terminal, DeviceScores& out) {
    std::vector<std::vector<std::string>> table;
    for (const FactsRow& row : read_facts_table(models.data().path("validation/devices/experts.csv"))) {
        const std::string file = models.data().path("validation/devices/experts/" + row.text("scenario") + ".yaml");
        const double measured = row.number("seconds");
        const double predicted =
            run_scenario(load_scenario(file, {}, models.data()), models, {}).summary.find("tpot_s.mean")->value;
        table.push_back({row.text("scenario"), fmt::format("{:.3f} s", measured), fmt::format("{:.3f} s", predicted),
                         fmt::format("{:+.1f} %", 100 * (predicted / measured - 1))});
    }
    out.table(terminal, "experts in host memory (MoE-Infinity), not scored: its host is not described",
              {"token of", "measured", "predicted", "error"}, std::move(table));
}

}  // namespace orrery::validation
