#include "models/kernel_fit.hpp"

#include "models/near_math.hpp"
#include "sim/base/error.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::models {

namespace {

struct Tile {
    double rows, columns;
    double efficiency;  ///< of the peak inside a tile, over that of the largest
};
// Shapes of library kernels. The smaller re-read operands more often and issue fewer instructions a load: efficiencies as
// in NVIDIA's guide to matrix multiplication performance (figure of tile sizes), rounded.
constexpr double kLog2 = 0.6931471805599453;
constexpr double kMostResidual = 50;   // beyond any measured: damaged fits stay finite
constexpr double kSlopeOctaves = 2;    // long enough to average steps between kernels
constexpr double kLeastGrowth = 0.02;  // of the spread for each octave outside the grid
constexpr std::array<Tile, 5> kTiles = {
    {{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.93}, {64, 128, 0.8}, {64, 64, 0.6}}};
constexpr std::array<Tile, kTileTerms / 2> kTermTiles = {{{64, 64, 1}, {128, 128, 1}, {128, 256, 1}, {256, 128, 1}}};

// Upwards, for sizes: positive and far below 2^53.
double ceil_size(double x) {
    const auto whole = static_cast<double>(static_cast<std::int64_t>(x));
    return whole < x ? whole + 1 : whole;
}

double wave_seconds(const KernelPoint& point, double rate, double units) {
    double best = 1e300;
    for (const Tile& tile : kTiles) {
        const double tiles = ceil_size(point.rows / tile.rows) * ceil_size(point.columns / tile.columns);
        const double tile_flops = 2 * tile.rows * tile.columns * std::max(point.depth, 64.0);
        for (const double split : {1.0, 4.0}) {
            const double waves = ceil_size(tiles * split / units);
            best = std::min(best, waves * tile_flops / split * units / (rate * tile.efficiency));
            if (tiles >= units) {
                break;  // enough tiles: nothing to gain from splitting along k
            }
        }
    }
    return best;
}

}  // namespace

KernelRates kernel_rates(const DeviceSpec& device, Precision precision) {
    KernelRates rates;
    rates.flops = device.matrix_flops(precision);
    if (rates.flops <= 0) {
        rates.flops = device.flops_bf16.value;  // emulated: expanded to 16 bits
    }
    rates.bandwidth = device.memory_bandwidth.value;
    rates.cache = device.cache.value;
    rates.units = static_cast<double>(std::max<std::int64_t>(1, device.compute_units));
    return rates;
}

std::array<double, kTileTerms> tile_terms(const KernelFit& fit, const KernelPoint& point, const KernelRates& rates) {
    std::array<double, kTileTerms> terms{};
    const bool experts = is_experts(point.kind);
    constexpr double kVector = 16;  // widths of experts that it does not divide are loaded value by value
    if (experts ? point.sizes[2] / kVector == ceil_size(point.sizes[2] / kVector) : point.rows <= 0) {
        return terms;
    }
    // Tiles matter as far as arithmetic does.
    const double compute = point.flops / (rates.flops * fit.compute_efficiency);
    const double memory = point.bytes / (rates.bandwidth * fit.memory_efficiency);
    const double share = compute / (compute + memory);
    if (experts) {
        terms[0] = 1;
        terms[1] = share;
        return terms;
    }
    for (std::size_t i = 0; i < kTermTiles.size(); ++i) {
        const Tile& tile = kTermTiles[i];
        const double tiles = ceil_size(point.rows / tile.rows) * ceil_size(point.columns / tile.columns);
        const double waves = tiles / rates.units;
        // Shares of the last wave that idles and of the tiles that are padding, between 0 and 1.
        terms[2 * i] = share * (1 - waves / ceil_size(waves));
        terms[2 * i + 1] = share * (1 - point.rows * point.columns / (tiles * tile.rows * tile.columns));
    }
    return terms;
}

void KernelFit::prepare() {
    log_axes_.clear();
    std::size_t nodes = 1;
    for (const std::vector<double>& axis : axes) {
        ORRERY_ASSERT(!axis.empty() && std::is_sorted(axis.begin(), axis.end()));
        nodes *= axis.size();
        std::vector<double>& logs = log_axes_.emplace_back();
        for (const double size : axis) {
            logs.push_back(near_log2(size));
        }
    }
    ORRERY_ASSERT(axes.size() <= 4 && values.size() == nodes);
}

double KernelFit::rounded(const KernelPoint& point) const {
    const double size = point.sizes[0];
    auto step = static_cast<double>(rounding);
    if (size <= step && powers) {
        constexpr double kSmallestTile = 16;
        if (size <= kSmallestTile / 2 && !point.spread) {
            return size;
        }
        double power = kSmallestTile;
        while (power < size) {
            power *= 2;
        }
        step = power;
    } else if (size <= step && kind == KernelKind::gemm) {
        return size;
    }
    if (point.spread && step > 1) {
        // The mean of exponentially spread sizes, each rounded up.
        return step / (1 - near_exp(-step / size));
    }
    return ceil_size(size / step) * step;
}

double KernelFit::prior_seconds(const KernelPoint& point, const KernelRates& rates) const {
    ORRERY_ASSERT(rates.flops > 0 && rates.bandwidth > 0);
    const double grown = rounded(point) / point.sizes[0];
    const double rate = rates.flops * compute_efficiency;
    const bool tiled = prior == Prior::waves && point.rows > 0;
    const double compute = tiled ? wave_seconds(point, rate, rates.units) : point.flops * grown / rate;
    const double memory = (point.bytes + passing * point.passing) / (rates.bandwidth * memory_efficiency);
    return start + (prior == Prior::serial ? compute + memory : std::max(compute, memory));
}

KernelFit::Place KernelFit::place(const KernelPoint& point) const {
    Place place;
    double moved = 0;  // octaves of m past its end
    for (std::size_t d = 0; d < log_axes_.size(); ++d) {
        const std::vector<double>& axis = log_axes_[d];
        double x = near_log2(std::max(d == 0 ? along_first(point) : point.sizes[d], 1e-9));
        const double past = std::max(axis.front() - x, x - axis.back());
        place.outside = std::max(place.outside, past);
        if (d == 0 && x > axis.back()) {
            place.past = past;
            moved = beyond == Beyond::shift ? past : 0;
            place.fade = beyond == Beyond::fade ? near_exp(-kLog2 * past) : 1;
        } else if (d == 1) {
            x += moved;
        }
        place.at[d] = std::min(std::max(x, axis.front()), axis.back());
    }
    return place;
}

double KernelFit::residual(const KernelPoint& point, const KernelRates& rates, const Place& place) const {
    std::array<std::size_t, 16> node{};  // indices of the corners
    std::array<double, 16> weight{};
    weight[0] = 1;
    std::size_t corners = 1;
    for (std::size_t d = 0; d < log_axes_.size(); ++d) {
        const std::vector<double>& axis = log_axes_[d];
        if (axis.size() == 1) {
            continue;
        }
        const auto upper = std::upper_bound(axis.begin() + 1, axis.end() - 1, place.at[d]);
        const auto cell = static_cast<std::size_t>(upper - axis.begin()) - 1;
        const double f = (place.at[d] - axis[cell]) / (axis[cell + 1] - axis[cell]);
        for (std::size_t c = 0; c < corners; ++c) {
            node[c] = node[c] * axis.size() + cell;
            node[corners + c] = node[c] + 1;
            weight[corners + c] = weight[c] * f;
            weight[c] *= 1 - f;
        }
        corners *= 2;
    }
    double sum = 0;
    for (std::size_t c = 0; c < corners; ++c) {
        ORRERY_ASSERT(node[c] < values.size());
        sum += weight[c] * values[node[c]];
    }
    if (point.rows > 0 || is_experts(kind)) {
        const auto terms = tile_terms(*this, point, rates);
        for (std::size_t i = 0; i < terms.size(); ++i) {
            sum += tile_weights[i] * terms[i];
        }
    }
    return sum * place.fade;
}

KernelFit::Estimate KernelFit::estimate(const KernelPoint& point, const KernelRates& rates) const {
    const Place where = place(point);
    const double prior_time = prior_seconds(point, rates);
    const double at_border = near_exp(std::clamp(residual(point, rates, where), -kMostResidual, kMostResidual));
    double time = prior_time * at_border;
    if (beyond == Beyond::slope && where.past > 0) {
        Place inside = where;
        inside.at[0] = std::max(inside.at[0] - kSlopeOctaves, log_axes_[0].front());
        const double at_inside = near_exp(std::clamp(residual(point, rates, inside), -kMostResidual, kMostResidual));
        const double work = prior_time - start;
        const double border = work * near_exp(-kLog2 * where.past);
        const double before = border * near_exp(-kLog2 * (where.at[0] - inside.at[0]));
        const double rise = (start + border) * at_border - (start + before) * at_inside;
        const double slope = border > before ? rise / (border - before) : at_border;
        time = (start + border) * at_border + (work - border) * std::clamp(slope, at_border / 2, at_border * 2);
    }
    const double least = std::max(point.flops / (rates.flops * ceiling), (point.bytes - rates.cache) / rates.bandwidth);
    // An octave outside costs what held-back larger shapes showed; further out it grows in proportion.
    const double wider = where.outside > 0 ? std::max(kLeastGrowth, spread_larger - spread) * where.outside : 0;
    ORRERY_ASSERT(prior_time > 0 && time > 0);
    return {std::max(time, least), spread + wider};
}

}  // namespace orrery::models
