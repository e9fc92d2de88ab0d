#include "models/residual_grid.hpp"

#include "sim/base/error.hpp"
#include "sim/base/math.hpp"
#include "sim/config/units.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <tuple>

namespace orrery {

namespace {

// Index of the last axis point at or below x, and the fraction towards the next, clamped to the axis.
std::pair<std::size_t, double> locate(const std::vector<double>& axis, double x) {
    if (axis.size() == 1 || x <= axis.front()) {
        return {0, 0};
    }
    if (x >= axis.back()) {
        return {axis.size() - 2, 1};
    }
    const auto upper = std::upper_bound(axis.begin(), axis.end(), x);
    const auto index = static_cast<std::size_t>(upper - axis.begin()) - 1;
    return {index, (x - axis[index]) / (axis[index + 1] - axis[index])};
}

}  // namespace

double ResidualGrid::log_ratio(double time, double prior) {
    return log_pinned(time / prior);
}

std::vector<ResidualGrid::Row> ResidualGrid::load(const std::string& path) {
    std::ifstream stream(path);
    if (!stream) {
        throw ConfigError({Diagnostic{path, 0, 0, "cannot be read"}});
    }
    std::vector<Row> rows;
    std::vector<Diagnostic> errors;
    std::string line;
    bool header = true;
    for (int number = 1; std::getline(stream, line); ++number) {
        if (line.empty() || line[0] == '#') {
            continue;
        }
        if (header) {
            header = false;
            continue;
        }
        std::array<double, 4> cells{};
        std::size_t count = 0;
        bool good = true;
        for (std::size_t start = 0; start <= line.size() && good;) {
            const std::size_t comma = std::min(line.find(',', start), line.size());
            good = count < cells.size() && parse_number(line.substr(start, comma - start), cells[count]) &&
                   cells[count] > 0;
            ++count;
            start = comma + 1;
        }
        if (!good || count != cells.size()) {
            errors.push_back(Diagnostic{path, number, 1, "expected four positive numbers: size,size,size,us"});
            continue;
        }
        rows.push_back(Row{cells[0], cells[1], cells[2], cells[3], 0});
    }
    if (rows.empty() && errors.empty()) {
        errors.push_back(Diagnostic{path, 1, 1, "holds no rows"});
    }
    if (!errors.empty()) {
        throw ConfigError(errors);
    }
    return rows;
}

void ResidualGrid::build() {
    for (const Row& row : rows_) {
        axes_[0].push_back(log2_pinned(row.a));
        axes_[1].push_back(log2_pinned(row.b));
        axes_[2].push_back(log2_pinned(row.c));
    }
    for (std::vector<double>& axis : axes_) {
        std::sort(axis.begin(), axis.end());
        axis.erase(std::unique(axis.begin(), axis.end()), axis.end());
    }
    const double missing = std::numeric_limits<double>::quiet_NaN();
    values_.assign(axes_[0].size() * axes_[1].size() * axes_[2].size(), missing);
    const auto index = [&](std::size_t i, std::size_t j, std::size_t k) {
        return (i * axes_[1].size() + j) * axes_[2].size() + k;
    };
    const auto position = [&](std::size_t axis, double size) {
        return static_cast<std::size_t>(std::lower_bound(axes_[axis].begin(), axes_[axis].end(), log2_pinned(size)) -
                                        axes_[axis].begin());
    };
    for (const Row& row : rows_) {
        values_[index(position(0, row.a), position(1, row.b), position(2, row.c))] = row.residual;
    }
    // Holes (combinations that were not measured) take the value of the nearest measured point along the last two axes.
    const std::vector<double> measured = values_;
    for (std::size_t i = 0; i < axes_[0].size(); ++i) {
        for (std::size_t j = 0; j < axes_[1].size(); ++j) {
            for (std::size_t k = 0; k < axes_[2].size(); ++k) {
                double best = std::numeric_limits<double>::infinity();
                for (std::size_t jj = 0; std::isnan(measured[index(i, j, k)]) && jj < axes_[1].size(); ++jj) {
                    for (std::size_t kk = 0; kk < axes_[2].size(); ++kk) {
                        const double distance =
                            std::abs(axes_[1][jj] - axes_[1][j]) + std::abs(axes_[2][kk] - axes_[2][k]);
                        if (!std::isnan(measured[index(i, jj, kk)]) && distance < best) {
                            best = distance;
                            values_[index(i, j, k)] = measured[index(i, jj, kk)];
                        }
                    }
                }
            }
        }
    }
    for (const double value : values_) {
        if (std::isnan(value)) {
            throw ConfigError({Diagnostic{path_, 0, 0, "a size of the first column has no rows at all"}});
        }
    }
}

double ResidualGrid::residual(double a, double b, double c) const {
    const std::array<double, 3> sizes = {a, b, c};
    std::array<std::size_t, 3> cell{};
    std::array<double, 3> inside{};
    for (std::size_t axis = 0; axis < 3; ++axis) {
        std::tie(cell[axis], inside[axis]) = locate(axes_[axis], log2_pinned(sizes[axis]));
    }
    const auto at = [&](std::size_t di, std::size_t dj, std::size_t dk) {
        const std::size_t i = std::min(cell[0] + di, axes_[0].size() - 1);
        const std::size_t j = std::min(cell[1] + dj, axes_[1].size() - 1);
        const std::size_t k = std::min(cell[2] + dk, axes_[2].size() - 1);
        return values_[(i * axes_[1].size() + j) * axes_[2].size() + k];
    };
    const auto [x, y, z] = inside;
    const auto mix = [](double low, double high, double f) { return low + (high - low) * f; };
    return mix(mix(mix(at(0, 0, 0), at(0, 0, 1), z), mix(at(0, 1, 0), at(0, 1, 1), z), y),
               mix(mix(at(1, 0, 0), at(1, 0, 1), z), mix(at(1, 1, 0), at(1, 1, 1), z), y), x);
}

}  // namespace orrery
