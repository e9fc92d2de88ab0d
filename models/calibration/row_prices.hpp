#pragma once
// Prices of the rows of a trace: one kernel, or a layer or a step as the sum of its kernels.
//
// Claims: a kernel costs what its fit or the roofline says (models/calibrated.hpp). A layer or a step of tools/torchbench is its
// matrix products, its attention and its elementwise kernels one after another, each launched once, with the elementwise kernels as
// PyTorch runs them: one for each operation of the model's text in eager mode and in graphs of it.
// Scope: one device; forward passes, and forward with backward (two products for each of the forward's).
// Limits: no time of the host: rows in eager mode take longer where the host is slower than the device; compiled steps fuse
// elementwise kernels, which here stay apart.
// Validated by `orrery validate compute --trace` and tests/tools/price_test.cpp.

#include "models/calibrated.hpp"
#include "models/calibration/trace.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::models {

/// An operation, and how many times it runs.
using Repeated = std::pair<Operation, double>;

/// What a row ran: one operation, or those of a layer or a step. Empty where no model has one for it.
[[nodiscard]] std::vector<Repeated> operations_in(const TraceRow& row);

struct RowPrice {
    double seconds = 0;
    double low = 0, high = 0;  ///< nine times of ten
    double of_peak = 0;        ///< share of the peak of the arithmetic's number format
    double of_memory = 0;      ///< share of the vendor's bandwidth
    std::string binds;         ///< arithmetic, memory, or start-up
    std::string source;        ///< whose measurement it follows
};

/// Prices rows on one device, as simulations do.
class RowPricer {
  public:
    /// `kernels`: a set of kernels, where the device has one of this name. `duty`: see models/calibrated.hpp.
    RowPricer(const DeviceSpec& device, const DataDirectory& data, const KernelSets& kernels = {},
              double duty = kTransformer);
    /// Empty where no model has an operation for it.
    [[nodiscard]] std::optional<RowPrice> price(const TraceRow& row) const;
    [[nodiscard]] RowPrice price(const Operation& operation) const;

  private:
    DeviceSpec device_;
    Roofline roofline_;
    std::optional<Calibrated> calibrated_;
};

}  // namespace orrery::models
