#include "sim/device/systolic.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::device {

const std::vector<std::string>& dataflow_names() {
    static const std::vector<std::string> kNames = {"weights", "outputs", "inputs"};
    return kNames;
}

const std::vector<std::string>& folds_names() {
    static const std::vector<std::string> kNames = {"separate", "preloaded", "streamed"};
    return kNames;
}

namespace {

// The dimensions on the rows and the columns of the array, and the one that streams.
struct Mapping {
    double rows, columns, stream;
};

Mapping mapping_of(Dataflow dataflow, double m, double n, double k) {
    switch (dataflow) {
        case Dataflow::weights:
            return {k, n, m};
        case Dataflow::outputs:
            return {m, n, k};
        case Dataflow::inputs:
            return {k, m, n};
    }
    return {k, n, m};
}

}  // namespace

double folds_of(const SystolicArrays& arrays, double m, double n, double k) {
    const Mapping map = mapping_of(arrays.dataflow, m, n, k);
    return std::ceil(map.rows / static_cast<double>(arrays.rows)) *
           std::ceil(map.columns / static_cast<double>(arrays.columns));
}

// Cycles with the stream of each fold cut into `parts`, at the shape that the arrays have.
static double cycles_in_parts(const SystolicArrays& arrays, double m, double n, double k, double batch, double parts) {
    const auto rows = static_cast<double>(arrays.rows);
    const auto columns = static_cast<double>(arrays.columns);
    const double stream = std::ceil(mapping_of(arrays.dataflow, m, n, k).stream / parts);
    const double load = arrays.dataflow == Dataflow::outputs ? 0 : rows;
    const double folds = std::ceil(parts * batch * folds_of(arrays, m, n, k) / static_cast<double>(arrays.count));
    const double fill = rows + columns - 2;
    switch (arrays.folds) {
        case Folds::separate:
            return folds * (load + fill + stream);
        case Folds::preloaded:
            return load + folds * std::max(load, fill + stream);
        case Folds::streamed:
            return load + (folds - 1) * std::max(load, stream) + stream + fill;
    }
    return 0;
}

double systolic_cycles(const SystolicArrays& arrays, double m, double n, double k, double batch) {
    ORRERY_ASSERT(arrays.rows > 0 && arrays.columns > 0 && arrays.count > 0 && arrays.stretch > 0 &&
                  arrays.density > 0);
    if (m <= 0 || n <= 0 || k <= 0 || batch <= 0) {
        return 0;
    }
    k *= arrays.density;
    // Sums over k, which outputs that stay take up as it streams, are not cut: their parts would have to meet.
    const std::int64_t most_parts = arrays.dataflow == Dataflow::outputs ? 1 : arrays.count;
    double best = 1e300;
    for (std::int64_t stretch = 1; stretch <= arrays.stretch; stretch *= 2) {
        for (int side = stretch > 1 ? 0 : 1; side < 2; ++side) {
            const bool taller = side == 1;
            SystolicArrays shape = arrays;
            shape.rows = taller ? arrays.rows * stretch : std::max<std::int64_t>(1, arrays.rows / stretch);
            shape.columns = taller ? std::max<std::int64_t>(1, arrays.columns / stretch) : arrays.columns * stretch;
            for (std::int64_t parts = 1; parts <= most_parts; parts *= 2) {
                best = std::min(best, cycles_in_parts(shape, m, n, k, batch, static_cast<double>(parts)));
            }
        }
    }
    ORRERY_ASSERT(best > 0 && best < 1e300);
    return best;
}

}  // namespace orrery::device
