#include "models/calibration/quantisation.hpp"

#include <fmt/format.h>
#include <Eigen/Dense>

#include <array>
#include <tuple>

namespace orrery::models {

namespace {

using ProductShape = std::tuple<double, double, double>;  // m, n, k

bool narrows(const TraceRow& row) {
    return row.op == "gemm" && row.kernels == 2;
}

ProductShape product_of(const TraceRow& row) {
    return {row.dim("m"), row.dim("n"), row.dim("k")};
}

// Thin enough that its quantisation shows, large enough that its start does not hide it.
bool shows_quantisation(const TraceRow& row) {
    const auto [m, n, k] = product_of(row);
    return n >= 32 && n <= 128 && m >= 512 && k >= 512;
}

constexpr std::size_t kTerms = 4;  // start, a row, a value, the 16-bit product
using Terms = std::array<double, kTerms>;

// Least squares of relative errors with non-negative terms: the optimum is the solution of its own support, so every one is tried.
Terms non_negative(const std::vector<Terms>& rows) {
    Eigen::MatrixXd terms(static_cast<Eigen::Index>(rows.size()), static_cast<Eigen::Index>(kTerms));
    for (std::size_t i = 0; i < rows.size(); ++i) {
        for (std::size_t j = 0; j < kTerms; ++j) {
            terms(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) = rows[i][j];
        }
    }
    const Eigen::VectorXd ones = Eigen::VectorXd::Ones(terms.rows());
    const Eigen::VectorXd scale = terms.colwise().norm().cwiseMax(1e-300).transpose();
    Terms best{};
    double cost = ones.squaredNorm();
    for (unsigned set = 1; set < 1U << kTerms; ++set) {
        std::vector<Eigen::Index> chosen;
        for (unsigned j = 0; j < kTerms; ++j) {
            if ((set >> j & 1U) != 0) {
                chosen.push_back(j);
            }
        }
        const Eigen::MatrixXd used = terms(Eigen::all, chosen) * scale(chosen).cwiseInverse().asDiagonal();
        const Eigen::VectorXd solved = used.colPivHouseholderQr().solve(ones);
        const double off = (used * solved - ones).squaredNorm();
        if (solved.minCoeff() >= 0 && off < cost) {
            cost = off;
            best = {};
            for (std::size_t i = 0; i < chosen.size(); ++i) {
                best[static_cast<std::size_t>(chosen[i])] = solved[static_cast<Eigen::Index>(i)] / scale[chosen[i]];
            }
        }
    }
    return best;
}

}  // namespace

Quantisations::Quantisations(const std::vector<const TraceRow*>& rows, const DeviceSpec& device)
    : byte_(1 / (device.memory_bandwidth.value * device.memory_efficiency.value)) {
    std::map<ProductShape, double> wide;  // s of 16-bit products
    for (const TraceRow* row : rows) {
        if (row->op == "gemm" && row->dtype == "bf16" && shows_quantisation(*row)) {
            wide[product_of(*row)] = row->median_ns * 1e-9;
        }
    }
    std::map<std::string, std::vector<Terms>> thin;
    for (const TraceRow* row : rows) {
        const auto same = narrows(*row) && shows_quantisation(*row) ? wide.find(product_of(*row)) : wide.end();
        if (same != wide.end()) {
            const double seconds = row->median_ns * 1e-9;
            const double m = row->dim("m");
            thin[row->dtype].push_back({1 / seconds, m / seconds, m * row->dim("k") / seconds, same->second / seconds});
        }
    }
    for (const auto& [dtype, terms] : thin) {
        if (terms.size() >= kFewestThin) {
            const Terms solved = non_negative(terms);
            laws_[dtype] = {solved[1], solved[2]};
        }
    }
}

double Quantisations::seconds(const TraceRow& row) const {
    if (!narrows(row)) {
        return 0;
    }
    const auto law = laws_.find(row.dtype);
    return (law == laws_.end() ? QuantisationLaw{0, kQuantisedBytes * byte_} : law->second)
        .seconds(row.dim("m"), row.dim("k"));
}

}  // namespace orrery::models
