#include "tools/driver/run.hpp"

#include "models/borrowed.hpp"
#include "tools/driver/given_faults.hpp"
#include "tools/driver/kind.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string_view>
#include <utility>

namespace orrery::driver {

void add_packet_metrics(const std::optional<PacketStatistics>& packets, Summary& out) {
    if (!packets) {
        return;
    }
    const auto count = [&](const char* name, std::uint64_t value) {
        out.add(name, static_cast<double>(value), "packets");
    };
    count("packets_delivered", packets->packets_delivered);
    count("packet_hops", packets->packet_hops);
    count("control_hops", packets->control_hops);
    count("drops", packets->drops);
    count("trims", packets->trims);
    count("retransmissions", packets->retransmissions);
    count("timeouts", packets->timeouts);
    count("ecn_marks", packets->ecn_marks);
    count("corrupted", packets->corrupted);
    out.add("pause_s", packets->pause_s, "s");
    if (packets->watched) {
        out.add("pfc_storms", static_cast<double>(packets->storms), "1");
        count("watchdog_drops", packets->storm_drops);
    }
    out.add("max_queue_bytes", packets->max_queue_bytes, "B");
    out.add("max_link_bytes", packets->max_link_bytes, "B");
    if (packets->skips) {
        ORRERY_ASSERT(packets->skipped <= packets->packets_delivered);
        const auto delivered = static_cast<double>(std::max<std::uint64_t>(1, packets->packets_delivered));
        out.add("skipped_fraction", static_cast<double>(packets->skipped) / delivered, "1");
        out.add("skip_error", packets->skip_error, "1");
    }
}

namespace {

// What of the network a run of this fidelity does not do, or does in its own way.
void add_network_notes(const NetworkSpec& network, std::vector<std::string>& notes) {
    if (network.by_packet()) {
        const std::vector<std::string> own = notes_of(network.packets);
        notes.insert(notes.end(), own.begin(), own.end());
    }
    const std::string paths = network.packets.paths.policy.name();
    if (!network.by_packet() && paths != "spray" && paths != "ecmp") {
        const std::string& fidelity = fidelity_names()[static_cast<std::size_t>(network.fidelity)];
        notes.push_back(fmt::format("paths '{}' need network.fidelity: packet; this run is {} and uses {}", paths,
                                    fidelity, network.path_choice() == PathChoice::ecmp ? "ecmp" : "spray"));
    }
    if (network.batch > 0 && network.fidelity != Fidelity::simgrid) {
        notes.push_back(fmt::format("completions within {} are grouped (network.batch)",
                                    pretty_quantity(network.batch, Dimension::time)));
    }
}

// NICs beyond one for each GPU, which send nothing.
void add_nic_notes(const Scenario& scenario, std::vector<std::string>& notes) {
    const ClusterSpec& cluster = scenario.cluster;
    const bool stripes = scenario.network.by_packet() && scenario.network.packets.nic.rails > 1;
    const auto add = [&](const NodeSpec& node, const std::string& path) {
        if (cluster.nodes > 1 && node.nics > node.gpus && !stripes) {
            notes.push_back(fmt::format("of the {} NICs of a node ('{}.nics') {} send messages: one for each GPU",
                                        node.nics, path, node.gpus));
        }
    };
    if (!cluster.mixed) {
        add(cluster.node, "cluster.node");
    }
    for (std::size_t i = 0; i < cluster.groups.size(); ++i) {
        add(cluster.groups[i].node, fmt::format("cluster.groups.{}.node", i));
    }
}

// What scenarios and their jobs say to no effect.
void add_without_effect(const Scenario& scenario, std::vector<std::string>& notes) {
    notes.insert(notes.end(), scenario.without_effect.begin(), scenario.without_effect.end());
    for (const JobSpec* job : jobs_of(scenario)) {
        for (const std::string& note : job->scenario.without_effect) {
            notes.push_back(job->name + ": " + note);
        }
    }
}

bool names_differ(const std::vector<Metric>& metrics) {
    std::set<std::string_view> names;
    for (const Metric& metric : metrics) {
        names.insert(metric.name);
    }
    return names.size() == metrics.size();
}

RunOutput run_kind(const Scenario& scenario, ModelCache& models, const RunOptions& options) {
    const auto started = std::chrono::steady_clock::now();
    RunOutput out;
    const BorrowedKernels borrowed;
    out.summary.scenario = scenario.name;
    out.summary.kind = scenario.kind().name;
    out.summary.hash = hash_of(scenario);
    out.summary.seed = static_cast<std::uint64_t>(scenario.seed);
    const Fabric fabric = fabric_of(scenario);
    if (scenario.network.fidelity == Fidelity::simgrid) {
        scenario.own->run_on_simgrid(scenario, options, fabric, out);
    } else {
        RunSettings settings = run_settings(scenario);
        settings.packets.count_flows = options.messages;
        Simulation simulation(fabric, settings);
        const Placement whole(fabric);
        const std::vector<TimedFault> faults = given_faults(scenario, fabric);
        LinkFaults on_links(fabric, link_faults(faults, fabric));
        const std::unique_ptr<ScenarioRun> prepared =
            scenario.own->prepare({scenario, models, options, fabric, whole, simulation, SimTime(), &faults});
        if (on_links.any()) {
            (void)simulation.add(on_links);
        }
        try {
            simulation.run();
        } catch (const InfeasibleError& error) {
            throw InfeasibleError(error.what() + never_mended(faults), error.code());
        }
        prepared->summarise(out);
        ORRERY_ASSERT(out.seconds >= 0);
        require_alive(scenario, faults, fabric, out);
        out.summary.events = simulation.events();
        if (scenario.kind().network.simgrid) {
            out.summary.add("max_link_utilisation", simulation.report().max_link_utilisation, "1");
        }
        add_packet_metrics(simulation.packet_statistics(), out.summary);
        out.packets = simulation.packet_report();
    }
    add_network_notes(scenario.network, out.summary.notes);
    add_nic_notes(scenario, out.summary.notes);
    add_without_effect(scenario, out.summary.notes);
    for (std::string& note : borrowed.notes()) {
        out.summary.notes.push_back(std::move(note));
    }
    ORRERY_ASSERT(names_differ(out.summary.metrics));
    out.summary.expectations = judge(scenario.expect, out.summary);
    const auto elapsed = std::chrono::steady_clock::now() - started;
    out.summary.wall_time_s = std::chrono::duration<double>(elapsed).count();
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    out.summary.peak_rss_mib = static_cast<double>(usage.ru_maxrss) / 1024;
    return out;
}

}  // namespace

RunOutput run_scenario(const Scenario& scenario, ModelCache& models, const RunOptions& options) {
    try {
        return run_kind(scenario, models, options);
    } catch (const ConfigError& error) {
        // What shows only when it runs names its scenario.
        std::vector<Diagnostic> named = error.diagnostics();
        for (Diagnostic& one : named) {
            one.file = one.file.empty() ? scenario.name : one.file;
        }
        throw ConfigError(std::move(named));
    }
}

}  // namespace orrery::driver
