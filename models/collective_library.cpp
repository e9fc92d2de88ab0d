#include "models/collective_library.hpp"

#include "sim/base/input_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace orrery::inline cost {

namespace {
constexpr const char* kNccl = "nccl";
constexpr double kSmallest = 8192;  // bytes: below, a collective takes what its start-up takes
}  // namespace

void describe(Fields& fields, AcrossNodes& across) {
    fields.sourced({"latency", "start of a collective across nodes", true, 0, 1e-2}, Dimension::time, across.latency);
    fields.sourced({"step_latency", "a step of the ring across nodes", true, 0, 1e-3}, Dimension::time,
                   across.step_latency);
    fields.sourced({"efficiency", "fraction of the NICs' rate that large messages reach", true, 0.05, 1},
                   Dimension::fraction, across.efficiency);
    fields.sourced({"send_latency", "a point-to-point message between nodes", true, 0, 1e-2}, Dimension::time,
                   across.send_latency);
    fields.sourced({"send_efficiency", "fraction of a NIC's rate that it reaches", true, 0.05, 1}, Dimension::fraction,
                   across.send_efficiency);
}

double MeasuredCollectives::time_in_node(CollectiveOp op, double ranks, double bytes, double bandwidth) const {
    // What has no curves of its own goes by the operation that moves its data alike.
    const CollectiveOp measured = op == CollectiveOp::send_recv  ? CollectiveOp::all_to_all
                                  : op < CollectiveOp::send_recv ? op
                                  : op == CollectiveOp::reduce   ? CollectiveOp::reduce_scatter
                                                                 : CollectiveOp::all_gather;
    return fit_.seconds(fit_.has(library_, measured) ? library_ : kNccl, measured, ranks, bytes, bandwidth);
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
    const double steps = (op == CollectiveOp::all_reduce ? 2.0 : 1.0) * (layout.ranks - 1);
    if (op == CollectiveOp::send_recv) {
        out.latency = Seconds(across_.send_latency.value);
        out.nic_efficiency = across_.send_efficiency.value;
        return out;
    }
    out.latency = Seconds(across_.latency.value + steps * across_.step_latency.value);
    out.nic_efficiency = across_.efficiency.value;
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

std::unique_ptr<CollectiveModel> make_collectives(const std::string& interconnect, const std::string& library,
                                                  const DataDirectory& data) {
    AcrossNodes across;
    std::vector<Diagnostic> errors;
    const std::string path = data.path("models/data/collectives/across_nodes.yaml");
    read_fields(load_yaml(path), data, errors, [&](Fields& fields) { describe(fields, across); });
    if (!errors.empty()) {
        throw ConfigError(errors);
    }
    const std::string folder = data.path("models/data/collectives");
    const std::string file = data.path("models/data/collectives/" + interconnect + ".fit");
    if (!std::filesystem::exists(file)) {
        const std::vector<std::string> known = data.names(TableKind{"models/data/collectives", ".fit"});
        const std::string near = nearest_name(interconnect, known);
        throw ConfigError({Diagnostic{
            folder, 0, 0,
            fmt::format("no measured collectives are called '{}'; there are {}{}", interconnect, fmt::join(known, ", "),
                        near.empty() ? "" : fmt::format("; did you mean '{}'?", near))}});
    }
    CollectiveFit fit = parse_collective_fit(read_input(file), file);
    for (const CollectiveOp op :
         {CollectiveOp::all_reduce, CollectiveOp::all_gather, CollectiveOp::reduce_scatter, CollectiveOp::all_to_all}) {
        if (!fit.has(kNccl, op)) {
            throw ConfigError({Diagnostic{
                file, 0, 0,
                fmt::format("has no curve of nccl {}", collective_op_names()[static_cast<std::size_t>(op)])}});
        }
    }
    return std::make_unique<MeasuredCollectives>(std::move(fit), library, across);
}

}  // namespace orrery::inline cost
