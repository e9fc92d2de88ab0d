#pragma once
// Memory of a rank by kind.

#include "sim/base/namespaces.hpp"

namespace orrery::training {

/// Bytes of one rank.
struct MemoryUse {
    double weights = 0;
    double gradients = 0;
    double optimizer = 0;
    double activations = 0;
    double buffers = 0;
    double idle = 0;  ///< freed blocks that a caching allocator keeps and communicators, beside total()
    [[nodiscard]] double total() const { return weights + gradients + optimizer + activations + buffers; }
};

}  // namespace orrery::training
