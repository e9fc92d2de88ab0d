#include "sim/base/random.hpp"
#include "workloads/collective/algorithms/algorithm.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::collective {

void describe(Fields& fields, CollectiveSpec& spec) {
    fields.enumeration({"op", "kind of the collective operation"}, collective_op_names(), spec.op);
    const auto& table = algorithm_table();
    std::vector<std::string> names;
    for (const CollectiveAlgorithm* row : table) {
        names.emplace_back(row->name);
    }
    auto index = static_cast<std::size_t>(std::find(table.begin(), table.end(), spec.algorithm) - table.begin());
    fields.choice({"algorithm", "schedule of the collective's messages"}, names, index);
    spec.algorithm = table[index];
    fields.quantity({"size", "payload: the larger buffer of a rank", true, 1, 1e18}, Dimension::bytes, spec.bytes);
    fields.integer({"ranks", "GPUs that take part; 0: all", false, 0, 4'000'000}, spec.ranks);
    for (const CollectiveAlgorithm* row : table) {
        if (row->describe != nullptr && (row == spec.algorithm || fields.names_all())) {
            row->describe(fields, spec);
        }
    }
    fields.text({"class", "class of its traffic, one of network.classes; without it the first"}, spec.traffic_class);
    fields.boolean({"in_memory", "sums read and write the memory of their rank; otherwise they cost no time"},
                   spec.in_memory);
    // Left to `auto`, an operation with a root still has one.
    const bool rooted = spec.op == CollectiveOp::broadcast || spec.op == CollectiveOp::reduce ||
                        spec.op == CollectiveOp::gather || spec.op == CollectiveOp::scatter;
    const std::string name = spec.algorithm->name;
    if (rooted && !fields.names_all() && (name == "auto" || name == "direct")) {
        fields.integer({"root", "root rank, which sends or receives the data", false, 0, 4'000'000}, spec.root);
    }
}

void describe(Fields& fields, TrafficSpec& spec) {
    fields.text({"flows", "file of flows, in place of a pattern (CSV src,dst,bytes,start,after,class; or .cm)"},
                spec.flows);
    fields.text({"class", "class of its traffic, one of network.classes; without it the first"}, spec.traffic_class);
    const bool all = fields.names_all();
    if (!spec.flows.empty() && !all) {
        return;
    }
    fields.enumeration({"pattern", "pattern of senders and receivers"},
                       {"permutation", "shift", "incast", "all-to-all", "ring"}, spec.pattern);
    fields.quantity({"size", "bytes of a flow", !all, 1, 1e18}, Dimension::bytes, spec.size);
    fields.quantity({"spread", "sizes are uniform within size x (1 +- spread)", false, 0, 0.99}, Dimension::fraction,
                    spec.spread);
    if (spec.pattern == TrafficPattern::shift || all) {
        fields.integer({"shift", "destination is source + shift", false, 1, 4'000'000}, spec.shift);
    }
    if (spec.pattern == TrafficPattern::incast || all) {
        fields.integer({"senders", "senders of an incast; 0: all but the receiver", false, 0, 4'000'000}, spec.senders);
    }
}

void require_schedule_size(double messages) {
    constexpr double kMost = 1e8;
    if (messages > kMost) {
        throw InfeasibleError(
            fmt::format("the schedule has {:.3g} messages; at most {:.3g} can be stored", messages, kMost));
    }
}

Schedule make_schedule(const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t per_node) {
    require_schedule_size(spec.algorithm->messages(spec, ranks, per_node));
    ScheduleBuilder builder;
    if (ranks > 1) {
        spec.algorithm->build(builder, spec, ranks, per_node);
    }
    return builder.finish();
}

Schedule make_traffic(const TrafficSpec& spec, std::uint32_t ranks, std::uint64_t seed) {
    ScheduleBuilder builder;
    RandomStream pairs(seed, "traffic/pairs");
    RandomStream sizes(seed, "traffic/sizes");
    const auto size = [&] {
        return spec.spread > 0 ? spec.size * (1 + spec.spread * (2 * sizes.uniform() - 1)) : spec.size;
    };
    if (ranks < 2) {
        throw InfeasibleError("traffic needs at least two hosts", ErrorCode::too_few_gpus);
    }
    require_schedule_size(spec.pattern == TrafficPattern::all_to_all ? static_cast<double>(ranks) * ranks : ranks);
    switch (spec.pattern) {
        case TrafficPattern::permutation: {
            // Sattolo's algorithm: one cycle through all hosts, so nobody sends to itself.
            std::vector<std::uint32_t> to(ranks);
            for (std::uint32_t i = 0; i < ranks; ++i) {
                to[i] = i;
            }
            for (std::uint32_t i = ranks - 1; i > 0; --i) {
                std::swap(to[i], to[pairs.below(i)]);
            }
            for (std::uint32_t i = 0; i < ranks; ++i) {
                builder.add(i, to[i], size());
            }
            break;
        }
        case TrafficPattern::shift:
            if (spec.shift % ranks == 0) {
                throw InfeasibleError("a shift by a multiple of the number of hosts sends to itself");
            }
            for (std::uint32_t i = 0; i < ranks; ++i) {
                builder.add(i, static_cast<std::uint32_t>((i + spec.shift) % ranks), size());
            }
            break;
        case TrafficPattern::incast: {
            const auto senders = spec.senders > 0 ? static_cast<std::uint32_t>(spec.senders) : ranks - 1;
            if (senders >= ranks) {
                throw InfeasibleError(fmt::format("an incast of {} senders needs more than {} hosts", senders, ranks),
                                      ErrorCode::too_few_gpus);
            }
            for (std::uint32_t i = 1; i <= senders; ++i) {
                builder.add(i, 0, size());
            }
            break;
        }
        case TrafficPattern::all_to_all:
            for (std::uint32_t i = 0; i < ranks; ++i) {
                for (std::uint32_t k = 1; k < ranks; ++k) {
                    builder.add(i, (i + k) % ranks, size());
                }
            }
            break;
        case TrafficPattern::ring:
            for (std::uint32_t i = 0; i < ranks; ++i) {
                builder.add(i, (i + 1) % ranks, size());
            }
            break;
    }
    return builder.finish();
}

}  // namespace orrery::collective
