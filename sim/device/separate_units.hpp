#pragma once
// Operations that leave the compute units and the memory's interface free for others.

#include "sim/device/operation.hpp"

namespace orrery::device {

/// What a cost model says beside prices when a device has units apart from the others (in the banks of its memory, with row buffers of
/// their own): which operations run there, so that the rest of the work can go on beside them.
class SeparateUnits {
  public:
    virtual ~SeparateUnits() = default;
    [[nodiscard]] virtual bool runs_beside(const Operation& operation) const = 0;
};

}  // namespace orrery::device
