#include "tools/driver/given_faults.hpp"

#include "tools/driver/kind.hpp"
#include "tools/driver/scenario_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace orrery::driver {

namespace {

// All nodes of a cluster, as places of faults are numbered.
JobShape whole_shape(const Fabric& fabric) {
    const FabricShape& shape = fabric.shape();
    JobShape out;
    out.nodes = shape.nodes;
    out.gpus_per_node = shape.gpus_per_node;
    out.nics_per_node = shape.nics_per_node;
    if (fabric.as_tree() != nullptr && shape.nodes > 1) {
        out.nodes_per_leaf = shape.nodes_per_leaf;
        out.leaves = fabric.leaves();
        out.spines = fabric.spines();
        out.rails = std::max(1U, shape.rails);
    }
    return out;
}

std::string name_of(const Place& place) {
    switch (place.what) {
        case Place::What::gpu:
            return fmt::format("gpu{}", place.index);
        case Place::What::nic:
            return fmt::format("nic{}", place.index);
        case Place::What::node:
            return fmt::format("node{}", place.index);
        case Place::What::leaf:
            return fmt::format("leaf{}", place.index);
        case Place::What::spine:
            return fmt::format("spine{}", place.index);
        case Place::What::leaf_spine:
            return fmt::format("leaf{}-spine{}", place.index, place.upper);
        default:
            return "job";
    }
}

const std::string& name_of(FaultKind kind) {
    return fault_kind_names()[static_cast<std::size_t>(kind)];
}

bool on_links(const Fault& fault) {
    using What = Place::What;
    const What what = fault.place.what;
    return what == What::nic || what == What::leaf_spine || fault.kind == FaultKind::switch_loss;
}

bool on_processors(const Place& place) {
    return place.what == Place::What::gpu || place.what == Place::What::node;
}

bool stops(const Fault& fault) {
    return on_processors(fault.place) &&
           (fault.kind == FaultKind::fail_stop || fault.kind == FaultKind::hang || fault.kind == FaultKind::preemption);
}

// Why a kind cannot honour a fault; empty: it can.
std::string refusal(const Scenario& scenario, const Fault& fault) {
    const std::string kind = scenario.kind().name;
    if (on_links(fault)) {
        const bool between = fault.place.what == Place::What::spine || fault.place.what == Place::What::leaf_spine;
        return between && !scenario.network.by_packet()
                   ? "links between switches are bundles below packet fidelity: it needs network.fidelity: packet"
                   : "";
    }
    if (stops(fault)) {
        return !scenario.own->has_ranks() ? "flows have no ranks that could die: give 'link-down' of the host's NIC"
                                          : "";
    }
    if (fault.kind == FaultKind::slow && on_processors(fault.place)) {
        return scenario.own->holds_jobs()
                   ? ""
                   : fmt::format("in kind {} no kernels are priced that it could slow: its NIC may be 'degraded'",
                                 kind);
    }
    if (fault.kind == FaultKind::corruption) {
        return "nothing here would find wrong results, which take as long as right ones";
    }
    if (fault.kind == FaultKind::power_cap) {
        return "give the clocks' limit as gpu.power_limit or cluster.power";
    }
    return fmt::format("kind {} has no such place", kind);
}

// Faults whose effect would be left out, as what they hit is priced beforehand.
void check_jobs(const Scenario& scenario, const std::vector<TimedFault>& faults, const Mark& mark,
                std::vector<Diagnostic>& errors) {
    const auto linked = [](const TimedFault& one) { return on_links(one.fault); };
    const bool links = std::any_of(faults.begin(), faults.end(), linked);
    const bool processors = !std::all_of(faults.begin(), faults.end(), linked);
    const FaultReach reach{links, processors, scenario.cluster.node.gpus};
    for (const JobSpec* job : jobs_of(scenario)) {
        for (const std::string& text : job->scenario.own->refusals(reach)) {
            errors.push_back(mark.error(fmt::format("job '{}' {}", job->name, text)));
        }
    }
}

bool hits(const Place& place, GpuId gpu, const Fabric& fabric) {
    return place.what == Place::What::gpu ? place.index == gpu.value() : place.index == fabric.node_of(gpu);
}

}  // namespace

void check_given_faults(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors) {
    const YamlNode* node = root.find("faults");
    if (!faults_of(scenario).given || node == nullptr || names_lines_of(errors, root, "cluster")) {
        return;  // places are those of the cluster
    }
    if (const YamlNode* kind = node->find("kind"); kind != nullptr && kind->scalar == "none") {
        errors.push_back(kind->mark.error("'none' has no parameters: leave 'kind' out, or all of the others"));
        return;
    }
    if (faults_of(scenario).events.empty() && faults_of(scenario).trace.empty()) {
        errors.push_back(node->mark.error("'faults' names none: it needs 'events' or a 'trace'"));
        return;
    }
    if (scenario.network.fidelity == Fidelity::simgrid) {
        errors.push_back(node->mark.error("fidelity simgrid knows no faults: use fluid or packet"));
    }
    if (scenario.network.packets.skip_error > 0) {
        errors.push_back(scenario.network_mark.error(
            "network.skip goes with networks that stay as they are: leave it out beside faults"));
    }
    const auto shape_if_known = [&]() -> std::optional<JobShape> {
        try {
            return whole_shape(Fabric(shape_of(scenario.cluster, scenario.cluster_mark)));
        } catch (const Error&) {
            return std::nullopt;  // said where the cluster is read
        }
    };
    const std::optional<JobShape> known = shape_if_known();
    if (!known) {
        return;
    }
    const JobShape& shape = *known;
    check_faults(*node, {}, faults_of(scenario).events, shape, errors);
    if (!errors.empty()) {
        return;
    }
    const YamlNode* list = node->find("events");
    const std::vector<TimedFault> faults = timed_faults(faults_of(scenario).events, shape);
    for (std::size_t i = 0; i < faults.size(); ++i) {
        const Fault& fault = faults[i].fault;
        if (const std::string text = refusal(scenario, fault); !text.empty()) {
            errors.push_back(list->items[i].mark.error(
                fmt::format("'{}' of {}: {}", name_of(fault.kind), faults_of(scenario).events[i].where, text)));
        }
    }
    check_jobs(scenario, faults, node->mark, errors);
}

std::vector<TimedFault> given_faults(const Scenario& scenario, const Fabric& fabric) {
    if (!faults_of(scenario).given) {
        return {};
    }
    const JobShape shape = whole_shape(fabric);
    std::vector<TimedFault> out = timed_faults(faults_of(scenario).events, shape);
    if (!faults_of(scenario).trace.empty()) {
        const std::string path = scenario.file(faults_of(scenario).trace);
        for (const TimedFault& one : read_fault_trace(path, shape)) {
            if (const std::string text = refusal(scenario, one.fault); !text.empty()) {
                throw ConfigError(
                    fmt::format("{}: '{}' of {}: {}", path, name_of(one.fault.kind), name_of(one.fault.place), text));
            }
            out.push_back(one);
        }
    }
    return out;
}

std::vector<TimedFault> link_faults(const std::vector<TimedFault>& faults, const Fabric& fabric) {
    std::vector<TimedFault> out;
    std::copy_if(faults.begin(), faults.end(), std::back_inserter(out),
                 [&](const TimedFault& one) { return on_links(one.fault) && !links_of(one.fault, fabric).empty(); });
    return out;
}

std::vector<SlowSpell> slow_spells(const std::vector<TimedFault>& faults, const Fabric& fabric,
                                   const Placement& placement, std::uint32_t ranks, SimTime start) {
    std::vector<SlowSpell> out;
    for (const auto& [at_s, fault, ends] : faults) {
        if (fault.kind != FaultKind::slow) {
            continue;
        }
        ORRERY_ASSERT(fault.factor > 0 && fault.factor <= 1);
        const double from = at_s - start.seconds();
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            if (hits(fault.place, placement.gpu(rank), fabric)) {
                out.push_back({rank, fault.factor, from,
                               fault.lasts_s > 0 ? from + fault.lasts_s : std::numeric_limits<double>::infinity()});
            }
        }
    }
    return out;
}

void require_alive(const Scenario& scenario, const std::vector<TimedFault>& faults, const Fabric& fabric,
                   const RunOutput& out) {
    const auto check = [&](const std::string& what, const Placement& placement, std::uint32_t gpus, double start,
                           double end) {
        for (const auto& [at_s, fault, ends] : faults) {
            if (!stops(fault) || at_s >= end) {
                continue;
            }
            for (std::uint32_t rank = 0; rank < gpus; ++rank) {
                if (hits(fault.place, placement.gpu(rank), fabric)) {
                    throw InfeasibleError(fmt::format(
                        "'{}' of {} at {} stops {}: rank {} is gone, and without it {} would take until {}; nothing "
                        "here restarts it (faults of kind training have recovery)",
                        name_of(fault.kind), name_of(fault.place), pretty_quantity(at_s, Dimension::time), what, rank,
                        start > 0 ? "what starts at " + pretty_quantity(start, Dimension::time) : "the run",
                        pretty_quantity(end, Dimension::time)));
                }
            }
        }
    };
    const std::vector<const JobSpec*> jobs = jobs_of(scenario);
    if (jobs.empty()) {
        const std::int64_t ranks = scenario.own->ranks_taken();
        check("the run", Placement(fabric), ranks > 0 ? static_cast<std::uint32_t>(ranks) : fabric.gpus(), 0,
              out.seconds);
    }
    ORRERY_ASSERT(jobs.empty() || out.jobs.size() == jobs.size());
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        const JobSpec& job = *jobs[i];
        const Placement placement(fabric, job.placed);
        check(fmt::format("job '{}'", job.name), placement, placement.gpus(), job.start,
              job.start + out.jobs[i].seconds);
    }
}

std::string never_mended(const std::vector<TimedFault>& faults) {
    std::string out;
    for (const auto& [at_s, fault, ends] : faults) {
        if (on_links(fault) && left_of(fault) == 0 && fault.lasts_s <= 0) {
            out += fmt::format("{}'{}' of {} from {} on has no 'lasts'", out.empty() ? "; " : ", ", name_of(fault.kind),
                               name_of(fault.place), pretty_quantity(at_s, Dimension::time));
        }
    }
    return out;
}

}  // namespace orrery::driver
