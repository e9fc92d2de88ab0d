#include "workloads/training/features/compression.hpp"

#include "workloads/training/plan/memory_use.hpp"
#include "workloads/training/plan/spec.hpp"

namespace orrery::training {

void CompressionPlan::describe(Fields& fields) {
    fields.number({"density", "share of the gradients that is sent", false, 1e-6, 1}, density);
    fields.integer({"value_bits", "bits per value of a sent gradient", false, 1, 32}, value_bits);
    fields.integer({"index_bits", "bits per index of a sent gradient", false, 0, 64}, index_bits);
    fields.number({"dense", "share of the weights whose gradients are exchanged whole (norms, biases)", false, 0, 1},
                  dense);
    fields.number({"sample", "share of the gradients that the threshold is estimated from; 1: exact", false, 1e-6, 1},
                  sample);
}

void CompressionPlan::check(const ModelSpec&, const PlanSpec& plan, PlanProblems& out) const {
    out.refuse(plan.zero > 0, "compression is of gradients that every rank has whole: zero: 0");
    out.refuse(plan.alike() < 2, "compression needs ranks that exchange gradients: data of at least 2");
}

// The momentum of gradients and what of them was not sent, in 32 bits.
void CompressionPlan::states(const ModelSpec&, const PlanSpec&, const RankWeights& held, MemoryUse& use) const {
    use.gradients += 8 * (1 - dense) * held.dense;
}

CompressedBytes compressed_bytes(const PlanSpec& plan, double weights, double ranks) {
    const auto& own = plan.feature<CompressionPlan>();
    const double entry = static_cast<double>(own.value_bits + own.index_bits) / 8;
    // Every rank ends with what all have sent.
    return {bytes_of(plan.gradient_precision) * own.dense * weights,
            ranks * entry * own.density * (1 - own.dense) * weights};
}

// In 32 bits, DGC's algorithm 4: u = m u + g reads two and writes one, v = v + u reads two and writes one, what is above the
// threshold is read, and leaves u and v, which are read with it and written. The threshold is found in the sample by radix
// selection, four passes of eight bits.
double compress_traffic(const PlanSpec& plan, double weights) {
    const auto& own = plan.feature<CompressionPlan>();
    const double values = (1 - own.dense) * weights;
    const double entry = static_cast<double>(own.value_bits + own.index_bits) / 8;
    return values * (4 * (3 + 3 + 1 + 4) + 4 * 4 * own.sample + entry * own.density);
}

// Each entry is read, and a sector of 32 bytes, the least that a GPU's memory moves, is read and written.
// Source: CUDA C++ Programming Guide, "Device Memory Accesses".
double decompress_traffic(const PlanSpec& plan, double weights, double ranks) {
    constexpr double kSector = 32;
    const auto& own = plan.feature<CompressionPlan>();
    const double entry = static_cast<double>(own.value_bits + own.index_bits) / 8;
    return ranks * own.density * (1 - own.dense) * weights * (entry + 2 * kSector);
}

extern const FeatureRow kCompression;
const FeatureRow kCompression = {"compression", "compression of gradients: only the largest are exchanged",
                                 make_feature<CompressionPlan>};

}  // namespace orrery::training
