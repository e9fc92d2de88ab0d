#pragma once
// Layers and steps by class of kernel: what a profiler saw of one execution against the prices of its kernels.
//
// Scope: the files that `tools/torchbench --profile` writes (point,launches,us,kernel) beside the trace of the same points.
// Limits: kernels are told apart by their names (cuBLAS, cuDNN, FlashAttention, CUTLASS, PyTorch); what none of these names is
// counts as elementwise, optimizer and loss with it. Points without a profile, and those that no model prices, are left out.

#include "models/calibration/row_prices.hpp"
#include "models/calibration/trace.hpp"
#include "tools/terminal/terminal.hpp"

#include <array>
#include <map>
#include <string>

namespace orrery::validation {

enum class KernelClass { product, attention, elementwise };

/// Of a kernel, by the name that a profiler prints.
[[nodiscard]] KernelClass class_of(const std::string& kernel);

/// What a profiler saw of one execution, by class.
struct StepKernels {
    std::array<double, 3> us{}, launches{};
};

/// A file of profiles, by the names of their points. Throws ConfigError for a file that cannot be read (the first hundred
/// errors, each with its line), and for one without any layer or step of the trace.
[[nodiscard]] std::map<std::string, StepKernels> read_step_kernels(const std::string& file, const Trace& trace);

/// Prints a table of the classes of every profiled point of the trace.
void list_step_kernels(const Trace& trace, const RowPricer& pricer, const std::map<std::string, StepKernels>& profiles,
                       const Terminal& terminal);

}  // namespace orrery::validation
