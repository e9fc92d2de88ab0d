#pragma once
// What the quantisation of activations takes in rows that time it along with their product.
//
// Claims: public sweeps of 8 and 4-bit products pass activations in 16 bits, so that a kernel of its own narrows them first
// (`kernels` = 2). Its time is rows * row + rows * depth * value, and thin products (32 to 128 columns), which take little
// themselves, show it: their times are fitted with non-negative terms [1, rows, rows * depth, the 16-bit product of the same
// shape], of which the two in the middle are the law. The first is the start of both kernels and stays with the product.
// A kernel bound by memory reads 2 and writes 1 byte a value; what a library takes goes from that (vLLM 0.19 on H100: 1.1 ps
// a value) to twice that and 3.2 ns a row (vLLM 0.24, the same device). Cleared of their own laws, the two agree in the mean
// (1.2 % on H100: `orrery validate compute --data DIR` prices the one's rows with the other's fit).
// Limits: traces with fewer than kFewestThin such shapes keep 3 bytes a value at the streaming rate.
// Validated by tests/models/quantisation_test.cpp.

#include "models/calibration/trace.hpp"
#include "models/kernel_fit.hpp"
#include "sim/base/namespaces.hpp"
#include "sim/device/device_spec.hpp"

#include <map>
#include <string>

namespace orrery::models {

/// Fewest thin shapes, timed in 16 bits too, that a law is fitted to.
inline constexpr std::size_t kFewestThin = 60;

/// The laws of a trace's number formats, by `dtype`.
class Quantisations {
  public:
    /// `device`: whose streaming rate prices formats without a law.
    Quantisations(const std::vector<const TraceRow*>& rows, const DeviceSpec& device);
    /// s of a product's row that lies in the kernel before it; 0 for rows that time one kernel.
    [[nodiscard]] double seconds(const TraceRow& row) const;
    [[nodiscard]] const std::map<std::string, QuantisationLaw>& laws() const { return laws_; }

  private:
    std::map<std::string, QuantisationLaw> laws_;
    double byte_ = 0;  ///< s
};

}  // namespace orrery::models
