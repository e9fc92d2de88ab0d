#include "sim/device/power.hpp"

#include "sim/base/error.hpp"
#include "sim/device/device.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::device {

namespace {

constexpr double kPico = 1e-12;
constexpr double kStreamingPower = 0.8;  // of the limit (H200: 578 of 700 W, te42kyfo/gpu-benches@1c36d50)
constexpr double kIdlePower = 0.12;      // of the limit (H100, H200: 70 to 80 of 700 W)

// The levels that a board's power moves between, in W, and the 16-bit rate at which products reach theirs.
struct PowerLevels {
    double idle, matrix, streaming, full_rate;
};

PowerLevels power_levels(const DeviceSpec& spec) {
    const double limit = spec.tdp.value;
    PowerLevels levels{};
    levels.idle = idle_power(spec);
    levels.matrix = spec.matrix_power.value > 0 ? spec.matrix_power.value : limit;
    levels.streaming = spec.memory_power.value > 0 ? spec.memory_power.value : kStreamingPower * limit;
    // Products reach their power from the knee on: above it the clock gives way instead.
    levels.full_rate =
        spec.power_knee.value > 0 ? spec.power_knee.value * spec.flops_bf16.value : best_flops(spec, Precision::bf16);
    return levels;
}

double memory_rate(const DeviceSpec& spec) {
    return spec.memory_bandwidth.value * spec.memory_efficiency.value;
}

// By the law: `active`, `flop`: what is above idle, over the same at the usual clock.
double energy_by_law(const DeviceSpec& spec, const DeviceWork& work, double active, double flop) {
    const double idle = idle_power(spec);
    const double busy = std::min(work.busy_seconds, work.seconds);
    double bytes = work.bytes;
    if (bytes < 0) {
        bytes = std::max(0.0, busy - work.flops / best_flops(spec, Precision::bf16)) * memory_rate(spec);
    }
    const double above = std::max(0.0, spec.active_power.value - idle) * active * busy +
                         flop * energy_of_flops(spec, work.flops) + energy_of_bytes(spec, bytes);
    return idle * work.seconds + std::min(above, std::max(0.0, board_limit(spec) - idle) * busy);
}

}  // namespace

double energy_of_flops(const DeviceSpec& spec, double flops) {
    return spec.energy_per_flop.value * kPico * flops;
}

double energy_of_bytes(const DeviceSpec& spec, double bytes) {
    return spec.energy_per_byte.value * kPico * bytes;
}

bool has_power_law(const DeviceSpec& spec) {
    return spec.active_power.value + spec.energy_per_flop.value + spec.energy_per_byte.value > 0;
}

bool knows_power(const DeviceSpec& spec) {
    return spec.tdp.value > 0 && (has_power_law(spec) || (spec.idle_power.value > 0 &&
                                                          (spec.matrix_power.value + spec.memory_power.value > 0)));
}

double idle_power(const DeviceSpec& spec) {
    return spec.idle_power.value > 0 ? spec.idle_power.value : kIdlePower * spec.tdp.value;
}

double board_limit(const DeviceSpec& spec) {
    return spec.power_limit.value > 0 ? std::min(spec.power_limit.value, spec.tdp.value) : spec.tdp.value;
}

double power_of(const DeviceSpec& spec, const Cost& cost) {
    const PowerLevels levels = power_levels(spec);
    const double seconds = cost.seconds.value();
    if (seconds <= 0 || spec.tdp.value <= 0) {
        return levels.idle;
    }
    if (has_power_law(spec)) {
        return energy_by_law(spec, {seconds, seconds, cost.flops, cost.bytes}, 1, 1) / seconds;
    }
    ORRERY_ASSERT(levels.full_rate > 0);
    const double matrix = levels.matrix - levels.idle;
    const double memory = levels.streaming - levels.idle;
    const double compute = std::min(1.0, cost.flops / seconds / levels.full_rate);
    const double streaming = std::min(1.0, cost.bytes / seconds / memory_rate(spec));
    return std::min(spec.tdp.value, levels.idle + std::max(compute * matrix, streaming * memory) +
                                        std::min(compute * matrix, streaming * memory) * 0.5);
}

double energy_of(const DeviceSpec& spec, const Cost& cost) {
    return power_of(spec, cost) * cost.seconds.value();
}

double energy_of(const DeviceSpec& spec, const DeviceWork& work) {
    return energy_of(spec, work, 1).value;
}

Bounded energy_of(const DeviceSpec& spec, const DeviceWork& work, double clock) {
    ORRERY_ASSERT(clock > 0);
    const double squared = clock * clock;
    const double cubed = squared * clock;
    Bounded out;
    if (has_power_law(spec)) {
        out = {energy_by_law(spec, work, cubed, squared), energy_by_law(spec, work, squared, clock),
               energy_by_law(spec, work, clock, 1)};
    } else {
        const PowerLevels levels = power_levels(spec);
        const double busy = std::min(work.busy_seconds, work.seconds);
        const double matrix = std::min(busy, work.flops / (clock * levels.full_rate));
        // `products`, `streaming`: power above idle over that at the usual clock.
        const auto energy = [&](double products, double streaming) {
            const auto above = [&](double level, double factor) {
                return std::min(level * factor, std::max(level, spec.tdp.value - levels.idle));
            };
            return levels.idle * work.seconds + above(levels.matrix - levels.idle, products) * matrix +
                   above(levels.streaming - levels.idle, streaming) * (busy - matrix);
        };
        out = {energy(cubed, cubed), energy(squared, clock * std::sqrt(clock)), energy(clock, 1)};
    }
    if (clock > 1) {
        std::swap(out.low, out.high);
    }
    ORRERY_ASSERT(out.low <= out.value * (1 + 1e-9) && out.value <= out.high * (1 + 1e-9));
    return out;
}

}  // namespace orrery::device
