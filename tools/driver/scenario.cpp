#include "tools/driver/scenario.hpp"

#include "models/calibrated.hpp"
#include "models/collective_library.hpp"
#include "models/power_capped.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/random.hpp"
#include "sim/device/power.hpp"
#include "tools/driver/expect_key.hpp"
#include "tools/driver/given_faults.hpp"
#include "tools/driver/kind.hpp"
#include "tools/driver/named_model.hpp"
#include "tools/driver/scenario_checks.hpp"
#include "workloads/trace/flow_trace.hpp"
#include "workloads/training/offload.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <set>

namespace orrery::inline driver {

namespace {

constexpr const char* kSchemaVersionDoc = "version of the scenario language; this is 1";

// FNV over the resolved text, as sixteen hexadecimal digits.
std::string hash_text(const std::string& text) {
    return fmt::format("{:016x}", mix64(hash64(text)));
}

std::vector<LinkEvent> link_events_of(const Scenario& s) {
    const std::string& file = s.network.packets.link_events;
    return file.empty() ? std::vector<LinkEvent>()
                        : read_link_events(s.file(file), fabric_of(s), pauses(s.network.packets));
}

const std::vector<const KindRow*>& kinds() {
    static const std::vector<const KindRow*> kRows = {&kTrainingKind, &kCollectiveKind, &kNetworkKind, &kReplayKind,
                                                      &kServingKind,  &kClusterKind,    &kRlKind};
    return kRows;
}

}  // namespace

const KindRow& row_of(ScenarioKind kind) {
    return *kinds()[static_cast<std::size_t>(kind)];
}

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
        const auto delivered = static_cast<double>(std::max<std::uint64_t>(1, packets->packets_delivered));
        out.add("skipped_fraction", static_cast<double>(packets->skipped) / delivered, "1");
        out.add("skip_error", packets->skip_error, "1");
    }
}

std::string Scenario::file(const std::string& path) const {
    return directory.empty() || path.front() == '/' ? path : directory + "/" + path;
}

namespace {

// Every member that is the path of a file.
auto paths_in(Scenario& scenario) {
    return std::array{&scenario.requests.trace,      &scenario.replay.trace,
                      &scenario.traffic.flows,       &scenario.network.packets.link_events,
                      &scenario.faults.trace,        &scenario.engine.faults.trace,
                      &scenario.plan.documents.trace};
}

}  // namespace

std::vector<std::string> files_of(const Scenario& scenario) {
    Scenario copy = scenario;
    std::vector<std::string> out;
    for (const std::string* path : paths_in(copy)) {
        if (!path->empty()) {
            out.push_back(scenario.file(*path));
        }
    }
    for (const JobSpec& job : scenario.jobs) {
        if (!job.file.empty()) {
            out.push_back(scenario.file(job.file));
        }
        Scenario own = job.scenario;
        own.directory = own.directory.empty() ? scenario.directory : own.directory;
        const std::vector<std::string> files = files_of(own);
        out.insert(out.end(), files.begin(), files.end());
    }
    return out;
}

Scenario seen_from(const std::string& directory, Scenario scenario) {
    namespace fs = std::filesystem;
    for (std::string* path : paths_in(scenario)) {
        if (!path->empty() && path->front() != '/') {
            *path = fs::proximate(fs::absolute(scenario.file(*path)), fs::absolute(directory)).string();
        }
    }
    for (JobSpec& job : scenario.jobs) {
        job.scenario.directory = scenario.directory;
        job.scenario = seen_from(directory, std::move(job.scenario));
    }
    scenario.directory = directory;
    return scenario;
}

const std::vector<std::string>& scenario_kind_names() {
    static const std::vector<std::string> kNames = [] {
        std::vector<std::string> names;
        for (const KindRow* row : kinds()) {
            names.emplace_back(row->name);
        }
        return names;
    }();
    return kNames;
}

void describe_compute(Fields& fields, Scenario& s) {
    fields.section({"compute", "where kernel times come from"}, [&](Fields& inner) {
        inner.enumeration({"model", "calibrated on measured kernels, or a roofline"}, {"calibrated", "roofline"},
                          s.compute);
    });
}

// What scenarios of every kind have.
static void describe_common(Fields& fields, Scenario& s) {
    std::int64_t version = 1;
    fields.integer({"orrery", kSchemaVersionDoc, true, 1, 1}, version);
    fields.enumeration({"kind", "what the scenario asks", true}, scenario_kind_names(), s.kind);
    fields.integer({"seed", "of all random streams", false, 0, 9e15}, s.seed);
    fields.section({"cluster", "the machines and their network", true},
                   [&](Fields& inner) { describe(inner, s.cluster); });
}

void describe(Fields& fields, Scenario& s) {
    describe_common(fields, s);
    row_of(s.kind).describe(fields, s);
    fields.section({"network", "how the network is simulated"},
                   [&](Fields& inner) { describe(inner, s.network, row_of(s.kind).network); });
    const bool sums_in_switches =
        s.kind != ScenarioKind::network &&
        (s.kind != ScenarioKind::collective || s.collective.algorithm == &algorithm("in-switch") ||
         s.collective.algorithm == &algorithm("auto"));
    fields.needs("network.queues.reduction_slots", sums_in_switches,
                 "an all-reduce inside switches (algorithm: in-switch)", Unmet::noted);
}

// A scenario of this kind with its defaults.
static Scenario plain_scenario(ScenarioKind kind) {
    Scenario plain;
    plain.kind = kind;
    return plain;
}

void describe_job(Fields& fields, Scenario& s) {
    fields.enumeration({"kind", "what the job asks", true}, scenario_kind_names(), s.kind);
    fields.integer(
        {"seed", "of the job's random streams; that of the whole scenario, less 1, is added", false, 0, 9e15}, s.seed);
    row_of(s.kind).describe(fields, s);
}

namespace {

// Keys of another kind of scenario are unknown keys, so the kind has to be known first. False: it is none.
bool find_kind(const YamlNode& root, Scenario& scenario) {
    if (const YamlNode* kind = root.find("kind")) {
        if (kind->scalar == "sweep") {
            throw ConfigError({kind->mark.error("this is a sweep of scenarios: 'orrery sweep' runs it")});
        }
        const auto& names = scenario_kind_names();
        const auto found = std::find(names.begin(), names.end(), kind->scalar);
        if (found != names.end()) {
            scenario.kind = static_cast<ScenarioKind>(found - names.begin());
            return true;
        }
    }
    return false;
}

// What can be said of a scenario of no kind: what is wrong with the kind and with what all kinds have.
[[noreturn]] void refuse_kind(const YamlNode& root, const DataDirectory& data, Scenario& scenario) {
    YamlNode common = root;
    std::erase_if(common.entries, [](const YamlNode::Entry& entry) {
        return entry.key != "orrery" && entry.key != "kind" && entry.key != "seed" && entry.key != "cluster";
    });
    std::vector<Diagnostic> errors;
    read_fields(common, data, errors, [&](Fields& fields) { describe_common(fields, scenario); });
    throw ConfigError(errors);
}

void keep_marks(const YamlNode& root, Scenario& scenario) {
    const auto mark_of = [&](const char* key) {
        const YamlNode* node = root.find(key);
        return node != nullptr ? node->mark : root.mark;
    };
    scenario.cluster_mark = mark_of("cluster");
    scenario.plan_mark = mark_of("plan");
    scenario.network_mark = mark_of("network");
    scenario.engine_mark = mark_of("engine");
    scenario.requests_mark = mark_of("requests");
}

}  // namespace

void refuse_shared_sections(YamlNode& job, std::vector<Diagnostic>& errors) {
    if (const YamlNode* found = job.find(kExpect)) {
        errors.push_back(
            found->mark.error("a job has no 'expect' of its own: expect NAME.metric of the whole scenario"));
    }
    for (const char* key : {"cluster", "network"}) {
        if (const YamlNode* found = job.find(key)) {
            errors.push_back(found->mark.error(
                fmt::format("a job has no '{}' of its own: it runs on that of the whole scenario", key)));
        }
    }
    std::erase_if(job.entries, [](const YamlNode::Entry& entry) {
        return entry.key == "cluster" || entry.key == "network" || entry.key == kExpect;
    });
}

void read_job(const YamlNode& node, const DataDirectory& data, Scenario& scenario, std::vector<Diagnostic>& errors) {
    (void)find_kind(node, scenario);
    const std::size_t before = errors.size();
    std::int64_t version = 1;
    read_fields(
        node, data, errors,
        [&](Fields& fields) {
            fields.integer({"orrery", kSchemaVersionDoc, false, 1, 1}, version);
            describe_job(fields, scenario);
        },
        &scenario.origins);
    if (errors.size() == before) {
        complete_job(node, data, scenario, errors);
    }
}

// What is said to no effect is an error, or a note of the scenario's runs.
static void keep_without_effect(const YamlNode& node, Scenario& scenario,
                                const std::function<void(Fields&)>& describe_own,
                                const std::function<void(Fields&)>& usual, std::vector<Diagnostic>& errors) {
    WithoutEffect found = without_effect(node, describe_own, usual);
    errors.insert(errors.end(), found.errors.begin(), found.errors.end());
    scenario.without_effect = std::move(found.notes);
}

void complete_job(const YamlNode& node, const DataDirectory& data, Scenario& scenario,
                  std::vector<Diagnostic>& errors) {
    const ClusterSpec cluster = scenario.cluster;
    const Mark cluster_mark = scenario.cluster_mark;
    const Mark network_mark = scenario.network_mark;
    keep_marks(node, scenario);
    scenario.cluster_mark = cluster_mark;
    scenario.network_mark = network_mark;
    const KindRow& row = row_of(scenario.kind);
    if (row.nodes && cluster.nodes == 0) {
        errors.push_back(cluster_mark.error(fmt::format("{} needs 'nodes' with GPUs, not bare hosts", row.name)));
    }
    if (const YamlNode* faults = node.find("faults"); faults != nullptr && scenario.faults.given) {
        errors.push_back(faults->mark.error("links and nodes are the cluster's: give 'faults' beside 'jobs'"));
    }
    if (const YamlNode* faults = node.find("faults"); faults != nullptr && scenario.faults.campaign) {
        errors.push_back(faults->mark.error(
            "a job beside others has no 'faults': the states of the cluster are priced for a job that runs alone"));
    }
    const std::size_t before = errors.size();
    check_power_limit(scenario, errors);
    row.check(node, data, scenario, errors);
    Scenario plain = plain_scenario(scenario.kind);
    keep_without_effect(
        node, scenario, [&](Fields& fields) { describe_job(fields, scenario); },
        [&](Fields& fields) { describe_job(fields, plain); }, errors);
    add_model_limits(scenario.model.name, data, scenario.without_effect);
    if (errors.size() == before) {
        complete(scenario.model);
    }
}

// Rates of links say nothing of what joins what: holes in a graph are told beside links that have none.
static bool only_rates_of_links(const std::vector<Diagnostic>& errors, const YamlNode& root) {
    std::set<std::pair<int, int>> rates;
    const YamlNode* cluster = root.find("cluster");
    const YamlNode* fabric = cluster == nullptr ? nullptr : cluster->find("fabric");
    for (const char* key : {"links", "wan"}) {
        const YamlNode* list = fabric == nullptr ? nullptr : fabric->find(key);
        if (list == nullptr || list->kind != YamlNode::Kind::sequence) {
            continue;
        }
        for (const YamlNode& link : list->items) {
            if (link.kind != YamlNode::Kind::map || link.find("from") == nullptr || link.find("to") == nullptr) {
                continue;
            }
            rates.emplace(link.mark.line, link.mark.column);
            for (const char* figure : {"link", "latency"}) {
                if (const YamlNode* value = link.find(figure)) {
                    rates.emplace(value->mark.line, value->mark.column);
                }
            }
        }
    }
    return std::all_of(errors.begin(), errors.end(), [&](const Diagnostic& error) {
        return rates.contains({error.line, error.column}) || !names_lines_of({error}, root, "cluster");
    });
}

// Other levels share links evenly: weights and priorities would have no effect there.
static void check_classes(const YamlNode& root, const Scenario& scenario, std::vector<Diagnostic>& errors) {
    const YamlNode* network = root.find("network");
    const YamlNode* classes = network == nullptr ? nullptr : network->find("classes");
    if (classes != nullptr && !scenario.network.by_packet() && !scenario.network.packets.classes.empty()) {
        errors.push_back(classes->mark.error("classes of traffic are simulated at fidelity packet"));
    }
}

// With models named by their presets. `errors` and `notes`: what their names have brought.
static Scenario read_with_presets(const YamlNode& root, const std::string& name, const DataDirectory& data,
                                  std::vector<Diagnostic> errors, std::vector<std::string> notes) {
    Scenario scenario;
    scenario.name = name;
    if (root.kind != YamlNode::Kind::map) {
        throw ConfigError({root.mark.error("a scenario is a map that starts with 'orrery: 1'", ErrorCode::wrong_type)});
    }
    if (!find_kind(root, scenario)) {
        refuse_kind(root, data, scenario);
    }
    keep_marks(root, scenario);
    YamlNode tidied = root;
    if (const YamlNode* expect = root.find(kExpect)) {
        scenario.expect = read_expectations(*expect, errors);
        std::erase_if(tidied.entries, [](const YamlNode::Entry& entry) { return entry.key == kExpect; });
    }
    if (row_of(scenario.kind).tidy != nullptr) {
        row_of(scenario.kind).tidy(tidied, errors);
    }
    read_fields(
        tidied, data, errors, [&](Fields& fields) { describe(fields, scenario); }, &scenario.origins);
    for (const std::string& problem : problems_of(scenario.network)) {
        errors.push_back(scenario.network_mark.error(problem));
    }
    const KindRow& row = row_of(scenario.kind);
    check_classes(root, scenario, errors);
    if (scenario.network.packets.skip_error > 0 && scenario.faults.campaign) {
        errors.push_back(scenario.network_mark.error(
            "network.skip goes with networks that stay as they are: leave it out beside faults"));
    }
    if (scenario.network.fidelity == Fidelity::simgrid && !row.messages) {
        errors.push_back(scenario.network_mark.error(
            "fidelity simgrid serves collective and network scenarios: SimGrid owns its clock; use fluid here"));
    }
    if (row.nodes && scenario.cluster.nodes == 0 && root.find("cluster") != nullptr &&
        !names_lines_of(errors, root, "cluster")) {
        errors.push_back(
            scenario.cluster_mark.error(fmt::format("{} needs 'nodes' with GPUs, not bare hosts", row.name)));
    }
    check_topology(scenario, errors);
    apply_power_budget(root, scenario, errors);
    check_power_limit(scenario, errors);
    row.check(root, data, scenario, errors);
    YamlNode own = root;  // jobs are looked through with their own defaults
    std::erase_if(own.entries, [](const YamlNode::Entry& entry) { return entry.key == "jobs"; });
    Scenario plain = plain_scenario(scenario.kind);
    keep_without_effect(
        own, scenario, [&](Fields& fields) { describe(fields, scenario); },
        [&](Fields& fields) { describe(fields, plain); }, errors);
    check_given_faults(root, scenario, errors);
    check_threads(root, scenario, errors);
    const YamlNode* cluster = root.find("cluster");
    if (!errors.empty()) {
        if (only_rates_of_links(errors, root)) {  // else what does not fit may follow from what is wrong
            try {
                (void)shape_of(scenario.cluster, scenario.cluster_mark, cluster);
            } catch (const ConfigError& error) {
                errors.insert(errors.end(), error.diagnostics().begin(), error.diagnostics().end());
            }
        }
        throw ConfigError(errors);
    }
    complete(scenario.model);
    add_model_limits(scenario.model.name, data, notes);
    scenario.without_effect.insert(scenario.without_effect.end(), notes.begin(), notes.end());
    const FabricShape shape = shape_of(scenario.cluster, scenario.cluster_mark, cluster);
    if (const std::int64_t rails = scenario.network.packets.nic.rails; rails > std::max(1U, shape.nics_per_node)) {
        throw ConfigError({scenario.network_mark.error(
            fmt::format("nic.rails is {}, but a node has {} NICs", rails, shape.nics_per_node))});
    }
    return scenario;
}

Scenario read_scenario(const YamlNode& root, const std::string& name, const DataDirectory& data) {
    std::vector<Diagnostic> errors;
    std::vector<std::string> notes;
    const YamlNode named = with_named_models(root, data, errors, notes);
    return read_with_presets(named, name, data, std::move(errors), std::move(notes));
}

Scenario load_scenario(const std::string& path, const std::vector<std::string>& overrides, const DataDirectory& data) {
    YamlNode root;
    if (path == "-") {
        root = parse_yaml(read_standard_input(), "standard input");
    } else {
        root = load_yaml(path);
    }
    for (const std::string& assignment : overrides) {
        apply_override(root, assignment);
    }
    Scenario scenario =
        read_scenario(root, path == "-" ? "stdin" : std::filesystem::path(path).filename().string(), data);
    scenario.directory = path == "-" ? "" : std::filesystem::path(path).parent_path().string();
    std::vector<Diagnostic> errors;
    check_files(root, scenario.directory, errors);
    if (!errors.empty()) {
        throw ConfigError(errors);
    }
    return scenario;
}

// What a run depends on, as JSON.
static std::string fields_json(Scenario scenario) {
    Scenario plain = plain_scenario(scenario.kind);
    return write_differences([&](Fields& fields) { describe(fields, scenario); },
                             [&](Fields& fields) { describe(fields, plain); });
}

// What its results depend on.
static std::string simulated_json(Scenario scenario) {
    scenario.network.threads = 1;
    return fields_json(std::move(scenario));
}

std::string complete_json(Scenario scenario) {
    return write_fields([&](Fields& fields) { describe(fields, scenario); });
}

std::string resolved_json(Scenario scenario) {
    std::string out = fields_json(scenario);
    if (!scenario.expect.empty()) {
        nlohmann::ordered_json expect;
        for (const Expectation& one : scenario.expect) {
            expect[one.metric] = one.text;
        }
        const auto end = out.find_last_of('}');
        out.insert(end, fmt::format(", \"{}\": {}", kExpect, expect.dump()));
    }
    return out;
}

namespace {

constexpr const char* kNamesFrom = "x-names-from";  // as SchemaWriter writes it
constexpr const char* kSchemaDialect = "https://json-schema.org/draft/2020-12/schema";

// A schema as fields write it names directories of presets; what is in them becomes an enumeration.
void list_names(nlohmann::ordered_json& schema, const DataDirectory& data) {
    if (schema.is_object() && schema.contains(kNamesFrom)) {
        const auto& from = schema[kNamesFrom];
        schema["enum"] = data.names(
            TableKind{from[0].get_ref<const std::string&>().c_str(), from[1].get_ref<const std::string&>().c_str()});
        schema.erase(kNamesFrom);
    }
    for (auto& inner : schema) {
        if (inner.is_structured()) {
            list_names(inner, data);
        }
    }
}

}  // namespace

// What a job of any kind may say.
static nlohmann::ordered_json job_schemas() {
    auto out = nlohmann::ordered_json::array();
    const auto& names = scenario_kind_names();
    for (std::size_t i = 0; i < names.size(); ++i) {
        Scenario job;
        job.kind = static_cast<ScenarioKind>(i);
        if (row_of(job.kind).jobs) {
            continue;
        }
        out.push_back(nlohmann::ordered_json::parse(schema_of([&](Fields& fields) { describe_job(fields, job); })));
        out.back()["properties"]["kind"]["enum"] = {names[i]};
    }
    return out;
}

std::string scenario_schema(ScenarioKind kind, const DataDirectory& data) {
    Scenario scenario;
    scenario.kind = kind;
    auto schema = nlohmann::ordered_json::parse(schema_of([&](Fields& fields) { describe(fields, scenario); }));
    const std::string& name = scenario_kind_names()[static_cast<std::size_t>(kind)];
    schema["properties"]["kind"]["enum"] = {name};
    if (row_of(kind).jobs) {
        auto& job = schema["properties"]["jobs"]["items"]["properties"]["scenario"];
        job = {{"description", job["description"]}, {"anyOf", job_schemas()}};
    }
    list_names(schema, data);
    schema["properties"][kExpect] = {
        {"type", "object"},
        {"description", kExpectDoc},
        {"additionalProperties", {{"type", nlohmann::ordered_json::array({"string", "object"})}}}};
    nlohmann::ordered_json out = {{"$schema", kSchemaDialect}, {"title", "Orrery scenario of kind " + name}};
    out.update(schema);
    return out.dump(2);
}

const CostModel& ModelCache::device(const DeviceSpec& device, ComputeKind kind, const KernelSets& kernels) {
    DeviceSpec copy = device;
    const std::string key = write_fields([&](Fields& fields) { orrery::describe(fields, copy); }) +
                            (kind == ComputeKind::roofline ? "roofline" : "calibrated") + kernels.text();
    std::unique_ptr<CostModel>& slot = devices_[key];
    if (!slot) {
        if (kind == ComputeKind::roofline) {
            slot = std::make_unique<Roofline>(device);
        } else {
            slot = make_calibrated_model(device, data_, kernels);
        }
        if (board_limit(device) < device.tdp.value) {
            slot = std::make_unique<PowerCapped>(std::move(slot), device);
        }
        if (wrap_) {
            slot = wrap_(std::move(slot), device);
        }
    }
    return *slot;
}

const CollectiveModel& ModelCache::collectives(const NodeSpec& node, LibraryKind kind) {
    const std::string& name = library_names()[static_cast<std::size_t>(kind)];
    std::unique_ptr<CollectiveModel>& slot =
        libraries_[kind == LibraryKind::ideal ? "ideal" : name + " " + node.collectives + " " + node.between];
    if (!slot) {
        if (kind == LibraryKind::ideal) {
            slot = std::make_unique<IdealCollectives>();
        } else {
            slot = make_collectives(node.collectives, name, data_, node.between);
        }
    }
    return *slot;
}

// Faults of a service change links between nodes while it runs.
static bool changes_links(const Scenario& scenario) {
    return scenario.engine.faults.given ||
           std::any_of(scenario.jobs.begin(), scenario.jobs.end(),
                       [](const JobSpec& job) { return job.scenario.engine.faults.given; });
}

RunSettings run_settings(const Scenario& scenario) {
    RunSettings settings = run_settings(
        scenario.network, scenario.network.by_packet() ? link_events_of(scenario) : std::vector<LinkEvent>(),
        static_cast<std::uint64_t>(scenario.seed));
    settings.links_change = settings.links_change || changes_links(scenario) || scenario.faults.given;
    return settings;
}

MessageRunOptions message_options(const Scenario& scenario) {
    MessageRunOptions options;
    options.run = run_settings(scenario);
    options.fold = scenario.network.fold && !scenario.faults.given;
    options.paths = scenario.network.path_choice();
    options.traffic_class = scenario.network.class_number(scenario.collective.traffic_class);
    if (scenario.kind == ScenarioKind::collective && scenario.collective.in_memory) {
        for (const GroupSpec& group : scenario.cluster.groups) {
            options.memories.push_back(group.node.gpu.memory_bandwidth.value);
        }
        if (options.memories.empty()) {
            options.memories.push_back(scenario.cluster.node.gpu.memory_bandwidth.value);
        }
    }
    return options;
}

Fabric fabric_of(const Scenario& scenario) {
    FabricShape shape = shape_of(scenario.cluster, scenario.cluster_mark);
    shape.hash_salt = hash_salt(static_cast<std::uint64_t>(scenario.seed));
    return Fabric(shape);
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
        notes.push_back(fmt::format("paths '{}' count at network.fidelity packet alone; this run is {} and takes {}",
                                    paths, fidelity, network.path_choice() == PathChoice::ecmp ? "ecmp" : "spray"));
    }
    if (network.batch > 0 && network.fidelity != Fidelity::simgrid) {
        notes.push_back(fmt::format("completions grouped within {}", pretty_quantity(network.batch, Dimension::time)));
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
    for (const JobSpec& job : scenario.jobs) {
        for (const std::string& note : job.scenario.without_effect) {
            notes.push_back(job.name + ": " + note);
        }
    }
}

RunOutput run_kind(const Scenario& scenario, ModelCache& models, const RunOptions& options) {
    const auto started = std::chrono::steady_clock::now();
    RunOutput out;
    out.summary.scenario = scenario.name;
    out.summary.kind = scenario_kind_names()[static_cast<std::size_t>(scenario.kind)];
    out.summary.hash = hash_text(simulated_json(scenario));
    out.summary.seed = static_cast<std::uint64_t>(scenario.seed);
    const Fabric fabric = fabric_of(scenario);
    const KindRow& row = row_of(scenario.kind);
    if (scenario.network.fidelity == Fidelity::simgrid) {
        run_on_simgrid(scenario, options, fabric, out);
    } else {
        RunSettings settings = run_settings(scenario);
        settings.packets.count_flows = options.messages;
        Simulation simulation(fabric, settings);
        const Placement whole(fabric);
        const std::vector<TimedFault> faults = given_faults(scenario, fabric);
        LinkFaults on_links(fabric, link_faults(faults, fabric));
        const std::unique_ptr<ScenarioRun> prepared =
            row.prepare({scenario, models, options, fabric, whole, simulation, SimTime(), &faults});
        if (on_links.any()) {
            (void)simulation.add(on_links);
        }
        try {
            simulation.run();
        } catch (const InfeasibleError& error) {
            throw InfeasibleError(error.what() + never_mended(faults), error.code());
        }
        prepared->summarise(out);
        require_alive(scenario, faults, fabric, out);
        out.summary.events = simulation.events();
        if (row.messages) {
            out.summary.add("max_link_utilisation", simulation.report().max_link_utilisation, "1");
        }
        add_packet_metrics(simulation.packet_statistics(), out.summary);
        out.packets = simulation.packet_report();
    }
    add_network_notes(scenario.network, out.summary.notes);
    add_nic_notes(scenario, out.summary.notes);
    add_without_effect(scenario, out.summary.notes);
    out.summary.expectations = judge(scenario.expect, out.summary);
    const auto elapsed = std::chrono::steady_clock::now() - started;
    out.summary.wall_time_s = std::chrono::duration<double>(elapsed).count();
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    out.summary.peak_rss_mib = static_cast<double>(usage.ru_maxrss) / 1024;
    return out;
}

}  // namespace

RunOutput run(const Scenario& scenario, ModelCache& models, const RunOptions& options) {
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

DataDirectory find_data_directory(const std::string& program) {
    std::error_code failed;
    const std::filesystem::path real = std::filesystem::read_symlink("/proc/self/exe", failed);
    const std::filesystem::path base = failed ? std::filesystem::path(program) : real;
    const std::filesystem::path installed = base.parent_path().parent_path() / "share" / "orrery";
    if (std::filesystem::exists(installed / "models" / "data")) {
        return DataDirectory(installed.string());
    }
    return DataDirectory(ORRERY_SOURCE_DIR);
}

}  // namespace orrery::inline driver
