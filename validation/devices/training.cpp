// Training on devices that are priced from their units.

#include "validation/devices/devices.hpp"
#include "validation/training/points.hpp"

#include <fmt/format.h>

namespace orrery::inline validation {

void compare_training(ModelCache& models, const Terminal& terminal, DeviceScores& out) {
    std::vector<std::vector<std::string>> table;
    const std::string file = models.data().path("validation/devices/tpu_training.yaml");
    for (TrainingPoint& point : load_training_points(models.data(), file)) {
        predict(point, models);
        if (point.low <= 0) {
            table.push_back({point.id, fmt::format("{:.3f} s", point.measured), "does not fit", ""});
            continue;
        }
        out.score("tpu_training", point.id, point.measured, point.low);
        table.push_back({point.id, fmt::format("{:.3f} s", point.measured), fmt::format("{:.3f} s", point.low),
                         fmt::format("{:+.1f} %", 100 * point.error())});
    }
    out.table(terminal, "training on TPU", {"run", "measured", "predicted", "error"}, std::move(table));
}

}  // namespace orrery::inline validation
