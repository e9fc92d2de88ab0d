#pragma once
// The price of an operation on a device: the interface of every compute model.

#include "sim/base/quantity.hpp"
#include "sim/device/operation.hpp"

namespace orrery {

/// Times that operations take on one device, running alone, in a stream that is never empty (launches hidden but for
/// the gap between kernels). Pure functions: equal operations have equal prices.
class CostModel {
  public:
    virtual ~CostModel() = default;
    [[nodiscard]] virtual Seconds seconds(const Gemm& gemm) const = 0;
    [[nodiscard]] virtual Seconds seconds(const Attention& attention) const = 0;
    [[nodiscard]] virtual Seconds seconds(const Streaming& streaming) const = 0;
};

}  // namespace orrery
