#include "workloads/rl/spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace orrery::rl {

namespace {

constexpr std::int64_t kMostSamples = 100'000'000;  // each is a request of a serving run

}  // namespace

const std::vector<std::string>& part_role_names() {
    static const std::vector<std::string> kNames = {"generator", "reference", "reward", "critic", "actor"};
    return kNames;
}

const std::vector<std::string>& rl_algorithm_names() {
    static const std::vector<std::string> kNames = {"ppo", "grpo", "rloo", "remax"};
    return kNames;
}

void describe(Fields& fields, RlSpec& spec) {
    fields.enumeration(
        {"algorithm", "RL algorithm: ppo adds a critic; remax adds one greedy answer per prompt as the baseline", true},
        rl_algorithm_names(), spec.algorithm);
    fields.section({"batch", "prompts and answers of a step"}, [&](Fields& inner) {
        inner.integer({"prompts", "prompts of a step", false, 1, 1 << 24}, spec.prompts);
        inner.integer({"samples", "answers to each prompt", false, 1, 1 << 16}, spec.samples);
        inner.integer({"epochs", "times that training goes over a step's samples", false, 1, 100}, spec.epochs);
        inner.enumeration({"rows",
                           "layout of samples: padded to the model's sequence length, packed into full sequences, or "
                           "single sequences of their own length"},
                          {"padded", "packed", "single"}, spec.rows);
        inner.integer(
            {"update", "samples between two updates; 0: as many as fill the global_batch of the plan, in sequences",
             false, 0, 1 << 30},
            spec.update);
        inner.integer({"draws", "number of batches to draw and generate; steps use them round-robin", false, 1, 64},
                      spec.draws);
    });
    fields.enumeration({"log_probabilities",
                        "log-probabilities of the answers: those of the engine, or recomputed by a forward pass of the "
                        "actor before it trains"},
                       {"engine", "recomputed"}, spec.log_probabilities);
    fields.optional({"rewards", "rules that judge samples in place of a reward model"}, spec.rules, [&](Fields& inner) {
        inner.quantity({"time", "time to judge one sample", true, 0, 1e5}, Dimension::time, spec.rule_time);
        inner.integer({"workers", "workers that judge side by side", false, 1, 1 << 20}, spec.rule_workers);
    });
    fields.optional(
        {"asynchronous", "generation does not wait for the training of the step before"}, spec.asynchronous,
        [&](Fields& inner) {
            inner.integer({"staleness", "updates that the generator's weights may lack; 0: none", false, 0, 64},
                          spec.staleness);
            inner.boolean({"partial", "long samples go on over the end of a batch and the change of weights"},
                          spec.partial);
        });
    fields.section({"synchronisation", "transfer of trained weights to the generator"}, [&](Fields& inner) {
        inner.enumeration({"through",
                           "path of the weights: GPU to GPU over the fabric, through a weight server, or gathered on "
                           "one training GPU and broadcast"},
                          {"fabric", "server", "gathered"}, spec.weights);
        inner.quantity({"bandwidth", "bandwidth of the server in each direction; 0 B/s: no server", false, 0, 1e15},
                       Dimension::rate, spec.bandwidth);
    });
}

std::vector<std::string> problems_of(const RlSpec& spec, const std::vector<PartRole>& parts) {
    std::vector<std::string> out;
    const auto count = [&](PartRole role) { return std::count(parts.begin(), parts.end(), role); };
    const auto name = [](PartRole role) { return part_role_names()[static_cast<std::size_t>(role)]; };
    for (const PartRole role : {PartRole::generator, PartRole::actor}) {
        if (count(role) == 0) {
            out.push_back("a step needs a job with role '" + name(role) + "'");
        }
    }
    for (std::size_t i = 0; i < part_role_names().size(); ++i) {
        if (count(static_cast<PartRole>(i)) > 1) {
            out.push_back("more than one job has the role '" + part_role_names()[i] + "'");
        }
    }
    const bool critic = count(PartRole::critic) > 0;
    if (spec.algorithm == RlAlgorithm::ppo && !critic) {
        out.emplace_back("ppo has a critic: a job with role 'critic' (all other algorithms have none)");
    }
    if (spec.algorithm != RlAlgorithm::ppo && critic) {
        out.emplace_back("grpo, rloo and remax have no critic: leave it out, or say algorithm: ppo");
    }
    if (spec.rules && count(PartRole::reward) > 0) {
        out.emplace_back("samples are judged by 'rewards' or by a job with role 'reward', not by both");
    }
    return out;
}

std::vector<std::string> problems_of(const RlSpec& spec) {
    std::vector<std::string> out;
    if (spec.generated() * spec.draws > kMostSamples) {
        out.push_back(fmt::format("{} samples a step in {} batches that are drawn: {} in all at most", spec.generated(),
                                  spec.draws, kMostSamples));
    }
    if ((spec.algorithm == RlAlgorithm::grpo || spec.algorithm == RlAlgorithm::rloo) && spec.samples < 2) {
        out.emplace_back("grpo and rloo compare the samples of a prompt: batch.samples is 2 or more");
    }
    if (spec.update > spec.sequences()) {
        out.push_back(fmt::format("an update of {} samples, and a step has {}: batch.update is as many at most",
                                  spec.update, spec.sequences()));
    }
    if (spec.asynchronous && spec.partial && spec.staleness == 0) {
        out.emplace_back("'partial' samples are of several weights: asynchronous.staleness is 1 or more");
    }
    if (spec.weights == WeightPath::server && spec.bandwidth <= 0) {
        out.emplace_back("synchronisation through a server needs its 'bandwidth'");
    }
    if (spec.weights != WeightPath::server && spec.bandwidth > 0) {
        out.emplace_back("'synchronisation.bandwidth' is of a server: the fabric has links of its own");
    }
    return out;
}

}  // namespace orrery::rl
