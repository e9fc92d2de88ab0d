// Splits of measured rows into held-in and held-back, and what the held-back ones say.

#include "models/calibration/fit.hpp"

#include "sim/base/error.hpp"
#include "sim/base/math.hpp"
#include "sim/base/random.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery::models {

namespace {

constexpr double kShort = 20e-6;      // s; shorter kernels are reported apart
constexpr double kSparse = 0.05;      // of the rows, for the sparse split
constexpr std::size_t kLarge = 2000;  // rows from which a table has all splits
constexpr std::size_t kScored = 200;  // and from which it has the sparse one beside leaving out layers

struct Split {
    std::vector<MeasuredPoint> in, back;
};

Split split_by(const std::vector<MeasuredPoint>& points, const std::vector<char>& in) {
    Split split;
    ORRERY_ASSERT(in.size() == points.size());
    for (std::size_t i = 0; i < points.size(); ++i) {
        (in[i] != 0 ? split.in : split.back).push_back(points[i]);
    }
    return split;
}

// Combinations of all sizes but the first ("layers"), numbered in order of appearance.
std::vector<std::size_t> layers_of(const std::vector<MeasuredPoint>& points, std::size_t& count) {
    std::map<std::array<double, 3>, std::size_t> numbers;
    std::vector<std::size_t> out;
    for (const MeasuredPoint& one : points) {
        const auto& s = one.point.sizes;
        out.push_back(numbers.emplace(std::array<double, 3>{s[1], s[2], s[3]}, numbers.size()).first->second);
    }
    count = numbers.size();
    return out;
}

std::vector<MeasuredPoint> of_length(const std::vector<MeasuredPoint>& points, bool below) {
    std::vector<MeasuredPoint> out;
    for (const MeasuredPoint& one : points) {
        if ((one.seconds < kShort) == below) {
            out.push_back(one);
        }
    }
    return out;
}

// The spread that layers share: the standard deviation of the layers' mean log errors.
double shared_spread(const KernelFit& fit, const std::vector<MeasuredPoint>& points, const KernelRates& rates) {
    std::size_t count = 0;
    const std::vector<std::size_t> layers = layers_of(points, count);
    std::vector<std::vector<MeasuredPoint>> by_layer(count);
    for (std::size_t i = 0; i < points.size(); ++i) {
        by_layer[layers[i]].push_back(points[i]);
    }
    double squares = 0;
    for (const auto& layer : by_layer) {
        double bias = 0;
        (void)errors_on(fit, layer, rates, nullptr, &bias);
        squares += bias * bias;
    }
    return std::sqrt(squares / static_cast<double>(std::max<std::size_t>(1, count)));
}

std::vector<char> smaller_part(const std::vector<MeasuredPoint>& points, double fraction) {
    ORRERY_ASSERT(!points.empty() && fraction < 1);
    std::vector<double> firsts;
    firsts.reserve(points.size());
    for (const MeasuredPoint& one : points) {
        firsts.push_back(one.point.sizes[0]);
    }
    std::sort(firsts.begin(), firsts.end());
    const double cut =
        std::max(firsts[static_cast<std::size_t>(fraction * static_cast<double>(firsts.size()))], firsts.back() / 8);
    std::vector<char> in;
    in.reserve(points.size());
    for (const MeasuredPoint& one : points) {
        in.push_back(one.point.sizes[0] <= cut ? 1 : 0);
    }
    return in;
}

// What did best beyond the grid on the larger of these points, fitted on the smaller.
KernelFit::Beyond best_beyond(const std::vector<MeasuredPoint>& points, const KernelRates& rates,
                              const KernelFit& like) {
    const Split split = split_by(points, smaller_part(points, 0.6));
    if (split.in.size() < 8 || split.back.empty()) {
        return KernelFit::Beyond::border;
    }
    FitOptions options;
    options.cross_validate = false;
    options.like = &like;
    KernelFit fit = fit_kernel(split.in, rates, options);
    double least = 1e300;
    KernelFit::Beyond best = KernelFit::Beyond::border;
    for (const auto beyond :
         {KernelFit::Beyond::border, KernelFit::Beyond::fade, KernelFit::Beyond::shift, KernelFit::Beyond::slope}) {
        // Prompts near their best rate early: what their last octaves still gain is noise.
        const bool prompt = is_prompt(fit.kind) || fit.kind == KernelKind::latent_prefill;
        if ((beyond == KernelFit::Beyond::shift && fit.kind != KernelKind::gemm) ||
            (beyond == KernelFit::Beyond::slope && prompt)) {
            continue;
        }
        fit.beyond = beyond;
        const double error = errors_on(fit, split.back, rates).mape;
        if (error < least) {
            least = error;
            best = beyond;
        }
    }
    return best;
}

}  // namespace

KernelFit calibrate_kernel(const std::vector<MeasuredPoint>& points, const KernelRates& rates) {
    std::map<std::string, HeldBack> held_back;
    double spread = 0;
    double systematic = 0;
    double larger = 0;
    std::size_t layer_count = 0;
    const std::vector<std::size_t> layers = layers_of(points, layer_count);
    const auto judge = [&](const char* name, const std::vector<char>& in, const FitOptions& options) {
        const Split split = split_by(points, in);
        if (split.in.size() < 8 || split.back.empty()) {
            return KernelFit();
        }
        KernelFit fit = fit_kernel(split.in, rates, options);
        const auto long_enough = of_length(split.back, false);
        if (!long_enough.empty()) {
            held_back[name] = errors_on(fit, long_enough, rates);
        }
        return fit;
    };
    const FitOptions free;
    std::vector<char> in(points.size());
    if (points.size() >= kLarge) {
        in = spread_points(points, kSparse);
        const KernelFit sparse = judge("sparse", in, free);
        ORRERY_ASSERT(!sparse.values.empty());
        const Split split = split_by(points, in);
        const auto brief = of_length(split.back, true);
        if (!brief.empty()) {
            held_back["short"] = errors_on(sparse, brief, rates);
        }
        (void)errors_on(sparse, split.back, rates, &spread);
        systematic = shared_spread(sparse, split.back, rates);
        FitOptions chosen;
        chosen.cross_validate = false;
        chosen.like = &sparse;
        // Rows are in the order of the file; hashing their place takes every fifth at random.
        for (std::size_t i = 0; i < in.size(); ++i) {
            in[i] = mix64(i) % 5 != 0 ? 1 : 0;
        }
        chosen.choose_surface = true;
        KernelFit dense = judge("random", in, chosen);
        chosen.choose_surface = false;
        chosen.like = &dense;
        in = smaller_part(points, 0.6);
        chosen.beyond = best_beyond(split_by(points, in).in, rates, dense);
        KernelFit beyond = judge("larger", in, chosen);
        const Split outer = split_by(points, in);
        if (!outer.back.empty() && !beyond.values.empty()) {
            (void)errors_on(beyond, outer.back, rates, &larger);
        }
        for (std::size_t i = 0; i < in.size(); ++i) {
            in[i] = mix64(layers[i]) % 4 != 0 ? 1 : 0;
        }
        (void)judge("layer", in, chosen);
        FitOptions last = chosen;
        KernelFit fit = fit_kernel(points, rates, last);
        fit.held_back = held_back;
        fit.spread = spread;
        fit.systematic = systematic;
        fit.spread_larger = std::max(larger, spread);
        return fit;
    }
    if (points.size() >= kScored) {
        (void)judge("sparse", spread_points(points, kSparse), free);
    }
    KernelFit fit = fit_kernel(points, rates, free);
    FitOptions chosen;
    chosen.cross_validate = false;
    chosen.like = &fit;
    // Each layer in turn is left out; up to a dozen of them, evenly spaced.
    constexpr std::size_t kMostLeftOut = 12;
    std::vector<double> errors;
    double squares = 0;
    double biases = 0;
    std::size_t rows = 0;
    std::size_t turns = 0;
    const auto leave_out = [&](const auto& is_out) {
        for (std::size_t i = 0; i < in.size(); ++i) {
            in[i] = is_out(i) ? 0 : 1;
        }
        const Split split = split_by(points, in);
        if (split.in.size() < 8 || split.back.empty()) {
            return;
        }
        const KernelFit without = fit_kernel(split.in, rates, chosen);
        double log_spread = 0;
        double bias = 0;
        (void)errors_on(without, split.back, rates, &log_spread, &bias);
        for (const MeasuredPoint& one : of_length(split.back, false)) {
            errors.push_back(std::abs(without.seconds(one.point, rates) / one.seconds - 1));
        }
        squares += log_spread * log_spread * static_cast<double>(split.back.size());
        biases += bias * bias;
        rows += split.back.size();
        ++turns;
    };
    if (layer_count <= 1) {  // one axis only: every fifth row
        leave_out([](std::size_t i) { return i % 5 == 2; });
    } else {
        const std::size_t stride = std::max<std::size_t>(1, layer_count / kMostLeftOut);
        for (std::size_t layer = 0; layer < layer_count; layer += stride) {
            leave_out([&](std::size_t i) { return layers[i] == layer; });
        }
    }
    if (!errors.empty()) {
        std::sort(errors.begin(), errors.end());
        HeldBack error;
        error.rows = static_cast<std::int64_t>(errors.size());
        for (const double one : errors) {
            error.mape += one / static_cast<double>(errors.size());
        }
        error.p95 = errors[std::min(errors.size() - 1, errors.size() * 95 / 100)];
        held_back["layer"] = error;
    }
    fit.held_back = held_back;
    fit.spread = rows > 0 ? std::sqrt(squares / static_cast<double>(rows)) : 0;
    fit.systematic = turns > 0 ? std::sqrt(biases / static_cast<double>(turns)) : 0;
    fit.spread_larger = 1.5 * fit.spread;
    return fit;
}

void judge_sibling(KernelFit& fit, const std::vector<MeasuredPoint>& points, const KernelRates& rates,
                   const KernelFit& sibling, const std::string& name) {
    if (points.size() < kScored) {
        return;
    }
    const Split split = split_by(points, spread_points(points, kSparse));
    FitOptions options;
    options.sibling = &sibling;
    const KernelFit sparse = fit_kernel(split.in, rates, options);
    const auto long_enough = of_length(split.back, false);
    if (sparse.meta.contains(kSiblingKey) && !long_enough.empty()) {
        fit.held_back["sibling"] = errors_on(sparse, long_enough, rates);
        fit.meta[kSiblingKey] = name;
    }
}

}  // namespace orrery::models
