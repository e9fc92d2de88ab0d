#pragma once
// From rows of a trace to points of a fit.

#include "models/calibration/fit.hpp"
#include "models/calibration/trace.hpp"
#include "sim/device/device_spec.hpp"

#include <optional>
#include <utility>

namespace orrery::models {

/// The operation that a row measured, or nothing when no cost model has one for it. What ran beside and how the row was timed are
/// left to the caller; a gradient's product is the product of its sizes.
[[nodiscard]] std::optional<Operation> operation_of(const TraceRow& row);

/// Why no fit takes a row, or empty where one does. Fits are of forward kernels that run alone, from memory, in short bursts, with
/// their launches hidden. A row with a warm cache is one of these all the same where its operands exceed the cache four times, or
/// where its arithmetic takes twice as long as reading them would.
[[nodiscard]] std::string why_not_fitted(const TraceRow& row, const DeviceSpec& device);

/// The name under which kernels of a library go, without its version: "vllm-0.24.0/flash_attn" is "vllm-flash_attn". May be empty.
[[nodiscard]] std::string kernel_set_name(const std::string& library);

/// Points of one kind and format from one library, and what was left out of them.
struct PointSet {
    KernelKind kind;
    KernelFormat format;
    std::vector<MeasuredPoint> points;
    std::vector<Diagnostic> refused;  ///< rows that beat the device's peaks, with their lines
    std::int64_t refused_rows = 0;    ///< all of them; `refused` holds the first hundred
    std::vector<std::string> libraries;
    std::string kernel_set;  ///< name of the other library; "": the trace's most frequent one
    QuantisationLaw quantisation{};
};

/// Every kind and format of a trace, in the order of the enumerations. Rows of equal sizes are merged to their median. A set is of
/// one library's kernels: further libraries of the same operation and format follow the most frequent one as sets of their own.
/// Libraries of products that never timed the same sizes are one library's choice by shape, and one set.
/// Rows that time the quantisation of activations along with the product (`kernels` = 2) are cleared of it, see quantisation.hpp; those
/// of which it takes more than 60 % are left out.
/// `name` is the file, for messages.
[[nodiscard]] std::vector<PointSet> point_sets(const Trace& trace, const DeviceSpec& device, const std::string& name);

}  // namespace orrery::models
