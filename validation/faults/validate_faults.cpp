#include "sim/record/facts_table.hpp"
#include "tools/driver/kinds/training_faults.hpp"
#include "tools/driver/run.hpp"
#include "validation/faults/spot.hpp"
#include "validation/validate.hpp"

#include "sim/base/text.hpp"
#include "workloads/faults/campaign.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <thread>

namespace orrery::validation {

namespace {

/// What a study published of a quantity: a band, or a mean with the spread of its runs.
struct Published {
    std::string quantity;
    double value = 0;
    double sd = 0;
    std::int64_t runs = 0;
    double low = 0, high = 0;
};

/// A job of known speed under faults: validation/faults/studies.
struct Study {
    std::int64_t nodes = 1;
    std::int64_t gpus_per_node = 8;
    double iteration_s = 1;
    double stall_s = 0;
    double load_s = 0;
    FaultsSpec faults;
    std::vector<Published> published;
};

void describe(Fields& fields, Study& study) {
    fields.integer({"nodes", "of the job", true, 1, 1 << 22}, study.nodes);
    fields.integer({"gpus_per_node", "of the job", true, 1, 1 << 10}, study.gpus_per_node);
    fields.quantity({"iteration", "without faults", true, 1e-6, 1e6}, Dimension::time, study.iteration_s);
    fields.quantity({"stall", "of a checkpoint", false, 0, 1e6}, Dimension::time, study.stall_s);
    fields.quantity({"load", "of a checkpoint", false, 0, 1e6}, Dimension::time, study.load_s);
    fields.section({"faults", "as in a scenario", true},
                   [&](Fields& inner) { describe_campaign(inner, study.faults); });
    fields.items({"published", "what the study says", true}, study.published, [](Fields& inner, Published& one) {
        inner.text({"quantity", "of the result", true}, one.quantity);
        inner.number({"value", "mean", false}, one.value);
        inner.number({"sd", "over its runs", false}, one.sd);
        inner.integer({"runs", "of the mean", false}, one.runs);
        inner.number({"low", "of the band", false}, one.low);
        inner.number({"high", "of the band", false}, one.high);
    });
}

class StudyJob final : public JobModel {
  public:
    explicit StudyJob(const Study& study) : study_(study) {}
    double iteration_s(const ClusterState&) override { return study_.iteration_s; }
    std::vector<std::uint32_t> nodes_used(const std::vector<std::uint32_t>& nodes) const override { return nodes; }
    // Stalls and loads are as measured: the store takes no time beside them.
    CheckpointSetting checkpoint() const override {
        CheckpointSetting out;
        out.storage = study_.faults.checkpoint.storage;
        return out;
    }

  private:
    const Study& study_;
};

Study read_study(const YamlNode& root) {
    Study study;
    std::vector<Diagnostic> errors;
    read_fields(root, DataDirectory(""), errors, [&](Fields& fields) { describe(fields, study); });
    throw_if_any(errors);
    return study;
}

std::vector<CampaignResult> run_study(const Study& study) {
    StudyJob job(study);
    JobShape shape;
    shape.nodes = static_cast<std::uint32_t>(study.nodes);
    shape.gpus_per_node = static_cast<std::uint32_t>(study.gpus_per_node);
    shape.nics_per_node = shape.gpus_per_node;
    CampaignPlan plan = plan_campaign(study.faults, shape, job, {});
    plan.cost.stall_s = study.stall_s;
    plan.cost.load_s = study.load_s;
    return run_campaigns(plan, job, 1, static_cast<std::uint64_t>(study.faults.runs),
                         std::max(1U, std::thread::hardware_concurrency()));
}

double quantity_of(const CampaignResult& run, const std::string& name) {
    const double length = run.length.seconds();
    const auto share = [&](Cause cause) { return static_cast<double>(run.tally[cause]) * 1e-9 / length; };
    if (name == "goodput_fraction") {
        return share(Cause::useful);
    }
    if (name == "checkpoint_fraction") {
        return share(Cause::checkpoint);
    }
    if (name == "interruptions") {
        return static_cast<double>(run.interruptions);
    }
    if (name == "mean_time_to_failure_h") {
        return length / 3600 / static_cast<double>(run.interruptions);
    }
    if (name == "hours") {
        return length / 3600;
    }
    throw ConfigError(fmt::format("a study publishes no '{}'", name));
}

MeanInterval of_runs(const std::vector<CampaignResult>& runs, const std::string& name) {
    std::vector<double> samples;
    for (const CampaignResult& run : runs) {
        samples.push_back(quantity_of(run, name));
    }
    return mean_interval(samples, 0.95);
}

// Whether two means differ by no more than their 95 % interval (Welch; the normal quantile from 30 runs on, else Student's).
bool agree(const MeanInterval& own, std::size_t runs, const Published& published) {
    const auto n = static_cast<double>(runs);
    const auto m = static_cast<double>(published.runs);
    const double a = own.sd * own.sd / n;
    const double b = published.sd * published.sd / m;
    const double freedom = (a + b) * (a + b) / (a * a / (n - 1) + b * b / (m - 1));
    const double quantile = 1.96 + 2.4 / freedom;  // within 1 % of Student's from 7 degrees of freedom on
    return std::abs(own.mean - published.value) <= quantile * std::sqrt(a + b);
}

void compare_studies(const std::string& folder, const Terminal& terminal, Comparison& out) {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder + "/studies")) {
        files.push_back(entry.path().string());
    }
    std::sort(files.begin(), files.end());
    std::vector<std::vector<std::string>> rows;
    double inside = 0;
    for (const std::string& file : files) {
        const Study study = read_study(load_yaml(file));
        const std::vector<CampaignResult> runs = run_study(study);
        for (const Published& one : study.published) {
            const MeanInterval found = of_runs(runs, one.quantity);
            const bool fine =
                one.runs > 0 ? agree(found, runs.size(), one) : found.mean >= one.low && found.mean <= one.high;
            inside += fine ? 1 : 0;
            rows.push_back({std::filesystem::path(file).stem().string(), one.quantity,
                            one.runs > 0 ? fmt::format("{} +- {} ({} runs)", one.value, one.sd, one.runs)
                                         : fmt::format("{} to {}", one.low, one.high),
                            fmt::format("{:.5g} +- {:.2g} ({} runs)", found.mean, found.sd, runs.size()),
                            fine ? "inside" : "OUTSIDE"});
        }
    }
    out.scores.push_back({"studies", static_cast<double>(rows.size()), ""});
    out.scores.push_back({"studies_inside", inside, ""});
    out.tables.push_back({"Published studies: bands, and means with the standard deviation of their runs",
                          {"study", "quantity", "published", "here", ""},
                          std::move(rows)});
    terminal.heading(out.tables.back().title);
    terminal.table(out.tables.back().columns, out.tables.back().rows);
}

void compare_sweeps(const std::string& folder, const Terminal& terminal, Comparison& out) {
    std::vector<std::vector<std::string>> rows;
    double errors = 0;
    double inside = 0;
    for (const FactsRow& row : read_facts_table(folder + "/sweeps.csv")) {
        YamlNode root = load_yaml(folder + "/studies/airesim-payoff.yaml");
        apply_override(root, row.text("override"));
        const std::vector<CampaignResult> runs = run_study(read_study(root));
        const MeanInterval found = of_runs(runs, "hours");
        Published published;
        published.value = row.number("mean_h");
        published.sd = row.number("sd_h");
        published.runs = 8;
        const double error = found.mean / published.value - 1;
        const bool fine = agree(found, runs.size(), published);
        errors += std::abs(error);
        inside += fine ? 1 : 0;
        rows.push_back({row.text("sweep"), row.text("value"), fmt::format("{} +- {}", published.value, published.sd),
                        fmt::format("{:.1f} +- {:.1f}", found.mean, found.sd), fmt::format("{:+.1f} %", 100 * error),
                        fine ? "inside" : "outside"});
        out.points.push_back({published.value * 3600,
                              found.mean * 3600,
                              row.text("sweep"),
                              fmt::format("{} {}", row.text("sweep"), row.text("value")),
                              {}});
    }
    const auto count = static_cast<double>(rows.size());
    out.scores.push_back({"airesim_sweep_points", count, ""});
    out.scores.push_back({"airesim_sweep_error", 100 * errors / count, "%"});
    out.scores.push_back({"airesim_sweep_inside", inside, ""});
    out.tables.push_back(
        {"AIReSim's sweeps: hours of a job of 336 hours, and the 95 % interval of the difference of means",
         {"sweep", "value", "published", "here", "error", ""},
         std::move(rows)});
    terminal.heading(out.tables.back().title);
    terminal.table(out.tables.back().columns, out.tables.back().rows);
}

void compare_checkpoints(const std::string& folder, const Terminal& terminal, Comparison& out) {
    std::vector<std::vector<std::string>> rows;
    double errors = 0;
    double within = 0;
    for (const FactsRow& row : read_facts_table(folder + "/checkpoints.csv")) {
        constexpr double kGiga = 1e9;
        CheckpointSetting setting;
        setting.nodes = static_cast<std::uint32_t>(row.number("writers"));
        setting.bytes = row.number("total_gb") * kGiga;
        setting.storage.per_node = row.number("per_node_gbps") * kGiga;
        const double write = row.number("write_gbps") * kGiga;
        setting.storage.write = write > 0 ? write : 1e18;
        const double seconds = setting.save_s();
        const double error = seconds / row.number("seconds") - 1;
        errors += std::abs(error);
        within += std::abs(error) <= 0.15 ? 1 : 0;
        rows.push_back({row.text("id"), row.text("seconds"), fmt::format("{:.1f}", seconds),
                        fmt::format("{:+.1f} %", 100 * error)});
    }
    const auto count = static_cast<double>(rows.size());
    out.scores.push_back({"checkpoint_times", count, ""});
    out.scores.push_back({"checkpoint_times_within_15_percent", within, ""});
    out.scores.push_back({"checkpoint_time_error", 100 * errors / count, "%"});
    out.tables.push_back({"Checkpoints: seconds of saves and loads whose bandwidth is known",
                          {"checkpoint", "measured s", "here s", "error"},
                          std::move(rows)});
    terminal.heading(out.tables.back().title);
    terminal.table(out.tables.back().columns, out.tables.back().rows);
}

void compare_sizes(const DataDirectory& data, const Terminal& terminal, Comparison& out) {
    constexpr double kGibi = 1024.0 * 1024 * 1024;
    std::vector<std::vector<std::string>> rows;
    double errors = 0;
    for (const FactsRow& row : read_facts_table(data.path("validation/faults/sizes.csv"))) {
        const Scenario scenario = read_scenario(
            parse_yaml(fmt::format("orrery: 1\nkind: training\ncluster: {{nodes: 1, node: dgx-h100}}\nmodel: {}\n"
                                   "plan: {{tensor: 8, global_batch: 8}}\n",
                                   row.text("model")),
                       "sizes.csv"),
            "size", data);
        const double gib = checkpoint_bytes(scenario) / kGibi;
        const double error = gib / row.number("gib") - 1;
        errors += std::abs(error);
        rows.push_back(
            {row.text("model"), row.text("gib"), fmt::format("{:.1f}", gib), fmt::format("{:+.1f} %", 100 * error)});
    }
    out.scores.push_back({"checkpoint_size_error", 100 * errors / static_cast<double>(rows.size()), "%"});
    out.tables.push_back(
        {"Checkpoints: sizes from the model", {"model", "stated GiB", "here GiB", "error"}, std::move(rows)});
    terminal.heading(out.tables.back().title);
    terminal.table(out.tables.back().columns, out.tables.back().rows);
}

// How an elastic job's iteration changes with the machines that are left. Recomputation and the software are not published, so nothing
// of it is scored.
void print_elastic(const DataDirectory& data, const Terminal& terminal, Comparison& out) {
    ModelCache models(data);
    RunOptions options;
    options.check_memory = false;
    std::vector<double> errors;
    std::vector<std::vector<std::string>> rows;
    for (const FactsRow& row : read_facts_table(data.path("validation/faults/elastic.csv"))) {
        const double machines = row.number("data") * row.number("pipeline");
        const Scenario scenario = read_scenario(
            parse_yaml(fmt::format("orrery: 1\nkind: training\n"
                                   "cluster: {{nodes: {0}, node: {{preset: dgx2-v100, gpus: 1, nics: 1, "
                                   "nic_bandwidth: {{value: 10 Gbps, how: spec, source: p3.2xlarge}}}}, "
                                   "fabric: {{nodes_per_leaf: {0}}}}}\n"
                                   "model: {{layers: 48, hidden: 1600, heads: 25, vocabulary: 50257, sequence: 1024}}\n"
                                   "plan: {{data: {1}, pipeline: {2}, micro_batch: 1, global_batch: 128, "
                                   "schedule: 1f1b, recompute: full, attention: unfused, precision: fp16}}\n"
                                   "software: megatron-deepspeed-2022\n",
                                   machines, row.text("data"), row.text("pipeline")),
                       "elastic.csv"),
            "elastic", data);
        const double ms = 1e3 * run_scenario(scenario, models, options).seconds;
        const double error = ms / row.number("ms") - 1;
        errors.push_back(std::abs(error));
        rows.push_back({fmt::format("{} x {}", row.text("data"), row.text("pipeline")), row.text("ms"),
                        fmt::format("{:.0f}", ms), fmt::format("{:+.1f} %", 100 * error)});
    }
    std::sort(errors.begin(), errors.end());
    out.tables.push_back({fmt::format("Elastic training of Parcae by replicas x stages, not scored (recomputation and "
                                      "software assumed): median error {:.1f} %",
                                      100 * errors[errors.size() / 2]),
                          {"plan", "measured ms", "here ms", "error"},
                          std::move(rows)});
    terminal.heading(out.tables.back().title);
    terminal.table(out.tables.back().columns, out.tables.back().rows);
}

}  // namespace

Comparison validate_faults(const DataDirectory& data, const Terminal& terminal, const std::string& directory) {
    Comparison out{"faults", "hours of jobs under faults", "Published by a simulator, not measured.", "", {"sweep"}, {},
                   {}};
    const std::string folder = data.path("validation/faults");
    compare_studies(folder, terminal, out);
    compare_sweeps(folder, terminal, out);
    compare_checkpoints(folder, terminal, out);
    compare_sizes(data, terminal, out);
    print_elastic(data, terminal, out);
    print_spot(data, directory, terminal, out);
    return out;
}

}  // namespace orrery::validation
