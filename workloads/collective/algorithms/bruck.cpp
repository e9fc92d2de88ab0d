#include "workloads/collective/algorithms/algorithm.hpp"

#include <fmt/format.h>

namespace orrery::collective {

// Round k sends to the rank 2^k further all blocks that still have so far to go: those whose distance has bit k. Fewer, larger
// messages than `direct`, which sends each block once: good where latency counts.
// Source: Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing systems", IEEE
// TPDS 8(11), 1997, section 3.
extern const CollectiveAlgorithm kBruckAlgorithm = {
    "bruck",
    "all-to-all in a logarithm of rounds",
    nullptr,
    [](const CollectiveSpec&, double ranks, double) { return 32 * ranks; },
    [](ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t) {
        if (spec.op != CollectiveOp::all_to_all) {
            throw InfeasibleError("algorithm bruck serves all-to-all only");
        }
        std::vector<std::uint32_t> sent(ranks, kNoMessage);
        std::vector<std::uint32_t> received(ranks, kNoMessage);
        for (std::uint64_t distance = 1; distance < ranks; distance *= 2) {
            std::uint32_t blocks = 0;
            for (std::uint32_t block = 1; block < ranks; ++block) {
                blocks += (block & distance) != 0 ? 1 : 0;
            }
            std::vector<std::uint32_t> message(ranks);
            for (std::uint32_t i = 0; i < ranks; ++i) {
                const auto to = static_cast<std::uint32_t>((i + distance) % ranks);
                message[i] = builder.add(i, to, spec.bytes / ranks * blocks);
                if (received[i] != kNoMessage) {
                    builder.after(received[i], message[i]);
                    builder.after(sent[i], message[i]);
                }
            }
            for (std::uint32_t i = 0; i < ranks; ++i) {
                sent[i] = message[i];
                received[(i + distance) % ranks] = message[i];
            }
        }
    },
    [](const CollectiveSpec& spec, const GroupLinks& links) {
        double seconds = 0;
        for (double distance = 1; distance < links.ranks; distance *= 2) {
            seconds += links.step(spec.bytes / 2, distance) +
                       (distance < links.per_node && links.nodes() > 1 ? links.outside_latency : 0);
        }
        return spec.op == CollectiveOp::all_to_all ? seconds : kNotServed;
    }};

}  // namespace orrery::collective
