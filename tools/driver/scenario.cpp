#include "tools/driver/scenario.hpp"

#include "sim/base/input_file.hpp"
#include "sim/base/random.hpp"
#include "tools/driver/expect_key.hpp"
#include "tools/driver/given_faults.hpp"
#include "tools/driver/job.hpp"
#include "tools/driver/kind.hpp"
#include "tools/driver/named_model.hpp"
#include "tools/driver/price_classes.hpp"
#include "tools/driver/reading.hpp"
#include "tools/driver/scenario_checks.hpp"
#include "workloads/trace/flow_trace.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <set>

namespace orrery::driver {

namespace {

// FNV over the resolved text, as sixteen hexadecimal digits.
std::string hash_text(const std::string& text) {
    return fmt::format("{:016x}", mix64(hash64(text)));
}

std::vector<TimedFault> link_events_of(const Scenario& s) {
    const std::string& file = s.network.packets.link_events;
    return file.empty() ? std::vector<TimedFault>()
                        : read_link_events(s.file(file), fabric_of(s), pauses(s.network.packets));
}

}  // namespace

std::string Scenario::file(const std::string& path) const {
    return directory.empty() || path.front() == '/' ? path : directory + "/" + path;
}

// Every member that is the path of a file.
static std::vector<std::string*> paths_in(Scenario& scenario) {
    std::vector<std::string*> out = scenario.own->own_files();
    out.push_back(&scenario.network.packets.link_events);
    return out;
}

std::vector<std::string> files_of(const Scenario& scenario) {
    Scenario copy = scenario;
    std::vector<std::string> out;
    for (const std::string* path : paths_in(copy)) {
        if (!path->empty()) {
            out.push_back(scenario.file(*path));
        }
    }
    for (const JobSpec* job : jobs_of(scenario)) {
        if (!job->file.empty()) {
            out.push_back(scenario.file(job->file));
        }
        Scenario own = job->scenario;
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
    for (JobSpec* job : scenario.own->own_jobs()) {
        job->scenario.directory = scenario.directory;
        job->scenario = seen_from(directory, std::move(job->scenario));
    }
    scenario.directory = directory;
    return scenario;
}

void describe_version(Fields& fields, bool required) {
    std::int64_t version = 1;
    fields.integer({"orrery", "version of the scenario language; this is 1", required, 1, 1}, version);
}

// What scenarios of every kind have.
static void describe_common(Fields& fields, Scenario& s) {
    describe_version(fields, true);
    describe_kind(fields, {"kind", "question that the scenario asks", true}, s.own);
    fields.integer({"seed", "seed of all random streams", false, 0, 9e15}, s.seed);
    fields.section({"cluster", "machines and the network between them", true},
                   [&](Fields& inner) { describe(inner, s.cluster); });
}

void describe(Fields& fields, Scenario& s) {
    describe_common(fields, s);
    s.own->describe(fields, s);
    fields.section({"network", "simulation of the network"},
                   [&](Fields& inner) { describe(inner, s.network, s.kind().network); });
    fields.needs("network.queues.reduction_slots", s.own->sums_in_switches(),
                 "an all-reduce inside switches (algorithm: in-switch)", Unmet::noted);
}

// Keys of another kind of scenario are unknown keys, so the kind has to be known first. Null: it is none.
const KindRow* kind_of(const YamlNode& root) {
    const YamlNode* kind = root.find("kind");
    if (kind != nullptr && kind->scalar == "sweep") {
        throw ConfigError({kind->mark.error("this is a sweep of scenarios: 'orrery sweep' runs it")});
    }
    return kind != nullptr ? find_kind(kind->scalar) : nullptr;
}

// What can be said of a scenario of no kind: what is wrong with the kind and with what all kinds have.
[[noreturn]] static void refuse_kind(const YamlNode& root, const DataDirectory& data) {
    YamlNode common = root;
    std::erase_if(common.entries, [](const YamlNode::Entry& entry) {
        return entry.key != "orrery" && entry.key != "kind" && entry.key != "seed" && entry.key != "cluster";
    });
    Scenario scenario = scenario_of(*scenario_kinds().front());
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
    scenario.network_mark = mark_of("network");
    scenario.own->keep_marks(root);
}

void keep_without_effect(const YamlNode& node, Scenario& scenario, const std::function<void(Fields&)>& describe_own,
                         const std::function<void(Fields&)>& usual, std::vector<Diagnostic>& errors) {
    WithoutEffect found = without_effect(node, describe_own, usual);
    errors.insert(errors.end(), found.errors.begin(), found.errors.end());
    scenario.without_effect = std::move(found.notes);
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
    if (root.kind != YamlNode::Kind::map) {
        throw ConfigError({root.mark.error("a scenario is a map that starts with 'orrery: 1'", ErrorCode::wrong_type)});
    }
    const KindRow* kind = kind_of(root);
    if (kind == nullptr) {
        refuse_kind(root, data);
    }
    Scenario scenario = scenario_of(*kind);
    scenario.name = name;
    keep_marks(root, scenario);
    YamlNode tidied = root;
    if (const YamlNode* expect = root.find(kExpect)) {
        scenario.expect = read_expectations(*expect, errors);
    }
    scenario.own->tidy(tidied, errors);
    read_fields(
        tidied, data, errors, [&](Fields& fields) { describe(fields, scenario); }, &scenario.origins, kExpect);
    for (const std::string& problem : problems_of(scenario.network)) {
        errors.push_back(scenario.network_mark.error(problem));
    }
    check_classes(root, scenario, errors);
    if (scenario.network.packets.skip_error > 0 && faults_of(scenario).campaign) {
        errors.push_back(scenario.network_mark.error(
            "network.skip goes with networks that stay as they are: leave it out beside faults"));
    }
    if (scenario.network.fidelity == Fidelity::simgrid && !kind->network.simgrid) {
        errors.push_back(scenario.network_mark.error(
            "fidelity simgrid serves collective and network scenarios: SimGrid owns its clock; use fluid here"));
    }
    if (scenario.own->needs_nodes() && scenario.cluster.nodes == 0 && root.find("cluster") != nullptr &&
        !names_lines_of(errors, root, "cluster")) {
        errors.push_back(
            scenario.cluster_mark.error(fmt::format("{} needs 'nodes' with GPUs, not bare hosts", kind->name)));
    }
    check_topology(scenario, errors);
    apply_power_budget(root, scenario, errors);
    check_power_limit(scenario, mark_of(root, "engine"), errors);
    scenario.own->check(root, data, scenario, errors);
    YamlNode own = root;  // jobs are looked through with their own defaults
    std::erase_if(own.entries, [](const YamlNode::Entry& entry) { return entry.key == "jobs"; });
    Scenario plain = scenario_of(*kind);
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
    if (ModelSpec* model = scenario.own->own_model()) {
        complete(*model);
        add_model_limits(model->name, data, notes);
    }
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
    YamlNode named = with_named_models(root, data, errors, notes);
    resolve_prices(named, data, errors);
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
    throw_if_any(errors);
    return scenario;
}

// What a run depends on, as JSON.
static std::string fields_json(Scenario scenario) {
    Scenario plain = scenario_of(scenario.kind());
    return write_differences([&](Fields& fields) { describe(fields, scenario); },
                             [&](Fields& fields) { describe(fields, plain); });
}

std::string hash_of(const Scenario& scenario) {
    Scenario simulated = scenario;
    simulated.network.threads = 1;  // results are the same with any
    return hash_text(fields_json(std::move(simulated)));
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
    for (const KindRow* kind : scenario_kinds()) {
        Scenario job = scenario_of(*kind);
        if (job.own->holds_jobs()) {
            continue;
        }
        out.push_back(nlohmann::ordered_json::parse(schema_of([&](Fields& fields) { describe_job(fields, job); })));
        out.back()["properties"]["kind"]["enum"] = {kind->name};
    }
    return out;
}

std::string scenario_schema(const KindRow& kind, const DataDirectory& data) {
    Scenario scenario = scenario_of(kind);
    auto schema = nlohmann::ordered_json::parse(schema_of([&](Fields& fields) { describe(fields, scenario); }));
    const std::string name = kind.name;
    schema["properties"]["kind"]["enum"] = {name};
    if (scenario.own->holds_jobs()) {
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

RunSettings run_settings(const Scenario& scenario) {
    RunSettings settings = run_settings(
        scenario.network, scenario.network.by_packet() ? link_events_of(scenario) : std::vector<TimedFault>(),
        static_cast<std::uint64_t>(scenario.seed));
    settings.links_change = settings.links_change || scenario.own->changes_links() || faults_of(scenario).given;
    return settings;
}

Fabric fabric_of(const Scenario& scenario) {
    FabricShape shape = shape_of(scenario.cluster, scenario.cluster_mark);
    shape.hash_salt = hash_salt(static_cast<std::uint64_t>(scenario.seed));
    return Fabric(shape);
}

DataDirectory find_data_directory(const std::string& program) {
    // The Python module runs inside another program, names itself and has its data beside it.
    if (const std::filesystem::path module(program); module.extension() == ".so") {
        const std::filesystem::path bundled = module.parent_path() / "share" / "orrery";
        return DataDirectory(std::filesystem::exists(bundled / "models" / "data") ? bundled.string()
                                                                                  : ORRERY_SOURCE_DIR);
    }
    std::error_code failed;
    const std::filesystem::path real = std::filesystem::read_symlink("/proc/self/exe", failed);
    const std::filesystem::path base = failed ? std::filesystem::path(program) : real;
    const std::filesystem::path installed = base.parent_path().parent_path() / "share" / "orrery";
    if (std::filesystem::exists(installed / "models" / "data")) {
        return DataDirectory(installed.string());
    }
    return DataDirectory(ORRERY_SOURCE_DIR);
}

}  // namespace orrery::driver
