// kind: training. One iteration of a model under a plan.

#include "tools/driver/kinds/training.hpp"

#include "tools/driver/group_names.hpp"
#include "tools/driver/kinds/training_faults.hpp"
#include "tools/driver/scenario_checks.hpp"

#include "sim/config/given.hpp"
#include "workloads/training/features/documents.hpp"
#include "workloads/training/features/offload.hpp"
#include "workloads/training/features/zeroth_order.hpp"
#include "workloads/training/plan/state_space.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::driver {

namespace {

constexpr UnitPrice kCopied = {1.5e-7, 10};     // of an iteration whose ranks do the same: copies of one of each stage
constexpr UnitPrice kCampaignStep = {3e-7, 0};  // a fault, or a stretch of training with its checkpoint
constexpr UnitPrice kSlowState = {1.2e-4, 1200};  // of an iteration that a campaign prepares, and whose time it keeps
constexpr double kTasksPerPass = 8;               // of a pipeline stage: compute, its transfers and what they wait for

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
    fields.needs("software.step_overhead",
                 software.step_overhead.how != kGivenInScenario || software.graphs != CudaGraphs::iteration,
                 "launches by the host: graphs of an iteration hide it (software.graphs)");
    fields.needs("plan.adapters.wide_inputs", software.allocation.moments,
                 "software whose memory goes by moments (software.allocation.moments)");
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

static constexpr const char* kTrainingCards[] = {"iteration_time_s",
                                                 "tokens_per_s",
                                                 "mfu",
                                                 "tflops_per_gpu",
                                                 "memory_per_gpu_gib",
                                                 "goodput_fraction",
                                                 "bubble_fraction",
                                                 "exposed_communication_s",
                                                 "cost_per_billion_tokens_usd",
                                                 "campaign_cost_usd"};

const KindRow TrainingKind::kRow = {
    .name = "training",
    .headline = "iteration_time_s",
    .cards = kTrainingCards,
    .drawing = TimelineDrawing::ranks,
    .network = {.library = true, .folds = true, .collectives = true, .sends = true, .flows = true},
    .make = make_kind<TrainingKind>,
};

}  // namespace orrery::driver
