#pragma once
// Which operations of a run were priced by kernels of another device, or by a roofline for want of any.
//
// Claims: a log holds what the calibrated models of this thread came to while it was the innermost one, whatever models were built before
// it; equal runs have equal notes. Norms, rotary embeddings and the like, whose price is mostly their bytes, are not named.
// Limits: what other threads price is not seen.
// Validated by tests/models/cost_model_test.cpp.

#include "models/kernel_point.hpp"
#include "sim/base/namespaces.hpp"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace orrery::models {

class BorrowedKernels {
  public:
    BorrowedKernels();
    ~BorrowedKernels();
    BorrowedKernels(const BorrowedKernels&) = delete;
    BorrowedKernels& operator=(const BorrowedKernels&) = delete;

    /// One sentence for each pair of devices, with the kinds and the mean error of each that whole tables of other devices had;
    /// one for each device that a roofline priced.
    [[nodiscard]] std::vector<std::string> notes() const;
    /// Called by models: a kernel of `lender`, or a roofline where it is empty, priced an operation of `device`.
    static void note(const std::string& device, const std::string& lender, KernelKind kind);

  private:
    BorrowedKernels* outer_;
    std::map<std::pair<std::string, std::string>, std::set<KernelKind>> seen_;
};

}  // namespace orrery::models
