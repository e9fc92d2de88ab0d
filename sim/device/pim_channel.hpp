#pragma once
// Time of matrix-vector products in the banks of a memory channel, in closed form.
//
// Claims: the banks of a channel work in step. A tile is a row in each bank: all banks are activated (no more than `window_banks` in an
// activation window), multiplying commands follow at the column cadence, sums of some commands each are read out, the rows are
// closed. Inputs are written beside the units before the tiles that take them. A refresh waits until the rows are closed and then
// holds the channel. The closed form is the period of a tile, which keeps each of these distances, and
// refresh stretches it by tREFI / (tREFI - tRFC).
// A product is priced a vector at a time, as the units multiply each row with one input.
// Scope: products in the banks alone; memory reads of the same channel wait where there is one row buffer and go on beside it where
// there are two (models/unit_model.hpp).
// Limits: one command a cycle is never the bound; all channels are alike.
// Sources: JESD235D (HBM) and JESD250C (GDDR6) for the distances; Heo et al., "NeuPIMs", ASPLOS 2024, sections 4 and 5 (tiles, group
// activation under tFAW, dual row buffers); Park et al., "AttAcc!", ASPLOS 2024, section 5; Lee et al., "GDDR6-AiM", ISSCC 2022.
// Validated by tests/sim/device/pim_channel_test.cpp (within 2 % of a simulation command by command) and `orrery validate devices`.

#include "sim/device/compute_unit.hpp"

#include <cstdint>

namespace orrery::device {

/// The distances in cycles of the command clock.
struct PimTiming {
    std::int64_t activate = 0, precharge = 0, row_active = 0, column = 1, to_precharge = 0;
    std::int64_t window = 0, windows = 1;  ///< tFAW, and how many of them it takes to activate all banks
    std::int64_t result = 0, input = 0, turnaround = 0, refresh = 0, refresh_interval = 0;
};
[[nodiscard]] PimTiming timing_of(const PimSpec& pim);

/// Cycles until the last row of equal tiles on one channel is closed. `commands`: multiplying commands of a tile; `sums`: of a tile
/// that are read out, each after an equal part of its commands; `inputs`: rows of inputs written, spread evenly over the tiles. Tiles
/// and inputs may be parts of one.
[[nodiscard]] double tile_cycles(const PimTiming& timing, double tiles, double commands, double sums, double inputs);

/// Attention of one new token in the banks of a channel: logits from cached keys and sums over cached values, for `heads` query
/// heads that each look at `keys` tokens, in cycles, and its two parts. Keys: a row holds the keys of as many tokens of a head as fit; values: a row holds
/// one dimension of a head for as many tokens as fit. Each query head passes over its keys on its own, also where several share them
/// (grouped queries), because the units multiply a row with one input.
/// Where rows of keys hold the heads of a token (`KeyRows::heads`), each visit opens the row for its head's part alone.
struct PimAttention {
    double logits = 0, values = 0;
};
[[nodiscard]] PimAttention attention_cycles(const PimSpec& pim, double heads, double keys, double head_dim,
                                            double element_bytes);

/// Cycles of `m` vectors of `k` elements times weights of `n` x `k`, one vector after another. Outputs are dealt to all banks; an
/// output lies in as many rows of its bank as it needs, or shares one. Either a part of the vector stays beside the units while all
/// outputs take it and their sums are read, or each output takes the parts of the vector one by one: the faster order.
[[nodiscard]] double product_cycles(const PimSpec& pim, double m, double n, double k, double element_bytes);

}  // namespace orrery::device
