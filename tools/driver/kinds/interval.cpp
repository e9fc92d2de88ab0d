#include "tools/driver/kinds/interval.hpp"

#include "sim/base/math.hpp"
#include "sim/config/given.hpp"
#include "tools/driver/kinds/training.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace orrery::driver {

namespace {

// Streaming kernels against their measured rate: between the copies of two benchmarks on the same device (A100: 1,610 and
// 1,732 GB/s; H200: 4,010 and 4,150).
constexpr double kStreaming = 0.07;
// `orrery validate collectives`: large messages inside nodes err by 2.5 to 9 %, between nodes by up to 21 %.
constexpr double kCommunication = 0.15;
// Distinct shapes of a layer whose own errors average.
constexpr double kShapes = 8;

// Devices with units of 4 bits: Blackwell, MI355X and later.
bool is_new_device(const Scenario& scenario) {
    return scenario.cluster.node.gpu.flops_fp4.value > 0;
}

// Ninth deciles of the declared half of all measured runs of a regime ("validate training", 2026-11-29).
constexpr std::array<TrainingRegime, 3> kRegimes = {
    {{"adapters on devices with 4-bit units",
      [](const Scenario& s) { return s.as<TrainingKind>().plan.frozen() && is_new_device(s); }, 0.34},
     {"mixtures of experts", [](const Scenario& s) { return s.as<TrainingKind>().model.experts.count > 0; }, 0.44},
     {"dense models on devices with 4-bit units", is_new_device, 0.145}}};

}  // namespace

const TrainingRegime* regime_of(const Scenario& scenario) {
    for (const TrainingRegime& regime : kRegimes) {
        if (regime.has(scenario)) {
            return &regime;
        }
    }
    return nullptr;
}

double parts_spread(const Scenario& scenario, const TrainingResult& result, const CostModel& device) {
    const auto& training = scenario.as<TrainingKind>();
    const double tokens = static_cast<double>(training.plan.micro_batch * training.model.sequence) /
                          static_cast<double>(training.plan.context);
    const double width = static_cast<double>(training.model.ffn) / static_cast<double>(training.plan.tensor);
    const Cost product =
        device.cost(Gemm{tokens, width, static_cast<double>(training.model.hidden), 1, training.plan.precision});
    const double kernels =
        std::sqrt(product.systematic * product.systematic + product.spread * product.spread / kShapes);
    // Shares of the busy time; bubbles are waiting for it.
    double products = 0;
    double streaming = 0;
    double communication = 0;
    double busy = 0;
    for (int i = 0; i < kCategoryCount; ++i) {
        const auto category = static_cast<Category>(i);
        const double seconds = result.booked[static_cast<std::size_t>(i)];
        busy += seconds;
        if (category >= Category::tensor_communication && category <= Category::expert_communication) {
            communication += seconds;
        } else if (category == Category::optimizer) {
            streaming += seconds;
        } else if (category != Category::overhead) {
            products += seconds;
        }
    }
    if (busy <= 0) {
        return 0;
    }
    // What the host fixes has no spread of a kernel.
    ORRERY_ASSERT(products + streaming + communication <= busy * (1 + 1e-9));
    const auto square = [](double x) { return x * x; };
    return std::sqrt(square(products / busy * kernels) + square(streaming / busy * kStreaming) +
                     square(communication / busy * kCommunication));
}

double square_beyond(double spread) {
    return kNinety * kNinety * std::max(0.0, spread * spread - kValidatedSpread * kValidatedSpread);
}

double software_width(const Scenario& scenario) {
    const SoftwareSpec& software = scenario.as<TrainingKind>().software;
    const double preset = software.interval.value > 0 ? software.interval.value : kSoftwareWidth;
    const TrainingRegime* regime = regime_of(scenario);
    const bool given = software.interval.value > 0 && software.interval.how == kGivenInScenario;
    return regime == nullptr || given ? preset : std::max(preset, regime->width);
}

double iteration_width(const Scenario& scenario, const TrainingResult& result, const CostModel& device) {
    const double software = software_width(scenario);
    return std::sqrt(software * software + square_beyond(parts_spread(scenario, result, device)));
}

void set_interval(Metric& metric, double width) {
    ORRERY_ASSERT(width >= 0);
    const double factor = exp_pinned(width);
    metric.low = metric.value / factor;
    metric.high = metric.value * factor;
}

}  // namespace orrery::driver
