// The run of a scenario of kind training: its iteration, the campaign after it, and their metrics.

#include "tools/driver/kinds/training.hpp"

#include "tools/driver/given_faults.hpp"
#include "tools/driver/kinds/completion_times.hpp"
#include "tools/driver/kinds/interval.hpp"
#include "tools/driver/kinds/training_faults.hpp"
#include "tools/driver/kinds/training_input.hpp"
#include "tools/driver/kinds/training_messages.hpp"

#include "sim/device/power.hpp"
#include "sim/engine/executor.hpp"
#include "workloads/training/features/adapters.hpp"
#include "workloads/training/features/compression.hpp"
#include "workloads/training/features/offload.hpp"
#include "workloads/training/features/slices.hpp"
#include "workloads/training/features/zeroth_order.hpp"
#include "workloads/training/lowering/pass_exchanges.hpp"
#include "workloads/training/memory/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace orrery::driver {

namespace {

// How many GPUs of each device a run has.
std::vector<std::pair<const DeviceSpec*, double>> devices_of(const TrainingInput& input) {
    if (input.groups.empty()) {
        return {{&input.gpu, static_cast<double>(input.plan.ranks())}};
    }
    std::vector<std::pair<const DeviceSpec*, double>> out;
    for (const GroupDevice& group : input.groups) {
        out.emplace_back(group.gpu, 0);
    }
    const auto replica = static_cast<double>(input.plan.replica_ranks());
    for (std::int64_t stage = 0; stage < input.plan.pipeline; ++stage) {
        for (std::int64_t i = 0; i < input.plan.data; ++i) {
            out[input.fabric.group_of(input.first_gpu(stage, i))].second += replica;
        }
    }
    return out;
}

// Groups whose ranks exchange inside passes and are on several nodes.
std::vector<std::string> groups_between_nodes(const PlanSpec& plan, const Fabric& fabric) {
    const std::int64_t together = fabric.gpus_per_domain();
    std::vector<std::string> out;
    if (plan.tensor > together) {
        out.emplace_back("tensor");
    }
    if (plan.context > 1 && plan.tensor * plan.context > together) {
        out.emplace_back("context");
    }
    if (plan.experts.expert > 1 && plan.experts.expert * plan.expert_tensor() > together) {
        out.emplace_back("expert");
    }
    return out;
}

// Nothing where some device has no price.
static void add_cost(const std::vector<std::pair<const DeviceSpec*, double>>& devices, double iteration_s,
                     double tokens, Summary& out) {
    double usd_per_hour = 0;
    for (const auto& [gpu, count] : devices) {
        if (!(gpu->price.value > 0)) {
            return;
        }
        usd_per_hour += gpu->price.value * count;
    }
    out.add("cost_per_billion_tokens_usd", usd_per_hour / 3600 * iteration_s / tokens * 1e9, "USD");
}

void add_training_metrics(const TrainingKind& s, const TrainingInput& input, const TrainingResult& result,
                          Summary& out) {
    const auto gpus = static_cast<double>(s.plan.ranks());
    const double tokens = result.documents
                              ? result.documents->tokens
                              : static_cast<double>(s.plan.global_batch) * static_cast<double>(s.model.sequence);
    ORRERY_ASSERT(result.iteration_s > 0 && gpus >= 1);
    const double model_rate = result.model_flops / result.iteration_s / gpus;
    const auto devices = devices_of(input);
    double counted = 0;
    double peak = 0;  // of a GPU, on average
    bool draws = true;
    for (const auto& [gpu, count] : devices) {
        peak += gpu->flops_bf16.value * (count / gpus);
        counted += count;
        draws = draws && knows_power(*gpu);
    }
    ORRERY_ASSERT(peak > 0);  // the plan runs on matrix units
    out.add("iteration_time_s", result.iteration_s, "s");
    ORRERY_ASSERT(counted == gpus);  // every rank has one device
    out.add("tokens_per_s", tokens / result.iteration_s, "1/s");
    out.add("tflops_per_gpu", model_rate * 1e-12, "TFLOP/s");
    out.add("mfu", model_rate / peak, "1");
    out.add("hfu", result.hardware_flops / result.iteration_s / gpus / peak, "1");
    out.add("memory_per_gpu_gib", result.memory_bytes / (1024.0 * 1024 * 1024), "GiB");
    out.add("bubble_fraction", result.bubble_s / result.iteration_s, "1");
    out.add("exposed_communication_s", result.exposed_communication_s, "s");
    if (s.plan.has<OffloadPlan>()) {
        out.add("exposed_copies_s", result.exposed_copies_s, "s");
        out.add("exposed_update_s", result.exposed_update_s, "s");
        for (const auto& [tier, bytes] : result.tier_bytes) {
            out.add("tier_gib." + tier, bytes / (1024.0 * 1024 * 1024), "GiB");
        }
    }
    if (result.outer) {
        out.add("inner_step_s", result.outer->inner, "s");
        out.add("outer_wait_s", result.outer->wait, "s");
        out.add("outer_exchange_s", result.outer->exchange, "s");
        out.add("outer_bytes_per_step", result.outer->bytes, "B");
        out.add("compute_utilisation", result.outer->inner / result.outer->step, "1");
    }
    if (result.documents) {
        out.add("padding_fraction", result.documents->padding, "1");
        out.add("load_imbalance", result.documents->imbalance, "1");
    }
    if (s.plan.has<AdapterPlan>()) {
        out.add("trained_parameters", trained_parameters(s.model, s.plan), "parameters");
    }
    if (s.plan.has<SlicePlan>()) {
        out.add("trained_parameters",
                s.plan.feature<SlicePlan>().trained(s.model) * static_cast<double>(s.model.layers), "parameters");
    }
    if (s.plan.has<ZerothOrderPlan>() && s.plan.data > 1) {
        out.add("gradient_bytes", s.plan.feature<ZerothOrderPlan>().payload(), "B");
    }
    if (s.plan.has<CompressionPlan>()) {
        const CompressedBytes sent = compressed_bytes(s.plan, 1, 1);
        out.add("gradient_bytes", result.gradient_bytes, "B");
        out.add("gradient_compression", bytes_of(s.plan.gradient_precision) / (sent.dense + sent.sparse), "1");
    }
    for (int i = 0; i < kCategoryCount; ++i) {
        if (result.booked[static_cast<std::size_t>(i)] > 0) {
            out.breakdown.emplace_back(category_name(static_cast<Category>(i)),
                                       result.booked[static_cast<std::size_t>(i)]);
        }
    }
    if (s.plan.has<OffloadPlan>()) {
        out.breakdown.emplace_back("copies between memories", result.exposed_copies_s);
        out.breakdown.emplace_back("update on host", result.exposed_update_s);
    }
    out.breakdown.emplace_back("bubble", result.bubble_s);
    if (draws) {
        double busy = 0;
        for (const Category kernels :
             {Category::forward, Category::backward, Category::recompute, Category::optimizer}) {
            busy += result.booked[static_cast<std::size_t>(kernels)];
        }
        double joules = 0;
        for (const auto& [gpu, count] : devices) {
            joules += energy_of(
                *gpu, DeviceWork{count * result.iteration_s, count * busy, result.hardware_flops * (count / gpus)});
        }
        out.add("energy_per_token_j", joules / tokens, "J");
        out.add("energy_j", joules, "J");
        out.add("power_w", joules / result.iteration_s, "W");
        out.add("tokens_per_j", tokens / joules, "1/J");
    }
    add_cost(devices, result.iteration_s, tokens, out);
    if (result.memory_odds > kNamedOdds) {
        out.notes.push_back(
            fmt::format("warning: memory is near its limit: within the errors of the memory model the odds of running "
                        "out are {:.0f} %; plan.recompute, plan.zero or a smaller plan.micro_batch lower them",
                        100 * result.memory_odds));
    }
    if (result.folded_into_one > 1) {
        out.notes.push_back(
            result.simulated_ranks == 1
                ? fmt::format("1 rank was simulated, which stands for {} equal ranks", result.folded_into_one)
                : fmt::format("{} ranks were simulated, each standing for {} equal ranks", result.simulated_ranks,
                              result.folded_into_one));
    } else {
        out.notes.push_back(fmt::format("{} rank{} simulated individually", result.simulated_ranks,
                                        result.simulated_ranks == 1 ? " was" : "s were"));
    }
    if (const auto groups = groups_between_nodes(s.plan, input.fabric);
        !groups.empty() && !exchanges_on_fabric(input)) {
        out.notes.push_back(
            fmt::format("exchanges of {} groups between nodes take the time of the most loaded link under all groups; "
                        "pipeline sends and gradient sums do not slow them",
                        fmt::join(groups, " and ")));
    }
    if (s.plan.operand_bytes() < 2) {
        out.notes.push_back("mfu and hfu are relative to the peak rate of 16-bit products");
    }
}

// Share of the ranks that run kernels, on average over each window of an iteration.
std::vector<double> busy_by_window(const TrainingGraph& lowered, const Executor& executor, double iteration_s,
                                   double window_s) {
    const auto windows = std::max<std::size_t>(1, static_cast<std::size_t>(iteration_s / window_s));
    const double length = iteration_s / static_cast<double>(windows);
    ORRERY_ASSERT(length > 0);
    std::vector<double> busy(windows);
    for (std::size_t rank = 0; rank < lowered.ranks.size(); ++rank) {
        for (const TaskId id : lowered.stream(rank)) {
            const double start = executor.start_of(id).seconds();
            const double end = executor.end_of(id).seconds();
            const Price& price = lowered.prices[lowered.price_of(id)];
            double kernels = 0;
            for (const Category category :
                 {Category::forward, Category::backward, Category::recompute, Category::optimizer}) {
                kernels += price.seconds[static_cast<std::size_t>(category)];
            }
            const double share = end > start ? std::min(1.0, kernels / (end - start)) : 0;
            for (auto i = static_cast<std::size_t>(start / length); i < windows; ++i) {
                const double from = std::max(start, static_cast<double>(i) * length);
                const double to = std::min(end, static_cast<double>(i + 1) * length);
                if (to <= from) {
                    break;
                }
                busy[i] += share * (to - from) / length / static_cast<double>(lowered.ranks.size());
            }
        }
    }
    return busy;
}

// How far the power of all ranks together goes up and down within an iteration, where a budget asks for it: synchronous ranks compute
// and wait at the same time. With kernels under way a GPU draws their mean power, else what idle does. Shorter changes than the window
// are those that power supplies ride through (hold-up times of 10 to 20 ms: Intel, ATX12V design guide).
void add_power_swing(const Scenario& s, const TrainingRun& run, const TrainingInput& input, Summary& out) {
    constexpr double kWindow = 10e-3;  // s
    const Metric* power = out.find("power_w");
    if (!s.cluster.power.given || power == nullptr) {
        return;
    }
    const std::vector<double> busy =
        busy_by_window(run.lowered(), run.executor(), out.find("iteration_time_s")->value, kWindow);
    double idle = 0;
    for (const auto& [gpu, count] : devices_of(input)) {
        idle += count * idle_power(*gpu);
    }
    double mean = 0;
    for (const double share : busy) {
        mean += share / static_cast<double>(busy.size());
    }
    const double above = mean > 0 ? (power->value - idle) / mean : 0;  // W of all ranks at once
    const auto [least, most] = std::minmax_element(busy.begin(), busy.end());
    const double peak = idle + above * *most;
    const double trough = idle + above * *least;
    out.add("power_peak_w", peak, "W");
    out.add("power_trough_w", trough, "W");
    out.add("power_swing_fraction", (peak - trough) / peak, "1");
}

class TrainingWork final : public ScenarioRun {
  public:
    explicit TrainingWork(const RunContext& context)
        : scenario_(context.scenario),
          options_(context.options),
          simulation_(context.simulation),
          start_(context.start),
          input_(input_of(context)),
          run_(input_,
               context.options.check_memory ? context.scenario.cluster.node.gpu.memory.value
                                            : std::numeric_limits<double>::infinity(),
               context.simulation, context.start) {
        run_.set_progress(context.options.progress);
        simulation_.number_flows();
    }

    // With what a cluster's given faults do to the job's ranks.
    static TrainingInput input_of(const RunContext& context) {
        TrainingInput input = training_input(context.scenario, context.models, context.fabric, context.placement);
        if (context.options.messages && !context.simulation.by_packet()) {
            input.fold = false;
            input.keep_flows = true;
        }
        if (context.faults != nullptr) {
            input.spells = slow_spells(*context.faults, context.fabric, context.placement,
                                       static_cast<std::uint32_t>(input.plan.ranks()), context.start);
        }
        return input;
    }

    void summarise(RunOutput& out) override {
        constexpr std::uint32_t kDrawnRanks = 64;
        TrainingResult result = run_.result(options_.timeline ? kDrawnRanks : 0);
        out.seconds = result.iteration_s;
        add_training_metrics(scenario_.as<TrainingKind>(), input_, result, out.summary);
        add_power_swing(scenario_, run_, input_, out.summary);
        const double width = iteration_width(scenario_, result, input_.device);
        for (const char* name :
             {"iteration_time_s", "tokens_per_s", "tflops_per_gpu", "mfu", "hfu", "cost_per_billion_tokens_usd"}) {
            for (Metric& metric : out.summary.metrics) {
                if (metric.name == name) {
                    set_interval(metric, width);
                }
            }
        }
        if (const TrainingRegime* regime = regime_of(scenario_)) {
            out.summary.notes.push_back(
                fmt::format("low and high cover the model's errors in nine of ten measured runs of {}", regime->name));
        }
        add_messages(out);
        out.timeline = std::move(result.timeline);
        if (faults_of(scenario_).campaign) {
            add_campaign(scenario_, input_, result, options_.campaigns, out);
        }
        out.training = std::move(result);
    }

  private:
    // Packet by packet the summary tells of messages, whether somebody lists them or not.
    void add_messages(RunOutput& out) const {
        if (!simulation_.by_packet()) {
            out.messages = options_.messages ? messages_of(input_, run_, kMostListed) : std::nullopt;
            return;
        }
        MessageRecord record =
            messages_of(simulation_.flow_times(), run_.executor().listener().value(), start_.seconds());
        if (record.starts.empty()) {
            return;
        }
        std::vector<double> times = record.completions;
        for (std::size_t i = 0; i < times.size(); ++i) {
            times[i] -= record.starts[i];
        }
        out.summary.add("messages", static_cast<double>(times.size()), "1");
        add_spread("fct_s", std::move(times), "s", out.summary);
        if (options_.messages && record.starts.size() <= kMostListed) {
            out.messages = std::move(record);
        }
    }

    const Scenario& scenario_;
    const RunOptions& options_;
    Simulation& simulation_;
    SimTime start_;
    TrainingInput input_;
    TrainingRun run_;
};

}  // namespace

std::unique_ptr<ScenarioRun> TrainingKind::prepare(const RunContext& context) const {
    return std::make_unique<TrainingWork>(context);
}

}  // namespace orrery::driver
