#pragma once
// The calibrated compute model: measured kernel times, interpolated as a correction of a roofline.
//
// Claims: a GEMM's time is prior * exp(r), where the prior is launch + max(FLOPs / peak, bytes / memory rate) and r
// is interpolated linearly in log2 of (m, n, k) on a grid of measured kernels; outside the grid r is that of its
// border. Large GEMMs run at the sustained rate of a power-limited device instead of the burst rate of the sweep.
// Fused attention is interpolated in the same way in log2 of (length, heads) of measured causal forward kernels;
// the backward pass has 2.5 times the work at 63/73 of the efficiency.
// Scope: the devices with a folder in models/data/kernels; others fall back on models/roofline.hpp.
// Limits: one library version a device; transposed layouts cost the same; batched GEMMs (the unfused attention of
// 2021) are priced by the roofline.
// Sources: the header line of each table (ai-dynamo/aiconfigurator, measured 2025-2026); the form won the trials in
// the calibration notes (5 % on held-back H200 GEMMs). Efficiency of attention backward against forward: Dao,
// "FlashAttention-2", arXiv:2307.08691, section 4.1 (up to 73 % forward and 63 % backward of the A100's peak).
// Validated by tests/models/cost_model_test.cpp and `orrery validate training`.

#include "models/roofline.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace orrery {

/// Times of one kernel family on a rectilinear grid of three sizes, as log(time / prior).
class ResidualGrid {
  public:
    /// Reads a CSV of `a,b,c,us`; '#' starts a comment. `prior` gives seconds for (a, b, c).
    /// Throws ConfigError with file and line for malformed rows.
    template <class Prior>
    ResidualGrid(const std::string& path, const Prior& prior) : ResidualGrid(load(path), path) {
        for (Row& row : rows_) {
            row.residual = log_ratio(row.us * 1e-6, prior(row.a, row.b, row.c));
        }
        build();
    }
    /// Interpolated log(time / prior).
    [[nodiscard]] double residual(double a, double b, double c) const;
    [[nodiscard]] std::size_t size() const { return rows_.size(); }

  private:
    struct Row {
        double a, b, c, us, residual;
    };
    ResidualGrid(std::vector<Row> rows, std::string path) : rows_(std::move(rows)), path_(std::move(path)) {}
    [[nodiscard]] static std::vector<Row> load(const std::string& path);
    [[nodiscard]] static double log_ratio(double time, double prior);
    void build();

    std::vector<Row> rows_;
    std::string path_;
    std::array<std::vector<double>, 3> axes_;  ///< log2 of the sizes, ascending
    std::vector<double> values_;               ///< row-major over the axes
};

class KernelTables final : public CostModel {
  public:
    /// `directory` holds models/data/kernels. Precondition: device.kernels is not empty.
    KernelTables(const DeviceSpec& device, const std::string& directory);
    [[nodiscard]] Seconds seconds(const Gemm& gemm) const override;
    [[nodiscard]] Seconds seconds(const Attention& attention) const override;
    [[nodiscard]] Seconds seconds(const Streaming& streaming) const override { return roofline_.seconds(streaming); }

  private:
    [[nodiscard]] double prior(double m, double n, double k, Precision precision) const;

    DeviceSpec device_;
    Roofline roofline_;
    std::unique_ptr<ResidualGrid> gemm_;
    std::unique_ptr<ResidualGrid> gemm_fp8_;
    std::unique_ptr<ResidualGrid> attention_;
};

/// The model a device gets for `compute: {model: calibrated}`: its tables, or the roofline where there are none.
[[nodiscard]] std::unique_ptr<CostModel> make_calibrated_model(const DeviceSpec& device, const std::string& directory);

}  // namespace orrery
