#pragma once
// The fitted time of one kind of kernel on one device.
//
// Claims: t = prior * exp(r). The prior is t0 + max(FLOPs / (e_c P), bytes / (e_m BW)), or the same with its compute
// term counted in whole tiles and whole waves over the compute units (tiles of 64 x 64 to 128 x 256, split along k in
// 1 or 4, the fastest taken), or with the sum of the two terms instead of the larger (phases that do not overlap). r is
// multilinear in log2 of the sizes on a rectilinear grid, plus, for products, a linear term in how much each of four tile
// shapes pads and how much its last wave idles, and for experts in whether 16 divides their width. The nodes of attention are kriged
// along the axes and the number of keys, others a smooth grid (models/calibration). Beyond the grid it does
// as cross-validation chose, see `Beyond`. The first size (rows of a product or of an expert) may be rounded up to
// multiples of 64 or more, and below that to powers of two, as libraries choose their kernels; rows of experts whose tokens
// choose independently are spread as an exponential law's. Choices of experts on other devices weigh a fitted share of what
// those of this one do. P, BW and units are those of the device that is asked for, so that a fit carries over to a sibling
// of the same family.
// No time is below FLOPs over the best rate among the rows, nor below what exceeds the cache / BW.
// Scope: one library of kernels, running alone, times as measured in short bursts.
// Source: the form won trials on public kernel tables (5 % on held-back H200 GEMMs, 3 to 5 % on a fifth of decode attention held
// back on seven devices).
// Validated by `orrery validate compute` (held-back shapes) and tests/models/kernel_fit_test.cpp.

#include "models/kernel_point.hpp"
#include "sim/base/namespaces.hpp"

#include <cstdint>
#include <map>

namespace orrery::models {

/// What a device brings to a fit.
struct KernelRates {
    double flops = 0;      ///< P, FLOP/s dense peak in the format of the arithmetic
    double bandwidth = 0;  ///< BW, B/s vendor figure
    double cache = 0;      ///< B
    double units = 1;      ///< SMs or CUs
};
[[nodiscard]] KernelRates kernel_rates(const DeviceSpec& device, Precision precision);

/// Error over held-back rows.
struct HeldBack {
    std::int64_t rows = 0;
    double mape = 0;  ///< mean |predicted / measured - 1|
    double p95 = 0;
};

/// What a kernel that narrows a product's activations takes in the library, see models/calibration/quantisation.hpp.
struct QuantisationLaw {
    double row = 0;    ///< s
    double value = 0;  ///< s
    [[nodiscard]] double seconds(double rows, double depth) const { return rows * (row + depth * value); }
};

/// Number of linear terms in tile padding and wave idling.
inline constexpr std::size_t kTileTerms = 8;

class KernelFit {
  public:
    enum class Prior { roofline, waves, serial };
    /// How calibration found the nodes: a smooth surface by regularised least squares, or kriging; in decoding also with a
    /// coordinate that says whether the cache holds the keys.
    enum class Surface { spline, kriging, kriging_by_cache };
    /// Beyond the grid: r of the border; r halved for each octave; for products, r of a product with as many rows and
    /// columns in all (m past its end goes to n, which serves tiles alike); or further work, which grows
    /// with the first size, at the rate of the last two octaves within (a kernel short of its best rate at the border).
    enum class Beyond { border, fade, shift, slope };

    struct Estimate {
        double seconds = 0;
        double spread = 0;  ///< that within the grid, growing outside it
    };
    /// About 100 ns.
    [[nodiscard]] Estimate estimate(const KernelPoint& point, const KernelRates& rates) const;
    [[nodiscard]] double seconds(const KernelPoint& point, const KernelRates& rates) const {
        return estimate(point, rates).seconds;
    }
    /// The prior alone, at the sizes as they are rounded.
    [[nodiscard]] double prior_seconds(const KernelPoint& point, const KernelRates& rates) const;
    /// The first size as libraries round it up; the mean of rounded sizes where the point's own are spread about their mean.
    [[nodiscard]] double rounded(const KernelPoint& point) const;
    /// The first size as it lies on the grid: of a product, as rounded.
    [[nodiscard]] double along_first(const KernelPoint& point) const {
        return kind == KernelKind::gemm ? rounded(point) : point.sizes[0];
    }

    // The fit is plain data: calibration fills it in, and the file format holds all of it.
    KernelKind kind = KernelKind::gemm;
    KernelFormat format = KernelFormat::bf16;
    std::map<std::string, std::string> meta;  ///< device, source, date, library, licence
    Prior prior = Prior::roofline;
    Surface surface = Surface::spline;
    double start = 0;               ///< t0 in s
    double compute_efficiency = 1;  ///< e_c
    double memory_efficiency = 1;   ///< e_m
    double passing = 1;             ///< share of a point's passing bytes that the library moves
    double ceiling = 1;             ///< best share of the peak among the rows: predictions do not pass it
    std::int64_t rounding = 1;      ///< sizes of the first axis above it count as the next multiple of it
    bool powers = false;  ///< those up to `rounding` as the next power of two, from 16: kernels chosen by such steps
    Beyond beyond = Beyond::border;
    double smoothness = 0.03;               ///< weight of second differences against rows, as cross-validation chose
    std::vector<std::vector<double>> axes;  ///< sizes, ascending, one list an axis
    std::vector<double> values;             ///< r at the nodes, row-major over the axes
    std::array<double, kTileTerms> tile_weights{};
    QuantisationLaw quantisation;  ///< of the rows, which were cleared of it; zero: they had none, or it was not fitted
    double spread = 0;             ///< standard deviation of log(measured / predicted) within the grid
    double systematic = 0;         ///< the part that shapes which differ in their first size only share
    double spread_larger = 0;      ///< spread at up to two octaves beyond the grid
    std::int64_t rows = 0;         ///< measured rows fitted on
    std::int64_t refused = 0;      ///< rows that beat the device's peaks
    std::map<std::string, HeldBack> held_back;  ///< by split, times of 20 us and more; "short": below

    /// Call after the axes or values changed: prepares the query. Precondition: sizes agree.
    void prepare();

  private:
    /// Where a point lies in log2 of the axes, as the grid sees it.
    struct Place {
        std::array<double, 4> at{};
        double outside = 0;  ///< octaves, the largest over the axes
        double past = 0;     ///< octaves beyond the end of the first axis
        double fade = 1;
    };
    [[nodiscard]] Place place(const KernelPoint& point) const;
    [[nodiscard]] double residual(const KernelPoint& point, const KernelRates& rates, const Place& place) const;
    std::vector<std::vector<double>> log_axes_;
};

/// The linear terms of a point: of products in tiles and waves,
/// of experts in their width.
[[nodiscard]] std::array<double, kTileTerms> tile_terms(const KernelFit& fit, const KernelPoint& point,
                                                        const KernelRates& rates);

/// Text of a fit, and back. Throws ConfigError with every problem found, each with its line.
[[nodiscard]] std::string format_fit(const KernelFit& fit);
[[nodiscard]] KernelFit parse_fit(const std::string& text, const std::string& name);
[[nodiscard]] KernelFit load_fit(const std::string& path);

}  // namespace orrery::models
