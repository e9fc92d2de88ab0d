// Attention of decoding sequences that share a prefix (kv.prefix.reads: once).
//
// Claims: the keys and values of a prefix that several decoding sequences have are read once for all of them: the queries of the group are the
// rows of a matrix product with the keys of the prefix, priced as a piece of a prompt whose every query sees the whole prefix. Each sequence
// attends to its own tokens as before, and a kernel a layer merges both results by their sums of exponentials. A group reads its prefix
// together where that is faster than each by itself.
// Limits: one level of sharing: of sequences that begin with the same block, the blocks that all of them have; one attention group.
// Sources: Juravsky et al., "Hydragen: High-Throughput LLM Inference with Shared Prefixes", arXiv:2402.05099, sections 3.1 and 3.2; Ye et al.,
// "Cascade Inference" (FlashInfer, 2024; merging of attention states).
// Validated by tests/workloads/shared_prefix_test.cpp (closed forms).

#include "workloads/serving/cost/step_cost.hpp"

#include <algorithm>

namespace orrery::serving {

StepWork ModelStep::shared_attention(const Batch& batch, double decoding, double context) const {
    StepWork all;
    double together = 0;  // tokens that sequences need not read by themselves
    double merged = 0;    // sequences with two results
    for (const SharedPrefix& prefix : batch.prefixes) {
        const double sequences = prefix.sequences;
        const double tokens = prefix.blocks * m_.block;
        if (sequences < 2) {
            continue;
        }
        // Of a piece of a prompt the queries see half of their own number of keys less than there are.
        const StepWork once = attention(1, sequences, tokens + sequences / 2);
        if (once.seconds < attention(sequences, 1, tokens).seconds) {
            all += once;
            together += sequences * tokens;
            merged += sequences;
        }
    }
    all += attention(decoding, 1, std::max(1.0, (context - together) / std::max(1.0, decoding)));
    if (merged > 0) {
        // Two results are read and one is written.
        const StepWork merge = streaming(3 * merged * m_.model.q_width() / t_, 1, StreamingKind::any);
        all += share_ * static_cast<double>(m_.model.layers) * merge;
    }
    return all;
}

}  // namespace orrery::serving
