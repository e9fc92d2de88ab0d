#include "models/borrowed.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace orrery::models {

namespace {

thread_local BorrowedKernels* innermost = nullptr;

// What users call the kinds of kernels that are named.
constexpr std::pair<KernelKind, const char*> kNames[] = {
    {KernelKind::gemm, "products"},
    {KernelKind::experts, "experts"},
    {KernelKind::prefill, "attention of prompts"},
    {KernelKind::decode, "attention of decoding"},
    {KernelKind::latent_prefill, "latent attention of prompts"},
    {KernelKind::latent_decode, "latent attention of decoding"},
    {KernelKind::attention_forward, "attention of training"},
};

}  // namespace

BorrowedKernels::BorrowedKernels() : outer_(innermost) {
    innermost = this;
}

BorrowedKernels::~BorrowedKernels() {
    innermost = outer_;
}

void BorrowedKernels::note(const std::string& device, const std::string& lender, KernelKind kind) {
    if (innermost != nullptr) {
        innermost->seen_[{device, lender}].insert(kind);
    }
}

std::vector<std::string> BorrowedKernels::notes() const {
    std::vector<std::string> out;
    for (const auto& [devices, seen] : seen_) {
        std::vector<std::string> kinds;
        for (const auto& [kind, name] : kNames) {
            if (seen.contains(kind)) {
                kinds.emplace_back(name);
            }
        }
        if (!kinds.empty()) {
            out.push_back(fmt::format("no kernels of {} were measured for {}: those of {} price them", devices.first,
                                      fmt::join(kinds, ", "), devices.second));
        }
    }
    return out;
}

}  // namespace orrery::models
