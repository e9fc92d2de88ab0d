#include "sim/device/pim_channel.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::device {

PimTiming timing_of(const PimSpec& pim) {
    const auto cycles = [&](const Sourced<double>& time) {
        return static_cast<std::int64_t>(std::llround(time.value * pim.clock.value));
    };
    PimTiming out;
    out.activate = cycles(pim.activate);
    out.precharge = cycles(pim.precharge);
    out.row_active = cycles(pim.row_active);
    out.column = std::max<std::int64_t>(1, cycles(pim.column));
    out.to_precharge = cycles(pim.to_precharge);
    out.window = cycles(pim.activation_window);
    out.windows = pim.window_banks > 0 ? (pim.banks + pim.window_banks - 1) / pim.window_banks : 1;
    out.result = cycles(pim.result);
    out.input = cycles(pim.input);
    out.turnaround = cycles(pim.turnaround);
    out.refresh = cycles(pim.refresh);
    out.refresh_interval = cycles(pim.refresh_interval);
    return out;
}

double tile_cycles(const PimTiming& t, double tiles, double commands, double sums, double inputs) {
    const auto c = [](std::int64_t cycles) { return static_cast<double>(cycles); };
    ORRERY_ASSERT(t.windows >= 1 && tiles > 0 && commands > 0);
    const double opening = c(t.window) * c(t.windows - 1);
    const double open = opening + c(t.activate) + (commands - 1) * c(t.column) + sums * c(t.result) + c(t.to_precharge);
    const double tile = std::max({open, c(t.row_active), 0.0}) + c(t.precharge);
    // Two tiles' activations are a window apart as well.
    const double period = t.windows > 1 ? std::max(tile, c(t.window) * c(t.windows)) : tile;
    const double busy = tiles * period + inputs * c(t.input) + std::min(tiles, inputs) * c(t.turnaround);
    const bool refreshes = t.refresh_interval > t.refresh;
    return refreshes ? busy * c(t.refresh_interval) / c(t.refresh_interval - t.refresh) : busy;
}

PimAttention attention_cycles(const PimSpec& pim, double heads, double keys, double head_dim, double element_bytes) {
    if (heads <= 0 || keys <= 0) {
        return {};
    }
    const PimTiming timing = timing_of(pim);
    const auto banks = static_cast<double>(pim.banks);
    const double row = std::floor(pim.row.value / element_bytes);           // elements
    const double access = std::max(1.0, pim.access.value / element_bytes);  // elements
    // Logits: a token of a head takes head_dim elements of a row and is one sum.
    const double parts = std::max(1.0, std::ceil(head_dim / row));
    // Tokens of a head in a row that is opened for it.
    const double held = pim.key_rows == KeyRows::heads ? 1 : std::max(1.0, std::floor(row / head_dim));
    const double key_tiles = heads * std::ceil(keys / banks) * parts / held;
    const double sums = parts > 1 ? 1 : held;
    const double key_commands = sums * std::ceil(std::min(head_dim, row) / access);
    const double logits = tile_cycles(timing, key_tiles, key_commands, sums, heads * std::max(1.0, parts) / held);
    // Sums over values: the banks hold different dimensions, a row as many tokens of one as fit, or of several where there are few.
    const double rows = std::ceil(keys / row);
    const double shared = pim.packed_values ? std::max(1.0, std::floor(row / keys)) : 1;
    const double value_tiles = heads * std::ceil(head_dim / banks) * rows / shared;
    const double value_commands = shared * std::ceil(keys / rows / access);
    const double sums_of_values = tile_cycles(timing, value_tiles, value_commands, shared, heads * rows);
    return {logits, sums_of_values};
}

double product_cycles(const PimSpec& pim, double m, double n, double k, double element_bytes) {
    const PimTiming timing = timing_of(pim);
    const double row = std::floor(pim.row.value / element_bytes);           // elements
    const double access = std::max(1.0, pim.access.value / element_bytes);  // elements
    const double outputs = std::ceil(n / static_cast<double>(pim.channels * pim.banks));
    ORRERY_ASSERT(row >= 1 && outputs >= 1);
    const double parts = std::ceil(k / row);
    if (parts <= 1) {
        const double held = std::max(1.0, std::floor(row / k));
        const double tiles = std::ceil(outputs / held);
        const double sums = outputs / tiles;
        return m * tile_cycles(timing, tiles, sums * std::ceil(k / access), sums, 1);
    }
    const double commands = std::ceil(k / parts / access);
    const double by_part = tile_cycles(timing, outputs * parts, commands, 1, parts);
    const double by_output = tile_cycles(timing, outputs * parts, commands, 1 / parts, outputs * parts);
    return m * std::min(by_part, by_output);
}

}  // namespace orrery::device
