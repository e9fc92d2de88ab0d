#include "sim/base/text.hpp"
#include "sim/device/power.hpp"
#include "sim/record/facts_table.hpp"
#include "tools/driver/run.hpp"
#include "validation/energy/limit_sweeps.hpp"
#include "validation/validate.hpp"
#include "workloads/training/simulation/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace orrery::validation {

namespace {

// The requests of the source are turns of chats after all that was said before: 1,306,650 tokens in 2,048 prompts. Answers spread as an
// exponential distribution does (of 2,048 that Llama 3.1 8B gave the standard deviation is 0.999 of the mean); the spread of prompts is
// not given and taken as theirs. Of a prompt the cache holds what earlier turns of its chat left: with questions of 150 tokens and answers
// of 450 (assumed), chats that go on with probability 0.45 have such prompts, of which 0.45 were seen before.
constexpr int kPrompt = 638;
constexpr double kEarlier = 0.45;
constexpr double kSpread = 0.8326;  // lognormal with as large a standard deviation as mean: sqrt(ln 2)
constexpr int kBudget = 8192;       // --max-num-batched-tokens of all its configurations
constexpr int kLongest = 4096;      // --max-output-tokens

Scenario scenario_of(const FactsRow& row, const DataDirectory& data) {
    const auto batch = static_cast<int>(row.number("max_seqs"));
    const double expert = row.number("expert");
    const bool block = row.text("weights") == "fp8-block";
    // Of prompts that come r times the cache holds (r - 1) / r whole. What it holds is here the part that all prompts share.
    const int repeated = static_cast<int>(kPrompt * (1 - (1 - kEarlier) / row.number("repeats")));
    const std::string node = row.text("gpu") == "B200" ? "dgx-b200" : "dgx-h100";
    return read_scenario(
        parse_yaml(fmt::format("orrery: 1\nkind: serving\ncluster: {{nodes: 1, node: {}}}\nmodel: {}\n"
                               "engine: {{software: vllm-0.11, tensor: {}, {}weights: {}, kv: {{prefix: {{}}}}, "
                               "scheduler: {{kind: chunked-prefill, max_sequences: {}, token_budget: {}}}}}\n"
                               "requests: {{arrivals: closed, clients: {}, common: {}, "
                               "prompt: {{kind: lognormal, mean: {}, spread: {}}}, "
                               "output: {{kind: lognormal, mean: {}, spread: {}, most: {}}}}}\n"
                               "network: {{collectives: vllm}}\n",
                               node, row.text("model"), expert > 1 ? expert : row.number("tensor"),
                               expert > 1 ? fmt::format("expert: {}, ", expert) : std::string(),
                               block ? "fp8, scaling: block" : row.text("weights"), batch, kBudget, batch, repeated,
                               kPrompt - repeated, kSpread, row.text("output"), kSpread, kLongest),
                   "serving.csv"),
        row.text("name"), data);
}

double median(std::vector<double> values) {
    if (values.empty()) {
        return 0;
    }
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// What a GPU did in a second of the measured run: share of the time with kernels under way, FLOP/s and bytes/s in 1e12, as simulated for
// each token, at the measured rate of tokens.
struct Activity {
    double idle_w, measured_w;  ///< of the board
    double busy, flops, bytes;
};

// Energy is linear in the constants: with each of them alone it says what it is multiplied with.
Activity activity_of(const FactsRow& row, const DataDirectory& data, ModelCache& models) {
    Scenario scenario = scenario_of(row, data);
    DeviceSpec& gpu = scenario.cluster.node.gpu;
    const double tokens_per_s = row.number("tokens_per_s") / row.number("gpus");
    const double idle = idle_power(gpu);
    gpu.idle_power.value = idle;
    gpu.tdp.value = 1e5;  // no cap
    const auto joules_per_token = [&](double active, double flop, double byte) {
        gpu.active_power.value = active;
        gpu.energy_per_flop.value = flop;
        gpu.energy_per_byte.value = byte;
        return run_scenario(scenario, models, {}).summary.find("energy_per_token_j")->value;
    };
    const double base = joules_per_token(idle, 1e-12, 0);
    return Activity{idle, row.number("watts") / row.number("gpus"),
                    std::min(1.0, tokens_per_s * (joules_per_token(idle + 1, 1e-12, 0) - base)),
                    tokens_per_s * (joules_per_token(idle, 1, 0) - base),
                    tokens_per_s * (joules_per_token(idle, 0, 1) - base)};
}

// What the law has above idle: W of kernels under way, pJ per FLOP and per byte.
struct PowerConstants {
    double active, flop, byte;
};

// The last two at a given first, with the least squares of relative errors: least absolute ones pass through two of the points.
PowerConstants fit_constants(const std::vector<Activity>& points, double active) {
    double ff = 0;
    double fb = 0;
    double bb = 0;
    double fy = 0;
    double by = 0;
    for (const Activity& point : points) {
        const double scale = 1 / (point.measured_w * point.measured_w);
        const double above = point.measured_w - point.idle_w - active * point.busy;
        ff += scale * point.flops * point.flops;
        fb += scale * point.flops * point.bytes;
        bb += scale * point.bytes * point.bytes;
        fy += scale * point.flops * above;
        by += scale * point.bytes * above;
    }
    const double determinant = ff * bb - fb * fb;
    return {active, (fy * bb - by * fb) / determinant, (by * ff - fy * fb) / determinant};
}

// H200, the chip of H100: reading and writing without pause (te42kyfo/gpu-benches@1c36d50).
constexpr double kStreamingWatts = 578;
constexpr double kStreamingBytes = 3.78;  // 1e12/s

// Serving alone cannot tell kernels under way from the bytes they move: one grows with the other. The first constant is the one with
// which the measured power of streaming comes out; the others are linear in it.
PowerConstants fit_with_streaming(const std::vector<Activity>& points) {
    const auto excess = [&](double active) {
        return points.front().idle_w + active + fit_constants(points, active).byte * kStreamingBytes - kStreamingWatts;
    };
    const double at_none = excess(0);
    return fit_constants(points, at_none / (at_none - excess(1)));
}

struct Errors {
    std::vector<double> power, energy;
};

void compare_serving(const DataDirectory& data, const Terminal& terminal, bool points, Comparison& out) {
    ModelCache models(data);
    std::map<std::string, Errors> groups;  // set and GPU
    Errors dense_held_back;
    Errors all;
    std::vector<std::vector<std::string>> rows;
    std::vector<std::string> missing;
    for (const FactsRow& row : read_facts_table(data.path("validation/energy/serving.csv"))) {
        const std::string label =
            fmt::format("{} {}x{} batch {}", row.text("name"), row.text("gpus"), row.text("gpu"), row.text("max_seqs"));
        Summary summary;
        try {
            summary = run_scenario(scenario_of(row, data), models, {}).summary;
        } catch (const InfeasibleError& error) {
            missing.push_back(fmt::format("{}: {}", label, error.what()));
            continue;
        }
        const double joules = summary.find("energy_per_token_j")->value;
        const double rate = summary.find("output_tokens_per_s")->value;
        const double power = joules * rate;
        const double power_error = power / row.number("watts") - 1;
        const double energy_error = joules / row.number("joules") - 1;
        for (Errors* errors : {&groups[row.text("set") + " " + row.text("gpu")], &all,
                               row.text("set") == "held-back" ? &dense_held_back : nullptr}) {
            if (errors != nullptr) {
                errors->power.push_back(std::abs(power_error));
                errors->energy.push_back(std::abs(energy_error));
            }
        }
        out.points.push_back({row.number("joules"), joules, row.text("gpu"), label, {}});
        if (points) {
            rows.push_back({label, row.text("set"), fmt::format("{:.0f}", row.number("watts")),
                            fmt::format("{:.0f}", power), fmt::format("{:+.1f} %", 100 * power_error),
                            row.text("joules"), fmt::format("{:.4g}", joules),
                            fmt::format("{:+.1f} %", 100 * energy_error),
                            fmt::format("{:+.1f} %", 100 * (rate / row.number("tokens_per_s") - 1))});
        }
    }
    if (points) {
        terminal.heading("Serving: power of all GPUs and energy per output token");
        terminal.table({"point", "set", "W", "here", "", "J/token", "here", "", "tokens/s"}, rows);
    }
    rows.clear();
    for (const auto& [name, errors] : groups) {
        rows.push_back({name, fmt::format("{}", errors.power.size()),
                        fmt::format("{:.1f} %", 100 * median(errors.power)),
                        fmt::format("{:.1f} %", 100 * median(errors.energy))});
    }
    out.tables.push_back(
        {"Serving by set: median errors of power, and of energy per token with the simulated speed in it",
         {"set", "points", "power", "energy"},
         std::move(rows)});
    terminal.heading(out.tables.back().title);
    terminal.table(out.tables.back().columns, out.tables.back().rows);
    for (const std::string& one : missing) {
        fmt::print("  not run: {}\n", one);
    }
    out.scores.push_back({"serving_points", static_cast<double>(all.power.size()), ""});
    out.scores.push_back({"serving_power", 100 * median(all.power), "%"});
    out.scores.push_back({"serving_power_held_back", 100 * median(dense_held_back.power), "%"});
    out.scores.push_back({"serving_energy", 100 * median(all.energy), "%"});
    out.scores.push_back({"serving_energy_held_back", 100 * median(dense_held_back.energy), "%"});
}

void compare_limits(const DataDirectory& data, const Terminal& terminal, Comparison& out) {
    std::vector<std::vector<std::string>> rows;
    Errors all;
    for (const LimitSweep& sweep : read_limit_sweeps(data.path("validation/energy/limits.csv"))) {
        const LimitLaw law = fit_limit_law(sweep.fitted, sweep.highest);
        std::vector<double> time;
        std::vector<double> energy;
        for (const LimitPoint& point : sweep.scored) {
            const LimitLaw::Relative found = law.at(point.limit, point.unlimited);
            time.push_back(std::abs(found.time / point.time - 1));
            energy.push_back(std::abs(found.energy / point.energy - 1));
        }
        all.power.insert(all.power.end(), time.begin(), time.end());
        all.energy.insert(all.energy.end(), energy.begin(), energy.end());
        rows.push_back({sweep.gpu, fmt::format("{}", sweep.fitted.size()), fmt::format("{}", sweep.scored.size()),
                        fmt::format("{:.1f} %", 100 * median(time)), fmt::format("{:.1f} %", 100 * median(energy)),
                        fmt::format("{:.0f} W busy, {:.0f} W other, {:.0f} W fixed, clock^{:.2f}, {:.2f} bound",
                                    law.busy, law.other, law.fixed, law.exponent, law.bound)});
    }
    out.tables.push_back(
        {"Power limits: time and energy over those at the highest limit, medians of absolute errors on BERT",
         {"GPU", "fitted", "scored", "time", "energy", "law"},
         std::move(rows)});
    terminal.heading(out.tables.back().title);
    terminal.table(out.tables.back().columns, out.tables.back().rows);
    out.scores.push_back({"limit_points", static_cast<double>(all.power.size()), ""});
    out.scores.push_back({"limit_time", 100 * median(all.power), "%"});
    out.scores.push_back({"limit_energy", 100 * median(all.energy), "%"});
}

// One step of a run. fp8 weights and products, adapters on the two products of attention, communication of tensor-parallel ranks in
// pieces behind products: its configuration.
Scenario training_of(const FactsRow& row, const DataDirectory& data) {
    return read_scenario(
        parse_yaml(fmt::format("orrery: 1\nkind: training\n"
                               "cluster: {{nodes: {0}, node: dgx-h100, fabric: {{nodes_per_leaf: {0}, rails: 8}}}}\n"
                               "model: {{preset: llama-2-70b, sequence: 8192}}\n"
                               "plan: {{tensor: {1}, context: {2}, data: {3}, micro_batch: 1, global_batch: {4}, "
                               "sequence_parallel: true, precision: fp8, overlap: {{tensor: full}}, "
                               "adapters: {{rank: 16, modules: 'qkv, output', base: fp8}}}}\n",
                               row.text("nodes"), row.text("tensor"), row.text("context"), row.text("data"),
                               row.text("global_batch")),
                   "training.csv"),
        row.text("name"), data);
}

// What a node takes beside its GPUs is what an idle node took, less that of its idle GPUs; the GPUs come on top through the same supplies.
void compare_training(const DataDirectory& data, const Terminal& terminal, Comparison& out) {
    ModelCache models(data);
    std::vector<std::vector<std::string>> rows;
    std::vector<double> power_errors;
    std::vector<double> energy_errors;
    for (const FactsRow& row : read_facts_table(data.path("validation/energy/training.csv"))) {
        const Scenario scenario = training_of(row, data);
        const RunOutput run_out = run_scenario(scenario, models, {});
        const TrainingResult& result = *run_out.training;
        const double nodes = row.number("nodes");
        const double gpus = static_cast<double>(scenario.cluster.node.gpus);
        const double board = run_out.summary.find("power_w")->value / (nodes * gpus);
        const double node =
            row.number("idle_w") + gpus * (board - idle_power(scenario.cluster.node.gpu)) / row.number("dc_over_ac");
        const double measured_node = row.number("joules_ac") / (60 * row.number("minutes")) / nodes;
        const double power_error = node / measured_node - 1;
        std::vector<std::string> cells = {row.text("name"), fmt::format("{:.0f}", measured_node),
                                          fmt::format("{:.0f}", node), fmt::format("{:+.1f} %", 100 * power_error)};
        if (row.number("samples") <= 0) {
            cells.insert(cells.end(), {"", "", "", "", "no log, plan assumed: not scored"});
            rows.push_back(cells);
            continue;
        }
        // Evaluations are forward passes: their share of a step's passes.
        const auto booked = [&](Category one) { return result.booked[static_cast<std::size_t>(one)]; };
        const double forward = booked(Category::forward) / (booked(Category::forward) + booked(Category::backward));
        const double batch = row.number("global_batch");
        const double steps = row.number("samples") / batch +
                             forward * row.number("evaluations") * std::ceil(row.number("evaluated") / batch);
        const double seconds = steps * result.iteration_s;
        const double joules = seconds * nodes * node;
        const double energy_error = joules / row.number("joules_ac") - 1;
        power_errors.push_back(std::abs(power_error));
        energy_errors.push_back(std::abs(energy_error));
        cells.insert(cells.end(), {row.text("seconds"), fmt::format("{:.0f}", seconds),
                                   fmt::format("{:.2f}", row.number("joules_ac") * 1e-6),
                                   fmt::format("{:.2f}", joules * 1e-6), fmt::format("{:+.1f} %", 100 * energy_error)});
        rows.push_back(cells);
    }
    out.tables.push_back({"Training with low-rank adapters: power of a node and energy of a run at the mains",
                          {"run", "W", "here", "", "s", "here", "MJ", "here", ""},
                          std::move(rows)});
    terminal.heading(out.tables.back().title);
    terminal.table(out.tables.back().columns, out.tables.back().rows);
    out.scores.push_back({"training_points", static_cast<double>(energy_errors.size()), ""});
    out.scores.push_back({"training_power", 100 * median(power_errors), "%"});
    out.scores.push_back({"training_energy", 100 * median(energy_errors), "%"});
}

}  // namespace

void fit_power(const DataDirectory& data, const Terminal& terminal) {
    constexpr double kCapped = 0.95;  // of the limit: what the board holds back says nothing of the law
    ModelCache models(data);
    std::map<std::string, std::vector<Activity>> points;
    std::map<std::string, double> limits;
    for (const FactsRow& row : read_facts_table(data.path("validation/energy/serving.csv"))) {
        const double limit = scenario_of(row, data).cluster.node.gpu.tdp.value;
        if (row.text("set") == "fit" && row.number("watts") / row.number("gpus") < kCapped * limit) {
            points[row.text("gpu")].push_back(activity_of(row, data, models));
            limits[row.text("gpu")] = limit;
        }
    }
    const PowerConstants streamed = fit_with_streaming(points.at("H100"));
    std::vector<std::vector<std::string>> rows;
    for (const auto& [gpu, ones] : points) {
        // No power of streaming was measured on B200: the same share of the limit.
        const PowerConstants constants =
            gpu == "H100" ? streamed : fit_constants(ones, streamed.active / limits.at("H100") * limits.at(gpu));
        rows.push_back({gpu, fmt::format("{}", ones.size()),
                        fmt::format("{:.0f} W", ones.front().idle_w + constants.active),
                        fmt::format("{:.3f} pJ", constants.flop), fmt::format("{:.1f} pJ", constants.byte)});
    }
    terminal.heading("Constants of the power law");
    terminal.table({"GPU", "points", "active_power", "energy_per_flop", "energy_per_byte"}, rows);
}

Comparison validate_energy(const DataDirectory& data, const Terminal& terminal, bool points) {
    Comparison out{"energy", "J per output token of serving", "Measured.", "", {"GPU"}, {}, {}};
    compare_serving(data, terminal, points, out);
    compare_limits(data, terminal, out);
    compare_training(data, terminal, out);
    return out;
}

}  // namespace orrery::validation
