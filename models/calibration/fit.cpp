#include "models/calibration/fit.hpp"

#include "models/calibration/kriging.hpp"
#include "sim/base/error.hpp"
#include "sim/base/math.hpp"
#include "sim/base/random.hpp"

#include <fmt/format.h>
#include <Eigen/Sparse>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace orrery::models {

namespace {

using Matrix = Eigen::SparseMatrix<double>;
using Triplet = Eigen::Triplet<double>;

constexpr double kTieNeighbours = 0.09;  // weight of first against second differences: keeps borders level
constexpr double kLeastCeiling = 0.3;    // below it no row came near the arithmetic's limit
constexpr double kLeastBefore = 0.1;
constexpr double kTileRidge = 0.3;       // pulls the tile terms towards 0
constexpr std::size_t kPriorRows = 600;  // enough to place three constants
constexpr int kRounds = 3;               // of reweighting
constexpr double kHuber = 0.05;          // log errors beyond it count in proportion, not squared
constexpr double kMostPassing = 30;      // times the bytes of passing rows: bounds the search

double log_error(const KernelFit& fit, const MeasuredPoint& one, const KernelRates& rates) {
    return log_pinned(one.seconds / fit.seconds(one.point, rates));
}

// Minimises the mean |log error| of the prior over start and efficiencies, from coarse to fine steps; of a fit that has
// residuals, which are a sibling's, with these.
void fit_prior(KernelFit& fit, const std::vector<MeasuredPoint>& points, const KernelRates& rates) {
    const std::size_t stride = std::max<std::size_t>(1, points.size() / kPriorRows);
    const bool shaped = !fit.values.empty();
    const auto loss = [&](const KernelFit& candidate) {
        double sum = 0;
        for (std::size_t i = 0; i < points.size(); i += stride) {
            const double seconds =
                shaped ? candidate.seconds(points[i].point, rates) : candidate.prior_seconds(points[i].point, rates);
            sum += std::abs(log_pinned(points[i].seconds / seconds));
        }
        return sum;
    };
    double shortest = points.front().seconds;
    for (const MeasuredPoint& one : points) {
        shortest = std::min(shortest, one.seconds);
    }
    ORRERY_ASSERT(shortest > 0);
    KernelFit best = fit;
    double least = 1e300;
    const bool passes =
        std::any_of(points.begin(), points.end(), [](const MeasuredPoint& one) { return one.point.passing > 0; });
    std::vector<double KernelFit::*> members = {&KernelFit::start, &KernelFit::compute_efficiency,
                                                &KernelFit::memory_efficiency};
    if (passes) {
        members.push_back(&KernelFit::passing);
    }
    for (const double compute : {0.4, 0.8}) {
        KernelFit now = fit;
        if (!shaped) {
            now.start = shortest * 0.9;
            now.compute_efficiency = compute;
            now.memory_efficiency = 0.8;
        } else if (compute > 0.4) {
            break;  // starts from the sibling's
        }
        double at = loss(now);
        for (double step = 1.6; step > 1.01; step = std::sqrt(step)) {
            for (bool moved = true; moved;) {
                moved = false;
                for (double KernelFit::*member : members) {
                    for (const double factor : {step, 1 / step}) {
                        KernelFit next = now;
                        next.*member *= factor;
                        if (next.compute_efficiency > 1 || next.memory_efficiency > 1 ||
                            next.compute_efficiency < 1e-4 || next.memory_efficiency < 1e-4 ||
                            next.passing > kMostPassing || next.passing < 1 / kMostPassing) {
                            continue;
                        }
                        const double value = loss(next);
                        if (value < at * (1 - 1e-6)) {
                            now = next;
                            at = value;
                            moved = true;
                        }
                    }
                }
            }
        }
        if (at < least) {
            least = at;
            best = now;
        }
    }
    fit = best;
}

// Distinct sizes of each axis, the first one rounded, thinned until the grid has at most `most` nodes: the size nearest
// to its neighbours (in octaves) on any axis goes first, ends stay.
std::vector<std::vector<double>> make_axes(const KernelFit& fit, const std::vector<MeasuredPoint>& points,
                                           std::size_t most) {
    const std::size_t dimensions = kernel_axes(fit.kind).size();
    std::vector<std::vector<double>> axes(dimensions);
    for (std::size_t d = 0; d < dimensions; ++d) {
        std::set<double> sizes;
        for (const MeasuredPoint& one : points) {
            sizes.insert(d == 0 ? fit.along_first(one.point) : one.point.sizes[d]);
        }
        axes[d].assign(sizes.begin(), sizes.end());
    }
    // Cells below a quarter of an octave hold more noise than shape.
    constexpr double kFinestCell = 0.24;
    const auto nodes = [&] {
        std::size_t product = 1;
        for (const std::vector<double>& axis : axes) {
            product *= axis.size();
        }
        return product;
    };
    while (true) {
        std::size_t axis = dimensions;
        std::size_t index = 0;
        double closest = 1e300;
        for (std::size_t d = 0; d < dimensions; ++d) {
            for (std::size_t i = 1; i + 1 < axes[d].size(); ++i) {
                const double gap = log2_pinned(axes[d][i + 1] / axes[d][i - 1]);
                if (gap < closest) {
                    closest = gap;
                    axis = d;
                    index = i;
                }
            }
        }
        if (axis == dimensions || (nodes() <= most && closest >= 2 * kFinestCell)) {
            return axes;
        }
        axes[axis].erase(axes[axis].begin() + static_cast<std::ptrdiff_t>(index));
    }
}

// Rows of the smoothness penalty: second differences along each axis, and weak first differences.
void add_smoothness(const KernelFit& fit, std::vector<Triplet>& triplets, int& row) {
    const std::vector<std::vector<double>>& axes = fit.axes;
    const bool attention = is_prompt(fit.kind) || fit.kind == KernelKind::decode;
    std::size_t stride = 1;
    std::size_t nodes = 1;
    for (const std::vector<double>& axis : axes) {
        nodes *= axis.size();
    }
    for (std::size_t d = axes.size(); d-- > 0; stride *= axes[d].size()) {
        const std::vector<double>& axis = axes[d];
        // Head dimensions are kernels of their own more than points of a curve.
        const double tie = attention && d == 3 ? 0.1 : 1;
        for (std::size_t node = 0; node < nodes; ++node) {
            const std::size_t i = node / stride % axis.size();
            const int at = static_cast<int>(node);
            const int step = static_cast<int>(stride);
            if (i + 1 < axis.size()) {
                triplets.emplace_back(row, at, -tie * std::sqrt(kTieNeighbours));
                triplets.emplace_back(row, at + step, tie * std::sqrt(kTieNeighbours));
                ++row;
            }
            if (i + 2 < axis.size()) {
                const double h1 = log2_pinned(axis[i + 1] / axis[i]);
                const double h2 = log2_pinned(axis[i + 2] / axis[i + 1]);
                triplets.emplace_back(row, at, tie * 2 * h2 / (h1 + h2));
                triplets.emplace_back(row, at + step, tie * -2);
                triplets.emplace_back(row, at + 2 * step, tie * 2 * h1 / (h1 + h2));
                ++row;
            }
        }
    }
    ORRERY_ASSERT(stride == nodes);
}

// Solves for the nodes and the tile weights, or where there are some, which are a sibling's, for their correction.
void fit_residuals(KernelFit& fit, const std::vector<MeasuredPoint>& points, const KernelRates& rates, int rounds) {
    std::size_t nodes = 1;
    for (const std::vector<double>& axis : fit.axes) {
        nodes *= axis.size();
    }
    const bool tiled = fit.kind == KernelKind::gemm || is_experts(fit.kind);
    const bool shaped = !fit.values.empty();
    const std::size_t unknowns = nodes + (tiled ? kTileTerms : 0);
    std::vector<Triplet> triplets;
    Eigen::VectorXd target(static_cast<Eigen::Index>(points.size()));
    // A unit vector in one node at a time gives that node's weight; asking the query itself keeps the two the same.
    for (std::size_t i = 0; i < points.size(); ++i) {
        const KernelPoint& point = points[i].point;
        std::vector<std::pair<std::size_t, double>> corners = {{0, 1.0}};
        for (std::size_t d = 0; d < fit.axes.size(); ++d) {
            const std::vector<double>& axis = fit.axes[d];
            const double size = std::clamp(d == 0 ? fit.along_first(point) : point.sizes[d], axis.front(), axis.back());
            std::vector<std::pair<std::size_t, double>> next;
            for (const auto& [node, weight] : corners) {
                if (axis.size() == 1) {
                    next.emplace_back(node, weight);
                    continue;
                }
                const auto upper = std::upper_bound(axis.begin() + 1, axis.end() - 1, size);
                const auto cell = static_cast<std::size_t>(upper - axis.begin()) - 1;
                const double f = log2_pinned(size / axis[cell]) / log2_pinned(axis[cell + 1] / axis[cell]);
                next.emplace_back(node * axis.size() + cell, weight * (1 - f));
                next.emplace_back(node * axis.size() + cell + 1, weight * f);
            }
            corners = std::move(next);
        }
        ORRERY_ASSERT(std::abs(std::accumulate(corners.begin(), corners.end(), -1.0,
                                               [](double sum, const auto& one) { return sum + one.second; })) < 1e-9);
        const auto row = static_cast<int>(i);
        for (const auto& [node, weight] : corners) {
            if (weight != 0) {
                triplets.emplace_back(row, static_cast<int>(node), weight);
            }
        }
        if (tiled) {
            const auto terms = tile_terms(fit, point, rates);
            for (std::size_t t = 0; t < terms.size(); ++t) {
                triplets.emplace_back(row, static_cast<int>(nodes + t), terms[t]);
            }
        }
        target[static_cast<Eigen::Index>(i)] =
            shaped ? log_error(fit, points[i], rates) : log_pinned(points[i].seconds / fit.prior_seconds(point, rates));
    }
    const auto columns = static_cast<Eigen::Index>(unknowns);
    Matrix a(static_cast<Eigen::Index>(points.size()), columns);
    a.setFromTriplets(triplets.begin(), triplets.end());
    triplets.clear();
    int penalties = 0;
    add_smoothness(fit, triplets, penalties);
    Matrix s(std::max(1, penalties), columns);
    s.setFromTriplets(triplets.begin(), triplets.end());
    Matrix ridge(columns, columns);
    triplets.clear();
    for (std::size_t i = 0; i < unknowns; ++i) {
        triplets.emplace_back(static_cast<int>(i), static_cast<int>(i), i < nodes ? 1e-6 : kTileRidge);
    }
    ridge.setFromTriplets(triplets.begin(), triplets.end());
    const Matrix penalty = fit.smoothness * Matrix(s.transpose() * s) + ridge;
    // Least squares, then rows far off count less: Huber's loss by reweighting.
    Eigen::VectorXd weights = Eigen::VectorXd::Ones(target.size());
    Eigen::VectorXd solution;
    Eigen::SimplicialLDLT<Matrix> solver;
    for (int round = 0; round < rounds; ++round) {
        const Matrix weighted = weights.asDiagonal() * a;
        const Matrix normal = Matrix(a.transpose() * weighted) + penalty;
        if (round == 0) {
            solver.analyzePattern(normal);
        }
        solver.factorize(normal);
        ORRERY_ASSERT(solver.info() == Eigen::Success);
        solution = solver.solve(weighted.transpose() * target);
        const Eigen::VectorXd error = target - a * solution;
        for (Eigen::Index i = 0; i < error.size(); ++i) {
            weights[i] = std::min(1.0, kHuber / std::max(1e-9, std::abs(error[i])));
        }
    }
    fit.values.resize(nodes);
    for (std::size_t i = 0; i < unknowns; ++i) {
        // As the file holds them, so that a fit read back gives the same times.
        const double value = solution[static_cast<Eigen::Index>(i)];
        if (i < nodes) {
            fit.values[i] = std::round((fit.values[i] + value) * 1e3) * 1e-3;
        } else {
            fit.tile_weights[i - nodes] = std::round((fit.tile_weights[i - nodes] + value) * 1e4) * 1e-4;
        }
    }
    fit.prepare();
}

// How much of what was read is still in a cache of this capacity when a sweep reads it again: all of what fits, and nothing of what
// exceeds it by a third, because each then drives out what comes next.
double resident(double bytes, double capacity) {
    constexpr double kGone = 4.0 / 3;
    return capacity > 0 ? std::clamp((kGone - bytes / capacity) / (kGone - 1), 0.0, 1.0) : 0;
}

// The sizes in octaves, and what else kernels of attention go by: queries of all heads; in decoding the keys, which are split
// among the units, and by choice whether the cache holds them, as far as reading takes the time (in some octaves).
Kriging::Place place_of(const KernelFit& fit, const std::array<double, 4>& sizes, const KernelRates& rates,
                        std::size_t& coordinates) {
    Kriging::Place place{};
    const std::size_t axes = kernel_axes(fit.kind).size();
    for (std::size_t d = 0; d < axes; ++d) {
        place[d] = log2_pinned(std::max(sizes[d], 1e-9));
    }
    coordinates = axes;
    if (fit.kind == KernelKind::decode) {
        place[coordinates++] = place[0] - place[1] - place[3];
        if (fit.surface == KernelFit::Surface::kriging_by_cache) {
            constexpr double kOctaves = 4;
            const double reading = sizes[0] / (rates.bandwidth * fit.memory_efficiency);
            place[coordinates++] = kOctaves * reading / (fit.start + reading) * resident(sizes[0], rates.cache);
        }
    } else if (fit.kind != KernelKind::gemm) {
        place[coordinates++] = place[0] + place[1];
    }
    ORRERY_ASSERT(coordinates <= place.size());
    return place;
}

// Solves for the nodes by kriging.
void fit_surface(KernelFit& fit, const std::vector<MeasuredPoint>& points, const KernelRates& rates) {
    std::size_t coordinates = 0;
    std::vector<Kriging::Row> rows;
    rows.reserve(points.size());
    for (const MeasuredPoint& one : points) {
        Kriging::Row row;
        std::array<double, 4> sizes = one.point.sizes;
        sizes[0] = fit.along_first(one.point);
        row.at = place_of(fit, sizes, rates, coordinates);
        row.residual = log_pinned(one.seconds / fit.prior_seconds(one.point, rates));
        rows.push_back(row);
    }
    const Kriging kriging(std::move(rows), coordinates);
    std::size_t nodes = 1;
    for (const std::vector<double>& axis : fit.axes) {
        nodes *= axis.size();
    }
    fit.values.resize(nodes);
    for (std::size_t node = 0; node < nodes; ++node) {
        std::array<double, 4> sizes = {1, 1, 1, 1};
        std::size_t rest = node;
        for (std::size_t d = fit.axes.size(); d-- > 0; rest /= fit.axes[d].size()) {
            sizes[d] = fit.axes[d][rest % fit.axes[d].size()];
        }
        fit.values[node] = std::round(kriging.at(place_of(fit, sizes, rates, coordinates)) * 1e3) * 1e-3;
    }
    fit.prepare();
}

KernelFit fit_as(KernelFit fit, const std::vector<MeasuredPoint>& points, const KernelRates& rates,
                 const FitOptions& options, bool last = true) {
    fit_prior(fit, points, rates);
    if (!fit.values.empty()) {
        fit_residuals(fit, points, rates, 1);
        return fit;
    }
    if (fit.surface != KernelFit::Surface::spline) {
        fit.axes = make_axes(fit, points, options.most_kriged_nodes);
        fit_surface(fit, points, rates);
        return fit;
    }
    fit.axes = make_axes(fit, points, options.most_nodes);
    // Kernels of products have outliers; attention's steps between kernels are no noise.
    const bool robust = last && (fit.kind == KernelKind::gemm || is_experts(fit.kind));
    fit_residuals(fit, points, rates, robust ? kRounds : 1);
    return fit;
}

std::vector<MeasuredPoint> choose(const std::vector<MeasuredPoint>& points, const std::vector<char>& chosen,
                                  char which) {
    std::vector<MeasuredPoint> out;
    for (std::size_t i = 0; i < points.size(); ++i) {
        if (chosen[i] == which) {
            out.push_back(points[i]);
        }
    }
    return out;
}

// Three folds of at most some thousand rows; the fold of a row is hashed from its place.
class CrossValidation {
  public:
    CrossValidation(const std::vector<MeasuredPoint>& points, const KernelRates& rates, const FitOptions& options)
        : rates_(rates), options_(options) {
        constexpr std::size_t kMostRows = 2400;
        const std::size_t stride = std::max<std::size_t>(1, points.size() / kMostRows);
        for (std::size_t i = 0; i < points.size(); i += stride) {
            sample_.push_back(points[i]);
            fold_.push_back(static_cast<char>(mix64(fold_.size()) % 3));
        }
    }

    /// Sum of |log error| over the rows, each held back once.
    [[nodiscard]] double error(const KernelFit& candidate) const {
        double error = 0;
        for (char held = 0; held < 3; ++held) {
            std::vector<char> in(fold_.size());
            std::transform(fold_.begin(), fold_.end(), in.begin(), [&](char f) { return f == held ? 1 : 0; });
            const KernelFit trial = fit_as(candidate, choose(sample_, in, 0), rates_, options_, false);
            for (const MeasuredPoint& one : choose(sample_, in, 1)) {
                error += std::abs(log_error(trial, one, rates_));
            }
        }
        return error;
    }

  private:
    const KernelRates& rates_;
    const FitOptions& options_;
    std::vector<MeasuredPoint> sample_;
    std::vector<char> fold_;
};

// How a library may step through its kernels along the rows of a product.
struct Steps {
    std::int64_t rounding;
    bool powers;
};
const std::vector<Steps> kSteps = {{1, false}, {64, false}, {128, false}, {256, true}};
const std::vector<Steps> kExpertSteps = {{1, false}, {64, false}, {128, false}, {128, true}};
const std::vector<Steps> kNoSteps = {{1, false}};

// The priors, steps and smoothness that cross-validation decides between. Attention is kriged: on 5 % of the rows of eight tables
// that was as good as the best of three splines or better by up to two fifths. Products and experts, which have outliers, gained on
// some tables what they lost on others; a few products scattered over all sizes leave most cells of a grid empty, and may be kriged.
constexpr std::size_t kFewProducts = 400;
std::vector<KernelFit::Surface> surfaces(KernelKind kind, std::size_t rows) {
    if (kind == KernelKind::decode) {
        return {KernelFit::Surface::kriging, KernelFit::Surface::kriging_by_cache};
    }
    if (kind == KernelKind::gemm && rows < kFewProducts) {
        return {KernelFit::Surface::spline, KernelFit::Surface::kriging};
    }
    return {is_attention(kind) ? KernelFit::Surface::kriging : KernelFit::Surface::spline};
}

std::vector<KernelFit> own_candidates(KernelFit base, std::size_t rows) {
    std::vector<KernelFit> out;
    const bool product = base.kind == KernelKind::gemm;
    const bool attention = is_attention(base.kind);
    std::vector<KernelFit::Prior> priors = {KernelFit::Prior::roofline,
                                            product ? KernelFit::Prior::waves : KernelFit::Prior::serial};
    if (product && rows < kFewProducts) {
        priors.push_back(KernelFit::Prior::serial);
    }
    for (const auto prior : priors) {
        for (const Steps& steps : product ? kSteps : is_experts(base.kind) ? kExpertSteps : kNoSteps) {
            for (const double smoothness :
                 product || attention ? std::vector{base.smoothness} : std::vector{0.01, 0.1, 1.0}) {
                base.prior = prior;
                base.rounding = steps.rounding;
                base.powers = steps.powers;
                base.smoothness = smoothness;
                for (const KernelFit::Surface surface : surfaces(base.kind, rows)) {
                    base.surface = surface;
                    out.push_back(base);
                }
            }
        }
    }
    return out;
}

// A sibling's shape; the correction of a shape is smoother than the shape.
std::vector<KernelFit> sibling_candidates(const KernelFit& sibling) {
    std::vector<KernelFit> out;
    KernelFit shaped = sibling;
    shaped.meta = {{kSiblingKey, "yes"}};
    shaped.held_back.clear();
    shaped.ceiling = 1;
    shaped.beyond = KernelFit::Beyond::border;
    for (const double smoothness : {0.1, 1.0, 10.0}) {
        shaped.smoothness = smoothness;
        out.push_back(shaped);
    }
    return out;
}

}  // namespace

KernelFit fit_kernel(const std::vector<MeasuredPoint>& points, const KernelRates& rates, const FitOptions& options) {
    ORRERY_ASSERT(points.size() >= 8);
    KernelFit base;
    base.kind = points.front().point.kind;
    base.format = points.front().point.format;
    if (options.like != nullptr) {
        base.prior = options.like->prior;
        base.rounding = options.like->rounding;
        base.powers = options.like->powers;
        base.smoothness = options.like->smoothness;
        base.surface = options.like->surface;
    }
    base.beyond = options.beyond;
    std::vector<KernelFit> candidates =
        options.cross_validate ? own_candidates(base, points.size()) : std::vector{base};
    if (options.choose_surface) {
        const std::vector<KernelFit::Surface> offered = surfaces(base.kind, points.size());
        candidates.assign(offered.size(), base);
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            candidates[i].surface = offered[i];
        }
    }
    if (options.sibling != nullptr) {
        const std::vector<KernelFit> shaped = sibling_candidates(*options.sibling);
        candidates.insert(candidates.end(), shaped.begin(), shaped.end());
    }
    if (candidates.size() > 1) {
        const CrossValidation folds(points, rates, options);
        std::vector<double> errors;
        for (const KernelFit& candidate : candidates) {
            errors.push_back(folds.error(candidate));
        }
        const auto least = std::min_element(errors.begin(), errors.end());
        candidates = {candidates[static_cast<std::size_t>(least - errors.begin())]};
    }
    KernelFit fit = fit_as(candidates.front(), points, rates, options);
    fit.rows = static_cast<std::int64_t>(points.size());
    fit.ceiling = 0;
    for (const MeasuredPoint& one : points) {
        // The largest of many differences is the one with the largest error.
        if (one.before <= kLeastBefore) {
            fit.ceiling = std::max(fit.ceiling, one.point.flops / one.seconds / rates.flops);
        }
    }
    // Kernels bound by memory say nothing of the arithmetic.
    fit.ceiling = fit.ceiling > kLeastCeiling ? std::min(1.0, fit.ceiling) : 1;
    return fit;
}

std::string beats_peak(const MeasuredPoint& measured, const KernelRates& rates) {
    const double rate = measured.point.flops / measured.seconds;
    if (rate > rates.flops) {
        return fmt::format("{:.4g} TFLOP/s, above the peak of {:.4g}", rate * 1e-12, rates.flops * 1e-12);
    }
    // Operands may stay in the cache between repetitions: only what exceeds it must come from memory.
    const double bandwidth = (measured.point.bytes - rates.cache) / measured.seconds;
    if (bandwidth > rates.bandwidth) {
        return fmt::format("{:.4g} GB/s beyond what fits into the cache, above the memory's {:.4g}", bandwidth * 1e-9,
                           rates.bandwidth * 1e-9);
    }
    return {};
}

HeldBack errors_on(const KernelFit& fit, const std::vector<MeasuredPoint>& points, const KernelRates& rates,
                   double* log_spread, double* log_bias) {
    HeldBack out;
    if (points.empty()) {
        return out;
    }
    std::vector<double> errors;
    double sum = 0;
    double squares = 0;
    for (const MeasuredPoint& one : points) {
        errors.push_back(std::abs(fit.seconds(one.point, rates) / one.seconds - 1));
        const double log = log_error(fit, one, rates);
        sum += log;
        squares += log * log;
    }
    const auto n = static_cast<double>(points.size());
    std::sort(errors.begin(), errors.end());
    out.rows = static_cast<std::int64_t>(points.size());
    out.mape = std::accumulate(errors.begin(), errors.end(), 0.0) / n;
    out.p95 = errors[std::min(errors.size() - 1, static_cast<std::size_t>(0.95 * n))];
    if (log_spread != nullptr) {
        *log_spread = std::sqrt(squares / n);
    }
    if (log_bias != nullptr) {
        *log_bias = sum / n;
    }
    return out;
}

std::vector<char> spread_points(const std::vector<MeasuredPoint>& points, double fraction) {
    const auto wanted = static_cast<std::size_t>(fraction * static_cast<double>(points.size()));
    const KernelKind kind = points.front().point.kind;
    const bool attention = is_prompt(kind) || kind == KernelKind::decode;
    const std::size_t dimensions = kernel_axes(kind).size();
    std::vector<std::array<double, 4>> places(points.size());
    for (std::size_t i = 0; i < points.size(); ++i) {
        for (std::size_t d = 0; d < dimensions; ++d) {
            // Head dimensions are kernels of their own: each gets its share of the points.
            const double weight = attention && d == 3 ? 4 : 1;
            places[i][d] = weight * log2_pinned(std::max(points[i].point.sizes[d], 1e-9));
        }
    }
    std::vector<char> chosen(points.size());
    std::vector<double> distance(points.size(), 1e300);
    std::size_t next = 0;
    for (std::size_t taken = 0; taken < wanted; ++taken) {
        chosen[next] = 1;
        const std::array<double, 4> from = places[next];
        double farthest = -1;
        for (std::size_t i = 0; i < points.size(); ++i) {
            double squares = 0;
            for (std::size_t d = 0; d < dimensions; ++d) {
                const double along = places[i][d] - from[d];
                squares += along * along;
            }
            distance[i] = chosen[i] != 0 ? -1 : std::min(distance[i], squares);
            if (distance[i] > farthest) {
                farthest = distance[i];
                next = i;
            }
        }
    }
    ORRERY_ASSERT(std::count(chosen.begin(), chosen.end(), 1) == static_cast<std::ptrdiff_t>(wanted));
    return chosen;
}

}  // namespace orrery::models
