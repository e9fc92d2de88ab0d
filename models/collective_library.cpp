#include "models/collective_library.hpp"

#include "sim/base/input_file.hpp"
#include "sim/base/math.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace orrery::models {

namespace {
constexpr const char* kNccl = "nccl";
constexpr const char* kRccl = "rccl";
constexpr double kSmallest = 8192;  // bytes: below, a collective takes what its start-up takes
}  // namespace

void describe(Fields& fields, BetweenNodes& between) {
    fields.sourced({"latency", "start of a collective between nodes", true, 0, 1e-2}, Dimension::time, between.latency);
    fields.sourced({"step_latency", "a step of the ring between nodes", false, 0, 1e-3}, Dimension::time,
                   between.step_latency);
    fields.sourced({"level_latency", "each doubling of the nodes", false, 0, 1e-2}, Dimension::time,
                   between.level_latency);
    fields.sourced({"tree_inside", "each further GPU of a node on the tree, there and back", false, 0, 1e-3},
                   Dimension::time, between.tree_inside);
    fields.sourced({"tree_level", "each doubling of the nodes on the tree, there and back", false, 0, 1e-3},
                   Dimension::time, between.tree_level);
    fields.sourced({"fill", "a node: what the ramp of large messages costs", false, 0, 1e-2}, Dimension::time,
                   between.fill);
    fields.sourced({"ramp", "a node: time on the wire until half of that is lost", false, 0, 1}, Dimension::time,
                   between.ramp);
    fields.boolean({"exchange", "two nodes exchange an all-reduce's payload once"}, between.exchange);
    fields.sourced({"efficiency", "fraction of the NICs' rate that large messages reach", true, 0.05, 1},
                   Dimension::fraction, between.efficiency);
    fields.sourced({"ring_latency", "a step of an all-gather or a reduce-scatter, which have no tree", false, 0, 1e-3},
                   Dimension::time, between.ring_latency);
    fields.sourced({"ring_fill", "a step of theirs: what the ramp of large messages costs", false, 0, 1e-2},
                   Dimension::time, between.ring_fill);
    fields.sourced({"send_latency", "a point-to-point message between nodes", true, 0, 1e-2}, Dimension::time,
                   between.send_latency);
    fields.sourced({"send_efficiency", "fraction of a NIC's rate that it reaches", true, 0.05, 1}, Dimension::fraction,
                   between.send_efficiency);
}

MeasuredCollectives::MeasuredCollectives(CollectiveFit fit, std::string library, const BetweenNodes& between)
    : between_(between),
      fit_(std::move(fit)),
      library_(std::move(library)),
      vendor_(fit_.has(kNccl, CollectiveOp::all_reduce) ? kNccl : kRccl) {}

double MeasuredCollectives::time_in_node(CollectiveOp op, double ranks, double bytes, double bandwidth) const {
    // What has no curves of its own goes by the operation that moves its data alike.
    const CollectiveOp measured = op == CollectiveOp::send_recv  ? CollectiveOp::all_to_all
                                  : op < CollectiveOp::send_recv ? op
                                  : op == CollectiveOp::reduce   ? CollectiveOp::reduce_scatter
                                                                 : CollectiveOp::all_gather;
    const std::string& library = fit_.has(library_, measured) ? library_ : vendor_;
    if (fit_.has(library, measured)) {
        return fit_.seconds(library, measured, ranks, bytes, bandwidth);
    }
    const auto n = static_cast<std::uint32_t>(ranks);
    const double share = wire_bytes(measured, n, Bytes(1)) / wire_bytes(CollectiveOp::all_reduce, n, Bytes(1));
    return share * fit_.seconds(library, CollectiveOp::all_reduce, ranks, bytes, bandwidth);
}

CollectivePrice MeasuredCollectives::price(CollectiveOp op, const GroupLayout& layout, Bytes payload,
                                           BytesPerSecond intra) const {
    const double bytes = payload.value();
    const double intra_bandwidth = intra.value();
    const double wire = wire_bytes(op, layout.ranks, payload).value();
    CollectivePrice out;
    if (layout.nodes == 1) {
        // A table for another rate of link is stretched in its bandwidth term only.
        const double time = time_in_node(op, layout.ranks, bytes, intra_bandwidth);
        const double start = time_in_node(op, layout.ranks, kSmallest, intra_bandwidth);
        const double on_links = wire / intra_bandwidth;
        out.latency = Seconds(std::max(0.0, std::min(start, time - on_links)));
        out.intra_efficiency = on_links / std::max(time - out.latency.value(), on_links * 0.5);
        return out;
    }
    const bool both_ways = op == CollectiveOp::all_reduce;
    const double steps = (both_ways ? 2.0 : 1.0) * (layout.ranks - 1);
    if (op == CollectiveOp::send_recv) {
        out.latency = Seconds(between_.send_latency.value);
        out.nic_efficiency = between_.send_efficiency.value;
        return out;
    }
    if (between_.exchange && both_ways && layout.nodes == 2) {
        out.outside = bytes / wire;
    }
    const double on_nics = out.outside * wire / layout.nics.value();
    double hops = steps * between_.step_latency.value;
    if (both_ways && between_.tree_level.value > 0) {
        const double tree = 2 * ((layout.per_node() - 1) * between_.tree_inside.value +
                                 log2_pinned(layout.nodes) * between_.tree_level.value);
        hops = std::min(hops, tree + on_nics);
    }
    out.latency = Seconds(between_.latency.value + hops +
                          (both_ways ? 1 : 0.5) * log2_pinned(layout.nodes) * between_.level_latency.value);
    const bool no_tree = op == CollectiveOp::all_gather || op == CollectiveOp::reduce_scatter;
    const double ring_steps = no_tree && between_.ring_latency.value > 0 ? steps : 0;
    out.latency += Seconds(ring_steps * between_.ring_latency.value);
    if (between_.fill.value > 0) {
        const double fill = ring_steps > 0 ? ring_steps * between_.ring_fill.value : between_.fill.value * layout.nodes;
        out.latency += Seconds(fill * on_nics / (on_nics + between_.ramp.value * layout.nodes));
    }
    out.nic_efficiency = between_.efficiency.value;
    // Inside the nodes the same channels run at the rate that large messages reach there.
    if (layout.per_node() > 1) {
        constexpr double kLarge = 512.0 * 1024 * 1024;
        const double r = layout.per_node();
        const double time = time_in_node(op, r, kLarge, intra_bandwidth);
        out.intra_efficiency =
            std::min(1.0, wire_bytes(op, layout.per_node(), Bytes(kLarge)).value() / intra_bandwidth / time);
    }
    return out;
}

namespace {
// The path of a table by its name; throws with the nearest name.
std::string path_of(const std::string& folder, const char* ending, const char* what, const std::string& name,
                    const DataDirectory& data) {
    const std::string file = data.path(folder + "/" + name + ending);
    if (!std::filesystem::exists(file)) {
        const std::vector<std::string> known = data.names(TableKind{folder.c_str(), ending});
        const std::string near = nearest_name(name, known);
        throw ConfigError(
            {Diagnostic{data.path(folder), 0, 0,
                        fmt::format("no {} are called '{}'; there are {}{}", what, name, fmt::join(known, ", "),
                                    near.empty() ? "" : fmt::format("; did you mean '{}'?", near)),
                        ErrorCode::unknown_name}});
    }
    return file;
}
}  // namespace

std::unique_ptr<CollectiveModel> make_collectives(const std::string& interconnect, const std::string& library,
                                                  const DataDirectory& data, const std::string& between) {
    const std::string folder = "models/data/collectives";
    BetweenNodes constants;
    std::vector<Diagnostic> errors;
    const std::string path =
        path_of(folder + "/between", ".yaml", "constants of collectives between nodes", between, data);
    read_fields(load_yaml(path), data, errors, [&](Fields& fields) { describe(fields, constants); });
    throw_if_any(errors);
    const std::string file = path_of(folder, ".fit", "measured collectives", interconnect, data);
    CollectiveFit fit = parse_collective_fit(read_input(file), file);
    if (!fit.has(kNccl, CollectiveOp::all_reduce) && !fit.has(kRccl, CollectiveOp::all_reduce)) {
        throw ConfigError(
            {Diagnostic{file, 0, 0, "has no curve of the all-reduce of nccl or rccl", ErrorCode::malformed_trace}});
    }
    return std::make_unique<MeasuredCollectives>(std::move(fit), library, constants);
}

}  // namespace orrery::models
