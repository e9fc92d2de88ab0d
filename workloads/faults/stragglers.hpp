#pragma once
// Workers that are slow for single rounds, and codes that need not wait for them.
//
// Claims: every worker (a data-parallel replica) is slow or not in each round, a chain of two states (Gilbert, Elliott); while slow it
// computes at a share of its speed and answers later by a fixed and an exponential delay. A round without a code ends when all have
// answered. With one, whoever has not answered after (1 + patience) times the fastest is late: the round ends then where the code bears
// it; otherwise it waits on for one after the other until the code bears the rest, or for all.
// Limits: workers are alike but for their state; answers of late workers are lost; rounds after the last job of a campaign, in which
// delayed gradients come in, are not counted.
// Sources: as workloads/faults/codes/code.hpp; the rule of patience: arXiv:2211.13802, section 2.
// Validated by tests/workloads/coding_test.cpp (closed forms) and scenarios/papers/sequential-gradient-coding.

#include "workloads/faults/codes/code.hpp"

namespace orrery::faults {

struct StragglerSpec {
    bool given = false;
    double share = 0;            ///< of rounds in which a worker is slow
    double burst = 0;            ///< mean rounds for which it stays slow; 0: each round for itself
    double factor = 1;           ///< share of the speed that is left
    double delay_s = 0;          ///< that a slow worker answers later, at least
    double spread_s = 0;         ///< mean of what comes on top, exponential
    std::int64_t rounds = 1000;  ///< that are played

    [[nodiscard]] double mean_burst() const { return burst > 0 ? burst : 1 / (1 - share); }
};

enum class WaitsOn { enough, all };

struct CodingSpec {
    GradientCodeChoice code{gradient_code_table(), "none"};
    double patience = 1;  ///< beyond the time of the fastest worker, as a share of it (mu)
    WaitsOn waits = WaitsOn::enough;
    std::int64_t models = 1;  ///< trained in turn by the same workers

    [[nodiscard]] bool given() const { return code.name() != "none"; }
};

void describe(Fields& fields, StragglerSpec& stragglers);
void describe(Fields& fields, CodingSpec& coding);
/// What single fields cannot see. `node`: of the section that has both.
void check_spec(const YamlNode& node, const StragglerSpec& stragglers, const CodingSpec& coding, std::int64_t workers,
                std::vector<Diagnostic>& errors);

/// Seconds of an iteration of one model without stragglers and codes, by what they depend on.
struct RoundParts {
    double computing = 0;  ///< goes with the load of a worker
    double exchange = 0;   ///< of gradients: goes with how many a worker sends
    double fixed = 0;
};

/// What the rounds that were played are like, on average.
struct RoundsPlayed {
    double round_s = 0;
    double late = 0;    ///< workers that were left behind, per round
    double waited = 0;  ///< share of rounds in which the code did not bear all that were late
};
[[nodiscard]] RoundsPlayed play_rounds(const StragglerSpec& stragglers, const CodingSpec& coding, std::int64_t workers,
                                       const RoundParts& parts, std::uint64_t seed);

}  // namespace orrery::faults
