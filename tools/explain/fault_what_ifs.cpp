#include "tools/explain/fault_what_ifs.hpp"

#include "tools/driver/kinds/training.hpp"
#include "tools/driver/kinds/training_faults.hpp"
#include "workloads/faults/campaign.hpp"

#include <algorithm>

namespace orrery::explain {

namespace {

constexpr std::int64_t kFewestRuns = 16;  // of drawn faults, for an interval of the change

struct FaultWhatIf {
    const char* name;
    double interval;  // factor
    void (*change)(FaultsSpec&);
    bool outsiders = false;  ///< brings machines from outside of the job
};

void keep(FaultsSpec&) {}

constexpr FaultWhatIf kFaultWhatIfs[] = {
    {"detection twice as fast", 1,
     [](FaultsSpec& f) {
         f.recovery.heartbeat_s /= 2;
         f.recovery.timeout_s /= 2;
         f.recovery.anomaly_s /= 2;
         f.recovery.corruption_s /= 2;
     }},
    {"diagnosis twice as fast", 1,
     [](FaultsSpec& f) {
         f.recovery.diagnosis_s /= 2;
         f.recovery.bisection_s /= 2;
     }},
    {"restart twice as fast", 1, [](FaultsSpec& f) { f.recovery.restart_s /= 2; }},
    {"storage twice as fast", 1,
     [](FaultsSpec& f) {
         StorageSpec& store = f.checkpoint.storage;
         store.write *= 2;
         store.read *= 2;
         store.per_node *= 2;
         store.latency /= 2;
     }},
    {"twice the spares (at least one standby)", 1,
     [](FaultsSpec& f) {
         RecoverySpec& r = f.recovery;
         r.standbys = r.standbys + r.pool + r.spares > 0 ? 2 * r.standbys : 1;
         r.pool *= 2;
         r.spares *= 2;
     },
     true},
    {"repair twice as fast", 1,
     [](FaultsSpec& f) {
         f.recovery.automatic.mean_s /= 2;
         f.recovery.manual.mean_s /= 2;
     }},
    {"half the rates of faults", 1,
     [](FaultsSpec& f) {
         for (ProcessSpec& process : f.processes) {
             process.mtbf_s *= 2;
         }
     }},
    {"half the time between checkpoints", 0.5, keep},
    {"twice the time between checkpoints", 2, keep},
};

}  // namespace

std::vector<CampaignVariant> fault_variants(const Scenario& scenario) {
    std::vector<CampaignVariant> out;
    if (!faults_of(scenario).campaign) {
        return out;
    }
    CampaignVariant base{"as it is", faults_of(scenario), 1};
    if (!base.faults.processes.empty()) {
        base.faults.runs = std::max(base.faults.runs, kFewestRuns);
    }
    out.push_back(base);
    for (const FaultWhatIf& what_if : kFaultWhatIfs) {
        if (what_if.outsiders && !takes_standbys(scenario)) {
            continue;
        }
        CampaignVariant variant = base;
        variant.name = what_if.name;
        variant.interval = what_if.interval;
        what_if.change(variant.faults);
        out.push_back(std::move(variant));
    }
    return out;
}

std::optional<CampaignLevers> fault_levers(const std::vector<CampaignVariant>& variants,
                                           const std::vector<CampaignOutcome>& outcomes) {
    if (outcomes.empty()) {
        return std::nullopt;
    }
    CampaignLevers out;
    const std::vector<double>& base = outcomes.front().goodput;
    ORRERY_ASSERT(outcomes.size() == variants.size() && !base.empty());
    out.goodput = mean_interval(base, 0.95).mean;
    out.runs = base.size();
    for (std::size_t i = 1; i < outcomes.size(); ++i) {
        std::vector<double> changes;
        ORRERY_ASSERT(outcomes[i].goodput.size() == base.size());  // runs are compared one by one, with the same faults
        for (std::size_t run = 0; run < base.size(); ++run) {
            changes.push_back(outcomes[i].goodput[run] - base[run]);
        }
        const MeanInterval change = mean_interval(changes, 0.95);
        out.levers.push_back({variants[i].name, change.mean, change.half_width});
    }
    std::stable_sort(out.levers.begin(), out.levers.end(),
                     [](const CampaignLever& a, const CampaignLever& b) { return a.change > b.change; });
    return out;
}

}  // namespace orrery::explain
