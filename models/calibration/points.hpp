#pragma once
// From rows of a trace to points of a fit.

#include "models/calibration/fit.hpp"
#include "models/calibration/trace.hpp"
#include "sim/device/device_spec.hpp"

#include <optional>
#include <utility>

namespace orrery {

/// The operation that a row measured, or nothing when no cost model has one for it.
[[nodiscard]] std::optional<Operation> operation_of(const TraceRow& row);

/// Points of one kind and format, and what was left out of them.
struct PointSet {
    KernelKind kind;
    KernelFormat format;
    std::vector<MeasuredPoint> points;
    std::vector<Diagnostic> refused;  ///< rows that beat the device's peaks, with their lines
    std::int64_t refused_rows = 0;    ///< all of them; `refused` holds the first hundred
    std::vector<std::string> libraries;
};

/// Every kind and format of a trace, in the order of the enumerations. Rows of equal sizes are merged to their median;
/// but for products, rows of other libraries than the most frequent are left out.
/// Rows that time the quantisation of activations along with the product (`kernels` = 2) are cleared of it: 3 bytes a
/// value at the device's streaming rate. `name` is the file, for messages.
[[nodiscard]] std::vector<PointSet> point_sets(const Trace& trace, const DeviceSpec& device, const std::string& name);

}  // namespace orrery
