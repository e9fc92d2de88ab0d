#pragma once
// A measured table on a rectilinear grid of three sizes, read as a correction of a formula (collectives in one node).

#include <array>
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

}  // namespace orrery
