#include "validation/faults/spot.hpp"

#include "sim/base/text.hpp"
#include "sim/record/facts_table.hpp"
#include "workloads/faults/campaign.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace orrery::validation {

namespace {

constexpr double kHour = 3600;
constexpr double kSpotPrice = 0.91;      // USD/h of a p3.2xlarge: Bamboo's simulator
constexpr double kOnDemandPrice = 3.06;  // USD/h

/// A job of so many pipelines as there are machines for.
class PipelineJob final : public JobModel {
  public:
    explicit PipelineJob(const FactsRow& row)
        : stages_(static_cast<std::uint32_t>(row.number("stages"))), samples_(row.number("samples")) {
        for (const std::string_view step : split(row.text("steps"), ' ')) {
            steps_.push_back(std::stod(std::string(step)));
        }
    }
    double iteration_s(const ClusterState& state) override { return steps_.at(state.nodes / stages_ - 1); }
    std::vector<std::uint32_t> nodes_used(const std::vector<std::uint32_t>& nodes) const override {
        return {std::min(nodes.front() / stages_, static_cast<std::uint32_t>(steps_.size())) * stages_};
    }
    CheckpointSetting checkpoint() const override { return {}; }
    // In the campaign: work is counted in steps of all pipelines.
    [[nodiscard]] double samples_per_s(const CampaignResult& run) const {
        return samples_ * static_cast<double>(run.tally[Cause::useful]) * 1e-9 / steps_.back() / run.length.seconds();
    }

  private:
    std::uint32_t stages_;
    double samples_;
    std::vector<double> steps_;
};

JobShape machines(double count) {
    JobShape shape;
    shape.nodes = static_cast<std::uint32_t>(count);
    shape.gpus_per_node = 1;
    shape.nics_per_node = 1;
    return shape;
}

// Machine-seconds away of so many that a job asks for.
double away_s(const std::vector<TimedFault>& trace, double duration_s) {
    double sum = 0;
    for (const TimedFault& one : trace) {
        const double end = one.fault.lasts_s > 0 ? one.at_s + one.fault.lasts_s : duration_s;
        sum += std::max(0.0, std::min(end, duration_s) - one.at_s);
    }
    return sum;
}

// Redundant computation keeps every step: a stage whose machine is gone is on the one before it, and all meet again.
FaultsSpec bamboo_faults(const FactsRow& row, double duration_s) {
    FaultsSpec faults;
    std::vector<Diagnostic> errors;
    const std::string text = fmt::format(
        "duration: {} s\nrecovery: {{shrinks: true, heartbeat: {{delay: 0 s}}, diagnosis: {{time: 0 s}}, restart: {} "
        "s, "
        "join: 45 s}}\ncheckpoint: {{interval: {{kind: fixed, every: 1 ms}}}}\n",
        duration_s, row.text("rendezvous_s"));
    read_fields(parse_yaml(text, "bamboo"), DataDirectory(""), errors,
                [&](Fields& fields) { describe_campaign(fields, faults); });
    throw_if_any(errors);
    return faults;
}

std::vector<std::string> job_on(const FactsRow& job_row, const FactsRow& pool, const std::string& file) {
    const double duration = pool.number("hours") * kHour;
    const JobShape shape = machines(job_row.number("machines"));
    const std::vector<TimedFault> trace = read_fault_trace(file, shape);
    PipelineJob job(job_row);
    const FaultsSpec faults = bamboo_faults(job_row, duration);
    const CampaignResult run = run_campaign(plan_campaign(faults, shape, job, trace), job, 1, false);
    const double rate = job.samples_per_s(run);
    const double price = kSpotPrice * (shape.nodes - away_s(trace, duration) / duration);
    const double on_demand_rate = job_row.number("samples") / job_row.number("on_demand_step_s");
    const double on_demand_price = kOnDemandPrice * job_row.number("on_demand_machines");
    const double value = rate / price;
    const double on_demand_value = on_demand_rate / on_demand_price;
    return {job_row.text("model"),
            std::filesystem::path(pool.text("file")).stem().string(),
            fmt::format("{:.1f}", rate),
            fmt::format("{:.2f}", price),
            fmt::format("{:.2f}", value),
            fmt::format("{:.1f}", on_demand_rate),
            fmt::format("{:.2f}", on_demand_price),
            fmt::format("{:.2f}", on_demand_value),
            fmt::format("{:.2f}", value / on_demand_value)};
}

std::vector<std::string> counted(const FactsRow& pool, const std::string& file) {
    constexpr double kMost = 1000;
    const double duration = pool.number("hours") * kHour;
    const std::vector<TimedFault> trace = read_fault_trace(file, machines(kMost));
    const auto lost = std::count_if(trace.begin(), trace.end(), [](const TimedFault& one) { return one.at_s > 0; });
    const auto gained =
        std::count_if(trace.begin(), trace.end(), [](const TimedFault& one) { return one.fault.lasts_s > 0; });
    const double mean = kMost - away_s(trace, duration) / duration;
    return {std::filesystem::path(pool.text("file")).stem().string(),
            pool.text("mean"),
            fmt::format("{:.2f}", mean),
            pool.text("lost"),
            fmt::format("{}", lost),
            pool.text("gained"),
            fmt::format("{}", gained)};
}

}  // namespace

void print_spot(const DataDirectory& data, const std::string& directory, const Terminal& terminal, Comparison& out) {
    const std::string folder = data.path("validation/faults");
    const std::vector<FactsRow> pools = read_facts_table(folder + "/spot.csv");
    std::vector<std::vector<std::string>> counts;
    std::vector<std::vector<std::string>> jobs;
    for (const FactsRow& pool : pools) {
        const std::string file = directory + "/fault-logs/" + pool.text("file");
        std::error_code failed;
        if (directory.empty() || !std::filesystem::exists(file, failed)) {
            fmt::print("  not run: spot machines of {}: {}\n", pool.text("file"),
                       directory.empty() ? "--data DIR names where the public logs are" : "no file " + file);
            continue;
        }
        counts.push_back(counted(pool, file));
        for (const FactsRow& job : read_facts_table(folder + "/bamboo.csv")) {
            jobs.push_back(job_on(job, pool, file));
        }
    }
    const auto print = [&](const char* title, std::vector<std::string> columns,
                           std::vector<std::vector<std::string>> rows) {
        out.tables.push_back({title, std::move(columns), std::move(rows)});
        terminal.heading(out.tables.back().title);
        terminal.table(out.tables.back().columns, out.tables.back().rows);
    };
    if (counts.empty()) {
        return;
    }
    print("Logged spot machines: counted in the files, and as read here",
          {"pool", "mean", "here", "lost", "here", "gained", "here"}, std::move(counts));
    print(
        "Bamboo's jobs on logged spot machines beside its row on demand, not scored (its simulator's results are not "
        "stored): samples/s, USD/h, value = their quotient",
        {"job", "pool", "samples/s", "USD/h", "value", "on demand", "USD/h", "value", "times"}, std::move(jobs));
}

}  // namespace orrery::validation
