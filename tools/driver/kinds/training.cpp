// kind: training. One iteration of a model under a plan.

#include "tools/driver/kinds/training.hpp"

#include "tools/driver/given_faults.hpp"
#include "tools/driver/group_names.hpp"
#include "tools/driver/kinds/completion_times.hpp"
#include "tools/driver/kinds/interval.hpp"
#include "tools/driver/kinds/training_faults.hpp"
#include "tools/driver/kinds/training_input.hpp"
#include "tools/driver/kinds/training_messages.hpp"
#include "tools/driver/scenario_checks.hpp"

#include "sim/config/given.hpp"
#include "sim/device/power.hpp"
#include "sim/engine/executor.hpp"
#include "workloads/training/features/adapters.hpp"
#include "workloads/training/features/compression.hpp"
#include "workloads/training/features/documents.hpp"
#include "workloads/training/features/offload.hpp"
#include "workloads/training/features/zeroth_order.hpp"
#include "workloads/training/plan/state_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace orrery::driver {

namespace {

constexpr UnitPrice kCopied = {1.5e-7, 10};     // of an iteration whose ranks do the same: copies of one of each stage
constexpr UnitPrice kCampaignStep = {3e-7, 0};  // a fault, or a stretch of training with its checkpoint
constexpr UnitPrice kSlowState = {1.2e-4, 1200};  // of an iteration that a campaign prepares, and whose time it keeps
constexpr double kTasksPerPass = 8;               // of a pipeline stage: compute, its transfers and what they wait for

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
    if (result.folded_into_one > 1) {
        out.notes.push_back(
            fmt::format("{} ranks simulated, each standing for {}", result.simulated_ranks, result.folded_into_one));
    } else {
        out.notes.push_back(fmt::format("{} ranks simulated one by one", result.simulated_ranks));
    }
    if (s.plan.operand_bytes() < 2) {
        out.notes.push_back("mfu and hfu are of the rate of products in 16 bits");
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
        for (const char* name : {"iteration_time_s", "tokens_per_s", "tflops_per_gpu", "mfu", "hfu"}) {
            for (Metric& metric : out.summary.metrics) {
                if (metric.name == name) {
                    set_interval(metric, width);
                }
            }
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

void TrainingKind::describe(Fields& fields, const Scenario&) {
    fields.section({"model", "model that is trained: a preset or its dimensions", true}, kModelPresets,
                   [&](Fields& inner) { orrery::describe(inner, model); });
    fields.section({"plan", "distribution of the model over the cluster", true},
                   [&](Fields& inner) { orrery::describe(inner, plan); });
    fields.section({"software", "the generation of training software (default: megatron-core-2024)"}, kSoftwarePresets,
                   [&](Fields& inner) { orrery::describe(inner, software); });
    describe_compute(fields, compute);
    orrery::describe(fields, faults);
    fields.needs("software.scan_efficiency",
                 software.scan_efficiency.how != kGivenInScenario || model.layers_with(LayerPart::state_space) > 0,
                 "a model with state-space layers");
    for (const char* key :
         {"expert", "expert_tensor", "dispatch", "dispatch_precision", "combine_precision", "capacity", "pad",
          "shadowed", "expert_pieces", "router_exponent", "router_loads", "overlap.experts"}) {
        fields.needs(fmt::format("plan.{}", key), model.experts.count > 0, "a model with experts");
    }
}

namespace {

// A job on groups that shrinks counts what is left of each: machines from outside of it are of no group.
void refuse_outsiders(const YamlNode& root, const RecoverySpec& recovery, std::vector<Diagnostic>& errors) {
    for (const auto& [key, count] : {std::pair{"standbys", recovery.standbys}, std::pair{"pool", recovery.pool},
                                     std::pair{"spares", recovery.spares}}) {
        if (count == 0) {
            continue;
        }
        const YamlNode* at = &root;
        for (const char* part : {"faults", "recovery", key}) {
            const YamlNode* next = at->kind == YamlNode::Kind::map ? at->find(part) : nullptr;
            at = next != nullptr ? next : at;
        }
        errors.push_back(at->mark.error(
            fmt::format("'{}' of a job that 'shrinks' on a cluster of groups are not simulated: nothing says of which "
                        "group these {} are",
                        key, count)));
    }
}

// Launches one by one leave nothing to overlap, and no graphs to replay.
void check_blocking_launches(const YamlNode& root, const TrainingKind& scenario, std::vector<Diagnostic>& errors) {
    if (!scenario.software.blocking_launches) {
        return;
    }
    const Mark& at = mark_of(root, "software.blocking_launches");
    if (scenario.plan.overlaps()) {
        errors.push_back(
            at.error("with 'software.blocking_launches' nothing overlaps, and the plan has exchanges that do"));
    }
    if (scenario.software.graphs != CudaGraphs::none) {
        errors.push_back(at.error("'software.blocking_launches' launches kernels one by one, and no 'graphs' of them"));
    }
}

}  // namespace

void TrainingKind::keep_marks(const YamlNode& root) {
    plan_mark = mark_of(root, "plan");
}

std::vector<std::string> TrainingKind::refusals(const FaultReach& reach) const {
    std::vector<std::string> out;
    if (reach.links && plan.replica_ranks() > reach.gpus) {
        out.push_back(
            fmt::format("has tensor x context {} on nodes of {} GPUs: what these exchange is priced before the "
                        "run, where no link can fail",
                        plan.replica_ranks(), reach.gpus));
    }
    if (reach.links && plan.experts.expert * plan.expert_tensor() > reach.gpus) {
        out.emplace_back(
            "spreads its experts over nodes: their exchanges are priced before the run, where no link can fail");
    }
    return out;
}

void TrainingKind::check(const YamlNode& root, const DataDirectory& data, Scenario& whole,
                         std::vector<Diagnostic>& errors) {
    constexpr const char* kDefaultSoftware = "megatron-core-2024";
    const YamlNode* given = root.find("software");
    if (given == nullptr || given->kind == YamlNode::Kind::null) {
        read_fields(*data.preset(kSoftwarePresets, kDefaultSoftware), data, errors,
                    [&](Fields& fields) { orrery::describe(fields, software); });
    }
    const AttentionKernel asked = plan.asked_attention;
    plan.attention = asked == AttentionKernel::software ? software.attention : asked;
    if (model.hybrid() && model.layers_with(LayerPart::state_space) > 0 && software.scan_efficiency.value == 0) {
        software.scan_efficiency = usual_scan_efficiency();
    }
    for (const std::string& problem : resolve_features(plan)) {
        errors.push_back(plan_mark.error(problem));
    }
    check_group_names(root, {"plan", "groups"}, names_in(plan.groups), whole, errors);
    check_model(root, model, errors);
    check_blocking_launches(root, *this, errors);
    check_faults(root, whole, errors);
    if (faults.campaign && !takes_standbys(whole)) {
        refuse_outsiders(root, faults.recovery, errors);
    }
    if (whole.cluster.mixed && plan.has<DocumentsPlan>()) {
        errors.push_back(plan_mark.error(
            "documents on a cluster of groups are not simulated: replicas differ by what they hold alone"));
    }
    if (plan.has<ZerothOrderPlan>() && faults.campaign) {
        errors.push_back(plan_mark.error(
            "'faults' of zeroth_order steps are not simulated: their checkpoints have no states of an optimizer"));
    }
}

static double strikes_per_second(const ProcessSpec& process, const JobShape& shape) {
    return shape.count(process.component) / process.mtbf_s * (1 + process.bad_share * (process.bad_factor - 1));
}

// How often so many components are slow at once that an iteration with just these is simulated.
static double slow_states(const Scenario& s, const FaultsSpec& faults) {
    const JobShape shape = job_shape(s);
    double rate = 0;
    double at_once = 0;
    for (const ProcessSpec& process : faults.processes) {
        if (process.factor < 1 && process.lasts_s > 0) {
            const double own = strikes_per_second(process, shape);
            rate += own;
            at_once += own * process.lasts_s;
        }
    }
    return static_cast<double>(faults.runs) * faults.duration_s * rate * std::min(1.0, at_once);
}

static RunCost cost_of_campaign(const Scenario& s, const FaultsSpec& faults) {
    constexpr double kStall = 60;  // s, where the interval depends on it
    const JobShape shape = job_shape(s);
    double rate = 0;
    for (const ProcessSpec& process : faults.processes) {
        rate += strikes_per_second(process, shape);
    }
    const double stops = interruption_rate(faults, shape);
    if (const auto interval = faults.checkpoint.interval.make(); stops > 0 || !interval->needs_mtbf()) {
        rate += 2 / std::max(1e-3, interval->seconds(kStall, 1 / std::max(stops, 1e-12)));
    }
    const double length = faults.work_s > 0 ? std::min(faults.duration_s, 10 * faults.work_s) : faults.duration_s;
    return cost_of(static_cast<double>(faults.runs) * length * rate, kCampaignStep, "steps of campaigns");
}

RunCost TrainingKind::cost(const Scenario& s) const {
    const double chunks = static_cast<double>(plan.chunks);
    const bool by_layer = plan.zero == 3 || (plan.zero == 2 && plan.pipeline == 1);
    const double parts = by_layer ? static_cast<double>(model.layers) / static_cast<double>(plan.pipeline) : chunks;
    const bool folds = s.network.fold && !s.network.by_packet();
    const double ranks = static_cast<double>(folds ? plan.pipeline : plan.ranks());
    const bool alike = !faults.given && !plan.has<DocumentsPlan>() && !plan.has<OffloadPlan>();
    RunCost out = cost_of(2 * static_cast<double>(plan.micro_batches()) * parts * ranks * kTasksPerPass,
                          alike ? kCopied : kTask, "operations");
    if (faults.campaign) {
        const RunCost campaign = cost_of_campaign(s, faults);
        const RunCost anew = out;
        const double states = slow_states(s, faults);
        out.seconds += campaign.seconds + states * (anew.seconds + kSlowState.seconds);
        out.bytes += states * kSlowState.bytes;
        out.what += ", " + campaign.what;
    }
    return out;
}

std::unique_ptr<ScenarioRun> TrainingKind::prepare(const RunContext& context) const {
    return std::make_unique<TrainingWork>(context);
}

static constexpr const char* kTrainingCards[] = {"iteration_time_s", "tokens_per_s",           "mfu",
                                                 "tflops_per_gpu",   "memory_per_gpu_gib",     "goodput_fraction",
                                                 "bubble_fraction",  "exposed_communication_s"};

const KindRow TrainingKind::kRow = {
    .name = "training",
    .headline = "iteration_time_s",
    .cards = kTrainingCards,
    .drawing = TimelineDrawing::ranks,
    .network = {.library = true, .folds = true, .collectives = true, .sends = true, .flows = true},
    .make = make_kind<TrainingKind>,
};

}  // namespace orrery::driver
