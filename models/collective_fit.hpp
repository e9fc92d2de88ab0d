#pragma once
// Measured collectives of one fabric as pieces of a formula, with the sizes at which the library changes its algorithm.
//
// Claims: between two switch points the time of (library, operation, ranks) is `alpha + S / B + gamma sqrt(S)` over the bytes S of a
// rank's buffer: start-up, links, and the pipeline whose best chunk grows with the root of S. Between measured numbers of ranks
// the ratio to the formula of the wire volume is interpolated over log2(ranks); beyond them it stays.
// Scope: one node (one NVLink or PCIe domain); what the links do between nodes is models/collective_library.
// Limits: a switch point lies between two measured sizes, at their geometric mean; the pieces are fitted one by one, so the
// time may step down where a library switches late.
// Sources: header lines of models/data/collectives/*.fit. The root term: Chan et al., "Collective communication: theory,
// practice, and experience", CCPE 19(13), 2007, section 4 (pipelined trees and rings with optimal block size).
// Validated by tests/models/collective_fit_test.cpp; `orrery validate collectives` prints errors by system.

#include "sim/base/namespaces.hpp"
#include "sim/network/collective.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace orrery::models {

/// One algorithm of a curve: `alpha + bytes x per_byte + gamma x sqrt(bytes)` from `from` bytes on.
struct CollectivePiece {
    double from = 0;        ///< B, first size of this piece
    double alpha = 0;       ///< s
    double per_byte = 0;    ///< s/B
    double gamma = 0;       ///< s/sqrt(B)
    std::string algorithm;  ///< as the trace names it; empty where it does not

    [[nodiscard]] double seconds(double bytes) const;
};

/// Times of one operation of one library over the sizes, at one number of ranks.
struct CollectiveCurve {
    std::string library;  ///< "nccl", "vllm", "sglang", "trtllm", ...
    CollectiveOp op = CollectiveOp::all_reduce;
    std::uint32_t ranks = 2;
    std::int64_t points = 0;
    double error = 0;                     ///< mean |predicted / measured - 1| on the fitted points
    double held_back = 0;                 ///< the same on every second size, when fitted on the others
    std::vector<CollectivePiece> pieces;  ///< ascending in `from`; the first starts at 0

    [[nodiscard]] double seconds(double bytes) const;
};

/// All curves of a fabric.
struct CollectiveFit {
    double bandwidth = 0;  ///< B/s of one GPU, one direction, on the measured system
    std::vector<std::string> sources;
    std::vector<CollectiveCurve> curves;  ///< of one (library, op) side by side, ascending in ranks

    /// Whether anything of this library and operation is measured.
    [[nodiscard]] bool has(std::string_view library, CollectiveOp op) const;
    /// Time on links of `link_bandwidth` B/s per GPU. Precondition: `has(library, op)`.
    [[nodiscard]] double seconds(std::string_view library, CollectiveOp op, double ranks, double bytes,
                                 double link_bandwidth) const;
};

/// Reads the text of a `.fit` file; `name` is what errors call it. Throws ConfigError with every problem, each with its line.
[[nodiscard]] CollectiveFit parse_collective_fit(const std::string& text, const std::string& name);
/// The text of a fit; reads back to the same up to the printed digits.
[[nodiscard]] std::string format_collective_fit(const CollectiveFit& fit);

}  // namespace orrery::models
