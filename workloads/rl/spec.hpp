#pragma once
// What a scenario of reinforcement-learning post-training says beside its parts: the algorithm, the batch of a step, and how steps
// and weights follow each other.

#include "sim/config/fields.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::rl {

enum class RlAlgorithm { ppo, grpo, rloo, remax };
/// What a part of a step does. In the order in which a step needs them.
enum class PartRole { generator, reference, reward, critic, actor };
/// How samples become the rows that the models of training see.
enum class RowLayout { padded, packed, single };
/// Where the log-probabilities of the answers come from: the engine that generates them, or a forward pass of the actor.
enum class LogProbabilities { engine, recomputed };
/// What the trained weights go over to the generator.
enum class WeightPath { fabric, server, gathered };

struct RlSpec {
    RlAlgorithm algorithm = RlAlgorithm::ppo;
    std::int64_t prompts = 256;
    std::int64_t samples = 1;  ///< of each prompt
    std::int64_t epochs = 1;   ///< times that training goes over the samples of a step
    RowLayout rows = RowLayout::packed;
    std::int64_t update = 0;  ///< samples between two updates; 0: as many as the plan's global batch of sequences holds
    std::int64_t draws = 4;   ///< batches that are drawn and generated; steps take them in turn
    LogProbabilities log_probabilities = LogProbabilities::engine;
    bool rules = false;             ///< rewards come from rules, not from a model: `rewards` was given
    double rule_time = 0;           ///< s for one sample
    std::int64_t rule_workers = 1;  ///< that judge samples side by side
    bool asynchronous = false;
    std::int64_t staleness = 1;  ///< updated weights that the generator may lack
    bool partial = false;        ///< generation goes on over the ends of batches
    WeightPath weights = WeightPath::fabric;
    double bandwidth = 0;  ///< B/s of a server of weights, each way

    /// Samples of a step that models train on.
    [[nodiscard]] std::int64_t sequences() const { return prompts * samples; }
    /// Answers to each prompt that are generated and judged: remax has a greedy one, whose reward is the baseline of the others.
    [[nodiscard]] std::int64_t answers() const { return samples + (algorithm == RlAlgorithm::remax ? 1 : 0); }
    [[nodiscard]] std::int64_t generated() const { return prompts * answers(); }
};

[[nodiscard]] const std::vector<std::string>& part_role_names();
[[nodiscard]] const std::vector<std::string>& rl_algorithm_names();

void describe(Fields& fields, RlSpec& spec);

/// What of a specification can never be, whatever its parts; empty: fine.
[[nodiscard]] std::vector<std::string> problems_of(const RlSpec& spec);
/// The same of its parts.
[[nodiscard]] std::vector<std::string> problems_of(const RlSpec& spec, const std::vector<PartRole>& parts);

}  // namespace orrery::rl
