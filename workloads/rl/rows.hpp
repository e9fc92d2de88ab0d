#pragma once
// How the samples of a batch become the sequences that models of training see.
//
// Claims: padded: each sample is a sequence as long as the model's. single: each is one of its own length. packed: the longest first, each
// into the fullest sequence that has room, or into a new one (best fit decreasing); a sample attends to itself alone. Stages of a pipeline
// pass tensors of one shape, so that packed sequences are then as long as the model's, else as long as what is in them.
// Samples that are not packed go to the replicas in their order, and a step waits for the one with the most tokens.
// Limits: all sequences of a replica are alike, with samples of one length: the mean by token, so that tokens and what attention pays for them, the sum of
// squares, are those of the batch; a sequence has the whole number of them that is next to what it has in the mean.
// Sources: NVIDIA NeMo-RL, docs/design-docs/sequence-packing-and-dynamic-batching.md; Krell et al., "Efficient Sequence Packing",
// arXiv:2107.02027. Validated by tests/workloads/rl_test.cpp.

#include "workloads/rl/spec.hpp"

#include <cstdint>
#include <vector>

namespace orrery::rl {

/// Sequences of a batch.
struct Rows {
    double count = 0;
    std::int64_t tokens = 1;  ///< that each computes, with what fills it up
    std::int64_t sample = 0;  ///< tokens of each of its samples; 0: one sample as long as the sequence
};

/// `lengths`: of samples, prompt and answer, at least one and none longer than `sequence`. `pipelined`: several stages pass the sequences.
/// `unit`: what divides each sample's tokens, as ranks that share a sequence need; `sequence` has at least one.
[[nodiscard]] Rows rows_of(std::vector<std::int64_t> lengths, RowLayout layout, std::int64_t sequence, bool pipelined,
                           std::int64_t unit = 1);

/// Tokens of the replica with the most over the mean of the replicas, as each update deals out its samples in their order; 1: even.
/// `lengths`: of samples in their order; `update`: samples of one.
[[nodiscard]] double busiest_replica(const std::vector<std::int64_t>& lengths, std::int64_t update,
                                     std::int64_t replicas);

}  // namespace orrery::rl
