#pragma once
// Documents of unlike lengths in a step: how they fill sequences and ranks, and what each rank's micro-batches then hold.
//
// Claims: a step has global_batch sequences of the model's length. padded: each holds a document and padding. unpadded: each is as long
// as its document. packed: documents are drawn until one fits in no sequence any more, each put into the fullest that has room (best fit); a
// document attends to itself alone, so that attention costs the sum of the squares of their lengths, and all else what the tokens do.
// Sequences stay with the ranks that drew them, or are dealt out by what they cost: of each round, one for each replica, the dearest
// goes to the replica with the least so far, so that replicas differ by no more than the dearest sequence. Micro-batches have prices of
// their own by rank, and the step waits for the slowest.
// Dynamic groups: the ranks of all replicas, context ranks among them, take documents. One longer than a rank's share of a sequence
// (sequence / context tokens of each of its micro_batch sequences) is cut over as many as it needs, in a ring on one node or over whole
// nodes; all others stay on one rank and send nothing. Dearest first, a document goes to the rank with the least so far that has room;
// one that fits nowhere goes to the rank with the least and makes its micro-batch longer. The ranks of a ring begin together.
// Scope: fused attention kernels over documents of a batch (variable lengths) at the rate of as many tokens in documents of one length.
// Limits: the exchange of token ids between ranks happens a step ahead and costs nothing; causal rings are balanced (zigzag).
// Sources: Ge et al., "ByteScale", arXiv:2502.21231, sections 4 and 5; Krell et al., "Efficient Sequence Packing", arXiv:2107.02027 (best
// fit, block-diagonal attention); Zeng et al., "Boosting Distributed Training Performance of the Unpadded BERT Model", arXiv:2208.08124.
// Validated by tests/workloads/document_lengths_test.cpp: closed forms of padding, sums of squares, bounds of balance.

#include "workloads/training/plan/feature.hpp"

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace orrery::training {

enum class DocumentFill { padded, packed, unpadded };

/// Documents of this length, and how many of all they are (in any unit).
struct DocumentLength {
    std::int64_t tokens = 1;
    double share = 1;
};

struct DocumentsPlan final : FeatureOf<DocumentsPlan> {
    std::vector<DocumentLength> lengths;
    std::string trace;  ///< a file of lengths, one a line, in the order of training
    DocumentFill fill = DocumentFill::packed;
    bool balanced = false;  ///< sequences are dealt out by what they cost
    bool dynamic = false;   ///< long documents are cut over as many ranks as they need

    void describe(Fields& fields) override;
    void check(const ModelSpec& model, const PlanSpec& plan, PlanProblems& out) const override;
};
/// Documents of one length in a micro-batch of a rank, each cut over so many ranks.
struct DocumentPiece {
    double length = 0;
    double count = 1;
    std::uint32_t ranks = 1;
    std::uint32_t column = 0;  ///< the first of these ranks, where groups are dynamic
    friend auto operator<=>(const DocumentPiece&, const DocumentPiece&) = default;
};

/// A micro-batch of a rank.
struct MicroBatchLoad {
    double rows = 0;  ///< tokens that the rank computes, padding included
    std::vector<DocumentPiece> pieces;
    friend auto operator<=>(const MicroBatchLoad&, const MicroBatchLoad&) = default;
    /// Sum of the squares of its documents' lengths, each over the ranks that it is cut over.
    [[nodiscard]] double squares() const;
};

/// Ranks of a stage, neighbours, that compute a document together.
struct DocumentRing {
    std::uint32_t micro_batch, column, ranks;
};

/// The documents of a step on its ranks. A column: a replica or, with dynamic groups, a context rank of one.
struct DocumentLayout {
    std::uint32_t columns = 1;
    std::uint32_t micro_batches = 1;
    std::vector<MicroBatchLoad> loads;      ///< distinct ones
    std::vector<std::uint32_t> of;          ///< by column and micro-batch: which of them
    std::vector<DocumentRing> rings;        ///< of more than one rank, where groups are dynamic
    std::vector<DocumentLength> documents;  ///< all, by length; share: how many
    double tokens = 0;                      ///< of documents
    double rows = 0;                        ///< computed by all columns together, context ranks of one included
    double longest_rows = 0;                ///< of the fullest micro-batch of a column

    [[nodiscard]] const MicroBatchLoad& at(std::uint32_t column, std::uint32_t micro_batch) const {
        return loads[of[std::size_t{column} * micro_batches + micro_batch]];
    }
};

/// Lays out a step. `trace`: lengths in order, where the plan names one. `node_columns`: columns of a stage on one node.
/// Precondition: no problem, and no length above the model's sequence.
[[nodiscard]] DocumentLayout lay_out_documents(const ModelSpec& model, const PlanSpec& plan,
                                               const std::vector<std::int64_t>& trace, std::uint64_t seed,
                                               std::uint32_t node_columns);

/// Lengths in a file, one a line; comments after '#'. Throws ConfigError with all lines that are wrong.
[[nodiscard]] std::vector<std::int64_t> read_document_trace(const std::string& path, std::int64_t longest);

/// FLOPs of a forward and a backward pass over a document, whose tokens attend to it alone.
[[nodiscard]] double document_flops(const ModelSpec& model, const PlanSpec& plan, double length);

}  // namespace orrery::training
