#include "validation/compute/passes.hpp"

#include "models/calibrated.hpp"
#include "sim/record/facts_table.hpp"
#include "tools/calibration/collections.hpp"
#include "tools/driver/model_cache.hpp"
#include "tools/driver/scenario.hpp"
#include "validation/statistics.hpp"
#include "workloads/model/plain_operation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace orrery::validation {

namespace {

// The best rate over the shapes that benchmarks of matrix products visit.
double best_product(const CostModel& model, Precision precision, bool split_accumulator) {
    double best = 0;
    for (double m = 512; m <= 16384; m *= 2) {
        for (double n = 1024; n <= 16384; n *= 2) {
            for (double k = 1024; k <= 16384; k *= 2) {
                Gemm gemm{m, n, k, 1, precision};
                gemm.split_accumulator = split_accumulator;
                best = std::max(best, gemm.flops() / model.seconds(gemm).value());
            }
        }
    }
    return best * 1e-12;
}

double ceiling(const CostModel& model, const std::string& how, Precision precision) {
    if (how == "copy") {
        constexpr double kBytes = 1e9;
        return 2 * kBytes / model.seconds(Copy{kBytes}).value() * 1e-9;
    }
    if (how == "weights") {
        // The median over weights far beyond the cache, as the measured figure is.
        std::vector<double> rates;
        for (double n = 4096; n <= 65536; n *= 2) {
            for (double k = 4096; k <= 65536; k *= 2) {
                const Gemm gemm{1, n, k};
                if (gemm.bytes() >= 256e6 && gemm.bytes() <= 4e9) {
                    rates.push_back(gemm.bytes() / model.seconds(gemm).value() * 1e-9);
                }
            }
        }
        std::sort(rates.begin(), rates.end());
        return rates[rates.size() / 2];
    }
    if (how == "attention") {
        Attention attention{32, 16384, 16384, 128};
        attention.group = 4;
        return attention.flops() / model.seconds(attention).value() * 1e-12;
    }
    if (how == "launch" || how == "graph") {
        return model.seconds(Launch{1, how == "graph"}).value() * 1e6;
    }
    return best_product(model, precision, how == "split");
}

// Kernels of one layer in 16 bits over `tensor` devices, without its all-reduces.
double layer_seconds(const CostModel& device, const ModelSpec& model, double tensor, double batch, double queries,
                     double keys) {
    const auto key_ranks = std::min(tensor, static_cast<double>(model.kv_heads));
    const LayerPhase phase = queries > 1 ? LayerPhase::prompt : LayerPhase::decode;
    const LayerContext at{model, {}, {tensor, key_ranks, 1}, phase, batch * queries};
    const CoreShape shape{batch, static_cast<double>(model.heads) / tensor, queries, keys};
    double sum = 0;
    for (const LayerOperation& one : layer_operations(at, shape)) {
        if (const std::optional<Operation> operation = plain_operation(one); operation) {
            sum += device.seconds(*operation).value();
        }
    }
    return sum;
}

// A preset with its defaults filled in.
ModelSpec served_model(const std::string& name, const DataDirectory& data) {
    ModelSpec model;
    std::vector<Diagnostic> errors;
    read_fields(load_yaml(data.path(kModelPresets, name)), data, errors,
                [&](Fields& fields) { describe(fields, model); });
    if (!errors.empty()) {
        throw ConfigError(errors);
    }
    complete(model);
    return model;
}

}  // namespace

void print_errors(const Terminal& terminal, const std::string& heading,
                  const std::map<std::string, std::vector<double>>& groups) {
    terminal.heading(heading);
    std::vector<std::vector<std::string>> rows;
    for (const auto& [name, errors] : groups) {
        const ErrorStatistics s = statistics_of(errors);
        rows.push_back({name, std::to_string(s.count), fmt::format("{:.1f} %", s.mape),
                        fmt::format("{:+.1f} %", s.median_bias), fmt::format("{:.1f} %", s.worst)});
    }
    terminal.table({"group", "points", "MAPE", "median bias", "worst"}, rows);
}

void validate_ceilings(const DataDirectory& data, const Terminal& terminal, Comparison& out) {
    std::vector<std::vector<std::string>> rows;
    std::vector<double> errors;
    for (const auto& row : read_facts_table(data.path("validation/compute/ceilings.csv"))) {
        const DeviceSpec device = read_device(row.text("device"), data);
        std::unique_ptr<CostModel> model;
        if (device.kernels.empty()) {
            model = std::make_unique<Roofline>(device);
        } else {
            model = std::make_unique<Calibrated>(device, data, row.text("how") == "held" ? kHeld : kBurst);
        }
        const Precision precision = row.text("precision") == "fp8" ? Precision::fp8 : Precision::bf16;
        const double measured = row.number("value");
        const double predicted = ceiling(*model, row.text("how"), precision);
        errors.push_back(predicted / measured - 1);
        rows.push_back({row.text("device"), row.text("what"), fmt::format("{:.4g} {}", measured, row.text("unit")),
                        fmt::format("{:.4g}", predicted), fmt::format("{:+.1f} %", 100 * errors.back())});
    }
    out.tables.push_back(
        {"Measured ceilings", {"device", "ceiling", "measured", "predicted", "error"}, std::move(rows)});
    const ErrorStatistics all = statistics_of(errors);
    out.scores.push_back({"ceilings", static_cast<double>(all.count), ""});
    out.scores.push_back({"ceilings_error", all.mape, "%"});
    terminal.heading("measured ceilings");
    terminal.table(out.tables.back().columns, out.tables.back().rows);
    const auto within = std::count_if(errors.begin(), errors.end(), [](double e) { return std::abs(e) <= 0.1; });
    fmt::print("{} of {} within 10 %\n", within, errors.size());
}

void validate_passes(const DataDirectory& data, const Terminal& terminal, bool points, Comparison& out) {
    ModelCache models(data);
    std::map<std::string, std::vector<double>> groups;
    std::map<std::string, ModelSpec> served;
    std::vector<std::vector<std::string>> listed;
    for (const auto& row : read_facts_table(data.path("validation/compute/passes.csv"))) {
        const std::string name = row.text("model");
        const ModelSpec& model = served.try_emplace(name, served_model(name, data)).first->second;
        const double tensor = row.number("tensor");
        const double batch = row.number("batch");
        const double prompt = row.number("prompt");
        const Scenario scenario =
            read_scenario(parse_yaml(fmt::format("orrery: 1\nkind: collective\ncluster: {{nodes: 1, node: {}}}\n"
                                                 "collective: {{size: 1 MiB}}\n",
                                                 row.text("node")),
                                     "pass"),
                          "pass", data);
        const Fabric fabric(shape_of(scenario.cluster, scenario.cluster_mark));
        const CollectiveModel& library = models.collectives(scenario.cluster.node, LibraryKind::nccl);
        std::vector<GpuId> group;
        for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(tensor); ++i) {
            group.emplace_back(i);
        }
        const DeviceSpec& gpu = scenario.cluster.node.gpu;
        const Calibrated device(gpu, data);
        const auto pass = [&](double queries, double keys) {
            const double tokens = batch * queries;
            const double reduce =
                seconds_alone(fabric,
                              make_transfer(fabric, library, CollectiveOp::all_reduce, group,
                                            Bytes(tokens * static_cast<double>(model.hidden) * 2), PathChoice::spray))
                    .value();
            const double layer = layer_seconds(device, model, tensor, batch, queries, keys) + 2 * reduce;
            return static_cast<double>(model.layers) * layer +
                   device
                       .seconds(Gemm{batch, static_cast<double>(model.vocabulary) / tensor,
                                     static_cast<double>(model.hidden)})
                       .value();
        };
        const auto book = [&](const std::string& what, double measured_ms, double seconds, const std::string& size) {
            const double error = seconds * 1e3 / measured_ms - 1;
            groups[fmt::format("{} {} {}", row.text("model"), row.text("node"), what)].push_back(error);
            out.points.push_back({measured_ms * 1e-3,
                                  seconds,
                                  what,
                                  fmt::format("{} on {}, {} GPUs, {}: {:+.1f} %", row.text("model"), row.text("node"),
                                              row.text("tensor"), size, 100 * error),
                                  {row.text("node"), row.text("model")}});
            listed.push_back({row.text("model"), row.text("node"), row.text("tensor"), size, what,
                              fmt::format("{:.4g} ms", measured_ms), fmt::format("{:.4g}", seconds * 1e3),
                              fmt::format("{:+.1f} %", 100 * error)});
        };
        if (!row.text("prompt_ms").empty()) {
            book(prompt >= 1024 ? "prompts from 1,024" : "prompts below 1,024", row.number("prompt_ms"),
                 pass(prompt, prompt), fmt::format("{:.0f}", prompt));
        }
        // 128 tokens are generated: on average half of them are in the cache.
        constexpr double kGenerated = 64;
        book(batch >= 16 ? "tokens, batch from 16" : "tokens, batch below 16", row.number("token_ms"),
             pass(1, prompt + kGenerated), fmt::format("{:.0f} x {:.0f}", batch, prompt));
    }
    if (points) {
        terminal.heading("passes");
        terminal.table({"model", "node", "GPUs", "size", "what", "measured", "predicted", "error"}, listed);
    }
    print_errors(terminal, "whole passes from kernels alone (nothing fitted on them, no host time)", groups);
}

}  // namespace orrery::validation
