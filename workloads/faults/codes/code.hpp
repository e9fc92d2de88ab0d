#pragma once
// Which workers a round of data-parallel training need not wait for: one code of gradients per file, one row each.
//
// Claims: a code cuts the batch into parts, gives each worker more of them than its own share, and so bears late workers as long as
// they stay within its pattern: the gradient of a job (a step of one model) can then be decoded `delay` rounds after its own at the
// latest. Patterns are those for which decoding is certain. Limits: parts are as small as needed, so that loads are exact; linear
// combinations and decoding take no time.
// Sources: Tandon et al., "Gradient Coding", ICML 2017; Krishnan, Ebrahimi and Khisti, "Sequential Gradient Coding for Straggler
// Mitigation", ICLR 2023, arXiv:2211.13802, and the authors' program (mamaj/Sequential-Gradient-Coding-2).
// Validated by tests/workloads/coding_test.cpp, which plays the codes' tasks one by one.

#include "sim/config/policy.hpp"

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace orrery::faults {

/// Whether each worker is late in a round.
using LateWorkers = std::vector<bool>;

class GradientCode {
  public:
    virtual ~GradientCode() = default;
    /// Share of a batch that each of so many workers computes in a round.
    [[nodiscard]] virtual double load(std::int64_t workers) const = 0;
    /// Rounds after its own until a gradient is there.
    [[nodiscard]] virtual std::int64_t delay() const { return 0; }
    /// Gradients, of the size of the model, that a worker sends in a round.
    [[nodiscard]] virtual std::int64_t results() const { return 1; }
    /// Earlier rounds that `bears` looks at.
    [[nodiscard]] virtual std::int64_t memory() const { return 0; }
    /// Whether these may be left behind in this round. `past`: who was left behind before, the last round first.
    [[nodiscard]] virtual bool bears(const LateWorkers& late, const std::deque<LateWorkers>& past) const = 0;
    /// What its parameters contradict with so many workers; empty: nothing.
    [[nodiscard]] virtual std::string problem(std::int64_t /*workers*/) const { return {}; }
};

[[nodiscard]] const PolicyTable<GradientCode>& gradient_code_table();
using GradientCodeChoice = PolicyChoice<GradientCode>;

/// The pattern of both sequential codes: in `window` rounds that follow each other at most `workers` are late, and each of them within
/// `burst` rounds.
struct BurstPattern {
    std::int64_t burst = 1;
    std::int64_t window = 2;
    std::int64_t workers = 1;

    void describe(Fields& fields);
    [[nodiscard]] bool bears(const LateWorkers& late, const std::deque<LateWorkers>& past) const;
    /// What the numbers contradict with so many workers in all; empty: nothing.
    [[nodiscard]] std::string problem(std::int64_t all) const;
};

}  // namespace orrery::faults
