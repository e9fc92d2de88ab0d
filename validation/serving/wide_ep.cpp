#include "sim/record/facts_table.hpp"
#include "tools/driver/run.hpp"
#include "validation/serving/serving_points.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery::validation {

namespace {

constexpr double kIterations = 12;  // of full prompts
constexpr double kTokens = 20;      // of each decoded sequence

struct WidePoint {
    std::string setup;
    std::string plan;
    Scenario scenario;
    bool decodes = false;
    double gpus = 1;
    double batch = 1;    ///< tokens or sequences per GPU
    double context = 1;  ///< of a prompt, or keys of a decoded token
    double measured = 0;
    double predicted = 0;  ///< tokens per second and GPU
};

WidePoint point_of(const FactsRow& row, YamlNode tree, const DataDirectory& data) {
    WidePoint out;
    out.setup = row.text("setup");
    out.decodes = row.text("phase") == "decode";
    out.gpus = row.number("tensor") * row.number("groups");
    out.batch = row.number("batch");
    out.context = row.number("context");
    out.measured = row.number("tok_s_per_gpu");
    const double sequences = out.decodes ? out.gpus * out.batch : kIterations * out.gpus * out.batch / out.context;
    constexpr double kMostTokens = 1 << 20;
    const double tokens = out.decodes ? kMostTokens : std::min(kMostTokens, out.gpus * out.batch);
    for (const std::string& change :
         {"cluster.nodes=" + row.text("nodes"), "engine.tensor=" + row.text("tensor"),
          "engine.groups=" + row.text("groups"), "engine.expert=" + row.text("expert"),
          "engine.nano_batches=" + row.text("overlap"), fmt::format("engine.scheduler.token_budget={:.0f}", tokens),
          fmt::format("requests.count={:.0f}", std::ceil(sequences)), "requests.prompt.mean=" + row.text("context"),
          fmt::format("requests.output.mean={:.0f}", out.decodes ? kTokens : 1)}) {
        apply_override(tree, change);
    }
    if (row.text("copies") != "0") {
        apply_override(tree, "engine.redundant_experts=" + row.text("copies"));
    }
    out.scenario = read_scenario(tree, fmt::format("{}:{}", out.setup, row.line), data);
    out.plan = fmt::format("{} of {}, {} GPUs, {:.0f} each{}", row.text("phase"), row.text("context"), out.gpus,
                           out.batch, row.text("overlap") == "1" ? "" : ", overlapped");
    return out;
}

}  // namespace

std::vector<Score> validate_wide_ep(const DataDirectory& data, const Terminal& terminal) {
    std::map<std::string, YamlNode> trees;
    ModelCache models(data);
    std::vector<double> errors;
    std::vector<std::vector<std::string>> rows;
    for (const FactsRow& row : read_facts_table(data.path("validation/serving/wide_ep.csv"))) {
        const auto [tree, fresh] = trees.try_emplace(row.text("setup"));
        if (fresh) {
            tree->second = load_yaml(data.path("validation/serving/setups/" + row.text("setup") + ".yaml"));
        }
        WidePoint point = point_of(row, tree->second, data);
        const Summary summary = run_scenario(point.scenario, models, RunOptions()).summary;
        // Whole prompts come before any decoding, so that half of all gaps are those of the full batch.
        point.predicted = point.decodes ? point.batch / summary.find("tbt_s.p50")->value
                                        : summary.find("requests_per_s")->value * point.context / point.gpus;
        const double error = point.predicted / point.measured - 1;
        errors.push_back(std::abs(error));
        rows.push_back({point.setup, point.plan,
                        fmt::format("{:.0f} > {:.0f} ({:+.1f} %)", point.measured, point.predicted, 100 * error)});
    }
    terminal.heading("one phase of wide expert parallelism: measured > predicted tokens/s and GPU (nothing is fitted)");
    terminal.table({"setup", "plan", "throughput"}, rows);
    std::sort(errors.begin(), errors.end());
    const double middle = errors[errors.size() / 2];
    fmt::print("{} points, median error {:.1f} %\n", errors.size(), 100 * middle);
    return {{"wide_ep_points", static_cast<double>(errors.size()), ""}, {"wide_ep", 100 * middle, "%"}};
}

}  // namespace orrery::validation
