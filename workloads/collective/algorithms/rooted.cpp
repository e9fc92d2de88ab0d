// Broadcast, reduce, gather and scatter from or to a root: binomial trees (Thakur et al., IJHPCA 2005, sections 4.2 to 4.4), and a
// chain in pieces for broadcast and reduce, as NCCL runs them.

#include "workloads/collective/algorithms/algorithm.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace orrery::collective {

namespace {

bool has_root(CollectiveOp op) {
    return op == CollectiveOp::broadcast || op == CollectiveOp::reduce || op == CollectiveOp::gather ||
           op == CollectiveOp::scatter;
}

// Away from the root: the ranks that have the data send them at halving distances. Scatter sends what the receiver and those
// behind it need; towards the root everything is the other way round.
void add_binomial(ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t n) {
    const bool towards = spec.op == CollectiveOp::reduce || spec.op == CollectiveOp::gather;
    const bool parts = spec.op == CollectiveOp::gather || spec.op == CollectiveOp::scatter;
    const auto rank = [&](std::uint32_t i) { return static_cast<std::uint32_t>((i + spec.root) % n); };
    struct Hop {
        std::uint32_t from, to;
        double bytes;
    };
    std::vector<Hop> hops;
    for (std::uint32_t distance = std::bit_ceil(n) / 2; distance >= 1; distance /= 2) {
        for (std::uint32_t i = 0; i + distance < n; i += 2 * distance) {
            const std::uint32_t behind = std::min(distance, n - i - distance);
            hops.push_back({i, i + distance, parts ? spec.bytes / n * behind : spec.bytes});
        }
    }
    ORRERY_ASSERT(hops.size() + 1 == n);              // every rank but the root is reached once
    std::vector<std::uint32_t> last(n, kNoMessage);   // message that a rank's next one waits for
    std::vector<std::vector<std::uint32_t>> came(n);  // towards the root: all that must have come
    builder.set_reducing(spec.op == CollectiveOp::reduce);
    const auto add = [&](const Hop& hop) {
        if (towards) {
            const std::uint32_t message = builder.add(rank(hop.to), rank(hop.from), hop.bytes);
            for (const std::uint32_t before : came[hop.to]) {
                builder.after(before, message);
            }
            came[hop.from].push_back(message);
            return;
        }
        const std::uint32_t message = builder.add(rank(hop.from), rank(hop.to), hop.bytes);
        if (last[hop.from] != kNoMessage) {
            builder.after(last[hop.from], message);
        }
        last[hop.from] = last[hop.to] = message;
    };
    if (towards) {
        for (auto hop = hops.rbegin(); hop != hops.rend(); ++hop) {
            add(*hop);
        }
    } else {
        for (const Hop& hop : hops) {
            add(hop);
        }
    }
}

}  // namespace

void describe_root(Fields& fields, CollectiveSpec& spec) {
    fields.integer({"root", "root rank, which sends or receives the data", false, 0, 4'000'000}, spec.root);
}

void describe_chain(Fields& fields, CollectiveSpec& spec) {
    fields.integer({"pipeline", "pieces that the payload is cut into", false, 1, 100'000}, spec.pipeline);
}

void require_root(const CollectiveSpec& spec, std::uint32_t ranks) {
    if (spec.root >= static_cast<std::int64_t>(ranks)) {
        throw InfeasibleError("the root is rank " + std::to_string(spec.root) + ", but the last one is " +
                              std::to_string(ranks - 1));
    }
}

void add_chain(ScheduleBuilder& builder, const std::vector<std::uint32_t>& members, double bytes, std::int64_t pieces,
               bool towards) {
    const auto ranks = static_cast<std::uint32_t>(members.size());
    std::vector<std::uint32_t> last(ranks, kNoMessage);  // of each hop
    builder.set_reducing(towards);
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
        std::uint32_t before = kNoMessage;
        for (std::uint32_t k = 1; k < ranks; ++k) {
            const std::uint32_t hop = towards ? ranks - k : k;  // between places hop - 1 and hop of the chain
            const std::uint32_t message =
                builder.add(members[towards ? hop : hop - 1], members[towards ? hop - 1 : hop], bytes);
            for (const std::uint32_t wait : {before, last[hop]}) {
                if (wait != kNoMessage) {
                    builder.after(wait, message);
                }
            }
            before = last[hop] = message;
        }
    }
}

extern const CollectiveAlgorithm kBinomialAlgorithm = {
    "binomial",
    "a binomial tree from or to the root",
    describe_root,
    [](const CollectiveSpec&, double ranks, double) { return 4 * ranks; },
    [](ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t) {
        require_served(spec, has_root(spec.op), "broadcast, reduce, gather and scatter");
        require_root(spec, ranks);
        add_binomial(builder, spec, ranks);
    },
    [](const CollectiveSpec& spec, const GroupLinks& links) {
        if (!has_root(spec.op)) {
            return kNotServed;
        }
        const bool parts = spec.op == CollectiveOp::gather || spec.op == CollectiveOp::scatter;
        double seconds = 0;
        double bytes = parts ? spec.bytes / 2 : spec.bytes;
        for (double distance = std::exp2(std::ceil(std::log2(links.ranks))) / 2; distance >= 1; distance /= 2) {
            seconds += distance < links.per_node ? links.inside_latency + bytes / links.inside_rate
                                                 : links.outside_latency + bytes / links.flow_rate;
            bytes = parts ? bytes / 2 : bytes;
        }
        return seconds;
    }};

extern const CollectiveAlgorithm kChainAlgorithm = {
    "chain",
    "broadcast or reduce from rank to rank, in pieces",
    [](Fields& fields, CollectiveSpec& spec) {
        if (!fields.names_all()) {  // the others name them for a schema
            describe_root(fields, spec);
            describe_chain(fields, spec);
        }
    },
    [](const CollectiveSpec& spec, double ranks, double) { return 4 * ranks * static_cast<double>(spec.pipeline); },
    [](ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t) {
        require_served(spec, spec.op == CollectiveOp::broadcast || spec.op == CollectiveOp::reduce,
                       "broadcast and reduce");
        require_root(spec, ranks);
        std::vector<std::uint32_t> members(ranks);
        std::iota(members.begin(), members.end(), 0U);
        std::rotate(members.begin(), members.begin() + spec.root, members.end());
        add_chain(builder, members, spec.bytes / static_cast<double>(spec.pipeline), spec.pipeline,
                  spec.op == CollectiveOp::reduce);
    },
    [](const CollectiveSpec& spec, const GroupLinks& links) {
        const double pieces = static_cast<double>(spec.pipeline);
        return spec.op == CollectiveOp::broadcast || spec.op == CollectiveOp::reduce
                   ? (links.ranks - 2 + pieces) * links.ring_step(spec.bytes / pieces)
                   : kNotServed;
    }};

}  // namespace orrery::collective
