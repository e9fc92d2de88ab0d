#include "workloads/training/memory/offload.hpp"

#include "sim/base/error.hpp"
#include "sim/config/units.hpp"
#include "workloads/training/memory/node_memories.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery::training {

static void describe(Fields& fields, const Field& field, OffloadPlace& place) {
    fields.optional(field, place.given, [&](Fields& inner) {
        inner.text({"tier", "tier of node.host.tiers", true}, place.tier);
        inner.number({"fraction", "fraction that is kept there", false, 0, 1}, place.fraction);
        inner.text({"rest", "the tier of what is left (none: the device)"}, place.rest);
    });
}

void describe(Fields& fields, OffloadPlan& offload) {
    describe(fields, {"optimizer", "states, which the host then updates"}, offload.optimizer);
    describe(fields, {"gradients", "copied out after each micro-batch and added up by the host"}, offload.gradients);
    describe(fields, {"parameters", "weights, fetched layer by layer"}, offload.parameters);
    describe(fields, {"activations", "activations that layers keep for their backward pass"}, offload.activations);
    fields.enumeration(
        {"step",
         "the host updates weights once the norm of all gradients is known, behind the backward pass, or "
         "with the gradients of the step before"},
        {"synchronous", "pipelined", "delayed"}, offload.step);
    fields.integer({"prefetch", "layers fetched ahead of the one that computes", false, 0, 1000}, offload.prefetch);
}

namespace {

struct Named {
    const char* what;
    const OffloadPlace* place;
};
std::vector<Named> places(const OffloadPlan& offload) {
    return {{"optimizer", &offload.optimizer},
            {"gradients", &offload.gradients},
            {"parameters", &offload.parameters},
            {"activations", &offload.activations}};
}

}  // namespace

std::vector<std::string> offload_problems(const ModelSpec& model, const PlanSpec& plan) {
    std::vector<std::string> out;
    const OffloadPlan& offload = plan.offload;
    if (!offload.given) {
        return out;
    }
    const auto refuse = [&](bool wrong, const std::string& text) {
        if (wrong) {
            out.push_back(text);
        }
    };
    bool any = false;
    for (const auto& [what, place] : places(offload)) {
        any = any || place->given;
        refuse(place->given && place->tier.empty(), fmt::format("offload.{} needs a tier", what));
        refuse(!place->rest.empty() && place->rest == place->tier,
               fmt::format("offload.{}: rest is the tier itself", what));
        refuse(!place->rest.empty() && place->fraction >= 1,
               fmt::format("offload.{}: rest holds nothing, as fraction is 1", what));
    }
    refuse(!any, "offload names none of optimizer, gradients, parameters and activations");
    refuse(plan.sharding.given || plan.outer.given || plan.compression.given,
           "offload with sharding, outer or compression is not modelled");
    refuse(plan.pipeline > 1, "offload with pipeline above 1 is not simulated: use tensor and data with zero");
    refuse(model.experts.count > 0, "offload of a model with experts is not simulated");
    const bool shared = plan.data * plan.context > 1 && !plan.zeroth_order.given;
    refuse(shared && plan.zero < 2, "offload on several ranks needs zero: 2 or 3");
    refuse(shared && plan.zero < 3 && offload.parameters.away() > 0,
           "offload.parameters on several ranks needs zero: 3");
    refuse(offload.gradients.away() > 0 && !offload.optimizer.given,
           "offload.gradients needs offload.optimizer: the device that updates weights needs their gradients");
    refuse(offload.step != OptimizerStep::synchronous && !offload.optimizer.given,
           "offload.step other than synchronous needs offload.optimizer");
    return out;
}

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
void check_tier(const Named& named, const std::string& tier, const HostOf& of, bool others_have,
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
    if (!plan.offload.given) {
        return;
    }
    std::vector<std::string> missing;
    std::vector<std::string> wrong;
    for (const Named& named : places(plan.offload)) {
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

void keep_away(MemoryUse& use, const PlanSpec& plan, double layer) {
    const OffloadPlan& offload = plan.offload;
    const auto ahead = static_cast<double>(offload.prefetch);
    use.weights *= 1 - offload.parameters.away();
    use.gradients *= 1 - offload.gradients.away();
    use.optimizer *= 1 - offload.optimizer.away();
    if (offload.parameters.away() > 0 && plan.zero < 3) {
        // Under ZeRO-3 what is fetched are shares, and gathered layers are counted. What has changed is on its way back.
        use.buffers += 2 * (ahead + (plan.zeroth_order.given ? 2 : 1)) * layer;
    }
    if (offload.gradients.away() > 0) {
        use.buffers += 2 * bytes_of(plan.gradient_precision) * layer;
    }
}

double on_device(const OffloadPlan& offload, double kept, double layer) {
    const double away = offload.activations.away();
    return away > 0 ? std::min(kept, (1 - away) * kept + away * static_cast<double>(offload.prefetch + 1) * layer)
                    : kept;
}

double layer_activations(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software) {
    PlanSpec here = plan;
    here.offload = OffloadPlan();
    const auto of = [&](double layers) {
        return memory_of(model, here, software, LayerMix{layers, 0}, false, false, 1).activations;
    };
    return of(2) - of(1);
}

std::vector<TierUse> tier_use(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software,
                              const NodeHost& host, double ranks) {
    PlanSpec here = plan;
    here.offload = OffloadPlan();
    const MemoryUse rank = memory_by_stage(model, here, software).front();
    std::vector<TierUse> out;
    for (std::size_t i = 0; i < host.tiers.size(); ++i) {
        out.push_back({i});
    }
    const auto place = [&](const OffloadPlace& from, double TierUse::*part, double bytes) {
        from.each([&](const std::string& tier, double share) { out[host.find(tier)].*part += ranks * share * bytes; });
    };
    place(plan.offload.optimizer, &TierUse::optimizer, rank.optimizer);
    place(plan.offload.gradients, &TierUse::gradients, rank.gradients);
    place(plan.offload.parameters, &TierUse::parameters, rank.weights);
    place(plan.offload.activations, &TierUse::activations,
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
