#pragma once
// The price of an operation on a device: the interface of every compute model.

#include "sim/base/quantity.hpp"
#include "sim/device/operation.hpp"

namespace orrery::device {

/// What an operation takes. `spread` is the standard deviation of log(measured / predicted): the value lies within
/// seconds * exp(+-1.645 spread) nine times of ten. `systematic` is the part of it that operations of one kind share
/// (one layer's shapes, one library's version), which averaging over many kernels does not remove.
struct Cost {
    Seconds seconds;
    double spread = 0;
    double systematic = 0;
    double flops = 0;
    double bytes = 0;  ///< through the main memory
};

/// Times that operations take on one device, running alone, in a stream that is never empty (launches hidden but for
/// the gap between kernels). Pure functions: equal operations have equal prices.
class CostModel {
  public:
    virtual ~CostModel() = default;
    [[nodiscard]] virtual Cost cost(const Operation& operation) const = 0;
    [[nodiscard]] Seconds seconds(const Operation& operation) const { return cost(operation).seconds; }
};

}  // namespace orrery::device
