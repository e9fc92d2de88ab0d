#pragma once
// An iteration's time as the scenario gives it, in place of prices of kernels.
//
// For schedules of other simulators and measured engines whose step times are known: with the same times a scheduler must make
// the same iterations, to the last digit.
// Claims: an iteration takes `fixed` + prompts + decodes. Prompts: `token` for each new token, `square` for each of them and
// each token that it attends to (a whole prompt of n tokens: n^2). Decodes: `sequence` for each, `context` for each token in
// the cache that they look back on; or the table's time for their number and mean context, linear between its points and
// level below the least. From a number of decoding sequences on, other constants can hold. Where both are in one
// iteration, prompts and decodes take `mixed` times as long.
// A piece of one token counts as decoding. Tokens of drafts and places of finished sequences (static batches) count as decoding sequences without context.
// Scope: of each pipeline stage alike. What it replaces (software, host times, clocks, shares of units, adapters, experts'
// options) is refused beside it. Limits: says nothing of energy.
// Sources of the shapes: Zhong et al., "DistServe", OSDI 2024, section 3 (a fit of both phases, with constants by batch size);
// Patel et al., "Splitwise", ISCA 2024 (tables by batch and context).
// Validated by tests/workloads/given_step_test.cpp.

#include "sim/config/fields.hpp"
#include "workloads/serving/cost/step_cost.hpp"

#include <string>
#include <vector>

namespace orrery::serving {

/// Constants of decoding, s.
struct DecodeTimes {
    double fixed = 0;     ///< of an iteration, whether it decodes or not
    double sequence = 0;  ///< of each decoding sequence
    double context = 0;   ///< of each token that they look back on
};

/// A measured iteration of decodes alone.
struct StepPoint {
    std::int64_t sequences = 1;
    std::int64_t context = 0;  ///< tokens in the cache of each, on average
    double seconds = 0;        ///< without `fixed`
};

struct GivenStepSpec {
    double token = 0;   ///< s for each new token of a prompt
    double square = 0;  ///< s for each new token of a prompt and each token that it attends to, itself included
    DecodeTimes decodes;
    std::int64_t many = 0;  ///< decoding sequences from which `beyond` holds; 0: never
    DecodeTimes beyond;
    double mixed = 1;              ///< prompts and decodes in one iteration over the same apart
    std::vector<StepPoint> table;  ///< a full grid; empty: `sequence` and `context`
};

void describe(Fields& fields, GivenStepSpec& step);
/// What is wrong with it; empty: nothing.
[[nodiscard]] std::vector<std::string> problems_of(const GivenStepSpec& step);

class GivenStep final : public StepCost {
  public:
    /// Precondition: problems_of(step) is empty.
    explicit GivenStep(const GivenStepSpec& step);
    /// Throws InfeasibleError for more sequences or longer contexts than the table has.
    [[nodiscard]] StepWork work(const Batch& batch) override;

  private:
    [[nodiscard]] double of_table(double sequences, double context) const;

    GivenStepSpec step_;
    std::vector<double> sequences_;  ///< of the table's rows, ascending
    std::vector<double> contexts_;   ///< of its columns
    std::vector<double> seconds_;    ///< row by row
};

}  // namespace orrery::serving
