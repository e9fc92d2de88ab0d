#pragma once
// Ordinary kriging of scattered residuals: the surface through measured rows that is most likely under a covariance.
//
// Claims: the covariance of two residuals is s^2 (1 + a) exp(-a), a = sqrt(3) |scaled distance| (Matern, smoothness 3/2), with a length
// for each coordinate, plus the noise of a row; lengths and noise maximise the likelihood of up to 240 rows, of more that of ten
// blocks of 80 neighbours, held near 3 octaves by a weak normal prior on their logarithms; the mean is constant and unknown. Up to
// 400 rows all of them bear on each prediction, beyond that the nearest 96.
// Scope: residuals in log time over log2 of sizes. Limits: one stationary covariance over a whole table.
// Source: Rasmussen and Williams, "Gaussian Processes for Machine Learning", MIT Press 2006, sections 2.2, 4.2 and 5.4.
// Validated by tests/models/kriging_test.cpp and the held-back rows of `orrery validate compute`.

#include "sim/base/namespaces.hpp"

#include <array>
#include <cstddef>
#include <vector>

namespace orrery::models {

class Kriging {
  public:
    static constexpr std::size_t kMostCoordinates = 6;
    using Place = std::array<double, kMostCoordinates>;
    struct Row {
        Place at{};           ///< octaves; coordinates beyond `coordinates` are not looked at
        double residual = 0;  ///< log(measured / prior)
    };

    /// Precondition: at least two rows, and at most kMostCoordinates coordinates.
    Kriging(std::vector<Row> rows, std::size_t coordinates);

    [[nodiscard]] double at(const Place& place) const;
    /// Lengths in octaves, one for each coordinate.
    [[nodiscard]] const Place& lengths() const { return lengths_; }

  private:
    [[nodiscard]] double squares(const Place& a, const Place& b) const;
    [[nodiscard]] double covariance(const Place& a, const Place& b) const;
    void choose_lengths();
    void solve_all();
    [[nodiscard]] double at_by_nearest(const Place& place) const;

    std::vector<Row> rows_;
    std::size_t coordinates_;
    Place lengths_{};
    Place inverse_{};      ///< 1 / lengths
    double noise_ = 0.05;  ///< of a row, over the variance of the surface
    double mean_ = 0;
    std::vector<double> weights_;  ///< of all rows where these are few, else empty
};

}  // namespace orrery::models
