// orrery price layer: the operations of a model's layers, with their shapes, FLOPs, bytes, weights and times.

#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "sim/record/summary.hpp"
#include "tools/driver/model_cache.hpp"
#include "tools/driver/scenario.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/outputs.hpp"
#include "tools/terminal/terminal.hpp"
#include "topologies/device_preset.hpp"
#include "workloads/model/attention_form.hpp"
#include "workloads/model/layer_program.hpp"
#include "workloads/model/model_names.hpp"
#include "workloads/model/plain_operation.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

namespace orrery::program {

namespace {

ModelSpec model_of(const std::string& name, const DataDirectory& data) {
    const std::optional<NamedCheckpoint> checkpoint = find_checkpoint(name, data);
    if (!checkpoint) {
        const std::string near = nearest_name(name, data.names(kModelPresets));
        throw ConfigError(fmt::format("no model is called '{}'{}; 'orrery list models' names them", name,
                                      near.empty() ? "" : fmt::format(", did you mean '{}'?", near)),
                          ErrorCode::command_line);
    }
    ModelSpec model;
    std::vector<Diagnostic> errors;
    read_fields(load_yaml(data.path(kModelPresets, checkpoint->preset)), data, errors,
                [&](Fields& fields) { describe(fields, model); });
    if (!errors.empty()) {
        throw ConfigError(errors);
    }
    complete(model);
    return model;
}

/// What the command line says of the pass: `queries` new tokens of each sequence look back on `keys`.
struct PassShape {
    double sequences = 1, queries = 1, keys = 4096, tensor = 1;
};

PassShape dimensions_of(const CommandLine& line) {
    PassShape out;
    const std::map<std::string, double*> known = {
        {"sequences", &out.sequences}, {"queries", &out.queries}, {"keys", &out.keys}, {"tensor", &out.tensor}};
    for (std::size_t i = 2; i < line.arguments.size(); ++i) {
        const std::string& text = line.arguments[i];
        const std::size_t at = text.find('=');
        const auto found = known.find(text.substr(0, at));
        double value = 0;
        if (at == std::string::npos || found == known.end() || !parse_number(text.substr(at + 1), value) || value < 1 ||
            value != std::floor(value) || value > 1e9) {
            throw ConfigError(fmt::format("'{}' is not one of sequences, queries, keys and tensor with a whole number "
                                          "from 1 on, such as keys=4096",
                                          text),
                              ErrorCode::command_line);
        }
        *found->second = value;
    }
    if (out.keys < out.queries) {
        throw ConfigError(fmt::format("keys ({}) counts the queries ({}) among them", out.keys, out.queries),
                          ErrorCode::command_line);
    }
    return out;
}

std::string kind_name(const ModelSpec& model, LayerKind kind) {
    if (kind.part == LayerPart::state_space) {
        return "state-space layers";
    }
    if (kind.part != LayerPart::whole) {
        return kind.part == LayerPart::attention ? "layers of attention"
               : kind.experts                    ? "layers of experts"
                                                 : "layers of feed-forward";
    }
    std::string out = kind.experts ? "layers with experts" : "dense layers";
    if (const char* own = model::attention_form(model, kind).kind_name(kind); own != nullptr) {
        return fmt::format("{}, {}", out, own);
    }
    if (model.linear.given()) {
        return out + (kind.windowed ? ", linear attention" : ", to all tokens");
    }
    return out + (model.window == 0 ? "" : kind.windowed ? ", through the window" : ", to all tokens");
}

// The kinds of a model's layers and how many there are of each.
std::vector<std::pair<LayerKind, std::int64_t>> kinds_of(const ModelSpec& model) {
    std::map<std::pair<std::size_t, bool>, std::int64_t> counts;
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        const LayerKind kind = model.kind_of(layer);
        ++counts[{kind.index(), kind.experts}];
    }
    std::vector<std::pair<LayerKind, std::int64_t>> out;
    for (const auto& [key, count] : counts) {
        LayerKind kind = LayerKind::at(key.first);
        kind.experts = key.second;
        out.emplace_back(kind, count);
    }
    return out;
}

}  // namespace

int price_layer(const CommandLine& line, const DataDirectory& data) {
    if (line.arguments.size() < 2) {
        throw ConfigError("'orrery price layer' takes a model, such as 'orrery price layer llama-3-8b keys=4096'",
                          ErrorCode::command_line);
    }
    for (const char* option : {"table", "library", "kv-dtype", "dtype"}) {
        if (!line.text(option).empty()) {
            throw ConfigError(fmt::format("--{} has no effect on a layer, whose operands are in 16 bits", option),
                              ErrorCode::command_line);
        }
    }
    if (!line.text("node").empty()) {
        throw ConfigError("a layer is priced on one device: name it with --device", ErrorCode::command_line);
    }
    const ModelSpec model = model_of(line.arguments[1], data);
    const PassShape asked = dimensions_of(line);
    if (std::fmod(static_cast<double>(model.heads), asked.tensor) != 0) {
        throw ConfigError(
            fmt::format("tensor ({}) must divide the {} heads of {}", asked.tensor, model.heads, model.name),
            ErrorCode::command_line);
    }
    ModelCache models(data);
    const CostModel* device = nullptr;
    if (!line.text("device").empty()) {
        device = &models.device(read_device(line.text("device"), data), ComputeKind::calibrated, line.text("kernels"));
    }
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    std::string csv = "layers,operation,rows,in,out,flops,bytes,weights,cached,launches,seconds\n";
    for (const auto& [kind, count] : kinds_of(model)) {
        const double rows = asked.sequences * asked.queries;
        const double key_ranks = std::min(asked.tensor, static_cast<double>(model.kv_heads));
        const LayerContext at{model,
                              kind,
                              {asked.tensor, model.latent.kv_rank > 0 ? 1 : key_ranks, 1},
                              asked.queries > 1 ? LayerPhase::prompt : LayerPhase::decode,
                              rows};
        CoreShape shape;
        shape.sequences = asked.sequences;
        shape.heads = static_cast<double>(model.heads) / asked.tensor;
        shape.queries = asked.queries;
        shape.keys = asked.keys;
        ExpertShard experts = whole_experts(model, rows);
        experts.width /= asked.tensor;
        experts.shared = asked.tensor;
        std::vector<std::vector<std::string>> table;
        LayerOperation sum{"all", LayerRole::core};
        double flops = 0;
        double bytes = 0;
        double seconds = 0;
        for (const LayerOperation& one : layer_operations(at, shape, experts)) {
            const std::optional<Operation> operation = plain_operation(one);
            const double moved = operation ? std::visit(
                                                 [](const auto& each) -> double {
                                                     if constexpr (requires { each.bytes(); }) {
                                                         return each.bytes();
                                                     } else if constexpr (requires { each.bytes; }) {
                                                         return each.bytes;
                                                     } else {
                                                         return 0;
                                                     }
                                                 },
                                                 *operation)
                                           : 2 * one.values();
            const double took = operation && device != nullptr ? device->seconds(*operation).value() : 0;
            flops += one.flops();
            bytes += moved;
            seconds += took;
            sum.weights += one.weights;
            sum.cached += one.cached;
            sum.launches += one.launches;
            table.push_back({one.name,
                             one.product() ? fmt::format("{:.6g} x {:.6g} x {:.6g}", one.rows, one.in, one.out)
                                           : fmt::format("{:.6g}", one.rows),
                             one.flops() > 0 ? fmt::format("{:.4g}", one.flops() * 1e-9) : "-",
                             pretty_quantity(moved, Dimension::bytes),
                             one.weights > 0 ? fmt::format("{:.4g}", one.weights * 1e-6) : "-",
                             one.cached > 0 ? fmt::format("{:.6g}", one.cached) : "-",
                             took > 0 ? pretty_quantity(took, Dimension::time) : "-"});
            json.push_back({{"layers", kind_name(model, kind)},
                            {"count", count},
                            {"operation", one.name},
                            {"rows", one.rows},
                            {"in", one.in},
                            {"out", one.out},
                            {"flops", one.flops()},
                            {"bytes", moved},
                            {"weights", one.weights},
                            {"cached", one.cached},
                            {"launches", one.launches},
                            {"seconds", took}});
            csv += fmt::format("{},{},{},{},{},{:.9g},{:.9g},{:.9g},{},{},{:.9g}\n", kind.index(), one.name, one.rows,
                               one.in, one.out, one.flops(), moved, one.weights, one.cached, one.launches, took);
        }
        table.push_back({"all", "", fmt::format("{:.4g}", flops * 1e-9), pretty_quantity(bytes, Dimension::bytes),
                         fmt::format("{:.4g}", sum.weights * 1e-6), fmt::format("{:.6g}", sum.cached),
                         seconds > 0 ? pretty_quantity(seconds, Dimension::time) : "-"});
        if (line.text("json") != "-" && line.text("output") != "-") {
            line.terminal().heading(fmt::format("{}: {} {}", model.name, count, kind_name(model, kind)));
            line.terminal().table(
                {"operation", "rows (x in x out)", "GFLOP", "bytes", "weights, M", "cached values", "time"}, table);
        }
    }
    if (line.has("json")) {
        write_output(line, "json", json.dump(2) + "\n");
    }
    if (line.has("output")) {
        write_output(line, "output", csv);
    }
    return 0;
}

}  // namespace orrery::program
