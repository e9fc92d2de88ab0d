#include "workloads/collective/algorithms/algorithm.hpp"

#include <fmt/format.h>

#include <bit>

namespace orrery {

namespace {

void add_halving_doubling(ScheduleBuilder& builder, CollectiveOp op, std::uint32_t n, double bytes) {
    const auto rounds = static_cast<std::uint32_t>(std::countr_zero(n));
    std::vector<std::uint32_t> received(n, kNoMessage);
    std::vector<std::uint32_t> sent(n, kNoMessage);
    const auto round = [&](std::uint32_t distance, double size) {
        std::vector<std::uint32_t> message(n);
        for (std::uint32_t i = 0; i < n; ++i) {
            message[i] = builder.add(i, i ^ distance, size);
            if (received[i] != kNoMessage) {
                builder.after(received[i], message[i]);
                builder.after(sent[i], message[i]);
            }
        }
        for (std::uint32_t i = 0; i < n; ++i) {
            sent[i] = message[i];
            received[i] = message[i ^ distance];
        }
    };
    if (op == CollectiveOp::all_reduce || op == CollectiveOp::reduce_scatter) {
        for (std::uint32_t k = 1; k <= rounds; ++k) {
            round(n >> k, bytes / (1U << k));
        }
    }
    if (op == CollectiveOp::all_reduce || op == CollectiveOp::all_gather) {
        for (std::uint32_t k = rounds; k >= 1; --k) {
            round(n >> k, bytes / (1U << k));
        }
    }
}

}  // namespace

extern const CollectiveAlgorithm kHalvingDoublingAlgorithm = {
    "halving-doubling", "recursive halving, then doubling (Thakur et al., IJHPCA 2005)", nullptr,
    [](const CollectiveSpec&, double ranks, double) { return 64 * ranks; },
    [](ScheduleBuilder& builder, const CollectiveSpec& spec, std::uint32_t ranks, std::uint32_t) {
        if (!std::has_single_bit(ranks)) {
            throw InfeasibleError(fmt::format("halving-doubling needs a power of two ranks, not {}", ranks));
        }
        if (spec.op == CollectiveOp::all_to_all || spec.op == CollectiveOp::send_recv) {
            require_all_reduce(spec);
        }
        add_halving_doubling(builder, spec.op, ranks, spec.bytes);
    }};

}  // namespace orrery
