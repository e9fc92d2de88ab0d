// orrery price: one kernel or collective, or a table of them.

#include "models/calibration/row_prices.hpp"
#include "models/collective_library.hpp"
#include "sim/base/text.hpp"
#include "sim/config/units.hpp"
#include "sim/record/facts_table.hpp"
#include "sim/record/summary.hpp"
#include "tools/calibration/collections.hpp"
#include "tools/driver/model_cache.hpp"
#include "tools/driver/scenario.hpp"
#include "tools/program/commands.hpp"
#include "tools/program/outputs.hpp"
#include "tools/terminal/terminal.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

namespace orrery::program {

namespace {

// A NIC and a link between nodes err by this much where nobody measured the system (`orrery validate collectives`: 20 % of all
// sizes across nodes), as a standard deviation of the logarithm; collectives inside a node carry their fit's own error.
constexpr double kCollectiveSpread = 0.1;
constexpr double kAcrossSpread = 0.2;
constexpr double kNineOfTen = 1.645;

/// What a table may say row by row, and the options say for all rows.
const std::vector<std::string> kColumns = {"op",     "phase", "dtype",   "kv_dtype", "shape",
                                           "device", "node",  "kernels", "library"};

struct Asked {
    std::map<std::string, std::string> cells;
    Diagnostic place;           ///< for errors
    std::set<std::string> own;  ///< columns said for this operation, and not for all rows of a table

    [[nodiscard]] const std::string& text(const std::string& column) const { return cells.at(column); }
};

Asked request_of(const CommandLine& line) {
    Asked out;
    for (const std::string& column : kColumns) {
        out.cells[column] = line.text(column == "kv_dtype" ? "kv-dtype" : column);
    }
    return out;
}

std::vector<Asked> requests_of(const CommandLine& line) {
    Asked common = request_of(line);
    if (line.arguments.empty() == line.text("table").empty()) {
        std::vector<std::string> operations;
        for (const TraceOperation& one : trace_operations()) {
            operations.emplace_back(one.name);
        }
        throw ConfigError(
            fmt::format("'orrery price' takes an operation with its dimensions, such as gemm m=4096 n=4096 "
                        "k=4096, or --table; operations are {}",
                        fmt::join(operations, ", ")),
            ErrorCode::command_line);
    }
    if (!line.arguments.empty()) {
        common.cells["op"] = line.arguments[0];
        std::vector<std::string> shape(line.arguments.begin() + 1, line.arguments.end());
        common.cells["shape"] = fmt::format("{}", fmt::join(shape, " "));
        common.place = {"the operation", 0, 0, ""};
        for (const auto& [column, text] : common.cells) {
            if (!text.empty()) {
                common.own.insert(column);
            }
        }
        return {common};
    }
    std::vector<Asked> out;
    std::vector<Diagnostic> errors;
    for (const FactsRow& row : read_facts_table(line.text("table"))) {
        Asked request = common;
        request.place = {row.file, row.line, 1, ""};
        for (const auto& [column, text] : row.cells) {
            if (std::find(kColumns.begin(), kColumns.end(), column) == kColumns.end()) {
                const std::string near = nearest_name(column, kColumns);
                throw ConfigError({Diagnostic{row.file, 1, 1,
                                              fmt::format("unknown column '{}'{}; there are {}", column,
                                                          near.empty() ? "" : fmt::format(", did you mean '{}'?", near),
                                                          fmt::join(kColumns, ", ")),
                                              ErrorCode::malformed_trace}});
            }
            if (!text.empty()) {
                request.cells[column] = text;
                request.own.insert(column);
            }
        }
        out.push_back(std::move(request));
    }
    if (out.empty()) {
        throw ConfigError({Diagnostic{line.text("table"), 0, 0, "has no row", ErrorCode::malformed_trace}});
    }
    return out;
}

// As the reader of traces sees it, with its errors at the request's place.
TraceRow row_of(const Asked& request) {
    std::string op = request.text("op");
    std::replace(op.begin(), op.end(), '-', '_');
    const std::string dtype = request.text("dtype").empty() ? "bf16" : request.text("dtype");
    const std::string text = fmt::format(
        "# orrery-trace: 1\n# device: any\n# source: asked\n# date: unknown\n"
        "op,phase,dtype,kv_dtype,shape,median_ns\n{},{},{},{},{},1\n",
        op, request.text("phase"), dtype, request.text("kv_dtype"), request.text("shape"));
    return parse_trace(text, request.place.file).rows.at(0);
}

[[noreturn]] void refuse(const Asked& request, std::string why) {
    Diagnostic place = request.place;
    place.text = std::move(why);
    throw ConfigError({place});
}

std::optional<CollectiveOp> collective_of(const std::string& op) {
    std::string name = op;
    std::replace(name.begin(), name.end(), '_', '-');
    const auto& names = collective_op_names();
    const auto found = std::find(names.begin(), names.end(), name);
    return found == names.end() ? std::nullopt : std::optional(static_cast<CollectiveOp>(found - names.begin()));
}

// Models of the devices and nodes asked for so far.
class Pricers {
  public:
    explicit Pricers(const DataDirectory& data) : data_(data), models_(data) {}

    RowPrice price(const Asked& request) {
        const TraceRow row = row_of(request);
        if (request.own.contains("kv_dtype") && row.op.rfind("attention_", 0) != 0 && row.op.rfind("mla_", 0) != 0) {
            refuse(request, fmt::format("{} reads no cached keys and values: only attention has a kv_dtype", row.op));
        }
        const double heads = row.dim("heads");
        const double kv_heads = row.dim("kv_heads", heads);
        if (kv_heads > 0 && std::fmod(heads, kv_heads) != 0) {
            refuse(request, fmt::format("kv_heads ({}) must divide heads ({})", kv_heads, heads));
        }
        const std::optional<CollectiveOp> op = collective_of(row.op);
        if (op) {
            return collective(request, row, *op);
        }
        if (!request.text("library").empty()) {
            refuse(
                request,
                fmt::format("{} is no collective: its kernels are chosen with 'kernels', not with 'library'", row.op));
        }
        const auto price = kernels(request).price(row);
        if (!price) {
            refuse(request, fmt::format("no model has an operation for {}{}", row.op,
                                        row.phase == TracePhase::forward
                                            ? ""
                                            : " " + trace_phase_names()[static_cast<std::size_t>(row.phase)]));
        }
        return *price;
    }

  private:
    const RowPricer& kernels(const Asked& request) {
        const std::string key = request.text("device") + "\n" + request.text("node") + "\n" + request.text("kernels");
        std::unique_ptr<RowPricer>& slot = devices_[key];
        if (!slot) {
            if (request.text("device").empty() == request.text("node").empty()) {
                refuse(request,
                       "a kernel runs on one device: name it with --device, or with --node the node that has it");
            }
            const DeviceSpec device = request.text("node").empty() ? read_device(request.text("device"), data_)
                                                                   : scenario(request, 1).cluster.node.gpu;
            const std::string& set = request.text("kernels");
            const std::vector<std::string> sets = data_.names(TableKind{"models/data/kernels/*", ""});
            if (!set.empty() && std::find(sets.begin(), sets.end(), set) == sets.end()) {
                refuse(request, fmt::format("no device has a set of kernels called '{}'; there are {}", set,
                                            fmt::join(sets, ", ")));
            }
            slot = std::make_unique<RowPricer>(device, data_, set);
        }
        return *slot;
    }

    Scenario scenario(const Asked& request, std::uint32_t nodes) {
        if (request.text("node").empty()) {
            refuse(request, "a collective runs on nodes: name their kind with --node");
        }
        return read_scenario(parse_yaml(fmt::format("orrery: 1\nkind: collective\ncluster: {{nodes: {}, node: {}}}\n"
                                                    "collective: {{size: 1 MiB}}\n",
                                                    nodes, request.text("node")),
                                        request.place.file),
                             "price", data_);
    }

    RowPrice collective(const Asked& request, const TraceRow& row, CollectiveOp op) {
        if (!request.text("device").empty() || !request.text("kernels").empty()) {
            refuse(
                request,
                fmt::format("{} is a collective: it has a node and a library, and neither device nor kernels", row.op));
        }
        if (request.own.contains("dtype") || request.own.contains("phase")) {
            refuse(request, fmt::format("{} moves bytes, whatever they are: it has neither dtype nor phase", row.op));
        }
        for (const char* dimension : {"ranks", "nodes"}) {
            const double count = row.dim(dimension, 1);
            if (count != std::floor(count) || count > (1U << 20U)) {
                refuse(request, fmt::format("'{}' is a whole number up to {}, not {}", dimension, 1U << 20U, count));
            }
        }
        const auto ranks = static_cast<std::uint32_t>(row.dim("ranks"));
        const auto per_node = static_cast<std::uint32_t>(scenario(request, 1).cluster.node.gpus);
        const auto nodes =
            static_cast<std::uint32_t>(row.dim("nodes", std::ceil(ranks / static_cast<double>(per_node))));
        if (ranks < 2 || nodes < 1 || ranks % nodes != 0 || ranks / nodes > per_node || ranks > (1U << 20U)) {
            refuse(request,
                   fmt::format(
                       "{} ranks on {} nodes of {} GPUs: they must be two or more, as many on each node, and no more "
                       "than it has",
                       ranks, nodes, per_node));
        }
        const Scenario on = scenario(request, nodes);
        const auto& names = library_names();
        const std::string library = request.text("library").empty() ? "nccl" : request.text("library");
        const auto known = std::find(names.begin(), names.end(), library);
        if (known == names.end()) {
            refuse(request, fmt::format("no library of collectives is called '{}'; there are {}", library,
                                        fmt::join(names, ", ")));
        }
        const Fabric fabric(shape_of(on.cluster, on.cluster_mark));
        const CollectiveModel& model =
            models_.collectives(on.cluster.node, static_cast<LibraryKind>(known - names.begin()));
        std::vector<GpuId> group;
        for (std::uint32_t node = 0; node < nodes; ++node) {
            for (std::uint32_t i = 0; i < ranks / nodes; ++i) {
                group.emplace_back(node * per_node + i);
            }
        }
        const Bytes bytes(row.dim("bytes"));
        const auto seconds = [&](const CollectiveModel& by) {
            const GroupTransfer transfer =
                op == CollectiveOp::send_recv
                    ? make_send(fabric, by, group.front(), group.back(), bytes, PathChoice::spray, 0)
                    : make_transfer(fabric, by, op, group, bytes, PathChoice::spray);
            return std::pair(seconds_alone(fabric, transfer).value(), transfer.latency.value());
        };
        const auto [time, latency] = seconds(model);
        const double links = seconds(IdealCollectives()).first;
        RowPrice out;
        out.seconds = time;
        const double spread = nodes > 1 ? kAcrossSpread : kCollectiveSpread;
        out.low = time * std::exp(-kNineOfTen * spread);
        out.high = time * std::exp(kNineOfTen * spread);
        out.of_memory = links / time;
        out.binds = latency > time / 2 ? "start-up" : nodes > 1 ? "links between nodes" : "links of the node";
        out.source = library == "ideal"
                         ? "closed form over the links"
                         : fmt::format("models/data/collectives/{}.fit, {}", on.cluster.node.collectives, library) +
                               (nodes > 1 ? " and between/" + on.cluster.node.between + ".yaml" : "");
        return out;
    }

    const DataDirectory& data_;
    ModelCache models_;
    std::map<std::string, std::unique_ptr<RowPricer>> devices_;
};

std::string share(double value) {
    return value > 0 ? fmt::format("{:.0f} %", 100 * value) : "-";
}

std::string quoted(const std::string& text) {
    return text.find(',') == std::string::npos ? text : "\"" + text + "\"";
}

}  // namespace

int command_price(const CommandLine& line, const DataDirectory& data) {
    if (!line.arguments.empty() && line.arguments[0] == "layer") {
        return price_layer(line, data);
    }
    Pricers pricers(data);
    std::vector<Diagnostic> errors;
    std::vector<std::pair<Asked, RowPrice>> prices;
    constexpr std::size_t kMostErrors = 50;
    for (Asked& request : requests_of(line)) {
        try {
            const RowPrice price = pricers.price(request);
            prices.emplace_back(std::move(request), price);
        } catch (const ConfigError& error) {
            // What is wrong with a file of a preset is said at its place, all else at that of the row.
            for (Diagnostic one : error.diagnostics()) {
                if (one.file.empty() || one.file == request.place.file) {
                    one.file = request.place.file;
                    one.line = request.place.line;
                    one.column = request.place.column;
                    one.code =
                        one.line == 0 && one.code == ErrorCode::malformed_trace ? ErrorCode::command_line : one.code;
                }
                errors.push_back(std::move(one));
            }
            if (errors.size() >= kMostErrors) {
                break;
            }
        }
    }
    throw_if_any(errors);
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    std::string csv = "op,phase,dtype,shape,device,node,seconds,low,high,binds,of_peak,of_memory_or_links,source\n";
    std::vector<std::vector<std::string>> rows;
    for (const auto& [request, price] : prices) {
        const bool moves = collective_of(request.text("op")).has_value();  // bytes, which have no type
        const std::string dtype = moves ? "" : request.text("dtype").empty() ? "bf16" : request.text("dtype");
        const std::string phase = request.text("phase");
        rows.push_back({request.text("op") + (phase.empty() ? "" : " " + phase), dtype, request.text("shape"),
                        pretty_quantity(price.seconds, Dimension::time),
                        fmt::format("{} to {}", pretty_quantity(price.low, Dimension::time),
                                    pretty_quantity(price.high, Dimension::time)),
                        price.binds, share(price.of_peak), share(price.of_memory), price.source});
        json.push_back({{"op", request.text("op")},
                        {"phase", phase},
                        {"dtype", dtype},
                        {"shape", request.text("shape")},
                        {"device", request.text("device")},
                        {"node", request.text("node")},
                        {"seconds", price.seconds},
                        {"low", price.low},
                        {"high", price.high},
                        {"binds", price.binds},
                        {"of_peak", price.of_peak},
                        {"of_memory_or_links", price.of_memory},
                        {"source", price.source}});
        csv += fmt::format("{},{},{},{},{},{},{:.9g},{:.9g},{:.9g},{},{:.4f},{:.4f},{}\n", request.text("op"), phase,
                           dtype, request.text("shape"), request.text("device"), request.text("node"), price.seconds,
                           price.low, price.high, price.binds, price.of_peak, price.of_memory, quoted(price.source));
    }
    if (line.has("json")) {
        write_output(line, "json", json.dump(2) + "\n");
    }
    if (line.has("output")) {
        write_output(line, "output", csv);
    }
    if (line.text("json") != "-" && line.text("output") != "-") {
        line.terminal().table({"operation", "dtype", "shape", "time", "nine times of ten", "binds", "of the peak",
                               "of memory or links", "source"},
                              rows);
    }
    return 0;
}

}  // namespace orrery::program
