#include "models/calibration/kriging.hpp"

#include "sim/base/error.hpp"
#include "sim/base/math.hpp"
#include "sim/base/random.hpp"

#include <Eigen/Dense>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace orrery::models {

namespace {

constexpr std::size_t kLikelihoodRows =
    240;  // in one block; of more rows, blocks of neighbours as predictions see them
constexpr std::size_t kLikelihoodBlocks = 10;
constexpr std::size_t kBlockRows = 80;
constexpr std::size_t kAllRows = 400;
constexpr std::size_t kNearest = 96;
constexpr double kUsualLength = 3;      // octaves
constexpr double kLengthWeight = 0.02;  // of the prior on log lengths: (log length - log 3)^2 each
constexpr double kLogLengthMost = 5, kLogLengthLeast = -2;
constexpr double kLogNoiseMost = 1, kLogNoiseLeast = -9;
constexpr double kJitter = 1e-8;

// Matern 3/2 of a squared scaled distance.
double matern(double squares) {
    const double a = std::sqrt(3 * squares);
    return (1 + a) * exp_pinned(-a);
}

using Block = std::vector<std::size_t>;

// All rows where these are few, else some blocks of the nearest rows in octaves about rows that are hashed from their places.
std::vector<Block> blocks_of(const std::vector<Kriging::Row>& rows, std::size_t coordinates) {
    std::vector<std::size_t> all(rows.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    if (rows.size() <= kLikelihoodRows) {
        return {all};
    }
    std::vector<Block> out;
    for (std::size_t block = 0; block < kLikelihoodBlocks; ++block) {
        const Kriging::Place& about = rows[mix64(block) % rows.size()].at;
        const auto squares = [&](std::size_t row) {
            double sum = 0;
            for (std::size_t d = 0; d < coordinates; ++d) {
                sum += (rows[row].at[d] - about[d]) * (rows[row].at[d] - about[d]);
            }
            return std::pair(sum, row);
        };
        std::nth_element(all.begin(), all.begin() + kBlockRows, all.end(),
                         [&](std::size_t a, std::size_t b) { return squares(a) < squares(b); });
        out.emplace_back(all.begin(), all.begin() + kBlockRows);
    }
    return out;
}

// What a block of rows adds to the likelihood.
struct Misfit {
    double rows = 0;
    double squares = 0;      ///< of what the covariance does not expect, over the variance
    double determinant = 0;  ///< half the logarithm of the covariance's
};

class BlockLikelihood {
  public:
    BlockLikelihood(const std::vector<Kriging::Row>& rows, const Block& block, std::size_t coordinates)
        : coordinates_(coordinates), count_(static_cast<Eigen::Index>(block.size())), target_(count_) {
        for (Eigen::Index i = 0; i < count_; ++i) {
            const Kriging::Row& a = rows[block[static_cast<std::size_t>(i)]];
            target_[i] = a.residual;
            for (Eigen::Index j = 0; j < i; ++j) {
                const Kriging::Row& b = rows[block[static_cast<std::size_t>(j)]];
                for (std::size_t d = 0; d < coordinates_; ++d) {
                    squares_.push_back((a.at[d] - b.at[d]) * (a.at[d] - b.at[d]));
                }
            }
        }
    }

    /// `inverse`: of the squared lengths; `noise`: over the variance.
    [[nodiscard]] Misfit operator()(const Kriging::Place& inverse, double noise) const {
        Eigen::MatrixXd c(count_, count_);
        std::size_t next = 0;
        for (Eigen::Index i = 0; i < count_; ++i) {
            for (Eigen::Index j = 0; j < i; ++j) {
                double squares = 0;
                for (std::size_t d = 0; d < coordinates_; ++d) {
                    squares += squares_[next++] * inverse[d];
                }
                c(i, j) = matern(squares);
            }
            c(i, i) = 1 + noise + kJitter;
        }
        const Eigen::LLT<Eigen::Ref<Eigen::MatrixXd>> factor(c);
        ORRERY_ASSERT(factor.info() == Eigen::Success);
        const Eigen::VectorXd of_target = factor.solve(target_);
        const Eigen::VectorXd of_ones = factor.solve(Eigen::VectorXd::Ones(count_));
        const double mean = of_ones.dot(target_) / of_ones.sum();
        Misfit out;
        out.rows = static_cast<double>(count_);
        ORRERY_ASSERT(next == squares_.size());
        out.squares = target_.dot(of_target) - mean * of_ones.dot(target_);
        for (Eigen::Index i = 0; i < count_; ++i) {
            out.determinant += log_pinned(c(i, i));
        }
        return out;
    }

  private:
    std::size_t coordinates_;
    Eigen::Index count_;
    Eigen::VectorXd target_;
    std::vector<double> squares_;  ///< of the distances of the pairs j < i, coordinate by coordinate
};

// Minus the log likelihood of blocks, up to a constant, with their means and the variance at their best.
class Likelihood {
  public:
    Likelihood(const std::vector<Kriging::Row>& rows, std::size_t coordinates) : coordinates_(coordinates) {
        for (const Block& block : blocks_of(rows, coordinates)) {
            blocks_.emplace_back(rows, block, coordinates);
        }
    }

    /// `logs`: of the lengths, and of the noise over the variance.
    [[nodiscard]] double operator()(const std::vector<double>& logs) const {
        Kriging::Place inverse{};
        double prior = 0;
        for (std::size_t d = 0; d < coordinates_; ++d) {
            inverse[d] = exp_pinned(-2 * logs[d]);
            const double off = logs[d] - log_pinned(kUsualLength);
            prior += kLengthWeight * off * off;
        }
        Misfit sum;
        for (const BlockLikelihood& block : blocks_) {
            const Misfit one = block(inverse, exp_pinned(logs[coordinates_]));
            sum.rows += one.rows;
            sum.squares += one.squares;
            sum.determinant += one.determinant;
        }
        return sum.rows / 2 * log_pinned(std::max(1e-12, sum.squares / sum.rows)) + sum.determinant + prior;
    }

  private:
    std::size_t coordinates_;
    std::vector<BlockLikelihood> blocks_;
};

}  // namespace

Kriging::Kriging(std::vector<Row> rows, std::size_t coordinates) : rows_(std::move(rows)), coordinates_(coordinates) {
    ORRERY_ASSERT(rows_.size() >= 2 && coordinates_ <= kMostCoordinates);
    choose_lengths();
    if (rows_.size() <= kAllRows) {
        solve_all();
    }
}

double Kriging::squares(const Place& a, const Place& b) const {
    double sum = 0;
    for (std::size_t d = 0; d < coordinates_; ++d) {
        const double along = (a[d] - b[d]) * inverse_[d];
        sum += along * along;
    }
    return sum;
}

double Kriging::covariance(const Place& a, const Place& b) const {
    return matern(squares(a, b));
}

// Pattern search from coarse to fine steps, as the likelihood is smooth and cheap on few rows.
void Kriging::choose_lengths() {
    const Likelihood likelihood(rows_, coordinates_);
    std::vector<double> best(coordinates_, log_pinned(kUsualLength));
    best.push_back(log_pinned(noise_));
    double least = likelihood(best);
    for (double step = 1.2; step > 0.1; step /= 2) {
        for (bool moved = true; moved;) {
            moved = false;
            for (std::size_t i = 0; i < best.size(); ++i) {
                for (const double by : {step, -step}) {
                    std::vector<double> next = best;
                    next[i] = i < coordinates_ ? std::clamp(best[i] + by, kLogLengthLeast, kLogLengthMost)
                                               : std::clamp(best[i] + by, kLogNoiseLeast, kLogNoiseMost);
                    const double value = likelihood(next);
                    if (value < least - 1e-3) {
                        best = next;
                        least = value;
                        moved = true;
                        break;
                    }
                }
            }
        }
    }
    for (std::size_t d = 0; d < coordinates_; ++d) {
        lengths_[d] = exp_pinned(best[d]);
        inverse_[d] = 1 / lengths_[d];
    }
    noise_ = exp_pinned(best[coordinates_]);
}

void Kriging::solve_all() {
    const auto n = static_cast<Eigen::Index>(rows_.size());
    Eigen::MatrixXd c(n, n);
    Eigen::VectorXd target(n);
    for (Eigen::Index i = 0; i < n; ++i) {
        for (Eigen::Index j = 0; j <= i; ++j) {
            c(i, j) = c(j, i) =
                covariance(rows_[static_cast<std::size_t>(i)].at, rows_[static_cast<std::size_t>(j)].at);
        }
        c(i, i) += noise_ + kJitter;
        target[i] = rows_[static_cast<std::size_t>(i)].residual;
    }
    const Eigen::LLT<Eigen::MatrixXd> factor(c);
    ORRERY_ASSERT(factor.info() == Eigen::Success);
    const Eigen::VectorXd of_ones = factor.solve(Eigen::VectorXd::Ones(n));
    mean_ = of_ones.dot(target) / of_ones.sum();
    const Eigen::VectorXd solved = factor.solve(Eigen::VectorXd(target.array() - mean_));
    weights_.assign(solved.data(), solved.data() + n);
    ORRERY_ASSERT(weights_.size() == rows_.size());
}

double Kriging::at(const Place& place) const {
    if (weights_.empty()) {
        return at_by_nearest(place);
    }
    double sum = mean_;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
        sum += weights_[i] * covariance(place, rows_[i].at);
    }
    return sum;
}

double Kriging::at_by_nearest(const Place& place) const {
    std::vector<std::pair<double, std::size_t>> near;
    near.reserve(rows_.size());
    for (std::size_t i = 0; i < rows_.size(); ++i) {
        near.emplace_back(squares(place, rows_[i].at), i);
    }
    ORRERY_ASSERT(near.size() >= kNearest);
    std::nth_element(near.begin(), near.begin() + kNearest, near.end());
    std::sort(near.begin(), near.begin() + kNearest);
    constexpr auto n = static_cast<Eigen::Index>(kNearest);
    Eigen::MatrixXd c(n, n);
    Eigen::VectorXd target(n);
    Eigen::VectorXd to_place(n);
    for (Eigen::Index i = 0; i < n; ++i) {
        const Row& a = rows_[near[static_cast<std::size_t>(i)].second];
        for (Eigen::Index j = 0; j < i; ++j) {
            c(i, j) = covariance(a.at, rows_[near[static_cast<std::size_t>(j)].second].at);
        }
        c(i, i) = 1 + noise_ + kJitter;
        target[i] = a.residual;
        to_place[i] = matern(near[static_cast<std::size_t>(i)].first);
    }
    const Eigen::LLT<Eigen::Ref<Eigen::MatrixXd>> factor(c);
    ORRERY_ASSERT(factor.info() == Eigen::Success);
    const Eigen::VectorXd of_ones = factor.solve(Eigen::VectorXd::Ones(n));
    const double mean = of_ones.dot(target) / of_ones.sum();
    const Eigen::VectorXd solved = factor.solve(Eigen::VectorXd(target.array() - mean));
    return mean + to_place.dot(solved);
}

}  // namespace orrery::models
