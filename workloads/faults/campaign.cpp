#include "workloads/faults/campaign.hpp"

#include "workloads/faults/campaign_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::faults {

const char* cause_name(Cause cause) {
    constexpr const char* kNames[kCauses] = {
        "useful",     "stragglers", "network",   "power",     "fewer_nodes", "checkpoint_traffic",
        "checkpoint", "storage",    "lost_work", "detection", "diagnosis",   "hardware",
        "restart",    "load",       "reshard"};
    return kNames[static_cast<std::size_t>(cause)];
}

namespace running {

Campaign::Campaign(const CampaignPlan& plan, JobModel& job, std::uint64_t seed, bool timeline)
    : plan_(plan),
      spec_(plan.spec),
      recovery_(plan.spec.recovery),
      job_(job),
      has_kinds_(recovery_.shrinks && !job.kinds().empty()),
      fleet_(plan.spec, plan.shape.nodes, has_kinds_ ? job.kinds() : std::vector<std::uint32_t>{plan.shape.nodes},
             seed),
      random_(seed, "faults/detection"),
      keeps_timeline_(timeline),
      horizon_(CampaignTime::from_seconds(plan.spec.duration_s)),
      healthy_(std::max<std::int64_t>(1, CampaignTime::from_seconds(plan.iteration_s).ns())),
      interval_(CampaignTime::from_seconds(plan.interval_s).ns()),
      goal_(plan.spec.work_s > 0 ? CampaignTime::from_seconds(plan.spec.work_s).ns()
                                 : std::numeric_limits<std::int64_t>::max()),
      seen_(fleet_.places()) {
    add_sources(seed);
    free_ = saves_are_free();
    next_save_ = free_ ? goal_ : after(interval_);
}

CampaignResult Campaign::run() {
    while (step_ != Step::done) {
        const CampaignTime end = step_end();
        const CampaignTime behind = background_end();
        const CampaignTime event = next_event();
        const CampaignTime until = std::min({horizon_, end, behind, event});
        ORRERY_ASSERT(until >= now_);  // time does not go back
        pass(until);
        if (end == until) {
            finish_step();
        } else if (behind == until) {
            finish_background();
        } else if (event == until) {
            take_event();
        } else {
            break;  // the horizon
        }
        ++out_.events;
        if (fruitless_ > kLivelock) {
            out_.livelock = true;
            break;
        }
    }
    if (step_ != Step::training && step_ != Step::saving && step_ != Step::loading && step_ != Step::done) {
        go_back();  // what nobody will come back to is lost
    }
    if (free_ && step_ == Step::training) {
        save_for_free();
    }
    static_cast<SpareCounts&>(out_) = fleet_.counts();
    out_.replaced = fleet_.replaced();
    out_.length = now_;
    out_.tally = tally_;
    ORRERY_ASSERT(tally_.total() == now_.ns());
    return std::move(out_);
}

}  // namespace running

IntervalBounds shortest_interval(const FaultsSpec& spec, const CheckpointCost& cost, bool corrupts) {
    IntervalBounds out;
    out.write_s = cost.background_s;
    if (corrupts) {
        // Checkpoints of the store that are taken between the corruption and its discovery hold it; one more must be kept.
        const double copies =
            static_cast<double>(spec.checkpoint.storage.keep - 1) * (cost.in_memory ? cost.persist_every : 1);
        out.keep_s = std::max(0.0, spec.recovery.corruption_s / copies - cost.stall_s);
    }
    return out;
}

CampaignPlan plan_campaign(const FaultsSpec& spec, const JobShape& shape, JobModel& job,
                           std::vector<TimedFault> trace) {
    CampaignPlan plan{spec, shape, std::move(trace), job.iteration_s({shape.nodes, {}, 0}), 0, {}, 0, 0, {}};
    plan.straggling_s = std::max(plan.iteration_s, job.straggling_s());
    const std::vector<TimedFault> events = timed_faults(spec.events, shape);
    plan.given.insert(plan.given.end(), events.begin(), events.end());
    const CheckpointSetting setting = job.checkpoint();
    const StorageSpec& storage = setting.storage;
    if (storage.capacity > 0 && setting.bytes * static_cast<double>(storage.keep) > storage.capacity) {
        throw InfeasibleError(
            fmt::format("{} checkpoint{} of {} {} not fit a store of {}", storage.keep, storage.keep == 1 ? "" : "s",
                        pretty_quantity(setting.bytes, Dimension::bytes), storage.keep == 1 ? "does" : "do",
                        pretty_quantity(storage.capacity, Dimension::bytes)));
    }
    plan.cost = spec.checkpoint.method.make()->cost(setting);
    const double rate = interruption_rate(spec, shape);
    const double mtbf = rate > 0 ? 1 / rate : std::numeric_limits<double>::infinity();
    const auto interval = spec.checkpoint.interval.make();
    double wanted = interval->seconds(plan.cost.stall_s, mtbf);
    if (std::isnan(wanted)) {
        wanted = 0;  // nothing to stall for, never interrupted
    }
    const bool corrupts = std::any_of(spec.processes.begin(), spec.processes.end(),
                                      [](const ProcessSpec& one) { return one.kind == FaultKind::corruption; }) ||
                          std::any_of(plan.given.begin(), plan.given.end(),
                                      [](const TimedFault& one) { return one.fault.kind == FaultKind::corruption; });
    plan.rule_s = wanted;
    plan.shortest = shortest_interval(spec, plan.cost, corrupts);
    double iterations = std::max(1.0, std::floor(wanted / plan.iteration_s + 0.5));
    if (interval->needs_mtbf()) {
        iterations = std::max(iterations, std::ceil(plan.shortest.longest() / plan.iteration_s));
    }
    plan.interval_s = std::isinf(wanted) ? 1e10 : plan.iteration_s * iterations;
    ORRERY_ASSERT(plan.iteration_s > 0 && plan.interval_s >= plan.iteration_s);
    return plan;
}

CampaignResult run_campaign(const CampaignPlan& plan, JobModel& job, std::uint64_t seed, bool timeline) {
    return running::Campaign(plan, job, seed, timeline).run();
}

}  // namespace orrery::faults
