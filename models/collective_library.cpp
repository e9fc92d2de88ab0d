#include "models/collective_library.hpp"

#include "sim/base/math.hpp"

#include <algorithm>

namespace orrery {

namespace {
constexpr double kSmallest = 8192;  // bytes: below, the tables are flat
constexpr double kPriorLatency = 10e-6;

double prior(double op, double ranks, double bytes, double bandwidth) {
    const double share = (ranks - 1) / ranks;
    return kPriorLatency + (op == 1 ? 2 : 1) * share * bytes / bandwidth;
}

double code(CollectiveOp op) {
    switch (op) {
        case CollectiveOp::all_reduce:
            return 1;
        case CollectiveOp::all_gather:
            return 2;
        case CollectiveOp::reduce_scatter:
            return 3;
        case CollectiveOp::all_to_all:
        case CollectiveOp::send_recv:
            return 4;
    }
    return 1;
}
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

NcclModel::NcclModel(const std::string& table, double reference_bandwidth, const AcrossNodes& across)
    : across_(across), grid_(table, [&](double op, double ranks, double bytes) {
          return prior(op, ranks, bytes, reference_bandwidth);
      }) {}

double NcclModel::time_in_node(CollectiveOp op, double ranks, double bytes, double bandwidth) const {
    return prior(code(op), ranks, bytes, bandwidth) * exp_pinned(grid_.residual(code(op), ranks, bytes));
}

CollectivePrice NcclModel::price(CollectiveOp op, const GroupLayout& layout, Bytes payload,
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

std::unique_ptr<CollectiveModel> make_nccl(const std::string& generation, const DataDirectory& data) {
    AcrossNodes across;
    std::vector<Diagnostic> errors;
    const std::string path = data.path("models/data/collectives/across_nodes.yaml");
    read_fields(load_yaml(path), data, errors, [&](Fields& fields) { describe(fields, across); });
    if (!errors.empty()) {
        throw ConfigError(errors);
    }
    const double reference = generation == "nvlink3" ? 300e9 : generation == "nvlink4" ? 450e9 : 900e9;
    return std::make_unique<NcclModel>(data.path("models/data/collectives/" + generation + ".csv"), reference, across);
}

}  // namespace orrery
