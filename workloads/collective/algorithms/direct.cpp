#include "workloads/collective/algorithms/algorithm.hpp"

#include <algorithm>

namespace orrery::collective {

namespace {

bool sends_directly(CollectiveOp op) {
    return op != CollectiveOp::all_reduce && op != CollectiveOp::broadcast && op != CollectiveOp::reduce;
}

Shifts shifts_of(const CollectiveSpec& spec, std::uint32_t ranks) {
    if (!sends_directly(spec.op) || spec.op == CollectiveOp::gather || spec.op == CollectiveOp::scatter || ranks < 2) {
        return {};
    }
    // Send and receive as nccl-tests: each rank to the next.
    return spec.op == CollectiveOp::send_recv ? Shifts{1, spec.bytes} : Shifts{ranks - 1, spec.bytes / ranks};
}

}  // namespace

extern const CollectiveAlgorithm kDirectAlgorithm = {
    "direct",
    "every rank sends to every other at once",
    nullptr,
    [](const CollectiveSpec&, double ranks, double) { return 2 * ranks * ranks; },
    [](ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t) {
        require_served(spec, sends_directly(spec.op),
                       "all-to-all, all-gather, reduce-scatter, send-recv, gather and scatter");
        const auto root = static_cast<std::uint32_t>(spec.root);
        if (spec.op == CollectiveOp::gather || spec.op == CollectiveOp::scatter) {
            for (std::uint32_t k = 1; k < ranks; ++k) {
                const std::uint32_t other = (root + k) % ranks;
                const bool gathers = spec.op == CollectiveOp::gather;
                builder.add(gathers ? other : root, gathers ? root : other, spec.bytes / ranks);
            }
            return;
        }
        builder.set_reducing(spec.op == CollectiveOp::reduce_scatter);
        const Shifts shifts = shifts_of(spec, ranks);
        for (std::uint32_t i = 0; i < ranks; ++i) {
            for (std::uint32_t k = 1; k <= shifts.count; ++k) {
                builder.add(i, (i + k) % ranks, shifts.bytes);
            }
        }
    },
    [](const CollectiveSpec& spec, const GroupLinks& links) {
        const double part = spec.bytes / links.ranks;
        if (!sends_directly(spec.op)) {
            return kNotServed;
        }
        if (spec.op == CollectiveOp::send_recv) {
            return links.ring_step(spec.bytes);
        }
        if (spec.op == CollectiveOp::gather || spec.op == CollectiveOp::scatter) {
            const double near = links.per_node > 1 ? links.inside_latency + part * links.ranks / links.inside_rate : 0;
            return std::max(near, links.nodes() > 1 ? links.outside_latency +
                                                          part * links.ranks / std::min(links.nic_rate, links.all_rate)
                                                    : 0);
        }
        const double near =
            links.per_node > 1 ? links.inside_latency + part * (links.per_node - 1) / links.inside_rate : 0;
        const double far = part * (links.ranks - links.per_node) * links.per_node / links.all_rate;
        return std::max(near, links.nodes() > 1 ? links.outside_latency + far : 0);
    },
    shifts_of};

}  // namespace orrery::collective
