#include "tools/driver/kinds/campaign_summary.hpp"

#include "sim/device/power.hpp"
#include "tools/driver/kinds/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace orrery::driver {

namespace {

// Times, counts and shares are not negative, and shares not above 1, which a normal law of few runs does not know.
void add_mean(const std::string& name, const char* unit, const std::vector<double>& runs, Summary& out) {
    ORRERY_ASSERT(!runs.empty());
    const MeanInterval interval = mean_interval(runs, 0.90);
    out.add(name, interval.mean, unit);
    if (runs.size() > 1) {
        const double most = std::string(unit) == "1" ? 1 : std::numeric_limits<double>::infinity();
        out.metrics.back().low = std::max(0.0, interval.mean - interval.half_width);
        out.metrics.back().high = std::min(most, interval.mean + interval.half_width);
    }
}

}  // namespace

double goodput_of(const CampaignResult& run) {
    ORRERY_ASSERT(run.length.ns() > 0 && run.tally[Cause::useful] <= run.length.ns());
    return static_cast<double>(run.tally[Cause::useful]) / static_cast<double>(run.length.ns());
}

void add_metrics(const CampaignPlan& plan, const CheckpointSetting& setting, const std::vector<CampaignResult>& runs,
                 Summary& out) {
    const auto samples = [&](const auto& value) {
        std::vector<double> values;
        for (const CampaignResult& run : runs) {
            values.push_back(value(run));
        }
        return values;
    };
    const auto add = [&](const std::string& name, const char* unit, const auto& value) {
        add_mean(name, unit, samples(value), out);
    };
    const auto ratio = [](double a, double b) { return b > 0 ? a / b : kNotMeasured; };
    add("goodput_fraction", "1", goodput_of);
    for (std::size_t i = 1; i < kCauses; ++i) {
        const auto seconds = [&](const CampaignResult& run) {
            return static_cast<double>(run.tally[static_cast<Cause>(i)]) * 1e-9;
        };
        if (mean_interval(samples(seconds), 0.90).mean > 0) {
            add(fmt::format("lost_s.{}", cause_name(static_cast<Cause>(i))), "s", seconds);
        }
    }
    add("campaign_s", "s", [](const CampaignResult& run) { return run.length.seconds(); });
    add("interruptions", "interruptions",
        [](const CampaignResult& run) { return static_cast<double>(run.interruptions); });
    add("interruptions_per_week", "per week", [](const CampaignResult& run) {
        return static_cast<double>(run.interruptions) / (run.length.seconds() / 604800);
    });
    double length = 0;
    double interruptions = 0;
    double recoveries = 0;
    double recovering = 0;
    for (const CampaignResult& run : runs) {
        length += run.length.seconds();
        interruptions += static_cast<double>(run.interruptions);
        recoveries += static_cast<double>(run.recoveries);
        recovering += run.recovering.seconds();
    }
    out.add("mean_time_to_failure_s", ratio(length, interruptions), "s");
    out.add("mean_time_to_recover_s", ratio(recovering, recoveries), "s");
    add("checkpoints", "checkpoints", [](const CampaignResult& run) { return static_cast<double>(run.checkpoints); });
    out.add("checkpoint_bytes", setting.bytes, "B");
    out.add("checkpoint_stall_s", plan.cost.stall_s, "s");
    out.add("checkpoint_load_s", plan.cost.load_s, "s");
    out.add("checkpoint_interval_s", plan.interval_s < kNoInterval ? plan.interval_s : kNotMeasured, "s");
}

void add_rounds(const Scenario& scenario, const std::vector<RoundsPlayed>& rounds, Summary& out) {
    const auto add = [&](const char* name, const char* unit, double RoundsPlayed::*value) {
        std::vector<double> samples;
        for (const RoundsPlayed& one : rounds) {
            samples.push_back(one.*value);
        }
        add_mean(name, unit, samples, out);
    };
    if (rounds.empty()) {
        return;
    }
    add("round_time_s", "s", &RoundsPlayed::round_s);
    if (const CodingSpec& coding = scenario.as<TrainingKind>().faults.coding; coding.given()) {
        const auto code = coding.code.make();
        add("late_replicas", "replicas", &RoundsPlayed::late);
        add("waiting_rounds_fraction", "1", &RoundsPlayed::waited);
        out.add("coding_load", code->load(scenario.as<TrainingKind>().plan.data), "1");
        out.add("coding_delay", static_cast<double>(code->delay()), "rounds");
    }
}

void add_energy(const Scenario& scenario, const std::vector<CampaignResult>& runs, Summary& out) {
    const Metric* power = out.find("power_w");
    if (power == nullptr) {
        return;
    }
    double idle = scenario.cluster.mixed ? 0
                                         : idle_power(scenario.cluster.node.gpu) *
                                               static_cast<double>(scenario.as<TrainingKind>().plan.ranks());
    for (const GroupSpec& group : scenario.cluster.groups) {
        idle += idle_power(group.node.gpu) * static_cast<double>(group.nodes * group.node.gpus);
    }
    std::vector<double> joules;
    for (const CampaignResult& run : runs) {
        const double trained = static_cast<double>(run.tally[Cause::useful] + run.tally[Cause::lost_work]) * 1e-9;
        ORRERY_ASSERT(trained >= 0 && trained <= run.length.seconds() * (1 + 1e-9));
        joules.push_back(trained * power->value + (run.length.seconds() - trained) * idle);
    }
    add_mean("campaign_energy_j", "J", joules, out);
}

void add_cost(const Scenario& scenario, const std::vector<CampaignResult>& runs, Summary& out) {
    const auto& training = scenario.as<TrainingKind>();
    const NodeSpec& node = scenario.cluster.node;
    double usd_per_hour = 0;
    bool priced = true;
    const auto pay = [&](const DeviceSpec& gpu, std::int64_t gpus) {
        priced = priced && gpu.price.value > 0;
        usd_per_hour += gpu.price.value * static_cast<double>(gpus);
    };
    if (!scenario.cluster.mixed) {
        pay(node.gpu, training.plan.ranks() + training.faults.recovery.standbys * node.gpus);
    }
    for (const GroupSpec& group : scenario.cluster.groups) {
        pay(group.node.gpu, group.nodes * group.node.gpus);
    }
    if (!priced) {
        return;
    }
    std::vector<double> usd;
    for (const CampaignResult& run : runs) {
        usd.push_back(run.length.seconds() / 3600 * usd_per_hour);
    }
    add_mean("campaign_cost_usd", "USD", usd, out);
}

// An interval that the method or its store cannot keep: a rule's is raised, a fixed one is taken and warned about.
void add_interval_note(const CampaignPlan& plan, Summary& out) {
    const auto pretty = [](double seconds) { return pretty_quantity(seconds, Dimension::time); };
    const IntervalBounds& shortest = plan.shortest;
    if (std::isinf(shortest.keep_s)) {
        out.notes.emplace_back(
            "warning: one kept checkpoint never outlasts silent corruption: it may be written after the corruption and "
            "before its detection; set faults.checkpoint.storage.keep to 2 or more");
    }
    const auto rule = plan.spec.checkpoint.interval.make();
    const double wanted = rule->needs_mtbf() ? plan.rule_s : plan.interval_s;
    const double least = shortest.longest();
    if (!(wanted < least)) {
        return;
    }
    const std::string why =
        shortest.write_s >= shortest.longest()
            ? fmt::format("writing a checkpoint takes {}", pretty(shortest.write_s))
            : fmt::format("{} kept checkpoints must reach back beyond the {} until corruption is detected",
                          plan.spec.checkpoint.storage.keep, pretty(plan.spec.recovery.corruption_s));
    if (rule->needs_mtbf()) {
        out.notes.push_back(fmt::format("checkpoint interval raised from {} ('{}') to {}: {}", pretty(wanted),
                                        plan.spec.checkpoint.interval.name(), pretty(plan.interval_s), why));
        return;
    }
    const double rate = interruption_rate(plan.spec, plan.shape);
    const double daly = CheckpointIntervalChoice(checkpoint_interval_table(), "daly")
                            .make()
                            ->seconds(plan.cost.stall_s, rate > 0 ? 1 / rate : std::numeric_limits<double>::infinity());
    out.notes.push_back(
        fmt::format("warning: the checkpoint interval of {} is too short: {}; the best fixed interval is about {}",
                    pretty(wanted), why, pretty(std::isfinite(daly) ? std::max(least, daly) : least)));
}

void add_notes(const CampaignPlan& plan, const std::vector<CampaignResult>& runs, Summary& out) {
    std::size_t locked = 0;
    std::size_t unfinished = 0;
    std::uint64_t retired = 0;
    for (const CampaignResult& run : runs) {
        locked += run.livelock || (run.checkpoints == 0 && run.interruptions > 2) ? 1 : 0;
        unfinished += plan.spec.work_s > 0 && !run.finished ? 1 : 0;
        retired += run.retired;
    }
    add_interval_note(plan, out);
    if (locked > 0) {
        const double rate = interruption_rate(plan.spec, plan.shape);
        out.notes.push_back(fmt::format(
            "warning: livelock in {} of {} runs: a checkpoint needs {} of training, and an interruption comes every {}",
            locked, runs.size(), pretty_quantity(plan.interval_s + plan.cost.stall_s, Dimension::time),
            rate > 0 ? pretty_quantity(1 / rate, Dimension::time) : "few events"));
    }
    if (unfinished > 0) {
        out.notes.push_back(fmt::format("warning: the job is not done after {} in {} of {} runs",
                                        pretty_quantity(plan.spec.duration_s, Dimension::time), unfinished,
                                        runs.size()));
    }
    if (retired > 0) {
        out.notes.push_back(fmt::format("{:.1f} machines are retired per run on average",
                                        static_cast<double>(retired) / static_cast<double>(runs.size())));
    }
}

Timeline draw(const CampaignResult& run) {
    Timeline out;
    out.processes = {{0, "campaign"}};
    out.threads = {{0, "job"}, {1, "faults"}};
    const auto us = [](CampaignTime time) { return static_cast<double>(time.ns()) * 1e-3; };
    for (const Stretch& one : run.timeline) {
        ORRERY_ASSERT(one.start <= one.end);
        const char* name = one.cause == Cause::useful ? "training" : cause_name(one.cause);
        out.spans.push_back({name, name, 0, 0, us(one.start), us(one.end) - us(one.start)});
    }
    std::vector<double> busy;  // until when each row of faults is: those that last at a time have rows of their own
    for (const StruckFault& one : run.struck) {
        const std::string& name = fault_kind_names()[static_cast<std::size_t>(one.fault.kind)];
        const auto free = std::find_if(busy.begin(), busy.end(), [&](double until) { return until <= us(one.at); });
        const auto row = static_cast<std::uint32_t>(free - busy.begin());
        busy.resize(std::max<std::size_t>(busy.size(), row + 1));
        ORRERY_ASSERT(row < busy.size() && busy[row] <= us(one.at));  // one after another
        busy[row] = us(one.at) + one.fault.lasts_s * 1e6;
        out.spans.push_back({name, "fault", 0, 1 + row, us(one.at), one.fault.lasts_s * 1e6});
    }
    for (std::uint32_t row = 1; row < busy.size(); ++row) {
        out.threads.emplace_back(1 + row, fmt::format("faults {}", row + 1));
    }
    return out;
}

}  // namespace orrery::driver
