// Peaks of training memory that people measured, and runs that ran out of memory, against what the model of memory says.

#include "sim/base/text.hpp"
#include "sim/record/facts_table.hpp"
#include "tools/driver/kinds/training.hpp"
#include "validation/memory_group.hpp"
#include "validation/training/points.hpp"
#include "validation/validate.hpp"
#include "workloads/training/memory/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery::validation {

namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kBand = 0.12;

/// A run whose peak was printed, or that ran out of memory.
struct MemoryRow {
    std::string group, software, method;
    std::string measures;  ///< allocated, reserved or smi
    double measured = 0;   ///< B; 0: not stated
    bool fails = false;
    Scenario scenario;
};

/// What the model says of it.
struct Peak {
    MemoryUse use;  ///< of the fullest stage
    double odds = 0;
    double predicted = 0;  ///< B of what was measured
};

Scenario scenario_of(const FactsRow& row, const DataDirectory& data) {
    const double gpus = row.number("gpus");
    YamlNode tree =
        parse_yaml(fmt::format("orrery: 1\nkind: training\nmodel: {}\ncluster: {{nodes: 1, node: {}}}\nsoftware: {}\n"
                               "plan: {{data: {}, micro_batch: {}, global_batch: {}}}\n",
                               row.text("model"), row.text("node"), row.text("software"), gpus, row.text("micro_batch"),
                               gpus * row.number("micro_batch")),
                   row.file);
    apply_override(tree, "model.sequence=" + row.text("sequence"));
    if (gpus > 1) {
        apply_override(tree, "plan.zero=3");
    }
    for (const std::string_view change : split(row.text("set"), ' ')) {
        if (!change.empty()) {
            apply_override(tree, std::string(change));
        }
    }
    return read_scenario(tree, fmt::format("{}:{}", row.text("group"), row.line), data);
}

Peak peak_of(const MemoryRow& row) {
    const auto& training = row.scenario.as<TrainingKind>();
    Peak out;
    for (const MemoryUse& stage : memory_by_stage(training.model, training.plan, training.software)) {
        const double odds = odds_of_running_out(stage, row.scenario.cluster.node.gpu.memory.value, training.software);
        out.odds = std::max(out.odds, odds);
        if (stage.total() > out.use.total()) {
            out.use = stage;
        }
    }
    out.predicted = out.use.total() - training.software.reserved_memory.value;
    out.predicted += row.measures == "allocated" ? 0 : out.use.idle;
    out.predicted += row.measures == "smi" ? training.software.reserved_memory.value : 0;
    return out;
}

std::vector<MemoryRow> rows_of(const DataDirectory& data, std::map<std::string, int>& left_out) {
    std::vector<MemoryRow> out;
    for (const FactsRow& row : read_facts_table(data.path("validation/training/memory.csv"), ';')) {
        if (row.text("use") != "score") {
            ++left_out[row.text("use")];
            continue;
        }
        out.push_back({row.text("group"), row.text("software"), row.text("method"), row.text("measures"),
                       row.text("measured").empty() ? 0 : row.number("measured") * kGiB, row.text("outcome") == "fails",
                       scenario_of(row, data)});
    }
    for (const TrainingPoint& point : load_training_points(data)) {
        if ((point.memory > 0 || point.reserved > 0) && point.scored()) {
            out.push_back({point.source + "/" + point.id, point.software().name, "full",
                           point.memory > 0 ? "allocated" : "reserved", std::max(point.memory, point.reserved), false,
                           point.variants[0]});
        }
    }
    return out;
}

}  // namespace

Comparison validate_training_memory(const DataDirectory& data, const Terminal& terminal, bool points) {
    Comparison out{"training-memory",
                   "peak memory of a GPU",
                   "Allocated, reserved or shown by nvidia-smi.",
                   "GiB",
                   {"software"},
                   {},
                   {}};
    std::map<std::string, MemoryGroup> groups;
    std::map<std::string, int> left_out;
    std::vector<std::vector<std::string>> table;
    for (const MemoryRow& row : rows_of(data, left_out)) {
        const Peak peak = peak_of(row);
        const PlanSpec& plan = row.scenario.as<TrainingKind>().plan;
        const bool half = row.group.size() % 2 == 0;
        const bool scored = !row.fails && row.measured > 0;
        const std::string source = row.group.substr(0, row.group.find_first_of("/#"));
        for (const std::string& name : {std::string("all"), source, std::string(half ? "for fitting" : "held back")}) {
            MemoryGroup& group = groups[name];
            ++group.rows;
            group.right += row.fails == (peak.odds > 0.5) ? 1 : 0;
            if (scored) {
                group.errors.push_back(peak.predicted / row.measured - 1);
            }
        }
        if (scored) {
            out.points.push_back({row.measured / kGiB, peak.predicted / kGiB, row.software, row.group, {}});
        }
        const auto gib = [](double bytes) { return fmt::format("{:.2f}", bytes / kGiB); };
        table.push_back(
            {row.group, row.software, row.method, std::to_string(plan.ranks()), std::to_string(plan.micro_batch),
             row.fails          ? "fails"
             : row.measured > 0 ? fmt::format("{} {}", gib(row.measured), row.measures)
                                : "runs",
             gib(peak.predicted), scored ? fmt::format("{:+.1f} %", 100 * (peak.predicted / row.measured - 1)) : "",
             fmt::format("{:.0f} %", 100 * peak.odds), gib(peak.use.weights), gib(peak.use.gradients),
             gib(peak.use.optimizer), gib(peak.use.activations), gib(peak.use.buffers)});
    }
    if (points) {
        terminal.heading("peak memory, by row");
        terminal.table({"group", "software", "method", "GPUs", "micro-batch", "measured", "predicted", "error",
                        "odds of running out", "weights", "gradients", "optimizer", "activations", "buffers"},
                       table);
    }
    report_groups(out, terminal, {"peak memory of training", "source", "fits or not right", "fits_right"}, groups,
                  kBand, left_out);
    return out;
}

}  // namespace orrery::validation
