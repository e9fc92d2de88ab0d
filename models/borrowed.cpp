#include "models/borrowed.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace orrery::models {

namespace {

thread_local BorrowedKernels* innermost = nullptr;

// What users call the kinds of kernels that are named, and the mean error of whole tables of one device priced by the kernels of a
// related one: 8 to 22 tables per kind from A6000 to GB300, of linear attention 6 (some of another library), of indexers 2
// (`orrery validate compute --data DIR`, "tables priced by the kernels of another device"). Attention of training has no such
// pair but H100 and H200, and takes what prompts have.
struct Named {
    KernelKind kind;
    const char* name;
    double error;
};
constexpr Named kNamed[] = {
    {KernelKind::gemm, "products", 0.12},
    {KernelKind::experts, "experts", 0.07},
    {KernelKind::prefill, "attention of prompts", 0.29},
    {KernelKind::decode, "attention of decoding", 0.18},
    {KernelKind::latent_prefill, "latent attention of prompts", 0.08},
    {KernelKind::latent_decode, "latent attention of decoding", 0.06},
    {KernelKind::attention_forward, "attention of training", 0.29},
    {KernelKind::delta_prefill, "linear attention of prompts", 0.37},
    {KernelKind::delta_decode, "linear attention of decoding", 0.04},
    {KernelKind::kimi_prefill, "Kimi delta attention of prompts", 0.44},
    {KernelKind::kimi_decode, "Kimi delta attention of decoding", 0.05},
    {KernelKind::index_prefill, "an indexer's scores of prompts", 0.11},
    {KernelKind::choice, "an indexer's choice", 0.28},
    {KernelKind::sparse_prefill, "sparse attention of prompts", 0.02},
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
        const auto& [device, lender] = devices;
        std::vector<std::string> kinds;
        for (const Named& one : kNamed) {
            if (seen.contains(one.kind)) {
                kinds.push_back(lender.empty() ? one.name : fmt::format("{} ({:.0f} %)", one.name, 100 * one.error));
            }
        }
        if (!kinds.empty() && lender.empty()) {
            out.push_back(
                fmt::format("no kernels of {} or of a related device were measured for {}: a roofline prices them",
                            device, fmt::join(kinds, ", ")));
        } else if (!kinds.empty()) {
            out.push_back(
                fmt::format("no kernels of {} were measured for what those of {} price, with errors to expect: {}",
                            device, lender, fmt::join(kinds, ", ")));
        }
    }
    return out;
}

}  // namespace orrery::models
