#include "sim/device/systolic.hpp"

#include "sim/base/error.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::inline device {

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

double systolic_cycles(const SystolicArrays& arrays, double m, double n, double k, double batch) {
    ORRERY_ASSERT(arrays.rows > 0 && arrays.columns > 0 && arrays.count > 0);
    if (m <= 0 || n <= 0 || k <= 0 || batch <= 0) {
        return 0;
    }
    const auto rows = static_cast<double>(arrays.rows);
    const auto columns = static_cast<double>(arrays.columns);
    const double stream = std::ceil(mapping_of(arrays.dataflow, m, n, k).stream);
    const double load = arrays.dataflow == Dataflow::outputs ? 0 : rows;
    const double folds = std::ceil(batch * folds_of(arrays, m, n, k) / static_cast<double>(arrays.count));
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

}  // namespace orrery::inline device
