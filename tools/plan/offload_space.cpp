#include "tools/plan/offload_space.hpp"

#include "sim/base/error.hpp"
#include "tools/driver/kinds/training.hpp"
#include "workloads/training/features/offload.hpp"
#include "workloads/training/lowering/node_memories.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::plan {

namespace {

struct Part {
    const char* key;
    OffloadPlace OffloadPlan::*place;
};
constexpr Part kParts[] = {{"optimizer", &OffloadPlan::optimizer},
                           {"gradients", &OffloadPlan::gradients},
                           {"parameters", &OffloadPlan::parameters},
                           {"activations", &OffloadPlan::activations}};

// The tiers that every node has: on a cluster of groups those of a name that all groups know.
NodeHost host_of(const ClusterSpec& cluster) {
    NodeHost out = cluster.node.host;
    std::erase_if(out.tiers, [&](const MemoryTier& tier) {
        return std::any_of(cluster.groups.begin(), cluster.groups.end(), [&](const GroupSpec& group) {
            return group.node.host.find(tier.name) == group.node.host.tiers.size();
        });
    });
    return out;
}

// The places of one thing: on the device, and in each tier.
std::vector<OffloadPlace> places_of(const OffloadPlace& own, const NodeHost& host, bool halves) {
    std::vector<OffloadPlace> out;
    if (!own.given) {
        return {own};
    }
    out.push_back({true, own.tier, 0, ""});
    for (const MemoryTier& tier : host.tiers) {
        out.push_back({true, tier.name, 1, ""});
        if (halves) {
            out.push_back({true, tier.name, 0.5, ""});
        }
    }
    return out;
}

// Gradients are added up where the states are, or in DRAM.
bool apart(const OffloadPlan& offload, const NodeHost& host) {
    const std::size_t dram = host.dram();
    const bool in_dram = dram < host.tiers.size() && offload.gradients.tier == host.tiers[dram].name;
    return offload.gradients.away() > 0 &&
           (offload.optimizer.away() <= 0 || (!in_dram && offload.gradients.tier != offload.optimizer.tier));
}

}  // namespace

std::vector<OffloadPlan> offload_choices(const Scenario& scenario) {
    const OffloadPlan& own = scenario.as<TrainingKind>().plan.feature<OffloadPlan>();
    if (!own.given) {
        return {own};
    }
    const NodeHost host = host_of(scenario.cluster);
    for (const Part& part : kParts) {
        if (!(own.*part.place).rest.empty()) {
            throw ConfigError({scenario.as<TrainingKind>().plan_mark.error(
                fmt::format("'plan' searches one tier for each thing: leave 'rest' of offload.{} out", part.key))});
        }
    }
    std::vector<OffloadPlan> out = {own};
    for (const Part& part : kParts) {
        std::vector<OffloadPlan> more;
        for (const OffloadPlan& so_far : out) {
            for (const OffloadPlace& place : places_of(own.*part.place, host, part.place == &OffloadPlan::optimizer)) {
                OffloadPlan next = so_far;
                next.*part.place = place;
                more.push_back(next);
            }
        }
        out = std::move(more);
    }
    std::erase_if(out, [&](const OffloadPlan& offload) { return apart(offload, host); });
    ORRERY_ASSERT(!out.empty());
    return out;
}

bool may_offload(const PlanSpec& plan) {
    const bool several = plan.data * plan.context > 1;
    return plan.pipeline == 1 && (!several || plan.zero >= 2) &&
           (!several || plan.zero == 3 || plan.feature<OffloadPlan>().parameters.away() <= 0);
}

bool fits_tiers(const TrainingInput& in) {
    return in.host == nullptr || fits(host_uses(in));
}

// Of a node. Each micro-batch fetches weights twice, and what it keeps goes out and comes back; the host reads and writes the states,
// reads gradients and writes weights of 2 B.
static double seconds_on(const TrainingInput& in, const HostUse& of, double passes) {
    const auto times = static_cast<double>(in.plan.micro_batches());
    const auto shared = static_cast<double>(std::max<std::int64_t>(1, of.host->devices_per_switch));
    const double links = of.device_link * std::ceil(of.ranks / shared);
    double fetched = 0;
    double copies = 0;
    double update = 0;
    for (const TierUse& use : of.tiers) {
        const MemoryTier& tier = of.host->tiers[use.tier];
        const double link = tier.link_rate() > 0 ? tier.link_rate() : tier.read_rate();
        const double read = std::min(tier.read_rate(), link);
        const double written = std::min(tier.write_rate(), link);
        const double in_bytes = times * (2 * use.parameters + use.activations);
        const double out_bytes = times * (use.activations + use.gradients);
        fetched += std::max(in_bytes, out_bytes);
        copies = std::max(copies, in_bytes / read + out_bytes / written);
        update += use.optimizer / read + use.optimizer / written + use.gradients / read;
    }
    copies = std::max(copies, fetched / links);
    const bool hidden = in.plan.feature<OffloadPlan>().step != OptimizerStep::synchronous;
    return std::max(0.0, copies - passes) + (hidden ? std::max(0.0, update - passes) : update);
}

// All wait for the slowest node.
double offload_seconds(const TrainingInput& in, double passes) {
    double most = 0;
    for (const HostUse& of : in.host == nullptr ? std::vector<HostUse>() : host_uses(in)) {
        most = std::max(most, seconds_on(in, of, passes));
    }
    return most;
}

std::string describe_offload(const OffloadPlan& offload) {
    std::string out;
    for (const Part& part : kParts) {
        const OffloadPlace& place = offload.*part.place;
        if (place.away() > 0) {
            out += fmt::format(", {}{} in {}", place.away() < 1 ? "half of " : "", part.key, place.tier);
        }
    }
    return out;
}

void assign_offload(const OffloadPlan& offload, std::vector<std::string>& assignments) {
    for (const Part& part : kParts) {
        const OffloadPlace& place = offload.*part.place;
        if (place.given) {
            assignments.push_back(fmt::format("plan.offload.{}.tier={}", part.key, place.tier));
            assignments.push_back(fmt::format("plan.offload.{}.fraction={:g}", part.key, place.fraction));
        }
    }
}

}  // namespace orrery::plan
