#include "tools/driver/scenario_checks.hpp"

#include "models/power_capped.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/text.hpp"
#include "sim/device/power.hpp"
#include "sim/network/packet/parts.hpp"
#include "tools/driver/kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

namespace orrery::driver {

// Where a field stands that is named by its keys from the root on, or the innermost of its sections that is given.
const Mark& mark_of(const YamlNode& root, const std::string& path) {
    const YamlNode* at = &root;
    for (std::size_t from = 0; from < path.size();) {
        const std::size_t to = std::min(path.find('.', from), path.size());
        const YamlNode* inner = at->find(path.substr(from, to - from));
        if (inner == nullptr) {
            break;
        }
        at = inner;
        from = to + 1;
    }
    return at->mark;
}

void check_model(const YamlNode& root, const ModelSpec& model, std::vector<Diagnostic>& errors) {
    const bool no_width = model.head_dim == 0 || (model.heads > 0 && model.head_dim == model.hidden / model.heads);
    if (model.heads > 0 && model.hidden % model.heads != 0 && no_width) {
        errors.push_back(mark_of(root, "model.heads")
                             .error(fmt::format("heads ({}) must divide hidden ({}) where no 'head_dim' is given",
                                                model.heads, model.hidden)));
    }
    const YamlNode* own = root.find("model");
    if (own != nullptr && own->find("rotary") != nullptr && model.latent.kv_rank > 0 &&
        model.rotary != (model.latent.rotary > 0)) {
        errors.push_back(mark_of(root, "model.rotary")
                             .error("'model.rotary' has no effect without attention that is not latent, whose part "
                                    "with a position is 'latent.rotary'",
                                    ErrorCode::no_effect));
    }
    for (const std::vector<ModelProblem>& found : {layer_problems(model), encoder_problems(model)}) {
        for (const ModelProblem& problem : found) {
            errors.push_back(mark_of(root, "model." + problem.key).error(problem.text));
        }
    }
}

// The GPUs keep to their share of a budget as they do to a limit of their own.
void apply_power_budget(const YamlNode& root, Scenario& scenario, std::vector<Diagnostic>& errors) {
    constexpr const char* kBudget = "cluster.power";
    const PowerBudget& power = scenario.cluster.power;
    const YamlNode* cluster = root.find("cluster");
    const YamlNode* node = cluster != nullptr ? cluster->find("power") : nullptr;
    if (!power.given || node == nullptr) {
        return;
    }
    const auto refuse = [&](const std::string& text) { errors.push_back(node->mark.error(text)); };
    if (!scenario.own->prices_kernels()) {
        return refuse(fmt::format("'power' changes nothing in kind {}: no kernels run there whose clock it could lower",
                                  scenario.kind().name));
    }
    if (scenario.cluster.nodes == 0) {
        return;  // said already: kernels run on nodes
    }
    if (power.rack <= 0 && power.cluster <= 0) {
        return refuse("'power' is a budget: 'rack' or 'cluster' is needed");
    }
    const auto own_limit = [](const DeviceSpec& device) {
        const bool own = device.power_limit.value > 0 && device.power_limit.source != kBudget;
        return own ? device.power_limit.value : device.tdp.value;
    };
    const bool by_demand = power.sharing == PowerSharing::demand;
    if (by_demand &&
        (!scenario.cluster.mixed || std::any_of(scenario.cluster.groups.begin(), scenario.cluster.groups.end(),
                                                [&](const GroupSpec& one) { return own_limit(one.node.gpu) <= 0; }))) {
        return refuse(
            "'sharing: demand' is between groups of unlike GPUs whose own limits (tdp or power_limit) are known");
    }
    // What each GPU of this kind may draw, where the others take no more than they can.
    const auto by_level = [&](const DeviceSpec& device) {
        double level = std::numeric_limits<double>::infinity();
        const double nodes = static_cast<double>(scenario.cluster.nodes);
        const auto within = [&](double budget, double first, double count) {
            std::vector<PowerClaim> claims;
            bool here = false;
            double at = 0;
            for (const GroupSpec& group : scenario.cluster.groups) {
                const double held =
                    std::max(0.0, std::min(at + static_cast<double>(group.nodes), first + count) - std::max(at, first));
                claims.push_back({held * static_cast<double>(group.node.gpus), own_limit(group.node.gpu)});
                const bool first_group =
                    &group == &scenario.cluster.groups.front() && &device == &scenario.cluster.node.gpu;
                here = here || (held > 0 && (first_group || &group.node.gpu == &device));
                at += static_cast<double>(group.nodes);
            }
            level = here ? std::min(level, power_level(budget - count * power.beside, std::move(claims))) : level;
        };
        if (power.cluster > 0) {
            within(power.cluster, 0, nodes);
        }
        const auto per_rack = static_cast<double>(power.nodes_per_rack);
        for (double first = 0; power.rack > 0 && first < nodes; first += per_rack) {
            within(power.rack, first, std::min(per_rack, nodes - first));
        }
        return level;
    };
    const auto limit = [&](DeviceSpec& device, double gpus) {
        const double share =
            by_demand ? by_level(device) : power.per_gpu(static_cast<double>(scenario.cluster.nodes), gpus);
        if (share <= idle_power(device)) {
            refuse(fmt::format("the budget leaves {:.0f} W for each GPU, which takes {:.0f} W when idle", share,
                               idle_power(device)));
            return;
        }
        if (device.power_limit.source == kBudget) {
            device.power_limit = {};  // of a resolved scenario that is read again
        }
        const double own = device.power_limit.value > 0 ? device.power_limit.value : device.tdp.value;
        if (own <= 0 || share < own) {
            device.power_limit = {share, "derived", kBudget};
        }
    };
    for_each_node(scenario.cluster, [&](NodeSpec& one) { limit(one.gpu, static_cast<double>(one.gpus)); });
    for (DeviceSpec* device : scenario.own->own_devices()) {
        limit(*device, static_cast<double>(scenario.cluster.node.gpus));
    }
}

// A limit lowers the clock by the law of power, which takes its figures.
void check_power_limit(Scenario& scenario, const Mark& own_mark, std::vector<Diagnostic>& errors) {
    const auto check = [&](const DeviceSpec& device, const Mark& mark) {
        if (device.power_limit.value > 0 && !(has_power_law(device) && device.tdp.value > 0)) {
            errors.push_back(mark.error(fmt::format(
                "power_limit needs the figures of a power law, which {} lacks: active_power, energy_per_flop, "
                "energy_per_byte and tdp",
                device.name.empty() ? "the device" : device.name)));
        } else if (device.power_limit.value > 0 && device.power_limit.value <= device.idle_power.value) {
            errors.push_back(
                mark.error(fmt::format("power_limit {:g} W is no more than the board takes when idle, {:g} W",
                                       device.power_limit.value, device.idle_power.value)));
        }
    };
    check(scenario.cluster.node.gpu, scenario.cluster_mark);
    for (const DeviceSpec* device : scenario.own->own_devices()) {
        check(*device, own_mark);
    }
}

// What a topology cannot be simulated with.
void check_topology(const Scenario& scenario, std::vector<Diagnostic>& errors) {
    for (const FabricSpec* fabric : fabrics_of(scenario.cluster)) {
        const auto topology = fabric->topology.make();
        if (topology->needs_packets() && !scenario.network.by_packet()) {
            errors.push_back(scenario.cluster_mark.error(
                "adaptive routing looks at the queues of switches: it needs network.fidelity: packet"));
        }
        if (topology->limits_connections() &&
            (!scenario.kind().network.simgrid || scenario.network.fidelity == Fidelity::simgrid)) {
            errors.push_back(
                scenario.cluster_mark.error("'window' and 'loss' of a connection are simulated in collective and "
                                            "network scenarios only, and not with "
                                            "fidelity simgrid"));
        }
    }
    if (scenario.cluster.mixed && scenario.network.packets.nic.rails > 1) {
        errors.push_back(scenario.network_mark.error("nic.rails needs nodes that all have the same NICs"));
    }
    // Several fabrics are forwarded over switch by switch, trees among them, too.
    const bool joined = fabrics_of(scenario.cluster).size() > 1;
    const auto topology = scenario.cluster.fabric.topology.make();
    const std::string name = joined ? "a cluster of several fabrics" : scenario.cluster.fabric.topology.name();
    const packet::PathNeeds paths = scenario.network.packets.paths.policy.make()->needs();
    if ((joined || !topology->is_tree()) && (paths.leaves_choose || paths.plans)) {
        errors.push_back(scenario.network_mark.error(
            fmt::format("paths '{}' choose among the spines of a tree; {} has none: take spray, ecmp, oblivious, "
                        "flowlet, recycled, reps, bitmap or mixed",
                        scenario.network.packets.paths.policy.name(), name)));
    }
}

namespace {

// Why this fabric has no parts for so many threads; empty: it has, or has problems of its own.
std::string problem_of_threads(const Scenario& scenario) {
    const PacketSpec& packets = scenario.network.packets;
    const auto transport = packets.transport.policy.make();
    const auto chooser = packets.paths.policy.make();
    std::optional<Fabric> fabric;
    std::optional<packet::Setup> setup;
    try {
        fabric.emplace(shape_of(scenario.cluster, scenario.cluster_mark));
        setup.emplace(*fabric, packets, false, *transport, *chooser);
    } catch (const Error&) {
        return "";
    }
    try {
        (void)packet::Parts(*setup, static_cast<std::uint32_t>(scenario.network.threads));
    } catch (const InfeasibleError& error) {
        return error.what();
    }
    return "";
}

}  // namespace

void check_threads(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors) {
    if (scenario.network.threads <= 1) {
        return;
    }
    const Mark& threads = mark_of(root, "network.threads");
    if (!scenario.network.by_packet()) {
        errors.push_back(threads.error(
            fmt::format("threads share packets: fidelity {} has none; choose packet, or leave network.threads out",
                        fidelity_names()[static_cast<std::size_t>(scenario.network.fidelity)])));
        return;
    }
    for (const packet::PartsProblem& problem : packet::problems_of_parts(scenario.network.packets)) {
        errors.push_back(mark_of(root, "network." + problem.field).error(problem.text()));
    }
    if (faults_of(scenario).given) {
        errors.push_back(
            mark_of(root, "faults")
                .error("threads cannot share a network whose links change: leave 'faults' or network.threads out"));
    }
    if (const std::string problem = problem_of_threads(scenario); !problem.empty()) {
        errors.push_back(threads.error(problem));
    }
}

bool check_file(const Mark& mark, const std::string& named, const std::string& directory,
                std::vector<Diagnostic>& errors) {
    try {
        require_input_file(directory.empty() || named.front() == '/' ? named : directory + "/" + named);
        return true;
    } catch (const ConfigError& error) {
        errors.push_back(mark.error(fmt::format("'{}' {}", named, error.diagnostics().front().text), error.code()));
        return false;
    }
}

void check_files(const YamlNode& tree, const std::string& directory, std::vector<Diagnostic>& errors) {
    constexpr std::array kPaths = {"requests.trace",      "compute.trace", "traffic.flows",
                                   "network.link_events", "faults.trace",  "plan.documents.trace"};
    for (const std::string_view path : kPaths) {
        const YamlNode* node = &tree;
        for (const std::string_view key : split(path, '.')) {
            node = node == nullptr ? nullptr : node->find(std::string(key));
        }
        if (node != nullptr && node->mark.line > 0 && !node->scalar.empty()) {
            (void)check_file(node->mark, node->scalar, directory, errors);
        }
    }
    if (const YamlNode* jobs = tree.find("jobs")) {
        for (const YamlNode& job : jobs->items) {
            if (const YamlNode* own = job.find("scenario")) {
                check_files(*own, directory, errors);
            }
        }
    }
}

// Whether a value of a tree stands in this file: --set gives values of their own files.
static bool has_value_of(const YamlNode& node, const std::string& file) {
    return (node.mark.file && *node.mark.file == file) ||
           std::any_of(node.items.begin(), node.items.end(),
                       [&](const YamlNode& item) { return has_value_of(item, file); }) ||
           std::any_of(node.entries.begin(), node.entries.end(),
                       [&](const YamlNode::Entry& entry) { return has_value_of(entry.value, file); });
}

// Whether an error is on the lines of a section, or of one line with the next, or in what was set of it.
bool names_lines_of(const std::vector<Diagnostic>& errors, const YamlNode& root, const std::string& section) {
    int first = 0;
    int last = std::numeric_limits<int>::max();
    for (const YamlNode::Entry& entry : root.entries) {
        if (entry.key == section) {
            first = entry.key_mark.line;
        } else if (first > 0) {
            last = std::max(first, entry.key_mark.line - 1);
            break;
        }
    }
    const YamlNode* given = root.find(section);
    return std::any_of(errors.begin(), errors.end(), [&](const Diagnostic& error) {
        if (root.mark.file && error.file != *root.mark.file) {
            return given != nullptr && has_value_of(*given, error.file);
        }
        return error.line == 0 || (error.line >= first && error.line <= last);
    });
}

}  // namespace orrery::driver
