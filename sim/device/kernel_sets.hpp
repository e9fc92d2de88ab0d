#pragma once
// Which libraries' kernels a piece of software runs, where a device has been measured with several.

#include "sim/base/namespaces.hpp"

#include <string>
#include <utility>

namespace orrery::device {

/// Names of folders beside a device's own fits; "" or a name that the device lacks: its own.
struct KernelSets {
    KernelSets(std::string every = "") : all(std::move(every)) {}  // NOLINT: a name alone is a set for everything
    KernelSets(const char* every) : all(every) {}                  // NOLINT: and so is one that is written out

    std::string all;
    std::string attention;  ///< goes before `all`
    std::string experts;    ///< likewise, for the fused kernels of mixtures of experts

    [[nodiscard]] std::string text() const { return all + "," + attention + "," + experts; }
};

}  // namespace orrery::device
