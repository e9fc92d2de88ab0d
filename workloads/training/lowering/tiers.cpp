#include "workloads/training/lowering/tiers.hpp"

#include "sim/base/error.hpp"
#include "sim/config/units.hpp"
#include "workloads/training/features/offload.hpp"
#include "workloads/training/lowering/node_memories.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery::training {

namespace {

bool has_tier(const HostOf& of, const std::string& tier) {
    return of.host != nullptr && of.host->find(tier) < of.host->tiers.size();
}

std::vector<std::string> names_of(const HostOf& of) {
    std::vector<std::string> out;
    for (std::size_t i = 0; of.host != nullptr && i < of.host->tiers.size(); ++i) {
        out.push_back(of.host->tiers[i].name);
    }
    return out;
}

// What is wrong with a tier of the plan on nodes of a kind: `missing` where the plan may be right and the nodes lack something.
void check_tier(const OffloadPart& named, const std::string& tier, const HostOf& of, bool others_have,
                std::vector<std::string>& missing, std::vector<std::string>& wrong) {
    const std::vector<std::string> names = names_of(of);
    const std::string whose = of.group.empty() ? "" : fmt::format(" of '{}'", of.group);
    if (names.empty()) {
        missing.push_back(
            fmt::format("the plan keeps {} in '{}', and a node{} has 0 tiers beside the memory of its devices: "
                        "describe node.host.tiers",
                        named.what, tier, whose));
    } else if (!has_tier(of, tier) && others_have) {
        missing.push_back(
            fmt::format("the plan keeps {} in '{}', and none of the {} tiers of a node{} is called so; it has {}",
                        named.what, tier, names.size(), whose, fmt::join(names, ", ")));
    } else if (!has_tier(of, tier)) {
        const std::string nearest = nearest_name(tier, names);
        wrong.push_back(fmt::format("offload.{}: the node{} has no tier '{}'{}; it has {}", named.what, whose, tier,
                                    nearest.empty() ? "" : " (did you mean '" + nearest + "'?)",
                                    fmt::join(names, ", ")));
    } else if (!of.host->tiers[of.host->find(tier)].addressed() && of.host->dram() == names.size() &&
               (named.what == std::string("optimizer") || named.what == std::string("gradients"))) {
        wrong.push_back(
            fmt::format("offload.{}: the host updates what is on drives in DRAM, and the node{} has none: add a tier "
                        "with medium: dram",
                        named.what, whose));
    }
}

}  // namespace

void check_tiers(const PlanSpec& plan, const std::vector<HostOf>& hosts, const Mark& mark) {
    const auto& offload = plan.feature<OffloadPlan>();
    if (!offload.given) {
        return;
    }
    std::vector<std::string> missing;
    std::vector<std::string> wrong;
    for (const OffloadPart& named : places_of(offload)) {
        for (const std::string& tier : {named.place->tier, named.place->rest}) {
            if (!named.place->given || tier.empty()) {
                continue;
            }
            const bool known =
                std::any_of(hosts.begin(), hosts.end(), [&](const HostOf& of) { return has_tier(of, tier); });
            for (const HostOf& of : hosts) {
                check_tier(named, tier, of, known, missing, wrong);
            }
        }
    }
    std::vector<Diagnostic> errors;
    for (const std::string& text : wrong) {
        errors.push_back(mark.error(text));
    }
    if (!errors.empty()) {
        throw ConfigError(errors);
    }
    if (!missing.empty()) {
        throw InfeasibleError(fmt::format("{}", fmt::join(missing, "; ")));
    }
}

double layer_activations(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software) {
    PlanSpec here = plan;
    here.feature<OffloadPlan>() = OffloadPlan();
    const auto of = [&](double layers) {
        return memory_of(model, here, software, LayerMix{layers, 0}, false, false, 1).activations;
    };
    return of(2) - of(1);
}

std::vector<TierUse> tier_use(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software,
                              const NodeHost& host, double ranks) {
    PlanSpec here = plan;
    here.feature<OffloadPlan>() = OffloadPlan();
    const MemoryUse rank = memory_by_stage(model, here, software).front();
    std::vector<TierUse> out;
    for (std::size_t i = 0; i < host.tiers.size(); ++i) {
        out.push_back({i});
    }
    const auto place = [&](const OffloadPlace& from, double TierUse::*part, double bytes) {
        from.each([&](const std::string& tier, double share) { out[host.find(tier)].*part += ranks * share * bytes; });
    };
    const auto& offload = plan.feature<OffloadPlan>();
    place(offload.optimizer, &TierUse::optimizer, rank.optimizer);
    place(offload.gradients, &TierUse::gradients, rank.gradients);
    place(offload.parameters, &TierUse::parameters, rank.weights);
    place(offload.activations, &TierUse::activations,
          static_cast<double>(model.layers) * layer_activations(model, plan, software));
    std::erase_if(out, [](const TierUse& use) { return use.total() <= 0; });
    return out;
}

void require_tiers(const std::vector<HostUse>& hosts) {
    const auto show = [](double bytes) { return pretty_quantity(bytes, Dimension::bytes); };
    std::vector<std::string> small;
    for (const HostUse& of : hosts) {
        for (const TierUse& use : of.tiers) {
            const MemoryTier& tier = of.host->tiers[use.tier];
            if (use.total() > tier.bytes()) {
                small.push_back(fmt::format(
                    "the {} ranks of a node{} place {} in its tier '{}', which holds {} (optimizer {}, gradients {}, "
                    "parameters {}, activations {})",
                    of.ranks, of.group.empty() ? "" : fmt::format(" of '{}'", of.group), show(use.total()), tier.name,
                    show(tier.bytes()), show(use.optimizer), show(use.gradients), show(use.parameters),
                    show(use.activations)));
            }
        }
    }
    if (!small.empty()) {
        throw InfeasibleError(fmt::format("out of memory: {}", fmt::join(small, "; ")), ErrorCode::out_of_memory);
    }
}

}  // namespace orrery::training
