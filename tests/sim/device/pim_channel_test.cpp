#include "sim/device/pim_channel.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

namespace orrery {

namespace {

// HBM2 at 1 GHz as NeuPIMs configures it.
PimTiming hbm2() {
    PimTiming t;
    t.activate = 14;
    t.precharge = 14;
    t.row_active = 34;
    t.column = 1;
    t.to_precharge = 5;
    t.window = 30;
    t.windows = 4;
    t.result = 20;
    t.input = 96;
    t.turnaround = 3;
    return t;
}

/// A run of equal tiles on one channel.
struct Tiles {
    std::int64_t tiles, commands, sums, inputs;
};

// Cycles until the last row is closed, command by command.
std::int64_t simulate_commands(const PimTiming& t, const Tiles& work) {
    REQUIRE((work.sums > 0 && work.commands >= work.sums));
    std::int64_t now = 0;                  // when the rows are closed and the next command may come
    std::int64_t last_window = -t.window;  // when the last group of banks was activated
    std::int64_t next_refresh = t.refresh_interval;
    std::int64_t written = 0;  // inputs
    for (std::int64_t tile = 0; tile < work.tiles; ++tile) {
        while (t.refresh_interval > 0 && now >= next_refresh) {
            now += t.refresh;
            next_refresh += t.refresh_interval;
        }
        // As many inputs as this tile's share of them.
        const std::int64_t due = (tile + 1) * work.inputs / work.tiles;
        const std::int64_t wanted =
            tile == 0 ? std::max<std::int64_t>(due, work.inputs > 0 ? 1 : 0) : std::max(due, written);
        if (wanted > written) {
            now += t.turnaround + (wanted - written) * t.input;
            written = wanted;
        }
        std::int64_t opened = 0;
        for (std::int64_t window = 0; window < t.windows; ++window) {
            now = std::max(now, last_window + t.window);
            last_window = now;
            opened = window == 0 ? now : opened;
        }
        std::int64_t column = now + t.activate;  // when the next multiplying command may come
        std::int64_t last = column;
        for (std::int64_t sum = 0; sum < work.sums; ++sum) {
            const std::int64_t commands = work.commands * (sum + 1) / work.sums - work.commands * sum / work.sums;
            for (std::int64_t command = 0; command < commands; ++command) {
                last = column;
                column += t.column;
            }
            column += t.result;
            last += t.result;
        }
        now = std::max(last + t.to_precharge, opened + t.row_active) + t.precharge;
    }
    return now;
}

}  // namespace

TEST_CASE("PIM channel: a tile takes its activations, commands, results and closing, one after another") {
    const PimTiming t = hbm2();
    CHECK(simulate_commands(t, {1, 8, 1, 0}) == 3 * 30 + 14 + 7 + 20 + 5 + 14);
    CHECK(simulate_commands(t, {1, 8, 2, 0}) == 3 * 30 + 14 + 7 + 2 * 20 + 5 + 14);
    CHECK(simulate_commands(t, {1, 8, 1, 1}) == 3 + 96 + 3 * 30 + 14 + 7 + 20 + 5 + 14);
    PimTiming at_once = t;
    at_once.windows = 1;
    at_once.result = 0;
    CHECK(simulate_commands(at_once, {1, 2, 1, 0}) == 34 + 14);  // a row stays open for tRAS
}

TEST_CASE("PIM channel: the closed form is within 2 % of the commands, with refresh, inputs and windows") {
    for (const std::int64_t windows : {1, 2, 4, 8}) {
        for (const std::int64_t commands : {8, 32, 64}) {
            for (const std::int64_t sums : {1, 4}) {
                for (const std::int64_t inputs : {0, 100, 400}) {
                    PimTiming t = hbm2();
                    t.windows = windows;
                    t.refresh = 260;
                    t.refresh_interval = 3900;
                    const auto exact = static_cast<double>(simulate_commands(t, {400, commands, sums, inputs}));
                    const double closed = tile_cycles(t, 400, static_cast<double>(commands), static_cast<double>(sums),
                                                      static_cast<double>(inputs));
                    CAPTURE(windows);
                    CAPTURE(commands);
                    CAPTURE(inputs);
                    CHECK(std::abs(closed / exact - 1) < 0.02);
                }
            }
        }
    }
}

TEST_CASE("PIM channel: grouped queries take a pass a query head, so that sharing keys saves nothing in the banks") {
    PimSpec pim;
    pim.channels = 32;
    pim.banks = 32;
    pim.row = {1024, "spec", ""};
    pim.access = {32, "spec", ""};
    pim.clock = {1e9, "spec", ""};
    pim.activate = pim.precharge = {14e-9, "spec", ""};
    pim.column = {1e-9, "spec", ""};
    const auto cycles = [&](double heads, double keys) {
        const PimAttention parts = attention_cycles(pim, heads, keys, 128, 2);
        return parts.logits + parts.values;
    };
    const double one = cycles(1, 4096);
    CHECK(cycles(8, 4096) == doctest::Approx(8 * one));
    // Twice the keys take twice the time.
    CHECK(cycles(1, 8192) == doctest::Approx(2 * one).epsilon(0.01));
    CHECK(cycles(0, 4096) == 0);
    // 128 tokens take a quarter of a row of 512: as many rows as 512 take, or a quarter of them where dimensions share one.
    const double alone = attention_cycles(pim, 1, 128, 128, 2).values;
    pim.packed_values = true;
    CHECK(attention_cycles(pim, 1, 128, 128, 2).values < 0.5 * alone);
}

}  // namespace orrery
