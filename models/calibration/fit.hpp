#pragma once
// Fits a kernel model to measured points (Eigen): prior by a pattern search, residuals by regularised least squares or kriging.
//
// The nodes of products and experts minimise sum (r - grid)^2 + smoothness * (second differences)^2 over the rows, so that scattered
// rows do as well as rows on the grid and empty cells are filled from their neighbours; outliers count in proportion (Huber). Those
// of attention are kriged along the axes, the number of keys and what the cache holds (kriging.hpp). Fewer than 400 products may be kriged
// too, and have a prior that adds its terms: most cells of their grid are empty. Which prior, which surface, which rounding and
// which smoothness is decided by cross-validation inside the rows given. Deterministic.

#include "models/kernel_fit.hpp"
#include "sim/base/namespaces.hpp"

#include <functional>

namespace orrery::models {

/// A measured kernel.
struct MeasuredPoint {
    KernelPoint point;
    double seconds = 0;
    int line = 0;       ///< of its file, for messages
    double power = 0;   ///< W; 0: not known
    double before = 0;  ///< share of its row that a kernel before it took
};

struct FitOptions {
    std::size_t most_nodes = 2000;
    std::size_t most_kriged_nodes = 6000;
    bool cross_validate = true;  ///< false: the choices of `like`
    const KernelFit* like = nullptr;
    bool choose_surface =
        false;  ///< with `like`: all but how decoding is kriged, which depends on how dense the rows are
    KernelFit::Beyond beyond = KernelFit::Beyond::border;
    /// Fit of the same kernels on another device of the family: its residuals with constants of this device and a smooth
    /// correction are one more candidate. The result's `meta` has kSiblingKey where cross-validation takes it.
    const KernelFit* sibling = nullptr;
};
inline constexpr const char* kSiblingKey = "sparse_sibling";

/// Fits the points, all of one kind and format. Precondition: at least 8 points.
[[nodiscard]] KernelFit fit_kernel(const std::vector<MeasuredPoint>& points, const KernelRates& rates,
                                   const FitOptions& options);

/// Why a measured point is impossible, or empty: more FLOP/s than the peak, or bytes beyond the cache faster than memory.
[[nodiscard]] std::string beats_peak(const MeasuredPoint& measured, const KernelRates& rates);

/// Errors of a fit on points. `log_spread` and `log_bias`, where wanted, get the standard deviation and the mean of
/// log(measured / predicted).
[[nodiscard]] HeldBack errors_on(const KernelFit& fit, const std::vector<MeasuredPoint>& points,
                                 const KernelRates& rates, double* log_spread = nullptr, double* log_bias = nullptr);

/// At most `fraction` of the points, spread over the sizes: each next one is the farthest from those taken, in octaves (the
/// maximin design of Johnson, Moore and Ylvisaker, J. Stat. Plan. Inference 26, 1990). Looks at sizes only, never at times.
[[nodiscard]] std::vector<char> spread_points(const std::vector<MeasuredPoint>& points, double fraction);

/// Fits on held-in rows of each split and fills in `held_back`, `spread`, `systematic` and `spread_larger` of a final fit
/// on all rows. Splits: sparse (5 % of the rows, spread over the sizes), random (80 %), larger (fitted on the smaller 60 % of
/// the first size), layer (unseen combinations of all sizes but the first), short (sparse, times below 20 us). Tables below
/// 2,000 rows have `layer` only, one left out at a time.
[[nodiscard]] KernelFit calibrate_kernel(const std::vector<MeasuredPoint>& points, const KernelRates& rates);

/// The sparse split anew, with a sibling's fit at hand: where cross-validation inside the sparse rows prefers it, `fit` gets
/// `held_back["sibling"]` and the sibling's name under kSiblingKey; its coefficients stay those of its own rows.
void judge_sibling(KernelFit& fit, const std::vector<MeasuredPoint>& points, const KernelRates& rates,
                   const KernelFit& sibling, const std::string& name);

}  // namespace orrery::models
