#include "workloads/collective/algorithms/algorithm.hpp"

namespace orrery::collective {

std::vector<std::uint32_t> add_ring(ScheduleBuilder& builder, const std::vector<std::uint32_t>& members, double bytes,
                                    std::uint32_t steps, const std::vector<std::uint32_t>& first_waits,
                                    std::uint32_t reducing) {
    const auto n = static_cast<std::uint32_t>(members.size());
    std::vector<std::uint32_t> previous(n, kNoMessage);
    std::vector<std::uint32_t> current(n, kNoMessage);
    for (std::uint32_t step = 0; step < steps; ++step) {
        builder.set_reducing(step < reducing);
        for (std::uint32_t i = 0; i < n; ++i) {
            current[i] = builder.add(members[i], members[(i + 1) % n], bytes);
            if (step == 0) {
                if (!first_waits.empty() && first_waits[i] != kNoMessage) {
                    builder.after(first_waits[i], current[i]);
                }
            } else {
                builder.after(previous[i], current[i]);
                builder.after(previous[(i + n - 1) % n], current[i]);
            }
        }
        previous.swap(current);
    }
    builder.set_reducing(false);
    std::vector<std::uint32_t> reached(n, kNoMessage);
    for (std::uint32_t i = 0; i < n && steps > 0; ++i) {
        reached[i] = previous[(i + n - 1) % n];
    }
    return reached;
}

extern const CollectiveAlgorithm kRingAlgorithm = {
    "ring",
    "ring in which each rank sends to the next, step by step (Patarasuk and Yuan, JPDC 2009)",
    [](Fields& fields, CollectiveSpec& spec) {
        fields.integer({"slow_rank", "number of the rank whose outgoing link is slow; -1: none", false, -1, 4'000'000},
                       spec.slow_rank);
        fields.when(
            spec.slow_rank >= 0, "a slow_rank",
            [&](Fields& same) {
                same.number({"slow_factor", "rate of that link over its normal rate", false, 1e-6, 1},
                            spec.slow_factor);
            },
            Unmet::noted);
    },
    [](const CollectiveSpec&, double ranks, double) { return 2 * ranks * ranks; },
    [](ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t) {
        require_served(spec, reduces_or_gathers(spec.op), "all-reduce, all-gather and reduce-scatter");
        std::vector<std::uint32_t> members(ranks);
        for (std::uint32_t i = 0; i < ranks; ++i) {
            members[i] = i;
        }
        const std::uint32_t rounds = spec.op == CollectiveOp::all_reduce ? 2 : 1;
        (void)add_ring(builder, members, spec.bytes / ranks, rounds * (ranks - 1), {}, reducing_steps(spec.op, ranks));
    },
    [](const CollectiveSpec& spec, const GroupLinks& links) {
        const double rounds = spec.op == CollectiveOp::all_reduce ? 2 : 1;
        return reduces_or_gathers(spec.op) ? rounds * (links.ranks - 1) * links.ring_step(spec.bytes / links.ranks)
                                           : kNotServed;
    }};

}  // namespace orrery::collective
