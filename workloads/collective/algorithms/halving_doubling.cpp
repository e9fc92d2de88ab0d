#include "workloads/collective/algorithms/algorithm.hpp"

#include <bit>
#include <cmath>

namespace orrery::collective {

namespace {

// Of n = 2^k + e ranks, the first 2 e are pairs of which one takes part for both (Thakur et al., section 4.5).
void add_halving_doubling(ScheduleBuilder& builder, CollectiveOp op, std::uint32_t n, double bytes) {
    const std::uint32_t whole = std::bit_floor(n);
    const std::uint32_t extra = n - whole;
    ORRERY_ASSERT(extra < whole);
    const auto rounds = static_cast<std::uint32_t>(std::countr_zero(whole));
    const auto rank = [&](std::uint32_t i) { return i < extra ? 2 * i : i + extra; };
    const bool reduces = op != CollectiveOp::all_gather;
    const bool gathers = op != CollectiveOp::reduce_scatter;
    std::vector<std::uint32_t> received(whole, kNoMessage);
    std::vector<std::uint32_t> sent(whole, kNoMessage);
    builder.set_reducing(reduces);
    for (std::uint32_t i = 0; i < extra; ++i) {
        received[i] = builder.add(rank(i) + 1, rank(i), reduces ? bytes : bytes / n);
    }
    const auto round = [&](std::uint32_t distance, double size) {
        std::vector<std::uint32_t> message(whole);
        for (std::uint32_t i = 0; i < whole; ++i) {
            message[i] = builder.add(rank(i), rank(i ^ distance), size);
            // In the first round the other end may still be taking what it takes part for.
            const std::uint32_t other = sent[i] == kNoMessage ? received[i ^ distance] : kNoMessage;
            for (const std::uint32_t before : {received[i], sent[i], other}) {
                if (before != kNoMessage) {
                    builder.after(before, message[i]);
                }
            }
        }
        for (std::uint32_t i = 0; i < whole; ++i) {
            sent[i] = message[i];
            received[i] = message[i ^ distance];
        }
    };
    for (std::uint32_t k = 1; k <= rounds && reduces; ++k) {
        round(whole >> k, bytes / (1U << k));
    }
    builder.set_reducing(false);
    for (std::uint32_t k = rounds; k >= 1 && gathers; --k) {
        round(whole >> k, bytes / (1U << k));
    }
    for (std::uint32_t i = 0; i < extra; ++i) {
        builder.after(received[i], builder.add(rank(i), rank(i) + 1, gathers ? bytes : bytes / n));
    }
}

}  // namespace

extern const CollectiveAlgorithm kHalvingDoublingAlgorithm = {
    "halving-doubling",
    "recursive halving, then doubling, of any number of ranks (Thakur et al., IJHPCA 2005)",
    nullptr,
    [](const CollectiveSpec&, double ranks, double) { return 64 * ranks; },
    [](ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t) {
        require_served(spec, reduces_or_gathers(spec.op), "all-reduce, all-gather and reduce-scatter");
        add_halving_doubling(builder, spec.op, ranks, spec.bytes);
    },
    [](const CollectiveSpec& spec, const GroupLinks& links) {
        if (!reduces_or_gathers(spec.op)) {
            return kNotServed;
        }
        const double whole = std::exp2(std::floor(std::log2(links.ranks)));
        double seconds = 0;
        for (double distance = whole / 2, bytes = spec.bytes / 2; distance >= 1; distance /= 2, bytes /= 2) {
            seconds += links.step(bytes, distance);
        }
        const double rounds = spec.op == CollectiveOp::all_reduce ? 2 : 1;
        return rounds * seconds + (links.ranks > whole ? rounds * links.step(spec.bytes, 1) : 0);
    }};

}  // namespace orrery::collective
