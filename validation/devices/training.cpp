// Training on devices that are priced from their units.

#include "tools/driver/model_cache.hpp"
#include "validation/devices/devices.hpp"
#include "validation/training/points.hpp"

#include <fmt/format.h>

namespace orrery::validation {

void compare_training(ModelCache& models, const Terminal& terminal, DeviceScores& out) {
    struct Source {
        const char* group;
        const char* title;
        bool scored;
    };
    for (const Source& source : {Source{"tpu_training", "training on TPU (MaxText's tables, MLPerf)", true},
                                 Source{"tpu_recipes", "training on TPU (Google's recipes)", true},
                                 Source{"npu_training", "training on other NPUs (not scored)", false}}) {
        std::vector<std::vector<std::string>> table;
        const std::string file = models.data().path(fmt::format("validation/devices/{}.yaml", source.group));
        for (TrainingPoint& point : load_training_points(models.data(), file)) {
            predict(point, models);
            if (point.low <= 0) {
                table.push_back({point.id, fmt::format("{:.3f} s", point.measured), "does not fit", ""});
                continue;
            }
            if (source.scored) {
                out.score(source.group, point.id, point.measured, point.low);
            }
            table.push_back({point.id, fmt::format("{:.3f} s", point.measured), fmt::format("{:.3f} s", point.low),
                             fmt::format("{:+.1f} %", 100 * point.error())});
        }
        out.table(terminal, source.title, {"run", "measured", "predicted", "error"}, std::move(table));
    }
}

}  // namespace orrery::validation
