#include "models/calibrated.hpp"
#include "sim/record/facts_table.hpp"
#include "tools/calibration/collections.hpp"
#include "validation/serving/serving_points.hpp"
#include "validation/statistics.hpp"
#include "workloads/serving/cost/step_cost.hpp"

#include <fmt/format.h>

#include <map>

namespace orrery::validation {

namespace {

ModelSpec read_model(const std::string& name, const DataDirectory& data) {
    ModelSpec model;
    std::vector<Diagnostic> errors;
    read_fields(load_yaml(data.path(kModelPresets, name)), data, errors,
                [&](Fields& fields) { describe(fields, model); });
    throw_if_any(errors);
    complete(model);
    return model;
}

}  // namespace

void validate_layers(const DataDirectory& data, const Terminal& terminal) {
    constexpr double kMicro = 1e-6;
    std::map<std::string, std::unique_ptr<CostModel>> devices;
    std::map<std::string, std::vector<double>> groups;
    const IdealCollectives collectives;
    for (const FactsRow& row : read_facts_table(data.path("validation/serving/layers.csv"))) {
        std::unique_ptr<CostModel>& device = devices[row.text("device")];
        if (!device) {
            device = make_calibrated_model(read_device(row.text("device"), data), data);
        }
        const ModelSpec model = read_model(row.text("model"), data);
        FabricShape shape;
        shape.gpus_per_node = static_cast<std::uint32_t>(row.number("tensor"));
        shape.intra_bandwidth = 1e12;  // not used: a layer's kernels alone
        shape.nic_bandwidth = 1e12;
        const Fabric fabric(shape);
        std::vector<GpuId> gpus;
        for (std::uint32_t i = 0; i < shape.gpus_per_node; ++i) {
            gpus.emplace_back(i);
        }
        const ModelStep step(ServingModel{model, *device, fabric, collectives, PathChoice::spray, gpus});
        const double tokens = row.number("tokens");
        const double error = step.dense_layer_seconds(tokens) / (kMicro * row.number("layer_us")) - 1;
        const char* size = tokens < 128 ? "below 128 tokens" : "from 128 tokens";
        groups[fmt::format("{}, {}, {}", row.text("source"), row.text("device"), size)].push_back(error);
    }
    std::vector<std::vector<std::string>> rows;
    for (const auto& [name, errors] : groups) {
        const ErrorStatistics s = statistics_of(errors);
        rows.push_back({name, std::to_string(s.count), fmt::format("{:.1f} %", s.mape),
                        fmt::format("{:+.1f} %", s.median_bias), fmt::format("{:.1f} %", s.worst)});
    }
    terminal.heading("kernels of one layer without attention, summed (nothing fitted on the sums)");
    terminal.table({"group", "points", "MAPE", "median bias", "worst"}, rows);
}

}  // namespace orrery::validation
