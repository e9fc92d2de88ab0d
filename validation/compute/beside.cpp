#include "validation/compute/beside.hpp"

#include "models/calibrated.hpp"
#include "sim/record/facts_table.hpp"
#include "topologies/device_preset.hpp"
#include "validation/compute/passes.hpp"
#include "validation/statistics.hpp"
#include "workloads/training/programs/pass_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

namespace orrery::validation {

namespace {

struct PromptedModel {
    const char* name;
    double layers, hidden, ffn, heads, kv_heads, vocabulary;
    double experts = 0;  ///< two of them for each token
};
constexpr PromptedModel kModels[] = {{"llama-3.3-70b", 80, 8192, 28672, 64, 8, 128256},
                                     {"qwen2.5-72b", 80, 8192, 29568, 64, 8, 152064},
                                     {"mixtral-8x22b", 56, 6144, 16384, 48, 8, 32768, 8}};
constexpr double kHeadDim = 128;

/// Measured kernels by the tokens of 8,192 values that they move, s.
class FusedKernels {
  public:
    explicit FusedKernels(const DataDirectory& data)
        : rows_(read_facts_table(data.path("validation/compute/fused_kernels.csv"))) {}

    /// Between the sizes measured in proportion to the tokens; beyond the last with its rate.
    [[nodiscard]] double seconds(const char* kernel, double tokens) const {
        const auto at = [&](std::size_t i) { return rows_[i].number(kernel) * 1e-6; };
        const std::size_t last = rows_.size() - 1;
        if (tokens >= rows_[last].number("tokens")) {
            return at(last) * tokens / rows_[last].number("tokens");
        }
        std::size_t i = 0;
        while (i + 1 < last && rows_[i + 1].number("tokens") < tokens) {
            ++i;
        }
        const double from = rows_[i].number("tokens");
        const double share = (tokens - from) / (rows_[i + 1].number("tokens") - from);
        return at(i) + share * (at(i + 1) - at(i));
    }

  private:
    std::vector<FactsRow> rows_;
};

/// A prompt's layers on `gpus` tensor-parallel devices.
class Prompt {
  public:
    Prompt(const PromptedModel& model, const CostModel& device, double memory_rate, const FusedKernels& kernels,
           double gpus, double tokens)
        : model_(model), device_(device), memory_rate_(memory_rate), kernels_(kernels), gpus_(gpus), tokens_(tokens) {}

    [[nodiscard]] double in_turn(bool reduces) const {
        const double between = norm("norm", tokens_) + (reduces ? norm("all_reduce", tokens_) : 0);
        double kernels = 0;
        for (const Alone& one : attention(tokens_, tokens_)) {
            kernels += one.seconds;
        }
        for (const Alone& one : feed_forward(tokens_)) {
            kernels += one.seconds;
        }
        return model_.layers * (kernels + 2 * between) + head();
    }

    /// The kernels of one half beside the sum and norm of the other, which hold `units` of the device.
    [[nodiscard]] double beside(double units) const {
        const double half = tokens_ / 2;
        // Every GPU's part is read by the switch and the sum written to all; of its share of the rows the residual is read and written.
        const double values = half * model_.hidden * 2;
        const Alone sum{norm("fused", half), 2 * values * (1 + 1 / gpus_)};
        PassProgram program;
        std::array<PassProgram::Id, 2> summed{PassProgram::kNone, PassProgram::kNone};
        for (int layer = 0; layer < kLayers; ++layer) {
            for (const bool attends : {true, false}) {
                for (std::size_t i = 0; i < 2; ++i) {
                    PassProgram::Id done = summed[i];
                    for (const Alone& one :
                         attends ? attention(half, half * static_cast<double>(i + 1)) : feed_forward(half)) {
                        done = program.add({"kernel",
                                            Category::forward,
                                            PassStream::compute,
                                            one.seconds,
                                            0,
                                            {done, PassProgram::kNone},
                                            0,
                                            one.share_of(memory_rate_)});
                    }
                    summed[i] = program.add({"sum",
                                             Category::tensor_communication,
                                             PassStream::tensor,
                                             sum.seconds,
                                             0,
                                             {done, PassProgram::kNone},
                                             units,
                                             sum.share_of(memory_rate_)});
                }
            }
        }
        return program.price().total() * model_.layers / kLayers + head();
    }

  private:
    static constexpr int kLayers = 4;  // as many as make the ends small

    [[nodiscard]] double norm(const char* kernel, double tokens) const {
        return kernels_.seconds(kernel, tokens * model_.hidden / 8192);
    }

    [[nodiscard]] std::vector<Alone> attention(double tokens, double keys) const {
        const double q = model_.heads * kHeadDim / gpus_;
        const double kv = model_.kv_heads * kHeadDim / gpus_;
        Attention attention{model_.heads / gpus_, tokens, keys, kHeadDim};
        attention.group = model_.heads / model_.kv_heads;
        return {alone(attention), alone(Gemm{tokens, q + 2 * kv, model_.hidden}), alone(Gemm{tokens, model_.hidden, q}),
                alone(Streaming{tokens * (q + kv) * 4, 1, StreamingKind::rotary})};
    }

    [[nodiscard]] std::vector<Alone> feed_forward(double tokens) const {
        const double ffn = model_.ffn / gpus_;
        if (model_.experts > 0) {
            FusedExperts experts;
            experts.tokens = tokens;
            experts.hidden = model_.hidden;
            experts.ffn = ffn;
            experts.experts = model_.experts;
            experts.topk = 2;
            return {alone(experts), alone(Gemm{tokens, model_.experts, model_.hidden})};
        }
        return {alone(Gemm{tokens, 2 * ffn, model_.hidden}), alone(Gemm{tokens, model_.hidden, ffn}),
                alone(Streaming{tokens * 3 * ffn * 2, 1, StreamingKind::activation})};
    }

    [[nodiscard]] double head() const { return alone(Gemm{1, model_.vocabulary / gpus_, model_.hidden}).seconds; }
    [[nodiscard]] Alone alone(const Operation& operation) const {
        const Cost cost = device_.cost(operation);
        return {cost.seconds.value(), cost.bytes};
    }

    const PromptedModel& model_;
    const CostModel& device_;
    double memory_rate_;  ///< of the main memory, as streaming kernels reach it, B/s
    const FusedKernels& kernels_;
    double gpus_, tokens_;
};

using Groups = std::map<std::string, std::vector<double>>;

void prompts(const DataDirectory& data, const Terminal& terminal, bool points, Comparison& out) {
    const DeviceSpec gpu = read_device("h100-sxm", data);
    const Calibrated device(gpu, data, kHeld);  // prompt after prompt, as latencies are averaged
    const FusedKernels kernels(data);
    constexpr double kBlocks = 8;
    Groups groups;
    std::vector<double> errors;
    std::vector<std::vector<std::string>> listed;
    for (const FactsRow& row : read_facts_table(data.path("validation/compute/prefill_overlap.csv"))) {
        const auto model = std::find_if(std::begin(kModels), std::end(kModels),
                                        [&](const PromptedModel& one) { return row.text("model") == one.name; });
        if (model == std::end(kModels)) {
            throw ConfigError(
                fmt::format("validation/compute/prefill_overlap.csv: unknown model '{}'", row.text("model")),
                ErrorCode::unknown_name);
        }
        const double memory_rate = gpu.memory_bandwidth.value * gpu.memory_efficiency.value;
        const Prompt prompt(*model, device, memory_rate, kernels, row.number("gpus"), row.number("tokens"));
        const double beside = prompt.beside(kBlocks / static_cast<double>(gpu.compute_units));
        const std::pair<const char*, double> ways[] = {
            {"in_turn", prompt.in_turn(true)}, {"none", prompt.in_turn(false)}, {"beside", beside}};
        for (const auto& [way, seconds] : ways) {
            const double error = seconds * 1e3 / row.number(way) - 1;
            errors.push_back(error);
            groups[fmt::format("prompt, all-reduces {}", way)].push_back(error);
            listed.push_back({row.text("model"), row.text("gpus"), row.text("tokens"), way,
                              fmt::format("{:.4g} ms", row.number(way)), fmt::format("{:.4g}", seconds * 1e3),
                              fmt::format("{:+.1f} %", 100 * error)});
        }
        const double measured = row.number("in_turn") / row.number("beside");
        groups["gain of hiding them"].push_back(ways[0].second / beside / measured - 1);
    }
    if (points) {
        terminal.heading("prompts beside their all-reduces");
        terminal.table({"model", "GPUs", "tokens", "all-reduces", "measured", "predicted", "error"}, listed);
    }
    print_errors(terminal,
                 "prompts whose all-reduces run in turn, not at all, or beside kernels (nothing fitted on them)",
                 groups);
    const ErrorStatistics all = statistics_of(errors);
    out.scores.push_back({"beside_prompts", static_cast<double>(all.count), ""});
    out.scores.push_back({"beside_prompts_error", all.mape, "%"});
    out.scores.push_back({"beside_gain_error", statistics_of(groups["gain of hiding them"]).mape, "%"});
}

void slowdowns(const DataDirectory& data, const Terminal& terminal, bool points, Comparison& out) {
    Groups groups;
    std::vector<double> errors;
    std::vector<std::vector<std::string>> listed;
    for (const FactsRow& row : read_facts_table(data.path("validation/compute/beside.csv"))) {
        const double units = row.number("units");
        const double left = units - row.number("taken");
        const double blocks = row.number("blocks");
        const double alone = blocks > 0 ? std::min(units, blocks) : units;
        const double memory = row.text("bound") == "memory" ? 1 : 0;
        const double predicted = 1 / speed_on(std::min(1.0, left / alone), memory);
        const double measured = row.number("beside") / row.number("alone");
        errors.push_back(predicted / measured - 1);
        const char* kind = blocks > 0 && blocks <= left ? "leaves the units free anyway" : "wants all units";
        groups[fmt::format("{}: {}", row.text("device"), kind)].push_back(errors.back());
        listed.push_back({row.text("device"), row.text("kernel"), fmt::format("{:.2f}", measured),
                          fmt::format("{:.2f}", predicted), fmt::format("{:+.1f} %", 100 * errors.back())});
    }
    if (points) {
        terminal.heading("kernels beside collectives");
        terminal.table({"device", "kernel", "times as long", "predicted", "error"}, listed);
    }
    print_errors(terminal, "how many times as long kernels take beside a collective", groups);
    const ErrorStatistics all = statistics_of(errors);
    out.scores.push_back({"beside_kernels", static_cast<double>(all.count), ""});
    out.scores.push_back({"beside_kernels_error", all.mape, "%"});
}

}  // namespace

void validate_beside(const DataDirectory& data, const Terminal& terminal, bool points, Comparison& out) {
    prompts(data, terminal, points, out);
    slowdowns(data, terminal, points, out);
}

}  // namespace orrery::validation
