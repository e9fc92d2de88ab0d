#include "models/calibrated.hpp"
#include "sim/config/yaml_tree.hpp"
#include "sim/record/facts_table.hpp"
#include "topologies/device_preset.hpp"
#include "validation/compute/passes.hpp"
#include "validation/statistics.hpp"
#include "workloads/model/plain_operation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

namespace orrery::validation {

namespace {

bool mixes_streams(const LayerOperation& one) {
    return std::string_view(one.name).find("residual streams") != std::string::npos;
}

// Kernels from the first product of a layer's attention to the last one; or, of both blocks, what its residual streams take.
double layer_seconds(const CostModel& device, const ModelSpec& model, const record::FactsRow& row) {
    const double tensor = row.number("tensor");
    const double batch = row.number("batch");
    const double queries = row.number("queries");
    const LayerContext at{model,
                          {model.experts.count > 0, row.text("layer") == "heavy"},
                          {tensor, 1, 1},
                          queries > 1 ? LayerPhase::prompt : LayerPhase::decode,
                          batch * queries};
    CoreShape shape{batch, static_cast<double>(model.heads) / tensor, queries, row.number("keys")};
    shape.cache = row.text("cache") == "fp8" ? Precision::fp8 : Precision::bf16;
    const bool streams = row.text("layer") == "streams";
    LayerOperations operations = before_attention(at);
    for (const LayerOperations& more : {beside_attention(at, shape), after_attention(at)}) {
        operations.insert(operations.end(), more.begin(), more.end());
    }
    double sum = streams ? 0 : device.seconds(attention_core(at, shape)).value();
    for (const LayerOperation& one : operations) {
        if (const std::optional<Operation> operation = plain_operation(one);
            operation && mixes_streams(one) == streams) {
            sum += device.seconds(*operation).value();
        }
    }
    return sum;
}

}  // namespace

void validate_modules(const DataDirectory& data, const Terminal& terminal, bool points, Comparison& out) {
    std::map<std::string, std::unique_ptr<Calibrated>> devices;
    std::map<std::string, ModelSpec> models;
    std::map<std::string, std::vector<double>> groups;
    std::vector<double> sparse;
    std::vector<double> compressed;
    std::vector<std::vector<std::string>> listed;
    for (const auto& row : read_facts_table(data.path("validation/compute/modules.csv"))) {
        auto& device = devices[row.text("device")];
        if (device == nullptr) {
            device = std::make_unique<Calibrated>(read_device(row.text("device"), data), data, kBurst);
        }
        ModelSpec& model = models[row.text("model")];
        if (model.layers == 0) {
            std::vector<Diagnostic> errors;
            read_fields(load_yaml(data.path(kModelPresets, row.text("model"))), data, errors,
                        [&](Fields& fields) { describe(fields, model); });
            throw_if_any(errors);
            complete(model);
        }
        const double measured = row.number("microseconds");
        const double predicted = 1e6 * layer_seconds(*device, model, row);
        const double error = predicted / measured - 1;
        const std::string layer = row.text("layer");
        const bool prompt = row.number("queries") > 1;
        const char* phase = layer == "streams" ? "hyper-connections" : prompt ? "prompts" : "decoding";
        (model.attention.name() == "compressed" ? compressed : sparse).push_back(error);
        groups[fmt::format("{} {}{}, {}", row.text("device"), row.text("model"), layer == "heavy" ? " heavy" : "",
                           phase)]
            .push_back(error);
        listed.push_back({row.text("device"), row.text("model"), layer, row.text("tensor"), row.text("batch"),
                          row.text("queries"), row.text("keys"), fmt::format("{:.1f} us", measured),
                          fmt::format("{:.1f}", predicted), fmt::format("{:+.1f} %", 100 * error)});
    }
    if (points) {
        terminal.heading("layers of sparse attention");
        terminal.table(
            {"device", "model", "layer", "tensor", "batch", "queries", "keys", "measured", "predicted", "error"},
            listed);
    }
    print_errors(terminal, "sparse attention of a layer as a whole, against sums of its kernels", groups);
    for (const auto& [name, errors] : {std::pair("sparse", &sparse), std::pair("compressed", &compressed)}) {
        out.scores.push_back({fmt::format("{}_layers", name), static_cast<double>(errors->size()), ""});
        out.scores.push_back({fmt::format("{}_layers_error", name), statistics_of(*errors).mape, "%"});
    }
}

}  // namespace orrery::validation
