#include "validation/rl/setup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::validation {

namespace {

constexpr double kSigma = 0.8;          ///< of the logarithm of lengths of answers
constexpr std::int64_t kRackGpus = 64;  ///< of a GB200 rack that a run has, at most
constexpr std::int64_t kServerGpus = 8;

double normal(double x) {
    return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

std::int64_t integer(const FactsRow& row, const std::string& column) {
    return static_cast<std::int64_t>(row.number(column));
}

/// Where the parts of a step are.
struct Machines {
    std::string cluster;
    std::string generator, trainer;     ///< nodes
    std::int64_t generating, training;  ///< GPUs
};

Machines machines_of(const std::string& node, std::int64_t generating, std::int64_t training, bool shared) {
    const bool rack = node.find("nvl72") != std::string::npos;
    const std::int64_t smaller = std::min(generating, training);
    const std::int64_t each = std::min(smaller, rack ? kRackGpus : kServerGpus);
    const std::int64_t of_generator = generating / each;
    const std::int64_t of_trainer = training / each;
    const std::int64_t first = shared ? 0 : of_generator;
    const std::string size =
        rack || each != kServerGpus ? fmt::format("{{preset: {}, gpus: {}, nics: {}}}", node, each, each) : node;
    return {fmt::format("{{nodes: {}, node: {}}}", shared ? of_generator : of_generator + of_trainer, size),
            fmt::format("0-{}", of_generator - 1), fmt::format("{}-{}", first, first + of_trainer - 1), generating,
            training};
}

// The plan of a part that trains, or that judges alone.
std::string plan_of(const FactsRow& row, std::int64_t gpus, std::int64_t context, const std::string& recompute,
                    bool trains) {
    const std::int64_t tensor = integer(row, "tensor");
    const std::int64_t pipeline = integer(row, "pipeline");
    const std::int64_t data = gpus / (tensor * pipeline * context);
    std::string out = fmt::format(
        "tensor: {}, pipeline: {}, context: {}, data: {}, micro_batch: 1, global_batch: {}, "
        "sequence_parallel: {}, gradient_precision: bf16",
        tensor, pipeline, context, data, data, tensor > 1);
    if (const std::int64_t expert = integer(row, "expert"); expert > 1) {
        out += fmt::format(", expert: {}, expert_tensor: 1", expert);
    }
    if (trains) {
        out += fmt::format(", zero: {}, recompute: {}", integer(row, "zero"), recompute);
        out += integer(row, "zero") == 3 ? "" : ", overlap: {data: true, parameters: true}";
    }
    return "{" + out + "}";
}

// A job of kind training; its model's sequences are the longest samples.
std::string training_job(const std::string& role, const Machines& on, bool offload, const FactsRow& row,
                         std::int64_t sequence, const std::string& plan) {
    return fmt::format(
        "  - {{role: {}, nodes: {}, offload: {}, scenario: {{kind: training, model: {{preset: {}, sequence: {}}}, "
        "plan: {}, software: {}}}}}\n",
        role, on.trainer, offload, row.text("model"), sequence, plan,
        integer(row, "zero") == 3 ? "pytorch-fsdp2" : "megatron-core-2024");
}

std::string generator_job(const Machines& on, const FactsRow& row, const std::string& engine,
                          const std::string& requests) {
    const std::int64_t tensor = integer(row, "gen_tensor");
    return fmt::format(
        "  - {{role: generator, nodes: {}, scenario: {{kind: serving, model: {}, engine: {{replicas: {}, tensor: {}, "
        "weights: {}, router: session, {}}}, requests: {}}}}}\n",
        on.generator, row.text("model"), on.generating / tensor, tensor, row.text("gen_weights"), engine, requests);
}

}  // namespace

double mean_before_cut(double wanted, double sigma, double most) {
    const auto after = [&](double mean) {
        const double log_most = std::log(most / mean) + 0.5 * sigma * sigma;  // from the mean of the logarithm
        return mean * normal(log_most / sigma - sigma) + most * (1 - normal(log_most / sigma));
    };
    double low = wanted;
    double high = wanted;
    while (after(high) < wanted && high < 1e6 * most) {
        high *= 2;
    }
    for (int i = 0; i < 100; ++i) {
        const double middle = 0.5 * (low + high);
        (after(middle) < wanted ? low : high) = middle;
    }
    return 0.5 * (low + high);
}

std::string step_scenario(const FactsRow& row) {
    const std::string& mode = row.text("mode");
    const bool shared = mode == "colocated";
    const std::int64_t gpus = integer(row, "gpus");
    const std::size_t space = mode.find(' ');
    const std::int64_t generating = shared                       ? gpus
                                    : space == std::string::npos ? gpus / 2
                                                                 : std::stoll(mode.substr(space + 1));
    const Machines on = machines_of(row.text("node"), generating, shared ? gpus : gpus - generating, shared);
    const std::int64_t prompt = integer(row, "prompt");
    const std::int64_t most = integer(row, "most");
    const std::int64_t longest = most - prompt;  // answer
    const bool reference = row.text("source") != "verl-v1";
    const bool recomputed = integer(row, "zero") != 3;  // forward passes of sharded weights are not simulated
    const std::int64_t context = integer(row, "context");
    std::string out = fmt::format(
        "orrery: 1\nkind: rl\ncluster: {}\nalgorithm: grpo\nlog_probabilities: {}\n"
        "batch: {{prompts: {}, samples: {}, draws: 1, rows: {}, update: {}}}\n",
        on.cluster, recomputed ? "recomputed" : "engine", integer(row, "prompts"), integer(row, "samples"),
        row.text("rows"), integer(row, "update"));
    out += shared ? "jobs:\n" : "asynchronous: {staleness: 1, partial: true}\njobs:\n";
    out += generator_job(
        on, row, fmt::format("software: {}, kv: {{memory: {} %, prefix: {{}}}}", row.text("engine"), shared ? 60 : 80),
        fmt::format("{{prompt: {{mean: {}}}, output: {{kind: lognormal, mean: {:.6g}, spread: {}, most: {}}}}}", prompt,
                    mean_before_cut(row.number("mean"), kSigma, static_cast<double>(longest)), kSigma, longest));
    if (reference && recomputed) {
        out += training_job("reference", on, true, row, most, plan_of(row, on.training, context, "none", false));
    }
    out +=
        training_job("actor", on, shared, row, most, plan_of(row, on.training, context, row.text("recompute"), true));
    return out;
}

std::string weights_scenario(const FactsRow& row) {
    const Machines on = machines_of(row.text("node"), integer(row, "gen_gpus"), integer(row, "gpus"), false);
    std::string out = fmt::format(
        "orrery: 1\nkind: rl\ncluster: {}\nalgorithm: grpo\nsynchronisation: {{through: {}}}\n"
        "batch: {{prompts: 2, samples: 2, draws: 1, update: 4}}\njobs:\n",
        on.cluster, row.text("way") == "direct" ? "fabric" : "gathered");
    out += generator_job(on, row, "software: vllm-0.11", "{prompt: {mean: 16}, output: {mean: 16}}");
    out += training_job("actor", on, false, row, 1024, plan_of(row, on.training, 1, "full", true));
    return out;
}

}  // namespace orrery::validation
